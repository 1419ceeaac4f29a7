"""What others do, to compare with: transformers' schedule, and a threshold of confidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftproof.records import Round


@dataclass(frozen=True, slots=True)
class Schedule:
    """transformers' heuristic: two more guesses behind a round that was all right, one fewer behind any other."""

    first: int = 5
    most: int = 16

    def next(self, rounds: Sequence[Round]) -> int:
        """Return what the rounds so far led to."""
        k = self.first
        for done in rounds[-64:]:
            k = min(self.most, k + 2) if done.accepted == len(done.proposed) else max(1, k - 1)
        return k


@dataclass(frozen=True, slots=True)
class Threshold:
    """Up to `most` guesses, as long as the draft is sure of all of them together."""

    floor: float = 0.4
    most: int = 16

    def next(self, rounds: Sequence[Round]) -> int:
        """Return the most; the rest is the floor's."""
        return self.most
