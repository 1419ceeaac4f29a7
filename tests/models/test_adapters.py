"""A model with an adapter writes what peft writes with it; an adapter that cannot be merged right is one clear line."""

from __future__ import annotations

import json
import sys
import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from draftproof import LoadError, MissingExtraError, PairError, Speculator
from draftproof.cli import app
from draftproof.models.load import load
from draftproof.testing import byte_tokenizer, noisy, random_model

peft = pytest.importorskip("peft")
PROMPT = [5, 9, 7, 200]
LENGTH = 24


@pytest.fixture(scope="module")
def base(model, tmp_path_factory):
    return save_base(model, tmp_path_factory.mktemp("base") / "base")


def save_base(model, path, tokenizer=None):
    model.save_pretrained(path)
    (tokenizer or byte_tokenizer()).save_pretrained(path)
    return path


def make(model, path, config=None, **settings):
    """Save an adapter of random numbers for `model`, which is used up."""
    if config is None:
        usual = {"r": 4, "lora_alpha": 32, "target_modules": ["q_proj", "v_proj", "up_proj"], "task_type": "CAUSAL_LM"}
        config = peft.LoraConfig(**usual | settings)
    torch.manual_seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted = peft.get_peft_model(model, config)
        for name, weight in adapted.named_parameters():
            if "lora_" in name and "magnitude" not in name:
                weight.data.normal_(0, 0.1)
            elif "modules_to_save" in name or "trainable_tokens_delta" in name:
                weight.data.add_(0.1 * torch.randn_like(weight))
        adapted.save_pretrained(path)
    return path


def peft_writes(model, adapter):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted = peft.PeftModel.from_pretrained(model, adapter).eval()
        return written(adapted)


def written(model):
    ids = torch.tensor([PROMPT])
    text = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=LENGTH, do_sample=False)
    return tuple(text[0, len(PROMPT) :].tolist())


@pytest.mark.parametrize(
    ("settings", "tied"),
    [
        ({}, False),
        ({"use_dora": True, "use_rslora": True}, False),
        ({"modules_to_save": ["lm_head"], "bias": "lora_only"}, False),
        ({"target_modules": ["q_proj", "lm_head"]}, True),
        ({"target_modules": ["q_proj", "embed_tokens"]}, True),
        ({"init_lora_weights": "pissa", "rank_pattern": {"q_proj": 8}}, False),
        ({"trainable_token_indices": [5, 200]}, True),
    ],
    ids=["lora", "dora", "output layer saved", "output layer", "embeddings", "pissa", "tokens"],
)
def test_a_merged_adapter_writes_what_peft_writes_unmerged_and_passes_are_compiled(tmp_path, settings, tied):
    folder = save_base(random_model(tie_word_embeddings=tied), tmp_path / "base")
    adapter = make(random_model(tie_word_embeddings=tied), tmp_path / "adapter", **settings)
    expected = peft_writes(random_model(tie_word_embeddings=tied), adapter)
    speculator = Speculator(folder, folder, k=3, dtype="float32", adapter=adapter, compile="on")
    made = speculator.generate(PROMPT, max_new_tokens=LENGTH, check=True)
    assert made.tokens == expected != written(random_model(tie_word_embeddings=tied))
    placement = speculator.target.placement
    assert placement.passes == "compiled"
    assert placement.adapter == str(adapter)
    assert f"adapter {str(adapter)!r} merged into the weights" in placement.reason


def test_a_draft_may_have_an_adapter_and_then_guesses_with_it(base, tmp_path):
    adapter = make(random_model(), tmp_path / "adapter")
    both = {"adapter": adapter, "draft_adapter": adapter, "dtype": "float32"}
    assert Speculator(base, base, 3, **both).generate(PROMPT, max_new_tokens=LENGTH).counts.acceptance_rate == 1.0
    plain = Speculator(base, base, 3, dtype="float32", draft_adapter=adapter)
    made = plain.generate(PROMPT, max_new_tokens=LENGTH, check=True)
    assert made.counts.acceptance_rate < 0.5
    assert made.tokens == written(random_model())


def test_the_command_line_takes_adapters_and_says_so(base, tmp_path):
    adapter = make(random_model(), tmp_path / "adapter")
    given = ["--prompt", "abc", "--dtype", "float32", "--max-new-tokens", "8", "--compile", "off"]
    pair = ["--target", str(base), "--adapter", str(adapter), "--draft", str(base), "--draft-adapter", str(adapter)]
    ran = CliRunner(env={"COLUMNS": "2000"}).invoke(app, ["run", *pair, *given])
    assert ran.exit_code == 0, ran.output
    assert ran.output.count("merged into the weights") == 2


def test_an_adapter_for_a_model_of_another_name_is_noted(base, tmp_path):
    adapter = make(random_model(), tmp_path / "adapter")
    change(adapter, base_model_name_or_path="somebody/other-model")
    assert any("'somebody/other-model'" in note for note in Speculator(base, adapter=adapter).notes)
    change(adapter, base_model_name_or_path=f"somebody/{base.name}")
    assert not any("made for" in note for note in Speculator(base, adapter=adapter).notes)


def test_a_folder_with_a_model_and_an_adapter_applies_it_and_says_so(base, tmp_path):
    folder = save_base(random_model(), tmp_path / "both")
    make(random_model(), folder)
    other = make(noisy(random_model(), 0.1), tmp_path / "other", r=2)
    writes = {}
    for asked, says in ((None, "which is applied"), ("none", "as asked for"), (other, "not applied")):
        speculator = Speculator(folder, dtype="float32", adapter=asked)
        assert any(says in note for note in speculator.notes)
        writes[asked] = speculator.generate(PROMPT, max_new_tokens=LENGTH).tokens
    assert writes[None] == peft_writes(random_model(), folder)
    assert writes["none"] == written(random_model())
    assert writes[other] == peft_writes(random_model(), other)
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(LoadError, match=r"has no adapter_model\.safetensors.*leave it out with adapter='none'"):
        load(folder)
    load(folder, adapter="none")


def test_a_folder_with_only_an_adapter_brings_its_model_if_that_lies_here_and_names_it_otherwise(base, tmp_path):
    adapter = make(random_model(), tmp_path / "adapter")
    change(adapter, base_model_name_or_path=str(base))
    found = Speculator(adapter, dtype="float32")
    assert found.generate(PROMPT, max_new_tokens=LENGTH).tokens == peft_writes(random_model(), adapter)
    assert any("both were loaded" in note for note in found.notes)
    with pytest.raises(LoadError, match=f"only an adapter; give its model '{base}' as the model"):
        load(adapter, adapter=adapter)
    change(adapter, base_model_name_or_path="somebody/model")
    with pytest.raises(LoadError, match=r"give its model 'somebody/model' as the model, and this as adapter="):
        load(adapter)
    change(adapter, base_model_name_or_path=None)
    with pytest.raises(LoadError, match="give the model that it was made for"):
        load(adapter)


def change(adapter, **settings):
    file = adapter / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def weights(adapter, alter):
    file = adapter / "adapter_model.safetensors"
    tensors = load_file(file)
    alter(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def _rename(tensors):
    tensors["base_model.model.model.layers.9.self_attn.q_proj.lora_A.weight"] = tensors.pop(sorted(tensors)[0])


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda a: change(a, peft_type="PROMPT_TUNING", num_virtual_tokens=4), "adds tokens of its own"),
        (lambda a: change(a, peft_type="IA3"), "is of kind 'IA3', and what can be applied is LoRA"),
        (lambda a: change(a, alora_invocation_tokens=[5]), "from certain tokens on only"),
        (lambda a: change(a, megatron_config={"a": 1}, megatron_core="os"), "imported by name"),
        (lambda a: change(a, layer_replication=[[0, 2], [1, 4]]), "layer_replication"),
        (lambda a: change(a, target_modules=["wqkv"]), "does not fit the model: .*wqkv"),
        (lambda a: change(a, r=8), "size mismatch"),
        (
            lambda a: change(a, target_modules=["q_proj", "v_proj", "up_proj", "k_proj"]),
            "lacks 'model.layers.0.self_at",
        ),
        (lambda a: change(a, target_modules=["q_proj"]), "holds weights for .*up_proj.*this model has not"),
        (lambda a: weights(a, lambda t: t.pop(sorted(t)[0])), "lacks 'model.layers.0"),
        (lambda a: weights(a, _rename), "model.layers"),
        (lambda a: weights(a, lambda t: t[sorted(t)[0]].fill_(float("nan"))), "NaN or infinity"),
        (lambda a: weights(a, lambda t: t.clear()), "holds no weights"),
        (lambda a: (a / "adapter_model.safetensors").write_bytes(b"12345"), "cut off or damaged"),
        (lambda a: (a / "adapter_model.safetensors").rename(a / "adapter_model.bin"), r"no adapter_model.*\.bin file"),
        (lambda a: (a / "adapter_config.json").write_text("{"), "cannot be read"),
        (lambda a: (a / "adapter_config.json").write_text("[]"), "holds no settings"),
        (lambda a: (a / "adapter_config.json").unlink(), "has no adapter_config.json"),
        (lambda a: change(a, setting_of_tomorrow=1), "setting_of_tomorrow=1, which this peft .* does not know; update"),
        (lambda a: change(a, r=None), "does not fit the model"),
    ],
)
def test_an_adapter_that_cannot_be_applied_right_is_one_clear_line(base, tmp_path, spoil, says):
    adapter = make(random_model(), tmp_path / "adapter")
    spoil(adapter)
    with pytest.raises(LoadError, match=says) as caught:
        load(base, adapter=adapter)
    assert "\n" not in str(caught.value)


def test_an_adapter_for_another_size_of_model_names_the_one_it_was_made_for(base, tmp_path):
    with pytest.raises(LoadError, match="size mismatch"):
        load(base, adapter=make(random_model(hidden_size=32), tmp_path / "narrow"))
    deep = make(random_model(num_hidden_layers=6), tmp_path / "deep")
    change(deep, base_model_name_or_path="somebody/deep")
    with pytest.raises(LoadError, match=r"layers\.4.*which this model has not; give .* 'somebody/deep'"):
        load(base, adapter=deep)


def test_where_no_adapter_is_is_said(base, tmp_path):
    (tmp_path / "run" / "checkpoint-500").mkdir(parents=True)
    (tmp_path / "run" / "checkpoint-500" / "adapter_config.json").write_text("{}")
    for name, says in (
        (tmp_path / "run", "in each of checkpoint-500"),
        (tmp_path / "nowhere", "does not exist"),
        (base / "config.json", "is a file"),
        (base, "has no adapter_config.json"),
    ):
        with pytest.raises(LoadError, match=says):
            load(base, adapter=name)


def test_without_peft_it_is_said_what_to_install_and_no_text_is_written(base, tmp_path, monkeypatch):
    folder = save_base(random_model(), tmp_path / "both")
    adapter = make(random_model(), folder)
    monkeypatch.setitem(sys.modules, "peft", None)
    for how in ({"adapter": adapter, "name": base}, {"name": folder}):
        with pytest.raises(MissingExtraError, match=r"draftproof\[adapters\]"):
            load(**how)


def test_tokens_that_were_added_for_an_adapter_come_with_its_tokenizer(base, tmp_path):
    grown = random_model()
    grown.resize_token_embeddings(304, mean_resizing=False)
    adapter = make(grown, tmp_path / "adapter", modules_to_save=["embed_tokens", "lm_head"])
    byte_tokenizer(("<end>", "<turn>")).save_pretrained(adapter)
    speculator = Speculator(base, dtype="float32", adapter=adapter)
    expected = random_model()
    expected.resize_token_embeddings(304, mean_resizing=False)
    assert speculator.generate(PROMPT, max_new_tokens=LENGTH).tokens == peft_writes(expected, adapter)
    assert speculator.encode("<turn>") == [257]
    assert any("own tokenizer, with 1 other tokens" in note for note in speculator.notes)


def test_a_tokenizer_with_tokens_beyond_the_embeddings_is_refused(base, tmp_path):
    adapter = make(random_model(), tmp_path / "adapter")
    byte_tokenizer([f"<{i}>" for i in range(60)]).save_pretrained(adapter)
    with pytest.raises(LoadError, match="token id 315, and no embedding"):
        load(base, adapter=adapter)


def test_a_peft_model_handed_over_is_taken_as_it_is_with_its_adapter(model, tmp_path):
    adapter = make(random_model(), tmp_path / "adapter")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = peft.PeftModel.from_pretrained(random_model(), adapter).eval()
        prompted = peft.get_peft_model(
            random_model(), peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
        ).eval()
    speculator = Speculator(given, given, 3, compile="on")
    made = speculator.generate(PROMPT, max_new_tokens=LENGTH, check=True)
    assert made.tokens == written(given)
    assert made.counts.acceptance_rate == 1.0
    assert any("adapter 'default'" in note and "unmerged" in note for note in speculator.notes)
    assert speculator.target.placement.passes == "transformers"
    with given.disable_adapter():
        assert speculator.generate(PROMPT, max_new_tokens=LENGTH).tokens == written(model)
    with pytest.raises(PairError, match="adds tokens of its own"):
        Speculator(model, prompted)
