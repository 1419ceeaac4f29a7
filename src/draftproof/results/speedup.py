"""Is it faster, and by how much? The ratio of interleaved runs, with an interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from draftproof.records import Generation, Interval

Floats = NDArray[np.float64]
RESAMPLES = 2000
FEWEST_ROUNDS = 10
"""With fewer rounds an arm, the scatter of the times cannot be known, and nothing is said about speed."""


def speedup(pairs: Sequence[tuple[Generation, Generation]], seed: int = 0) -> Interval | None:
    """Return plain seconds / speculative seconds for a token, over (speculative, plain) pairs, with a 95 % interval.

    The texts are taken as they are (the same tokens, or under the rules that draw two texts of one law), so what is
    uncertain is the timing, and it is bootstrapped. Every round has a usual duration, the mean of
    the rounds with as many guesses in the same text and arm; how far the rounds stray from theirs is resampled. The
    interval speaks of these texts on this machine, not of others. None if an arm has fewer than `FEWEST_ROUNDS` rounds.
    """
    if not pairs or min(sum(len(pair[i].rounds) for pair in pairs) for i in (0, 1)) < FEWEST_ROUNDS:
        return None
    (usual, strays), (plain_usual, plain_strays) = (_durations([pair[i] for pair in pairs]) for i in (0, 1))
    written, plainly = (sum(len(pair[i].tokens) for pair in pairs) for i in (0, 1))

    def ratio(plain: Floats, speculative: Floats, axis: int = -1) -> Floats:
        return np.asarray(
            (plain_usual * plain).sum(axis=axis) / (usual * speculative).sum(axis=axis) * written / plainly
        )

    found = stats.bootstrap(
        (plain_strays, strays),
        ratio,
        n_resamples=RESAMPLES,
        vectorized=True,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(float(ratio(plain_strays, strays)), float(found.low), float(found.high))


def _durations(generations: Sequence[Generation]) -> tuple[Floats, Floats]:
    """Return, for every round and every reading of a prompt, its usual seconds and actual / usual."""
    groups: dict[tuple[tuple[int, ...], int], list[float]] = {}
    for generation in generations:
        text = generation.tokens
        groups.setdefault((text, -1), []).append(generation.seconds.prompt_s)
        for r in generation.rounds:
            groups.setdefault((text, len(r.proposed)), []).append(r.draft_s + r.target_s + r.overhead_s)
    times = [np.asarray(values) for values in groups.values()]
    usual = [np.full(len(values), values.mean()) for values in times]
    return np.concatenate(usual), np.concatenate([_strays(values) for values in times])


def _strays(seconds: Floats) -> Floats:
    """Return seconds / their mean, spread a little further, as a mean over few values hides some of the scatter."""
    mean, n = seconds.mean(), len(seconds)
    if n < 2 or mean <= 0:
        return np.ones(n)
    return np.asarray(1 + (seconds / mean - 1) * np.sqrt(n / (n - 1)), dtype=np.float64)
