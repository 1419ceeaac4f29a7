"""`draftproof report`: result files as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from draftproof.cli import shell
from draftproof.errors import ResultError
from draftproof.reading import read_text


def report(
    results: Annotated[list[Path], typer.Argument(help="Files that other commands wrote with --json.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("report.html"),
) -> None:
    """Draw one self-contained page from result files: charts, tables, texts, raw numbers. Opens offline."""
    with shell.errors_in_one_line() as progress:
        shell.check_json(output)
        if output.resolve() in {path.resolve() for path in results}:
            raise ResultError(f"{str(output)!r} is one of the result files; give the page another name with -o.")
        from draftproof.results import from_json

        loaded = []
        for path in results:
            try:
                text = read_text(path, error=ResultError)
                loaded.append((path.name, from_json(text)))
            except ResultError as error:
                named = str(error) if str(path) in str(error) else f"{str(path)!r}: {error}"
                raise ResultError(named) from error
        from draftproof.report.html import page

        output.write_text(page(loaded), encoding="utf-8")
        progress.print(f"wrote {output}", markup=False)
