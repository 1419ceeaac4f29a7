"""What passes between propose, verify and decode: a proposal and its verdict."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any


@dataclass(frozen=True, slots=True)
class Proposal:
    """The guesses of one round, only the proposed tokens, never the text before them."""

    tokens: tuple[int, ...]
    """Guessed token ids, in order; empty when the proposer has nothing to offer."""
    passes: int = 0
    """Forward passes of the draft that this proposal took."""
    fault: str | None = None
    """Why the proposer guessed less, or worse, than it might, if it did: the text is not affected, the speed is."""
    q: Sequence[Any] | None = None
    """The laws that the guesses were really drawn from, `[width]` each; None if they were chosen, not drawn."""
    source: str = ""
    """Who guessed, in a word."""
    confidence: tuple[float, ...] = ()
    """For each guess how likely its proposer held it, between 0 and 1; empty where it does not say."""
    parents: tuple[int, ...] | None = None
    """For each guess the guess that it stands behind, -1 for the text; None for a chain."""

    def law(self, i: int, like: Any) -> Any:
        """Return the law of guess `i` as a row beside `like`; a chosen guess has all the probability."""
        if self.q is not None:
            law = self.q[i]
            return law.to(like.device) if hasattr(law, "to") else law
        law = like * 0
        law[self.tokens[i]] = 1
        return law


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the target made of a proposal."""

    accepted: int
    """Length of the leading run of guesses that the rule kept."""
    next_token: int
    """The target's own token after that run: a correction, or the bonus after a fully accepted block."""


def trimmed(offered: Proposal, k: int, width: int, ends: Collection[int], *, drawn: bool = False) -> Proposal:
    """Return what of a proposal can be verified, whatever was offered: at most `k` guesses, ids below `width`, none
    behind one of `ends`; nothing of guesses that are no chain, and with `drawn` none without the law that it is from.

    Raises whatever comes of an offer that is no proposal.
    """
    tokens, fault = tuple(offered.tokens), offered.fault if offered.fault is None else str(offered.fault)
    who = str(offered.source) or "the proposer"
    passes = max(0, index(offered.passes))
    if offered.parents is not None and tuple(offered.parents) != tuple(range(-1, len(tokens) - 1)):
        return Proposal((), passes, f"{who} offers a tree of guesses, and only chains are verified")
    kept: list[int] = []
    for i, token in enumerate(tokens[: max(0, k)]):
        if isinstance(token, bool) or not hasattr(token, "__index__"):
            fault = fault or f"{who} offered {token!r}, which is no token"
            break
        if not 0 <= index(token) < width:
            fault = fault or f"{who} offered token {token}, and the target knows {width}"
            break
        if drawn and offered.q is not None and not _lawful(offered.q[i], index(token), width):
            fault = fault or f"{who} offered token {token} with a law that it cannot be drawn from"
            break
        kept.append(index(token))
        if token in ends:
            break
    confidence = tuple(float(share) for share in offered.confidence)
    if confidence and (len(confidence) != len(tokens) or not all(0 <= share <= 1.001 for share in confidence)):
        confidence, fault = (), fault or f"{who} is sure of its guesses in numbers that cannot be: {confidence[:4]}"
    q = None if offered.q is None else tuple(offered.q[: len(kept)])
    return Proposal(tuple(kept), passes, fault, q, str(offered.source), confidence[: len(kept)])


def _lawful(law: Any, token: int, width: int) -> bool:
    """Whether a row could be the law that a token was drawn from."""
    return (
        len(law) == width
        and bool(law[token] > 0)
        and abs(float(sum(law) if isinstance(law, list) else law.sum()) - 1) < 0.01
    )
