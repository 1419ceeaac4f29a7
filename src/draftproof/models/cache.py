"""A key/value cache that is addressed by position: going back means writing again at an earlier position.

Each pass says at which positions its tokens stand. Keys and values are written there, and what the pass sees ends with
its own last position, so entries of rejected guesses are overwritten or never seen; nothing is ever cropped.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

BLOCK = 256
"""The cache grows by multiples of this many positions."""
AHEAD = 4096
"""At most this many positions are allocated ahead of the text: a limit is not yet a length."""


@dataclass(slots=True)
class _Span:
    """The positions `start` up to `end` (exclusive) that the running pass writes, shared by all layers."""

    start: int = 0
    end: int = 0
    seen: int = 0
    """Positions that the pass is handed; the mask hides those behind its own."""
    reserved: int = 0
    whole: bool = False
    index: torch.Tensor | None = None
    """The positions as a tensor, where a pass is captured and will be replayed at other positions."""


class _Layer(CacheLayerMixin):  # type: ignore[misc]
    """One layer's keys and values, each `[rows, heads, positions, head size]`."""

    is_sliding = False  # every position is kept; a sliding window is a matter of the mask

    def __init__(self, span: _Span) -> None:
        super().__init__()
        self.span = span

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys = key_states.new_zeros((*key_states.shape[:2], 0, key_states.shape[3]))
        self.values = value_states.new_zeros((*value_states.shape[:2], 0, value_states.shape[3]))
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new states at the span's positions; return all states up to its end."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, end, seen = self.span.start, self.span.end, self.span.seen
        assert self.keys is not None and self.values is not None
        if self.keys.shape[2] < seen:
            wanted = max(seen, min(self.span.reserved, end + AHEAD), min(2 * self.keys.shape[2], end + AHEAD))
            capacity = _rounded(wanted)
            self.keys, self.values = _grown(self.keys, capacity), _grown(self.values, capacity)
        if self.span.index is None:
            self.keys[:, :, start:end] = key_states
            self.values[:, :, start:end] = value_states
        else:
            self.keys.index_copy_(2, self.span.index, key_states)
            self.values.index_copy_(2, self.span.index, value_states)
        return self.keys[:, :, :seen], self.values[:, :, :seen]

    def get_seq_length(self) -> int:
        return self.span.start

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.span.seen, 0

    def get_max_length(self) -> int:
        return -1

    get_max_cache_shape = get_max_length  # the name before transformers 5.2x


def _rounded(positions: int) -> int:
    return -(-positions // BLOCK) * BLOCK


def _grown(states: torch.Tensor, capacity: int) -> torch.Tensor:
    wider = states.new_zeros((*states.shape[:2], capacity, states.shape[3]))
    wider[:, :, : states.shape[2]] = states
    return wider


class PositionCache(Cache):  # type: ignore[misc]
    """A transformers cache whose passes are placed by `place`; layers appear as the model asks for them."""

    def __init__(self) -> None:
        self.span = _Span()
        super().__init__(layer_class_to_replicate=lambda: _Layer(self.span))

    def place(self, start: int, end: int) -> int:
        """Say that the next pass stands at positions `start` up to `end`; return how many positions it is handed."""
        self.span.start, self.span.end = start, end
        self.span.seen = max(end, _rounded(self.span.reserved)) if self.span.whole else end
        return self.span.seen

    def address(self) -> tuple[int, ...]:
        """Where the states lie in memory; nothing before the first pass."""
        return tuple(layer.keys.data_ptr() for layer in self.layers if layer.is_initialized)

    def reserve(self, positions: int, *, whole: bool = False) -> None:
        """Expect a text of this many positions: room for it is made in one allocation, and far more is given back.

        With `whole`, every pass is handed all of that room, so that its shape does not depend on where it stands.
        """
        self.span.reserved, self.span.whole = positions, whole
        for layer in self.layers:
            if layer.is_initialized and layer.keys.shape[2] > 4 * max(positions, AHEAD):
                layer.is_initialized = False
                layer.keys = layer.values = None
