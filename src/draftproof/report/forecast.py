"""A forecast in tables and words."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from draftproof.forecast.predict import best_of
from draftproof.records import Interval
from draftproof.report.grid import Column, Grid, grid
from draftproof.report.names import short_names
from draftproof.results import ForecastCell, ForecastResult


def forecast_table(result: ForecastResult) -> Grid:
    """Return the forecast speedup of every workload, draft and k, and the best k of each."""
    names = short_names(result.drafts)
    rows = []
    for mine in _groups(result.cells):
        best = best_of(mine)
        each = [f"{cell.speedup.value:.2f}" for cell in mine]
        k = f"{best.k}" if best.speedup.value > 1 else "none pays"
        rows.append((mine[0].workload, names[mine[0].draft], *each, k, _interval(best.speedup)))
    columns = [Column("workload", left=True), Column("draft", left=True)]
    columns += [Column(f"k={k}", spare=1 + (abs(k - 4) if isinstance(k, int) else 0)) for k in result.ks]
    return grid("forecast: × plain decoding", [*columns, Column("best k"), Column("speedup (90 %)")], rows)


def check_table(result: ForecastResult) -> Grid:
    """Return forecast beside measured, for every cell that was run."""
    names = short_names(result.drafts)
    rows = [
        (
            cell.workload,
            names[cell.draft],
            f"{cell.k}",
            _interval(cell.speedup),
            _interval(cell.measured),
            f"{cell.speedup.value / cell.measured.value - 1:+.1%}",
        )
        for cell in result.cells
        if cell.measured is not None
    ]
    columns = [Column("workload", left=True), Column("draft", left=True), Column("k")]
    return grid("check", [*columns, Column("forecast (90 %)"), Column("measured (95 %)"), Column("off by")], rows)


def priced_tables(result: ForecastResult) -> list[Grid]:
    """Return what else was priced: schemes that overlap, and many texts at once; the oracle stands with the schemes."""
    names = short_names(result.drafts)
    found = []
    schemes = [one for one in result.priced if one.what != "batch"]
    if any(one.what != "oracle" for one in schemes):
        rows = [(one.workload, names[one.draft], one.what, f"{one.k}", _interval(one.speedup)) for one in schemes]
        columns = [Column("workload", left=True), Column("draft", left=True), Column("scheme", left=True), Column("k")]
        found.append(grid("priced, not run: × plain decoding", [*columns, Column("speedup (90 %)")], rows))
    batches = [one for one in result.priced if one.what == "batch"]
    if batches:
        together = [
            (one.workload, names[one.draft], f"{one.size}", f"{one.k}", _interval(one.speedup), _pace(one.tokens_per_s))
            for one in batches
        ]
        columns = [Column("workload", left=True), Column("draft", left=True), Column("at once"), Column("best k")]
        columns += [Column("× plain (90 %)"), Column("tokens/s")]
        found.append(grid("priced, not run: texts at once", columns, together))
    return found


def _pace(tokens_per_s: float | None) -> str:
    return "" if tokens_per_s is None else f"{tokens_per_s:.1f}"


def _batch_verdicts(result: ForecastResult) -> list[str]:
    """Say up to how many texts at once speculation pays."""
    names, said = short_names(result.drafts), []
    batches = [one for one in result.priced if one.what == "batch"]
    for workload, draft in dict.fromkeys((one.workload, one.draft) for one in batches):
        mine = [one for one in batches if (one.workload, one.draft) == (workload, draft)]
        good = [one.size for one in mine if one.speedup.low > 1]
        most = max((size for size in good if all(s in good for s in (m.size for m in mine) if s <= size)), default=0)
        tried = f"of {', '.join(f'{one.size}' for one in mine)}"
        found = f"pays up to {most} at once" if most else "pays at none of the batch sizes"
        said.append(f"{workload} with {names[draft]}: {found}, {tried}")
    return said


def verdicts(result: ForecastResult) -> list[str]:
    """Say for every workload and draft whether it pays, and at which k; and how right the forecast was, if checked."""
    names = short_names(result.drafts)
    several = len(result.drafts) > 1
    said = []
    for mine in _groups(result.cells):
        best = best_of(mine)
        who = f"{best.workload}{f' with {names[best.draft]}' if several else ''}"
        speedup = f"{best.speedup.value:.2f} × plain ({best.speedup.low:.2f} to {best.speedup.high:.2f})"
        if pays(best):
            said.append(f"{who}: pays, take k = {best.k}: {speedup} forecast")
        elif all(cell.speedup.high < 1 for cell in mine):
            said.append(f"{who}: does not pay: at best {speedup} forecast, at k = {best.k}; use none (k = 0)")
        else:
            said.append(f"{who}: cannot tell: {speedup} forecast at k = {best.k}; more prompts may tell")
    said += _batch_verdicts(result)
    if told := accuracy(result.cells):
        said.append(told)
    return said


def accuracy(cells: Sequence[ForecastCell]) -> str | None:
    """Say how far forecasts were off what was measured."""
    known = [(cell.speedup, cell.measured) for cell in cells if cell.measured is not None]
    if not known:
        return None
    off = median(abs(ours.value / real.value - 1) for ours, real in known)
    held = sum(ours.low <= real.value <= ours.high for ours, real in known)
    right = sum((ours.value > 1) == (real.value > 1) for ours, real in known)
    return (
        f"forecast against measured in {len(known)} cells: off by {off:.1%} (median), the measured value inside the "
        f"interval in {held}, the right side of 1.0 in {right}"
    )


def pays(cell: ForecastCell) -> bool:
    """Return whether a cell is surely faster than plain decoding."""
    return cell.speedup.low > 1


def _groups(cells: Sequence[ForecastCell]) -> list[list[ForecastCell]]:
    found: dict[tuple[str, str], list[ForecastCell]] = {}
    for cell in cells:
        found.setdefault((cell.workload, cell.draft), []).append(cell)
    return list(found.values())


def _interval(found: Interval | None) -> str:
    return "" if found is None else f"{found.value:.2f} ({found.low:.2f}–{found.high:.2f})"
