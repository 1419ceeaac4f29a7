"""One budget for the guesses of all requests in a pass: those that are likeliest to stand, as long as they pay."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median

from draftproof.control.auto import between

RECENT = 9
"""Passes of a size that its seconds are known from."""


class Pace:
    """Seconds of passes, by their tokens: the median of the last few, straight between sizes."""

    def __init__(self, known: Mapping[int, float] | None = None) -> None:
        self._seconds = {n: deque([seconds], RECENT) for n, seconds in (known or {}).items()}

    def learn(self, tokens: int, seconds: float) -> None:
        """Take in what a pass took."""
        self._seconds.setdefault(tokens, deque(maxlen=RECENT)).append(seconds)

    @property
    def known(self) -> int:
        """How many sizes are known."""
        return len(self._seconds)

    def __call__(self, tokens: int) -> float:
        """Return the seconds of a pass over so many tokens, never fewer than over fewer; at least one size is known."""
        points: dict[int, float] = {}
        for n in sorted(self._seconds):
            points[n] = max([median(self._seconds[n]), *points.values()])
        return max(0.0, between(points, tokens))


def shares(survive: Sequence[Sequence[float]], busy: int, target: Pace, draft: Pace) -> tuple[list[int], float]:
    """Return how many guesses each request should ask for, and tokens a second with them.

    `survive` has for each of them the chance that its first, second, … guess stands; `busy` tokens stand in the pass
    anyway, each of which writes one. A guess at depth j takes part in the draft's j-th pass, which serves all requests
    that still guess, and is one token more in the target's. Chosen are those whose chance is worth their seconds at the
    rate that results (Dinkelbach's method for a quotient).
    """
    rate = busy / max(target(busy), 1e-9)
    chosen = [0] * len(survive)
    for _ in range(10):
        found, tokens, seconds = _at_rate(survive, busy, target, draft, rate)
        better = tokens / max(seconds, 1e-9)
        if found == chosen or better <= rate * (1 + 1e-9):
            break
        chosen, rate = found, better
    return chosen, rate


def _at_rate(
    survive: Sequence[Sequence[float]], busy: int, target: Pace, draft: Pace, rate: float
) -> tuple[list[int], float, float]:
    """Return the guesses that are worth most at this rate, with the tokens and seconds that they come to."""
    ks = [0] * len(survive)
    alive = list(range(len(survive)))
    n, tokens, drafting, value = busy, float(busy), 0.0, 0.0
    best = (0.0, list(ks), tokens, target(busy))
    depth = 0
    while alive:
        depth += 1
        alive = [i for i in alive if len(survive[i]) >= depth]
        if not alive:
            break
        slope = (target(n + len(alive)) - target(n)) / len(alive)
        alive = [i for i in alive if survive[i][depth - 1] > rate * slope]
        if not alive:
            break
        more, step = target(n + len(alive)) - target(n), draft(len(alive))
        gained = sum(survive[i][depth - 1] for i in alive)
        n, tokens, drafting = n + len(alive), tokens + gained, drafting + step
        value += gained - rate * (more + step)
        for i in alive:
            ks[i] = depth
        if value > best[0]:
            best = (value, list(ks), tokens, target(n) + drafting)
    return best[1], best[2], best[3]
