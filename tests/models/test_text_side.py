"""Of a model that also sees, the text side writes what the whole model writes, with compiled passes."""

from __future__ import annotations

import warnings

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from draftproof import CacheError, LoadError, Speculator
from draftproof.models.load import load
from draftproof.testing import byte_tokenizer

PROMPT = [11, 18, 25, 32, 39, 46, 3, 99, 100, 101, 7]
LENGTH = 24
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
_HEADS = _TEXT | {"head_dim": 16}
_THREE = {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e4}}
_SIGHT = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
_QWEN = {"depth": 1, "num_heads": 2}
_SMALL = _QWEN | {"hidden_size": 32, "intermediate_size": 32, "out_hidden_size": 64}
_MIXED = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8, "query_pre_attn_scalar": 16}

WRAPPERS = {
    "llava": ("Llava", ("Llama", _TEXT), ("CLIPVision", _SIGHT)),
    "mistral3": ("Mistral3", ("Mistral", _TEXT), ("PixtralVision", _SIGHT)),
    "qwen2-vl": ("Qwen2VL", _TEXT | _THREE, _QWEN | {"embed_dim": 32, "hidden_size": 64}),
    "qwen2.5-vl": ("Qwen2_5_VL", _TEXT | _THREE, _SMALL | {"fullatt_block_indexes": [0]}),
    "qwen3-vl": ("Qwen3VL", _HEADS | _THREE, _SMALL | {"deepstack_visual_indexes": [0]}),
    "gemma3": ("Gemma3", ("Gemma3Text", _HEADS | _MIXED), ("SiglipVision", _SIGHT)),
    "smolvlm": ("SmolVLM", ("Llama", _TEXT), _SIGHT),
    "idefics3": ("Idefics3", ("Llama", _TEXT), _SIGHT),
}
FAMILIES = {
    "llava": "llama",
    "mistral3": "mistral",
    "qwen2-vl": "qwen2",
    "qwen2.5-vl": "qwen2",
    "qwen3-vl": "qwen3",
    "gemma3": "gemma3_text",
    "smolvlm": "llama",
    "idefics3": "llama",
}


def _config(given):
    return getattr(transformers, f"{given[0]}Config")(**given[1]) if isinstance(given, tuple) else given


def build(name):
    kind, text, sight = WRAPPERS[name]
    config = getattr(transformers, f"{kind}Config")(
        text_config=_config(text), vision_config=_config(sight), tie_word_embeddings=False
    )
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(config).eval()
    model.generation_config.eos_token_id = None
    return model


def save(model, path):
    model.save_pretrained(path)
    byte_tokenizer().save_pretrained(path)
    return path


def written(model):
    ids = torch.tensor([PROMPT])
    text = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=LENGTH, do_sample=False)
    return tuple(text[0, len(PROMPT) :].tolist())


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_folder_of_a_model_that_also_sees_writes_the_whole_models_text_with_compiled_passes(tmp_path, name):
    model = build(name)
    expected = written(model)
    assert len(set(expected)) > 5
    folder = save(model, tmp_path / name)
    speculator = Speculator(folder, folder, 3, dtype="float32", compile="on")
    made = speculator.generate(PROMPT, max_new_tokens=LENGTH, check=True)
    assert made.tokens == expected
    assert made.counts.acceptance_rate == 1.0
    assert speculator.target.placement.passes == "compiled"
    assert f"the text side was loaded, as {FAMILIES[name]!r}; images" in "".join(speculator.notes)
    assert speculator.target_window == 128
    bare = Speculator(model, folder, 3, draft_dtype="float32").generate(PROMPT, max_new_tokens=LENGTH)
    assert bare.tokens == expected
    assert bare.counts.acceptance_rate == 1.0


def test_only_weights_of_the_text_side_have_to_be_there(tmp_path):
    model = build("llava")
    folder = save(model, tmp_path / "llava")
    file = folder / "model.safetensors"
    weights = load_file(file)
    text = {key: weight for key, weight in weights.items() if "vision" not in key and "projector" not in key}
    assert len(text) < len(weights)
    save_file(text, file, metadata={"format": "pt"})
    made = Speculator(folder, dtype="float32").generate(PROMPT, max_new_tokens=LENGTH)
    assert made.tokens == written(model)
    save_file({key: weight for key, weight in text.items() if "layers.1" not in key}, file, metadata={"format": "pt"})
    with pytest.raises(LoadError, match=r"lacks the weight '.*layers\.1"):
        load(folder)


def test_a_text_side_that_does_not_write_what_the_whole_writes_is_not_taken(tmp_path, monkeypatch):
    model = build("llava")
    folder = save(model, tmp_path / "llava")
    monkeypatch.setattr("draftproof.models.text_side.same_logits", lambda *of: False)
    speculator = Speculator(folder, dtype="float32")
    assert speculator.generate(PROMPT, max_new_tokens=LENGTH).tokens == written(model)
    assert "'llava' was loaded whole" in "".join(speculator.notes)


def test_a_prompt_that_is_read_in_both_directions_is_refused_by_name(tmp_path):
    config = transformers.PaliGemmaConfig(
        text_config=transformers.GemmaConfig(**_HEADS),
        vision_config=transformers.SiglipVisionConfig(**_SIGHT, projection_dim=64),
        projection_dim=64,
    )
    folder = save(transformers.PaliGemmaForConditionalGeneration(config), tmp_path / "paligemma")
    with pytest.raises(CacheError, match="'paligemma' reads its prompt in both directions"):
        load(folder)


@pytest.mark.parametrize("whole", [True, False], ids=["made for the whole", "made for the text side"])
def test_an_adapter_for_the_whole_or_for_the_text_side_is_merged(tmp_path, whole):
    peft = pytest.importorskip("peft")
    folder = save(build("gemma3"), tmp_path / "gemma3")
    model = build("gemma3") if whole else load(folder, dtype="float32").model
    torch.manual_seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj", "v_proj"], lora_alpha=64)).eval()
        for name, weight in adapted.named_parameters():
            if "lora_" in name:
                weight.data.normal_(0, 0.1)
        adapted.save_pretrained(tmp_path / "adapter")
        expected = written(adapted)
    speculator = Speculator(folder, dtype="float32", adapter=tmp_path / "adapter", compile="on")
    assert speculator.generate(PROMPT, max_new_tokens=LENGTH).tokens == expected != written(build("gemma3"))
    assert speculator.target.placement.passes == "compiled"
