"""The report's charts, one question each. Colours of Okabe and Ito, and a mark of its own for every series."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import plotly.graph_objects as go

from draftproof import cost
from draftproof.records import Generation
from draftproof.report.names import drafts_of, short, short_names
from draftproof.report.summary import pass_rows
from draftproof.results import Arm, Cell, DraftsResult, ForecastResult, PassTimes
from draftproof.stats.rows import BenchRow

BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, BLACK = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#333333",
)
_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
_MARKS = ("circle", "square", "diamond", "triangle-up", "x", "star", "cross")


def cost_curves(passes: Sequence[PassTimes]) -> go.Figure:
    """What a pass costs against the tokens it covers, with the middle half of the measured values."""
    figure = _figure("Cost of one pass", "new tokens in the pass", "times a pass over one token")
    for i, times in enumerate(passes):
        rows = pass_rows(times)
        figure.add_scatter(
            x=[r.tokens for r in rows],
            y=[r.ratio for r in rows],
            error_y={"array": [r.ratio * r.spread / 2 for r in rows], "thickness": 1},
            name=f"{short(times.model)}, {times.placement.dtype}",
            **_style(i),
        )
    figure.add_hline(y=1, line_dash="dot", line_color=BLACK)
    figure.update_yaxes(rangemode="tozero")
    return figure


def speedup_by_k(rows: Sequence[BenchRow], cells: Sequence[Cell]) -> go.Figure:
    """Measured speedup with intervals, and what the formula expects from one alpha and the measured pass times."""
    figure = _figure("Speedup against k", "k, guesses a round", "times plain decoding")
    sweep = [r for r in rows if r.speedup is not None and not r.arm.way]
    values = [r.speedup for r in sweep if r.speedup is not None]
    figure.add_scatter(
        x=[r.k for r in sweep],
        y=[v.value for v in values],
        error_y={
            "array": [v.high - v.value for v in values],
            "arrayminus": [v.value - v.low for v in values],
            "thickness": 1.5,
        },
        name="measured, 95 % interval",
        **_style(0),
    )
    expected = [_expected(cells, r) for r in sweep]
    if any(expected):
        figure.add_scatter(
            x=[r.k for r in sweep], y=expected, name="expected from alpha and pass times", line_dash="dash", **_style(1)
        )
    for r in rows:
        if r.arm.ours and r.arm.way and r.speedup is not None:
            figure.add_hline(y=r.speedup.value, line_dash="dash", line_color=GREEN, annotation_text=f"k = {r.arm.way}")
    figure.add_hline(y=1, line_dash="dot", line_color=BLACK)
    figure.update_yaxes(rangemode="tozero")
    return figure


def tokens_by_k(rows: Sequence[BenchRow]) -> go.Figure:
    """Tokens per round, beside (1 - alpha^(k+1)) / (1 - alpha) with its ceiling 1 / (1 - alpha)."""
    figure = _figure("Tokens per round against k", "k, guesses a round", "tokens per round")
    sweep = [r for r in rows if r.guesses and not r.arm.way]
    figure.add_scatter(x=[r.k for r in sweep], y=[r.tokens_per_round for r in sweep], name="measured", **_style(0))
    known = [r.agreement for r in sweep if r.agreement is not None]
    if known:
        alpha = median(known)
        ks = list(range(max(r.k or 0 for r in sweep) + 1))
        theory = [cost.tokens_per_round(alpha, k) for k in ks]
        figure.add_scatter(
            x=ks, y=theory, name=f"formula at alpha = {alpha:.2f}", line={"color": VERMILION, "dash": "dash"}
        )
        if alpha < 1:
            label = f"ceiling 1/(1 − alpha) = {cost.ceiling(alpha):.1f}"
            figure.add_hline(y=cost.ceiling(alpha), line_dash="dot", annotation_text=label)
    return figure


def passes_by_k(rows: Sequence[BenchRow]) -> go.Figure:
    """Target passes saved, draft passes and discarded guesses paid."""
    figure = _figure("Passes and discarded guesses against k", "k, guesses a round", "count")
    rows = [r for r in rows if not r.arm.way]
    for i, (name, value) in enumerate((
        ("target passes", [r.target_passes for r in rows]),
        ("draft passes", [r.draft_passes for r in rows]),
        ("discarded guesses", [r.discarded for r in rows]),
    )):
        figure.add_scatter(x=[r.k for r in rows], y=value, name=name, **_style(i))
    return figure


def round_time(cells: Sequence[Cell]) -> go.Figure:
    """Where the time of a round goes, by k."""
    figure = _figure("Where the time of a round goes", "k, guesses a round", "milliseconds a round")
    arms = _by_arm(cells)
    parts: tuple[tuple[str, str, str, Callable[[Generation], float]], ...] = (
        ("draft", ORANGE, "/", lambda g: g.seconds.draft_s),
        ("target", BLUE, "", lambda g: g.seconds.target_s),
        ("everything else", BLACK, "x", lambda g: g.seconds.overhead_s),
    )
    for name, colour, pattern, seconds in parts:
        figure.add_bar(
            x=[arm.name for arm in arms],
            y=[
                1e3 * sum(seconds(g) for g in made) / max(1, sum(len(g.rounds) for g in made)) for made in arms.values()
            ],
            name=name,
            marker={"color": colour, "pattern": {"shape": pattern}},
        )
    figure.update_layout(barmode="stack")
    return figure


def acceptance_by_position(cells: Sequence[Cell]) -> go.Figure:
    """How often the guess at each place of the block is right, given that all before it were."""
    figure = _figure("Agreement by position in the block", "position of the guess", "right, of those tested")
    shown = [(arm.name, made) for arm, made in _by_arm(cells, last=True).items() if not arm.plain]
    for i, (name, made) in enumerate(shown):
        tested = cost.agreement_by_position([r for g in made for r in g.rounds])
        points = [(n + 1, right / all_, all_) for n, (all_, right) in enumerate(tested) if all_]
        figure.add_scatter(
            x=[n for n, _, _ in points],
            y=[rate for _, rate, _ in points],
            text=[f"{all_} tested" for _, _, all_ in points],
            name=name,
            **_style(i),
        )
    figure.update_yaxes(range=[0, 1.05])
    return figure


def workloads(k: int | str, rows: Sequence[BenchRow]) -> go.Figure:
    """Workloads side by side at one `k`, and other engines where they were run."""
    figure = _figure(f"Workloads at k = {k}", "", "times plain decoding")
    known = [(r, r.speedup) for r in rows if r.speedup is not None and (r.arm.asks == k or not r.arm.ours)]
    for i, name in enumerate(dict.fromkeys("draftproof" if r.arm.ours else r.arm.name for r, _ in known)):
        mine = [(r.workload, v) for r, v in known if name == ("draftproof" if r.arm.ours else r.arm.name)]
        figure.add_bar(
            x=[workload for workload, _ in mine],
            y=[v.value for _, v in mine],
            error_y={"array": [v.high - v.value for _, v in mine], "arrayminus": [v.value - v.low for _, v in mine]},
            name=name,
            marker={"color": _COLOURS[i % 7], "pattern": {"shape": ("", "/", "x", "-", "|")[i % 5]}},
        )
    figure.add_hline(y=1, line_dash="dot", line_color=BLACK)
    return figure


def drafts(result: DraftsResult, rows: Sequence[BenchRow], best: Sequence[BenchRow]) -> go.Figure:
    """Drafts side by side: what they cost, how often they are right, how fast they make it at one k (`rows`), and
    each at its best.
    """
    figure = _figure("Drafts: cost, agreement, speedup", "", "")
    facts = [f for f in result.facts if f.c is not None]
    called = drafts_of(result)
    names = [called[f.draft] for f in facts]
    figure.add_bar(x=names, y=[f.c for f in facts], name="c", marker_color=ORANGE)
    figure.add_bar(
        x=names, y=[f.agreement for f in facts], name="alpha", marker={"color": GREEN, "pattern": {"shape": "/"}}
    )
    for label, some, colour, pattern in (
        (f"speedup at k = {result.k}", rows, BLUE, ""),
        ("speedup at its best k", best, PURPLE, "x"),
    ):
        known = [(called[r.draft or ""], r.speedup.value) for r in some if r.speedup is not None]
        figure.add_bar(
            x=[name for name, _ in known],
            y=[value for _, value in known],
            name=label,
            marker={"color": colour, "pattern": {"shape": pattern}},
        )
    figure.add_hline(y=1, line_dash="dot", line_color=BLACK)
    return figure


def forecast_by_k(result: ForecastResult) -> go.Figure:
    """Forecast speedup against k with its interval, for every workload and draft; a star where it is best."""
    figure = _figure("Forecast speedup against k", "k, guesses a round", "times plain decoding")
    called = short_names(result.drafts)
    groups = dict.fromkeys((cell.workload, cell.draft) for cell in result.cells)
    for i, (workload, draft) in enumerate(groups):
        mine = [cell for cell in result.cells if (cell.workload, cell.draft) == (workload, draft)]
        found = [cell.speedup for cell in mine]
        best = max(mine, key=lambda cell: cell.speedup.value)
        style = _style(i)
        style["marker"]["size"] = [14 if cell is best else 7 for cell in mine]
        figure.add_scatter(
            x=[cell.k for cell in mine],
            y=[v.value for v in found],
            error_y={"array": [v.high - v.value for v in found], "arrayminus": [v.value - v.low for v in found]},
            name=f"{workload}, {called[draft]}",
            **style,
        )
    figure.add_hline(y=1, line_dash="dot", line_color=BLACK)
    return figure


def forecast_against_measured(result: ForecastResult) -> go.Figure:
    """Forecast against measured speedup, with the diagonal on which they are equal."""
    figure = _figure("Forecast against measured", "measured, times plain decoding", "forecast")
    known = [(cell, cell.measured) for cell in result.cells if cell.measured is not None]
    for i, draft in enumerate(result.drafts):
        mine = [(cell, real) for cell, real in known if cell.draft == draft]
        figure.add_scatter(
            x=[real.value for _, real in mine],
            y=[cell.speedup.value for cell, _ in mine],
            error_x={"array": [v.high - v.value for _, v in mine], "arrayminus": [v.value - v.low for _, v in mine]},
            text=[f"{cell.workload}, k = {cell.k}" for cell, _ in mine],
            name=short_names(result.drafts)[draft],
            **{**_style(i), "mode": "markers"},
        )
    ends = [edge(v.value for _, v in known) for edge in (min, max)]
    figure.add_scatter(x=ends, y=ends, name="equal", mode="lines", line={"color": BLACK, "dash": "dot"})
    return figure


def _by_arm(cells: Sequence[Cell], *, last: bool = False) -> dict[Arm, list[Generation]]:
    """All generations of every arm that has some, over all prompts; or only the last repeat of each."""
    arms: dict[Arm, list[Generation]] = {}
    for cell in cells:
        if cell.generations:
            arms.setdefault(cell.arm, []).extend(cell.generations[-1:] if last else cell.generations)
    return arms


def _expected(cells: Sequence[Cell], row: BenchRow) -> float | None:
    """The forecast for a row, from its own agreement and the medians of the measured passes."""
    plain = [r for c in cells if c.arm.plain for g in c.generations for r in g.rounds]
    mine = [r for c in cells if c.arm == row.arm for g in c.generations for r in g.rounds]
    full = [r for r in mine if len(r.proposed) == row.k]
    if not plain or not full or row.agreement is None or not row.k:
        return None
    v_1, v_k = median(r.target_s for r in plain), median(r.target_s for r in full)
    curve = cost.CostCurve((1, row.k + 1), (v_1, v_k))
    draft_s = median(r.draft_s / r.draft_passes for r in full if r.draft_passes)
    overhead_s, plain_overhead_s = (median(r.overhead_s for r in rounds) for rounds in (full, plain))
    return cost.forecast(row.agreement, row.k, curve, draft_s, overhead_s, plain_overhead_s)


def _style(i: int) -> dict[str, Any]:
    colour = _COLOURS[i % len(_COLOURS)]
    return {
        "mode": "lines+markers",
        "marker": {"symbol": _MARKS[i % 7], "size": 9, "color": colour},
        "line_color": colour,
    }


def _figure(title: str, x: str, y: str) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        title=title,
        template="plotly_white",
        height=380,
        margin={"l": 60, "r": 20, "t": 50, "b": 50},
        legend={"orientation": "h", "y": -0.22},
        font={"family": "system-ui, sans-serif", "size": 13},
    )
    figure.update_xaxes(title_text=x)
    figure.update_yaxes(title_text=y)
    return figure
