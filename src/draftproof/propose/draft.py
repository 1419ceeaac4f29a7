"""A smaller model that guesses by writing, one token a pass."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence
from math import isfinite
from typing import Any, cast

from draftproof.errors import EngineError
from draftproof.exchange import Proposal, Verdict
from draftproof.models.session import Session
from draftproof.propose.base import Foresight
from draftproof.sampling.chance import Chance
from draftproof.sampling.sampler import Sampler
from draftproof.settings import DRAFT_CONTEXT, DRAFT_CONTEXT_PER_TOKEN
from draftproof.verify import JUDGES

SOURCE = "draft model"
_FAULT = "the draft gave non-finite logits, so it guessed less; try another draft_dtype"
_BEYOND = "the draft guessed tokens that the target does not know, so it guessed less"
_ROWS = 128
"""Rows of logits that are looked at together."""


class Draft:
    """Guesses as the request chooses: with a draft model's most likely tokens, or by sampling from its law.

    With a `sampler` that does more than take the largest logit, the request's transforms are applied to the draft's
    rows too: under the rules that draw, guesses are drawn and carry their laws; under coupled sampling they are chosen
    with the noise that the target will choose with. It stops behind a guessed end token, and behind the guess with
    which the product of their probabilities falls below `floor`.

    A round of k guesses costs k passes: what the draft has not read yet (the target's correction, or its own last guess
    after a full acceptance) rides along in the first. Guesses at or above `vocabulary` (the target's number of logits),
    and those in `never`, are not offered: chosen ones end the proposal, and drawn ones come from the law without them.

    The draft stands on a *view* of the text: its end. It begins with the last `context` tokens of the prompt (None: as
    many as the text may win back, see `settings.DRAFT_CONTEXT_PER_TOKEN`) and grows with the text; when it fills the
    draft's window, it begins anew with so many of the last tokens, at most half a window; and it begins behind a token
    that the draft does not know. Whatever it leaves out, the text stays the target's.
    """

    def __init__(
        self,
        session: Session,
        vocabulary: int,
        sampler: Sampler | None = None,
        end_tokens: Collection[int] = (),
        context: int | None = None,
        *,
        never: Collection[int] = (),
    ) -> None:
        self.session = session
        self.vocabulary = vocabulary
        self._sampler = None if sampler is None or sampler.untouched else sampler
        self._end_tokens = frozenset(end_tokens)
        self._never = frozenset(never)
        self._asked = context
        self._context = context or DRAFT_CONTEXT
        self._start = 0
        """Where the view begins."""
        self._looked = 0
        """Tokens of the text that were looked at for ones that the draft does not know."""
        self._unknown: int | None = None
        self.floor = 0.0

    def begin(self, prompt: Sequence[int], reserve: int) -> None:
        if before := self.place(prompt, reserve):
            self.session.read(before)

    def place(self, prompt: Sequence[int], reserve: int) -> Sequence[int]:
        """Begin without reading, for a driver that runs the draft's passes; return what there is to stand on."""
        to_come = max(0, reserve - len(prompt))
        self._context = self._asked or max(DRAFT_CONTEXT, DRAFT_CONTEXT_PER_TOKEN * to_come)
        self._start = max(0, len(prompt) - self._context)
        self._looked = self._start
        before = self.view(prompt)[:-1]
        return before if self.session.begin(before, reserve - self._start) < len(before) else ()

    def hear(self, proposal: Proposal, verdict: Verdict, states: Any) -> None:
        """What the target kept is read off the text of the next round."""

    def propose(self, sequence: Sequence[int], k: int, chance: Chance) -> Proposal:
        view, count = self._asked_for(sequence, k)
        if count <= 0:
            return Proposal((), fault=self._missing(), source=SOURCE)
        if self._sampler is None:
            return self._likeliest(view, count)
        guessing = self._sample(sequence, len(sequence) - len(view), count, self._sampler.look_ahead(), chance)
        try:
            wanted = next(guessing)
            while True:
                wanted = guessing.send(self.session.read(wanted)[-1])
        except StopIteration as done:
            return cast("Proposal", done.value)

    def guessing(self, sequence: Sequence[int], k: int, chance: Chance) -> Generator[Sequence[int], Any, Proposal]:
        """As `propose`, for a driver that runs the draft's passes of several requests together: yields what `session`
        has to stand on, and is sent the row of logits behind it.
        """
        view, count = self._asked_for(sequence, k)
        if count <= 0:
            return Proposal((), fault=self._missing(), source=SOURCE)
        if self._sampler is None:
            return (yield from self._step(view, count))
        ahead = self._sampler.look_ahead()
        return (yield from self._sample(sequence, len(sequence) - len(view), count, ahead, chance))

    def _asked_for(self, sequence: Sequence[int], k: int) -> tuple[Sequence[int], int]:
        """Return the view to guess from, and how many guesses it allows."""
        view = self.view(sequence)
        window = self.session.window
        return view, (k if window is None else min(k, window - len(view) + 1)) if view else 0

    def _step(self, view: Sequence[int], count: int) -> Generator[Sequence[int], Any, Proposal]:
        """Choose as `session.write` does, a pass at a time."""
        tokens: list[int] = []
        sure: list[float] = []
        stays = 1.0
        while len(tokens) < count and stays >= self.floor and not (tokens and tokens[-1] in self._end_tokens):
            row = (yield [*view, *tokens]).float()
            best, token = row.max(dim=-1)
            tokens.append(int(token))
            sure.append(float((best - row.logsumexp(dim=-1)).exp()))
            stays *= sure[-1] if isfinite(sure[-1]) else 0.0
        return self._offer(tokens, sure)

    def _likeliest(self, view: Sequence[int], count: int) -> Proposal:
        return self._offer(*self.session.write(view, count, self._end_tokens, self.floor))

    def _offer(self, tokens: Sequence[int], sure: Sequence[float]) -> Proposal:
        """Return of the likeliest tokens, one pass each, what can be offered."""
        guesses: list[int] = []
        fault = self._missing()
        for token, share in zip(tokens, sure, strict=True):
            if not isfinite(share):
                fault = _FAULT
                break
            if token >= self.vocabulary:
                fault = _BEYOND
                break
            if token in self._never:
                break
            guesses.append(token)
        passes = len(tokens)
        confidence = tuple(sure[: len(guesses)])
        return Proposal(tuple(guesses), passes, fault, source=SOURCE, confidence=confidence)

    def foresee(self, prompt: Sequence[int], text: Sequence[int], depth: int) -> Foresight | None:
        """Return what `propose` would offer, were it asked for `depth` guesses, in the place of every token of `text`;
        where guesses are drawn, from which laws.

        The draft reads the text once; only where its guess is another does it write on. None where that cannot be
        told so: where guesses are chosen otherwise than by the largest logit, and where its view of the text moves. It
        has to have begun with `prompt`.
        """
        whole, n = [*prompt, *text], len(text)
        draws = self._sampler is not None and JUDGES[self._sampler.rule].draws
        window = self.session.window
        begin = self._start
        if (self._sampler is not None and not draws) or (window is not None and len(whole) - begin + depth > window):
            return None
        view = self.view(whole)
        if self._start != begin or self._unknown is not None:
            return None
        if draws:
            shares = []
            for i, row in enumerate(self._rows(view, n)):
                law = self._law(row, whole[: len(prompt) + i])
                shares.append(0.0 if law is None else float(law[text[i]]))
            return Foresight(shares=tuple(shares))
        before = len(view) - n
        guessed: list[tuple[int, float]] = []
        ranks: list[int] = []
        for row, token in zip(self._rows(view, n), text, strict=True):
            best, guess = row.max(dim=-1)
            guessed.append((int(guess), float((best - row.logsumexp(dim=-1)).exp())))
            ranks.append(int((row > row[token]).sum()) if token < len(row) else len(row))
        offers: list[Proposal] = []
        for i in reversed(range(n)):  # so that what stands before is still read
            token, share = guessed[i]
            if not isfinite(share) or token >= self.vocabulary or token in self._never:
                fault = _FAULT if not isfinite(share) else _BEYOND if token >= self.vocabulary else None
                offers.append(Proposal((), 1, fault, source=SOURCE))
                continue
            rest = Proposal(())
            if depth > 1 and token not in self._end_tokens:
                if offers and token == text[i]:
                    rest = offers[-1]
                else:
                    rest = self._likeliest([*view[: before + i], token], depth - 1)
            guesses, sures = (token, *rest.tokens)[:depth], (share, *rest.confidence)[:depth]
            passes = min(depth, 1 + rest.passes)
            offers.append(Proposal(guesses, passes, None, source=SOURCE, confidence=sures))
        return Foresight(tuple(reversed(offers)), tuple(ranks))

    def _rows(self, view: Sequence[int], n: int) -> Iterator[Any]:
        """The rows of logits from which the last `n` tokens of the view are guessed."""
        for done in range(0, n, _ROWS):
            end = min(done + _ROWS, n)
            yield from self.session.read(view[: len(view) - n + end - 1], end - done).float()

    def _law(self, row: Any, text: Sequence[int]) -> Any:
        """The law that a guess behind `text` is drawn from, None for no guess."""
        assert self._sampler is not None
        return _without(self._sampler.law(row, text), self._never)

    def _sample(
        self, sequence: Sequence[int], start: int, count: int, sampler: Sampler, chance: Chance
    ) -> Generator[Sequence[int], Any, Proposal]:
        text = list(sequence)
        laws: list[Any] | None = [] if JUDGES[sampler.rule].draws else None
        confidence: list[float] = []
        passes, fault, stays = 0, self._missing(), 1.0
        while passes < count and stays >= self.floor and not (passes and text[-1] in self._end_tokens):
            if text[-1] >= self.session.width:
                break  # the request's transforms chose a token that the draft does not know
            row = yield text[start:]
            passes += 1
            try:
                if laws is None:
                    token = sampler.token(row, text)
                    if token in self._never:
                        break
                    text.append(token)
                    confidence.append(sampler.share(row, token))
                else:
                    law = _without(sampler.law(row, text), self._never)
                    if law is None:
                        break
                    laws.append(law)
                    text.append(chance.draw(law))
                    confidence.append(float(law[text[-1]]))
                stays *= confidence[-1]
            except EngineError as error:
                fault = _FAULT if not row.isfinite().any() or row.isnan().any() else f"the draft guessed less: {error}"
                break
        guesses = tuple(text[len(sequence) :])
        return Proposal(guesses, passes, fault, laws, SOURCE, tuple(confidence))

    def view(self, text: Sequence[int]) -> Sequence[int]:
        """Return the end of `text` that the draft stands on, perhaps nothing; it may begin later than before.

        Where it begins hangs on the text alone, and not on where rounds ended before.
        """
        for i in range(self._looked, len(text)):
            if text[i] >= self.session.width:
                self._start = i + 1
                self._unknown = text[i] if self._unknown is None else self._unknown
        self._looked = len(text)
        window, start = self.session.window, self._start
        if window is not None and len(text) - start > window:
            step = window + 1 - max(1, min(self._context, window // 2))
            start += step * -(-(len(text) - start - window) // step)
        return text[start:]

    def _missing(self) -> str | None:
        if self._unknown is None:
            return None
        return (
            f"the text holds token {self._unknown}, which the draft does not know (it has {self.session.width}), so it "
            "guesses from what stands behind such tokens, and nothing right after one"
        )


def _without(law: Any, never: Collection[int]) -> Any:
    """Return the law of a token that is drawn again until it is none of `never`; None where that is mostly in vain."""
    gone = [token for token in never if token < len(law)]
    if not gone:
        return law
    kept = law * 1
    kept[gone] = 0
    total = kept.sum()
    return kept / total if 2 * total > 1 else None
