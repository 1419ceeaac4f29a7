"""Every outcome that chance can take, one after another, with its probability: for proofs on small vocabularies."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from typing import Any, TypeVar

Outcome = TypeVar("Outcome", bound=Hashable)
Number = Any
"""A Fraction for exact arithmetic, or a float."""


def every_outcome(
    experiment: Callable[[EveryChance], Outcome], *, grid: int | None = None
) -> tuple[dict[Outcome, Number], int]:
    """Run `experiment` once for every way that its draws can fall; return each result's probability, and the runs.

    The experiment must depend on nothing but the chance that it is given. `grid` is as in `EveryChance`.
    """
    law: dict[Outcome, Number] = {}
    script: list[int] = []
    runs = 0
    while True:
        chance = EveryChance(script, grid)
        result = experiment(chance)
        runs += 1
        law[result] = law.get(result, 0) + chance.probability
        taken = chance.taken
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        if not taken:
            return law, runs
        script = [choice for choice, _ in taken[:-1]] + [taken[-1][0] + 1]


class EveryChance:
    """One path through all outcomes: the choices of `script`, then the first of each.

    Probabilities may be fractions or floats. The noise of a position, which coupled sampling shares, is one of `grid`
    equally likely numbers, of which every probability must be a multiple; a token is where it falls in the summed law.
    """

    def __init__(self, script: Sequence[int] = (), grid: int | None = None) -> None:
        self.probability: Number = 1
        self.taken: list[tuple[int, int]] = []
        """Which of how many possible outcomes each draw had."""
        self._script = script
        self._grid = grid
        self._noise: dict[int, int] = {}

    def accept(self, probability: Number) -> bool:
        probability = _number(probability)
        if probability >= 1 or probability <= 0:
            return bool(probability >= 1)
        return self._choose([probability, 1 - probability]) == 0

    def draw(self, law: Any) -> int:
        return self._choose([_number(p) for p in law])

    def couple(self, scores: Any, position: int) -> int:
        assert self._grid is not None, "coupled draws need a grid"
        if position not in self._noise:
            self._noise[position] = self._choose([Fraction(1, self._grid)] * self._grid)
        total, noise = Fraction(0), Fraction(self._noise[position], self._grid)
        for token, probability in enumerate(scores):
            total += probability
            if noise < total:
                return token
        raise AssertionError("the law does not add up to 1")

    def noisy(self, scores: Any, position: int) -> Any:
        raise NotImplementedError("there is no Gumbel noise here")

    def aside(self, number: int) -> EveryChance:
        return self  # guesses are draws like all others: every way that they can fall is walked

    def _choose(self, weights: Sequence[Number]) -> int:
        possible = [i for i, weight in enumerate(weights) if weight > 0]
        at = len(self.taken)
        choice = self._script[at] if at < len(self._script) else 0
        self.taken.append((choice, len(possible)))
        self.probability *= weights[possible[choice]] / sum(weights)
        return possible[choice]


def _number(value: Any) -> Number:
    return value.item() if hasattr(value, "item") and not isinstance(value, Fraction) else value
