"""From raw results to the numbers and sentences a person reads. No model, no terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from draftproof.cost import CostCurve
from draftproof.results import PassTimes

NEARLY_FREE = 1.25
"""A pass over n tokens that costs less than this many single passes counts as nearly free."""
HOPELESS = 1.8
"""If already four tokens cost this many single passes, only text that is very easy to guess can pay."""


@dataclass(frozen=True, slots=True)
class PassRow:
    """One row of the precondition table."""

    tokens: int
    seconds: float
    ratio: float
    """Median seconds over those of one token."""
    spread: float
    """Width of the middle half of the values over their median."""


def pass_rows(times: PassTimes) -> list[PassRow]:
    """Return the medians of one model's passes, by number of tokens."""
    curve = cost_curve(times)
    rows = []
    for timing, seconds in zip(times.timings, curve.seconds, strict=True):
        low, high = np.percentile(timing.seconds, [25, 75])
        rows.append(PassRow(timing.tokens, seconds, seconds / curve.seconds[0], float(high - low) / seconds))
    return rows


def cost_curve(times: PassTimes) -> CostCurve:
    """Return the median cost curve of one model's passes."""
    return CostCurve(tuple(t.tokens for t in times.timings), tuple(float(median(t.seconds)) for t in times.timings))


def precondition_verdict(times: PassTimes) -> str:
    """Say in words whether speculation can pay for this model here, from its cost curve alone."""
    curve = cost_curve(times)
    dtype = times.placement.dtype
    cheap = [n for n in curve.tokens if n > 1 and curve.ratio(n) <= NEARLY_FREE]
    if cheap and cheap[0] == curve.tokens[1]:
        n = _last_of_run(curve.tokens[1:], cheap)
        return (
            f"{n} tokens cost {curve.ratio(n):.2f} × one: checking is nearly free up to there, "
            f"so speculation can pay up to k = {n - 1} in {dtype}"
        )
    n = 4 if curve.tokens[-1] >= 4 else curve.tokens[-1]
    ratio = curve.ratio(n)
    if ratio >= HOPELESS:
        advice = "; bfloat16 may, try --compare-dtype bfloat16" if dtype == "float32" else ""
        return f"{n} tokens cost {ratio:.2f} × one: speculation can hardly pay in {dtype} here{advice}"
    return f"{n} tokens cost {ratio:.2f} × one: it pays only with few guesses and a cheap, good draft"


def _last_of_run(tokens: Sequence[int], cheap: Sequence[int]) -> int:
    last = tokens[0]
    for n in tokens:
        if n not in cheap:
            break
        last = n
    return last
