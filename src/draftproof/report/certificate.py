"""A certificate in tables and words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from draftproof.results import CALLED_DIFFERENT, CertifyResult, LawRow, TwoSamples

_LAW_COLUMNS = ("rule", "guesses", "k", "outcomes", "difference", "kept at first")
_SAMPLE_COLUMNS = ("rule", "compared", "samples", "kinds", "chi-square", "p", "visible difference")


def law_cells(row: LawRow) -> list[str]:
    """Return the cells of one rule, proposer and k."""
    exact = "0 (exact)" if row.largest_difference == 0 else f"{row.largest_difference:.3g}"
    return [row.rule, row.proposer, f"{row.k}", f"{row.outcomes:,}", exact, f"{row.first_round:.4f}" if row.k else ""]


def sample_cells(test: TwoSamples) -> list[str]:
    """Return the cells of one comparison of samples."""
    visible = "–" if test.visible is None else f"{test.visible:.3f}"
    cells = [test.rule, test.of, f"{test.samples:,}", f"{test.bins}"]
    return [*cells, f"{test.statistic:.1f}", f"{test.p_value:.3f}", visible]


def law_table(rows: Sequence[LawRow]) -> Table:
    """Return the table of every outcome that was walked: by how much a text's probability is off at most, and more."""
    return _plain_table("every random outcome on a small vocabulary", _LAW_COLUMNS, map(law_cells, rows), text=2)


def samples_table(tests: Sequence[TwoSamples]) -> Table:
    """Return the table of samples from a pair, plain against speculative."""
    return _plain_table(
        "samples of your pair, plain and speculative", _SAMPLE_COLUMNS, map(sample_cells, tests), text=2
    )


def certificate_rows(result: CertifyResult) -> list[list[list[str]]]:
    """Return both tables of a certificate as rows of cells, heads first; the second only if there were samples."""
    found = [[list(_LAW_COLUMNS), *map(law_cells, result.rows)]]
    return [*found, [list(_SAMPLE_COLUMNS), *map(sample_cells, result.tests)]] if result.tests else found


def holds(result: CertifyResult) -> bool:
    """Return whether the law was found to be the target's, as far as it was looked at."""
    return not any(row.largest_difference for row in result.rows) and not any(
        t.p_value < CALLED_DIFFERENT for t in result.tests
    )


def _odd(result: CertifyResult) -> list[TwoSamples]:
    return [test for test in result.tests if test.p_value < CALLED_DIFFERENT]


def certificate(result: CertifyResult) -> list[str]:
    """Say in words what was found."""
    worst = max((row.largest_difference for row in result.rows), default=0.0)
    outcomes = sum(row.outcomes for row in result.rows)
    sentences = [
        f"law: the target's own, exactly, in all {outcomes:,} outcomes"
        if worst == 0
        else f"law: NOT the target's: a text's probability is off by up to {worst:.3g}; please report this"
    ]
    if not result.tests:
        return sentences
    tested = [t for t in result.tests if t.visible is not None]
    if odd := _odd(result):
        named = ", ".join(f"{t.rule}, {t.of}: p = {t.p_value:.2g}" for t in odd)
        return [
            *sentences,
            f"samples: plain and speculative DIFFER ({named}); try another --seed, then please report it",
        ]
    if not tested:
        return [*sentences, "samples: all began alike, so nothing was tested; raise --temperature or change --prompt"]
    widest = max(t.visible or 0.0 for t in tested)
    return [
        *sentences,
        f"samples: no difference found; one of {widest:.2f} or more (total variation) would have been found nine times "
        f"in ten (a difference is called one at p < {CALLED_DIFFERENT:g})",
    ]


def _plain_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, text: int) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, title=Text(title), title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i < text else "right")
    for cells in rows:
        table.add_row(*map(Text, cells))
    return table
