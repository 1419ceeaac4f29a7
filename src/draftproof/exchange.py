"""What passes between propose, verify and decode: a proposal and its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Proposal:
    """The guesses of one round, only the proposed tokens, never the text before them."""

    tokens: tuple[int, ...]
    """Guessed token ids, in order; empty when the proposer has nothing to offer."""
    passes: int = 0
    """Forward passes of the draft that this proposal took."""
    catch_up_passes: int = 0
    """Of these, passes that only read in accepted text and guessed nothing."""
    fault: str | None = None
    """Why the proposer guessed less, or worse, than it might, if it did: the text is not affected, the speed is."""
    q: Sequence[Any] | None = None
    """The laws that the guesses were really drawn from, `[width]` each; None if they were chosen, not drawn."""

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
