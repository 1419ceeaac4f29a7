"""transformers' stopping criteria as a stop rule of the loop."""

from __future__ import annotations

import copy

import torch
from transformers import StopStringCriteria
from transformers.generation import (
    EosTokenCriteria,
    MaxLengthCriteria,
    MaxTimeCriteria,
    StoppingCriteria,
    StoppingCriteriaList,
)

from draftproof.records import FinishReason

_NO_LIMIT = 1 << 30


class Criteria:
    """Ends a text as the criteria say: they see it grow one token at a time, each once, whichever round brings it.

    `reason` is `stop` for an end token, a stop string or a criterion of the user's, with `match` the token's id, the
    string, or the criterion's class; `length` for the limit; and `cancelled` for a time limit, which says nothing about
    the text, with `match` naming its class. If several end it at once, the first of these counts.
    """

    def __init__(self, prompt: torch.Tensor, criteria: StoppingCriteriaList) -> None:
        self._ids = prompt
        self._criteria = criteria
        limits = [int(one.max_length) for one in criteria if isinstance(one, MaxLengthCriteria)]
        self.limit = min(limits, default=_NO_LIMIT)
        """Most tokens of the text, the prompt's among them."""
        self._remaining = self.limit - prompt.shape[1]
        ends = [one.eos_token_id for one in criteria if isinstance(one, EosTokenCriteria)]
        self.end_tokens = frozenset(int(token) for one in ends for token in torch.as_tensor(one).flatten())
        """Tokens that end the text by themselves."""
        self.warning: str | None = None
        self.text = ""
        self.reason: FinishReason | None = None
        self.match: int | str | None = None

    @property
    def remaining(self) -> int:
        return self._remaining

    def push(self, token: int) -> bool:
        self._remaining -= 1
        self._ids = torch.cat([self._ids, self._ids.new_tensor([[token]])], dim=1)
        met = [one for one in self._criteria if bool(torch.as_tensor(one(self._ids, None)).all())]
        if met:
            first = min(met, key=_rank)
            self.reason, self.match = _why(first, self._ids)
        return self.reason is not None

    def cancel(self) -> None:
        self.reason = self.reason or "cancelled"


def _rank(criterion: StoppingCriteria) -> tuple[bool, ...]:
    last = (isinstance(criterion, MaxTimeCriteria), isinstance(criterion, MaxLengthCriteria))
    return (*last, not isinstance(criterion, EosTokenCriteria), not isinstance(criterion, StopStringCriteria))


def _why(criterion: StoppingCriteria, ids: torch.Tensor) -> tuple[FinishReason, int | str | None]:
    if isinstance(criterion, EosTokenCriteria):
        return "stop", int(ids[0, -1])
    if isinstance(criterion, StopStringCriteria):
        return "stop", _completed(criterion, ids)
    if isinstance(criterion, MaxLengthCriteria):
        return "length", None
    return "cancelled" if isinstance(criterion, MaxTimeCriteria) else "stop", type(criterion).__name__


def _completed(criterion: StopStringCriteria, ids: torch.Tensor) -> str:
    """The stop string that the last token completes; of several, the one that was given first."""
    if len(criterion.stop_strings) > 1 and hasattr(criterion, "target_lens"):
        for i, string in enumerate(criterion.stop_strings):
            only = copy.copy(criterion)  # it tells only that one of its strings is complete: make the others too long
            only.target_lens = torch.full_like(criterion.target_lens, torch.iinfo(torch.int32).max)
            only.target_lens[i] = criterion.target_lens[i]
            if bool(only(ids, None).all()):
                return str(string)
    return str(criterion.stop_strings[0]) if len(criterion.stop_strings) == 1 else type(criterion).__name__
