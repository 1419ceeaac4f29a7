"""`draftproof bench`: the k sweep and the workload sweep."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from draftproof.cli import shell
from draftproof.cli.options import read_options, with_options, with_settings
from draftproof.errors import ConfigError, ResultError
from draftproof.options import Options
from draftproof.reading import STANDARD, read_text
from draftproof.settings import check_k

if TYPE_CHECKING:
    from rich.console import Console

    from draftproof.engines.local import Speculator
    from draftproof.results import BenchResult, Workload

KS = "1,2,3,4,5,6,8,12,16"
ENGINES = ("draftproof", "hf-assisted")


@with_options(max_new_tokens=64, seed=0)
@with_settings("weights", "draft_weights", "adapter", "draft_adapter", "compile", "numerics")
def bench(
    *,
    target: Annotated[str, typer.Option(help="Hub name, folder or .gguf file of the model whose text is wanted.")],
    draft: Annotated[str, typer.Option(help="The same for the small model that guesses.")],
    ks: Annotated[list[str] | None, typer.Option("--k", help=f"k sweep on the first workload: {KS}.")] = None,
    at: Annotated[int, typer.Option(help="The one k for the other workloads.")] = 5,
    workload: Annotated[Path | None, typer.Option(help="Your own prompts: a file of JSON lines.")] = None,
    only: Annotated[str | None, typer.Option(help="Names of the workloads to run, with commas; default all.")] = None,
    limit: Annotated[int | None, typer.Option(help="Prompts of each workload at most.")] = None,
    repeats: Annotated[int, typer.Option(help="Times every prompt is written by every arm.")] = 3,
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
        sweep = _ks(",".join(ks or [KS]))
        check_k(at, "at", least=1)
        if engine not in ENGINES:
            raise ConfigError(f"unknown engine {engine!r}; choose one of {', '.join(ENGINES)}.")
        if engine != "draftproof" and wanted != Options(max_new_tokens=wanted.max_new_tokens, seed=wanted.seed):
            raise ConfigError(f"--engine {engine} is compared greedily, without other options; leave them out.")
        how = {"k": at, **settings}
        shell.check_models(target, draft, **how)
        shell.check_json(json_file)
        workloads = _workloads(workload, only, limit)
        asked: dict[str, Any] = {"target": target, "draft": draft, "ks": sweep, "k": at, "options": wanted}
        asked |= {"repeats": repeats, "workloads": workloads, "engine": engine, "numerics": settings["numerics"]}
        old = _unfinished(json_file, asked)
        speculator = shell.load(
            progress,
            target,
            draft,
            **{**how, "compile": "wait" if settings["compile"] == "auto" else settings["compile"]},
            keep_weights=engine != "draftproof",  # other engines run the models through transformers
        )
        assert speculator.draft is not None
        from draftproof.results import BenchResult, read_machine
        from draftproof.results.trust import doubt_machine

        blank = BenchResult(
            machine=read_machine(),
            target_placement=speculator.target.placement,
            draft_placement=speculator.draft.placement,
            **asked,
            by_rule=speculator.numerics.kind == "fixed",
            cells=(),
            notes=(*doubt_machine(), *_conditions(engine), *speculator.notes),
        )
        result = _resumed(blank, old, json_file)
        with shell.interruptible(lambda: None) as interrupted:
            for measured in _measured(progress, speculator, result, json_file):
                result = measured
        if json_file == STANDARD:
            shell.write_json(result, json_file)
        _print(result, shell.results_console(json_file))
        if interrupted:
            hint = (
                f"; run the same command to go on from {str(json_file)!r}" if json_file not in (None, STANDARD) else ""
            )
            progress.print(f"interrupted: the figures above are of what was finished{hint}", markup=False)
            raise typer.Exit(shell.INTERRUPTED)
        if any(c.identical is False for c in result.cells) or not any(c.generations for c in result.cells):
            raise typer.Exit(1)


def _measured(
    progress: Console, speculator: Speculator, result: BenchResult, json_file: Path | None
) -> Iterator[BenchResult]:
    """Yield the result after every prompt, written to the file each time."""
    from draftproof.bench.sweep import Arm, measure
    from draftproof.engines.hf_assisted import ARMS, HfAssisted
    from draftproof.engines.local import Speculator

    loaded_draft = speculator.draft
    assert loaded_draft is not None
    arms = {0: Arm(speculator, None)}
    for k in sorted({*result.ks, result.k}):
        arms[k] = Arm(Speculator(speculator.target, loaded_draft, k, numerics=result.numerics), result.draft)
    for arm in arms.values():
        arm.speculator.warm_up()
    engines = ARMS if result.engine == "hf-assisted" else ()
    peers = [HfAssisted(arm, speculator.target, loaded_draft, result.k, speculator.clock) for arm in engines]
    failed = {(c.workload, c.prompt) for c in result.cells if c.error is not None}
    failed |= {(p.workload, p.prompt) for p in result.peers if p.error is not None}
    result = replace(  # what failed is tried again
        result,
        cells=tuple(c for c in result.cells if (c.workload, c.prompt) not in failed),
        peers=tuple(c for c in result.peers if (c.workload, c.prompt) not in failed),
    )
    done = {(c.workload, c.prompt) for c in result.cells}
    jobs = [(i, w, p) for i, w in enumerate(result.workloads) for p in range(len(w.prompts)) if (w.name, p) not in done]
    yield result
    with shell.bar(progress, "writing", len(jobs) * result.repeats) as advance:
        for i, workload, prompt in jobs:
            ks = sorted({*result.ks, result.k}) if i == 0 else [result.k]
            cells, peer_cells = measure(
                [arms[0], *(arms[k] for k in ks)],
                workload,
                prompt,
                result.options,
                repeats=result.repeats,
                peers=peers,
                on_repeat=advance,
            )
            result = replace(result, cells=(*result.cells, *cells), peers=(*result.peers, *peer_cells))
            if json_file != STANDARD:
                shell.write_json(result, json_file)
            yield result


def _print(result: BenchResult, out: Console) -> None:
    from draftproof.report import bench_summary, tables

    rows = bench_summary.bench_rows(result.cells)
    if not rows:
        out.print("nothing was measured", style="bold")
        for warning in (*result.notes, *bench_summary.doubts(result, rows)):
            shell.tell(out, "warning", warning)
        return
    first = result.workloads[0].name
    sweep = [r for r in rows if r.workload == first and r.k in (0, *result.ks)]
    out.print(tables.bench_table(f"k sweep on {first!r}", sweep, by="k", width=out.width))
    out.print(bench_summary.recommend(sweep), style="bold", markup=False)
    others = [r for r in rows if r.workload != first]
    if others:
        same_k = [r for r in rows if r.workload == first and r.k in (0, result.k)]
        out.print(
            tables.bench_table(f"workloads at k = {result.k}", [*same_k, *others], by="workload", width=out.width)
        )
    if result.peers:
        out.print(tables.peer_table(bench_summary.peer_rows(result)))
    for sentence in bench_summary.workloads_verdict(result):
        out.print(sentence, style="bold", markup=False)
    if said := bench_summary.identity(result):
        out.print(said, markup=False)
    shell.tell_placements(out, result)
    if said := result.options.describe():
        shell.tell(out, "note", said)
    for warning in (*result.notes, *bench_summary.doubts(result, rows)):
        shell.tell(out, "warning", warning)


def _unfinished(json_file: Path | None, asked: dict[str, Any]) -> BenchResult | None:
    """Return what a file holds that is there already. Raises `ResultError` unless it is what is asked for now."""
    from draftproof.results import BenchResult, from_json

    if json_file is None or json_file == STANDARD or not json_file.exists():
        return None
    old = from_json(read_text(json_file, "--json", ResultError))
    other = [name for name, value in asked.items() if getattr(old, name, None) != value]
    if not isinstance(old, BenchResult) or other:
        which = f", with other {', '.join(other)}" if isinstance(old, BenchResult) else ""
        raise ResultError(f"{str(json_file)!r} holds another measurement{which}; give another file name.")
    return old


def _resumed(blank: BenchResult, old: BenchResult | None, json_file: Path | None) -> BenchResult:
    """Return the bench to go on with. Raises `ResultError` for an unfinished one from another machine."""
    if old is None:
        return blank
    here = {name: getattr(blank, name) for name in ("notes", "created", "draftproof")}
    old = replace(old, by_rule=blank.by_rule) if old.by_rule is None else old
    if replace(old, cells=(), peers=(), **here) != blank:
        raise ResultError(
            f"{str(json_file)!r} holds a measurement from another machine, device or number format; give another name."
        )
    return replace(old, notes=tuple(dict.fromkeys((*old.notes, *blank.notes))))


def _conditions(engine: str) -> list[str]:
    """What changes how another engine behaves, and is not a setting."""
    if engine == "hf-assisted" and importlib.util.find_spec("sklearn") is None:
        return ["hf-assisted-default adapts its confidence threshold only with scikit-learn, which is not installed"]
    return []


def _workloads(path: Path | None, only: str | None, limit: int | None) -> tuple[Workload, ...]:
    from draftproof.bench.workloads import BUILT_IN, read_workloads

    found = read_workloads(path or BUILT_IN, limit)
    if only is None:
        return found
    names = list(dict.fromkeys(name.strip() for name in only.split(",")))
    known = {w.name: w for w in found}
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(f"unknown workload {unknown[0]!r}; known: {', '.join(known)}.")
    return tuple(known[name] for name in names)


def _ks(text: str) -> tuple[int, ...]:
    try:
        ks = tuple(dict.fromkeys(int(k) for k in text.split(",")))
    except ValueError:
        raise ConfigError(f"--k is {text!r}; give whole numbers with commas, such as {KS}.") from None
    for k in ks:
        check_k(k, least=1)
    return ks
