"""From raw results to the numbers and sentences a person reads. No model, no terminal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from draftproof import cost
from draftproof.cost import CostCurve
from draftproof.results import PassTimes
from draftproof.stats.passes import cost_curve

NEARLY_FREE = 1.25
"""A pass over n tokens that costs less than this many single passes counts as nearly free."""
GOOD_DRAFT = 0.8
"""The agreement (alpha) that the verdict supposes of a draft: right four times in five."""
WORTH_IT = 1.2
"""A gain that a draft at c = 0.3 must promise for speculation to be called worth trying."""


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


def precondition_verdict(times: PassTimes) -> str:
    """Say in words whether speculation can pay for this model here, from its cost curve alone."""
    curve = cost_curve(times)
    dtype = times.placement.dtype
    cheap = [n for n in curve.tokens if n > 1 and curve.ratio(n) <= NEARLY_FREE]
    if cheap:
        n = cheap[-1]
        return (
            f"{n} tokens cost {curve.ratio(n):.2f} × one: checking is nearly free up to there, "
            f"so speculation can pay up to k = {n - 1} in {dtype}"
        )
    if len(curve.tokens) < 2:
        return "only one size was measured; measure several to see what more tokens cost"
    n = next((n for n in curve.tokens if n >= 4), curve.tokens[-1])
    (usual_k, usual), (cheap_k, cheap_gain) = (_promise(curve, c) for c in (0.3, 0.05))
    word = "can pay with the right draft" if usual >= WORTH_IT else "can hardly pay"
    advice = "; bfloat16 may be better: compare it" if dtype == "float32" else ""
    return (
        f"{n} tokens cost {curve.ratio(n):.2f} × one: speculation {word} in {dtype} here. "
        f"A draft that is right four times in five would make {usual:.2f} × at c = 0.3 (k = {usual_k}), "
        f"{cheap_gain:.2f} × at c = 0.05 (k = {cheap_k}){advice}"
    )


def _promise(curve: CostCurve, c: float) -> tuple[int, float]:
    """The best measured k and its speedup for a good draft of cost `c`."""
    ks = [n - 1 for n in curve.tokens if n > 1]
    gains = [(cost.forecast(GOOD_DRAFT, k, curve, c * curve.at(1)), k) for k in ks]
    gain, k = max(gains, key=lambda pair: (pair[0], -pair[1]))
    return (k, gain) if gain > 1 else (0, 1.0)
