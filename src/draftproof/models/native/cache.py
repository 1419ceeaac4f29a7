"""One request's keys and values, as the compiled passes read them."""

from __future__ import annotations

import torch

from draftproof.models.native.decoder import NativeDecoder
from draftproof.models.native.packing import LANES

AHEAD = 4096
"""At most this many slots are allocated ahead of the text: a limit is not yet a length."""


class NativeCache:
    """One request's keys and values on a decoder."""

    def __init__(self, decoder: NativeDecoder) -> None:
        self.decoder = decoder
        self.capacity = 0
        """Slots there is room for."""
        self._reserved = 0
        self._data = torch.zeros(0, dtype=torch.uint8)

    @property
    def address(self) -> int:
        return self._data.data_ptr()

    def reserve(self, positions: int) -> None:
        """Expect a text of this many tokens; what is far larger is given back, and the slots below are kept."""
        self._reserved = positions
        if self.capacity > 4 * max(positions, AHEAD):
            self._resize(positions)

    def need(self, slots: int) -> None:
        """Make room for this many slots; what is held stays."""
        if slots > self.capacity:
            most = slots + AHEAD
            self._resize(max(slots, min(self._reserved, most), min(2 * self.capacity, most)))

    def _resize(self, slots: int) -> None:
        capacity = -(-slots // LANES) * LANES
        kept = min(capacity, self.capacity)
        layers, _, kv_heads, head_dim = shape = self.decoder.kv_shape
        size = self.decoder.dtype.itemsize
        data = torch.zeros((*shape[:3], capacity * head_dim * size), dtype=torch.uint8)
        if kept:
            was = self._data.view(*shape[:3], -1)
            lasting = kept * head_dim * size
            data[:, 0, :, :lasting] = was[:, 0, :, :lasting]  # keys lie position by position
            panels = (layers, kv_heads, head_dim // LANES, -1)  # values lie panel by panel
            lasting = kept * LANES * size
            data[:, 1].view(panels)[..., :lasting] = was[:, 1].view(panels)[..., :lasting]
        self._data, self.capacity = data, capacity
