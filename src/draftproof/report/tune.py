"""What a tune found, in a table and words."""

from __future__ import annotations

from draftproof.forecast.choice import FEW, Choice
from draftproof.forecast.trace import Trace
from draftproof.records import Interval
from draftproof.report.grid import Column, Grid, grid
from draftproof.report.names import short_names
from draftproof.results import ForecastResult


def candidates_table(choice: Choice) -> Grid:
    """Return every draft over all texts: its best fixed k, auto, and how often it was right."""
    drafts = list(dict.fromkeys(cell.draft for cell in choice.cells))
    names = short_names(drafts)
    rows = []
    for draft in drafts:
        mine = [cell for cell in choice.cells if cell.draft == draft]
        auto = next((cell for cell in mine if cell.k == "auto"), None)
        best = max((cell for cell in mine if cell is not auto), key=lambda cell: cell.speedup.value)
        rate = f"{best.accepted / best.proposed:.0%}" if best.proposed else ""
        rows.append((names[draft], f"{best.k}", _told(best.speedup), rate, "" if auto is None else _told(auto.speedup)))
    columns = [Column("draft", left=True), Column("best k"), Column("forecast (90 %)"), Column("accepted")]
    return grid("over all texts: × plain decoding", [*columns, Column("k = auto")], rows)


def verdicts(choice: Choice, result: ForecastResult) -> list[str]:
    """Say what to take, and how sure that is."""
    texts = f"{choice.cell.texts} text{'s' if choice.cell.texts != 1 else ''}"
    names = short_names(result.drafts)
    if choice.candidate is None:
        return [
            f"do not speculate here: at best {_told(choice.cell.speedup)} × plain is forecast over {texts}, with "
            f"{names[choice.cell.draft]} at k = {choice.cell.k}, and that is not surely faster"
        ]
    said = [
        f"take {names[choice.candidate.name]} with k = {choice.k}: {_told(choice.cell.speedup)} × plain forecast over "
        f"{texts}"
    ]
    if choice.measured is not None:
        count = len({(c.workload, c.prompt) for c in result.measured})
        said.append(f"run beside plain decoding on {count} of them: {_told(choice.measured)} × plain measured (95 %)")
        if choice.measured.high < 1:
            said.append("what was measured contradicts the forecast: do not speculate on the strength of this")
    return said


def doubts(trace: Trace) -> list[str]:
    """Say what makes the answer less sure than its interval."""
    if len(trace.texts) >= FEW:
        return []
    return [f"{len(trace.texts)} texts are too few for an interval that speaks of others; give at least {FEW}"]


def _told(found: Interval) -> str:
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"
