"""Judge all guesses of a round together, which keeps at least as many as judging them one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from draftproof.exchange import Proposal, Verdict
from draftproof.sampling.chance import Chance
from draftproof.verify.ratio import at_most_one, residual


def judge(proposal: Proposal, law_at: Callable[[int], Any], chance: Chance) -> Verdict:
    """Accept the longest prefix that passes its test; the text then follows the target's law.

    `law_at` and q are as in `ratio.judge`; all rows are asked, in order. Source: Sun et al. 2024, algorithm 2 (block
    verification), arXiv 2403.10444.
    """
    count = len(proposal.tokens)
    p = [law_at(i) for i in range(count + 1)]
    q = [proposal.law(i, like=p[i]) for i in range(count)]
    weight: list[Any] = [1]  # the paper's p_i: how much more than the draft's the target's law of the prefix is, capped
    for i, guess in enumerate(proposal.tokens):
        ratio = weight[i] * p[i][guess]
        weight.append(at_most_one(ratio, q[i][guess]))
    for i in range(count, 0, -1):
        if chance.accept(_passes(weight[i], p[i], q[i] if i < count else None)):
            return Verdict(i, chance.draw(p[i] if i == count else residual(p[i] * weight[i], q[i])))
    return Verdict(0, chance.draw(residual(p[0], q[0]) if count else p[0]))


def _passes(weight: Any, p: Any, q: Any | None) -> Any:
    """The paper's h_i: the probability that a prefix is kept when no longer one was."""
    if q is None:
        return weight
    excess = (p * weight - q).clip(0).sum()
    rest = excess + 1 - weight
    return excess / rest if rest > 0 else 1
