"""The instruments' results as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from draftproof import cost
from draftproof.records import Interval
from draftproof.report.bench_summary import BenchRow, PeerRow, count, short, short_names
from draftproof.report.summary import pass_rows
from draftproof.results import DraftFacts, OnePass, PassTimes


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
    title = f"{times.role} {short(times.model)} ({times.placement.dtype} on {times.placement.device})"
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=Text(title), title_justify="left")
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


_BENCH_COLUMNS = (
    "tokens\nper s",
    "speedup (95 %)",
    "target\npasses",
    "draft\npasses",
    "dis-\ncarded",
    "acc.\nrate",
    "per\nround",
    "same\ntext",
)
_FIRST_TO_GO = ("per\nround", "dis-\ncarded", "draft\npasses", "target\npasses", "acc.\nrate")
"""What a narrow terminal does without, before a word is broken; the file has it all."""


def bench_table(
    title: str,
    rows: Sequence[BenchRow],
    by: Literal["k", "workload", "draft"],
    names: Mapping[str, str] = MappingProxyType({}),
    width: int = 80,
) -> Table:
    """Return a sweep's table: speed, counts and rates of every arm, plain decoding first; failed arms are left out.

    `names` says what drafts are called. Columns are left out until the others fit into `width` characters.
    """
    cells = []
    for row in rows:
        what = "plain" if row.draft is None else f"k={row.k}"
        name = {
            "k": what,
            "workload": row.workload if row.draft is None else f"  {what}",
            "draft": names.get(row.draft or "") or short(row.draft or "plain"),
        }[by]
        cells.append([
            name,
            f"{row.tokens_per_s:.2f}",
            "" if row.speedup is None else _interval(row.speedup),
            count(row.target_passes),
            count(row.draft_passes) if row.draft else "",
            count(row.discarded) if row.draft else "",
            "" if row.acceptance_rate is None else f"{row.acceptance_rate:.0%}",
            f"{row.tokens_per_round:.2f}" if row.draft else "",
            {None: "–" if row.draft else "", True: "yes", False: "NO"}[row.identical],
        ])
    shown: dict[str, Sequence[str]] = (
        dict(zip((by, *_BENCH_COLUMNS), zip(*cells, strict=True), strict=True)) if cells else {by: ()}
    )
    for column in _FIRST_TO_GO:
        if sum(_wide(head, values) for head, values in shown.items()) + 2 * (len(shown) - 1) > width:
            shown.pop(column, None)
    table = Table(
        box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0), title=Text(title), title_justify="left"
    )
    table.add_column(by, overflow="fold")
    for column in list(shown)[1:]:
        table.add_column(column, justify="right", no_wrap=True)
    for name, *values in zip(*shown.values(), strict=True):
        table.add_row(Text(name), *values)
    return table


def _wide(head: str, values: Sequence[str]) -> int:
    return max(len(line) for line in (*head.split("\n"), *values))


def peer_table(rows: Sequence[PeerRow]) -> Table:
    """Return the table of other engines on the same models, between the same repeats."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title="transformers' own generation", title_justify="left")
    for column in ("workload", "engine"):
        table.add_column(column)
    for column in ("tokens/s", "× our plain (medians)"):
        table.add_column(column, justify="right")
    table.add_column("identical")
    for row in rows:
        same = "yes" if row.identical else "NO"
        table.add_row(Text(row.workload), row.engine, f"{row.tokens_per_s:.2f}", f"{row.speedup:.2f} ×", same)
    return table


def _interval(found: Interval) -> str:
    return f"{found.value:.2f}× ({found.low:.2f}–{found.high:.2f})"


def facts_table(facts: Sequence[DraftFacts]) -> Table:
    """Return what each draft is: how often right, how cheap, and whether Leviathan's condition is met."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, title="drafts", title_justify="left")
    table.add_column("draft", overflow="fold")
    for column in ("one pass", "c", "alpha", "alpha > c", "best k"):
        table.add_column(column, justify="right")
    names = short_names([fact.draft for fact in facts])
    for fact in facts:
        if fact.pass_s is None or fact.c is None or fact.agreement is None:
            table.add_row(names[fact.draft], "–", "–", "–", "–", "–")
            continue
        met = "met" if cost.can_pay(fact.agreement, fact.c) else "not met"
        best = f"{fact.best_k}" if fact.best_k else "none pays"
        table.add_row(
            names[fact.draft], f"{fact.pass_s * 1e3:.1f} ms", f"{fact.c:.2f}", f"{fact.agreement:.2f}", met, best
        )
    return table
