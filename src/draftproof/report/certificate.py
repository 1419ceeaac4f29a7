"""A certificate in tables and words."""

from __future__ import annotations

from collections.abc import Sequence

from draftproof.report.grid import Column, Grid, grid
from draftproof.results import CALLED_DIFFERENT, CertifyResult, LawRow, TwoSamples


def law_table(rows: Sequence[LawRow]) -> Grid:
    """Return the table of every outcome that was walked: outcomes and difference over all k, guesses kept by k."""
    found = []
    for rule, proposer in dict.fromkeys((row.rule, row.proposer) for row in rows):
        mine = [row for row in rows if (row.rule, row.proposer) == (rule, proposer)]
        worst = max(row.largest_difference for row in mine)
        kept = {row.k: f"{row.first_round:.4f}" for row in mine if row.k}
        outcomes = f"{sum(row.outcomes for row in mine):,}"
        difference = "0 (exact)" if worst == 0 else f"{worst:.3g}"
        found.append((rule, proposer, outcomes, difference, *(kept.get(k, "") for k in (1, 2, 3))))
    heads = ("rule", "guesses", "outcomes", "difference", "kept, k=1", "k=2", "k=3")
    title = "small models: every random outcome, and the guesses that the first round keeps"
    return grid(title, _columns(heads), found)


def samples_table(tests: Sequence[TwoSamples]) -> Grid:
    """Return the table of samples from a pair, plain against speculative."""
    heads = ("rule", "tokens", "samples", "kinds", "chi-square", "p", "visible")
    rows = [
        (
            *(test.rule, test.of, f"{test.samples:,}", f"{test.bins}", f"{test.statistic:.1f}", f"{test.p_value:.3f}"),
            "–" if test.visible is None else f"{test.visible:.3f}",
        )
        for test in tests
    ]
    return grid("your pair: samples, plain against speculative", _columns(heads), rows)


def _columns(heads: Sequence[str]) -> list[Column]:
    return [Column(head, left=i < 2) for i, head in enumerate(heads)]


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
