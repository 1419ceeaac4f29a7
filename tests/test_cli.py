"""The command line as a person meets it: text, ledger, one-line errors, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from draftproof.cli import app
from draftproof.results import from_json
from draftproof.testing import byte_tokenizer, noisy, random_model


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    """Folders of a random target and its noisy copy."""
    root = tmp_path_factory.mktemp("pair")
    target = random_model(vocab_size=257)
    for name, model in (("target", target), ("draft", noisy(target, 0.1))):
        model.save_pretrained(root / name)
        tokenizer = byte_tokenizer()
        tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}:"
        tokenizer.save_pretrained(root / name)
    return root / "target", root / "draft"


def invoke(*arguments, **kwargs):
    return CliRunner().invoke(app, [str(a) for a in arguments], **kwargs)


def run(pair, *arguments, **kwargs):
    return invoke("run", "--target", pair[0], "--draft", pair[1], "--max-new-tokens", 30, *arguments, **kwargs)


def record(pair, tmp_path, *arguments, **kwargs):
    file = tmp_path / "result.json"
    out = run(pair, "--json", file, *arguments, **kwargs)
    assert out.exit_code == 0, out.output
    return json.loads(file.read_text())


def test_a_run_prints_the_text_the_ledger_and_the_proof(pair):
    out = run(pair, "--prompt", "Hello", "--repeats", 2, "--k", 3)
    assert out.exit_code == 0, out.output
    for row in ("target passes", "draft passes", "guesses", "accepted", "discarded", "acceptance rate", "c: a draft"):
        assert row in out.stdout
    assert "identical: yes" in out.stdout
    assert "95 % interval" in out.stdout


def test_the_streamed_text_is_the_recorded_text(pair, tmp_path):
    file = tmp_path / "result.json"
    out = run(pair, "--prompt", "Hello", "--json", file, "--repeats", 2)
    data = json.loads(file.read_text())
    assert out.stdout.startswith(data["text"] + "\n\n")
    assert data["identical"] is True
    assert data["finish_reason"] == "length"
    assert len(data["tokens"]) == 30 == sum(len(r["tokens"]) for r in data["rounds"])
    assert data["tokens"] == data["plain"]["tokens"]
    assert data["speedup"]["low"] <= data["speedup"]["value"] <= data["speedup"]["high"]
    assert from_json(file.read_text()).generation.text == data["text"]


BASE = ("--prompt", "Hello")


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (("--k", 2), ("recipe", "k")),
        (("--seed", 7), ("recipe", "options", "seed")),
        (("--max-new-tokens", 9), ("recipe", "options", "max_new_tokens")),
        (("--stop", "e", "--stop", "f"), ("recipe", "options", "stop")),
        (("--chat",), ("prompt_tokens",)),
        (("--dtype", "bfloat16"), ("recipe", "target_placement", "dtype")),
        (("--draft-dtype", "bfloat16"), ("recipe", "draft_placement", "dtype")),
        (("--device", "cpu"), ("recipe", "target_placement", "reason")),
        (("--draft-device", "cpu"), ("recipe", "draft_placement", "reason")),
        (("--no-check",), ("plain",)),
        (("--repeats", 2), ("repeats",)),
        (("--draft-window", 8), ("recipe", "draft_window")),
    ],
)
def test_every_option_shows_in_the_results_file(pair, tmp_path, arguments, where):
    def value(*more):
        found = record(pair, tmp_path, *BASE, *more)
        for key in where:
            found = found[key]
        return found

    assert value(*arguments) != value()


def test_k_is_the_number_of_guesses_in_every_round_but_the_last(pair, tmp_path):
    for k in (1, 3, 7):
        data = record(pair, tmp_path, *BASE, "--k", k)
        left = 30
        for done in data["rounds"]:
            assert len(done["proposed"]) == min(k, left - 1)
            left -= len(done["tokens"])
        assert data["counts"]["draft_passes"] == data["counts"]["proposed"]


def test_prompts_come_from_an_option_a_file_or_standard_input(pair, tmp_path):
    file = tmp_path / "prompt.txt"
    file.write_text("Hello")
    texts = {
        record(pair, tmp_path, *BASE)["text"],
        record(pair, tmp_path, "--prompt-file", file)["text"],
        record(pair, tmp_path, input="Hello\n")["text"],
    }
    assert len(texts) == 1


def test_without_a_draft_it_writes_plainly(pair, tmp_path):
    file = tmp_path / "result.json"
    out = invoke("run", "--target", pair[0], "--prompt", "Hello", "--max-new-tokens", 5, "--json", file, "--no-check")
    assert out.exit_code == 0, out.output
    assert json.loads(file.read_text())["counts"]["proposed"] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--prompt", ""), "prompt is empty"),
        (("--prompt", "x", "--prompt-file", "y"), "exclude each other"),
        (("--prompt-file", "/nowhere/prompt.txt"), "cannot read"),
        (("--prompt", "x", "--device", "gpu"), "device is 'gpu'"),
        (("--prompt", "x", "--dtype", "int3"), "dtype is 'int3'"),
        (("--prompt", "x", "--stop", ""), "stop string is empty"),
        (("--prompt", "x" * 300), "window"),
        (("--prompt", "x", "--k", "65"), "k is 65"),
        (("--prompt", "x", "--max-new-tokens", "0"), "--max-new-tokens is 0"),
        (("--prompt", "x", "--logit-bias", "999999=1"), "--logit-bias names token id 999999"),
        (("--prompt", "x", "--logit-bias", "a=1"), "give ID=BIAS"),
        (("--prompt", "x", "--end-token", "99999999999999999999"), "--end-token names token id"),
        (("--prompt", "x", "--end-token", "3", "--ignore-end"), "exclude each other"),
        (("--prompt", "x", "--top-p", "0"), "--top-p is 0.0; it must be a number, above 0 and at most 1"),
        (("--prompt", "x", "--json-schema", "/nowhere.json"), "cannot read --json-schema"),
        (("--prompt", "x", "--json", "/nowhere/r.json"), "does not exist"),
        (("--prompt", "x", "--draft-window", "999"), "999"),
        (("--prompt", "x", "--draft", "./nowhere"), "does not exist"),
        (("--prompt", "x", "--no-such-option"), "No such option"),
    ],
)
def test_misuse_is_one_clear_line_and_exit_code_2(pair, arguments, says):
    out = run(pair, *arguments)
    assert out.exit_code == 2, out.output
    assert says in " ".join(out.output.split())
    assert "Traceback" not in out.output
    assert "identical" not in out.output


def test_a_difference_fails_the_run_with_exit_code_1_and_is_written_down(pair, tmp_path, monkeypatch):
    from dataclasses import replace

    from draftproof.verify.matching import Matching

    right = Matching.judge

    def generous(self, rows, proposal, chance):
        verdict = right(self, rows, proposal, chance)
        return replace(verdict, accepted=min(len(proposal.tokens), verdict.accepted + 1))

    monkeypatch.setattr(Matching, "judge", generous)
    file = tmp_path / "result.json"
    out = run(pair, *BASE, "--k", 3, "--json", file)
    assert out.exit_code == 1
    assert "identical: no (a bug)" in out.stdout
    assert "bug: scoring the same prefix as a block" in " ".join(out.output.split())
    assert "no speedup" in " ".join(out.stdout.split())
    data = json.loads(file.read_text())
    assert data["identical"] is False
    assert data["divergence"]["kind"] == "bug"


def test_ctrl_c_leaves_the_partial_ledger(pair, tmp_path, monkeypatch):
    from draftproof.propose.draft import Draft

    right = Draft.propose
    calls = []

    def interrupted(self, sequence, k, chance):
        calls.append(k)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return right(self, sequence, k, chance)

    monkeypatch.setattr(Draft, "propose", interrupted)
    file = tmp_path / "result.json"
    out = run(pair, *BASE, "--k", 3, "--json", file)
    assert out.exit_code == 130
    assert "target passes" in out.stdout
    assert "interrupted" in out.stdout
    assert "identical" not in out.stdout
    data = json.loads(file.read_text())
    assert data["finish_reason"] == "cancelled"
    assert len(data["rounds"]) == 4
    assert out.stdout.startswith(data["text"])


def test_bytes_that_are_no_text_and_terminals_without_unicode_are_no_tracebacks(pair):
    command = [
        sys.executable,
        "-m",
        "draftproof",
        "run",
        "--target",
        pair[0],
        "--max-new-tokens",
        "9",
        "--no-check",
    ]
    out = subprocess.run(command, input=b"abc \xff", capture_output=True, check=False)
    assert out.returncode == 2
    assert b"UTF-8" in out.stderr
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    out = subprocess.run([*command, "--prompt", "x"], capture_output=True, env=environment, check=False)
    assert out.returncode == 0, out.stderr
    assert b"tokens written" in out.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_real_interrupt_ends_a_real_process_cleanly(pair):
    command = [sys.executable, "-m", "draftproof.cli", "run", "--target", pair[0], "--draft", pair[1]]
    command += ["--prompt", "Hello", "--max-new-tokens", "240", "--repeats", "10000"]
    heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a suite in the background ignores interrupts
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env={**os.environ}, preexec_fn=heeds, **pipes) as process:
        try:
            os.set_blocking(process.stdout.fileno(), False)
            deadline = time.monotonic() + 120
            while not process.stdout.read() and time.monotonic() < deadline:
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, errors.decode()
    assert b"Traceback" not in errors
    assert b"interrupted" in out


def test_help_and_version_do_not_import_torch():
    code = (
        "import sys; from typer.testing import CliRunner; from draftproof.cli import app;"
        "import draftproof; assert draftproof.__all__;"
        "assert CliRunner().invoke(app, ['run', '--help']).exit_code == 0;"
        "assert draftproof.__version__ in CliRunner().invoke(app, ['--version']).output;"
        "heavy = {'torch', 'transformers', 'scipy', 'numpy'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_demo_shows_both_texts_the_fates_the_ledger_and_the_speedup():
    out = invoke("demo", "--max-new-tokens", 24, "--repeats", 2)
    assert out.exit_code == 0, out.output
    for part in (
        "plain: 24 target passes",
        "speculative:",
        "accepted guess",
        "round 1:",
        "discarded",
        "identical: yes",
    ):
        assert part in out.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
def test_a_full_disk_is_said_in_one_line():
    command = [sys.executable, "-m", "draftproof", "run", "--target", "demo-target", "--prompt", "The", "--no-check"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*command, "--max-new-tokens", "4"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert "error: cannot write to standard output: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_misspelt_name_of_the_embedded_pair_is_guessed(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    out = invoke("run", "--target", "demo-traget", "--prompt", "x")
    assert "Did you mean 'demo-target'?" in " ".join(out.output.split())
