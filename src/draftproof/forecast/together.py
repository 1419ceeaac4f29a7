"""Several requests at once, from a trace: each its own text, and one pass of each model for all. A pure function."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from draftproof.errors import ConfigError
from draftproof.forecast.expect import Shape
from draftproof.forecast.predict import Costs
from draftproof.forecast.trace import Trace

Curve = tuple[list[int], list[float]]
"""Tokens of passes, and their seconds."""


class Wide:
    """Seconds of passes over many tokens: the loop's own as far as it knows them, and their growth as measured."""

    def __init__(self, trace: Trace, draft: str, costs: Costs) -> None:
        """Raises `ConfigError` for a trace without wide passes."""
        self._costs = costs
        self._target = _growth(trace.wide, trace.target)
        self._draft = _growth(trace.wide, draft) if any(one.draft_passes for one in trace.rounds[draft]) else None

    def target_s(self, tokens: int) -> float:
        """Seconds of the target's pass over so many tokens, of all requests together."""
        return _times(self._target, tokens) * self._costs.target_s(0)

    def draft_s(self, passes: Sequence[int], guesses: Sequence[int]) -> float:
        """Seconds in which requests guess together, those that still do in one pass."""
        if self._draft is None:
            return sum(self._costs.draft_s(0, one) for one in guesses)
        spent, before = 0.0, 0.0
        for step in range(1, max(passes, default=0) + 1):
            rows, whole = sum(one >= step for one in passes), self._costs.draft_s(step, step)
            spent += (whole - before) * _times(self._draft, rows)
            before = whole
        return spent


def together(texts: Iterable[Sequence[Shape]], size: int, costs: Costs, wide: Wide) -> float:
    """Return the seconds in which texts are written, `size` of them at a time; where one ends the next begins.

    `texts` are the shapes of their rounds. Prompts are left out.
    """
    waiting = iter(texts)
    running: list[Iterator[Shape]] = [iter(one) for one in islice(waiting, size)]
    seconds = 0.0
    while running:
        now, going = [], []
        for one in running:
            current: Iterator[Shape] | None = one
            while current is not None and (shape := next(current, None)) is None:
                following = next(waiting, None)
                current = None if following is None else iter(following)
            if current is not None and shape is not None:
                now.append(shape)
                going.append(current)
        running = going
        if now:
            guesses, passes = [guesses for guesses, _ in now], [passes for _, passes in now]
            seconds += wide.draft_s(passes, guesses) + wide.target_s(sum(guesses) + len(now))
            seconds += sum(costs.overhead_s(one) for one in guesses)
    return seconds


def _times(curve: Curve, tokens: int) -> float:
    """Return by how much a pass over so many tokens takes longer than one over one."""
    sizes, seconds = curve
    beyond = 0.0
    if tokens > sizes[-1] and len(sizes) > 1:
        beyond = (tokens - sizes[-1]) * max(0.0, seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2])
    return (float(np.interp(tokens, sizes, seconds)) + beyond) / seconds[0]


def _growth(wide: Mapping[str, Sequence[tuple[int, float]]], name: str) -> Curve:
    known = sorted(wide.get(name, ()))
    if not known or known[0][0] != 1:
        raise ConfigError(f"the trace holds no passes of {name!r} over many tokens; record it with batch sizes.")
    return [tokens for tokens, _ in known], [seconds for _, seconds in known]
