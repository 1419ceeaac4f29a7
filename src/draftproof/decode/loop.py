"""The one loop: propose, one target pass over [pending, guesses], judge, keep. With k = 0 it is plain decoding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from torch import Tensor

from draftproof.clock import Clock
from draftproof.decode.rows import Rows, logprobs_of
from draftproof.errors import EngineError
from draftproof.exchange import Proposal, Verdict
from draftproof.models.session import Session
from draftproof.options import DRAWING
from draftproof.propose.base import Proposer
from draftproof.records import FinishReason, Generation, Round, Seconds, count
from draftproof.sampling.sampler import Sampler
from draftproof.verify import block, coupled, greedy, ratio


class StopRule(Protocol):
    """What the loop needs to know about the end of a text; `decode.stop.Stop` is the usual one."""

    text: str
    reason: FinishReason | None
    match: int | str | None

    @property
    def remaining(self) -> int: ...

    def push(self, token: int) -> bool: ...

    def ends(self, token: int) -> bool: ...

    def cancel(self) -> None: ...


class Decoding:
    """One request. Iterate it for its rounds; ask `generation()` for the record, at the end or at any time before.

    `prompt` must not be empty, and must leave room in the target's window. Without a proposer, or with `k` 0, it is
    plain decoding. Without a `sampler` it is greedy and takes logits as they are. `logprobs` is the number of
    alternatives to record with every token's log-probability, None for no record; `seed` and `sample` are recorded.
    """

    def __init__(
        self,
        target: Session,
        prompt: Sequence[int],
        *,
        proposer: Proposer | None = None,
        k: int = 0,
        stop: StopRule,
        clock: Clock,
        sampler: Sampler | None = None,
        logprobs: int | None = None,
        seed: int | None = None,
        sample: int = 0,
    ) -> None:
        self._target = target
        self._proposer = proposer if k > 0 else None
        self._k = k if proposer is not None else 0
        self._stop = stop
        self._clock = clock
        self._sampler = sampler
        self._logprobs = logprobs
        self._seed = seed
        self._sample = sample
        self._prompt_tokens = len(prompt)
        self._sequence = list(prompt)
        self._rounds: list[Round] = []
        self._faults: dict[str, None] = {}
        self._prompt_s = 0.0
        self._started: float | None = None
        self._ready = False
        self._spoiled = False  # an interrupt left the sampler between two states
        self._left = 0.0  # when the last round was handed out
        self._waited_s = 0.0

    def __iter__(self) -> Iterator[Round]:
        return self

    def __next__(self) -> Round:
        if self._stop.reason is not None:
            raise StopIteration
        if self._spoiled:
            raise EngineError("this text was interrupted inside a round, and cannot go on; start it again.")
        self.begin()
        entered = self._clock.now()
        self._waited_s += entered - self._left

        sampler = self._sampler
        self._spoiled = sampler is not None and (sampler.rule in DRAWING or sampler.keeps_state)
        k = max(0, min(self._k, self._stop.remaining - 1))
        proposal = self._proposer.propose(self._sequence, k) if self._proposer and k else Proposal(())
        drafted = self._clock.now()
        logits = self._target.read([*self._sequence, *proposal.tokens], last=len(proposal.tokens) + 1)
        verified = self._clock.now()

        verdict = self._judge(proposal, logits)
        if proposal.fault:
            self._faults[proposal.fault] = None
        allowed = [*proposal.tokens[: verdict.accepted], verdict.next_token]
        logprobs = None if self._logprobs is None else logprobs_of(logits, allowed, self._logprobs)
        kept: list[int] = []
        try:
            for token in allowed:
                self._sequence.append(token)
                kept.append(token)
                if self._stop.push(token):
                    break
        finally:  # an interrupted round is recorded with what it added, so that tokens and text stay one
            self._left = self._clock.now()
            done = Round(
                proposed=proposal.tokens,
                accepted=verdict.accepted,
                tokens=tuple(kept),
                cut=len(allowed) - len(kept),
                draft_passes=proposal.passes,
                catch_up_passes=proposal.catch_up_passes,
                draft_s=drafted - entered,
                target_s=verified - drafted,
                overhead_s=self._left - verified,
                logprobs=None if logprobs is None else logprobs[: len(kept)],
            )
            self._rounds.append(done)
            self._spoiled = False
        return done

    def _judge(self, proposal: Proposal, logits: Tensor) -> Verdict:
        sampler = self._sampler
        if sampler is None or sampler.untouched:
            return greedy.judge(proposal, logits)
        rows = Rows(logits, self._sequence, proposal.tokens, sampler, self._stop.ends)
        if sampler.rule == "ratio":
            return ratio.judge(proposal, rows.law, sampler.chance)
        if sampler.rule == "block":
            verdict = block.judge(proposal, rows.law_ahead, sampler.chance)
            rows.settle(verdict.accepted)
            return verdict
        return coupled.judge(proposal, rows.token)

    def begin(self) -> None:
        """Read the prompt into both models, all but its last token; the first round does this if nobody did."""
        if self._ready:
            return
        if self._started is None:
            self._started = self._left = self._clock.now()
        prompt = self._sequence
        reserve = len(prompt) + self._stop.remaining
        try:
            self._target.reset(reserve)
            if len(prompt) > 1:
                self._target.read(prompt[:-1])
            if self._proposer is not None:
                self._proposer.begin(prompt, reserve)
            self._ready = True
        finally:
            self._left = self._clock.now()
            self._prompt_s = self._left - self._started

    def generation(self) -> Generation:
        """Return the record so far; a text that has not ended counts as cancelled."""
        rounds = tuple(self._rounds)
        return Generation(
            text=self._stop.text,
            tokens=tuple(token for r in rounds for token in r.tokens),
            finish_reason=self._stop.reason or "cancelled",
            stop=self._stop.match,
            prompt_tokens=self._prompt_tokens,
            k=self._k,
            rounds=rounds,
            counts=count(rounds),
            seconds=Seconds(
                prompt_s=self._prompt_s,
                draft_s=sum(r.draft_s for r in rounds),
                target_s=sum(r.target_s for r in rounds),
                overhead_s=sum(r.overhead_s for r in rounds),
                total_s=0.0 if self._started is None else self._left - self._started - self._waited_s,
            ),
            warnings=tuple(self._faults),
            verify="greedy" if self._sampler is None else self._sampler.rule,
            seed=self._seed,
            sample=self._sample,
        )

    def cancel(self) -> Generation:
        """End the text here, and return its record."""
        self._stop.cancel()
        return self.generation()
