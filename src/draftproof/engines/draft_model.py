"""A draft model as a proposer: opened and checked once, with one cache, and a `Draft` for every request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from draftproof.clock import Clock
from draftproof.engines.opening import check_pair, open_model, warm_up
from draftproof.models.load import Loaded, notes_of
from draftproof.propose.base import Terms
from draftproof.propose.draft import Draft


class DraftModel:
    """What makes a `Draft` for each request, whose text the newest of them has in its cache.

    `model` is opened beside the target, on its device unless `device` says otherwise, and has to share its tokenizer.
    `window`, `context` and the rest are as in `Speculator`, without their `draft_`. `width` is the target's number of
    logits. Raises `LoadError`, `CacheError`, `PairError` or `ConfigError`.
    """

    def __init__(
        self,
        model: str | Path | PreTrainedModel | Loaded,
        target: Loaded,
        width: int,
        *,
        device: str | None,
        window: int | None,
        context: int | None,
        tokenizer: Any,
        dtype: str,
        **how: Any,
    ) -> None:
        ours, why = (device, "asked for") if device else (target.placement.device, "as the target")
        where = ours if isinstance(model, str | Path) or device else "auto"
        self.loaded = open_model(model, tokenizer, where, dtype, because=why, beside=target, **how)
        self.session = self.loaded.session(window)
        self.context = context
        self._never, notes = check_pair(target, self.loaded, (width, self.session.width))
        known = notes_of(self.loaded.model)
        self.notes = [*(note for note in self.loaded.notes if note not in known), *notes]

    def __call__(self, terms: Terms) -> Draft:
        return Draft(self.session, terms.width, terms.sampler, terms.end_tokens, self.context, never=self._never)

    def warm_up(self, prompt_tokens: int, repeats: int, clock: Clock) -> float:
        """Run passes of the shapes that a request uses, and forget them; return the seconds of one over one token."""
        return warm_up(self.session, (2, 1), prompt_tokens, repeats, clock)[1]
