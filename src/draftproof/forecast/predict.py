"""What a trace and measured costs forecast, with how sure that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftproof.control import Controller, Fixed, controller_of, policy_of, reproducible
from draftproof.errors import ConfigError
from draftproof.forecast.expect import Expected, Shape, expect
from draftproof.forecast.replay import replay
from draftproof.forecast.trace import Sample, Text, Trace
from draftproof.records import Interval, count
from draftproof.results import ForecastCell

Floats = NDArray[np.float64]
RESAMPLES = 500
LONGEST = 97
"""Rounds that took longer than so many per cent of their kind count as these did."""
CONFIDENCE = 0.9
RERUN = 0.03
"""By how much, as a standard deviation, a speedup differs when all is run again: a machine's pace is drawn anew then,
which rounds of one run cannot show. docs/forecast.md says where it is from."""
ALL = "all texts"
"""The workload of a cell over all of a trace."""


def forecast(trace: Trace, draft: str, workload: str, k: int | str | Controller, seed: int = 0) -> ForecastCell:
    """Return what the loop would make of a workload's texts with a draft at `k`. Raises `ConfigError`.

    Counts are exact (`replay`), or expected where guesses are drawn (`expect`). Seconds are means of measured rounds;
    the interval resamples the prompts, where there are several, and the measured rounds, and allows for the pace of
    another run. `workload` may be `ALL`.
    """
    texts = [text for text in trace.texts if workload in (text.workload, ALL)]
    if not texts or draft not in texts[0].drafts:
        raise ConfigError(f"the trace holds no texts of {workload!r} with {draft!r}.")
    policy = controller_of(k)
    costs = costs_of(trace, draft, policy.most, seed)
    told = [_told(text, draft, policy, costs, trace) for text in texts]
    plain = np.array([text.prompt_s + len(text.tokens) * costs.plain for text in texts])
    made = np.array([_seconds(text, draft, one.shapes, costs) for text, one in zip(texts, told, strict=True)])
    draws = np.arange(1, RESAMPLES + 1)[:, None]  # the first of all costs is the one without resampling
    speedup = ratio_of(plain, made, draws, seed)
    return ForecastCell(
        workload=workload,
        draft=draft,
        k=policy_of(policy) or policy.most,
        texts=len(texts),
        tokens=sum(len(text.tokens) for text in texts),
        rounds=round(sum(one.rounds for one in told)),
        proposed=round(sum(one.proposed for one in told)),
        accepted=round(sum(one.accepted for one in told)),
        draft_passes=round(sum(times * shape[1] for one in told for shape, times in one.shapes.items())),
        speedup=speedup,
    )


def ratio_of(plain: Floats, made: Floats, draws: NDArray[np.int_], seed: int = 0) -> Interval:
    """Return by how much texts that take `plain` seconds are faster in `made`, both `[texts, draws of the costs]`, the
    first being the costs themselves; the interval resamples the texts, takes costs from `draws` `[RESAMPLES, 1]`, and
    allows for the pace of another run.
    """
    chance = np.random.default_rng(seed + 1)
    chosen = chance.integers(len(plain), size=(RESAMPLES, len(plain)))
    ratios = plain[chosen, draws].sum(axis=1) / made[chosen, draws].sum(axis=1)
    ratios *= np.exp(RERUN * chance.standard_normal(RESAMPLES))
    low, high = np.percentile(ratios, [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)])
    return Interval(float(plain[:, 0].sum() / made[:, 0].sum()), float(low), float(high), CONFIDENCE)


def _told(text: Text, draft: str, policy: Controller, costs: Costs, trace: Trace) -> Expected:
    """Return what the loop does on a text: replayed, or where guesses are drawn what is expected."""
    if text.drafts[draft].odds:
        policy = reproducible(policy)
        if not isinstance(policy, Fixed):
            raise ConfigError(f"under verify={trace.options.verify!r} only a fixed k can be forecast, and auto.")
        return expect(text, draft, policy.most, trace.options.rule)
    rounds = replay(text, draft, policy, costs, trace.depth)
    counts = count(rounds)
    shapes = Counter((len(r.proposed), r.draft_passes) for r in rounds)
    return Expected(counts.rounds, counts.proposed, counts.accepted, shapes)


def costs_of(trace: Trace, draft: str, most: int, seed: int = 0) -> Costs:
    """Return what rounds of a draft with at most `most` guesses cost. Raises `ConfigError` if none was measured."""
    return Costs.drawn(trace.plain, trace.rounds[draft], most, np.random.default_rng(seed))


def best_of(cells: Iterable[ForecastCell]) -> ForecastCell:
    """Return the fastest cell; of equals the one that guesses least."""
    return max(cells, key=lambda cell: (cell.speedup.value, -cell.proposed))


@dataclass(frozen=True, slots=True)
class _Curve:
    """Seconds of what takes so many tokens or passes: means of what was measured, and resampled ones behind them."""

    sizes: Floats
    seconds: Floats
    """`[RESAMPLES + 1, sizes]`."""

    @classmethod
    def drawn(cls, measured: Iterable[tuple[int, float]], rng: np.random.Generator) -> _Curve:
        by_size: dict[int, list[float]] = {}
        for size, seconds in measured:
            by_size.setdefault(size, []).append(seconds)
        sizes = sorted(by_size) or [1]
        return cls(np.asarray(sizes, float), np.stack([_means(by_size.get(n, []), rng) for n in sizes], axis=1))

    def at(self, size: int) -> Floats:
        """Seconds of one of this size, straight between measured ones."""
        return np.array([np.interp(size, self.sizes, row) for row in self.seconds])


def _means(values: Sequence[float], rng: np.random.Generator) -> Floats:
    """Return the mean, as seconds of texts are sums, what took far too long by chance cut; then resampled ones."""
    known = np.asarray(values or [0.0])[-400:]
    known = np.minimum(known, np.percentile(known, LONGEST))
    again = known[rng.integers(len(known), size=(RESAMPLES, len(known)))]
    return np.concatenate([[known.mean()], again.mean(axis=1)])


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of the parts of a round: the means of what was measured, and behind them `RESAMPLES` resampled ones."""

    plain: Floats
    overhead: Floats
    idle: Floats
    draft: _Curve
    """Of a round's guesses, by their number: the first pass of a round is not like the others."""
    target: _Curve
    """Of the target's pass, by its tokens."""
    width: int | None
    """Tokens of every pass, where passes are padded."""

    @classmethod
    def drawn(cls, plain: Sequence[Sample], rounds: Sequence[Sample], most: int, rng: np.random.Generator) -> Costs:
        """Return the costs of one draft's rounds, with at most `most` guesses. Raises `ConfigError`."""
        if not plain or not rounds:
            raise ConfigError("the trace holds no measured rounds; record it with at least one probe.")
        busy = [one for one in rounds if one.guesses]
        return cls(
            plain=_means([one.draft_s + one.target_s + one.overhead_s for one in plain], rng),
            overhead=_means([one.overhead_s for one in busy], rng),
            idle=_means([one.draft_s + one.overhead_s for one in rounds if not one.guesses], rng),
            draft=_Curve.drawn(((one.draft_passes or one.guesses, one.draft_s) for one in busy), rng),
            target=_Curve.drawn(((one.padded or one.guesses + 1, one.target_s) for one in rounds), rng),
            width=most + 1 if any(one.padded for one in rounds) else None,
        )

    @property
    def plain_s(self) -> float:
        """Seconds of a plain round."""
        return float(self.plain[0])

    def draft_s(self, passes: int, guesses: int) -> float:
        """Seconds in which so many guesses are made."""
        return float(self.draft.at(passes or guesses)[0]) if guesses else 0.0

    def target_s(self, guesses: int) -> float:
        """Seconds of the target's pass over the pending token and so many guesses."""
        return float(self.target.at(self.width or guesses + 1)[0])

    def overhead_s(self, guesses: int) -> float:
        """Seconds of the rest of such a round."""
        return float((self.overhead if guesses else self.idle)[0])


def _seconds(text: Text, draft: str, shapes: Mapping[Shape, float], costs: Costs) -> Floats:
    """Return the seconds of one text, for all draws of the costs."""
    found = np.full(RESAMPLES + 1, text.prompt_s + text.drafts[draft].prompt_s)
    for (guesses, passes), times in shapes.items():
        found += times * (costs.target.at(costs.width or guesses + 1) + (costs.overhead if guesses else costs.idle))
        if guesses:
            found += times * costs.draft.at(passes or guesses)
    return found
