"""Which draft, and which k? The best of everything that was tried on one's own texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from draftproof.forecast.predict import ALL, best_of, forecast
from draftproof.forecast.trace import Trace
from draftproof.options import Options
from draftproof.records import Interval
from draftproof.results import ForecastCell

KS = (1, 2, 3, 4, 5, 6, 8, 12, "auto")
FEW = 3
"""With fewer texts, an interval says little of others."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A draft that is tried, and how it is loaded."""

    draft: str
    weights: str | None = None
    """As `Speculator` takes its `draft_weights`; None: as the target's."""

    @property
    def name(self) -> str:
        """What it is called beside the others."""
        return self.draft if self.weights is None else f"{self.draft} ({self.weights})"


@dataclass(frozen=True, slots=True)
class Choice:
    """The best of all drafts and k over all texts."""

    candidate: Candidate | None
    """None where nothing pays."""
    k: int | str
    fixed: ForecastCell
    """The best fixed k of the same draft, for engines that know no other."""
    cell: ForecastCell
    """What is forecast of the choice; where nothing pays, of what came nearest."""
    cells: tuple[ForecastCell, ...]
    """Of all drafts and k, over all texts."""
    measured: Interval | None = None
    """What the choice made on the same texts, run side by side with plain decoding."""


def choose(trace: Trace, candidates: Sequence[Candidate], ks: Sequence[int | str] = KS) -> Choice:
    """Return the choice that a trace of all candidates leads to: the fastest over all texts together, if that surely
    pays. `auto` is taken before a fixed k that is not surely faster: it is never much slower than plain decoding on
    texts that are not like these. Raises `ConfigError`.
    """
    cells = [forecast(trace, one.name, ALL, k) for one in candidates for k in ks]
    best = best_of(cells)
    mine = [cell for cell in cells if cell.draft == best.draft]
    auto = next((cell for cell in mine if cell.k == "auto"), best)
    chosen = auto if auto.speedup.high >= best.speedup.value and auto.speedup.low > 1 else best
    pays = chosen.speedup.low > 1
    return Choice(
        candidate=next(one for one in candidates if one.name == best.draft) if pays else None,
        k=chosen.k if pays else 0,
        fixed=best_of([cell for cell in mine if isinstance(cell.k, int)] or mine),
        cell=chosen if pays else best,
        cells=tuple(cells),
    )


def settings_of(choice: Choice, target: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of `Speculator` that a choice comes to; `asked` are those that were given for all."""
    found: dict[str, Any] = {"target": target}
    if choice.candidate is not None:
        found |= {"draft": choice.candidate.draft, "draft_weights": choice.candidate.weights}
    usual = ("auto", None, False)
    return {**found, "k": choice.k, **{name: value for name, value in asked.items() if value not in usual}}


def evidence_of(choice: Choice, trace: Trace, options: Options) -> dict[str, Any]:
    """Return what a choice stands on, for a recipe."""
    cell, acceptance = choice.cell, choice.cell.accepted / max(1, choice.cell.proposed)
    return {
        "machine": trace.machine.cpu,
        "texts": cell.texts,
        "tokens": cell.tokens,
        "temperature": options.temperature,
        "acceptance_rate": round(acceptance, 3),
        "tokens_per_round": round(cell.tokens / cell.rounds, 2),
        "forecast": _interval(cell.speedup),
        "measured": None if choice.measured is None else _interval(choice.measured),
        "tried": [
            {"draft": one.draft, "k": one.k, "speedup": round(one.speedup.value, 3)}
            for one in sorted(choice.cells, key=lambda one: -one.speedup.value)
        ],
    }


def _interval(found: Interval) -> dict[str, float]:
    return {
        "speedup": round(found.value, 3),
        "low": round(found.low, 3),
        "high": round(found.high, 3),
        "confidence": found.confidence,
    }
