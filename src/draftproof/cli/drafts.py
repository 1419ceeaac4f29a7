"""`draftproof drafts`: several drafts for one target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from draftproof.cli import shell
from draftproof.cli.options import read_options, with_options, with_settings
from draftproof.errors import ConfigError
from draftproof.reading import STANDARD
from draftproof.settings import check_k

if TYPE_CHECKING:
    from draftproof.models.load import Loaded


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
        from draftproof.bench.drafts import compare_drafts
        from draftproof.report import bench_summary, tables
        from draftproof.report.grid import draw
        from draftproof.report.names import drafts_of
        from draftproof.stats.rows import bench_rows

        def load(name: str) -> Loaded:
            return shell.load_model(progress, name, weights=settings["draft_weights"] or weights, **how)

        asked: dict[str, Any] = {"k": k, "options": wanted, "repeats": repeats, "numerics": numerics}
        result = None
        with shell.interruptible(lambda: None) as interrupted, progress.status("loading drafts") as status:
            for result in compare_drafts(loaded, draft, load, chosen, **asked, on_stage=status.update):
                shell.write_json(result, None if json_file == STANDARD else json_file)
        if result is None:
            raise KeyboardInterrupt
        if json_file == STANDARD:
            shell.write_json(result, json_file)
        out = shell.results_console(json_file)
        out.print(draw(tables.facts_table(result.facts), out.width))
        names = drafts_of(result)
        rows, best = bench_rows(result.cells), bench_rows(result.best_cells)
        for title, some in ((f"all at k = {k}", rows), ("each at its best k", best)):
            if some:
                out.print(draw(tables.bench_table(title, some, "draft", names), out.width))
        out.print(bench_summary.drafts_verdict(names, [*rows, *best]), style="bold", markup=False)
        shell.tell_placements(out, result)
        if said := wanted.describe():
            shell.tell(out, "note", said)
        doubts = bench_summary.doubt_cells((*result.cells, *result.best_cells), wanted.max_new_tokens)
        for warning in (*bench_summary.unusable(result), *result.notes, *doubts):
            shell.tell(out, "warning", warning)
        if interrupted:
            progress.print("interrupted: the figures above are of what was finished")
            raise typer.Exit(shell.INTERRUPTED)
        if any(c.identical is False for c in (*result.cells, *result.best_cells)):
            raise typer.Exit(1)
