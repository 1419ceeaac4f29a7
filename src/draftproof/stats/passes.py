"""What measured passes say: the cost curve of a model."""

from __future__ import annotations

from statistics import median

from draftproof.cost import CostCurve
from draftproof.results import PassTimes


def cost_curve(times: PassTimes) -> CostCurve:
    """Return the median cost curve of one model's passes."""
    return CostCurve(tuple(t.tokens for t in times.timings), tuple(float(median(t.seconds)) for t in times.timings))
