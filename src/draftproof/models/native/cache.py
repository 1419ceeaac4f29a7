"""One request's past, and the compiled passes over it."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from draftproof.errors import ConfigError
from draftproof.models.native import structures as native
from draftproof.models.native.decoder import NativeDecoder
from draftproof.models.native.packing import LANES


class NativeCache:
    """One request's keys and values on a decoder, and the passes over it."""

    def __init__(self, decoder: NativeDecoder) -> None:
        self._decoder = decoder
        self.capacity = 0
        """Positions there is room for."""
        self._data = torch.zeros(0, dtype=torch.uint8)
        self._tables: list[Tensor] = []
        self._place = native.Place()

    def reserve(self, positions: int) -> None:
        """Make room for this many positions; what is held stays."""
        if positions <= self.capacity:
            return
        old, capacity = self.capacity, -(-positions // LANES) * LANES
        layers, _, kv_heads, head_dim = shape = self._decoder.kv_shape
        size = self._decoder.dtype.itemsize
        grown = torch.zeros((*shape[:3], capacity * head_dim * size), dtype=torch.uint8)
        if old:
            was = self._data.view(*shape[:3], -1)
            grown[:, 0, :, : was.shape[-1]] = was[:, 0]  # keys lie position by position
            panels = (layers, kv_heads, head_dim // LANES)  # values lie panel by panel
            grown[:, 1].view(*panels, -1)[..., : old * LANES * size] = was[:, 1].reshape(*panels, -1)
        self._data, self.capacity = grown, capacity
        self._place.cache, self._place.capacity = grown.data_ptr(), capacity
        self._tables = []
        for i, (frequencies, scaling) in enumerate(self._decoder.ropes):
            angles = torch.arange(capacity, dtype=torch.float32)[:, None] * frequencies
            cos, sin = angles.cos() * scaling, angles.sin() * scaling
            self._tables += [cos, sin]
            self._place.cos[i], self._place.sin[i] = cos.data_ptr(), sin.data_ptr()

    def _checked(self, tokens: Sequence[int]) -> ctypes.Array[ctypes.c_int32]:
        """The tokens as the kernels take them; the kernels check nothing, so ids have to be the model's."""
        if not tokens or min(tokens) < 0 or max(tokens) >= self._decoder.width:
            raise ConfigError(f"token ids must lie between 0 and {self._decoder.width - 1}, got {list(tokens)[:8]}.")
        return (ctypes.c_int32 * len(tokens))(*tokens)

    def read(self, tokens: Sequence[int], start: int, last: int) -> Tensor:
        """Run one pass over `tokens` at positions `start`…; return the final `last` rows of logits, `[last, width]`."""
        ids = self._checked(tokens)
        self.reserve(start + len(tokens))
        decoder = self._decoder
        logits = torch.empty(last, decoder.structure.head.rows)
        decoder.library.draftproof_read(
            ctypes.byref(decoder.structure),
            ctypes.byref(self._place),
            ids,
            len(tokens),
            start,
            last,
            ctypes.c_void_p(logits.data_ptr()),
        )
        return logits[:, : decoder.width]

    def write(
        self, tokens: Sequence[int], start: int, count: int, ends: Collection[int] = ()
    ) -> tuple[list[int], list[float]]:
        """Read `tokens` at positions `start`…, and go on with the `count` most likely tokens, in one call.

        It stops behind one of `ends`. Returns them and their logits. All but the last have been read.
        """
        ids = self._checked(tokens)
        self.reserve(start + len(tokens) + count)
        decoder = self._decoder
        written, best = (ctypes.c_int32 * count)(), (ctypes.c_float * count)()
        done = decoder.library.draftproof_write(
            ctypes.byref(decoder.structure),
            ctypes.byref(self._place),
            ids,
            len(tokens),
            start,
            count,
            decoder.width,
            (ctypes.c_int32 * len(ends))(*ends),
            len(ends),
            written,
            best,
        )
        return written[:done], best[:done]
