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


@dataclass(frozen=True, slots=True)
class PricedCell:
    """What something that was not run would make of the same texts."""

    workload: str
    draft: str
    what: str
    """`oracle`, which knows beforehand how many guesses stand; a scheme that drafts while the target verifies; or
    `batch`."""
    k: int
    """Guesses a round; of an oracle the most."""
    speedup: Interval
    """Over plain decoding; of a batch over as many texts at once, plainly. Of the oracle prompts' reading included."""
    size: int = 1
    """Texts at once."""
    tokens_per_s: float | None = None
    """Of a batch: of all its texts together."""


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
    priced: tuple[PricedCell, ...] = ()
    """The oracle, and what else was asked for."""
    kind: Literal["forecast"] = "forecast"
