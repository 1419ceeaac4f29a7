"""One self-contained page from result files: charts, tables, the text with every token's fate, the raw numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
from plotly.graph_objects import Figure
from plotly.offline import get_plotlyjs

from draftproof.records import Generation, Machine
from draftproof.report import batch, bench_summary, certificate, charts, forecast, forecast_charts, summary, tables
from draftproof.report.grid import Grid
from draftproof.report.names import drafts_of, short
from draftproof.report.terminal import endings, ledger, verdict
from draftproof.results import (
    AnyResult,
    BatchResult,
    BenchResult,
    CertifyResult,
    DraftsResult,
    ForecastResult,
    OnePassResult,
    PreconditionResult,
    RunResult,
    to_json,
)
from draftproof.stats.rows import bench_rows

_PLOT = {"displayModeBar": False, "responsive": True}


@dataclass(slots=True)
class Piece:
    """A token as it is shown: its text, its fate, and the round it came from."""

    text: str
    fate: str
    hint: str


@dataclass(slots=True)
class Section:
    """What one result says."""

    title: str
    facts: list[str] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    tables: list[Grid] = field(default_factory=list)
    charts: list[str] = field(default_factory=list)
    texts: list[dict[str, object]] = field(default_factory=list)


def page(results: Sequence[tuple[str, AnyResult]]) -> str:
    """Return the page for named results, in their order."""
    machines = list(dict.fromkeys(_machine(r.machine) for _, r in results))
    warnings = []
    if len(machines) > 1:
        warnings.append("These results come from different machines; their seconds cannot be compared.")
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(
        Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    )
    return template.render(
        title="draftproof report",
        facts=machines,
        warnings=warnings,
        sections=[_section(name, result) for name, result in results],
        raws=[{"name": name, "json": to_json(result)} for name, result in results],
        plotly=get_plotlyjs(),
    )


def _section(name: str, result: AnyResult) -> Section:
    if isinstance(result, RunResult):
        section = _run(result)
    elif isinstance(result, OnePassResult):
        section = _one_pass(result)
    elif isinstance(result, PreconditionResult):
        section = _precondition(result)
    elif isinstance(result, BenchResult):
        section = _bench(result)
    elif isinstance(result, CertifyResult):
        section = _certify(result)
    elif isinstance(result, BatchResult):
        section = _batch(result)
    elif isinstance(result, ForecastResult):
        section = _forecast(result)
    else:
        section = _drafts(result)
    section.facts.append(f"{name}, {result.created}, draftproof {result.draftproof}")
    return section


def _run(result: RunResult) -> Section:
    recipe, generation = result.recipe, result.generation
    section = Section(f"One text: {short(recipe.target)} with {short(recipe.draft or 'no draft')}, k = {generation.k}")
    if result.plain is not None:
        section.verdicts.append(verdict(result.speedup, identical=generation.identical is not False).plain)
    if generation.identical is not None:
        section.verdicts.append(f"identical to plain decoding: {'yes' if generation.identical else 'NO'}")
    section.facts += list(result.notes)
    section.warnings += list(generation.warnings)
    section.tables.append(ledger(generation, result.plain))
    if generation.counts.proposed:
        section.charts.append(_html(charts.round_by_round(generation)))
    if result.samples:
        section.facts.append(f"the table is of text 1 of {1 + len(result.samples)}")
    section.facts += endings(generation)
    if result.pieces:
        section.texts.append({"prompt": recipe.prompt, "pieces": _pieces(generation, result.pieces, result.guesses)})
    for made in result.samples:
        about = f"sample {made.sample}, {made.counts.acceptance_rate or 0:.0%} of guesses accepted"
        section.texts.append({"prompt": recipe.prompt, "pieces": [Piece(made.text, "plain", about)]})
    return section


def _pieces(generation: Generation, texts: Sequence[str], guesses: dict[int, str]) -> list[Piece]:
    pieces, at = [], 0
    for number, done in enumerate(generation.rounds, 1):
        hint = f"round {number}: {done.accepted} of {len(done.proposed)} guesses accepted"
        for i in range(len(done.tokens)):
            if i == done.drafted:
                pieces += _rejected(done.proposed[done.accepted :], guesses, hint)
            pieces.append(Piece(texts[at], "accepted" if i < done.drafted else "own", hint))
            at += 1
    return pieces


def _rejected(tokens: Sequence[int], guesses: dict[int, str], hint: str) -> list[Piece]:
    return [Piece(guesses.get(token, "?"), "rejected", f"{hint}; this guess was rejected") for token in tokens]


def _one_pass(result: OnePassResult) -> Section:
    section = Section(f"One pass answers every prefix: {short(result.model)}")
    for found in result.passes:
        same = "every prediction is the same" if found.same_tokens else "some predictions differ"
        section.verdicts.append(f"{found.dtype}: {same}; largest difference of a logit {found.largest_difference:.2g}")
    section.tables.append(tables.one_pass_table(result.passes[0]))
    return section


def _precondition(result: PreconditionResult) -> Section:
    section = Section(f"The precondition: what a pass costs, behind {result.context} tokens")
    section.warnings += list(result.notes)
    for times in result.passes:
        if times.role == "target":
            section.verdicts.append(f"{short(times.model)}: {summary.precondition_verdict(times)}")
        section.tables.append(tables.pass_table(times))
    section.charts.append(_html(charts.cost_curves(result.passes)))
    return section


def _bench(result: BenchResult) -> Section:
    section = Section(f"Bench: {short(result.target)} with {short(result.draft)}")
    placed = [("target", result.target_placement), ("draft", result.draft_placement)]
    section.facts += [
        "; ".join(f"{role} on {one.reason}" for role, one in placed if one is not None),
        f"{result.options.max_new_tokens} tokens, {result.repeats} interleaved repeats",
        *([said] if (said := result.options.describe()) else []),
    ]
    rows = bench_rows(result.cells)
    if not rows:
        section.verdicts.append("nothing was measured")
        section.warnings += [*result.notes, *bench_summary.doubts(result, rows)]
        return section
    first = result.workloads[0].name
    sweep = [r for r in rows if r.workload == first and r.arm.ours and r.arm.asks in (0, *result.ks)]
    cells = [c for c in result.cells if c.workload == first and c.arm.ours and c.arm.asks in (0, *result.ks)]
    section.verdicts.append(f"{first}: {bench_summary.recommend(sweep)}")
    section.verdicts += bench_summary.workloads_verdict(result.k, rows)
    section.facts += [same] if (same := bench_summary.identity(result)) else []
    section.warnings += [*result.notes, *bench_summary.doubts(result, rows)]
    section.tables.append(tables.bench_table("", rows, "workload"))
    figures = [
        charts.speedup_by_k(sweep, cells),
        charts.tokens_by_k(sweep),
        charts.passes_by_k(sweep),
        charts.round_time(cells),
        charts.acceptance_by_position(cells),
        charts.workloads(result.k, rows),
    ]
    section.charts += [_html(figure) for figure in figures]
    return section


def _drafts(result: DraftsResult) -> Section:
    section = Section(f"Drafts for {short(result.target)} on {result.workload.name}")
    names = drafts_of(result)
    rows, best = bench_rows(result.cells), bench_rows(result.best_cells)
    section.verdicts.append(bench_summary.drafts_verdict(names, [*rows, *best]))
    section.warnings += [*bench_summary.unusable(result), *result.notes]
    section.warnings += bench_summary.doubt_cells((*result.cells, *result.best_cells), result.options.max_new_tokens)
    section.tables.append(tables.facts_table(result.facts))
    for title, some in ((f"all at k = {result.k}", rows), ("each at its best k", best)):
        section.tables += [tables.bench_table(title, some, "draft", names)] if some else []
    section.charts.append(_html(charts.drafts(result, rows, best)))
    return section


def _forecast(result: ForecastResult) -> Section:
    names = ", ".join(map(short, result.drafts))
    section = Section(f"Forecast: {short(result.target)} with {names}")
    section.verdicts += forecast.verdicts(result)
    section.facts.append(f"target on {result.target_placement.reason}")
    section.facts += [said] if (said := result.options.describe()) else []
    section.warnings += list(result.notes)
    section.tables.append(forecast.forecast_table(result))
    section.charts.append(_html(forecast_charts.by_k(result)))
    if result.priced:
        section.charts.append(_html(forecast_charts.standing(result)))
        section.tables += forecast.priced_tables(result)
    if any(one.what == "batch" for one in result.priced):
        section.charts.append(_html(forecast_charts.by_batch(result)))
    if any(cell.measured for cell in result.cells):
        section.tables.append(forecast.check_table(result))
        section.charts.append(_html(forecast_charts.against_measured(result)))
    return section


def _batch(result: BatchResult) -> Section:
    section = Section(f"Texts at once: {short(result.target)} with {short(result.draft)}")
    section.verdicts += batch.verdicts(result)
    section.facts.append(f"{result.options.max_new_tokens} tokens each, {result.repeats} interleaved repeats")
    section.facts += [said] if (said := result.options.describe()) else []
    section.warnings += list(result.notes)
    section.tables.append(batch.batch_table(result))
    section.charts += [_html(figure) for figure in (batch.pays(result), batch.by_size(result))]
    return section


def _certify(result: CertifyResult) -> Section:
    section = Section("The law of sampled text")
    if result.target is not None:
        section.title += f": {short(result.target)} with {short(result.draft or '')}, k = {result.k}"
    if result.options is not None:
        options = result.options
        section.facts.append(f"temperature {options.temperature:g}, seed {options.seed}, after {result.prompt!r}")
    section.verdicts += certificate.certificate(result)
    section.tables.append(certificate.law_table(result.rows))
    section.tables += [certificate.samples_table(result.tests)] if result.tests else []
    section.facts += list(result.notes)
    return section


def _machine(machine: Machine) -> str:
    gpu = f", {machine.gpu}" if machine.gpu else ""
    return (
        f"{machine.cpu}, {machine.cores} cores, {machine.threads} threads, "
        f"{machine.memory_bytes / 2**30:.0f} GiB{gpu}; "
        f"{machine.system}; Python {machine.python}, torch {machine.torch}, transformers {machine.transformers}"
    )


def _html(figure: Figure) -> str:
    return str(figure.to_html(full_html=False, include_plotlyjs=False, config=_PLOT))
