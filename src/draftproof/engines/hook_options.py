"""What the hook makes of every option of transformers' `generate`: it serves it, notes it, or refuses it by name."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.generation import GenerationConfig, GenerationMixin

from draftproof.errors import ConfigError

# fmt: off
SERVED = frozenset({  # generate makes processors, criteria and lengths of these, or the hook reads them itself
    "max_length", "max_new_tokens", "min_length", "min_new_tokens", "max_time", "stop_strings", "do_sample",
    "temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff",
    "repetition_penalty", "encoder_repetition_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size",
    "bad_words_ids", "renormalize_logits", "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values",
    "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens", "sequence_bias",
    "watermarking_config", "eos_token_id", "return_dict_in_generate", "disable_compile",
})
# fmt: on
"""Options that mean here what they mean there."""

# fmt: off
UNREAD = frozenset({  # of beams, contrastive search, encoders, batches, other guessers; and marks of the file
    "early_stopping", "length_penalty", "diversity_penalty", "low_memory", "pad_token_id", "bos_token_id",
    "decoder_start_token_id", "continuous_batching_config", "cache_config", "max_matching_ngram_size",
    "speculation_type", "transformers_version", "_from_model_config", "_commit_hash",
})
# fmt: on
"""Options that plain decoding of one text does not read either: what they belong to is refused itself."""

NOTED: dict[str, tuple[tuple[Any, ...], str]] = {
    "use_cache": ((True,), "draftproof keeps its own cache"),
    "cache_implementation": (("dynamic",), "draftproof keeps its own cache"),
    "max_cache_len": ((), "draftproof keeps its own cache"),
    "prefill_chunk_size": ((), "the prompt is read in passes of draftproof's own size"),
    "compile_config": ((), "passes are transformers' own, not compiled"),
    "num_assistant_tokens": ((20,), "the number of guesses is custom_generate's k"),
    "num_assistant_tokens_schedule": (("constant",), "the number of guesses is custom_generate's k"),
    "assistant_confidence_threshold": ((0.4,), "the number of guesses is custom_generate's k"),
    "assistant_lookbehind": ((10,), "the draft reads the target's tokens"),
    "target_lookbehind": ((10,), "the draft reads the target's tokens"),
    "assistant_ensemble_weight": ((), "the text is the target's alone"),
}
"""Options that cannot change the text and are not used here, with their neutral values beside None and why. Set to
something else, they are named in the record's warnings."""

_ELSE = "leave it out, or generate without custom_generate"
REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "num_beams": ((1,), "guesses are checked for one text; use 1"),
    "num_beam_groups": ((1,), "guesses are checked for one text; use 1"),
    "num_return_sequences": ((1,), "one text is written at a time; call it again for another"),
    "constraints": ((), f"it needs beams; {_ELSE}"),
    "force_words_ids": ((), f"it needs beams; {_ELSE}"),
    "guidance_scale": ((1,), f"it runs a second text; {_ELSE}"),
    "penalty_alpha": ((0,), f"contrastive search writes another text; {_ELSE}"),
    "dola_layers": ((), f"layers mixed into the last write another text; {_ELSE}"),
    "prompt_lookup_num_tokens": ((), f"the draft guesses here; {_ELSE}"),
    "assistant_early_exit": ((), f"the draft guesses here; {_ELSE}"),
    "use_mtp": ((False,), f"the draft guesses here; {_ELSE}"),
    "is_assistant": ((False,), "it makes the target somebody's assistant; leave it out"),
    "token_healing": ((False,), "generate keeps its tokenizer to itself; heal the prompt before, or leave it out"),
    "output_scores": ((False,), f"scores are not kept; {_ELSE}"),
    "output_logits": ((False,), f"logits are not kept; {_ELSE}"),
    "output_attentions": ((False,), f"attentions are not kept; {_ELSE}"),
    "output_hidden_states": ((False,), f"hidden states are not kept; {_ELSE}"),
}
"""Options that would be ignored, with their neutral values beside None, and what to do."""

REFUSED_CACHES = {
    "quantized": "it rounds keys and values, which changes the text",
    "offloaded": "draftproof keeps its own cache on the device",
    "offloaded_static": "draftproof keeps its own cache on the device",
}
"""Kinds of `cache_implementation` that change the text, or that somebody needs to have memory enough."""

# fmt: off
ARGUMENTS = frozenset({  # negative prompts are read with guidance_scale only
    "inputs", "generation_config", "logits_processor", "stopping_criteria", "prefix_allowed_tokens_fn",
    "synced_gpus", "assistant_model", "streamer", "negative_prompt_ids", "negative_prompt_attention_mask",
    "custom_generate", "kwargs",
})
# fmt: on
"""Arguments of `generate` that are dealt with."""

_MODEL_INPUTS = {"attention_mask", "cache", "past_key_values", "use_cache", "logits_to_keep", "cache_position"}
"""Arguments of the model that `generate` prepares itself and that mean here what they mean there."""
_SEEN = ("pixel_values", "pixel_values_images", "pixel_values_videos", "image_patches", "input_features")
_KINDS_OF_TOKENS = ("token_type_ids", "mm_token_type_ids")


def streamer_of(input_ids: torch.Tensor) -> Any:
    """Return the streamer that the running `generate` was given; it has heard the prompt, and waits for the rest.

    `generate` does not pass it on to such a callable, nor `assistant_model`, and there is no other way to them than its
    frame. Raises `ConfigError` for what would be ignored. Without a `generate` there is nothing: None.
    """
    code = inspect.unwrap(GenerationMixin.generate).__code__
    frame = inspect.currentframe()
    while frame is not None and not (frame.f_code is code and frame.f_locals.get("input_ids") is input_ids):
        frame = frame.f_back
    if frame is None:
        return None
    given = dict(frame.f_locals)
    if given.get("assistant_model") is not None:
        raise ConfigError(
            "assistant_model would be ignored: the draft of custom_generate guesses; give one of the two."
        )
    if given.get("synced_gpus"):
        raise ConfigError("synced_gpus=True is not supported here; generate without custom_generate.")
    for name, parameter in inspect.signature(GenerationMixin.generate).parameters.items():
        value = given.get(name)
        if name not in ARGUMENTS | {"self"} and value is not None and value is not parameter.default:
            raise ConfigError(_unknown(name, value))
    return given.get("streamer")


def check_options(config: GenerationConfig) -> list[str]:
    """Return notes on options that are not used here; raise `ConfigError` for one that would be ignored."""
    usual: dict[str, Any] = getattr(GenerationConfig, "_get_default_generation_params", dict)()
    notes = []
    for name, default in vars(GenerationConfig()).items():
        value = getattr(config, name, None)
        if name in SERVED | UNREAD or value is None:
            continue
        if name == "cache_implementation" and value in REFUSED_CACHES:
            raise ConfigError(
                f"cache_implementation={value!r} is not used here: {REFUSED_CACHES[value]}; leave it out."
            )
        neutral, why = REFUSED.get(name) or NOTED.get(name) or ((default, usual.get(name)), "")
        if any(value is one or (type(value) is not bool and value == one) for one in neutral):
            continue
        if name in NOTED:
            notes.append(f"{name}={value!r} is not used here: {why}")
        else:
            raise ConfigError(f"{name}={value!r} is not supported here: {why}." if why else _unknown(name, value))
    return notes


def check_inputs(model: PreTrainedModel, input_ids: torch.Tensor, given: dict[str, Any]) -> None:
    """Raise `ConfigError` unless the request is one text, read from its start, without anything beside it."""
    mask = given.get("attention_mask")
    if mask is not None and not bool(mask.all()):
        raise ConfigError("attention_mask hides tokens; give one sequence without padding.")
    own = vars(model).get("prepare_inputs_for_generation")
    if own is not None and getattr(own, "__func__", own) is not type(model).prepare_inputs_for_generation:
        raise ConfigError(
            "this model's prepare_inputs_for_generation was replaced (a learned prompt of PEFT does so), and would not "
            "be called here; generate without custom_generate."
        )
    encoded = {kind: found for kind, found in (given.get("mm_encoder_outputs") or {}).items() if found is not None}
    if seen := [name for name in _SEEN if given.get(name) is not None] or sorted(encoded):
        raise ConfigError(f"the request holds more than text ({', '.join(seen)}); give text alone.")
    ignored = [name for name, value in given.items() if value is not None and not _is_neutral(name, value, model)]
    if ignored:
        raise ConfigError(f"{', '.join(sorted(ignored))} would be ignored here; leave it out, and give input_ids only.")
    if input_ids.shape[0] != 1 or input_ids.shape[1] == 0:
        raise ConfigError(f"input_ids has shape {list(input_ids.shape)}; give one sequence of at least one token.")
    cache = given.get("cache", given.get("past_key_values"))
    if cache is not None and cache.get_seq_length() > 0:
        raise ConfigError("a filled cache was given; draftproof keeps its own, so give the whole text as input_ids.")
    if getattr(cache, "_is_user_defined", False):
        raise ConfigError("a cache was given and would be left empty; draftproof keeps its own, so leave it out.")


def _is_neutral(name: str, value: Any, model: PreTrainedModel) -> bool:
    """Whether an input of the model says nothing that is not so without it."""
    if name in _MODEL_INPUTS:
        return True
    if name == "mm_encoder_outputs":
        return not value or all(found is None for found in value.values())
    if name == "position_ids":  # counted by generate, for some models in several rows, one for each way to count
        rows = value.reshape(-1, value.shape[-1])
        return bool((rows == torch.arange(value.shape[-1], device=value.device)).all())
    if name in _KINDS_OF_TOKENS and hasattr(model.config, "vision_config"):
        return not bool(value.any())  # all text
    return False


def _unknown(name: str, value: Any) -> str:
    return (
        f"{name}={value!r} is an option that this version of draftproof does not know, so it would be ignored; {_ELSE}."
    )
