"""The instruments' results as tables for a terminal."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from draftproof.report.summary import pass_rows
from draftproof.results import OnePass, PassTimes


def one_pass_table(found: OnePass) -> Table:
    """Return the prediction after every prefix, and the same positions from the pass over the shortened text."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=f"{len(found.rows)} tokens, one pass ({found.dtype})")
    table.add_column("after", overflow="ellipsis", no_wrap=True, max_width=48)
    table.add_column("the model predicts")
    table.add_column("from the shortened text")
    table.add_column("")
    for row in found.rows:
        again = "" if row.shortened_text is None else repr(row.shortened_text)
        same = "" if row.shortened is None else "same" if row.shortened == row.predicted else "DIFFERENT"
        prefix = repr(row.prefix) if len(row.prefix) <= 46 else "'…" + repr(row.prefix[-44:])[1:]
        table.add_row(Text(prefix), Text(repr(row.predicted_text)), Text(again), same)
    return table


def pass_table(times: PassTimes) -> Table:
    """Return what a pass costs against the number of tokens it covers."""
    title = f"{times.role} {times.model} ({times.placement.dtype} on {times.placement.device})"
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    for column in ("new tokens", "one pass", "against one token", "per token", "spread"):
        table.add_column(column, justify="right")
    for row in pass_rows(times):
        table.add_row(
            f"{row.tokens}",
            f"{row.seconds * 1e3:.2f} ms",
            f"{row.ratio:.2f} ×",
            f"{row.seconds / row.tokens * 1e3:.2f} ms",
            f"{row.spread:.0%}",
        )
    return table
