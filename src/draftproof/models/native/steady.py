"""Whether compiled passes keep their promise here: with this compiler, on this processor, for this model's formats."""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.models.native.decoder import NativeDecoder
from draftproof.models.native.runner import NativeRunner
from draftproof.models.span import Span

BEFORE = 20
"""Tokens that stand before those that are looked at, so that attention has more than a block to sum over."""
PIECES = (1, 2, 3, 4, 5, 6, 7, 8)
"""Rows of a pass: each number goes through code of its own."""


@torch.inference_mode()
def keeps_bits(decoder: NativeDecoder) -> bool:
    """Whether a row has the same bits in one pass over all tokens, in passes over a few, beside another request, and in
    a tree: a dozen passes over a few tokens."""
    runner = NativeRunner(decoder)
    ids = [(11 + 7 * i) % decoder.width for i in range(BEFORE + sum(PIECES))]
    cache, beside = runner.cache(), runner.cache()
    wanted = runner.run([Span(cache, ids, 0, len(ids))])[0].logits

    def same(rows: Tensor, start: int) -> bool:
        # what is not a number is alike: whoever uses such logits is told
        return torch.equal(rows.nan_to_num(), wanted[start : start + len(rows)].nan_to_num())

    start = BEFORE
    for size in PIECES:
        (rows,) = runner.run([Span(cache, ids[start : start + size], start, size)])
        if not same(rows.logits, start):
            return False
        start += size
    places = [(BEFORE + 2, 9), (0, 3)], [(3, 4), (BEFORE + 11, 1)], [(BEFORE + 12, 1), (7, 1)]
    for first, second in places:
        pair = [(cache, *first), (beside, *second)]
        if first[0] < second[0]:  # the other request stands first
            pair = [(beside, *first), (cache, *second)]
        found = runner.run([Span(own, ids[at : at + count], at, count) for own, at, count in pair])
        if not all(same(rows.logits, at) for rows, (_, at, _) in zip(found, pair, strict=True)):
            return False
    fork = [ids[0], *ids[BEFORE : BEFORE + 3]]  # the first is a wrong guess
    (rows,) = runner.run([Span(cache, fork, BEFORE, 3, parents=[-1, -1, 1, 2])])
    return same(rows.logits, BEFORE)
