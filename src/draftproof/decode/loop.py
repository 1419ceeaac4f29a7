"""The one loop: propose, one target pass over [pending, guesses], judge, keep. With k = 0 it is plain decoding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from draftproof.clock import Clock
from draftproof.control import Controller, controller_of
from draftproof.decode.request import Request
from draftproof.decode.stop import StopRule
from draftproof.models.session import ModelSession, Session, Whole
from draftproof.propose.base import Proposer
from draftproof.records import Generation, Round
from draftproof.sampling.sampler import Sampler


class Decoding:
    """One request, driven by itself. Iterate it for its rounds; ask `generation()` for the record, at any time.

    `k` is the number of guesses to ask for in a round, or a controller. The rest is as in `Request`.
    """

    def __init__(
        self,
        target: Session,
        prompt: Sequence[int],
        *,
        proposer: Proposer | None = None,
        k: int | Controller = 0,
        stop: StopRule,
        clock: Clock,
        sampler: Sampler | None = None,
        logprobs: int | None = None,
        seed: int | None = None,
        sample: int = 0,
    ) -> None:
        self._target = target
        self._prompt = len(prompt) - 1
        self._request = Request(
            prompt,
            width=target.width,
            proposer=proposer,
            controller=controller_of(k),
            stop=stop,
            clock=clock,
            sampler=sampler,
            logprobs=logprobs,
            seed=seed,
            sample=sample,
        )

    def __iter__(self) -> Iterator[Round]:
        return self

    def __next__(self) -> Round:
        request = self._request
        if request.over:
            raise StopIteration
        self.begin()
        request.propose()
        sequence, last = request.wanted
        whole = Whole(request.reserve, self._prompt)  # another request may have been read meanwhile
        if not request.wants_states:
            return request.settle(self._target.read(sequence, last, whole))
        rows = cast("ModelSession", self._target).rows(sequence, last, whole, states=True)
        return request.settle(rows.logits, states=rows.states)

    def begin(self) -> None:
        """Read the prompt into both models, all but its last token; the first round does this if nobody did."""
        self._request.begin(self._read_prompt)

    def _read_prompt(self, tokens: Sequence[int]) -> int:
        held = self._target.begin(tokens, self._request.reserve)
        if held < len(tokens):
            self._target.read(tokens)
        return held

    def generation(self) -> Generation:
        """Return the record so far; a text that has not ended counts as cancelled."""
        return self._request.generation()

    def cancel(self) -> Generation:
        """End the text here, and return its record."""
        return self._request.cancel()
