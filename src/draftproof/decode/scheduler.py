"""Many requests in one pass: who joins, whose guesses are worth it, one pass of each model for all, who leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from draftproof.clock import Clock
from draftproof.control.auto import PRIOR, PROBING
from draftproof.control.budget import Pace, shares
from draftproof.decode.seat import GAPS, Guesses, Seat
from draftproof.errors import EngineError
from draftproof.models.pool import Memory, Pool
from draftproof.models.session import CHUNK, ModelSession, common_prefix
from draftproof.models.span import Span

BESIDE = 64
"""Tokens of prompts that are read in one pass beside texts that are being written: a long prompt stops nobody."""


POOLED = 6.0
"""Verdicts that what is known of all texts' guesses stands for at one text."""
SHARED = 16
"""Tokens that a text has to have in common with one that is being read, to wait for it."""


@dataclass(slots=True)
class Counts:
    """What a scheduler has done."""

    passes: int = 0
    tokens: int = 0
    """Tokens that the target's passes have read."""
    draft_passes: int = 0
    preempted: int = 0
    """Times that a text gave up its cache for others, to be read again later."""
    most_at_once: int = 0


@dataclass(slots=True)
class Scheduler:
    """Writes many texts at once. `add` seats; every `step` runs a pass for all; a text has the bits that it has alone.

    `target` and `draft` are pools of sessions, which share `memory`; at most `at_once` texts are written, the others
    wait. Whoever calls `step` calls everything: it is not for several threads.
    """

    target: Pool
    draft: Pool | None
    memory: Memory
    clock: Clock
    at_once: int = 16
    beside: int = BESIDE
    pace: Pace = field(default_factory=Pace)
    draft_pace: Pace = field(default_factory=Pace)
    waiting: list[Seat] = field(default_factory=list)
    running: list[Seat] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)

    def add(self, seat: Seat) -> None:
        """Let a text wait for its turn."""
        self.waiting.append(seat)

    @torch.inference_mode()
    def step(self) -> list[Seat]:
        """Let in who may come, write a round of every text whose prompt is read, and return the texts that ended."""
        ended = self._dismiss()
        self._admit()
        self._make_room()
        ended += self._dismiss()
        if self.running:
            self._read_drafts()
            ready = [seat for seat in self.running if seat.unread <= 1 and (seat.told or seat.behind <= self.beside)]
            self._share(ready)
            self._guess(ready)
            self._verify([seat for seat in ready if seat.error is None])
        return [*ended, *self._dismiss()]

    def _dismiss(self) -> list[Seat]:
        """Let those go whose text has ended."""
        gone = []
        for seat in [*self.running, *self.waiting]:
            if seat.cancelled:
                seat.request.cancel()
            if seat.error is not None or seat.request.over:
                seat.over = True
                self._free(seat, keep=seat.error is None)
                self.waiting = [one for one in self.waiting if one is not seat]
                gone.append(seat)
        return gone

    def _free(self, seat: Seat, *, keep: bool) -> None:
        """Take a text's place and its caches."""
        self.running = [one for one in self.running if one is not seat]
        if seat.own is not None:
            self.target.give(seat.own, keep=keep)
        if seat.drafts_own is not None and self.draft is not None:
            self.draft.give(seat.drafts_own, keep=keep)
        seat.own = seat.drafts_own = None

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.at_once:
            text = self.waiting[0].text
            if any(self._reads_for(seat, text) for seat in self.running):
                return
            need = sum(pool.growth(None, len(text) + 1) for pool in self._pools) + sum(map(self._growth, self.running))
            if self.running and not self.memory.allows(need):
                return
            self._seat(self.waiting.pop(0), text)

    def _reads_for(self, seat: Seat, text: Sequence[int]) -> bool:
        """Whether a prompt is being read that a text begins with too: it then waits, so that this is read once."""
        if seat.own is None or seat.unread <= 1 or not seat.own.runner.steady:
            return False
        shared = common_prefix(seat.text[:-1], text[:-1])
        return shared - min(shared, len(seat.own.held)) > 0 and shared >= SHARED

    @property
    def _pools(self) -> list[Pool]:
        return [self.target] if self.draft is None else [self.target, self.draft]

    def _seat(self, seat: Seat, text: Sequence[int]) -> None:
        self.running.append(seat)
        self.counts.most_at_once = max(self.counts.most_at_once, len(self.running))
        try:
            drafts_own = None if seat.draft is None or self.draft is None else self.draft.take(text[:-1])
            seat.sit(self.target.take(text[:-1]), drafts_own)
        except Exception as error:
            seat.error = error

    def _make_room(self) -> None:
        """See to it that what may be read now has room; the newest texts give theirs up, and come again later."""
        while self.running and not self.memory.allows(need := sum(map(self._growth, self.running))):
            seat = self.running[-1]
            if len(self.running) == 1:
                seat.error = EngineError(
                    f"the caches may have {self.memory.limit} bytes, and a text of {len(seat.text)} tokens needs "
                    f"{need} more; raise the limit, or ask for a shorter text."
                )
                return
            self._free(seat, keep=False)
            self.waiting.insert(0, seat)
            self.counts.preempted += 1

    def _growth(self, seat: Seat) -> int:
        most = 1 + seat.request.most
        own = 0 if seat.own is None else self.target.growth(seat.own, len(seat.text) + most)
        if seat.drafts_own is None or self.draft is None or not seat.wanted:
            return own
        return own + self.draft.growth(seat.drafts_own, len(seat.text) + most)

    def _read_drafts(self) -> None:
        """Have drafts that are far behind read on, a few tokens beside the others' work."""
        far = [seat for seat in self.running if seat.error is None and seat.behind > self.beside]
        room = self.beside if len(far) < len(self.running) else CHUNK
        spans = {}
        for seat in far:
            assert seat.draft is not None and seat.drafts_own is not None
            if room > 0:
                spans[seat] = self._plan(seat.drafts_own, seat.draft.view(seat.text), room)
                room -= len(spans[seat].tokens)
        if spans and isinstance(failed := self._run_draft(spans), Exception):
            for seat in spans:
                seat.request.do_without(failed)
                seat.draft = None

    @staticmethod
    def _plan(session: ModelSession, text: Sequence[int], most: int, last: int = 1, *, states: bool = False) -> Span:
        # where bits hang on the pieces that a text is read in, they are those of a text alone
        return session.plan(text, last, most=most if session.runner.steady else CHUNK, states=states)

    def _share(self, ready: Sequence[Seat]) -> None:
        """Say to those that leave it to the scheduler how many guesses to ask for."""
        mine = [(seat, seat.told, seat.learned) for seat in ready if seat.told is not None and seat.learned is not None]
        for seat, _, learned in mine:
            learned.learn(seat.request.rounds)
        if len(self.running) == 1:
            for seat, told, learned in mine:  # a budget for one: its own controller's
                told.k, told.floor = learned.next(seat.request.rounds), learned.floor
                seat.wanted = seat.wanted or told.k > 0
            return
        if not mine or self.pace.known == 0:
            return
        drafting = self.draft_pace if self.draft is not None else Pace({1: 0.0})
        if drafting.known == 0:
            self._time_draft()
        right, tested = map(sum, zip(*(learned.tested() for _, _, learned in mine), strict=True))
        usual = (right + PRIOR * POOLED) / (tested + POOLED)
        survive = [learned.survive(usual, POOLED) for _, _, learned in mine]
        busy = len(self.running)  # those whose prompts are still read will be there
        ks, rate = shares(survive, busy, self.pace, drafting)
        n, rows = busy + sum(ks), max(1, sum(k > 0 for k in ks))
        step_s = self.pace(n + 1) - self.pace(n) + drafting(rows) / rows
        for (seat, told, learned), k, chances in zip(mine, ks, survive, strict=True):
            seat.unasked += 1
            if k == 0:
                k = self._probes(seat, rate * step_s, drafting)
            elif not seat.wanted:
                k = k if self._earns(seat, k, chances, rate, step_s, drafting) else 0
            if k > 0:
                seat.unasked, seat.wanted = 0, True
            told.k = 0 if seat.behind > self.beside else k
            told.floor = learned.floor_at(rate * step_s, chances)

    def _time_draft(self) -> None:
        """Find out what a draft pass takes, before anybody is asked to guess."""
        assert self.draft is not None
        session = self.draft.like.another()
        for _ in range(2):  # the first is a warm-up
            started = self.clock.now()
            session.runner.run([Span(session.cache, [0], 0)])
            spent = self.clock.now() - started
        self.draft_pace.learn(1, spent)

    def _probes(self, seat: Seat, worth: float, drafting: Pace) -> int:
        """Return whether a text is tried with one guess: seldom, and not where even a right one would not pay."""
        if worth >= 1 or not seat.wanted:
            return 0
        cost_s = drafting(1) + max(0.0, drafting(1 + seat.behind) - drafting(1))
        if seat.unasked <= max(seat.gap, len(self.running) * cost_s / (PROBING * self.pace(len(self.running)))):
            return 0
        seat.gap = min(GAPS[1], 2 * seat.gap)
        return 1

    def _earns(self, seat: Seat, k: int, chances: Sequence[float], rate: float, step_s: float, drafting: Pace) -> bool:
        """Return whether a text's guesses will win back, before it ends, that its draft has to read it first."""
        gain = sum(chances[:k]) - rate * k * step_s
        rounds = seat.request.remaining / (1 + sum(chances[:k]))
        unread = len(seat.text)  # its draft has not been asked for anything
        return gain * rounds > rate * max(0.0, drafting(unread) - drafting(1))

    def _guess(self, ready: Sequence[Seat]) -> None:
        """Have all that are ready guess, those with a draft model in shared passes."""
        asking = []
        for seat in ready:
            seat.drafting_s = 0.0
            asking.append(Guesses(seat, self.clock))
        while asking := [one for one in asking if one.view is not None]:
            spans = {}
            for one in asking:
                assert one.seat.drafts_own is not None and one.view is not None
                spans[one.seat] = self._plan(one.seat.drafts_own, one.view, CHUNK)
            rows = self._run_draft(spans)
            for one in asking:
                if isinstance(rows, Exception):
                    one.throw(rows)
                elif spans[one.seat].last:  # else there is more to be read first
                    one.send(rows[one.seat][-1])

    def _run_draft(self, spans: dict[Seat, Span]) -> dict[Seat, torch.Tensor] | Exception:
        """Run one pass of the draft for several texts, and share out what it took; return each one's rows."""
        sessions = {seat: seat.drafts_own for seat in spans if seat.drafts_own is not None}
        started = self.clock.now()
        try:
            found = next(iter(sessions.values())).runner.run(list(spans.values()))
        except Exception as error:  # no text needs it
            return error
        spent, tokens = self.clock.now() - started, sum(len(span.tokens) for span in spans.values())
        self.counts.draft_passes += 1
        self.draft_pace.learn(tokens, spent)
        for seat, span in spans.items():
            sessions[seat].commit(span)
            seat.drafting_s += spent * len(span.tokens) / tokens
        return {seat: rows.logits for seat, rows in zip(spans, found, strict=True)}

    def _verify(self, ready: Sequence[Seat]) -> None:
        """Run the target's pass: over the guesses of those that are ready, and pieces of the others' prompts."""
        spans: dict[Seat, Span] = {}
        for seat in ready:
            assert seat.own is not None
            sequence, last = seat.request.wanted
            spans[seat] = self._plan(seat.own, sequence, CHUNK, last, states=seat.request.wants_states)
        room = self.beside if ready else CHUNK
        for seat in self.running:
            if seat not in spans and seat.own is not None and seat.unread > 1 and room > 0:
                spans[seat] = self._plan(seat.own, seat.text[:-1], room)
                room -= len(spans[seat].tokens)
        if not spans:
            return
        started = self.clock.now()
        found = self._like.runner.run(list(spans.values()))
        spent, tokens = self.clock.now() - started, sum(len(span.tokens) for span in spans.values())
        self.counts.passes += 1
        self.counts.tokens += tokens
        if len(spans) == len(ready):
            self.pace.learn(tokens, spent)
        for (seat, span), rows in zip(spans.items(), found, strict=True):
            assert seat.own is not None
            seat.own.commit(span)
            mine = spent * len(span.tokens) / tokens
            if seat not in ready:
                seat.request.charge(mine)
                continue
            try:
                beside = tokens - len(span.tokens)
                done = seat.request.settle(rows.logits, mine, beside, rows.states, seat.drafting_s)
                seat.on_round(done)
            except Exception as error:
                seat.error = error

    @property
    def _like(self) -> ModelSession:
        return self.target.like
