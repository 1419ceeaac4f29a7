"""What the rules that draw their guesses are expected to do on a text, from a trace. A pure function.

Given the text that was written, whether a guess stood is a matter of chance whose law is known: under `ratio` the token
`y` was a kept guess with probability min(1, q(y) / p(y)), since it is both guessed and kept with min(p(y), q(y)) and
written with p(y). Under `block` a run of tokens was kept with the least of 1 and its beginnings' Q / P, the products of
these quotients. Neither hangs on what follows, as the next token has the target's law whatever was kept before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from draftproof.forecast.trace import Text
from draftproof.options import Rule

Shape = tuple[int, int]
"""Guesses of a round, and its draft passes."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Expectations over all ways in which the loop may write one text."""

    rounds: float
    proposed: float
    """Where no guess is an end token: behind one that fails there would be fewer."""
    accepted: float
    shapes: Mapping[Shape, float]
    """Rounds of each shape."""


def expect(text: Text, draft: str, k: int, rule: Rule) -> Expected:
    """Return what rounds of `k` guesses, drawn by a draft and judged by `rule`, are expected to come to on a text.

    Exact for texts that end at their limit or at an end token; guesses behind the end of a text are not counted.
    """
    odds, n = text.drafts[draft].odds, len(text.tokens)
    begins = [0.0] * (n + 1)  # the probability that a round begins at a place
    begins[0] = 1.0
    accepted, shapes = 0.0, dict[Shape, float]()
    for at in range(n):
        guesses = max(0, min(k, text.limit - at - 1))
        stands = survival(odds[at : at + guesses], rule)
        shapes[guesses, guesses] = shapes.get((guesses, guesses), 0.0) + begins[at]
        accepted += begins[at] * sum(stands)
        for kept, (now, after) in enumerate(zip((1.0, *stands), (*stands, 0.0), strict=True)):
            begins[min(n, at + kept + 1)] += begins[at] * (now - after)
    return Expected(sum(begins[:n]), sum(times * shape[0] for shape, times in shapes.items()), accepted, shapes)


def survival(odds: Sequence[float], rule: Rule) -> list[float]:
    """Return the probability that each guess of a round was kept, given the text, from q / p of its tokens."""
    found, run, product = [], 1.0, 1.0
    for one in odds:
        product *= one
        run = run * min(1.0, one) if rule == "ratio" else min(run, product)
        found.append(run)
    return found
