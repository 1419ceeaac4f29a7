"""Is it faster, and by how much? The ratio of interleaved runs, with an interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from draftproof.records import Generation, Interval

Floats = NDArray[np.float64]
RESAMPLES = 2000


def speedup(pairs: Sequence[tuple[Generation, Generation]], seed: int = 0) -> Interval:
    """Return plain seconds / speculative seconds over (speculative, plain) pairs, with a 95 % bootstrap interval.

    Both arms wrote the same tokens, so what is uncertain is the timing: each pass's seconds are resampled among the
    passes of the same arm and width. The interval speaks of this text on this machine, not of other texts.
    """
    arms = [_samples([pair[i] for pair in pairs]) for i in (1, 0)]
    varying = [times for samples, _ in arms for times in samples]
    split = len(arms[0][0])
    (_, plain_rest), (_, speculative_rest) = arms

    def ratio(*samples: Floats, axis: int = -1) -> Floats:
        totals = [times.sum(axis=axis) for times in samples]
        return np.asarray((plain_rest + sum(totals[:split])) / (speculative_rest + sum(totals[split:])))

    value = float(ratio(*[np.asarray(times) for times in varying]))
    if not varying:
        return Interval(value, value, value)
    found = stats.bootstrap(
        varying, ratio, n_resamples=RESAMPLES, vectorized=True, method="percentile", rng=np.random.default_rng(seed)
    ).confidence_interval
    return Interval(value, float(found.low), float(found.high))


def _samples(generations: Sequence[Generation]) -> tuple[list[list[float]], float]:
    """Return the seconds of rounds grouped by the number of guesses, and the seconds that occur only once."""
    groups: dict[int, list[float]] = {}
    for generation in generations:
        for r in generation.rounds:
            groups.setdefault(len(r.proposed), []).append(r.draft_s + r.target_s + r.overhead_s)
    several = [times for times in groups.values() if len(times) > 1]
    single = sum(times[0] for times in groups.values() if len(times) == 1)
    return several, single + sum(g.seconds.prompt_s for g in generations)
