"""`draftproof drafts`: several drafts for one target."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from draftproof.cli import shell
from draftproof.cli.options import read_options, with_options, with_settings
from draftproof.errors import ConfigError
from draftproof.settings import check_k


@with_options(max_new_tokens=64, seed=0)
@with_settings("weights", "draft_weights", "adapter", "compile", "numerics")
def drafts(
    *,
    target: Annotated[str, typer.Option(help="Hub name, folder or .gguf file of the model whose text is wanted.")],
    draft: Annotated[list[str], typer.Option(help="A draft to compare; give the option several times.")],
    k: Annotated[int, typer.Option(help="Guesses a round, for the comparison at one k.")] = 5,
    workload: Annotated[str, typer.Option(help="Name of a built-in workload, or a file of JSON lines.")] = "prose",
    limit: Annotated[int | None, typer.Option(help="Prompts at most.")] = None,
    repeats: Annotated[int, typer.Option(help="Times every prompt is written by every arm.")] = 3,
    json_file: Annotated[Path | None, typer.Option("--json", help=shell.JSON_HELP)] = None,
    settings: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Compare drafts: how often right, how cheap, how fast at one k and each at its own best k."""
    with shell.errors_in_one_line() as progress:
        wanted = read_options(options)
        shell.check_counts(repeats=repeats)
        check_k(k, least=1)
        how = {name: settings[name] for name in ("device", "dtype", "compile", "trust_remote_code")}
        weights, numerics = settings["weights"], settings["numerics"]
        if len(set(draft)) < len(draft):
            raise ConfigError("a draft is named twice; name each once.")
        for one in draft:
            shell.check_models(target, one, **settings)
        shell.check_json(json_file)
        from draftproof.bench.workloads import read_workloads

        known = {w.name: w for w in read_workloads(limit=limit)}
        chosen = known[workload] if workload in known else read_workloads(Path(workload), limit)[0]
        loaded = shell.load_model(progress, target, weights=weights, adapter=settings["adapter"], **how)
        from draftproof.bench import drafts as compare
        from draftproof.report import bench_summary, summary, tables
        from draftproof.results import DraftsResult, read_machine
        from draftproof.results.trust import doubt_machine

        pairs, failed = compare.pair_up(
            loaded,
            draft,
            lambda name: shell.load_model(progress, name, weights=settings["draft_weights"] or weights, **how),
            k,
            numerics,
        )
        notes = list(dict.fromkeys([*doubt_machine(), *(note for pair in pairs.values() for note in pair.notes)]))
        measured_with: dict[str, Any] = {"options": wanted, "repeats": repeats, "numerics": numerics}
        with progress.status("timing passes") as status:
            curve, pass_s = compare.time_models(loaded, pairs)
            status.update(f"writing with every draft at k = {k}")
            cells = compare.measure_at(loaded, pairs, dict.fromkeys(pairs, k), chosen, **measured_with)
            measured = summary.cost_curve(curve)
            facts = [compare.facts(name, pair, cells, measured, pass_s[name]) for name, pair in pairs.items()]
            best = {f.draft: f.best_k for f in facts if f.best_k}
            best_cells = []
            if best:
                status.update("writing with every draft at its own best k")
                best_cells = compare.measure_at(loaded, pairs, best, chosen, **measured_with)
        result = DraftsResult(
            machine=read_machine(),
            target=target,
            target_placement=loaded.placement,
            k=k,
            options=wanted,
            repeats=repeats,
            workload=chosen,
            curve=curve,
            facts=(*facts, *failed),
            cells=tuple(cells),
            best_cells=tuple(best_cells),
            numerics=numerics,
            notes=tuple(notes),
        )
        shell.write_json(result, json_file)
        out = shell.results_console(json_file)
        out.print(tables.facts_table(result.facts))
        names = bench_summary.drafts_of(result)
        for title, some in ((f"all at k = {k}", cells), ("each at its best k", best_cells)):
            if some:
                out.print(tables.bench_table(title, bench_summary.bench_rows(some), "draft", names, out.width))
        out.print(bench_summary.drafts_verdict(result), style="bold", markup=False)
        shell.tell_placements(out, result)
        if said := wanted.describe():
            shell.tell(out, "note", said)
        doubts = bench_summary.doubt_cells((*cells, *best_cells), wanted.max_new_tokens)
        for warning in (*bench_summary.unusable(result), *notes, *doubts):
            shell.tell(out, "warning", warning)
        if any(c.identical is False for c in (*cells, *best_cells)):
            raise typer.Exit(1)
