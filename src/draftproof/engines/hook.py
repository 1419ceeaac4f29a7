"""Speculative decoding inside transformers' own `generate`, through its `custom_generate` argument."""

from __future__ import annotations

import weakref
from collections.abc import Collection
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.generation import (
    BaseStreamer,
    GenerateDecoderOnlyOutput,
    GenerationConfig,
    LogitsProcessorList,
    StoppingCriteriaList,
)

from draftproof.clock import DeviceClock
from draftproof.decode.loop import Decoding
from draftproof.engines.request import check_k
from draftproof.errors import ConfigError, PairError
from draftproof.models.session import ModelSession, check_cache
from draftproof.models.tokens import compare_vocabularies
from draftproof.options import Options, Rule
from draftproof.propose.draft import Draft
from draftproof.records import FinishReason, Generation
from draftproof.sampling.chance import SeededChance
from draftproof.sampling.processors import clone
from draftproof.sampling.sampler import RowSampler


def custom_generate(
    draft: PreTrainedModel,
    k: int = 5,
    *,
    tokenizer: Any = None,
    draft_tokenizer: Any = None,
    streamer: BaseStreamer | None = None,
    verify: Rule = "coupled",
) -> CustomGenerate:
    """Return a callable for `model.generate(..., custom_generate=...)` that lets `draft` guess `k` tokens a round.

    With both tokenizers given the pair is checked, and `PairError` names the first id that means two things. After a
    call, `.generation` of the callable holds its ledger. Requests of one sequence are served, with transformers' own
    logits processors and stopping criteria; an option that would be ignored raises `ConfigError` naming it. With
    `do_sample=True` guesses are judged by `verify`, and the seed comes from torch's generator, so `torch.manual_seed`
    decides the text; under `"coupled"` the text is the same for any draft and k. `generate` does not pass its
    `streamer` and `tokenizer` on to such a callable: give the streamer here, and for stop strings give `generate` a
    `StopStringCriteria`.
    """
    Options(verify=verify)
    if tokenizer is not None and draft_tokenizer is not None:
        compare_vocabularies(tokenizer, draft_tokenizer)
    return CustomGenerate(draft, check_k(k), streamer, verify)


class CustomGenerate:
    """What `custom_generate` returns."""

    def __init__(
        self, draft: PreTrainedModel, k: int, streamer: BaseStreamer | None = None, verify: Rule = "coupled"
    ) -> None:
        if not isinstance(draft, PreTrainedModel):
            raise PairError(f"the draft must be a transformers model, got {type(draft).__name__}.")
        check_cache(draft)
        self.draft = draft
        self.k = k
        self.streamer = streamer
        self.verify: Rule = verify
        self.generation: Generation | None = None
        """The record of the last call; its `text` is empty, since transformers deals in tokens here."""
        self._checked: weakref.WeakSet[PreTrainedModel] = weakref.WeakSet()

    def __call__(
        self,
        model: PreTrainedModel,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        **model_kwargs: Any,
    ) -> torch.Tensor | GenerateDecoderOnlyOutput:
        _refuse_ignored(input_ids, generation_config, model_kwargs)
        if model not in self._checked:
            check_cache(model)
            self._checked.add(model)
        target = ModelSession(model)
        prompt = input_ids[0].tolist()
        if target.window is not None and generation_config.max_length > target.window:
            raise ConfigError(
                f"a text of {generation_config.max_length} tokens is asked for, the prompt's {len(prompt)} among them, "
                f"and this model reads {target.window}; give max_new_tokens={target.window - len(prompt)} or less, "
                "or a shorter prompt."
            )
        options = Options(temperature=1.0 if generation_config.do_sample else 0.0, verify=self.verify)
        seed = int(torch.randint(2**53, ())) if generation_config.do_sample else None
        sampler = RowSampler(  # temperature and truncation are among the processors
            options,
            SeededChance(seed or 0),
            width=target.width,
            device=model.device,
            custom=clone(logits_processor),
        )
        ends = _end_tokens(generation_config)
        decoding = Decoding(
            target,
            prompt,
            proposer=Draft(ModelSession(self.draft), target.width, sampler, ends),
            k=self.k,
            stop=_Criteria(input_ids, stopping_criteria, generation_config.max_length - len(prompt), ends),
            clock=DeviceClock(str(model.device), str(self.draft.device)),
            sampler=sampler,
            seed=seed,
        )
        if self.streamer is not None:
            for done in decoding:
                for token in done.tokens:
                    self.streamer.put(torch.tensor([token]))
            self.streamer.end()
        else:
            for _ in decoding:
                pass
        self.generation = decoding.generation()
        written = torch.tensor([self.generation.tokens], dtype=input_ids.dtype, device=input_ids.device)
        sequences = torch.cat([input_ids, written], dim=1)
        return (
            GenerateDecoderOnlyOutput(sequences=sequences) if generation_config.return_dict_in_generate else sequences
        )


class _Criteria:
    """transformers' stopping criteria as a stop rule: they see the text grow one token at a time."""

    def __init__(
        self, prompt: torch.Tensor, criteria: StoppingCriteriaList, limit: int, end_tokens: Collection[int]
    ) -> None:
        self._ids = prompt
        self._criteria = criteria
        self._remaining = limit
        self._end_tokens = end_tokens
        self.text = ""
        self.reason: FinishReason | None = None
        self.match: int | str | None = None

    @property
    def remaining(self) -> int:
        return self._remaining

    def push(self, token: int) -> bool:
        self._remaining -= 1
        self._ids = torch.cat([self._ids, self._ids.new_tensor([[token]])], dim=1)
        if bool(self._criteria(self._ids, None).all()):
            self.reason = "length" if self._remaining <= 0 else "stop"
        return self.reason is not None

    def ends(self, token: int) -> bool:
        return token in self._end_tokens

    def cancel(self) -> None:
        self.reason = self.reason or "cancelled"


def _end_tokens(config: GenerationConfig) -> frozenset[int]:
    ends = config.eos_token_id
    return frozenset() if ends is None else frozenset([ends] if isinstance(ends, int) else ends)


_SERVED = {"attention_mask", "cache", "past_key_values", "use_cache", "logits_to_keep", "cache_position"}
"""Arguments of the model that `generate` prepares itself and that mean here what they mean there."""


def _refuse_ignored(
    input_ids: torch.Tensor,
    config: GenerationConfig,
    model_kwargs: dict[str, Any],
) -> None:
    """Raise `ConfigError` for a request that this callable would not serve as asked."""
    mask = model_kwargs.get("attention_mask")
    if config.num_beams not in (None, 1):
        raise ConfigError(f"num_beams={config.num_beams} is not supported with speculative decoding; use 1.")
    if config.num_return_sequences not in (None, 1):
        raise ConfigError(f"num_return_sequences={config.num_return_sequences} is not supported here; call it again.")
    if input_ids.shape[0] != 1 or input_ids.shape[1] == 0:
        raise ConfigError(f"input_ids has shape {list(input_ids.shape)}; give one sequence of at least one token.")
    if mask is not None and not bool(mask.all()):
        raise ConfigError("attention_mask hides tokens; give one sequence without padding.")
    positions = model_kwargs.get("position_ids")  # generate counts them itself where the caller gives none
    usual = positions is None or positions.flatten().tolist() == list(range(input_ids.shape[1]))
    served = _SERVED | ({"position_ids"} if usual else set())
    ignored = sorted(k for k, v in model_kwargs.items() if v is not None and k not in served)
    if ignored:
        raise ConfigError(f"{', '.join(ignored)} would be ignored here; leave it out, and give input_ids only.")
    cache = model_kwargs.get("cache", model_kwargs.get("past_key_values"))
    if cache is not None and cache.get_seq_length() > 0:
        raise ConfigError("a filled cache was given; draftproof keeps its own, so give the whole text as input_ids.")
    if config.guidance_scale not in (None, 1):
        raise ConfigError(f"guidance_scale={config.guidance_scale} runs a second text, which is not supported here.")
    for name in ("output_scores", "output_logits", "output_attentions", "output_hidden_states"):
        if getattr(config, name, False):
            raise ConfigError(f"{name}=True is not supported here; the ledger is in the callable's `generation`.")
