"""What passes between propose, verify and decode: a proposal and its verdict."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
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

    def trimmed(self, k: int, width: int, ends: Collection[int]) -> Proposal:
        """Return what of it can be verified, whatever was offered: at most `k` guesses, ids below `width`, none behind
        one of `ends`; and nothing of guesses that are no chain.
        """
        who = self.source or "the proposer"
        if self.parents is not None and self.parents != tuple(range(-1, len(self.tokens) - 1)):
            return Proposal((), self.passes, f"{who} offers a tree of guesses, and only chains are verified")
        keep, fault = 0, self.fault
        for token in self.tokens[: max(0, k)]:
            if not isinstance(token, int):
                fault = fault or f"{who} offered {token!r}, which is no token"
                break
            if not 0 <= token < width:
                fault = fault or f"{who} offered token {token}, and the target knows {width}"
                break
            keep += 1
            if token in ends:
                break
        if keep == len(self.tokens):
            return self
        q = None if self.q is None else self.q[:keep]
        return replace(
            self, tokens=self.tokens[:keep], q=q, confidence=self.confidence[:keep], parents=None, fault=fault
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the target made of a proposal."""

    accepted: int
    """Length of the leading run of guesses that the rule kept."""
    next_token: int
    """The target's own token after that run: a correction, or the bonus after a fully accepted block."""
