"""`draftproof bench`: the k sweep and the workload sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from draftproof.cli import shell
from draftproof.cli.batch import KS as BATCH_KS
from draftproof.cli.batch import bench_batches, read_sizes
from draftproof.cli.options import RecipeFile, read_options, with_options, with_settings
from draftproof.errors import ConfigError, ResultError
from draftproof.reading import STANDARD, read_text
from draftproof.settings import POLICIES, check_k

if TYPE_CHECKING:
    from rich.console import Console

    from draftproof.bench.plan import Plan
    from draftproof.results import BenchResult, Workload

KS = "1,2,3,4,5,6,8,12,16,auto"


@with_options(max_new_tokens=64, seed=0)
@with_settings("weights", "draft_weights", "adapter", "draft_adapter", "compile", "numerics")
def bench(
    *,
    target: Annotated[str, typer.Option(help="Hub name, folder or .gguf file of the model whose text is wanted.")],
    recipe_file: RecipeFile = None,
    draft: Annotated[str, typer.Option(help="The same for the small model that guesses.")],
    ks: Annotated[list[str] | None, typer.Option("--k", help=f"k sweep on the first workload: {KS}.")] = None,
    at: Annotated[str, typer.Option(metavar="K", help="The one k for the other workloads, or auto.")] = "auto",
    workload: Annotated[Path | None, typer.Option(help="Your own prompts: a file of JSON lines.")] = None,
    only: Annotated[str | None, typer.Option(help="Names of the workloads to run, with commas; default all.")] = None,
    limit: Annotated[int | None, typer.Option(help="Prompts of each workload at most.")] = None,
    repeats: Annotated[int, typer.Option(help="Times every prompt is written by every arm.")] = 3,
    batch: Annotated[
        str | None, typer.Option(help=f"Measure so many texts at once instead, with commas; --k is then {BATCH_KS}.")
    ] = None,
    engine: Annotated[str, typer.Option(help="hf-assisted runs transformers' own beside ours.")] = "draftproof",
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json", help="File for everything measured (- is standard output); an unfinished one is resumed."
        ),
    ] = None,
    settings: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Measure speculation at several k and on several kinds of text, against plain decoding, interleaved."""
    with shell.errors_in_one_line() as progress:
        wanted = read_options(options)
        shell.check_counts(repeats=repeats)
        sweep = read_ks(",".join(ks or [KS]))
        (one_k,) = read_ks(at, "--at")[:1]
        how = {"k": one_k, **settings}
        shell.check_models(target, draft, **how)
        shell.check_json(json_file)
        if batch is not None:
            sizes, sweep = read_sizes(batch), read_ks(",".join(ks or [BATCH_KS]))
            texts = read_prompts(workload, only, limit)
            compiled = "wait" if settings["compile"] == "auto" else settings["compile"]
            most = max((k for k in sweep if isinstance(k, int)), default=8)
            pair = shell.load(progress, target, draft, **{**how, "k": max(most, 8), "compile": compiled})
            bench_batches(progress, pair, (target, draft), texts, wanted, sizes, sweep, repeats, json_file)
            return
        from draftproof.bench.engines import ALONE
        from draftproof.bench.plan import Plan

        plan = Plan(
            target=target,
            draft=draft,
            workloads=read_prompts(workload, only, limit),
            ks=sweep,
            k=one_k,
            options=wanted,
            repeats=repeats,
            engine=engine,
            numerics=settings["numerics"],
        )
        where = "the result" if json_file is None else repr(str(json_file))
        old = _unfinished(json_file, plan, where)
        compiled = "wait" if settings["compile"] == "auto" else settings["compile"]
        keep = engine != ALONE  # other engines run the models through transformers
        speculator = shell.load(progress, target, draft, **{**how, "compile": compiled}, keep_weights=keep)
        from draftproof.bench.sweep import run

        result = None
        with shell.interruptible(lambda: None) as interrupted, shell.steps(progress, "writing") as (start, advance):
            for result in run(plan, speculator, old, where=where, on_start=start, on_repeat=advance):
                if json_file != STANDARD:
                    shell.write_json(result, json_file)
        if result is None:
            raise KeyboardInterrupt
        if json_file == STANDARD:
            shell.write_json(result, json_file)
        _print(result, shell.results_console(json_file))
        if interrupted:
            again = json_file not in (None, STANDARD)
            hint = f"; run the same command to go on from {where}" if again else ""
            progress.print(f"interrupted: the figures above are of what was finished{hint}", markup=False)
            raise typer.Exit(shell.INTERRUPTED)
        if any(c.identical is False for c in result.cells if c.arm.ours) or not any(c.answers for c in result.cells):
            raise typer.Exit(1)


def _print(result: BenchResult, out: Console) -> None:
    from draftproof.report import bench_summary, tables
    from draftproof.report.grid import draw
    from draftproof.stats.rows import bench_rows

    rows = bench_rows(result.cells)
    if not rows:
        out.print("nothing was measured", style="bold")
        for warning in (*result.notes, *bench_summary.doubts(result, rows)):
            shell.tell(out, "warning", warning)
        return
    first = result.workloads[0].name
    sweep = [r for r in rows if r.workload == first and r.arm.ours and r.arm.asks in (0, *result.ks)]
    out.print(draw(tables.bench_table(f"k sweep on {first!r}", sweep, by="k"), out.width))
    out.print(bench_summary.recommend(sweep), style="bold", markup=False)
    others = [r for r in rows if r not in sweep or r.arm.asks in (0, result.k)]
    if len(others) > 2:
        out.print(draw(tables.bench_table(f"workloads at k = {result.k}", others, by="workload"), out.width))
    for sentence in bench_summary.workloads_verdict(result.k, rows):
        out.print(sentence, style="bold", markup=False)
    if said := bench_summary.identity(result):
        out.print(said, markup=False)
    shell.tell_placements(out, result)
    if said := result.options.describe():
        shell.tell(out, "note", said)
    for warning in (*result.notes, *bench_summary.doubts(result, rows)):
        shell.tell(out, "warning", warning)


def _unfinished(json_file: Path | None, plan: Plan, where: str) -> BenchResult | None:
    """Return what a file holds that is there already. Raises `ResultError` unless it is what is asked for now."""
    from draftproof.results import from_json

    if json_file is None or json_file == STANDARD or not json_file.exists():
        return None
    return plan.continues(from_json(read_text(json_file, "--json", ResultError)), where)


def read_prompts(
    path: Path | None, only: str | None, limit: int | None, *, responses: bool = False
) -> tuple[Workload, ...]:
    """Return the workloads of a file, with their responses if asked for, or those built in. Raises `ConfigError`."""
    from draftproof.bench.workloads import BUILT_IN, read_workloads

    found = read_workloads(path or BUILT_IN, limit, responses=responses)
    if only is None:
        return found
    names = list(dict.fromkeys(name.strip() for name in only.split(",")))
    known = {w.name: w for w in found}
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(f"unknown workload {unknown[0]!r}; known: {', '.join(known)}.")
    return tuple(known[name] for name in names)


def read_ks(text: str, name: str = "--k") -> tuple[int | str, ...]:
    """Return numbers of guesses, and names of policies, from a switch. Raises `ConfigError`."""
    ks: list[int | str] = []
    for one in map(str.strip, text.split(",")):
        if one in POLICIES:
            ks.append(one)
            continue
        try:
            k = int(one)
        except ValueError:
            many = f"{', '.join(POLICIES)}, or whole numbers, with commas, such as {KS}"
            raise ConfigError(f"{name} is {text!r}; give {many}.") from None
        ks.append(check_k(k, name.removeprefix("--"), least=1))
    return tuple(dict.fromkeys(ks))
