"""What a forecast says, as frozen records. docs/results-format.md describes them field by field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from draftproof.options import Options
from draftproof.records import Interval, Placement
from draftproof.results.base import Result
from draftproof.results.bench import Cell


@dataclass(frozen=True, slots=True)
class ForecastCell:
    """One draft at one k on one workload: counts of the replay, and the speedup that measured costs make of them."""

    workload: str
    draft: str
    k: int | str
    """Guesses a round, or the policy that chooses them."""
    texts: int
    tokens: int
    rounds: int
    """Target passes."""
    proposed: int
    accepted: int
    draft_passes: int
    speedup: Interval
    """Over plain decoding, the prompts' reading included; the interval holds 90 % of what other prompts of the kind and
    the costs' scatter would make of it."""
    measured: Interval | None = None
    """What the loop itself made on the same prompts, where it was run to check; a 95 % interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastResult(Result):
    """One `draftproof forecast`."""

    target: str
    drafts: tuple[str, ...]
    target_placement: Placement
    ks: tuple[int | str, ...]
    options: Options
    cells: tuple[ForecastCell, ...]
    measured: tuple[Cell, ...] = ()
    """The cells of the check."""
    kind: Literal["forecast"] = "forecast"
