"""`draftproof tune`: one command, one answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from draftproof.cli import shell
from draftproof.cli.bench import read_prompts
from draftproof.cli.forecast import DOES_NOT_PAY, read_costs
from draftproof.cli.options import read_options, with_options, with_settings
from draftproof.errors import ConfigError
from draftproof.settings import WITHOUT_MODEL

if TYPE_CHECKING:
    from rich.console import Console

    from draftproof.engines.local import Speculator
    from draftproof.forecast.choice import Candidate, Choice
    from draftproof.forecast.trace import Trace
    from draftproof.options import Options
    from draftproof.results import ForecastResult, Workload

CONFIRMING = 0.35
"""The share of the minutes that is kept for running the choice itself."""
DEPTH = 12


@with_options(max_new_tokens=64, seed=0)
@with_settings("weights", "adapter", "compile", "numerics")
def tune(
    *,
    target: Annotated[str, typer.Option(help="Hub name, folder or .gguf file of the model to speed up.")],
    draft: Annotated[list[str] | None, typer.Option(help="A draft; may be given again. ngram is tried anyway.")] = None,
    draft_weights: Annotated[
        list[str] | None, typer.Option(help="Weights to try drafts with, as --weights; may be given again.")
    ] = None,
    workload: Annotated[Path | None, typer.Option(help="Your prompts: a line each (.txt), or JSON lines.")] = None,
    responses: Annotated[
        Path | None, typer.Option(help="Prompts with responses from a model that ran anywhere, as JSON lines.")
    ] = None,
    only: Annotated[str | None, typer.Option(help="Names of the workloads to take, with commas; default all.")] = None,
    limit: Annotated[int | None, typer.Option(help="Prompts of each workload at most.")] = None,
    minutes: Annotated[float, typer.Option(help="Time that it may take; what was measured by then decides.")] = 10.0,
    cost: Annotated[Path | None, typer.Option(help="Result of precondition on the machine that it is for.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for recipe, page and trace; run again, it goes on.")] = Path(
        "draftproof-tune"
    ),
    settings: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Find the draft and the k that write your texts fastest, or that none does; and leave a recipe for it.

    Exit code 0 where speculation pays, 3 where it does not.
    """
    with shell.errors_in_one_line() as progress:
        started = time.monotonic()
        if not minutes > 0:
            raise ConfigError(f"--minutes is {minutes:g}; it must be above 0.")
        if workload is not None and responses is not None:
            raise ConfigError("--workload and --responses exclude each other; give one.")
        wanted = read_options(options)
        costs = None if cost is None else read_costs(cost)
        candidates = _candidates(draft or [], draft_weights or [])
        for one in candidates:
            shell.check_models(target, one.draft, **settings, draft_weights=one.weights)
        workloads = read_prompts(responses or workload, only, limit, responses=responses is not None)
        old = _resumed(out, target, candidates, wanted)
        pairs = _open(progress, target, candidates, settings)
        left = minutes * 60 * (1.0 if costs else 1 - CONFIRMING)
        trace = _record(progress, pairs, workloads, wanted, out, old, lambda: time.monotonic() - started > left)
        result, choice = _decide(trace, candidates, costs)
        if choice.candidate is not None and costs is None:
            pair = pairs[choice.candidate.name].at(choice.k)
            seen = _seen(trace, workloads)
            enough = lambda: time.monotonic() - started > minutes * 60  # noqa: E731
            result, choice = _confirm(progress, result, choice, pair, seen, enough)
        _conclude(out, result, choice, trace, target, settings, wanted)


def _candidates(drafts: Sequence[str], weights: Sequence[str]) -> list[Candidate]:
    from draftproof.forecast.choice import Candidate

    found = [Candidate(name, bits) for name in drafts if name not in WITHOUT_MODEL for bits in (weights or (None,))]
    return list(dict.fromkeys([*found, *map(Candidate, WITHOUT_MODEL)]))


def _resumed(out: Path, target: str, candidates: Sequence[Candidate], options: Options) -> Trace | None:
    """Return the trace that lies in the folder, to go on with. Raises `ConfigError` if it is of something else."""
    from draftproof.forecast.trace import read_trace

    file = out / "trace.jsonl.gz"
    if not file.exists():
        if out.is_dir():
            shell.check_json(file)
        return None
    old = read_trace(file)
    same = (old.target, set(old.rounds), old.options) == (target, {c.name for c in candidates}, options.seeded())
    if not same:
        raise ConfigError(f"{str(out)!r} holds a tune of other models or options; name another folder with --out.")
    return old


def _open(
    progress: Console, target: str, candidates: Sequence[Candidate], settings: dict[str, Any]
) -> dict[str, Speculator]:
    from draftproof.cli.forecast import open_pairs

    given = {one.name: (one.draft, one.weights or settings["weights"]) for one in candidates}
    return open_pairs(progress, target, given, settings, DEPTH)


def _record(
    progress: Console,
    pairs: dict[str, Speculator],
    workloads: Sequence[Workload],
    options: Options,
    out: Path,
    old: Trace | None,
    over: Callable[[], bool],
) -> Trace:
    from draftproof.bench.record import record
    from draftproof.forecast.trace import write_trace

    found = old
    out.mkdir(parents=True, exist_ok=True)
    steps = sum(len(one.prompts) for one in workloads)
    with (
        shell.interruptible(lambda: None) as interrupted,
        shell.bar(progress, "writing and reading your texts", steps) as advance,
    ):
        for found in record(pairs, workloads, options, depth=DEPTH, on_text=advance, old=old):
            write_trace(found, out / "trace.jsonl.gz")
            if over():
                break
    if interrupted or found is None:
        progress.print(f"interrupted: run the same command to go on from {str(out)!r}", markup=False)
        raise typer.Exit(shell.INTERRUPTED)
    return found


def _decide(trace: Trace, candidates: Sequence[Candidate], costs: Any) -> tuple[ForecastResult, Choice]:
    from draftproof.bench.forecast import forecast_all
    from draftproof.forecast.choice import KS, choose
    from draftproof.forecast.elsewhere import priced_there

    priced = trace if costs is None else priced_there(trace, costs)
    return forecast_all(priced, KS), choose(priced, candidates)


def _seen(trace: Trace, workloads: Sequence[Workload]) -> tuple[Workload, ...]:
    """Return the workloads with those prompts alone that were recorded."""
    from dataclasses import replace

    counts = {one.name: sum(text.workload == one.name for text in trace.texts) for one in workloads}
    return tuple(replace(one, prompts=one.prompts[: counts[one.name]]) for one in workloads if counts[one.name])


def _confirm(
    progress: Console,
    result: ForecastResult,
    choice: Choice,
    pair: Speculator,
    workloads: Sequence[Workload],
    over: Callable[[], bool],
) -> tuple[ForecastResult, Choice]:
    from draftproof.bench.tune import confirm

    found = result, choice
    steps = 2 * sum(len(one.prompts) for one in workloads)
    with (
        shell.interruptible(lambda: None),
        shell.bar(progress, "running the choice beside plain decoding", steps) as advance,
    ):
        for known in confirm(result, choice, pair, workloads, on_repeat=advance):
            found = known
            if over():
                break
    return found


def _conclude(
    out: Path,
    result: ForecastResult,
    choice: Choice,
    trace: Trace,
    target: str,
    settings: dict[str, Any],
    options: Options,
) -> None:
    from draftproof import results
    from draftproof.forecast.choice import evidence_of, settings_of
    from draftproof.recipe import to_toml
    from draftproof.report import forecast as report
    from draftproof.report import tune as words
    from draftproof.report.elsewhere import CARRIES, elsewhere
    from draftproof.report.grid import draw
    from draftproof.report.html import page

    chosen = settings_of(choice, target, settings)
    k = choice.fixed.k if isinstance(choice.fixed.k, int) and choice.candidate else 0
    others = elsewhere(target, chosen.get("draft"), k)
    verdicts = words.verdicts(choice, result)
    reasons = [f"draftproof tune, {trace.created}", *verdicts]
    results.write(result, out / "forecast.json")
    results.write_text(page([("forecast.json", result)]), out / "report.html")
    results.write_text(to_toml(chosen, reasons, evidence_of(choice, trace, options), others), out / "recipe.toml")
    console = shell.results_console()
    console.print(draw(words.candidates_table(choice), console.width))
    console.print(draw(report.forecast_table(result), console.width))
    for sentence in verdicts:
        console.print(sentence, style="bold", markup=False)
    for name, one in others.items():
        console.print(f"{name}: {one['settings']}", markup=False, highlight=False)
    shell.tell(console, "note", f"for those engines: {CARRIES}")
    shell.tell_placements(console, result)
    for warning in (*words.doubts(trace), *result.notes):
        shell.tell(console, "warning", warning)
    console.print(f"written: {out / 'recipe.toml'} (take it with --recipe), report.html, forecast.json", markup=False)
    if choice.candidate is None:
        raise typer.Exit(DOES_NOT_PAY)
