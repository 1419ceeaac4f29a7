"""How a model runs one pass. The session above decides which tokens a pass reads; what reads them is here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedModel

from draftproof.errors import ConfigError
from draftproof.models.cache import PositionCache, StackedCache
from draftproof.models.graph import Graph
from draftproof.models.masks import causal, stacked
from draftproof.models.room import room_for
from draftproof.models.span import Cache, Rows, Span, refuse_shared
from draftproof.models.windows import attention_windows, masks_by_length
from draftproof.settings import MAX_K

LONGEST_GRAPH = MAX_K + 1
"""Tokens of the longest pass that is captured as a graph; longer ones read prompts."""


class Runner(Protocol):
    """Passes of one model, over caches that are addressed by position."""

    @property
    def width(self) -> int:
        """Number of logits in a row."""
        ...

    @property
    def steady(self) -> bool:
        """Whether a row has the same bits however its text was read: in what pieces, and beside whom."""
        ...

    def cache(self) -> Cache:
        """Return a new cache, for one request."""
        ...

    def run(self, spans: Sequence[Span]) -> list[Rows]:
        """Run one pass over all spans, each on a cache of its own; return the rows of each."""
        ...

    def write(
        self,
        cache: Cache,
        tokens: Sequence[int],
        start: int,
        count: int,
        ends: Collection[int] = (),
        floor: float = 0.0,
    ) -> tuple[list[int], list[float]]:
        """Read `tokens` at positions `start`…, and go on with the `count` most likely tokens, reading all but the last.

        Behind one of `ends`, and where the product of their probabilities falls below `floor`, it stops, unless
        looking at a token would make the device wait. Returns those tokens and the model's probability of each, NaN
        where its logits are not numbers.
        """
        ...


class TransformersRunner:
    """Passes through a transformers model.

    With `shape`, every pass of that many tokens or fewer is padded to it, and is handed as much of the cache as the
    position of its tokens says (where that changes within a pass, it becomes two): then a row's bits do not depend on
    what stands beside it, nor on how long the text may get, and so several spans are read one by one. Longer passes,
    which read a prompt, are as they are: they are the same whatever is guessed later. Without `shape`, several
    spans are rows of one pass (one by one where a model finds its place by the cache's length), and their logits are
    those of each alone but for rounding. With `graphs`, on a CUDA device, each shape of a short pass over one chain is
    captured once and replayed, so that nothing but the kernels takes time.
    """

    steady = False

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
        self._by_length = masks_by_length(model)
        self._one_by_one = shape is not None or self._by_length
        head = model.get_output_embeddings()
        self._width = int(config.vocab_size if head is None else head.weight.shape[0])

    @property
    def width(self) -> int:
        return self._width

    def cache(self) -> PositionCache:
        return PositionCache(self.shape or 0, stepwise=self.graphs or self.shape is not None)

    def run(self, spans: Sequence[Span]) -> list[Rows]:
        refuse_shared(spans)
        if self._one_by_one or len(spans) == 1:
            return [self._alone(span) for span in spans]
        return self._together(spans)

    def write(
        self,
        cache: Cache,
        tokens: Sequence[int],
        start: int,
        count: int,
        ends: Collection[int] = (),
        floor: float = 0.0,
    ) -> tuple[list[int], list[float]]:
        own = _own(cache)
        row = self._alone(Span(cache, tokens, start)).logits[0]
        written, sure, stays = [], [], 1.0
        for behind in range(start + len(tokens), start + len(tokens) + count):  # the device is not waited for before
            best, token = row.max(dim=-1)
            written.append(token)
            sure.append((best.float() - row.float().logsumexp(dim=-1)).exp())
            if len(written) == count:
                break
            if token.device.type == "cpu":
                stays *= float(sure[-1]) if floor > 0 else 1.0
                if stays < floor or int(token) in ends:
                    break
            row = self._chain(own, token.view(1, 1), behind, 1)[0]
        return torch.stack(written).tolist(), torch.stack(sure).tolist()

    def _alone(self, span: Span) -> Rows:
        if span.parents is not None and self._by_length:
            raise ConfigError(
                f"{self.model.config.model_type!r} finds its place by the cache's length, and reads no trees."
            )
        if cut := self._cut(span):
            return _joined(*(self._alone(part) for part in cut))
        if span.positions is not None or span.parents is not None or span.states:
            return self._together([span])[0]
        ids = torch.tensor([list(span.tokens)], device=self.model.device)
        return Rows(self._chain(_own(span.cache), ids, span.start, span.last))

    def _cut(self, span: Span) -> tuple[Span, Span] | None:
        """A padded chain's parts before and behind the position where passes begin to be handed more of the cache."""
        edge, count = room_for(span.start + 1) - span.start, len(span.tokens)
        if self.shape is None or count > self.shape or edge >= count or span.parents is not None:
            return None
        places, behind = span.positions, min(span.last, count - edge)
        ahead = replace(
            span,
            tokens=span.tokens[:edge],
            last=span.last - behind,
            positions=None if places is None else places[:edge],
        )
        rest = replace(
            span,
            tokens=span.tokens[edge:],
            start=span.start + edge,
            last=behind,
            positions=None if places is None else places[edge:],
        )
        return ahead, rest

    def _chain(self, cache: PositionCache, ids: Tensor, start: int, last: int) -> Tensor:
        """Return the final `last` rows of a pass over `ids` `[1, n]` at positions `start`…"""
        n = ids.shape[1]
        padded = self._padded(n)
        if padded > n:
            ids = pad(ids, (0, padded - n))
        slots = torch.arange(start, start + padded, device=ids.device)
        positions = slots.clamp(max=start + n - 1)  # padding may lie beyond the last position that the model knows
        seen = cache.place(start, n, padded)
        if self.graphs and padded <= LONGEST_GRAPH:
            return self._replayed(cache, ids, slots, positions, seen)[n - last : n]
        if padded == self.shape:
            return self._plain(cache, ids, slots, positions, seen, padded)[n - last : n]
        keep = max(last, 1)  # to a model, 0 means all
        return self._plain(cache, ids, slots, positions, seen, keep)[keep - last :]

    def _padded(self, n: int) -> int:
        return n if self.shape is None or n > self.shape else self.shape

    def _together(self, spans: Sequence[Span]) -> list[Rows]:
        """One pass over all spans, of any kind: each a row, padded to the longest at its right."""
        counts = [len(span.tokens) for span in spans]
        caches = [_own(span.cache) for span in spans]
        device, n = self.model.device, self._padded(max(counts))
        ids = torch.tensor([[*span.tokens] + [0] * (n - count) for span, count in zip(spans, counts, strict=True)])
        places = [[*span.placed()] for span in spans]
        positions = torch.tensor([place + place[-1:] * (n - len(place)) for place in places])
        if len(spans) == 1:
            seen = caches[0].place(spans[0].start, counts[0], n)
        else:
            for cache, span, count in zip(caches, spans, counts, strict=True):
                cache.place(span.start, count, count)
            seen = max(span.end for span in spans)
        masks = self._masks(lambda window: stacked(spans, n, seen, window, device)[:, None])
        behind = min(count - span.last for count, span in zip(counts, spans, strict=True))
        keep = n if n == self.shape else max(n - behind, 1)
        logits, states = self._pass(
            StackedCache(caches) if len(caches) > 1 else caches[0],
            ids.to(device),
            positions.to(device),
            masks,
            keep,
            states=any(span.states for span in spans),
        )
        found = []
        for row, (span, count) in enumerate(zip(spans, counts, strict=True)):
            end = count - n + logits.shape[1]  # rows of logits are the pass's last ones
            own = states[row, :count] if states is not None and span.states else None
            found.append(Rows(logits[row, end - span.last : end], own))
        return found

    def _plain(
        self, cache: PositionCache, ids: Tensor, slots: Tensor, positions: Tensor, seen: int, keep: int
    ) -> Tensor:
        """Return the final `keep` rows of a pass over `ids` `[1, n]`, written to `slots` `[n]` of the cache.

        The model is told that they stand at `positions` `[n]`, which are the slots but for padding.
        """
        masks = self._masks(lambda window: causal(slots, seen, window)[None, None])
        return self._pass(cache, ids, positions[None], masks, keep)[0][0]

    def _pass(
        self,
        cache: PositionCache | StackedCache,
        ids: Tensor,
        positions: Tensor,
        masks: Tensor | dict[str, Tensor],
        keep: int,
        *,
        states: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the final `keep` rows of logits of all rows of `ids`, and the final hidden states if wanted."""
        kwargs: dict[str, Any] = {self._cache_name: cache, "use_cache": True, "output_hidden_states": states}
        if self._keep_name:
            kwargs[self._keep_name] = keep
        output = self.model(input_ids=ids, position_ids=positions, attention_mask=masks, **kwargs)
        return output.logits[:, -keep:], output.hidden_states[-1] if states else None

    def _replayed(self, cache: PositionCache, ids: Tensor, slots: Tensor, positions: Tensor, seen: int) -> Tensor:
        """The same as `_plain` for all rows, from a graph; the first pass of each shape captures it."""
        cache.standing.index = slots
        try:
            key = (ids.shape[1], seen, *cache.address())
            if key not in cache.captured:
                if any(seen != other[1] for other in cache.captured):
                    cache.captured.clear()  # of another request, whose text had another length
                rows = self._plain(cache, ids, slots, positions, seen, ids.shape[1])  # allocates what a graph may not
                key = (ids.shape[1], seen, *cache.address())

                def again(ids: Tensor, slots: Tensor, positions: Tensor) -> Tensor:
                    cache.standing.index = slots
                    return self._plain(cache, ids, slots, positions, seen, ids.shape[1])

                cache.captured[key] = Graph(again, ids, slots, positions)
                return rows
            return cache.captured[key](ids, slots, positions)
        finally:
            cache.standing.index = None

    def _masks(self, visible: Callable[[int | None], Tensor]) -> Tensor | dict[str, Tensor]:
        """The attention mask `[spans, 1, queries, keys]`, or one for each kind of layer where a model mixes them."""
        masks = {kind: self._formed(visible(window)) for kind, window in self.attention_windows.items()}
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def _formed(self, visible: Tensor) -> Tensor:
        if not self._additive:
            return visible
        dtype = self.model.dtype
        zero = torch.zeros((), dtype=dtype, device=visible.device)
        return torch.where(visible, zero, torch.finfo(dtype).min)


def _joined(ahead: Rows, rest: Rows) -> Rows:
    states = None if ahead.states is None or rest.states is None else torch.cat([ahead.states, rest.states])
    return Rows(torch.cat([ahead.logits, rest.logits]), states)


def _own(cache: Cache) -> PositionCache:
    if not isinstance(cache, PositionCache):
        raise ConfigError("a span's cache has to be one that this runner made.")
    return cache
