"""transformers' own generation on the same models, with its settings kept from leaking between runs."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Sequence
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.generation.streamers import BaseStreamer

from draftproof.answers import Reply
from draftproof.clock import Clock
from draftproof.engines.base import Engine, Prompt, Writing
from draftproof.engines.local import Speculator
from draftproof.errors import ConfigError
from draftproof.models.given import refuse_given_up
from draftproof.models.load import Loaded
from draftproof.models.windows import window_of
from draftproof.options import Options
from draftproof.results import Arm
from draftproof.settings import USUAL_K

NAME = "hf-assisted"
WAYS = ("hf-plain", "hf-assisted-constant", "hf-assisted-default", "hf-prompt-lookup")


def beside(speculator: Speculator) -> list[Engine]:
    """Return all of transformers' ways to write with the models of `speculator`. Raises `ConfigError`."""
    if speculator.draft is None:
        raise ConfigError(f"{NAME} needs a draft model; name one.")
    k = speculator.k if speculator.policy is None else USUAL_K
    return [HfAssisted(way, speculator.target, speculator.draft, k, speculator.clock) for way in WAYS]


def conditions() -> list[str]:
    """Return what changes how it behaves here, and is not a setting."""
    if importlib.util.find_spec("sklearn") is None:
        return ["hf-assisted-default adapts its confidence threshold only with scikit-learn, which is not installed"]
    return []


class HfAssisted(Engine):
    """One way of transformers' `generate`: plain, assisted with a constant k, assisted with its own adaptive schedule,
    or prompt lookup (see `WAYS`). Greedy, and with the target's end tokens, as our own runs are."""

    def __init__(self, way: str, target: Loaded, draft: Loaded, k: int, clock: Clock) -> None:
        assert way in WAYS
        for loaded in (target, draft):
            refuse_given_up(loaded.model)
        assisted = way.startswith("hf-assisted")
        constant = way == "hf-assisted-constant"
        chosen = k if constant else 0 if way == "hf-plain" else None
        self.arm = Arm(draft.name if assisted else None, chosen, NAME, way)
        self._way = way
        self._target = target
        self._draft = draft
        self._k = k
        self._clock = clock

    def write(self, prompt: Prompt, options: Options, sample: int) -> Writing:
        """Write the whole text at once."""
        reply = self._generate(prompt.ids, options.max_new_tokens)
        yield len(reply.tokens or ())
        return reply

    def _generate(self, prompt: Sequence[int], limit: int) -> Reply:
        window = window_of(self._target.model.config.get_text_config(decoder=True))
        if window is not None:
            limit = min(limit, window - len(prompt))
        ids = torch.tensor([list(prompt)], device=self._target.model.device)
        ends = sorted(self._target.end_tokens)
        config = GenerationConfig(
            max_new_tokens=limit,
            do_sample=False,
            eos_token_id=ends or None,
            pad_token_id=ends[0] if ends else 0,
            prompt_lookup_num_tokens=10 if self._way == "hf-prompt-lookup" else None,
        )
        heard = _Hears(self._clock)
        kwargs: dict[str, Any] = {
            "generation_config": config,
            "attention_mask": torch.ones_like(ids),
            "streamer": heard,
        }
        target, draft = self._target.model, self._draft.model
        own, theirs = target.generation_config, draft.generation_config
        if self._way.startswith("hf-assisted"):
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
        tokens = tuple(int(i) for i in out[0, len(prompt) :])
        tokenizer = self._target.tokenizer
        return Reply(
            text=None if tokenizer is None else tokenizer.decode(tokens, skip_special_tokens=True),
            tokens=tokens,
            finish_reason="stop" if tokens and tokens[-1] in self._target.end_tokens else "length",
            first_s=heard.at[0] - started if heard.at else None,
            total_s=seconds,
            target_passes=len(heard.at),
        )

    def _draft_config(self, theirs: GenerationConfig) -> GenerationConfig:
        """A copy for one run: transformers writes the adapted number of tokens back into the draft's settings."""
        config = copy.deepcopy(theirs)
        if self._way == "hf-assisted-constant":
            config.num_assistant_tokens = self._k
            config.num_assistant_tokens_schedule = "constant"
            config.assistant_confidence_threshold = 0.0
        return config


class _Hears(BaseStreamer):  # type: ignore[misc]
    """When every pass of the target had its tokens: transformers hands out the prompt, then what each pass brought."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._prompt = True
        self.at: list[float] = []

    def put(self, value: torch.Tensor) -> None:
        if not self._prompt:
            self.at.append(self._clock.now())
        self._prompt = False

    def end(self) -> None:
        pass
