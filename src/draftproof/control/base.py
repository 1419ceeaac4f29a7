"""How many guesses a round asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from operator import index
from typing import Protocol, cast

from draftproof.errors import brief
from draftproof.records import Round


class Controller(Protocol):
    """Chooses k anew for every round of a request.

    One that remembers has a `start()`, which returns what chooses for one request. One that has a `floor` stops
    drafting inside a round: behind the guess with which the product of the guesses' confidences falls below it, for
    proposers that can (`propose.base.Proposer`). It is looked at behind every `next`, which may be asked about the same
    rounds twice.
    """

    @property
    def most(self) -> int:
        """The most that it ever asks for: passes of one shape are made for so many."""
        ...

    def next(self, rounds: Sequence[Round]) -> int:
        """Return how many guesses to ask for after these rounds of the request; 0 is a plain round."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same k in every round."""

    most: int

    def next(self, rounds: Sequence[Round]) -> int:
        return self.most


def start(controller: Controller) -> Controller:
    """Return what chooses for one request."""
    fresh = getattr(controller, "start", None)
    return controller if fresh is None else cast("Controller", fresh())


class Contained:
    """A controller for one request that nobody trusts: what fails in it, or is no number, is said in `faults`, and
    nothing is asked for.
    """

    def __init__(self, controller: Controller, faults: dict[str, None]) -> None:
        self.most = controller.most
        self._faults = faults
        self._controller: Controller = Fixed(0)
        try:
            self._controller = start(controller)
        except Exception as error:  # the text does not need it
            faults[f"the controller failed at the start, and asks for nothing: {brief(error)}"] = None

    def next(self, rounds: Sequence[Round]) -> int:
        """Return how many guesses it asks for, at most `most`."""
        try:
            asked = index(self._controller.next(rounds))
        except Exception as error:
            self._faults[f"the controller failed, and nothing was guessed: {brief(error)}"] = None
            return 0
        return max(0, min(asked, self.most))

    @property
    def floor(self) -> float:
        """Return its floor."""
        floor = getattr(self._controller, "floor", 0.0)
        if isinstance(floor, Real):
            return float(floor)
        self._faults[f"the controller's floor is {floor!r}, which is no number"] = None
        return 0.0
