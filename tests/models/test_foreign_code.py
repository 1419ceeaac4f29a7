"""What lies in a model's folder is read, never run, and nobody is asked: unless code was trusted by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from draftproof import LoadError, Speculator
from draftproof.models.load import load
from draftproof.results import from_json
from draftproof.testing import byte_tokenizer
from tests.forking import command, forked

MARK = "import pathlib; pathlib.Path({marker!r}).touch()\n"
CODE = {
    "configuration_own.py": "from transformers import LlamaConfig\n"
    "class OwnConfig(LlamaConfig):\n    model_type = 'own'\n",
    "modeling_own.py": "from transformers import LlamaForCausalLM\n"
    "from .configuration_own import OwnConfig\n"
    "class OwnForCausalLM(LlamaForCausalLM):\n    config_class = OwnConfig\n",
    "tokenization_own.py": "from transformers import PreTrainedTokenizerFast\n"
    "class OwnTokenizer(PreTrainedTokenizerFast):\n    pass\n",
}
MODEL_MAP = {"AutoConfig": "configuration_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}


@pytest.fixture
def plant(model, tmp_path, monkeypatch):
    """Make a folder whose code leaves a marker when it runs; return the folder and the marker."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("sys.path", [*sys.path])

    def make(*, model_type="llama", auto_map=None, tokenizer_map=None):
        folder, marker = tmp_path / "planted", tmp_path / "it-ran"
        model.save_pretrained(folder)
        byte_tokenizer().save_pretrained(folder)
        for name, text in CODE.items():
            (folder / name).write_text(MARK.format(marker=str(marker)) + text)
        edit(folder / "config.json", model_type=model_type, **({"auto_map": auto_map} if auto_map else {}))
        if tokenizer_map:
            edit(folder / "tokenizer_config.json", auto_map=tokenizer_map, tokenizer_class="OwnTokenizer")
        return folder, marker

    return make


def edit(file: Path, **changes):
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize(
    ("model_type", "auto_map", "tokenizer_map", "says"),
    [
        ("own", MODEL_MAP, None, "configuration_own.OwnConfig, modeling_own.OwnForCausalLM"),
        ("own", {"AutoConfig": "configuration_own.OwnConfig"}, None, "configuration_own.OwnConfig"),
        ("vit", {"AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}, None, "modeling_own"),
        ("own", {"AutoConfig": "somebody/else--configuration_own.OwnConfig"}, None, "somebody/else"),
        ("llama", None, {"AutoTokenizer": ["tokenization_own.OwnTokenizer", None]}, "tokenization_own.OwnTokenizer"),
        ("llama", None, ["tokenization_own.OwnTokenizer", None], "tokenization_own.OwnTokenizer"),
    ],
)
def test_code_in_a_folder_never_runs_and_nobody_is_asked(plant, model_type, auto_map, tokenizer_map, says):
    folder, marker = plant(model_type=model_type, auto_map=auto_map, tokenizer_map=tokenizer_map)
    ended = cli("run", "--target", folder, "--prompt", "Hello", "--max-new-tokens", "3")
    assert not marker.exists()
    assert (ended.returncode, ended.stdout) == (2, "")
    assert says in ended.stderr
    assert "--trust-remote-code" in ended.stderr
    assert ended.stderr.count("error:") == 1
    assert not any(word in ended.stderr for word in ("y/N", "Traceback"))


def cli(*arguments):
    """Run a command with people's lines waiting on standard input, each of which says yes."""
    ended = forked(command(*arguments), stdin="y\n" * 50)
    ended.stderr = " ".join(ended.stderr.split())
    return ended


def test_where_transformers_has_the_model_itself_the_code_is_left_alone_and_that_is_said(plant):
    folder, marker = plant(auto_map=MODEL_MAP, tokenizer_map={"AutoTokenizer": ["tokenization_own.OwnTokenizer", None]})
    edit(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    loaded = load(folder)
    assert not marker.exists()
    assert not loaded.placement.own_code
    assert [note.split(" brings")[0] for note in loaded.notes] == ["the tokenizer", "the model"]
    assert all("not run" in note for note in loaded.notes)


@pytest.mark.parametrize("name", ["run", "one-pass"])
def test_trusted_code_runs_and_the_result_says_so(plant, tmp_path, name):
    folder, marker = plant(model_type="own", auto_map=MODEL_MAP)
    which, out = {"run": "--target", "one-pass": "--model"}[name], tmp_path / "result.json"
    options = ["--prompt", "Hello", "--max-new-tokens", 3] if name == "run" else ["--text", "Hello you"]
    ended = cli(name, which, folder, *options, "--trust-remote-code", "--dtype", "float32", "--json", out)
    assert ended.returncode == 0, ended.stderr
    assert marker.exists()
    result = from_json(out.read_text())
    assert any("code of its own, as trusted" in note for note in result.notes)
    if name == "run":
        assert result.recipe.target_placement.own_code


def test_trusted_code_writes_the_models_own_text(model, plant):
    folder, marker = plant(model_type="own", auto_map=MODEL_MAP)
    made = Speculator(folder, model, k=4, trust_remote_code=True).generate([5, 9, 7], max_new_tokens=20)
    assert marker.exists()
    assert made.tokens == Speculator(model).generate([5, 9, 7], max_new_tokens=20).tokens


def test_nothing_is_fetched_for_a_folder(plant):
    """Its config names another home, and the network is open as far as the libraries know."""
    folder, _ = plant()
    edit(folder / "config.json", _name_or_path="owner/model", transformers_version="4.0.0")
    edit(folder / "tokenizer_config.json", name_or_path="owner/model")
    program = (
        "import socket, sys\n"
        "def refuse(*args, **kwargs):\n"
        "    print('asked for', args)\n"
        "    raise OSError('no network')\n"
        "socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse\n"
        "from draftproof import Speculator\n"
        f"made = Speculator({str(folder)!r}).generate('Hello', max_new_tokens=3)\n"
        "print(len(made.tokens))\n"
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")}
    whole = [sys.executable, "-c", program]
    ended = subprocess.run(whole, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (0, "3\n"), ended.stderr


@pytest.mark.parametrize(
    "setting",
    [
        {"attn_implementation": "kernels-community/flash-attn2"},
        {"_attn_implementation": "flash_attention_2"},
        {"text_config": {"_attn_implementation_internal": "paged|somebody/attention"}},
        {"attn_implementation": {"": "sdpa", "vision": "somebody/attention"}},
        {"experts_implementation": "sonicmoe"},
    ],
)
def test_kernels_that_would_be_fetched_and_run_are_refused(plant, setting):
    folder, _ = plant()
    edit(folder / "config.json", **setting)
    with pytest.raises(LoadError, match=r"config\.json, whose kernels.*take that line out"):
        load(folder)


def test_pickled_weights_are_not_read_whatever_names_them(model, plant):
    folder, marker = plant()
    class_ = type("Pickled", (), {"__reduce__": lambda self: (Path.touch, (marker,))})
    torch.save({"x": class_()}, folder / "adapter_model.bin")
    edit(folder / "config.json", transformers_weights="adapter_model.bin")
    with pytest.raises(LoadError, match="transformers_weights"):
        load(folder)
    edit(folder / "config.json", transformers_weights=None)
    for name in ("pytorch_model.bin", "model.pt"):
        (folder / "model.safetensors").unlink(missing_ok=True)
        torch.save({"x": class_()}, folder / name)
        with pytest.raises(LoadError, match=r"a pickle, which may run code.*save_pretrained"):
            load(folder)
        (folder / name).unlink()
    assert not marker.exists()
