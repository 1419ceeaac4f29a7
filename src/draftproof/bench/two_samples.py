"""Many short texts of a pair, plain and speculative: can both have come from one law?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from scipy import stats
from scipy.optimize import brentq

from draftproof.engines.local import Speculator
from draftproof.engines.stream import finish
from draftproof.options import Options
from draftproof.results import CALLED_DIFFERENT, TwoSamples

FREQUENT = 10
"""What occurred at least so often, on both sides together, is counted by itself; the rest is one kind."""
POWER = 0.9


def draw_pairs(
    speculator: Speculator, prompt: Sequence[int], options: Options, samples: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield the tokens of a plain and of a speculative text, turn by turn; no two texts share a stream of chance."""
    for i in range(samples):
        plain = finish(speculator.stream(prompt, options, k=0, sample=2 * i))
        speculative = finish(speculator.stream(prompt, options, sample=2 * i + 1))
        yield plain.tokens, speculative.tokens


def compare_samples(pairs: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], rule: str) -> tuple[TwoSamples, ...]:
    """Test the first tokens, and the first two, of (plain, speculative) texts."""
    return tuple(
        two_samples([a[:n] for a, _ in pairs], [b[:n] for _, b in pairs], rule, what)
        for n, what in ((1, "the first"), (2, "the first two"))
    )


def two_samples(
    plain: Sequence[tuple[int, ...]], speculative: Sequence[tuple[int, ...]], rule: str, of: str
) -> TwoSamples:
    """Test two samples of one size for a common law, by Pearson's chi-square on a table of 2 × kinds.

    What it can see: two laws at total variation d give a statistic with noncentrality of at least 2 n d² (n samples
    each, by Cauchy and Schwarz), so the d that is found nine times in ten follows from the noncentral chi-square law.
    """
    counts = [Counter(plain), Counter(speculative)]
    both = counts[0] + counts[1]
    kinds = [kind for kind, count in both.items() if count >= FREQUENT]
    table = np.array([[count[kind] for kind in kinds] for count in counts]).reshape(2, -1)
    rest = np.array([[len(plain)], [len(speculative)]]) - table.sum(axis=1, keepdims=True)
    if rest.sum():
        table = np.hstack([table, rest])
    bins = table.shape[1]
    if bins < 2:
        return TwoSamples(rule, of, len(plain), bins, 0.0, 1.0, None)
    found = stats.chi2_contingency(table, correction=False)
    freedom = bins - 1
    limit = stats.chi2.ppf(1 - CALLED_DIFFERENT, freedom)
    needed = brentq(lambda nc: stats.ncx2.sf(limit, freedom, nc) - POWER, 1e-6, 1e4)
    visible = float(np.sqrt(needed / (2 * len(plain))))
    return TwoSamples(rule, of, len(plain), bins, float(found.statistic), float(found.pvalue), visible)
