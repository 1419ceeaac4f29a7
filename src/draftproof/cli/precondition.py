"""`draftproof precondition`: what a pass over several tokens costs here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from draftproof.cli import shell
from draftproof.cli.options import with_settings
from draftproof.errors import ConfigError

DEFAULT_SIZES = "1,2,3,4,5,6,8,10,12,16,24,32"


@with_settings("weights", "draft_weights", "adapter", "draft_adapter", "compile")
def precondition(
    *,
    model: Annotated[str, typer.Option(help="Hub name, folder or .gguf file of the target.")],
    draft: Annotated[str | None, typer.Option(help="The same for a draft: adds its pass time, and c.")] = None,
    context: Annotated[int, typer.Option(help="Tokens in the cache before each timed pass.")] = 128,
    sizes: Annotated[str, typer.Option(help="Numbers of new tokens, with commas.")] = DEFAULT_SIZES,
    sweeps: Annotated[int, typer.Option(help="Times each size is measured.")] = 9,
    compare_dtype: Annotated[str | None, typer.Option(help="Measure the target in this format too.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help=shell.JSON_HELP)] = None,
    settings: dict[str, Any],
) -> None:
    """Time one target pass over 1, 2, … 32 new tokens: if they cost about the same, speculation can pay here."""
    with shell.errors_in_one_line() as progress:
        wanted = _sizes(sizes)
        shell.check_counts(sweeps=sweeps, context=context)
        how = {name: settings[name] for name in ("device", "compile", "trust_remote_code")}
        dtype, weights, adapter = (settings[name] for name in ("dtype", "weights", "adapter"))
        shell.check_models(model, draft, **settings)
        shell.check_models(model, compare_dtype=compare_dtype)
        shell.check_json(json_file)
        jobs: list[Any] = [("target", model, dtype, weights, adapter, wanted)]
        jobs += [] if compare_dtype is None else [("target", model, compare_dtype, weights, adapter, wanted)]
        if draft is not None:
            of_the_draft = settings["draft_weights"] or weights, settings["draft_adapter"]
            jobs.append(("draft", draft, dtype, *of_the_draft, [1, 2]))
        loaded = [
            (shell.load_model(progress, name, dtype=one, weights=bits, adapter=change, **how), role, ns)
            for role, name, one, bits, change, ns in jobs
        ]
        from draftproof.bench.precondition import Timed
        from draftproof.bench.precondition import precondition as measure
        from draftproof.report import summary, tables
        from draftproof.report.grid import draw
        from draftproof.stats.passes import cost_curve

        steps = (sweeps + 1) * sum(len(ns) for _, _, ns in loaded)
        with shell.bar(progress, "timing passes", steps) as advance:
            result = measure([Timed(*one) for one in loaded], context=context, sweeps=sweeps, on_pass=advance)
        shell.write_json(result, json_file)
        out = shell.results_console(json_file)
        for times in result.passes:
            out.print(draw(tables.pass_table(times)))
            if times.role == "target":
                out.print(summary.precondition_verdict(times), style="bold")
        if draft is not None:
            c = cost_curve(result.passes[-1]).at(1) / cost_curve(result.passes[0]).at(1)
            out.print(f"c = {c:.2f}: a draft pass / a target pass; the draft must be right more often than that to pay")
        shell.tell_placements(out, result)
        for warning in result.notes:
            shell.tell(out, "warning", warning)


def _sizes(text: str) -> list[int]:
    try:
        sizes = sorted({int(n) for n in text.split(",")})
    except ValueError:
        raise ConfigError(f"--sizes is {text!r}; give whole numbers with commas, such as {DEFAULT_SIZES}.") from None
    if sizes[0] != 1:
        raise ConfigError(f"--sizes is {text!r}; 1 must be the smallest, since everything is compared with it.")
    return sizes
