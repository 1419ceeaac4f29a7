"""A key/value cache that is addressed by position: going back means writing again at an earlier position.

Each pass says at which positions its tokens stand. Keys and values are written there, and what the pass sees ends with
its own last position, so entries of rejected guesses are overwritten or never seen; nothing is ever cropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from draftproof.models.graph import Graph
from draftproof.models.room import far_too_much, room_for


@dataclass(slots=True)
class _Standing:
    """The slots `start` up to `end` (exclusive) that the running pass writes, shared by all layers."""

    start: int = 0
    end: int = 0
    seen: int = 0
    """Slots that the pass is handed; the mask hides those behind its own."""
    room: int = 0
    """Slots that there has to be memory for."""
    index: torch.Tensor | None = None
    """The slots as a tensor, where a pass is captured and will be replayed at other slots."""


class _Layer(CacheLayerMixin):  # type: ignore[misc]
    """One layer's keys and values, each `[rows, heads, positions, head size]`."""

    is_sliding = False  # every position is kept; a sliding window is a matter of the mask

    def __init__(self, standing: _Standing) -> None:
        super().__init__()
        self.standing = standing

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys = key_states.new_zeros((*key_states.shape[:2], 0, key_states.shape[3]))
        self.values = value_states.new_zeros((*value_states.shape[:2], 0, value_states.shape[3]))
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new states to the pass's slots; return all states up to its end."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, end, seen = self.standing.start, self.standing.end, self.standing.seen
        assert self.keys is not None and self.values is not None
        if self.keys.shape[2] < seen:
            self.keys, self.values = (_grown(states, self.standing.room) for states in (self.keys, self.values))
        if self.standing.index is None:
            self.keys[:, :, start:end] = key_states
            self.values[:, :, start:end] = value_states
        else:
            self.keys.index_copy_(2, self.standing.index, key_states)
            self.values.index_copy_(2, self.standing.index, value_states)
        return self.keys[:, :, :seen], self.values[:, :, :seen]

    def get_seq_length(self) -> int:
        return self.standing.start

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.standing.seen, 0

    def get_max_length(self) -> int:
        return -1

    get_max_cache_shape = get_max_length  # the name before transformers 5.2x


def _grown(states: torch.Tensor, capacity: int) -> torch.Tensor:
    wider = states.new_zeros((*states.shape[:2], capacity, states.shape[3]))
    wider[:, :, : states.shape[2]] = states
    return wider


class PositionCache(Cache):  # type: ignore[misc]
    """A transformers cache whose passes are placed by `place`; layers appear as the model asks for them.

    A pass is handed the slots up to its own end; with `stepwise`, all the room that a text of that length has, and
    `padding` slots: so the shape of what it sees changes with the text's length in steps, and with nothing else.
    """

    def __init__(self, padding: int = 0, *, stepwise: bool = False) -> None:
        self.standing = _Standing()
        self.captured: dict[tuple[int, ...], Graph] = {}
        """Passes over this cache that were captured, by their shape and where the states lie in memory."""
        self._padding = padding
        self._stepwise = stepwise
        super().__init__(layer_class_to_replicate=lambda: _Layer(self.standing))

    def place(self, start: int, count: int, padded: int) -> int:
        """Say that the next pass writes `padded` slots from `start` on, of which `count` are the text's; return how
        many slots it is handed."""
        self.standing.start, self.standing.end = start, start + padded
        if self._stepwise:
            self.standing.seen = self.standing.room = room_for(start + count) + self._padding
        else:
            self.standing.seen, self.standing.room = start + padded, room_for(start + padded)
        return self.standing.seen

    def address(self) -> tuple[int, ...]:
        """Where the states lie in memory; nothing before the first pass."""
        return tuple(layer.keys.data_ptr() for layer in self.layers if layer.is_initialized)

    @property
    def capacity(self) -> int:
        """Slots that there is memory for."""
        return max((layer.keys.shape[2] for layer in self.layers if layer.is_initialized), default=0)

    @property
    def bytes(self) -> int:
        """Memory that it has."""
        known = [states for one in self.layers if one.is_initialized for states in (one.keys, one.values)]
        return sum(states.numel() * states.element_size() for states in known)

    @property
    def bytes_per_slot(self) -> int:
        """Memory that a slot takes; 0 before the first pass."""
        return self.bytes // self.capacity if self.capacity else 0

    def copy(self, slots: int) -> PositionCache:
        """Return a cache of its own that holds the first so many slots."""
        twin = PositionCache(self._padding, stepwise=self._stepwise)
        for layer in self.layers:
            own = _Layer(twin.standing)
            if layer.is_initialized:
                own.keys, own.values = (_grown(s[:, :, :slots], s.shape[2]) for s in (layer.keys, layer.values))
                own.is_initialized = True
            twin.layers.append(own)
        return twin

    def reserve(self, positions: int) -> None:
        """Expect a text of this many tokens; far more room than that is given back."""
        for layer in self.layers:
            if layer.is_initialized and far_too_much(layer.keys.shape[2], positions):
                kept = room_for(positions) + self._padding
                layer.keys, layer.values = layer.keys[:, :, :kept].clone(), layer.values[:, :, :kept].clone()
                self.captured.clear()

    @torch.inference_mode()
    def move(self, slots: Sequence[int], start: int) -> None:
        """Put what lies in `slots`, in their order, into the slots from `start` on."""
        for layer in self.layers:
            if layer.is_initialized:
                index = torch.tensor(slots, device=layer.keys.device)
                for states in (layer.keys, layer.values):
                    states[:, :, start : start + len(slots)] = states[:, :, index]


class _StackedLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer of several caches, side by side."""

    is_sliding = False

    def __init__(self, caches: Sequence[PositionCache], index: int) -> None:
        super().__init__()
        self.caches, self.index = caches, index

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write each row of the new states into its cache, padding left out; return copies of all, stacked."""
        longest = self.get_seq_length()
        stacked = tuple(new.new_zeros((*new.shape[:2], longest, new.shape[3])) for new in (key_states, value_states))
        for row, cache in enumerate(self.caches):
            count, end = cache.standing.end - cache.standing.start, cache.standing.end
            own = cache.update(key_states[row, None, :, :count], value_states[row, None, :, :count], self.index)
            for into, states in zip(stacked, own, strict=True):
                into[row, :, :end] = states[0, :, :end]
        return stacked[0], stacked[1]

    def get_seq_length(self) -> int:
        return max(cache.standing.end for cache in self.caches)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length(), 0

    def get_max_length(self) -> int:
        return -1

    get_max_cache_shape = get_max_length


class StackedCache(Cache):  # type: ignore[misc]
    """What one pass over several requests is handed: their caches, each placed, as rows of one.

    Keys and values stay with their request, so a pass copies them: it reads the weights once, and every text twice.
    """

    def __init__(self, caches: Sequence[PositionCache]) -> None:
        super().__init__(layer_class_to_replicate=lambda: _StackedLayer(caches, len(self.layers)))
