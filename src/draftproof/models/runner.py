"""How a model runs one pass. The session above decides which tokens a pass reads; what reads them is here."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from typing import Any, Protocol

import torch
from transformers import PreTrainedModel

from draftproof.models.cache import PositionCache
from draftproof.models.graph import Graph
from draftproof.models.native.cache import NativeCache
from draftproof.models.native.decoder import NativeDecoder
from draftproof.models.windows import attention_windows
from draftproof.settings import MAX_K

LONGEST_GRAPH = MAX_K + 1
"""Tokens of the longest pass that is captured as a graph; longer ones read prompts."""


class Runner(Protocol):
    """Passes of one model over one cache that is addressed by position."""

    @property
    def width(self) -> int:
        """Number of logits in a row."""
        ...

    def reset(self, reserve: int) -> None:
        """Expect a text of about `reserve` tokens; what the cache holds counts as stale."""
        ...

    def run(self, tokens: Sequence[int], start: int, last: int) -> torch.Tensor:
        """Run one pass over `tokens` at positions `start`…; return the final `last` rows of logits, `[last, width]`."""
        ...

    def write(
        self, tokens: Sequence[int], start: int, count: int, ends: Collection[int] = ()
    ) -> tuple[list[int], list[float]]:
        """Read `tokens` at positions `start`…, and go on with the `count` most likely tokens, reading all but the last.

        Behind one of `ends` it stops, unless looking at a token would make the device wait. Returns those tokens and
        their logits.
        """
        ...


class NativeRunner:
    """Compiled passes on the CPU. A row's bits never depend on the shape of its pass."""

    def __init__(self, decoder: NativeDecoder) -> None:
        self._cache = NativeCache(decoder)
        self.width = decoder.width

    def reset(self, reserve: int) -> None:
        self._cache.reserve(reserve)

    def run(self, tokens: Sequence[int], start: int, last: int) -> torch.Tensor:
        return self._cache.read(tokens, start, last)

    def write(
        self, tokens: Sequence[int], start: int, count: int, ends: Collection[int] = ()
    ) -> tuple[list[int], list[float]]:
        return self._cache.write(tokens, start, count, ends)


class TransformersRunner:
    """Passes through a transformers model.

    With `shape`, every pass of that many tokens or fewer is padded to it, and sees a cache of one length for the whole
    request: then a row's bits do not depend on what stands beside it. Longer passes, which read a prompt, are as they
    are: they are the same whatever is guessed later. With `graphs`, on a CUDA device, each shape of a short pass is
    captured once and replayed, so that nothing but the kernels takes time.
    """

    def __init__(self, model: PreTrainedModel, shape: int | None = None, *, graphs: bool = False) -> None:
        self.model = model
        self.shape = shape
        self.graphs = graphs
        config = model.config.get_text_config(decoder=True)
        parameters = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        self._keep_name = "logits_to_keep" if "logits_to_keep" in parameters else None
        self.attention_windows = attention_windows(config)
        self._additive = config._attn_implementation == "eager"
        head = model.get_output_embeddings()
        self._width = int(config.vocab_size if head is None else head.weight.shape[0])
        self.cache = PositionCache()
        self._captured: dict[tuple[int, ...], Graph] = {}

    @property
    def width(self) -> int:
        return self._width

    def reset(self, reserve: int) -> None:
        room = LONGEST_GRAPH if self.graphs else self.shape or 0
        self.cache.reserve(reserve + room, whole=self.graphs or self.shape is not None)

    def run(self, tokens: Sequence[int], start: int, last: int) -> torch.Tensor:
        return self._rows(torch.tensor([list(tokens)], device=self.model.device), start, last)

    def write(
        self, tokens: Sequence[int], start: int, count: int, ends: Collection[int] = ()
    ) -> tuple[list[int], list[float]]:
        ids = torch.tensor([list(tokens)], device=self.model.device)
        written, logits = [], []
        for _ in range(count):  # nothing is fetched from the device before the last
            best, token = self._rows(ids, start, 1)[0].max(dim=-1)
            start += ids.shape[1]
            ids = token.view(1, 1)
            written.append(token)
            logits.append(best)
            if token.device.type == "cpu" and int(token) in ends:
                break
        return torch.stack(written).tolist(), torch.stack(logits).tolist()

    def _rows(self, ids: torch.Tensor, start: int, last: int) -> torch.Tensor:
        n = ids.shape[1]
        padded = n if self.shape is None or n > self.shape else self.shape
        if padded > n:
            ids = torch.nn.functional.pad(ids, (0, padded - n))
        slots = torch.arange(start, start + padded, device=ids.device)
        positions = slots.clamp(max=start + n - 1)  # padding may lie beyond the last position that the model knows
        seen = self.cache.place(start, start + padded)
        if self.graphs and padded <= LONGEST_GRAPH:
            return self._replayed(ids, slots, positions, seen)[n - last : n]
        if padded == self.shape:
            return self._pass(ids, slots, positions, seen, padded)[n - last : n]
        return self._pass(ids, slots, positions, seen, last)

    def _pass(
        self, ids: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, seen: int, keep: int
    ) -> torch.Tensor:
        """Return the final `keep` rows of a pass over `ids` `[1, n]`, written to `slots` `[n]` of the cache.

        The model is told that they stand at `positions` `[n]`, which are the slots but for padding.
        """
        kwargs: dict[str, Any] = {self._cache_name: self.cache, "use_cache": True}
        if self._keep_name:
            kwargs[self._keep_name] = keep
        output = self.model(
            input_ids=ids, position_ids=positions[None], attention_mask=self._masks(slots, seen), **kwargs
        )
        rows: torch.Tensor = output.logits[0, -keep:]
        return rows

    def _replayed(self, ids: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, seen: int) -> torch.Tensor:
        """The same as `_pass` for all rows, from a graph; the first pass of each shape captures it."""
        self.cache.span.index = slots
        try:
            key = (ids.shape[1], seen, *self.cache.address())
            if key not in self._captured:
                if any(seen != other[1] for other in self._captured):
                    self._captured.clear()  # of another request, whose cache had another length
                rows = self._pass(ids, slots, positions, seen, ids.shape[1])  # allocates what a graph may not
                key = (ids.shape[1], seen, *self.cache.address())

                def again(ids: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
                    self.cache.span.index = slots
                    return self._pass(ids, slots, positions, seen, ids.shape[1])

                self._captured[key] = Graph(again, ids, slots, positions)
                return rows
            return self._captured[key](ids, slots, positions)
        finally:
            self.cache.span.index = None

    def _masks(self, slots: torch.Tensor, seen: int) -> torch.Tensor | dict[str, torch.Tensor]:
        """The attention mask `[1, 1, queries, keys]`, or one for each kind of layer where a model mixes them."""
        masks = {kind: self._mask(slots, seen, window) for kind, window in self.attention_windows.items()}
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def _mask(self, slots: torch.Tensor, seen: int, window: int | None) -> torch.Tensor:
        keys = torch.arange(seen, device=slots.device)
        visible = keys <= slots[:, None]
        if window is not None:
            visible &= keys > slots[:, None] - window
        if self._additive:
            dtype = self.model.dtype
            zero = torch.zeros((), dtype=dtype, device=slots.device)
            return torch.where(visible, zero, torch.finfo(dtype).min)[None, None]
        return visible[None, None]
