"""From scores to a law: temperature, top-k, top-p and min-p, as transformers has them."""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.options import Options

_TINY = 1e-3
_ENOUGH = 1024
"""Candidates among which top-p looks first: sorting a whole vocabulary takes longer than a pass of a small draft."""


def truncate(scores: Tensor, options: Options) -> Tensor:
    """Return float32 `scores`, `[width]`, over the temperature, with -inf for every token that may not be drawn.

    Equals transformers' warpers in their order. At least one token always stays.
    """
    if options.temperature < _TINY:
        scores = scores - scores.max()  # large logits over next to nothing would be infinite
    scores = scores / options.temperature
    if 0 < options.top_k < len(scores):
        scores = _at_least(scores, scores.topk(options.top_k).values[-1])
    if options.top_p < 1:
        scores = _nucleus(scores, options.top_p)
    if options.min_p > 0:
        scores = _likely(scores, options.min_p)
    return scores


def law_of(scores: Tensor) -> Tensor:
    """Return the probabilities that `scores` stand for, `[width]`, in float64 where the device has it."""
    wide = torch.float32 if scores.device.type == "mps" else torch.float64
    return scores.to(wide).softmax(-1)


def _at_least(scores: Tensor, least: Tensor) -> Tensor:
    return scores.masked_fill(scores < least, -torch.inf)


def _likely(scores: Tensor, min_p: float) -> Tensor:
    probabilities = scores.softmax(-1)
    best = probabilities.max()
    return scores.masked_fill(probabilities < min_p * best, -torch.inf)


def _nucleus(scores: Tensor, top_p: float) -> Tensor:
    """Keep the likeliest tokens until they hold `top_p`; of equal ones at the edge the lower ids.

    Which of them transformers keeps is left to its sorting; how many is the same.
    """
    count = min(_ENOUGH, len(scores))
    best, ids = scores.topk(count)
    held = (best.double() - scores.logsumexp(-1)).exp().cumsum(-1)
    if count < len(scores) and held[-1] < top_p:
        best, ids = scores.sort(descending=True)
        held = best.double().softmax(-1).cumsum(-1)
    keep = 1 + int((held[:-1] < top_p).sum())  # a token stays if those before it do not hold top_p yet
    kept = torch.full_like(scores, -torch.inf)
    above = best > best[keep - 1]
    kept[ids[above]] = best[above]
    equal = (scores == best[keep - 1]).nonzero()[: keep - int(above.sum()), 0]
    kept[equal] = best[keep - 1]
    return kept
