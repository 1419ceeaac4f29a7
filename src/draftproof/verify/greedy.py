"""Keep a guess if it is what the target ranks first."""

from __future__ import annotations

from torch import Tensor

from draftproof.errors import EngineError
from draftproof.exchange import Proposal, Verdict


def judge(proposal: Proposal, logits: Tensor) -> Verdict:
    """Accept the longest leading run of guesses that the target ranks first; equal logits go to the lowest id.

    `logits` is `[k + 1, vocabulary]`: row i is what the target makes of the text before guess i. Raises `EngineError`
    if a row that counts holds NaN.
    """
    best, choices = logits.max(dim=-1)
    chosen = choices.tolist()
    broken = best.isnan().tolist()
    accepted = 0
    while accepted < len(proposal.tokens) and not broken[accepted] and proposal.tokens[accepted] == chosen[accepted]:
        accepted += 1
    if broken[accepted]:
        raise EngineError("the target's logits are not numbers (NaN); try dtype='float32', or check the weights.")
    return Verdict(accepted, chosen[accepted])
