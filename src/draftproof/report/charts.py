"""The report's charts of texts and benches, one question each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import plotly.graph_objects as go

from draftproof import cost
from draftproof.records import Generation
from draftproof.report.figure import BLACK, BLUE, COLOURS, GREEN, ORANGE, PURPLE, VERMILION, empty, style
from draftproof.report.names import drafts_of, short
from draftproof.report.summary import pass_rows
from draftproof.results import Arm, Cell, DraftsResult, PassTimes
from draftproof.stats.rows import BenchRow


def cost_curves(passes: Sequence[PassTimes]) -> go.Figure:
    """What a pass costs against the tokens it covers, with the middle half of the measured values."""
    figure = empty("Cost of one pass", "new tokens in the pass", "times a pass over one token")
    for i, times in enumerate(passes):
        rows = pass_rows(times)
        figure.add_scatter(
            x=[r.tokens for r in rows],
            y=[r.ratio for r in rows],
            error_y={"array": [r.ratio * r.spread / 2 for r in rows], "thickness": 1},
            name=f"{short(times.model)}, {times.placement.dtype}",
            **style(i),
        )
    figure.add_hline(y=1, line_dash="dot", line_color=BLACK)
    figure.update_yaxes(rangemode="tozero")
    return figure


def speedup_by_k(rows: Sequence[BenchRow], cells: Sequence[Cell]) -> go.Figure:
    """Measured speedup with intervals, and what the formula expects from one alpha and the measured pass times."""
    figure = empty("Speedup against k", "k, guesses a round", "times plain decoding")
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
        **style(0),
    )
    expected = [_expected(cells, r) for r in sweep]
    if any(expected):
        figure.add_scatter(
            x=[r.k for r in sweep], y=expected, name="expected from alpha and pass times", line_dash="dash", **style(1)
        )
    for r in rows:
        if r.arm.ours and r.arm.way and r.speedup is not None:
            figure.add_hline(y=r.speedup.value, line_dash="dash", line_color=GREEN, annotation_text=f"k = {r.arm.way}")
    figure.add_hline(y=1, line_dash="dot", line_color=BLACK)
    figure.update_yaxes(rangemode="tozero")
    return figure


def tokens_by_k(rows: Sequence[BenchRow]) -> go.Figure:
    """Tokens per round, beside (1 - alpha^(k+1)) / (1 - alpha) with its ceiling 1 / (1 - alpha)."""
    figure = empty("Tokens per round against k", "k, guesses a round", "tokens per round")
    sweep = [r for r in rows if r.guesses and not r.arm.way]
    figure.add_scatter(x=[r.k for r in sweep], y=[r.tokens_per_round for r in sweep], name="measured", **style(0))
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
    figure = empty("Passes and discarded guesses against k", "k, guesses a round", "count")
    rows = [r for r in rows if not r.arm.way]
    for i, (name, value) in enumerate((
        ("target passes", [r.target_passes for r in rows]),
        ("draft passes", [r.draft_passes for r in rows]),
        ("discarded guesses", [r.discarded for r in rows]),
    )):
        figure.add_scatter(x=[r.k for r in rows], y=value, name=name, **style(i))
    return figure


def round_time(cells: Sequence[Cell]) -> go.Figure:
    """Where the time of a round goes, by k."""
    figure = empty("Where the time of a round goes", "k, guesses a round", "milliseconds a round")
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
    figure = empty("Agreement by position in the block", "position of the guess", "right, of those tested")
    shown = [(arm.name, made) for arm, made in _by_arm(cells, last=True).items() if not arm.plain]
    for i, (name, made) in enumerate(shown):
        tested = cost.agreement_by_position([r for g in made for r in g.rounds])
        points = [(n + 1, right / all_, all_) for n, (all_, right) in enumerate(tested) if all_]
        figure.add_scatter(
            x=[n for n, _, _ in points],
            y=[rate for _, rate, _ in points],
            text=[f"{all_} tested" for _, _, all_ in points],
            name=name,
            **style(i),
        )
    figure.update_yaxes(range=[0, 1.05])
    return figure


def workloads(k: int | str, rows: Sequence[BenchRow]) -> go.Figure:
    """Workloads side by side at one `k`, and other engines where they were run."""
    figure = empty(f"Workloads at k = {k}", "", "times plain decoding")
    known = [(r, r.speedup) for r in rows if r.speedup is not None and (r.arm.asks == k or not r.arm.ours)]
    for i, name in enumerate(dict.fromkeys("draftproof" if r.arm.ours else r.arm.name for r, _ in known)):
        mine = [(r.workload, v) for r, v in known if name == ("draftproof" if r.arm.ours else r.arm.name)]
        figure.add_bar(
            x=[workload for workload, _ in mine],
            y=[v.value for _, v in mine],
            error_y={"array": [v.high - v.value for _, v in mine], "arrayminus": [v.value - v.low for _, v in mine]},
            name=name,
            marker={"color": COLOURS[i % 7], "pattern": {"shape": ("", "/", "x", "-", "|")[i % 5]}},
        )
    figure.add_hline(y=1, line_dash="dot", line_color=BLACK)
    return figure


def drafts(result: DraftsResult, rows: Sequence[BenchRow], best: Sequence[BenchRow]) -> go.Figure:
    """Drafts side by side: what they cost, how often they are right, how fast they make it at one k (`rows`), and
    each at its best.
    """
    figure = empty("Drafts: cost, agreement, speedup", "", "")
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


def round_by_round(generation: Generation) -> go.Figure:
    """What was asked for, kept and thrown away along a text, and how sure the proposer was of its guesses."""
    figure = empty("Rounds along the text", "tokens written before the round", "guesses")
    rounds = generation.rounds
    places = [0]
    for done in rounds[:-1]:
        places.append(places[-1] + len(done.tokens))
    wide = [max(1, len(done.tokens)) * 0.9 for done in rounds]
    kept = [done.accepted for done in rounds]
    lost = [len(done.proposed) - done.accepted for done in rounds]
    where = {"x": places, "width": wide, "offset": 0}
    figure.add_bar(y=kept, name="kept", marker={"color": GREEN}, **where)
    figure.add_bar(y=lost, name="discarded", marker={"color": VERMILION, "pattern": {"shape": "/"}}, **where)
    asked = [done.asked for done in rounds]
    figure.add_scatter(x=places, y=asked, name="asked for", mode="lines", line={"color": BLUE, "shape": "hv"})
    sure = [(place, min(done.confidence)) for place, done in zip(places, rounds, strict=True) if done.confidence]
    if sure:
        figure.add_scatter(
            x=[place for place, _ in sure],
            y=[share for _, share in sure],
            name="least confidence of the round",
            yaxis="y2",
            **{**style(4), "mode": "markers"},
        )
        right = {"overlaying": "y", "side": "right", "range": [0, 1.05], "title": "confidence", "tickmode": "auto"}
        figure.update_layout(yaxis2=right, margin={"r": 70})
    figure.update_layout(barmode="stack")
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
