"""Judge all guesses of a round together, which keeps at least as many as judging them one by one."""

from __future__ import annotations

from typing import Any

from draftproof.errors import EngineError
from draftproof.exchange import Proposal, Verdict
from draftproof.sampling.chance import Chance
from draftproof.verify.base import TargetRows
from draftproof.verify.ratio import at_most_one, residual


class Block:
    """Accepts the longest prefix that passes its test; the text then follows the target's law.

    p and q are as in `Ratio`. Rows are asked before it is known whether they become text: none behind a prefix that
    cannot be kept, and where a row cannot be had, the block ends; the row is asked again should the text come there.
    Source: Sun et al. 2024, algorithm 2 (block verification), arXiv 2403.10444.
    """

    draws = True

    def judge(self, rows: TargetRows, proposal: Proposal, chance: Chance) -> Verdict:
        verdict = self._judge(rows, proposal, chance)
        rows.settle(verdict.accepted)
        return verdict

    def _judge(self, rows: TargetRows, proposal: Proposal, chance: Chance) -> Verdict:
        count = len(proposal.tokens)
        p: list[Any] = [rows.law_ahead(0)]
        q: list[Any] = []
        weight: list[Any] = [
            1
        ]  # the paper's p_i: how much more than the draft's the target's law of the prefix is, capped
        for i, guess in enumerate(proposal.tokens):
            q.append(proposal.law(i, like=p[i]))
            weight.append(at_most_one(weight[i] * p[i][guess], q[i][guess]))
            if not weight[-1] > 0:
                break
            if i + 1 < count:
                try:
                    p.append(rows.law_ahead(i + 1))
                except EngineError:
                    count = i + 1
                    break
        for i in range(len(weight) - 1, 0, -1):
            if i == count:
                if chance.accept(weight[i]):
                    return Verdict(i, chance.draw(rows.law_ahead(i)))
            elif weight[i] > 0:
                weighed = p[i] * weight[i]
                if chance.accept(_passes(weight[i], (weighed - q[i]).clip(0).sum())):
                    return Verdict(i, chance.draw(residual(weighed, q[i])))
        return Verdict(0, chance.draw(residual(p[0], q[0]) if count else p[0]))


def _passes(weight: Any, excess: Any) -> Any:
    """The paper's h_i: the probability that a prefix is kept when no longer one was."""
    rest = excess + 1 - weight
    return excess / rest if rest > 0 else 1
