"""Keep a guess if it is the very token that the target chooses: greedy, and coupled sampling."""

from __future__ import annotations

from draftproof.exchange import Proposal, Verdict
from draftproof.sampling.chance import Chance
from draftproof.verify.base import TargetRows


class Matching:
    """Accepts the longest leading run of guesses that are the target's own tokens.

    Whatever was guessed, the text is what the target chooses. Source for sampled text: Daliri et al. 2024, arXiv
    2408.07978.
    """

    draws = False

    def judge(self, rows: TargetRows, proposal: Proposal, chance: Chance) -> Verdict:
        for i, guess in enumerate(proposal.tokens):
            token = rows.token(i)
            if token != guess:
                return Verdict(i, token)
        return Verdict(len(proposal.tokens), rows.token(len(proposal.tokens)))
