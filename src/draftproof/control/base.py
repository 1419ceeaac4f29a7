"""How many guesses a round asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

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
