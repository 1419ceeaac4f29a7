"""The report's charts of forecasts, one question each."""

from __future__ import annotations

import plotly.graph_objects as go

from draftproof.report.figure import BLACK, empty, style
from draftproof.report.names import short_names
from draftproof.results import ForecastResult


def by_k(result: ForecastResult) -> go.Figure:
    """Forecast speedup against k with its interval, for every workload and draft; the best has the largest mark."""
    figure = empty("Forecast speedup against k", "k, guesses a round", "times plain decoding")
    called = short_names(result.drafts)
    groups = dict.fromkeys((cell.workload, cell.draft) for cell in result.cells)
    for i, (workload, draft) in enumerate(groups):
        mine = [cell for cell in result.cells if (cell.workload, cell.draft) == (workload, draft)]
        found = [cell.speedup for cell in mine]
        best = max(mine, key=lambda cell: cell.speedup.value)
        look = style(i)
        look["marker"]["size"] = [14 if cell is best else 7 for cell in mine]
        figure.add_scatter(
            x=[cell.k for cell in mine],
            y=[v.value for v in found],
            error_y={"array": [v.high - v.value for v in found], "arrayminus": [v.value - v.low for v in found]},
            name=f"{workload}, {called[draft]}",
            **look,
        )
    figure.add_hline(y=1, line_dash="dot", line_color=BLACK)
    return figure


def against_measured(result: ForecastResult) -> go.Figure:
    """Forecast against measured speedup, with the diagonal on which they are equal."""
    figure = empty("Forecast against measured", "measured, times plain decoding", "forecast")
    known = [(cell, cell.measured) for cell in result.cells if cell.measured is not None]
    for i, draft in enumerate(result.drafts):
        mine = [(cell, real) for cell, real in known if cell.draft == draft]
        figure.add_scatter(
            x=[real.value for _, real in mine],
            y=[cell.speedup.value for cell, _ in mine],
            error_x={"array": [v.high - v.value for _, v in mine], "arrayminus": [v.value - v.low for _, v in mine]},
            text=[f"{cell.workload}, k = {cell.k}" for cell, _ in mine],
            name=short_names(result.drafts)[draft],
            **{**style(i), "mode": "markers"},
        )
    ends = [edge(v.value for _, v in known) for edge in (min, max)]
    figure.add_scatter(x=ends, y=ends, name="equal", mode="lines", line={"color": BLACK, "dash": "dot"})
    return figure
