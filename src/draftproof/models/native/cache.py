"""One request's keys and values, as the compiled passes read them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from draftproof.models.native.decoder import NativeDecoder
from draftproof.models.native.packing import LANES
from draftproof.models.room import far_too_much, room_for


class NativeCache:
    """One request's keys and values on a decoder."""

    def __init__(self, decoder: NativeDecoder) -> None:
        self.decoder = decoder
        self.capacity = 0
        """Slots there is room for."""
        self.broken = False
        """Whether something was written that is no number: what stands behind a text is weighed with 0, and 0 times
        that is no number either."""
        self._data = torch.zeros(0, dtype=torch.uint8)

    @property
    def address(self) -> int:
        return self._data.data_ptr()

    def reserve(self, positions: int) -> None:
        """Expect a text of this many tokens; what is far larger is given back, and the slots below are kept."""
        if far_too_much(self.capacity, positions):
            self._resize(room_for(positions))

    def need(self, slots: int) -> None:
        """Make room for this many slots; what is held stays."""
        if slots > self.capacity:
            self._resize(room_for(slots))

    @property
    def bytes(self) -> int:
        """Memory that it has."""
        return self._data.numel()

    @property
    def bytes_per_slot(self) -> int:
        """Memory that a slot takes."""
        layers, both, kv_heads, head_dim = self.decoder.kv_shape
        return int(layers * both * kv_heads * head_dim * self.decoder.dtype.itemsize)

    def copy(self, slots: int) -> NativeCache:
        """Return a cache of its own that holds the first so many slots."""
        twin = NativeCache(self.decoder)
        twin.need(slots)
        twin._take(self._states(), slots)
        return twin

    def mend(self, start: int) -> None:
        """Empty the slots from `start` on, if what lies there may be no number."""
        if not self.broken or not self.capacity:
            return
        keys, values = self._states()
        per_step = keys.shape[-1]
        keys[:, :, start // LANES, :, start % LANES :] = 0
        keys[:, :, start // LANES + 1 :] = 0
        values[:, :, :, start // per_step, :, start % per_step :] = 0
        values[:, :, :, start // per_step + 1 :] = 0
        self.broken = start > 0

    def move(self, slots: Sequence[int], start: int) -> None:
        """Put what lies in `slots`, in their order, into the slots from `start` on."""
        keys, values = self._states()
        per_step = keys.shape[-1]
        source, target = torch.tensor(slots), torch.arange(start, start + len(slots))
        keys[:, :, target // LANES, :, target % LANES] = keys[:, :, source // LANES, :, source % LANES]
        into, per = (target // per_step, target % per_step), (source // per_step, source % per_step)
        values[:, :, :, into[0], :, into[1]] = values[:, :, :, per[0], :, per[1]]

    def _states(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Views of the keys `[layers, heads, panels of slots, steps, 16 slots, in a step]`, and of the values `[layers,
        heads, panels of the head, steps of slots, 16, in a step]`, as the kernels lay them out."""
        layers, _, kv_heads, head_dim = self.decoder.kv_shape
        per_step = 4 // self.decoder.dtype.itemsize
        both = self._data.view(self.decoder.dtype)
        keys = (layers, kv_heads, self.capacity // LANES, head_dim // per_step, LANES, per_step)
        values = (layers, kv_heads, head_dim // LANES, self.capacity // per_step, LANES, per_step)
        return both[:, 0].view(keys), both[:, 1].view(values)

    def _resize(self, capacity: int) -> None:
        layers, both, kv_heads, head_dim = self.decoder.kv_shape
        size = capacity * head_dim * self.decoder.dtype.itemsize
        old, kept = self._states() if self.capacity else (), min(capacity, self.capacity)
        self._data = torch.zeros((layers, both, kv_heads, size), dtype=torch.uint8)
        self.capacity = capacity
        if old:
            self._take(old, kept)

    def _take(self, states: tuple[torch.Tensor, ...], slots: int) -> None:
        """Copy the first so many slots, up to a whole panel, from another cache's states."""
        keys, values = self._states()
        panels = -(-slots // LANES)
        keys[:, :, :panels] = states[0][:, :, :panels]
        steps = panels * LANES // keys.shape[-1]
        values[:, :, :, :steps] = states[1][:, :, :, :steps]
