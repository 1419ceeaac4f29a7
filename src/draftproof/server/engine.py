"""The thread that writes: everything that touches models happens here, and clients are never waited for."""

from __future__ import annotations

import asyncio
import queue
import threading
from typing import Any

import torch

from draftproof.decode.divergence import same_text
from draftproof.engines.batch import AT_ONCE, Batch
from draftproof.engines.local import Speculator
from draftproof.errors import EngineError
from draftproof.options import Options
from draftproof.records import Generation, Logprob
from draftproof.sampling.laws import law_of
from draftproof.server.texts import Ended, Piece, Running, Wanted, Watcher

PIECE = 64
"""Rows of a prompt's log-probabilities that are looked at between two steps."""
IDLE_S = 0.05
"""Seconds for which an idle thread waits before it looks whether a check is due."""


class Engine:
    """Writes what is submitted, many texts at once, in a thread of its own.

    `max_queue` texts may wait; `check_every` rewrites every so-many-th finished text alone and plainly when nothing
    else is to be done, and `differences` counts those that were not the same.
    """

    def __init__(
        self,
        speculator: Speculator,
        *,
        at_once: int = AT_ONCE,
        memory: int | None = None,
        max_queue: int = 256,
        check_every: int = 0,
        watcher: Watcher | None = None,
    ) -> None:
        self.speculator = speculator
        self.max_queue = max_queue
        self.checks = self.differences = 0
        self.draining = False
        self._given = {"at_once": at_once, "memory": memory}
        self._batch = self._new_batch()
        self._check_every = check_every
        self._watcher = watcher or Watcher()
        self._arrived: queue.SimpleQueue[Running | None] = queue.SimpleQueue()
        self._running: list[Running] = []
        self._scoring: list[Running] = []
        self._finished = 0
        self._to_check: list[tuple[Wanted, Generation]] = []
        self._thread = threading.Thread(target=self._work, name="draftproof", daemon=True)
        self._stopped = threading.Event()

    def _new_batch(self) -> Batch:
        return Batch(self.speculator, **self._given)  # type: ignore[arg-type]

    @property
    def batch(self) -> Batch:
        """What writes."""
        return self._batch

    @property
    def waiting(self) -> int:
        """Texts that wait for their turn."""
        return self._arrived.qsize() + len(self._batch.scheduler.waiting) + len(self._scoring)

    @property
    def running(self) -> tuple[Running, ...]:
        """Texts that are not over."""
        return tuple(self._running)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def stop(self) -> None:
        """End all texts, and the thread."""
        self.draining = True
        self._stopped.set()
        self._arrived.put(None)
        if self._thread.is_alive():
            self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether the thread works."""
        return self._thread.is_alive()

    def submit(self, wanted: Wanted) -> Running:
        """Let a text wait for its turn; called in the loop of the client's."""
        running = Running(wanted, asyncio.get_running_loop(), arrived_s=self.speculator.clock.now())
        self._arrived.put(running)
        return running

    def _work(self) -> None:
        while not self._stopped.is_set():
            self._let_in()
            if self._scoring:
                self._score(self._scoring[0])
            if self._batch.busy:
                self._step()
            elif self._to_check and not self._scoring:
                self._check(*self._to_check.pop(0))
        for running in [*self._running, *self._scoring]:
            running.tell(EngineError("the server is shutting down."))

    def _let_in(self) -> None:
        """Take in what has arrived; wait for something if there is nothing to do."""
        idle = not (self._batch.busy or self._scoring or self._to_check)
        while True:
            try:
                running = self._arrived.get(timeout=IDLE_S) if idle else self._arrived.get_nowait()
            except queue.Empty:
                return
            idle = False
            if running is None or running.cancelled:
                continue
            if running.wanted.scores is not None:
                self._scoring.append(running)
            else:
                self._add(running)

    def _add(self, running: Running) -> None:
        wanted = running.wanted
        try:
            running.text = self._batch.add(
                list(wanted.ids), wanted.options, k=wanted.k, sample=wanted.sample, on_round=running.rounds.append
            )
        except Exception as error:  # of this text alone
            running.tell(error)
            return
        self._running.append(running)

    def _step(self) -> None:
        try:
            self._batch.step()
        except Exception as error:  # the pass itself failed: nobody's text can be trusted to go on
            for running in self._running:
                running.tell(EngineError(f"a pass failed: {error}"))
            self._running, self._batch = [], self._new_batch()
            return
        for running in list(self._running):
            self._hand_out(running)

    def _hand_out(self, running: Running) -> None:
        text = running.text
        assert text is not None
        if running.cancelled:
            text.cancel()
        rounds, running.rounds[:] = list(running.rounds), []
        for i, done in enumerate(rounds):
            self._watcher.round(running, done)
            running.tell(Piece(text.readable() if i == len(rounds) - 1 else "", done))
        if not text.over:
            return
        self._running.remove(running)
        if text.error is not None:
            running.tell(text.error)
            return
        made = text.generation
        if rest := text.readable():
            running.tell(Piece(rest, None))
        self._watcher.ended(running, made)
        running.tell(Ended(made, tuple(running.scored)))
        if made.finish_reason != "cancelled" and self._check_every and running.wanted.options.same_text:
            self._finished += 1
            if self._finished % self._check_every == 0:
                self._to_check.append((running.wanted, made))

    def _score(self, running: Running) -> None:
        """Find the log-probabilities of a few more of the prompt's tokens, the first of which has none."""
        wanted, done = running.wanted, len(running.scored)
        try:
            if done == 0:
                running.scored.append(None)
                done = 1
            end = min(len(wanted.ids), done + PIECE)
            if end > done and not running.cancelled:
                rows = self.speculator.target_session.read(list(wanted.ids[: end - 1]), end - done)
                running.scored += [
                    _scored(row, t, wanted.scores or 0) for row, t in zip(rows, wanted.ids[done:end], strict=True)
                ]
        except Exception as error:
            self._scoring.remove(running)
            running.tell(error)
            return
        if len(running.scored) >= len(wanted.ids) or running.cancelled:
            self._scoring.remove(running)
            if running.cancelled:
                return
            if wanted.writes:
                self._add(running)
            else:
                running.tell(Ended(None, tuple(running.scored)))

    def _check(self, wanted: Wanted, made: Generation) -> None:
        """Write a finished text again, alone and plainly; given up for later when something arrives."""
        options = Options.of(wanted.options, **({} if made.seed is None else {"seed": made.seed}))
        stream = self.speculator.stream(list(wanted.ids), options, k=0, sample=wanted.sample)
        for _ in stream:
            if not self._arrived.empty() or self._stopped.is_set():
                self._to_check.append((wanted, made))
                return
        same = same_text(made, stream.generation)
        self.checks += 1
        self.differences += not same
        self._watcher.checked(same)


def _scored(row: torch.Tensor, token: int, top: int) -> Logprob:
    logs = law_of(row).log()
    best = logs.topk(min(max(top, 1), len(logs)))
    pairs: list[Any] = list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    return Logprob(token, float(logs[token]), tuple(pairs[:top]))
