"""`draftproof one-pass`: every prefix answered at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from draftproof.cli import shell


def one_pass(
    model: Annotated[str, typer.Option(help="Hub name, folder or .gguf file.")],
    text: Annotated[str, typer.Option(help="The text to read.")] = "The capital of France is Paris and it",
    cut: Annotated[int, typer.Option(help="Tokens taken off the end for the second pass.")] = 3,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    adapter: Annotated[str | None, typer.Option(help=shell.ADAPTER_HELP)] = None,
    trust_remote_code: shell.TrustRemoteCode = False,
    json_file: Annotated[Path | None, typer.Option("--json", help=shell.JSON_HELP)] = None,
) -> None:
    """Show the prediction after every prefix from a single pass, and check that a shorter text changes none of them."""
    with shell.errors_in_one_line() as progress:
        shell.check_counts(cut=cut)
        shell.check_models(model, device=device, dtype=dtype, adapter=adapter)
        shell.check_json(json_file)
        how: dict[str, Any] = {"trust_remote_code": trust_remote_code, "adapter": adapter}
        loaded = shell.load_model(progress, model, device=device, dtype=dtype, **how)
        from draftproof.bench.one_pass import one_pass as measure
        from draftproof.report.tables import one_pass_table
        from draftproof.results import OnePassResult, read_machine

        passes = [measure(loaded, text, cut)]
        notes = (f"model on {loaded.placement.reason}", *loaded.told())
        if loaded.placement.dtype != "float32":
            device = loaded.placement.device
            del loaded
            exact = shell.load_model(progress, model, device=device, dtype="float32", **how)
            passes.append(measure(exact, text, cut))
        result = OnePassResult(
            machine=read_machine(), model=model, text=text, cut=cut, passes=tuple(passes), notes=notes
        )
        shell.write_json(result, json_file)
        out = shell.results_console(json_file)
        out.print(one_pass_table(passes[0]))
        for found in passes:
            same = "every prediction is the same" if found.same_tokens else "some predictions differ"
            out.print(f"{found.dtype}: {same}; largest difference of a logit: {found.largest_difference:.2g}")
        for note in notes:
            out.print(f"note: {note}", style="dim", markup=False)
