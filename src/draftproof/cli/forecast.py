"""`draftproof forecast`: will it pay, before anything is run with it?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from draftproof.cli import shell
from draftproof.cli.batch import read_sizes
from draftproof.cli.bench import KS, read_ks, read_prompts
from draftproof.cli.options import read_options, with_options, with_settings
from draftproof.errors import ConfigError, ResultError
from draftproof.reading import STANDARD, read_text
from draftproof.settings import WITHOUT_MODEL

if TYPE_CHECKING:
    from rich.console import Console

    from draftproof.engines.local import Speculator
    from draftproof.forecast.trace import Trace
    from draftproof.models.load import Loaded
    from draftproof.results import ForecastResult, PreconditionResult, Workload

DOES_NOT_PAY = 3
"""Exit code where no draft pays."""


@with_options(max_new_tokens=64, seed=0)
@with_settings("weights", "draft_weights", "adapter", "compile", "numerics")
def forecast(
    *,
    target: Annotated[str | None, typer.Option(help="Hub name, folder or .gguf file of the model to speed up.")] = None,
    draft: Annotated[list[str] | None, typer.Option(help="A draft; give the option several times.")] = None,
    ks: Annotated[list[str] | None, typer.Option("--k", help=f"Numbers of guesses to price: {KS}.")] = None,
    workload: Annotated[Path | None, typer.Option(help="Your own prompts: a file of JSON lines.")] = None,
    only: Annotated[str | None, typer.Option(help="Names of the workloads to take, with commas; default all.")] = None,
    limit: Annotated[int | None, typer.Option(help="Prompts of each workload at most.")] = None,
    probes: Annotated[int, typer.Option(help="Prompts of each workload whose rounds are timed.")] = 2,
    trace: Annotated[Path | None, typer.Option(help="File to keep the trace in, to be priced again.")] = None,
    from_file: Annotated[Path | None, typer.Option("--from", help="Price a trace that is there; no models.")] = None,
    responses: Annotated[
        Path | None, typer.Option(help="Prompts with responses from a model that ran anywhere, as JSON lines.")
    ] = None,
    cost: Annotated[Path | None, typer.Option(help="Result of precondition on the machine that it is for.")] = None,
    batch: Annotated[
        str | None, typer.Option(help="Also price so many texts at once, with commas: 1,2,4,8; does not run them.")
    ] = None,
    overlap: Annotated[
        bool, typer.Option("--overlap", help="Also price drafting while the target verifies, on two devices.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Run the loop too, and set it beside the forecast.")] = False,
    repeats: Annotated[int, typer.Option(help="Times every prompt is written by every arm of the check.")] = 3,
    json_file: Annotated[Path | None, typer.Option("--json", help=shell.JSON_HELP)] = None,
    settings: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Forecast the speedup of every draft and k on your texts: each draft reads the target's texts once.

    Exit code 0 where some draft pays for some workload, 3 where none does.
    """
    with shell.errors_in_one_line() as progress:
        wanted = read_options(options)
        shell.check_counts(repeats=repeats, probes=probes)
        sweep = read_ks(",".join(ks or [KS]))
        sizes = [] if batch is None else read_sizes(batch)
        for path in (json_file, trace):
            shell.check_json(path)
        from draftproof.bench.forecast import check as run_check
        from draftproof.bench.forecast import forecast_all
        from draftproof.bench.wide import widened
        from draftproof.control import controller_of
        from draftproof.forecast.elsewhere import priced_there
        from draftproof.forecast.trace import read_trace, write_trace

        costs = None if cost is None else read_costs(cost)
        if costs and check:
            raise ConfigError("--check runs here, and --cost is of another machine; give one of them.")
        if workload is not None and responses is not None:
            raise ConfigError("--workload and --responses exclude each other; give one.")

        def price(trace: Trace) -> ForecastResult:
            found = trace if costs is None else priced_there(trace, costs)
            return forecast_all(found, sweep, sizes=sizes, overlap=overlap)

        if from_file is not None:
            if target or draft or check:
                raise ConfigError("--from prices a trace without models; leave out --target, --draft and --check.")
            _conclude(price(read_trace(from_file)), json_file)
            return
        if not target or not draft:
            raise ConfigError("there is nothing to forecast; give --target and --draft, or --from with a trace.")
        if len(set(draft)) < len(draft):
            raise ConfigError("a draft is named twice; name each once.")
        for one in draft:
            shell.check_models(target, one, **settings)
        workloads = read_prompts(responses or workload, only, limit, responses=responses is not None)
        depth = max(controller_of(k).most for k in sweep)
        bits = settings["draft_weights"] or settings["weights"]
        pairs = open_pairs(progress, target, {name: (name, bits) for name in draft}, settings, depth)
        recorded = _record(progress, pairs, workloads, wanted, depth, probes, trace)
        if sizes:
            with progress.status("timing passes over many tokens"):
                recorded = widened(recorded, pairs, max(sizes), depth)
            if trace is not None:
                write_trace(recorded, trace)
        result = made = price(recorded)
        if check:
            steps = repeats * sum(len(one.prompts) for one in workloads)
            with shell.interruptible(lambda: None), shell.bar(progress, "checking", steps) as advance:
                for checked in run_check(made, pairs, workloads, repeats=repeats, on_repeat=advance):
                    result = checked
                    shell.write_json(result, None if json_file == STANDARD else json_file)
        _conclude(result, json_file)


def read_costs(path: Path) -> PreconditionResult:
    """Return what `draftproof precondition` measured on the machine that a forecast is for. Raises `ResultError`."""
    from draftproof.results import PreconditionResult, from_json

    found = from_json(read_text(path, "--cost", ResultError))
    if not isinstance(found, PreconditionResult):
        raise ResultError(f"{str(path)!r} holds a {found.kind} result; --cost takes one of draftproof precondition.")
    return found


def open_pairs(
    progress: Console, target: str, drafts: dict[str, tuple[str, str | None]], settings: dict[str, Any], k: int
) -> dict[str, Speculator]:
    """Load the target once, and every draft with its weights, and return the pairs by the drafts' names."""
    how = {name: settings[name] for name in ("device", "dtype", "compile", "trust_remote_code")}
    loaded = shell.load_model(progress, target, weights=settings["weights"], adapter=settings["adapter"], **how)
    from draftproof.engines.local import Speculator

    def guesser(name: str, weights: str | None) -> str | Loaded:
        if name in WITHOUT_MODEL:
            return name
        return shell.load_model(progress, name, weights=weights, **how)

    return {name: Speculator(loaded, guesser(*one), k, numerics=settings["numerics"]) for name, one in drafts.items()}


def _record(
    progress: Console,
    pairs: dict[str, Speculator],
    workloads: tuple[Workload, ...],
    options: Any,
    depth: int,
    probes: int,
    file: Path | None,
) -> Trace:
    from draftproof.bench.record import record
    from draftproof.forecast.trace import write_trace

    found: Trace | None = None
    with (
        shell.interruptible(lambda: None),
        shell.bar(progress, "writing and reading texts", sum(len(one.prompts) for one in workloads)) as advance,
    ):
        for found in record(pairs, workloads, options, depth=depth, probes=probes, on_text=advance):
            if file is not None:
                write_trace(found, file)
    if found is None:
        raise KeyboardInterrupt
    return found


def _conclude(result: ForecastResult, json_file: Path | None) -> None:
    from draftproof.report import forecast as report
    from draftproof.report.grid import draw

    shell.write_json(result, json_file)
    out = shell.results_console(json_file)
    out.print(draw(report.forecast_table(result), out.width))
    if any(cell.measured for cell in result.cells):
        out.print(draw(report.check_table(result), out.width))
    for table in report.priced_tables(result):
        out.print(draw(table, out.width))
    for sentence in report.verdicts(result):
        out.print(sentence, style="bold", markup=False)
    shell.tell_placements(out, result)
    if said := result.options.describe():
        shell.tell(out, "note", said)
    for warning in result.notes:
        shell.tell(out, "warning", warning)
    if not any(report.pays(cell) for cell in result.cells):
        raise typer.Exit(DOES_NOT_PAY)
