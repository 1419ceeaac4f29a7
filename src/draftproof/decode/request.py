"""One request: what it wants read next, and what it makes of the rows. Whoever drives it runs the passes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from torch import Tensor

from draftproof.clock import Clock
from draftproof.control import Controller
from draftproof.control.base import Contained
from draftproof.decode.rows import Rows, logprobs_of
from draftproof.decode.stop import StopRule
from draftproof.errors import EngineError, brief
from draftproof.exchange import Proposal, Verdict, trimmed
from draftproof.interrupts import held_back
from draftproof.propose.base import Proposer
from draftproof.records import Generation, Round, Seconds, count
from draftproof.sampling.chance import Chance, SeededChance
from draftproof.sampling.sampler import Sampler
from draftproof.verify import JUDGES

Guessing = Generator[Sequence[int], Tensor, Proposal]
"""Yields what the draft has to stand on, is sent the row of logits behind it, and returns the proposal."""


class Request:
    """A text that is being written: `begin` it; until it is `over`, `propose`, run a pass over `wanted`, and `settle`.

    `prompt` must not be empty, and must leave room in the target's window; `width` is the target's number of logits.
    Without a proposer every round is a plain one. Without a `sampler` it is greedy and takes logits as they are.
    `logprobs` is the number of alternatives to record with every token's log-probability, None for no record; `seed`
    and `sample` are recorded.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        *,
        width: int,
        proposer: Proposer | None,
        controller: Controller,
        stop: StopRule,
        clock: Clock,
        sampler: Sampler | None = None,
        logprobs: int | None = None,
        seed: int | None = None,
        sample: int = 0,
    ) -> None:
        self._width = width
        self._proposer = proposer if controller.most > 0 else None
        self._faults: dict[str, None] = {}
        self._controller = Contained(controller, self._faults)
        self._stop = stop
        self._clock = clock
        self._sampler = sampler
        self._chance: Chance = SeededChance(0) if sampler is None else sampler.chance
        self._judge = JUDGES["greedy" if sampler is None else sampler.rule]
        self._logprobs = logprobs
        self._seed = seed
        self._sample = sample
        self._prompt_tokens = len(prompt)
        self._reused = 0
        self.sequence = list(prompt)
        self._proposal = Proposal(())
        self._rounds: list[Round] = []
        self._asked = 0
        self._entered = self._drafted = 0.0  # when the round began, and when its guesses were made
        self._prompt_s = 0.0
        self._started: float | None = None
        self._ready = self._introduced = False
        self._spoiled = False  # an interrupt left the sampler between two states
        self._left = 0.0  # when the last round was handed out
        self._waited_s = 0.0

    @property
    def over(self) -> bool:
        """Whether the text has ended."""
        return self._stop.reason is not None

    @property
    def wants_states(self) -> bool:
        """Whether its proposer learns from the target's final hidden states."""
        return self._proposer is not None and getattr(self._proposer, "wants_states", False)

    @property
    def wanted(self) -> tuple[list[int], int]:
        """What the target has to stand on, and how many of its last rows `settle` needs."""
        return [*self.sequence, *self._proposal.tokens], len(self._proposal.tokens) + 1

    @property
    def most(self) -> int:
        """The most guesses of a round."""
        return 0 if self._proposer is None else self._controller.most

    @property
    def reserve(self) -> int:
        """Tokens that prompt and text may have together."""
        return len(self.sequence) + self._stop.remaining

    def begin(self, read: Callable[[Sequence[int]], int], *, introduce: bool = True) -> None:
        """Have the prompt read, all but its last token, by the target and by the proposer.

        `read(tokens)` returns how many of these the target held already. Once: a request that has begun goes on; one
        whose reading was interrupted begins again.
        """
        if self._ready:
            return
        if self._started is None:
            self._started = self._left = self._clock.now()
        try:
            self._reused = read(self.sequence[:-1])
            if introduce and self._controller.next(tuple(self._rounds)) > 0:
                self.introduce(read=True)
            self._ready = True
        finally:
            self._left = self._clock.now()
            self._prompt_s = self._left - self._started

    def enter(self, reused: int) -> None:
        """Begin without reading: whoever drives it has the prompt read, of which `reused` tokens are held, beside other
        work, and says with `charge` what that took. The proposer begins when it is first asked for something.
        """
        self.begin(lambda tokens: reused, introduce=False)

    def charge(self, seconds: float) -> None:
        """Count so many seconds, which its driver spent on it, as the prompt's."""
        self._prompt_s += seconds
        self._waited_s -= seconds

    def introduce(self, *, read: bool) -> None:
        """Have the proposer begin with the prompt; not before it is asked for something, as that takes its time too."""
        if self._proposer is None or self._introduced:
            return
        try:
            begin = self._proposer.begin if read else getattr(self._proposer, "place", self._proposer.begin)
            begin(self.sequence[: self._prompt_tokens], self.reserve)
            self._introduced = True
        except Exception as error:  # the text does not need it
            self._proposer = None
            self._faults[f"the proposer failed at the start, and guesses nothing: {brief(error)}"] = None

    def do_without(self, error: Exception) -> None:
        """Go on without the proposer, whose driver could not serve it."""
        self._proposer = None
        self._faults[f"the proposer failed, and guesses nothing any more: {brief(error)}"] = None

    def propose(self) -> Proposal:
        """Begin a round: return the guesses that the target has to judge, perhaps none."""
        for _ in self.proposing(together=False):
            raise AssertionError("who guesses alone wants nothing read")
        return self._proposal

    def proposing(self, *, together: bool = True) -> Guessing:
        """As `propose`, for a driver that runs the draft's passes of several requests together: yields what the draft
        has to stand on, and is sent the row of logits behind it. An error of that pass is thrown into it.
        """
        if self._spoiled:
            raise EngineError(
                "this text was interrupted inside a round, or failed there, and cannot go on; start it again."
            )
        self._entered = self._clock.now()
        self._waited_s += self._entered - self._left
        self._spoiled = self._sampler is not None and (self._judge.draws or self._sampler.keeps_state)
        self._asked = 0 if self._proposer is None else self._controller.next(tuple(self._rounds))
        k = max(0, min(self._asked, self._stop.remaining - 1))
        self._proposal = yield from self._guessed(k, together=together)
        self._drafted = self._clock.now()
        return self._proposal

    def _guessed(self, k: int, *, together: bool) -> Guessing:
        if k > 0:
            self.introduce(read=not together)
        if self._proposer is None or k == 0:
            return Proposal(())
        try:
            if hasattr(self._proposer, "floor"):
                self._proposer.floor = self._controller.floor
            chance = self._chance.aside(len(self._rounds))
            guessing = getattr(self._proposer, "guessing", None) if together else None
            if guessing is None:
                offered: Proposal = self._proposer.propose(list(self.sequence), k, chance)
            else:
                offered = yield from guessing(list(self.sequence), k, chance)
            return trimmed(offered, k, self._width, self._stop.end_tokens, drawn=self._judge.draws)
        except Exception as error:  # whatever it is, the text does not need it
            return Proposal((), fault=f"the proposer failed, and guessed nothing: {brief(error)}")

    def _tell(self, proposal: Proposal, verdict: Verdict, states: Tensor | None) -> None:
        if proposal.fault:
            self._faults[proposal.fault] = None
        if self._proposer is not None:
            try:
                own = None if states is None else states[-len(proposal.tokens) - 1 :][: verdict.accepted + 1]
                self._proposer.hear(proposal, verdict, own)
            except Exception as error:
                self._faults[f"the proposer failed when it heard the verdict: {brief(error)}"] = None

    def settle(
        self,
        rows: Tensor,
        seconds: float | None = None,
        beside: int = 0,
        states: Tensor | None = None,
        drafting: float | None = None,
    ) -> Round:
        """End the round with the target's `rows` `[guesses + 1, width]`: judge, keep, and say what was done.

        `seconds` is this request's share of a pass that it shared with `beside` rows of others; None: the time since
        the guesses were made. `states` are the final hidden states of the pass's tokens, `[guesses + 1, hidden]` or
        more before them, for a proposer that wants them. `drafting` is its share of draft passes for several.
        """
        with held_back():  # a round is kept whole, or not at all
            return self._settle(rows, seconds, beside, states, drafting)

    def _settle(
        self, rows: Tensor, seconds: float | None, beside: int, states: Tensor | None, drafting: float | None
    ) -> Round:
        verified = self._clock.now()
        target_s = verified - self._drafted if seconds is None else seconds
        drafted_s = self._drafted - self._entered
        draft_s = drafted_s if drafting is None else drafting
        self._waited_s += verified - self._drafted - target_s + drafted_s - draft_s
        proposal = self._proposal
        view = Rows(rows, self.sequence, proposal.tokens, self._sampler, self._stop.end_tokens)
        verdict = self._judge.judge(view, proposal, self._chance)
        allowed = [*proposal.tokens[: verdict.accepted], verdict.next_token]
        logprobs = None if self._logprobs is None else logprobs_of(rows, allowed, self._logprobs)
        kept: list[int] = []
        self._spoiled = True  # should something fail in between, text and tokens may be two
        try:
            self._tell(proposal, verdict, states)
            for token in allowed:
                self.sequence.append(token)
                kept.append(token)
                if self._stop.push(token):
                    break
            self._spoiled = False
        finally:
            self._left = self._clock.now()
            done = Round(
                proposed=proposal.tokens,
                accepted=verdict.accepted,
                tokens=tuple(kept),
                cut=len(allowed) - len(kept),
                draft_passes=proposal.passes,
                draft_s=draft_s,
                target_s=target_s,
                overhead_s=self._left - verified,
                logprobs=None if logprobs is None else logprobs[: len(kept)],
                asked=self._asked,
                confidence=proposal.confidence,
                source=proposal.source,
                beside=beside,
            )
            self._rounds.append(done)
            self._proposal = Proposal(())
        return done

    @property
    def rounds(self) -> tuple[Round, ...]:
        """The rounds so far."""
        return tuple(self._rounds)

    @property
    def remaining(self) -> int:
        """How many tokens the limit still allows."""
        return self._stop.remaining

    def generation(self) -> Generation:
        """Return the record so far; a text that has not ended counts as cancelled."""
        rounds = tuple(self._rounds)
        return Generation(
            text=self._stop.text,
            tokens=tuple(token for r in rounds for token in r.tokens),
            finish_reason=self._stop.reason or "cancelled",
            stop=self._stop.match,
            prompt_tokens=self._prompt_tokens,
            prompt_tokens_reused=self._reused,
            k=self.most,
            rounds=rounds,
            counts=count(rounds),
            seconds=Seconds(
                prompt_s=self._prompt_s,
                draft_s=sum(r.draft_s for r in rounds),
                target_s=sum(r.target_s for r in rounds),
                overhead_s=sum(r.overhead_s for r in rounds),
                total_s=0.0 if self._started is None else self._left - self._started - self._waited_s,
            ),
            warnings=(*self._faults, *([self._stop.warning] if self._stop.warning else [])),
            verify="greedy" if self._sampler is None else self._sampler.rule,
            seed=self._seed,
            sample=self._sample,
        )

    def cancel(self) -> Generation:
        """End the text here, and return its record."""
        self._stop.cancel()
        return self.generation()
