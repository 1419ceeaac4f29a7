"""A smaller model that guesses by writing, one token a pass."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from draftproof.exchange import Proposal
from draftproof.models.session import Session


class Draft:
    """Guesses with a draft model's most likely tokens.

    A round of k guesses costs k passes: what the draft has not read yet (the target's correction, or its own last guess
    after a full acceptance) rides along in the first. Near the end of the draft's window it guesses fewer tokens, and
    beyond it none. Guesses at or above `vocabulary` (the target's number of logits) are never offered.
    """

    def __init__(self, session: Session, vocabulary: int) -> None:
        self.session = session
        self.vocabulary = vocabulary

    def begin(self, prompt: Sequence[int], reserve: int) -> None:
        self.session.reset(reserve)
        if len(prompt) > 1 and self._room(prompt) > 0:
            self.session.read(prompt[:-1])

    def propose(self, sequence: Sequence[int], k: int) -> Proposal:
        count = min(k, self._room(sequence))
        if count <= 0:
            return Proposal(())
        tokens, logits = self.session.write(sequence, count)
        guesses: list[int] = []
        fault = None
        for token, logit in zip(tokens, logits, strict=True):
            if not isfinite(logit):
                fault = "the draft gave non-finite logits, so it guessed less; try another --draft-dtype"
                break
            if token >= self.vocabulary:
                break
            guesses.append(token)
        return Proposal(tuple(guesses), count, catch_up_passes=0 if guesses else count, fault=fault)

    def _room(self, sequence: Sequence[int]) -> int:
        """How many guesses the draft can make after `sequence`: each pass reads all that stands before the guess."""
        if self.session.width < self.vocabulary and max(sequence) >= self.session.width:
            return 0  # the text holds a token that the draft does not know
        window = self.session.window
        return len(sequence) + (1 << 30) if window is None else window - len(sequence) + 1
