"""The peer: transformers' own generation on the same models, with its settings kept from leaking between runs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from transformers import GenerationConfig

from draftproof.clock import Clock
from draftproof.models.given import refuse_given_up
from draftproof.models.load import Loaded

ARMS = ("hf-plain", "hf-assisted-constant", "hf-assisted-default", "hf-prompt-lookup")


class HfAssisted:
    """One way of transformers' `generate`: plain, assisted with a constant k, assisted with its own adaptive schedule,
    or prompt lookup (see `ARMS`). Greedy, and with the target's end tokens, as our own runs are."""

    def __init__(self, arm: str, target: Loaded, draft: Loaded, k: int, clock: Clock) -> None:
        assert arm in ARMS
        for loaded in (target, draft):
            refuse_given_up(loaded.model)
        self.name = f"{arm} k={k}" if arm == "hf-assisted-constant" else arm
        self._arm = arm
        self._target = target
        self._draft = draft
        self._k = k
        self._clock = clock

    def generate(self, prompt: Sequence[int], max_new_tokens: int) -> tuple[tuple[int, ...], float]:
        """Return the generated ids and the seconds they took."""
        ids = torch.tensor([list(prompt)], device=self._target.model.device)
        ends = sorted(self._target.end_tokens)
        config = GenerationConfig(
            max_new_tokens=max_new_tokens,
            do_sample=False,
            eos_token_id=ends or None,
            pad_token_id=ends[0] if ends else 0,
            prompt_lookup_num_tokens=10 if self._arm == "hf-prompt-lookup" else None,
        )
        kwargs: dict[str, Any] = {"generation_config": config, "attention_mask": torch.ones_like(ids)}
        target, draft = self._target.model, self._draft.model
        own, theirs = target.generation_config, draft.generation_config
        if self._arm.startswith("hf-assisted"):
            draft.generation_config = self._draft_config(theirs)
            kwargs["assistant_model"] = draft
            if self._target.model.config.vocab_size != draft.config.vocab_size:
                kwargs |= {"tokenizer": self._target.tokenizer, "assistant_tokenizer": self._draft.tokenizer}
        if target is not draft:
            target.generation_config = GenerationConfig()
        try:
            started = self._clock.now()
            out = target.generate(ids, **kwargs)
            seconds = self._clock.now() - started
        finally:
            draft.generation_config, target.generation_config = theirs, own
        return tuple(int(i) for i in out[0, len(prompt) :]), seconds

    def _draft_config(self, theirs: GenerationConfig) -> GenerationConfig:
        """A copy for one run: transformers writes the adapted number of tokens back into the draft's settings."""
        config = copy.deepcopy(theirs)
        if self._arm == "hf-assisted-constant":
            config.num_assistant_tokens = self._k
            config.num_assistant_tokens_schedule = "constant"
            config.assistant_confidence_threshold = 0.0
        return config
