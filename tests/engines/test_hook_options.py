"""Every option of transformers' generate, given to the hook: served, noted in the record, or refused by name."""

from __future__ import annotations

import inspect

import pytest
import torch
from transformers import DynamicCache, GenerationConfig, StaticCache
from transformers.generation import CompileConfig, GenerationMixin

from draftproof import ConfigError, custom_generate
from draftproof.engines import hook_options
from draftproof.testing import noisy

PROMPT = torch.tensor([[5, 9, 200, 7]])


def plain(model, **options):
    settings = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0} | options
    return model.generate(PROMPT, attention_mask=torch.ones_like(PROMPT), **settings)


def test_every_option_of_the_installed_transformers_is_in_one_table():
    tables = [hook_options.SERVED, hook_options.UNREAD, set(hook_options.NOTED), set(hook_options.REFUSED)]
    listed = [name for table in tables for name in table]
    assert len(listed) == len(set(listed))
    assert set(vars(GenerationConfig())) <= set(listed)
    assert set(inspect.signature(GenerationMixin.generate).parameters) - {"self"} <= hook_options.ARGUMENTS


@pytest.mark.parametrize(
    "options",
    [
        {"penalty_alpha": 0.6, "top_k": 4},
        {"dola_layers": "low"},
        {"prompt_lookup_num_tokens": 3},
        {"assistant_early_exit": 2},
        {"use_mtp": True},
        {"is_assistant": True},
        {"num_beams": 2},
        {"num_return_sequences": 2, "do_sample": True},
        {"guidance_scale": 1.5},
        {"output_scores": True, "return_dict_in_generate": True},
        {"output_logits": True, "return_dict_in_generate": True},
        {"output_attentions": True, "return_dict_in_generate": True},
        {"output_hidden_states": True, "return_dict_in_generate": True},
        {"cache_implementation": "offloaded"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_an_option_that_would_be_ignored_is_refused_by_name(model, options):
    hook = custom_generate(model)
    name = next(iter(options))
    with pytest.raises(ConfigError, match=rf"{name}=.*is not (supported|used) here: .*(;|use|call|heal|leave)"):
        plain(model, custom_generate=hook, **options)
    assert hook.generation is None


def test_an_assistant_beside_the_draft_is_refused(model):
    with pytest.raises(ConfigError, match="assistant_model would be ignored"):
        plain(model, custom_generate=custom_generate(model), assistant_model=noisy(model, 0.1))


def test_a_quantised_cache_is_refused_since_it_changes_the_text():
    config = GenerationConfig(cache_implementation="quantized")
    with pytest.raises(ConfigError, match=r"cache_implementation='quantized'.*changes the text; leave it out"):
        hook_options.check_options(config)


@pytest.mark.parametrize("name", ["cache", "past_key_values"])
@pytest.mark.parametrize("kind", ["dynamic", "static"])
@pytest.mark.filterwarnings("ignore:.*past_key_values:FutureWarning")
def test_a_cache_of_the_users_is_refused_and_one_that_generate_made_is_not(model, kind, name):
    if name == "cache" and "cache" not in inspect.signature(model.forward).parameters:
        pytest.skip("this transformers knows the other name")
    cache = DynamicCache() if kind == "dynamic" else StaticCache(config=model.config, max_cache_len=32)
    with pytest.raises(ConfigError, match="a cache was given and would be left empty"):
        plain(model, custom_generate=custom_generate(model), **{name: cache})
    if kind == "static":
        options = {"cache_implementation": "static", "max_cache_len": 64, "disable_compile": True}
        assert torch.equal(plain(model, custom_generate=custom_generate(model), **options), plain(model))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("use_cache", False),
        ("cache_implementation", "static"),
        ("prefill_chunk_size", 2),
        ("compile_config", CompileConfig()),
        ("num_assistant_tokens", 8),
        ("assistant_confidence_threshold", 0.9),
    ],
)
def test_an_option_that_cannot_change_the_text_is_noted_in_the_record(model, name, value):
    hook = custom_generate(model, k=3)
    assert torch.equal(plain(model, custom_generate=hook, **{name: value}), plain(model))
    (note,) = hook.generation.warnings
    assert note.startswith(f"{name}=") and "is not used here" in note


def test_neutral_values_say_nothing(model):
    hook = custom_generate(model)
    neutral = {name: values[0] for name, (values, _) in (hook_options.NOTED | hook_options.REFUSED).items() if values}
    assert hook_options.check_options(GenerationConfig(**neutral)) == []
    plain(model, custom_generate=hook)
    assert hook.generation.warnings == ()


def test_an_option_of_a_transformers_to_come_is_refused_when_it_is_set(model, monkeypatch):
    monkeypatch.setattr(hook_options, "UNREAD", hook_options.UNREAD - {"low_memory", "length_penalty"})
    hook = custom_generate(model)
    plain(model, custom_generate=hook)  # length_penalty then has its default, which is not None
    for name, value in (("low_memory", True), ("length_penalty", 2.0)):
        with pytest.raises(ConfigError, match=f"{name}={value} is an option that this version .* leave it out"):
            plain(model, custom_generate=hook, **{name: value})
    monkeypatch.setattr(hook_options, "ARGUMENTS", hook_options.ARGUMENTS - {"negative_prompt_ids"})
    plain(model, custom_generate=hook)
    with pytest.raises(ConfigError, match=r"negative_prompt_ids=.*is an option that this version"):
        plain(model, custom_generate=hook, negative_prompt_ids=PROMPT)


def test_a_processor_of_the_users_sees_every_position_once_as_in_generate(model):
    def seen_by(**options):
        seen = []

        def record(ids, scores):
            seen.append(tuple(ids[0].tolist()))
            return scores

        plain(model, logits_processor=[record], **options)
        return seen

    assert seen_by(custom_generate=custom_generate(noisy(model, 0.1), k=4)) == seen_by()


def test_a_replaced_way_to_prepare_inputs_is_refused(model, monkeypatch):
    own = model.prepare_inputs_for_generation
    monkeypatch.setattr(model, "prepare_inputs_for_generation", own, raising=False)  # as PEFT leaves it behind
    assert torch.equal(plain(model, custom_generate=custom_generate(model)), plain(model))
    monkeypatch.setattr(model, "prepare_inputs_for_generation", lambda *args, **kwargs: own(*args, **kwargs))
    with pytest.raises(ConfigError, match="prepare_inputs_for_generation was replaced"):
        plain(model, custom_generate=custom_generate(noisy(model, 0.1)))
