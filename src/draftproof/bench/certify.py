"""Does the text follow the target's law? Every random outcome is walked, in fractions, through the loop itself."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from draftproof.clock import HandSetClock
from draftproof.decode.loop import Decoding
from draftproof.decode.stop import Stop
from draftproof.errors import EngineError
from draftproof.models.session import Whole
from draftproof.options import RULES, Rule
from draftproof.propose.base import Proposer
from draftproof.propose.draft import Draft
from draftproof.propose.scripted import Scripted
from draftproof.records import Generation
from draftproof.results import LawRow
from draftproof.sampling.outcomes import EveryChance, every_outcome

WIDTH, PARTS, LENGTH, END = 4, 8, 4, 3
"""Tokens of the small vocabulary, the denominator of all probabilities, tokens of a text, and the end token."""
Table = Callable[[Sequence[int]], Any]
"""A model: the law of the next token, `[width]` fractions, as a function of the whole history."""
Text = tuple[int, ...]
Law = dict[Text, Fraction]


def table(seed: int) -> Table:
    """Return a model whose laws have nothing to do with each other from history to history; many hold a zero."""

    @cache
    def law_after(history: Text) -> Any:
        source = random.Random(f"{seed} {history}")
        parts = Counter(source.choice([0, 0, 1, 1, 2, 2, END]) for _ in range(PARTS))
        return np.array([Fraction(parts[token], PARTS) for token in range(WIDTH)], dtype=object)

    def law(history: Sequence[int]) -> Any:
        return law_after(tuple(history))

    return law


class LawSession:
    """A session over a table; its rows are laws, not logits."""

    window = None
    width = WIDTH
    rounding = 0.0

    def __init__(self, law: Table) -> None:
        self._law = law

    def begin(self, prompt: Sequence[int], reserve: int) -> int:
        return 0

    def forget(self) -> None:
        pass

    def read(self, sequence: Sequence[int], last: int = 1, whole: Whole | None = None) -> Any:
        return [self._law(sequence[:end]) for end in range(len(sequence) - last + 1, len(sequence) + 1)]

    def write(
        self, sequence: Sequence[int], count: int, ends: Collection[int] = (), floor: float = 0.0
    ) -> tuple[list[int], list[float]]:
        raise NotImplementedError("a table is sampled, not followed greedily")


class LawSampler:
    """A sampler whose rows are laws already."""

    untouched = False
    keeps_state = False

    def __init__(self, rule: Rule, chance: EveryChance) -> None:
        self.rule = rule
        self.chance = chance

    def law(self, row: Any, history: Sequence[int]) -> Any:
        return row

    def token(self, row: Any, history: Sequence[int]) -> int:
        return self.chance.couple(row, len(history))

    def share(self, row: Any, token: int) -> float:
        return float(row[token])

    def look_ahead(self) -> LawSampler:
        return self


def _draft(law: Table) -> Make:
    return lambda sampler: Draft(LawSession(law), WIDTH, sampler, [END])


PAIRS = 3
"""Target and draft are drawn so often."""
Make = Callable[[LawSampler], Proposer]
PROPOSERS: dict[str, Callable[[int], Make]] = {
    "a draft": lambda seed: _draft(table(-1 - seed)),
    "a self-draft": lambda seed: _draft(table(seed)),
    "chosen, no q": lambda _: lambda _: Scripted(lambda sequence, k: [(sum(sequence) + i) % WIDTH for i in range(k)]),
    "chosen, fewer": lambda _: (
        lambda _: Scripted(lambda sequence, k: [(len(sequence) + i) % WIDTH for i in range(k - len(sequence) % 2)])
    ),
}


def write(rule: Rule, make: Make | None, k: int, chance: EveryChance, target: Table) -> Generation:
    """Return a text of a small target, written to its end by the loop that writes every text."""
    sampler = LawSampler(rule, chance)
    decoding = Decoding(
        LawSession(target),
        [0],
        proposer=None if make is None else make(sampler),
        k=k,
        stop=Stop(limit=LENGTH, end_tokens=[END]),
        clock=HandSetClock(),
        sampler=sampler,
    )
    for _ in decoding:
        pass
    return decoding.generation()


def law_of_texts(target: Table, text: Text = ()) -> Law:
    """Return the target's own law over whole texts, by multiplying along each; no loop, no rule."""
    if len(text) == LENGTH or END in text:
        return {text: Fraction(1)}
    found: Law = {}
    for token, probability in enumerate(target([0, *text])):
        if probability:
            for whole, rest in law_of_texts(target, (*text, token)).items():
                found[whole] = probability * rest
    return found


def walk(rule: Rule, name: str, k: int, pairs: int = PAIRS) -> LawRow:
    """Walk every outcome of one rule, proposer and k, and compare the law of the texts with the target's."""
    runs, worst, kept = 0, Fraction(0), Fraction(0)
    for seed in range(pairs):
        law, accepted, walked = law_written(rule, PROPOSERS[name](seed) if k else None, k, table(seed))
        runs += walked
        worst = max(worst, largest_difference(law, law_of_texts(table(seed))))
        kept += accepted / pairs
    who = name if k else "none (plain)"
    return LawRow(rule, who, k, outcomes=runs, largest_difference=float(worst), first_round=float(kept))


def law_written(rule: Rule, make: Make | None, k: int, target: Table) -> tuple[Law, Fraction, int]:
    """Return the law of the texts, the guesses that the first round keeps (expected), and the outcomes walked."""

    def experiment(chance: EveryChance) -> tuple[Text, int]:
        made = write(rule, make, k, chance, target)
        if made.warnings:  # a proposer that guesses less than it should proves less
            raise EngineError(f"the walk is not of what it says: {made.warnings[0]}.")
        return made.tokens, made.rounds[0].accepted

    outcomes, runs = every_outcome(experiment, grid=PARTS)
    law: Law = {}
    for (text, _), probability in outcomes.items():
        law[text] = law.get(text, Fraction(0)) + probability
    return law, sum((accepted * p for (_, accepted), p in outcomes.items()), Fraction(0)), runs


def largest_difference(law: Law, wanted: Law) -> Fraction:
    """Return the largest difference between two laws, over all texts."""
    return max(abs(law.get(text, Fraction(0)) - wanted.get(text, Fraction(0))) for text in {*law, *wanted})


def jobs(rules: Sequence[Rule] = RULES, ks: Sequence[int] = (0, 1, 2, 3)) -> Iterator[tuple[Rule, str, int]]:
    """Yield what there is to walk: every rule, proposer and k; plain decoding once a rule."""
    for rule in rules:
        for k in ks:
            for name in list(PROPOSERS)[: None if k else 1]:
                yield rule, name, k
