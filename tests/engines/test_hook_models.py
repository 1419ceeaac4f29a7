"""Which models the hook takes: wrappers that also see, PEFT models, and pairs that may not fit."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from transformers import (
    CLIPVisionConfig,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    MambaConfig,
    MambaForCausalLM,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    MistralConfig,
    PixtralVisionConfig,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    SiglipVisionConfig,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from draftproof import CacheError, ConfigError, PairError, custom_generate
from draftproof.testing import byte_tokenizer, noisy, random_model

PROMPT = torch.tensor([[5, 9, 200, 7]])
_TEXT = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.5,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "tie_word_embeddings": False,
}
_EYE = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
_THREE_WAYS = _TEXT | {"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}
_QWEN_MARKS = {"image_token_id": 299, "video_token_id": 298, "vision_start_token_id": 297, "vision_end_token_id": 296}
_MIXED = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8, "head_dim": 16}
_UNTIED = {"tie_word_embeddings": False}

SEEING = {
    "llava": lambda: LlavaForConditionalGeneration(
        LlavaConfig(
            vision_config=CLIPVisionConfig(**_EYE), text_config=LlamaConfig(**_TEXT), image_token_index=299, **_UNTIED
        )
    ),
    "mistral3": lambda: Mistral3ForConditionalGeneration(
        Mistral3Config(
            vision_config=PixtralVisionConfig(**_EYE),
            text_config=MistralConfig(**_TEXT, sliding_window=None),
            image_token_index=299,
            **_UNTIED,
        )
    ),
    "qwen2-vl": lambda: Qwen2VLForConditionalGeneration(
        Qwen2VLConfig(
            text_config=_THREE_WAYS,
            vision_config={"depth": 1, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "patch_size": 14},
            **_QWEN_MARKS,
            **_UNTIED,
        )
    ),
    "qwen2.5-vl": lambda: Qwen2_5_VLForConditionalGeneration(
        Qwen2_5_VLConfig(
            text_config=_THREE_WAYS,
            vision_config={
                "depth": 1,
                "hidden_size": 32,
                "intermediate_size": 32,
                "num_heads": 2,
                "out_hidden_size": 64,
                "patch_size": 14,
            },
            **_QWEN_MARKS,
            **_UNTIED,
        )
    ),
    "gemma3": lambda: Gemma3ForConditionalGeneration(
        Gemma3Config(
            text_config=Gemma3TextConfig(**_TEXT, **_MIXED, query_pre_attn_scalar=16),
            vision_config=SiglipVisionConfig(**_EYE),
            mm_tokens_per_image=4,
            image_token_index=299,
            boi_token_index=298,
            eoi_token_index=297,
            **_UNTIED,
        )
    ),
    "smolvlm": lambda: SmolVLMForConditionalGeneration(
        SmolVLMConfig(
            text_config=LlamaConfig(**_TEXT),
            vision_config=dict(_EYE),
            image_token_id=299,
            scale_factor=1,
            pad_token_id=0,
            **_UNTIED,
        )
    ),
}


def plain(model, **options):
    settings = {"max_new_tokens": 30, "do_sample": False, "pad_token_id": 0} | options
    return model.generate(PROMPT, attention_mask=torch.ones_like(PROMPT), **settings)


@pytest.fixture(scope="module")
def seeing():
    made = {}

    def build(name):
        if name not in made:
            torch.manual_seed(0)
            made[name] = SEEING[name]().eval()
            made[name].generation_config.eos_token_id = None
        return made[name]

    return build


@pytest.mark.parametrize("name", SEEING)
def test_text_from_a_model_that_also_sees_is_generates_own(seeing, name):
    model = seeing(name)
    expected = plain(model)
    assert len(set(expected[0].tolist())) > 15
    for size in (0.0, 0.1):
        hook = custom_generate(noisy(model, size), k=4)
        assert torch.equal(plain(model, custom_generate=hook), expected)
        assert hook.generation.warnings == ()
        assert (hook.generation.counts.acceptance_rate == 1) is (size == 0)
    hook = custom_generate(random_model(), k=2)
    options = {"repetition_penalty": 1.3, "custom_generate": hook}
    assert torch.equal(plain(model, **options), plain(model, repetition_penalty=1.3))


@pytest.mark.parametrize(("name", "kinds"), [("gemma3", "token_type_ids"), ("qwen2.5-vl", "mm_token_type_ids")])
def test_marks_of_what_is_text_are_taken_where_all_is_text(seeing, name, kinds):
    model = seeing(name)
    hook = custom_generate(model)
    all_text = {kinds: torch.zeros_like(PROMPT)}
    assert torch.equal(plain(model, custom_generate=hook, **all_text), plain(model, **all_text))
    with pytest.raises(ConfigError, match=f"{kinds} would be ignored"):
        plain(model, custom_generate=hook, **{kinds: torch.tensor([[0, 1, 1, 0]])})


@pytest.mark.parametrize("name", ["llava", "gemma3"])
def test_images_are_refused_by_name(seeing, name):
    with pytest.raises(ConfigError, match=r"holds more than text \((pixel_values|image)\); give text alone"):
        plain(seeing(name), custom_generate=custom_generate(seeing(name)), pixel_values=torch.zeros(1, 3, 28, 28))


def test_a_request_with_images_before_leaves_no_trace(seeing):
    model = copy.deepcopy(seeing("qwen2.5-vl"))
    expected = plain(model)
    model.model.rope_deltas = torch.tensor([[-7]])  # how far an image moved the text behind it
    assert torch.equal(plain(model, custom_generate=custom_generate(noisy(model, 0.1), k=3)), expected)
    draft = copy.deepcopy(model)
    draft.model.rope_deltas = torch.tensor([[-7]])
    hook = custom_generate(draft, k=3)
    assert torch.equal(plain(model, custom_generate=hook), expected)
    assert hook.generation.counts.acceptance_rate == 1


def _adapted(model, peft, config):
    torch.manual_seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what PEFT calls in transformers
        return peft.get_peft_model(copy.deepcopy(model), config).eval()


def test_a_peft_model_guesses_and_is_guessed_for_with_its_adapters(model):
    peft = pytest.importorskip("peft")
    layers = {"r": 4, "target_modules": ["q_proj", "v_proj"], "init_lora_weights": False}
    adapted = _adapted(model, peft, peft.LoraConfig(task_type="CAUSAL_LM", **layers))
    expected = plain(adapted)
    assert not torch.equal(expected, plain(model))
    for draft, always_right in ((adapted, True), (model, False)):
        hook = custom_generate(draft, k=4)
        assert torch.equal(plain(adapted, custom_generate=hook), expected)
        assert (hook.generation.counts.acceptance_rate == 1) is always_right
    hook = custom_generate(adapted, k=4)
    assert torch.equal(plain(model, custom_generate=hook), plain(model))
    assert hook.generation.counts.acceptance_rate < 1


def test_learned_prompts_are_refused_in_target_and_draft(model):
    peft = pytest.importorskip("peft")
    prompted = _adapted(model, peft, peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))
    with pytest.raises(PairError, match="learned prompt"):
        custom_generate(prompted)
    with pytest.raises(ConfigError, match="PEFT"):
        plain(prompted, custom_generate=custom_generate(model))


def test_models_that_cannot_be_driven_are_refused_as_targets_too(model):
    small = {"vocab_size": 300, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": None}
    mamba = MambaForCausalLM(MambaConfig(**small, hidden_size=16, state_size=4, num_hidden_layers=1))
    t5 = T5ForConditionalGeneration(
        T5Config(**small, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0)
    )
    for other, why in ((mamba, "linear_attention"), (t5, "encoder")):
        with pytest.raises(CacheError, match=why):
            custom_generate(other.eval())
        with pytest.raises(CacheError, match=why):
            plain(other.eval(), custom_generate=custom_generate(model))


@pytest.mark.parametrize("draft", [torch.nn.Linear(2, 2), "gpt2", None])
def test_what_is_no_model_is_refused_as_a_draft(draft):
    with pytest.raises(PairError, match=r"must be a transformers model, got \w+; load it with"):
        custom_generate(draft)


def test_output_sizes_that_no_padding_explains_are_named_unless_the_tokenizers_were_compared(model):
    other = random_model(seed=5, vocab_size=260)
    hook = custom_generate(other, k=3)
    expected = plain(model)
    assert torch.equal(plain(model, custom_generate=hook), expected)
    assert "output sizes 300 (target) and 260 (draft)" in hook.generation.warnings[0]
    padded = random_model(seed=5, vocab_size=303)
    assert torch.equal(plain(model, custom_generate=(hook := custom_generate(padded))), expected)
    assert not any("output sizes" in warning for warning in hook.generation.warnings)
    ours, theirs = byte_tokenizer(added=[f"<{i}>" for i in range(44)]), byte_tokenizer(added=["<0>", "<1>"])
    hook = custom_generate(other, tokenizer=ours, draft_tokenizer=theirs)
    plain(model, custom_generate=hook)
    said, *others = hook.generation.warnings
    assert said == "tokenizers agree on 258 ids; 42 more only in the target's, 0 only in the draft's"
    assert not any("output sizes" in warning for warning in others)
    with pytest.raises(PairError, match="id 256 is '<0>' for the target and 'th' for the draft"):
        custom_generate(other, tokenizer=ours, draft_tokenizer=byte_tokenizer(merges=[("t", "h")]))
