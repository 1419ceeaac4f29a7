"""Speculative decoding inside transformers' own `generate`, through its `custom_generate` argument."""

from __future__ import annotations

import weakref
from dataclasses import replace
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
from draftproof.control import Controller, controller_of, reproducible
from draftproof.decode.loop import Decoding
from draftproof.engines.hook_criteria import Criteria
from draftproof.engines.hook_options import check_inputs, check_options, streamer_of
from draftproof.errors import ConfigError, PairError
from draftproof.models.session import ModelSession
from draftproof.models.tokens import Agreement, compare_vocabularies
from draftproof.models.trial import check_cache
from draftproof.options import Options, Rule
from draftproof.propose.draft import Draft
from draftproof.records import Generation
from draftproof.sampling.chance import SeededChance
from draftproof.sampling.processors import clone
from draftproof.sampling.sampler import RowSampler
from draftproof.verify import JUDGES

PADDED = 0.01
"""Output sizes of one vocabulary differ by at most this part, where rows are padded for speed."""


def custom_generate(
    draft: PreTrainedModel,
    k: int | str | Controller = "auto",
    *,
    tokenizer: Any = None,
    draft_tokenizer: Any = None,
    streamer: BaseStreamer | None = None,
    verify: Rule = "coupled",
) -> CustomGenerate:
    """Return a callable for `model.generate(..., custom_generate=...)` that lets `draft` guess `k` tokens a round, or
    as many as pay, as in `Speculator`.

    With both tokenizers given the pair is checked, and `PairError` names the first id that means two things. `draft`
    may be a PEFT model. Requests of one text are served, with transformers' own logits processors and stopping
    criteria; an option that would be ignored raises `ConfigError` naming it. With `do_sample=True` guesses are judged
    by `verify`, and the seed comes from torch's generator, so `torch.manual_seed` decides the text; under `"coupled"`
    the text is the same for any draft and k. The streamer may be given here or to `generate`. `generate` keeps its
    `tokenizer` from such a callable, so for stop strings give it a `StopStringCriteria`.

    After a call, `.generation` of the callable holds its ledger, also of a text that an error ended; a returned
    dictionary holds `sequences` alone.
    """
    Options(verify=verify)
    agreement = None
    if tokenizer is not None and draft_tokenizer is not None:
        agreement = compare_vocabularies(tokenizer, draft_tokenizer)
    return CustomGenerate(draft, k, streamer, verify, agreement)


class CustomGenerate:
    """What `custom_generate` returns."""

    def __init__(
        self,
        draft: PreTrainedModel,
        k: int | str | Controller,
        streamer: BaseStreamer | None = None,
        verify: Rule = "coupled",
        agreement: Agreement | None = None,
    ) -> None:
        self.draft = _bare(draft)
        check_cache(self.draft)
        self.controller = controller_of(k)
        self.streamer = streamer
        self.verify: Rule = verify
        self.generation: Generation | None = None
        """The record of the last call; its `text` is empty, since transformers deals in tokens here."""
        self._notes = [agreement.note] if agreement and agreement.note else []
        self._same_vocabulary = agreement is not None
        self._never = agreement.differing if agreement else frozenset()
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
        self.generation = None
        given = streamer_of(input_ids)
        notes = [*self._notes, *check_options(generation_config)]
        if model not in self._checked:  # before its inputs: other kinds of model have other inputs
            check_cache(model)
            self._checked.add(model)
        check_inputs(model, input_ids, model_kwargs)
        target, draft = ModelSession(model), ModelSession(self.draft)
        if not self._same_vocabulary and abs(target.width - draft.width) > PADDED * max(target.width, draft.width):
            notes.append(
                f"output sizes {target.width} (target) and {draft.width} (draft) differ by more than padding does, and "
                "nobody compared the tokenizers; give tokenizer and draft_tokenizer to custom_generate"
            )
        prompt = input_ids[0].tolist()
        stop = Criteria(input_ids, stopping_criteria)
        if target.window is not None and stop.limit > target.window:
            room = target.window - len(prompt)
            less = f"give max_new_tokens={room} or less, or a shorter prompt" if room > 0 else "shorten the prompt"
            raise ConfigError(
                f"a text of {stop.limit} tokens is asked for, the prompt's {len(prompt)} among them, and this model "
                f"reads {target.window}; {less}."
            )
        clone(logits_processor)  # what cannot look ahead is refused before anything is written
        seed = int(torch.randint(2**53, ())) if generation_config.do_sample else None
        sampler = RowSampler(  # temperature and truncation are among the processors
            Options(temperature=1.0 if generation_config.do_sample else 0.0, verify=self.verify),
            SeededChance(seed or 0),
            width=target.width,
            device=model.device,
            custom=logits_processor,
        )
        decoding = Decoding(
            target,
            prompt,
            proposer=Draft(draft, target.width, sampler, stop.end_tokens, never=self._never),
            k=reproducible(self.controller) if JUDGES[sampler.rule].draws else self.controller,
            stop=stop,
            clock=DeviceClock(str(model.device), str(self.draft.device)),
            sampler=sampler,
            seed=seed,
        )
        if self.streamer is not None and self.streamer is not given:
            self.streamer.put(input_ids.cpu())  # as generate has told the one that it was given
        streamers = list({id(one): one for one in (given, self.streamer) if one is not None}.values())
        try:
            for done in decoding:
                for token in done.tokens:
                    for streamer in streamers:
                        streamer.put(torch.tensor([token]))
        finally:
            made = decoding.generation()
            self.generation = replace(made, warnings=(*notes, *made.warnings))
        for streamer in streamers:
            streamer.end()
        written = torch.tensor([made.tokens], dtype=input_ids.dtype, device=input_ids.device)
        sequences = torch.cat([input_ids, written], dim=1)
        return (
            GenerateDecoderOnlyOutput(sequences=sequences) if generation_config.return_dict_in_generate else sequences
        )


def _bare(draft: Any) -> PreTrainedModel:
    """Return the transformers model that guesses: of a PEFT model the one that its adapters are built into."""
    if getattr(getattr(draft, "active_peft_config", None), "is_prompt_learning", False):
        raise PairError(
            "the draft has a learned prompt, which would be left out; give a model whose adapters are layers."
        )
    inner = draft
    if not isinstance(draft, PreTrainedModel) and callable(getattr(draft, "get_base_model", None)):
        inner = draft.get_base_model()
    if not isinstance(inner, PreTrainedModel):
        raise PairError(
            f"the draft must be a transformers model, got {type(draft).__name__}; "
            "load it with AutoModelForCausalLM.from_pretrained."
        )
    return inner
