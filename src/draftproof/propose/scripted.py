"""Guesses that a function makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from draftproof.exchange import Proposal, Verdict
from draftproof.sampling.chance import Chance


class Scripted:
    """Proposes what `script(sequence, k)` returns."""

    def __init__(self, script: Callable[[Sequence[int], int], Sequence[int]]) -> None:
        self._script = script

    def begin(self, prompt: Sequence[int], reserve: int) -> None:
        pass

    def propose(self, sequence: Sequence[int], k: int, chance: Chance) -> Proposal:
        return Proposal(tuple(self._script(sequence, k)), source="script")

    def hear(self, proposal: Proposal, verdict: Verdict, states: Any) -> None:
        pass
