"""A smaller model that guesses by writing, one token a pass."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import isfinite
from typing import Any

from draftproof.errors import EngineError
from draftproof.exchange import Proposal
from draftproof.models.session import Session
from draftproof.options import DRAWING
from draftproof.sampling.sampler import Sampler

_FAULT = "the draft gave non-finite logits, so it guessed less; try another draft_dtype"


class Draft:
    """Guesses as the request chooses: with a draft model's most likely tokens, or by sampling from its law.

    With a `sampler` that does more than take the largest logit, the request's transforms are applied to the draft's
    rows too: under the rules that draw, guesses are drawn and carry their laws; under coupled sampling they are chosen
    with the noise that the target will choose with. It then stops behind a guessed end token.

    A round of k guesses costs k passes: what the draft has not read yet (the target's correction, or its own last guess
    after a full acceptance) rides along in the first. Near the end of the draft's window it guesses fewer tokens, and
    beyond it none. Guesses at or above `vocabulary` (the target's number of logits) are never offered.
    """

    def __init__(
        self, session: Session, vocabulary: int, sampler: Sampler | None = None, end_tokens: Collection[int] = ()
    ) -> None:
        self.session = session
        self.vocabulary = vocabulary
        self._sampler = None if sampler is None or sampler.untouched else sampler
        self._end_tokens = frozenset(end_tokens)

    def begin(self, prompt: Sequence[int], reserve: int) -> None:
        self.session.reset(reserve)
        if len(prompt) > 1 and self._room(prompt) > 0:
            self.session.read(prompt[:-1])

    def propose(self, sequence: Sequence[int], k: int) -> Proposal:
        count = min(k, self._room(sequence))
        if count <= 0:
            return Proposal(())
        if self._sampler is not None:
            return self._sample(sequence, count, self._sampler.look_ahead())
        tokens, logits = self.session.write(sequence, count)
        guesses: list[int] = []
        fault = None
        for token, logit in zip(tokens, logits, strict=True):
            if not isfinite(logit):
                fault = _FAULT
                break
            if token >= self.vocabulary:
                break
            guesses.append(token)
        return Proposal(tuple(guesses), count, catch_up_passes=0 if guesses else count, fault=fault)

    def _sample(self, sequence: Sequence[int], count: int, sampler: Sampler) -> Proposal:
        text = list(sequence)
        laws: list[Any] | None = [] if sampler.rule in DRAWING else None
        passes, fault = 0, None
        while passes < count and not (passes and text[-1] in self._end_tokens):
            if text[-1] >= self.session.width:
                break  # the request's transforms chose a token that the draft does not know
            row = self.session.read(text)[-1]
            passes += 1
            try:
                if laws is None:
                    text.append(sampler.token(row, text))
                else:
                    laws.append(sampler.law(row, text))
                    text.append(sampler.chance.draw(laws[-1]))
            except EngineError as error:
                fault = _FAULT if not row.isfinite().any() or row.isnan().any() else f"the draft guessed less: {error}"
                break
        guesses = tuple(text[len(sequence) :])
        return Proposal(guesses, passes, catch_up_passes=0 if guesses else passes, fault=fault, q=laws)

    def _room(self, sequence: Sequence[int]) -> int:
        """How many guesses the draft can make after `sequence`: each pass reads all that stands before the guess."""
        if self.session.width < self.vocabulary and max(sequence) >= self.session.width:
            return 0  # the text holds a token that the draft does not know
        window = self.session.window
        return len(sequence) + (1 << 30) if window is None else window - len(sequence) + 1
