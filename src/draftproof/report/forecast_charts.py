"""The report's charts of forecasts, one question each."""

from __future__ import annotations

import plotly.graph_objects as go

from draftproof.report.figure import BLACK, BLUE, GREEN, ORANGE, empty, style
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


def standing(result: ForecastResult) -> go.Figure:
    """Where the best fixed k, the controller and an oracle stand, for every workload and draft."""
    figure = empty("Best fixed k, controller, oracle", "", "times plain decoding, forecast")
    called = short_names(result.drafts)
    groups = list(dict.fromkeys((cell.workload, cell.draft) for cell in result.cells))
    places = [f"{workload}, {called[draft]}" for workload, draft in groups]
    found: dict[str, list[float | None]] = {"best fixed k": [], "k = auto": [], "oracle": []}
    said = []
    for group in groups:
        mine = [cell for cell in result.cells if (cell.workload, cell.draft) == group]
        best = max((c for c in mine if isinstance(c.k, int)), key=lambda c: c.speedup.value, default=None)
        auto = next((c for c in mine if c.k == "auto"), None)
        oracle = next((p for p in result.priced if (p.workload, p.draft, p.what) == (*group, "oracle")), None)
        said.append("" if best is None else f"k = {best.k}")
        for name, one in zip(found, (best, auto, oracle), strict=True):
            found[name].append(None if one is None else one.speedup.value)
    looks = zip(found.items(), (BLUE, GREEN, ORANGE), ("", "/", "x"), strict=True)
    for (name, values), colour, pattern in looks:
        marker = {"color": colour, "pattern": {"shape": pattern}}
        figure.add_bar(x=places, y=values, name=name, marker=marker, text=said if name == "best fixed k" else None)
    figure.add_hline(y=1, line_dash="dot", line_color=BLACK)
    return figure


def by_batch(result: ForecastResult) -> go.Figure:
    """Speedup against the number of texts that are written at once, each at its best k."""
    figure = empty("Texts at once, priced", "texts at once", "times plain decoding of as many")
    called = short_names(result.drafts)
    batches = [one for one in result.priced if one.what == "batch"]
    for i, (workload, draft) in enumerate(dict.fromkeys((one.workload, one.draft) for one in batches)):
        mine = [one for one in batches if (one.workload, one.draft) == (workload, draft)]
        figure.add_scatter(
            x=[one.size for one in mine],
            y=[one.speedup.value for one in mine],
            text=[f"k = {one.k}" for one in mine],
            name=f"{workload}, {called[draft]}",
            **style(i),
        )
    figure.add_hline(y=1, line_dash="dot", line_color=BLACK)
    figure.update_xaxes(type="log", tickvals=sorted({one.size for one in batches}))
    return figure
