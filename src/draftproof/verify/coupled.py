"""Keep a guess if it is the very token that the target chooses: greedy with transforms, and coupled sampling."""

from __future__ import annotations

from collections.abc import Callable

from draftproof.exchange import Proposal, Verdict


def judge(proposal: Proposal, token_at: Callable[[int], int]) -> Verdict:
    """Accept the longest leading run of guesses that are the target's own tokens.

    `token_at(i)` is the target's token after the text and the first i guesses; it is asked in order, and not beyond the
    first guess that fails. Whatever was guessed, the text is what the target chooses. Source for sampled text: Daliri
    et al. 2024, arXiv 2408.07978.
    """
    for i, guess in enumerate(proposal.tokens):
        token = token_at(i)
        if token != guess:
            return Verdict(i, token)
    return Verdict(len(proposal.tokens), token_at(len(proposal.tokens)))
