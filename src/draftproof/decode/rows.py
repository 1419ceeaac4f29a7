"""The target's rows of one round, each with the history that its position really has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

from torch import Tensor

from draftproof.records import Logprob
from draftproof.sampling.laws import law_of
from draftproof.sampling.sampler import Sampler


class Rows:
    """Position i of a round stands behind the text and the first i guesses.

    A sampler may keep a state, and then has to see every position of the text once and in order. So a row is asked for
    when those before it are settled, or, under a rule that judges all rows together, through samplers that look ahead.
    What stands behind an end token (`ends`) is never text, so nobody is asked about it.
    """

    def __init__(
        self,
        logits: Any,
        sequence: Sequence[int],
        guesses: Sequence[int],
        sampler: Sampler,
        ends: Callable[[int], bool],
    ) -> None:
        self._logits = logits
        self._sequence = sequence
        self._guesses = guesses
        self._sampler = sampler
        self._ends = ends
        self._ahead: Sampler | None = None
        self._last: Any = None

    def token(self, i: int) -> int:
        """Return the target's own token at position i."""
        if self._is_over(i):
            return self._guesses[i - 1]
        return self._sampler.token(self._logits[i], self._history(i))

    def law(self, i: int) -> Any:
        """Return the target's law at position i, `[width]`."""
        return self._law(self._sampler, i)

    def law_ahead(self, i: int) -> Any:
        """As `law`, for a row that may turn out to stand behind a guess that fails."""
        if i == 0:
            return self._law(self._sampler, i)  # this one is text, whatever is kept
        if self._ahead is None:
            self._ahead = self._sampler.look_ahead()
        return self._law(self._ahead, i)

    def settle(self, accepted: int) -> None:
        """Tell the sampler which of the rows that were looked at became text: the first `accepted` + 1."""
        if self._sampler.keeps_state:
            for i in range(1, accepted + 1):
                self._law(self._sampler, i)

    def _law(self, sampler: Sampler, i: int) -> Any:
        if not self._is_over(i):
            self._last = sampler.law(self._logits[i], self._history(i))
        return self._last

    def _is_over(self, i: int) -> bool:
        return i > 0 and self._ends(self._guesses[i - 1])

    def _history(self, i: int) -> Sequence[int]:
        return [*self._sequence, *self._guesses[:i]] if i else self._sequence


def logprobs_of(logits: Tensor, tokens: Sequence[int], top: int) -> tuple[Logprob, ...]:
    """Return the log-probabilities of a round's tokens, `logits` being the rows that they came from."""
    found = []
    for row, token in zip(logits, tokens, strict=False):
        logs = law_of(row).log()
        best = logs.topk(min(top, len(logs)))
        own = float(logs[token])
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        likely = tuple((one, value) for one, value in pairs if isfinite(value))
        found.append(Logprob(token, own if isfinite(own) else None, likely))
    return tuple(found)
