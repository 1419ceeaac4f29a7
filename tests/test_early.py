"""A wrong command says so at once: what can be known without torch is checked before torch is imported."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import draftproof
from draftproof import ConfigError, Speculator, settings
from draftproof.cli import app
from draftproof.cli.options import _ELSEWHERE, in_switches
from draftproof.files.find import find_here
from draftproof.models.placement import DTYPES

PAIR = ["--target", "demo-target", "--draft", "demo-draft"]
RUN = ["run", *PAIR, "--prompt", "x"]
WRONG: list[tuple[list[str], str]] = [
    ([*RUN, "--k", "-1"], "--k is -1; it must be a whole number between 0"),
    ([*RUN, "--k", "65"], "--k is 65"),
    ([*RUN, "--dtype", "fp16"], "--dtype is 'fp16'; choose one of auto, float32, bfloat16, float16."),
    ([*RUN, "--draft-dtype", "fp16"], "--draft-dtype is 'fp16'"),
    ([*RUN, "--device", "gpu"], "--device is 'gpu'; choose one of auto, cpu, cuda, mps."),
    ([*RUN, "--device", "cuda:x"], "--device is 'cuda:x'"),
    ([*RUN, "--compile", "yes"], "--compile is 'yes'; choose one of auto, wait, on, off."),
    ([*RUN, "--numerics", "slow"], "--numerics is 'slow'; choose one of auto, fixed, fast."),
    ([*RUN, "--draft-weights", "int3"], "--draft-weights is 'int3'; choose one of none, int8, int4."),
    ([*RUN, "--weights", "int8"], "pip install 'draftproof[quantised]'"),
    ([*RUN, "--regex", "a"], "pip install 'draftproof[grammar]'"),
    ([*RUN, "--draft-window", "0"], "--draft-window is 0; it must be a whole number, at least 1."),
    ([*RUN, "--revision", "main"], "a revision ('main') is for hub names, and 'demo-target' lies here"),
    ([*RUN, "--prompt-file", "p.txt"], "exclude each other"),
    ([*RUN[:-2], "--prompt-file", "./nowhere.txt"], "cannot read --prompt-file"),
    ([*RUN, "--json", "/nowhere/result.json"], "the folder '/nowhere' does not exist"),
    ([*RUN, "--verify", "typical"], "--verify is 'typical'"),
    ([*RUN, "--draft", "./nowhere"], "'./nowhere' does not exist"),
    ([*RUN, "--draft", "."], "is a folder without config.json"),
    ([*RUN, "--draft", "some.gguf"], "pip install 'draftproof[gguf]'"),
    (["run", "--target", "no-such/model", "--prompt", "x"], "nor to be had from the model hub"),
    (["run", "--target", "demo-target", "--prompt", "x", "--draft-device", "cpu"], "--draft-device is given, and no"),
    (["bench", *PAIR, "--at", "0"], "--at is 0; it must be a whole number between 1"),
    (["bench", *PAIR, "--k", "1,65"], "--k is 65"),
    (["bench", *PAIR, "--engine", "vllm"], "unknown engine 'vllm'"),
    (["bench", *PAIR, "--workload", "./nowhere.jsonl"], "cannot read the workloads"),
    (["bench", *PAIR, "--only", "poetry"], "unknown workload 'poetry'"),
    (["bench", *PAIR, "--json", "other.json"], "holds another measurement"),
    (["drafts", *PAIR, "--draft", "demo-draft"], "a draft is named twice"),
    (["drafts", *PAIR, "--k", "0"], "--k is 0"),
    (["drafts", *PAIR, "--limit", "0"], "--limit is 0; it must be at least 1."),
    (["drafts", *PAIR, "--draft", "./nowhere"], "'./nowhere' does not exist"),
    (["certify", *PAIR, "--k", "65"], "--k is 65"),
    (["certify", *PAIR, "--temperature", "0"], "--temperature is 0"),
    (["certify", "--compile", "yes"], "--compile is 'yes'"),
    (["certify", "--target", "./nowhere", "--draft", "demo-draft"], "'./nowhere' does not exist"),
    (["precondition", "--model", "./nowhere"], "'./nowhere' does not exist"),
    (["precondition", "--model", "demo-target", "--compare-dtype", "fp16"], "--compare-dtype is 'fp16'"),
    (["precondition", "--model", "demo-target", "--sizes", "2,3"], "1 must be the smallest"),
    (["one-pass", "--model", "./nowhere"], "'./nowhere' does not exist"),
    (["one-pass", "--model", "demo-target", "--cut", "0"], "--cut is 0; it must be at least 1."),
    (["demo", "--k", "65"], "--k is 65"),
    (["report", "./nowhere.json"], "cannot read"),
]
_RUN_THEM = """
import json, sys
for missing in ("torchao", "llguidance", "gguf"):
    sys.modules[missing] = None
from typer.testing import CliRunner
from draftproof.cli import app
for command, _ in json.load(sys.stdin):
    out = CliRunner().invoke(app, command)
    heavy = sorted({"torch", "transformers"} & set(sys.modules))
    print(json.dumps([out.exit_code, " ".join(out.output.split()), heavy]))
"""


def test_a_wrong_command_says_so_before_torch_is_imported(tmp_path):
    (tmp_path / "some.gguf").write_bytes(b"GGUF")
    data = Path(__file__).parent / "results" / "data"
    (tmp_path / "other.json").write_text(next(data.glob("*.json")).read_text())
    found = subprocess.run(
        [sys.executable, "-c", _RUN_THEM],
        input=json.dumps(WRONG),
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    ).stdout
    lines = [json.loads(line) for line in found.splitlines()]
    assert len(lines) == len(WRONG)
    for (command, says), (code, output, heavy) in zip(WRONG, lines, strict=True):
        assert says in output, (command, output)
        assert (code, heavy) == (2, []), (command, output)


@pytest.mark.parametrize("name", ["device", "dtype", "compile", "numerics", "weights", "draft_device", "draft_dtype"])
def test_the_library_refuses_the_same_names_in_the_same_words(name):
    with pytest.raises(ConfigError) as refused:
        Speculator("demo-target", "demo-draft", **{name: "other"})
    with pytest.raises(ConfigError) as early:
        settings.check_settings(**{name: "other"})
    assert str(refused.value) == str(early.value)
    assert str(early.value).startswith(f"{name} is 'other'; choose one of auto" if name != "weights" else name)


def test_what_is_allowed_is_what_can_be_had():
    for kind, about in settings.SETTINGS.items():
        for name in about.choices:
            settings.check_settings(**{kind: name, f"draft_{kind.removeprefix('draft_')}": name})
            assert name in about.help or kind.startswith("draft_") or name == "none"
    settings.check_settings(device="cuda:1", k=settings.MAX_K, draft_window=None)
    assert {"auto", *DTYPES} == set(settings.DTYPES)
    assert find_here("demo-target").is_dir()
    assert find_here("owner/model") is None


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("draft_dtype is 'x'; choose", "--draft-dtype is 'x'; choose"),
        ("end_tokens names token id 9", "--end-token names token id 9"),
        ("the texts differ; use numerics='fixed', or k=3.", "the texts differ; use --numerics fixed, or --k 3."),
        ("it guessed less; try another draft_dtype", "it guessed less; try another --draft-dtype"),
        ("it needs logprobs=True.", "it needs --logprobs."),
        ("'/models/k=3/dtype' does not exist", "'/models/k=3/dtype' does not exist"),
        ("device mps is not there; try device='cpu'.", "device mps is not there; try --device cpu."),
        ("numbers are at least 1", "numbers are at least 1"),
    ],
)
def test_the_command_line_says_options_as_it_calls_them(message, shown):
    assert in_switches(message) == shown


def test_only_the_command_line_speaks_in_switches():
    """A message of the library names an option as Python does; `in_switches` turns it for the command line."""
    root = Path(draftproof.__file__).parent
    commands = get_command(app).commands.values()
    switches = {opt for command in commands for one in command.params for opt in one.opts if opt.startswith("--")}
    for file in root.rglob("*.py"):
        if file.relative_to(root).parts[0] in ("cli", "report"):
            continue
        tree = ast.parse(file.read_text())
        bodies = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        prose = {id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, bodies) and _has_prose(node)}
        said = [str(n.value) for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in prose]
        assert not [text for text in said if switches & set(re.findall("--[a-z-]+", text))], file


def _has_prose(node):
    return bool(node.body) and isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("num_speculative_tokens", "there is no setting 'num_speculative_tokens'; use k."),
        ("torch_dtype", "use dtype."),
        ("temperature", "options of a request are given to generate."),
    ],
)
def test_a_setting_under_another_name_is_refused_with_its_own(name, says):
    with pytest.raises(ConfigError, match=re.escape(says)):
        Speculator("demo-target", **{name: 1})


@pytest.mark.parametrize(("theirs", "ours"), [*_ELSEWHERE.items()])
def test_a_switch_that_others_call_otherwise_is_answered_with_its_name_here(theirs, ours):
    found = CliRunner().invoke(app, ["run", f"--{theirs.replace('_', '-')}", "3"])
    assert found.exit_code == 2
    if "processors" in ours or theirs in (
        "n",
        "target",
        "max_model_len",
        "assistant_tokenizer",
    ):  # no switch, or the same one
        return
    assert re.search(
        rf"there is no option --{theirs.replace('_', '-')}; use --[-\w]+[ .,]", " ".join(found.output.split())
    )


def test_a_misspelt_switch_is_answered_with_the_nearest():
    assert "--max-new-tokens" in CliRunner().invoke(app, ["run", "--max-new-token", "3"]).output
    other = CliRunner().invoke(app, ["report", "--max-tokens", "3"])  # a command that has no such thing
    assert "use --max-new-tokens" not in other.output and other.exit_code == 2


def test_the_library_speaks_of_names_and_leaves_switches_to_the_command_line():
    found = [
        f"{path.name}: {node.value}"
        for path in Path(draftproof.__file__).parent.rglob("*.py")
        if path.parent.name != "cli" and (path.parent.name, path.name) != ("report", "elsewhere.py")  # others' switches
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"(?<!\S)--[a-z]", node.value)
        if "\n" not in node.value and "`--" not in node.value and "llama-gguf-split" not in node.value
    ]
    assert found == []
