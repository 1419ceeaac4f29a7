"""transformers' generate, served by our loop."""

from __future__ import annotations

import pytest
import torch
from transformers import StopStringCriteria

from draftproof import ConfigError, custom_generate
from draftproof.testing import byte_tokenizer, noisy

PROMPT = torch.tensor([[5, 9, 200, 7]])
MASK = torch.ones_like(PROMPT)


def plain(model, **options):
    return model.generate(PROMPT, attention_mask=MASK, do_sample=False, pad_token_id=0, **options)


def test_generate_with_a_draft_gives_the_tokens_of_generate_without(model):
    hook = custom_generate(noisy(model, 0.1), k=4)
    expected = plain(model, max_new_tokens=40)
    assert torch.equal(plain(model, max_new_tokens=40, custom_generate=hook), expected)
    assert hook.generation.counts.tokens == 40
    assert 0 < hook.generation.counts.acceptance_rate < 1


def test_every_end_token_inside_a_block_stops_as_generate_does(model):
    hook = custom_generate(model, k=6)
    text = plain(model, max_new_tokens=40)[0, 4:].tolist()
    for end in dict.fromkeys(text[:30]):
        expected = plain(model, max_new_tokens=40, eos_token_id=[end, 299])
        assert torch.equal(plain(model, max_new_tokens=40, eos_token_id=[end, 299], custom_generate=hook), expected)


@pytest.mark.parametrize("new", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_the_limit_is_never_passed(model, new, k):
    hook = custom_generate(model, k=k)
    assert torch.equal(plain(model, max_new_tokens=new, custom_generate=hook), plain(model, max_new_tokens=new))


def test_stop_string_criteria_are_obeyed_inside_a_round(model):
    tokenizer = byte_tokenizer(added=[f"<{i}>" for i in range(44)])
    hook = custom_generate(model, k=6, tokenizer=tokenizer, draft_tokenizer=tokenizer)
    text = tokenizer.decode(plain(model, max_new_tokens=40)[0, 4:])
    stop = text[7:9]
    options = {"max_new_tokens": 40, "stopping_criteria": [StopStringCriteria(tokenizer, stop)]}
    assert torch.equal(plain(model, **options, custom_generate=hook), plain(model, **options))


def test_a_dictionary_is_returned_when_asked_for(model):
    hook = custom_generate(model)
    out = plain(model, max_new_tokens=5, return_dict_in_generate=True, custom_generate=hook)
    assert out.sequences.shape == (1, 9)


@pytest.mark.parametrize("size", [0.0, 0.2])
def test_logits_processors_are_served_at_every_position(model, size):
    hook = custom_generate(noisy(model, size), k=5)
    options = {"max_new_tokens": 40, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "bad_words_ids": [[7]]}
    assert torch.equal(plain(model, **options, custom_generate=hook), plain(model, **options))
    assert (hook.generation.counts.acceptance_rate == 1) is (size == 0)


@pytest.mark.parametrize("size", [0.0, 0.2])
def test_nobody_is_asked_about_what_stands_behind_an_end_token(model, size):
    end = plain(model, max_new_tokens=40)[0, 12].item()

    def allowed(batch, ids):
        assert end not in ids[4:].tolist()
        return list(range(300))

    options = {"max_new_tokens": 40, "eos_token_id": end, "prefix_allowed_tokens_fn": allowed}
    hook = custom_generate(noisy(model, size), k=5)
    assert torch.equal(plain(model, **options, custom_generate=hook), plain(model, **options))


def test_sampling_follows_torchs_seed_and_coupled_text_does_not_depend_on_the_draft(model):
    def sample(seed, draft, k, verify="coupled"):
        torch.manual_seed(seed)
        hook = custom_generate(draft, k=k, verify=verify)
        options = {"do_sample": True, "top_k": 20, "temperature": 0.9, "max_new_tokens": 30, "pad_token_id": 0}
        out = model.generate(PROMPT, attention_mask=MASK, custom_generate=hook, **options)
        assert hook.generation.verify == verify
        return tuple(out[0].tolist())

    texts = {sample(1, draft, k) for draft in (model, noisy(model, 0.3)) for k in (1, 3, 8)}
    assert len(texts) == 1
    assert len({sample(seed, model, 3) for seed in range(8)}) == 8
    assert sample(4, noisy(model, 0.1), 3, "ratio") == sample(4, noisy(model, 0.1), 3, "ratio")
    with pytest.raises(ConfigError, match="choose one of ratio, block, coupled"):
        custom_generate(model, verify="greedy")


def test_model_inputs_that_would_be_ignored_are_refused(model):
    hook = custom_generate(model)
    for name, value in (("position_ids", PROMPT + 3), ("inputs_embeds", torch.zeros(1, 4, 64))):
        with pytest.raises((ConfigError, ValueError), match=name):
            plain(model, max_new_tokens=5, custom_generate=hook, **{name: value})


def test_batches_and_padding_are_refused(model):
    hook = custom_generate(model)
    options = {"max_new_tokens": 5, "pad_token_id": 0, "custom_generate": hook}
    with pytest.raises(ConfigError, match="one sequence"):
        model.generate(PROMPT.repeat(2, 1), attention_mask=MASK.repeat(2, 1), **options)
    with pytest.raises(ConfigError, match="padding"):
        model.generate(PROMPT, attention_mask=torch.tensor([[0, 1, 1, 1]]), **options)


def test_a_call_leaves_the_models_configs_as_they_were(model):
    draft = noisy(model, 0.1)
    before = [m.generation_config.to_dict() | m.config.to_dict() for m in (model, draft)]
    plain(model, max_new_tokens=10, custom_generate=custom_generate(draft, k=3))
    assert before == [m.generation_config.to_dict() | m.config.to_dict() for m in (model, draft)]
