"""Keep a guess with probability min(1, p/q), else draw from what p has over q."""

from __future__ import annotations

from typing import Any

from draftproof.exchange import Proposal, Verdict
from draftproof.sampling.chance import Chance
from draftproof.verify.base import TargetRows


class Ratio:
    """Accepts guesses one by one; the text then follows the target's law, whatever the draft's is.

    p is the target's law where a guess stands, q the law that the guess was drawn from; in a proposal without q each
    guess has probability 1. Source: Leviathan et al. 2023, algorithm 1, arXiv 2211.17192.
    """

    draws = True

    def judge(self, rows: TargetRows, proposal: Proposal, chance: Chance) -> Verdict:
        for i, guess in enumerate(proposal.tokens):
            p = rows.law(i)
            q = proposal.law(i, like=p)
            if not chance.accept(at_most_one(p[guess], q[guess])):
                return Verdict(i, chance.draw(residual(p, q)))
        return Verdict(len(proposal.tokens), chance.draw(rows.law(len(proposal.tokens))))


def at_most_one(p: Any, q: Any) -> Any:
    """Return min(1, p/q); q is above 0, as the guess was drawn from it."""
    return p / q if p < q else 1


def residual(p: Any, q: Any) -> Any:
    """Return what p has over q, not normalised; p itself where rounding left nothing."""
    excess = (p - q).clip(0)
    return excess if excess.sum() > 0 else p
