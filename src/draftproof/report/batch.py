"""Many texts at once, in a table, words and a chart."""

from __future__ import annotations

from statistics import median

import plotly.graph_objects as go

from draftproof.records import Interval
from draftproof.report.figure import BLACK, empty, style
from draftproof.report.grid import Column, Grid, grid
from draftproof.results import BatchCell, BatchResult
from draftproof.stats.speedup import of_ratios


def pace(cell: BatchCell) -> float:
    """Return tokens a second of all texts together, the median of the repeats."""
    return median(tokens / seconds for tokens, seconds in zip(cell.tokens, cell.seconds, strict=True))


def speedup(result: BatchResult, cell: BatchCell) -> Interval | None:
    """Return by how much a cell is faster than plain decoding of as many texts; None of plain decoding itself, and
    where it was measured once only."""
    plain = next(one for one in result.cells if one.size == cell.size and one.k == 0)
    if cell is plain:
        return None
    pairs = zip(cell.tokens, cell.seconds, plain.tokens, plain.seconds, strict=True)
    return of_ratios([tokens / seconds * other_s / other for tokens, seconds, other, other_s in pairs])


def batch_table(result: BatchResult) -> Grid:
    """Return every size and k: tokens a second in all and of each text, against plain decoding of as many."""
    rows = []
    for cell in result.cells:
        found, rate = speedup(result, cell), pace(cell)
        accepted = f"{cell.accepted / cell.proposed:.0%}" if cell.proposed else ""
        told = "" if found is None else f"{found.value:.2f} ({found.low:.2f}–{found.high:.2f})"
        rows.append((f"{cell.size}", f"{cell.k}", f"{rate:.1f}", f"{rate / cell.size:.1f}", accepted, told))
    columns = [Column("at once"), Column("k"), Column("tokens/s"), Column("of each"), Column("accepted")]
    return grid("texts at once", [*columns, Column("× plain (95 %)")], rows)


def verdicts(result: BatchResult) -> list[str]:
    """Say up to how many texts at once speculation pays, and whether the texts are those alone."""
    said = []
    for k in result.ks:
        good = []
        for cell in result.cells:
            surely = speedup(result, cell) if cell.k == k else None
            if surely is not None and surely.low <= 1:
                break
            if surely is not None:
                good.append(cell.size)
        what = f"k = {k}"
        found = f"pays up to {max(good)} texts at once" if good else "surely pays at none of the sizes"
        said.append(f"{what}: {found if result.repeats > 1 else 'one repeat does not tell whether it pays'}")
    alike = all(cell.identical for cell in result.cells)
    said.append(f"every text is the one that it is alone, plainly: {'yes' if alike else 'NO'}")
    return said


def by_size(result: BatchResult) -> go.Figure:
    """Tokens a second of all texts together against their number, plainly and at every k."""
    figure = empty("Texts at once", "texts at once", "tokens a second in all")
    for i, k in enumerate((0, *result.ks)):
        mine = [cell for cell in result.cells if cell.k == k]
        name = "plain" if k == 0 else f"k = {k}"
        figure.add_scatter(x=[c.size for c in mine], y=[pace(c) for c in mine], name=name, **style(i))
    figure.update_xaxes(type="log", tickvals=list(result.sizes), ticktext=[f"{size}" for size in result.sizes])
    return figure


def pays(result: BatchResult) -> go.Figure:
    """Speedup against the number of texts at once: speculation pays up to where the line falls below 1."""
    figure = empty("Pays up to how many texts at once", "texts at once", "times plain decoding of as many")
    for i, k in enumerate(result.ks, 1):
        found = [(c.size, speedup(result, c)) for c in result.cells if c.k == k]
        known = [(size, one) for size, one in found if one is not None]
        figure.add_scatter(
            x=[size for size, _ in known],
            y=[one.value for _, one in known],
            error_y={
                "array": [one.high - one.value for _, one in known],
                "arrayminus": [one.value - one.low for _, one in known],
            },
            name=f"k = {k}",
            **style(i),
        )
    figure.add_hline(y=1, line_dash="dot", line_color=BLACK)
    figure.update_xaxes(type="log", tickvals=list(result.sizes), ticktext=[f"{size}" for size in result.sizes])
    return figure
