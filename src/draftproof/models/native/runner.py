"""Compiled passes: what a span says, as the kernels take it."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterable, Sequence

import torch

from draftproof.errors import ConfigError
from draftproof.models.native import structures as native
from draftproof.models.native.cache import NativeCache
from draftproof.models.native.decoder import NativeDecoder
from draftproof.models.span import Cache, Rows, Span, refuse_shared


class NativeRunner:
    """Compiled passes on the CPU. A row's bits depend on its own text only, whoever shares the pass.

    A token of a tree has the bits that it has at the end of the chain of its ancestors.
    """

    steady = True

    def __init__(self, decoder: NativeDecoder) -> None:
        self._decoder = decoder
        self.width = decoder.width

    def cache(self) -> NativeCache:
        return NativeCache(self._decoder)

    def run(self, spans: Sequence[Span]) -> list[Rows]:
        refuse_shared(spans)
        decoder = self._decoder
        into = (native.Span * len(spans))()
        held = [self._fill(one, span) for one, span in zip(into, spans, strict=True)]  # what the pointers point to
        hidden = decoder.structure.hidden
        states = [torch.empty(len(span.tokens), hidden) if span.states else None for span in spans]
        for one, wanted in zip(into, states, strict=True):
            one.states = None if wanted is None else wanted.data_ptr()
        logits = torch.empty(sum(span.last for span in spans), decoder.structure.head.rows)
        angles, tables = decoder.angles(max(max(span.placed()) for span in spans) + 1)
        decoder.library.draftproof_run(
            ctypes.byref(decoder.structure), ctypes.byref(angles), into, len(spans), logits.data_ptr()
        )
        del held, tables
        if bool(logits[:, 0].isnan().any()):
            self._doubt(span.cache for span in spans)
        rows = torch.split(logits[:, : self.width], [span.last for span in spans])
        return [Rows(own, wanted) for own, wanted in zip(rows, states, strict=True)]

    def write(
        self,
        cache: Cache,
        tokens: Sequence[int],
        start: int,
        count: int,
        ends: Collection[int] = (),
        floor: float = 0.0,
    ) -> tuple[list[int], list[float]]:
        decoder, one = self._decoder, native.Span()
        held = self._fill(one, Span(cache, tokens, start), count)
        angles, tables = decoder.angles(start + len(tokens) + count)
        written, sure = (ctypes.c_int32 * count)(), (ctypes.c_float * count)()
        done = decoder.library.draftproof_write(
            ctypes.byref(decoder.structure),
            ctypes.byref(angles),
            ctypes.byref(one),
            count,
            self.width,
            (ctypes.c_int32 * len(ends))(*ends),
            len(ends),
            floor,
            written,
            sure,
        )
        del held, tables
        if any(share != share for share in sure[:done]):
            self._doubt([cache])
        return written[:done], sure[:done]

    @staticmethod
    def _doubt(caches: Iterable[Cache]) -> None:
        for cache in caches:
            assert isinstance(cache, NativeCache)
            cache.broken = True

    def _fill(self, into: native.Span, span: Span, ahead: int = 0) -> list[object]:
        """Say in the kernels' words what the span says; return what has to outlive the pass.

        The kernels check nothing, so ids have to be the model's.
        """
        cache = span.cache
        if not isinstance(cache, NativeCache) or cache.decoder is not self._decoder:
            raise ConfigError("a span's cache has to be one that this runner made.")
        if min(span.tokens) < 0 or max(span.tokens) >= self.width:
            some = list(span.tokens[:8])
            raise ConfigError(f"token ids must lie between 0 and {self.width - 1}, got {some}.")
        cache.need(span.end + ahead)
        cache.mend(span.start)
        into.place.cache, into.place.capacity = cache.address, cache.capacity
        into.count, into.start, into.last = len(span.tokens), span.start, span.last
        tokens = _integers(span.tokens)
        into.tokens = ctypes.addressof(tokens)
        held: list[object] = [tokens]
        for name, values in (("positions", span.positions), ("parents", span.parents)):
            if values is not None:
                held.append(whole := _integers(values))
                setattr(into, name, ctypes.addressof(whole))
        return held


def _integers(values: Sequence[int]) -> ctypes.Array[ctypes.c_int32]:
    return (ctypes.c_int32 * len(values))(*values)
