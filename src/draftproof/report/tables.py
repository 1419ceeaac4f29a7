"""The instruments' results as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from draftproof import cost
from draftproof.records import Interval
from draftproof.report.grid import Column, Grid, grid
from draftproof.report.names import count, short, short_names
from draftproof.report.summary import pass_rows
from draftproof.results import DraftFacts, OnePass, PassTimes
from draftproof.stats.rows import BenchRow


def one_pass_table(found: OnePass) -> Grid:
    """Return the prediction after every prefix, and the same positions from the pass over the shortened text."""
    columns = (
        Column("after", left=True, narrow=True),
        Column("the model predicts", left=True),
        Column("from the shortened text", left=True),
        Column("", left=True),
    )
    rows = []
    for row in found.rows:
        again = "" if row.shortened_text is None else repr(row.shortened_text)
        same = "" if row.shortened is None else "same" if row.shortened == row.predicted else "DIFFERENT"
        prefix = repr(row.prefix) if len(row.prefix) <= 46 else "'…" + repr(row.prefix[-44:])[1:]
        rows.append((prefix, repr(row.predicted_text), again, same))
    return grid(f"{len(found.rows)} tokens, one pass ({found.dtype})", columns, rows)


def pass_table(times: PassTimes) -> Grid:
    """Return what a pass costs against the number of tokens it covers."""
    title = f"{times.role} {short(times.model)} ({times.placement.dtype} on {times.placement.device})"
    columns = [Column(head) for head in ("new tokens", "one pass", "against one token", "per token", "spread")]
    rows = [
        (
            f"{row.tokens}",
            f"{row.seconds * 1e3:.2f} ms",
            f"{row.ratio:.2f} ×",
            f"{row.seconds / row.tokens * 1e3:.2f} ms",
            f"{row.spread:.0%}",
        )
        for row in pass_rows(times)
    ]
    return grid(title, columns, rows)


_BENCH = (
    Column("workload", left=True),
    Column("draft", left=True),
    Column("", left=True),
    Column("tokens\nper s"),
    Column("speedup (95 %)"),
    Column("target\npasses", spare=2),
    Column("draft\npasses", spare=3),
    Column("guesses", spare=6),
    Column("dis-\ncarded", spare=4),
    Column("acc.\nrate", spare=1),
    Column("alpha", spare=7),
    Column("per\nround", spare=5),
    Column("same\ntext"),
)


def bench_table(
    title: str,
    rows: Sequence[BenchRow],
    by: Literal["k", "workload", "draft"],
    names: Mapping[str, str] = MappingProxyType({}),
) -> Grid:
    """Return a sweep's table: speed, counts and rates of every arm, plain decoding first; failed arms are left out.

    `names` says what drafts are called.
    """
    cells = [
        (
            row.workload,
            "" if row.draft is None else names.get(row.draft) or short(row.draft),
            row.arm.name,
            "" if row.tokens_per_s is None else f"{row.tokens_per_s:.2f}",
            _interval(row.speedup),
            count(row.target_passes),
            count(row.draft_passes) if row.guesses else "",
            count(row.proposed) if row.guesses else "",
            count(row.discarded) if row.guesses else "",
            "" if row.acceptance_rate is None else f"{row.acceptance_rate:.0%}",
            "" if row.agreement is None else f"{row.agreement:.2f}",
            "" if row.tokens_per_round is None or row.arm.plain else f"{row.tokens_per_round:.2f}",
            {None: "" if row.arm.plain else "–", True: "yes", False: "NO"}[row.identical],
        )
        for row in rows
    ]
    unwanted = {"k": (0, 1), "workload": (1,), "draft": (0,)}[by]
    columns = [column for i, column in enumerate(_BENCH) if i not in unwanted]
    return grid(title, columns, [[cell for i, cell in enumerate(row) if i not in unwanted] for row in cells])


def _interval(found: Interval | None) -> str:
    return "" if found is None else f"{found.value:.2f}× ({found.low:.2f}–{found.high:.2f})"


def facts_table(facts: Sequence[DraftFacts]) -> Grid:
    """Return what each draft is: how often right, how cheap, and whether Leviathan's condition is met."""
    columns = [
        Column("draft", left=True),
        *(Column(head) for head in ("one pass", "c", "alpha", "alpha > c", "best k")),
    ]
    names = short_names([fact.draft for fact in facts])
    rows = []
    for fact in facts:
        if fact.pass_s is None or fact.c is None or fact.agreement is None:
            rows.append((names[fact.draft], *["–"] * 5))
            continue
        met = "met" if cost.can_pay(fact.agreement, fact.c) else "not met"
        best = f"{fact.best_k}" if fact.best_k else "none pays"
        told = f"{fact.pass_s * 1e3:.1f} ms", f"{fact.c:.2f}", f"{fact.agreement:.2f}"
        rows.append((names[fact.draft], *told, met, best))
    return grid("drafts", columns, rows)
