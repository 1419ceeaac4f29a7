"""A certificate in tables and words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from draftproof.results import CALLED_DIFFERENT, CertifyResult, LawRow, TwoSamples

_LAW_COLUMNS = ("rule", "guesses", "outcomes", "difference", "kept, k=1", "k=2", "k=3")
_SAMPLE_COLUMNS = ("rule", "tokens", "samples", "kinds", "chi-square", "p", "visible")


def law_rows(rows: Sequence[LawRow]) -> list[list[str]]:
    """Return a row of cells for every rule and proposer: outcomes and difference over all k, guesses kept by k."""
    found = []
    for rule, proposer in dict.fromkeys((row.rule, row.proposer) for row in rows):
        mine = [row for row in rows if (row.rule, row.proposer) == (rule, proposer)]
        worst = max(row.largest_difference for row in mine)
        kept = {row.k: f"{row.first_round:.4f}" for row in mine if row.k}
        outcomes = f"{sum(row.outcomes for row in mine):,}"
        difference = "0 (exact)" if worst == 0 else f"{worst:.3g}"
        found.append([rule, proposer, outcomes, difference, *(kept.get(k, "") for k in (1, 2, 3))])
    return found


def sample_cells(test: TwoSamples) -> list[str]:
    """Return the cells of one comparison of samples."""
    visible = "–" if test.visible is None else f"{test.visible:.3f}"
    cells = [test.rule, test.of, f"{test.samples:,}", f"{test.bins}"]
    return [*cells, f"{test.statistic:.1f}", f"{test.p_value:.3f}", visible]


def law_table(rows: Sequence[LawRow]) -> Table:
    """Return the table of every outcome that was walked."""
    title = "small models: every random outcome, and the guesses that the first round keeps"
    return _table(title, _LAW_COLUMNS, law_rows(rows))


def samples_table(tests: Sequence[TwoSamples]) -> Table:
    """Return the table of samples from a pair, plain against speculative."""
    return _table("your pair: samples, plain against speculative", _SAMPLE_COLUMNS, map(sample_cells, tests))


def certificate_rows(result: CertifyResult) -> list[list[list[str]]]:
    """Return both tables of a certificate as rows of cells, heads first; the second only if there were samples."""
    found = [[list(_LAW_COLUMNS), *law_rows(result.rows)]]
    return [*found, [list(_SAMPLE_COLUMNS), *map(sample_cells, result.tests)]] if result.tests else found


def holds(result: CertifyResult) -> bool:
    """Return whether the law was found to be the target's, as far as it was looked at."""
    return not any(row.largest_difference for row in result.rows) and not _odd(result)


def _odd(result: CertifyResult) -> list[TwoSamples]:
    return [test for test in result.tests if test.p_value < CALLED_DIFFERENT]


def certificate(result: CertifyResult) -> list[str]:
    """Say in words what was found."""
    worst = max((row.largest_difference for row in result.rows), default=0.0)
    outcomes = sum(row.outcomes for row in result.rows)
    sentences = [
        f"small models: the law of the texts is the target's, exactly, over all {outcomes:,} outcomes"
        if worst == 0
        else f"small models: the law is NOT the target's: a text is off by up to {worst:.3g}; please report this"
    ]
    if not result.tests:
        return sentences
    tested = [t for t in result.tests if t.visible is not None]
    if odd := _odd(result):
        named = ", ".join(f"{t.rule}, {t.of}: p = {t.p_value:.2g}" for t in odd)
        return [*sentences, f"your pair: plain and speculative DIFFER ({named}); try another seed, then report it"]
    if not tested:
        return [
            *sentences,
            "your pair: all began alike, so nothing was tested; raise the temperature, or change the prompt",
        ]
    widest = max(t.visible or 0.0 for t in tested)
    return [
        *sentences,
        f"your pair: no difference found in the first tokens; one of {widest:.2f} (total variation between the kinds "
        f"counted) would have been found nine times in ten (called a difference at p < {CALLED_DIFFERENT:g})",
    ]


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=Text(title), title_justify="left", padding=(0, 1, 0, 0))
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i < 2 else "right", no_wrap=True)
    for cells in rows:
        table.add_row(*map(Text, cells))
    return table
