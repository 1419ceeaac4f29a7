"""`draftproof one-pass`: every prefix answered at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from draftproof.cli import shell
from draftproof.cli.options import with_settings


@with_settings("adapter")
def one_pass(
    *,
    model: Annotated[str, typer.Option(help="Hub name, folder or .gguf file.")],
    text: Annotated[str, typer.Option(help="The text to read.")] = "The capital of France is Paris and it",
    cut: Annotated[int, typer.Option(help="Tokens taken off the end for the second pass.")] = 3,
    json_file: Annotated[Path | None, typer.Option("--json", help=shell.JSON_HELP)] = None,
    settings: dict[str, Any],
) -> None:
    """Show the prediction after every prefix from a single pass, and check that a shorter text changes none of them."""
    with shell.errors_in_one_line() as progress:
        shell.check_counts(cut=cut)
        shell.check_models(model, **settings)
        shell.check_json(json_file)
        loaded = shell.load_model(progress, model, **settings)
        from draftproof.bench.one_pass import one_pass as measure
        from draftproof.report.grid import draw
        from draftproof.report.tables import one_pass_table
        from draftproof.results import OnePassResult, read_machine

        passes = [measure(loaded, text, cut)]
        notes = (f"model on {loaded.placement.reason}", *loaded.told())
        if loaded.placement.dtype != "float32":
            device = loaded.placement.device
            del loaded
            exact = shell.load_model(progress, model, **{**settings, "device": device, "dtype": "float32"})
            passes.append(measure(exact, text, cut))
        result = OnePassResult(
            machine=read_machine(), model=model, text=text, cut=cut, passes=tuple(passes), notes=notes
        )
        shell.write_json(result, json_file)
        out = shell.results_console(json_file)
        out.print(draw(one_pass_table(passes[0])))
        for found in passes:
            same = "every prediction is the same" if found.same_tokens else "some predictions differ"
            out.print(f"{found.dtype}: {same}; largest difference of a logit: {found.largest_difference:.2g}")
        for note in notes:
            out.print(f"note: {note}", style="dim", markup=False)
