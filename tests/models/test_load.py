"""What can be loaded is loaded whole; what cannot says why in one line, before anything is generated."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import MambaConfig, MambaForCausalLM, T5Config, T5ForConditionalGeneration

from draftproof import CacheError, ConfigError, LoadError, MissingExtraError, PairError, Speculator
from draftproof.models.load import find, load
from draftproof.testing import byte_tokenizer, noisy, random_model

PROMPT = [5, 9, 7]


@pytest.fixture
def folder(model, tmp_path):
    return save(model, tmp_path / "model")


def save(model, path, tokenizer=None, **kwargs):
    model.save_pretrained(path, **kwargs)
    (tokenizer or byte_tokenizer()).save_pretrained(path)
    return path


def edit_config(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_a_folder_in_one_file_and_in_shards_gives_the_same_text(model, folder, tmp_path):
    shards = save(model, tmp_path / "shards", max_shard_size="100KB")
    assert len(list(shards.glob("*.safetensors"))) > 2
    expected = Speculator(model).generate(PROMPT, max_new_tokens=20).tokens
    made = Speculator(folder, shards, k=4).generate(PROMPT, max_new_tokens=20)
    assert made.tokens == expected
    assert made.counts.acceptance_rate == 1.0
    next(shards.glob("*-00002-*.safetensors")).unlink()
    with pytest.raises(LoadError, match="00002"):
        load(shards)


def test_a_file_that_is_cut_off_is_named(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(LoadError, match=r"model\.safetensors.*cut off"):
        load(folder)


def test_a_missing_weight_is_named_and_never_replaced_by_random_numbers(folder):
    file = folder / "model.safetensors"
    weights = load_file(file)
    del weights["lm_head.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(LoadError, match=r"lm_head\.weight"):
        load(folder)


def test_tied_and_untied_embeddings_load_and_a_wrong_flag_does_not_replace_the_head(tmp_path):
    tied, untied = random_model(tie_word_embeddings=True), random_model()
    mislabelled = save(untied, tmp_path / "mislabelled")
    edit_config(mislabelled, tie_word_embeddings=True)
    for model, folder in ((tied, save(tied, tmp_path / "tied")), (untied, mislabelled)):
        made = Speculator(model, folder, k=4).generate(PROMPT, max_new_tokens=20)
        assert made.counts.acceptance_rate == 1.0


def test_a_weight_of_another_shape_is_reported(folder):
    edit_config(folder, intermediate_size=64)
    with pytest.raises(LoadError):
        load(folder)


def test_only_bin_weights_are_refused_with_the_way_out(model, folder):
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(LoadError, match="save_pretrained"):
        load(folder)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("./nowhere", "does not exist"),
        ("/nowhere/at/all", "does not exist"),
        ("nowhere.gguf", "does not exist"),
        ("owner/no-such-model", "neither a folder or file here nor"),
        ("not a name!", "neither a folder or file here nor"),
    ],
)
def test_a_name_that_leads_nowhere_is_one_clear_line(name, says):
    with pytest.raises(LoadError, match=says) as error:
        load(name)
    assert "\n" not in str(error.value)


def test_a_folder_without_a_model_and_a_file_that_is_none(tmp_path):
    with pytest.raises(LoadError, match=r"config\.json"):
        load(tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(LoadError, match=r"\.gguf"):
        load(tmp_path / "notes.txt")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + b"\0" * 64)
    with pytest.raises(LoadError, match=r"broken\.gguf"):
        load(tmp_path / "broken.gguf")


def test_gguf_without_its_packages_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "some.gguf").write_bytes(b"GGUF")
    with pytest.raises(MissingExtraError, match=r"pip install 'draftproof\[gguf\]'"):
        load(tmp_path / "some.gguf")


def test_a_broken_config_and_a_missing_tokenizer_are_load_errors(folder):
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(LoadError, match="tokenizer"):
        load(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(LoadError, match=r"config\.json' is not valid JSON"):
        load(folder)


def test_recurrent_and_encoder_decoder_folders_are_refused_before_their_weights_are_read(tmp_path):
    small = {"vocab_size": 300, "hidden_size": 16, "num_hidden_layers": 1, "state_size": 4}
    with pytest.raises(CacheError, match="mamba"):
        load(save(MambaForCausalLM(MambaConfig(**small)), tmp_path / "mamba"))
    t5 = T5ForConditionalGeneration(T5Config(vocab_size=300, d_model=16, d_ff=16, num_layers=1, num_heads=1, d_kv=16))
    with pytest.raises(CacheError, match="encoder-decoder"):
        load(save(t5, tmp_path / "t5"))


def test_an_unknown_architecture_is_one_line(folder):
    edit_config(folder, model_type="from-the-future")
    with pytest.raises(LoadError, match="from-the-future"):
        load(folder)


@pytest.mark.parametrize(("target_width", "draft_width"), [(320, 304), (304, 320)])
def test_padded_output_sizes_are_one_tokenizer(tmp_path, target_width, draft_width):
    target = save(random_model(vocab_size=target_width), tmp_path / "target")
    draft = save(random_model(seed=3, vocab_size=draft_width), tmp_path / "draft")
    speculator = Speculator(target, draft, k=4)
    assert any(str(target_width) in note and str(draft_width) in note for note in speculator.notes)
    made = speculator.generate("Hello", max_new_tokens=60)
    assert made.tokens == Speculator(target).generate("Hello", max_new_tokens=60).tokens
    assert len(made.tokens) == 60


def test_another_tokenizer_is_refused_before_anything_is_generated(model, folder, tmp_path):
    other = save(model, tmp_path / "other", byte_tokenizer(merges=[("t", "h")]))
    with pytest.raises(PairError, match="id 256 is '<end>' for the target and 'th' for the draft"):
        Speculator(folder, other)


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_size": "x"},
        {"dtype": "nonsense"},
        {"num_attention_heads": 7},
        {"vocab_size": -1},
        {"rope_parameters": 3},
    ],
)
def test_a_config_that_makes_no_sense_is_one_line(folder, changes):
    edit_config(folder, **changes)
    with pytest.raises(LoadError) as error:
        load(folder)
    assert "\n" not in str(error.value)


def test_an_index_that_makes_no_sense_is_one_line(model, tmp_path):
    shards = save(model, tmp_path / "shards", max_shard_size="100KB")
    (shards / "model.safetensors.index.json").write_text('{"weight_map": []}')
    with pytest.raises(LoadError):
        load(shards)


def test_the_same_weights_in_another_layout_are_left_alone(folder):
    (folder / "consolidated.safetensors").write_bytes(b"not ours")
    load(folder)


def test_the_model_configs_end_token_does_not_count_beside_a_generation_config(folder):
    """transformers' generate goes by the generation config alone."""
    edit_config(folder, eos_token_id=7)
    assert load(folder).end_tokens == frozenset()
    (folder / "generation_config.json").unlink()
    assert load(folder).end_tokens == frozenset({7})


def test_settings_that_would_be_ignored_are_refused(model, folder):
    for options, says in (
        ({"dtype": "bfloat16"}, "loaded already"),
        ({"device": "cpu"}, "loaded already"),
        ({"draft_window": 8}, "no draft"),
        ({"draft_device": "cpu"}, "no draft"),
    ):
        with pytest.raises(ConfigError, match=says):
            Speculator(model, **options)
    with pytest.raises(ConfigError, match="revision"):
        load(folder, revision="main")
    speculator = Speculator(model)
    for options, says in (
        ({"k": 2.5}, "whole number"),
        ({"max_new_tokens": 2.5}, "whole number"),
        ({"chat": True}, "text"),
    ):
        with pytest.raises(ConfigError, match=says):
            speculator.generate(PROMPT, **options)


def test_end_tokens_come_from_the_generation_config_and_may_be_several_or_none(model, folder):
    assert load(folder).end_tokens == frozenset()
    text = Speculator(folder).generate(PROMPT, max_new_tokens=30).tokens
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [299, text[6]]}))
    for k in (0, 5):
        made = Speculator(folder, model, k=k).generate(PROMPT, max_new_tokens=30)
        assert made.tokens == text[: text.index(text[6]) + 1]
        assert (made.finish_reason, made.stop) == ("stop", text[6])


def test_settings_that_ship_with_the_model_and_change_greedy_text_are_noted(model, folder):
    shipped = {"repetition_penalty": 1.1, "suppress_tokens": [3], "no_repeat_ngram_size": 0, "temperature": 0.6}
    (folder / "generation_config.json").write_text(json.dumps(shipped))
    (note,) = load(folder).notes
    assert "repetition_penalty=1.1, suppress_tokens=[3]" in note
    assert "ngram" not in note
    assert Speculator(model).notes == []


def test_a_hub_name_is_downloaded_once_and_read_as_a_folder(folder, monkeypatch):
    asked = {}

    def snapshot_download(name, **kwargs):
        asked.update(kwargs, name=name)
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    loaded = load("owner/model", revision="abc123")
    assert loaded.name == "owner/model"
    assert asked["name"] == "owner/model"
    assert asked["revision"] == "abc123"
    assert find("owner/model") == folder


def test_the_embedded_pair_is_found_wherever_the_package_lies():
    assert (find("demo-target") / "config.json").is_file()
    assert (find("demo-draft") / "config.json").is_file()


def test_a_draft_that_overflows_in_its_dtype_is_reported_and_harmless(model):
    import copy

    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.lm_head.weight.mul_(3e38)
    made = Speculator(model, twin, k=3).generate(PROMPT, max_new_tokens=20)
    assert made.tokens == Speculator(model).generate(PROMPT, max_new_tokens=20).tokens
    assert "draft_dtype" in made.warnings[0]
    assert made.counts.proposed == 0


def test_prompts_as_ids_are_checked(model):
    speculator = Speculator(model, noisy(model, 0.1))
    for bad, says in (([], "no tokens"), ([300], "300"), ([-1], "-1")):
        with pytest.raises(ConfigError, match=says):
            speculator.generate(bad)
    with pytest.raises(ConfigError, match="tokenizer"):
        speculator.generate("text")
    with pytest.raises(ConfigError, match="max_new_tokens"):
        speculator.generate([1], max_new_tokens=0)
    with pytest.raises(ConfigError, match="k is 65"):
        speculator.generate([1], k=65)


def test_a_draft_with_the_targets_tokens_takes_its_tokenizer_and_any_other_keeps_its_own(model, folder, tmp_path):
    twin = save(model, tmp_path / "twin")
    (twin / "chat_template.jinja").write_text("{{ messages[0].content }}")
    speculator = Speculator(folder, twin, k=2)
    assert speculator.draft.tokenizer is speculator.target.tokenizer
    given = byte_tokenizer()
    speculator = Speculator(folder, twin, k=2, tokenizer=given)
    assert speculator.target.tokenizer is given
    assert speculator.draft.tokenizer is not given
    other = save(model, tmp_path / "other", byte_tokenizer(added=["<own>"]))
    assert "<own>" in Speculator(folder, other, k=2).draft.tokenizer.get_vocab()
    (twin / "tokenizer_config.json").write_text("{}")
    speculator = Speculator(folder, twin, k=2)
    assert speculator.draft.tokenizer is not speculator.target.tokenizer
