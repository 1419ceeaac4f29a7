"""Is it faster, and by how much? The ratio of interleaved runs, with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from draftproof.answers import Answer, amounts
from draftproof.records import Generation, Interval

Floats = NDArray[np.float64]
RESAMPLES = 2000
FEWEST_ROUNDS = 10
"""With fewer rounds an arm, the scatter of the times cannot be known, and nothing is said about speed."""


def speedup(pairs: Sequence[tuple[Answer, Answer]], seed: int = 0) -> Interval | None:
    """Return plain seconds / its seconds for a token, over pairs of an answer and its plain twin, with a 95 % interval.

    The texts are taken as they are (the same tokens, or under the rules that draw two texts of one law), so what is
    uncertain is the timing. Where both tell their rounds it is bootstrapped: every round has a usual duration, the mean
    of the rounds with as many guesses in the same text and arm, and how far the rounds stray from theirs is resampled.
    Where one of them does not, the repeats of each text tell how sure it is. The interval speaks of these texts on this
    machine, not of others. None if an arm has fewer than `FEWEST_ROUNDS` rounds, or no text was repeated.
    """
    if not pairs:
        return None
    if not all(mine.rounds and plain.rounds for mine, plain in pairs):
        return _from_repeats(pairs)
    if min(sum(len(pair[i].rounds) for pair in pairs) for i in (0, 1)) < FEWEST_ROUNDS:
        return None
    made, plainly_made = ([cast("Generation", pair[i]) for pair in pairs] for i in (0, 1))
    (usual, strays), (plain_usual, plain_strays) = _durations(made), _durations(plainly_made)
    written, plainly = (sum(len(one.tokens) for one in ones) for ones in (made, plainly_made))

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


def _from_repeats(pairs: Sequence[tuple[Answer, Answer]]) -> Interval | None:
    """Return the same from whole texts: the logarithms of the pairs' ratios stray alike around that of their text."""
    texts: dict[object, list[tuple[float, float]]] = {}
    for mine, plain in pairs:
        written, plainly = amounts(mine, plain)
        if not written or not plainly or mine.total_s <= 0 or plain.total_s <= 0:
            return None
        texts.setdefault(plain.tokens or plain.text, []).append((plain.total_s, mine.total_s * plainly / written))
    logs = [np.log([plain / mine for plain, mine in found]) for found in texts.values()]
    freedom = len(pairs) - len(texts)
    if freedom < 1:
        return None
    scatter = np.sqrt(sum(((log - log.mean()) ** 2).sum() for log in logs) / freedom)
    mine_s = np.array([sum(mine for _, mine in found) for found in texts.values()])
    weights = mine_s / mine_s.sum()
    value = np.log((weights * np.exp([log.mean() for log in logs])).sum())
    wide = stats.t.ppf(0.975, freedom) * scatter * np.sqrt((weights**2 / [len(log) for log in logs]).sum())
    return Interval(*(float(np.exp(at)) for at in (value, value - wide, value + wide)))


def of_ratios(ratios: Sequence[float]) -> Interval | None:
    """Return the mean of ratios of whole runs, taken in pairs, with a 95 % interval; None of a single one."""
    if len(ratios) < 2:
        return None
    logs = np.log(ratios)
    wide = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
    return Interval(*(float(np.exp(at)) for at in (logs.mean(), logs.mean() - wide, logs.mean() + wide)))


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
