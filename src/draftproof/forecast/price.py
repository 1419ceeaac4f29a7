"""What passes cost, as they were measured in the loop itself, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from draftproof.cost import CostCurve
from draftproof.forecast.trace import Sample


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of the parts of a round."""

    curve: CostCurve
    """Of the target's pass over n tokens, the plain pass over one left out where it is another."""
    plain_s: float
    """Of a plain round, all of it."""
    draft_s: float
    """Of one draft pass."""
    overhead_s: float
    """Of everything else in a round with guesses."""
    idle_s: float
    """The same in a round without guesses, where a proposer was asked all the same or would have been."""

    def draft(self, passes: int) -> float:
        """Seconds in which guesses were made."""
        return passes * self.draft_s

    def target(self, guesses: int) -> float:
        """Seconds of the target's pass."""
        return self.curve.at(guesses + 1)

    def overhead(self, guesses: int) -> float:
        """Seconds of everything else."""
        return self.overhead_s if guesses else self.idle_s


def costs_of(plain: Sequence[Sample], rounds: Sequence[Sample]) -> Costs:
    """Return the medians of measured rounds: `plain` ones, and those of one draft at several numbers of guesses."""
    by_width: dict[int, list[float]] = {}
    for one in rounds:
        by_width.setdefault(one.guesses + 1, []).append(one.target_s)
    if 1 not in by_width:
        by_width[1] = [one.target_s for one in plain]
    widths = tuple(sorted(by_width))
    drafted = [one.draft_s / one.draft_passes for one in rounds if one.draft_passes]
    free = [one.draft_s / one.guesses for one in rounds if one.guesses and not one.draft_passes]
    return Costs(
        curve=CostCurve(widths, tuple(median(by_width[n]) for n in widths)),
        plain_s=median(one.draft_s + one.target_s + one.overhead_s for one in plain),
        draft_s=median(drafted or [0.0]),
        overhead_s=median([one.overhead_s for one in rounds if one.guesses] or [0.0]) + median(free or [0.0]),
        idle_s=median([one.overhead_s for one in rounds if not one.guesses] or [one.overhead_s for one in plain]),
    )
