"""A folder is one model, whole: what contradicts is refused, what is not used is named."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, TorchAoConfig

from draftproof import LoadError, Speculator
from draftproof.models.load import load
from draftproof.testing import byte_tokenizer, random_model

PROMPT = [5, 9, 7]


@pytest.fixture
def folder(model, tmp_path):
    return save(model, tmp_path / "model")


def save(model, path, **kwargs):
    model.save_pretrained(path, **kwargs)
    byte_tokenizer().save_pretrained(path)
    return path


def edit(file, **changes):
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def edit_weights(folder, change):
    file = folder / "model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file(weights, file, metadata={"format": "pt"})


def test_weights_of_more_layers_than_the_config_has_are_refused_with_both_numbers(tmp_path):
    folder = save(random_model(num_hidden_layers=4), tmp_path / "deep")
    edit(folder / "config.json", num_hidden_layers=2)
    with pytest.raises(LoadError, match="has 2 layers by its config, and weights for layer 2 to 3 too"):
        load(folder)


def test_weights_without_a_place_are_named_and_do_no_harm(model, folder):
    edit_weights(folder, lambda weights: weights.update({f"mtp.{i}.weight": torch.ones(3) for i in range(5)}))
    loaded = load(folder)
    (note,) = loaded.notes
    assert "no place for the weights mtp.0.weight, mtp.1.weight, mtp.2.weight and 2 more" in note
    assert note in Speculator(model, folder).notes
    assert Speculator(folder, model).generate(PROMPT, max_new_tokens=12).counts.acceptance_rate == 1.0


def test_two_sets_of_weights_are_one_model_or_refused(model, folder, tmp_path):
    shards = save(model, tmp_path / "shards", max_shard_size="100KB")
    for file in shards.glob("model*"):
        shutil.copy(file, folder)
    assert load(folder).notes == ()
    other = save(random_model(seed=5), tmp_path / "other")
    shutil.copy(other / "model.safetensors", folder)
    with pytest.raises(LoadError, match=r"two sets of weights that differ, model\.safetensors and the \d+ files"):
        load(folder)
    first = min(folder.glob("model-*"))
    first.unlink()
    (note,) = load(folder).notes
    assert f"names {first.name!r}, which is not there; model.safetensors is read instead" in note


@pytest.mark.parametrize("named", ["../shards/model-00001-of-00002.safetensors", "/etc/passwd", 3, None, ""])
def test_an_index_names_files_beside_it_and_nothing_else(model, tmp_path, named):
    shards = save(model, tmp_path / "shards", max_shard_size="100KB")
    index = shards / "model.safetensors.index.json"
    weights = json.loads(index.read_text())["weight_map"]
    edit(index, weight_map=weights | {"lm_head.weight": named})
    with pytest.raises(LoadError, match=r"index\.json of .* does not name the files beside it"):
        load(shards)


@pytest.mark.parametrize("text", ["{", "[]", "\xff"])
def test_a_broken_generation_config_is_not_passed_over(folder, text):
    (folder / "generation_config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(LoadError, match=r"generation_config\.json'.*; download it again"):
        load(folder)


@pytest.mark.parametrize("ends", ["x", 1.5, [[1]], {"a": 1}, True])
def test_an_end_token_that_is_no_id_is_refused(folder, ends):
    edit(folder / "generation_config.json", eos_token_id=ends)
    with pytest.raises(LoadError, match="eos_token_id"):
        load(folder)


def test_a_folder_without_a_tokenizer_says_so_in_a_whole_sentence(folder):
    for file in folder.glob("token*"):
        file.unlink()
    with pytest.raises(LoadError, match=r"has no tokenizer files \(tokenizer\.json, .*put those of the model.*\.$"):
        load(folder)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer.json", "{}"),
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab": {}, "merges": []}}'),
        ("tokenizer.json", '{"pre_tokenizer": {"type": "Split", "pattern": {"x": 1}}, "model": {"type": "BPE"}}'),
        ("tokenizer.json", ""),
        ("tokenizer_config.json", "[1]"),
        ("tokenizer_config.json", '{"tokenizer_class": 3}'),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"x": 1}}'),
        ("tokenizer_config.json", '{"auto_map": 3}'),
    ],
)
def test_a_broken_tokenizer_is_one_sentence(folder, file, content):
    (folder / file).write_text(content)
    with pytest.raises(
        LoadError, match=r"(tokenizer|tokenizer_config\.json).*(download (it|them) again|vocabulary).*\.$"
    ) as error:
        load(folder)
    assert "\n" not in str(error.value)
    assert not str(error.value).rstrip(".").endswith((":", ","))


QUANTISED = [
    {"quant_method": "gptq", "bits": 4},
    {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"},
    {"quant_method": "compressed-tensors", "format": "pack-quantized"},
    {"quant_method": "bitsandbytes", "load_in_4bit": True},
    {"load_in_8bit": True},
    {"quant_method": "quanto", "weights": "int8"},
    {"quant_method": "from-the-future"},
    {"quant_method": 3},
    {},
    "int8",
]


@pytest.mark.parametrize("declared", QUANTISED)
@pytest.mark.parametrize("weights", [None, "int8"])
def test_weights_that_are_quantised_already_are_told_before_loading(folder, declared, weights):
    edit(folder / "config.json", quantization_config=declared)
    refused = r"is quantised .* in a way that cannot be run here: .*\. Give the model that it was made from"
    with pytest.raises(LoadError, match="is already quantised.*leave out weights=" if weights else refused) as error:
        load(folder, weights=weights)
    assert "\n" not in str(error.value)


def test_a_checkpoint_of_torchao_runs_as_it_is_and_is_not_quantised_again(folder, tmp_path):
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig

    how = TorchAoConfig(Int8DynamicActivationInt8WeightConfig())
    stored = save(AutoModelForCausalLM.from_pretrained(folder, quantization_config=how), tmp_path / "torchao")
    speculator = Speculator(stored, stored, k=3)
    assert speculator.target.placement.weights == "torchao"
    assert "weights stored quantised (torchao)" in speculator.target.placement.reason
    made = speculator.generate(PROMPT, max_new_tokens=20, check=True)
    assert (made.identical, made.counts.acceptance_rate) == (True, 1.0)
    with pytest.raises(LoadError, match=r"already quantised \(torchao\), so it cannot be quantised to int8"):
        load(stored, weights="int8")
