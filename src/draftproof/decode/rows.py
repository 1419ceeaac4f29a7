"""The target's rows of one round, each with the history that its position really has."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import isfinite
from typing import Any

from torch import Tensor

from draftproof.errors import EngineError
from draftproof.records import Logprob
from draftproof.sampling.laws import law_of
from draftproof.sampling.sampler import Sampler


class Rows:
    """Position i of a round stands behind the text and the first i guesses.

    A sampler may keep a state, and then has to see every position of the text once and in order. So a row is asked for
    when those before it are settled, or, under a rule that judges all rows together, through samplers that look ahead.
    What stands behind an end token (`ends`) is never text, so nobody is asked about it. Without a sampler a token is
    the largest logit of its row.
    """

    def __init__(
        self,
        logits: Any,
        sequence: Sequence[int],
        guesses: Sequence[int],
        sampler: Sampler | None,
        ends: Collection[int],
    ) -> None:
        self._logits = logits
        self._sequence = sequence
        self._guesses = guesses
        self._sampler = sampler
        self._ends = ends
        self._ahead: Sampler | None = None
        self._last: Any = None
        self._ranked: tuple[list[bool], list[int]] | None = None

    def token(self, i: int) -> int:
        """Return the target's own token at position i; of equal logits the lowest id. Raises `EngineError` for NaN."""
        if self._is_over(i):
            return self._guesses[i - 1]
        if self._sampler is not None and not self._sampler.untouched:
            return self._sampler.token(self._logits[i], self._history(i))
        if self._ranked is None:  # all rows at once, so that a device is waited for once
            best, choices = self._logits.max(dim=-1)
            self._ranked = best.isnan().tolist(), choices.tolist()
        if self._ranked[0][i]:
            raise EngineError("the target's logits are not numbers (NaN); try dtype='float32', or check the weights.")
        return self._ranked[1][i]

    def law(self, i: int) -> Any:
        """Return the target's law at position i, `[width]`."""
        return self._law(self._own, i)

    def law_ahead(self, i: int) -> Any:
        """As `law`, for a row that may turn out to stand behind a guess that fails."""
        if i == 0:
            return self._law(self._own, i)  # this one is text, whatever is kept
        if self._ahead is None:
            self._ahead = self._own.look_ahead()
        return self._law(self._ahead, i)

    def settle(self, accepted: int) -> None:
        """Tell the sampler which of the rows that were looked at became text: the first `accepted` + 1."""
        if self._own.keeps_state:
            for i in range(1, accepted + 1):
                self._law(self._own, i)

    @property
    def _own(self) -> Sampler:
        assert self._sampler is not None, "without a sampler nothing is drawn"
        return self._sampler

    def _law(self, sampler: Sampler, i: int) -> Any:
        if not self._is_over(i):
            self._last = sampler.law(self._logits[i], self._history(i))
        return self._last

    def _is_over(self, i: int) -> bool:
        return i > 0 and self._guesses[i - 1] in self._ends

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
