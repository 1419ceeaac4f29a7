"""One text among many: its request, its caches, its guesses of a round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from draftproof.clock import Clock
from draftproof.control.auto import Run
from draftproof.decode.request import Request
from draftproof.models.session import ModelSession, common_prefix
from draftproof.propose.draft import Draft
from draftproof.records import Round

GAPS = 8, 512
"""Rounds after which a text whose guesses did not pay is tried again with one: at first, and at most."""


@dataclass(slots=True)
class Told:
    """A controller that asks for what the scheduler says."""

    most: int
    k: int = 0
    floor: float = 0.0

    def next(self, rounds: Sequence[Round]) -> int:
        """Return what was said."""
        return self.k


@dataclass(eq=False)
class Seat:
    """One text that is written beside others.

    `told` and `learned` are given for a request that leaves its guesses to the scheduler: `told` is its controller, and
    `learned` knows how often it was right. `draft` is what guesses for it, if that is a model.
    """

    request: Request
    draft: Draft | None = None
    told: Told | None = None
    learned: Run | None = None
    on_round: Callable[[Round], object] = lambda done: None
    error: Exception | None = None
    over: bool = False
    """Whether it has ended: at its end, by an error, or cancelled."""
    own: ModelSession | None = None
    """The target's session, while it is written."""
    drafts_own: ModelSession | None = None
    """The draft's."""
    cancelled: bool = False
    drafting_s: float = 0.0
    unasked: int = 0
    """Rounds in a row without guesses."""
    gap: int = GAPS[0]

    def __post_init__(self) -> None:
        self.prompt = tuple(self.request.sequence)
        self.wanted = self.told is None and self.request.most > 0
        """Whether its draft has been asked for something."""

    def cancel(self) -> None:
        """End the text behind the pass that is running."""
        self.cancelled = True

    @property
    def text(self) -> Sequence[int]:
        """Prompt and text so far."""
        return self.request.sequence

    @property
    def unread(self) -> int:
        """How many tokens of its text the target has not read."""
        return len(self.text) - (0 if self.own is None else common_prefix(self.own.held, self.text))

    @property
    def behind(self) -> int:
        """How many tokens of its view of the text the draft has not read."""
        if self.draft is None or self.drafts_own is None or not self.wanted:
            return 0
        self.request.introduce(read=False)
        view = self.draft.view(self.text)
        return len(view) - common_prefix(self.drafts_own.held, view)

    def sit(self, own: ModelSession, drafts_own: ModelSession | None) -> None:
        """Take its place, with these caches."""
        self.own, self.drafts_own = own, drafts_own
        if self.draft is not None and drafts_own is not None:
            self.draft.session = drafts_own
        self.request.enter(own.begin(self.prompt[:-1], self.request.reserve))


class Guesses:
    """A text's guesses of one round, as far as they are made."""

    def __init__(self, seat: Seat, clock: Clock) -> None:
        self.seat = seat
        self.view: Sequence[int] | None = None
        """What its draft has to stand on next, None when all is made."""
        self._steps = seat.request.proposing()
        self._clock = clock
        self.go(lambda: next(self._steps))

    def go(self, step: Callable[[], Sequence[int]]) -> None:
        """Make the next step, and see what it wants; an error ends the text, not the others'."""
        started = self._clock.now()
        try:
            self.view = step()
        except StopIteration:
            self.view = None
        except Exception as error:
            self.view, self.seat.error = None, error
        self.seat.drafting_s += self._clock.now() - started

    def send(self, row: torch.Tensor) -> None:
        """Hand over the row that was wanted."""
        self.go(lambda: self._steps.send(row))

    def throw(self, error: Exception) -> None:
        """Say that there will be none."""
        self.go(lambda: self._steps.throw(error))
