"""The command line: parse, call one function, print. Heavy imports wait until a command runs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from draftproof import __version__
from draftproof.cli import bench, certify, demo, drafts, forecast, one_pass, precondition, report, run, serve, tune
from draftproof.cli.options import Parsing

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Speculative decoding that proves the output did not change. Start with: draftproof demo",
)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False) -> None:
    if version:
        sys.stdout.write(f"draftproof {__version__}\n")
        raise typer.Exit


for command in (
    demo.demo,
    tune.tune,
    run.run,
    one_pass.one_pass,
    precondition.precondition,
    serve.serve,
    bench.bench,
    drafts.drafts,
    forecast.forecast,
    certify.certify,
    report.report,
):
    app.command(cls=Parsing)(command)


def main() -> None:
    """The `draftproof` command."""
    app()
