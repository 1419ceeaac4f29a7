"""Guesses looked up in the text itself: what followed the last time that it said the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from draftproof.exchange import Proposal, Verdict
from draftproof.propose.base import Terms
from draftproof.sampling.chance import Chance

LONGEST = 4
"""Tokens at the end of the text that are looked for at most; fewer are taken where these were never written."""


class Ngram:
    """Continues the latest earlier place where the text's last n tokens stood, n from `LONGEST` down to 1.

    An index of all places is kept as the text grows, so a look-up takes the same time in a text of any length.
    """

    def __init__(self, terms: Terms) -> None:
        self._places: list[dict[tuple[int, ...], int]] = [{} for _ in range(LONGEST)]
        self._known = 0
        """Tokens of the text whose places are in the index: those that something stands behind."""

    def begin(self, prompt: Sequence[int], reserve: int) -> None:
        self._learn(prompt)

    def propose(self, sequence: Sequence[int], k: int, chance: Chance) -> Proposal:
        self._learn(sequence)
        for n in range(min(LONGEST, len(sequence)), 0, -1):
            place = self._places[n - 1].get(tuple(sequence[-n:]))
            if place is not None:
                return Proposal(tuple(sequence[place : place + k]), source="n-gram")
        return Proposal((), source="n-gram")

    def hear(self, proposal: Proposal, verdict: Verdict, states: Any) -> None:
        """Nothing: what became text is in the text."""

    def _learn(self, text: Sequence[int]) -> None:
        for end in range(max(1, self._known), len(text)):
            for n in range(1, min(LONGEST, end) + 1):
                self._places[n - 1][tuple(text[end - n : end])] = end
        self._known = len(text)
