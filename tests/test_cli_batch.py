"""`run --prompts` and `bench --batch`: many texts at once, as a person asks for them."""

from __future__ import annotations

import json

import pytest

from draftproof import Speculator
from draftproof.report.html import page
from draftproof.results import from_json
from tests.test_cli import invoke

PROMPTS = ("The for statement", "class Reader", "The if")
MODELS = ("--target", "demo-target", "--draft", "demo-draft")


@pytest.fixture
def prompts(tmp_path):
    file = tmp_path / "p.txt"
    file.write_text("\n".join(PROMPTS) + "\n")
    return file


def write(prompts, out, *more):
    return invoke("run", *MODELS, "--prompts", prompts, "--out", out, "--max-new-tokens", 12, *more)


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_every_prompt_has_its_text_and_the_command_goes_on_where_it_ended(prompts, tmp_path):
    out = tmp_path / "o.jsonl"
    said = write(prompts, out)
    assert said.exit_code == 0 and "3 of 3 texts" in said.output, said.output
    found = {one["index"]: one for one in lines(out)}
    pair = Speculator("demo-target", "demo-draft")
    for i, prompt in enumerate(PROMPTS):
        assert found[i]["prompt"] == prompt
        assert found[i]["text"] == pair.generate(prompt, max_new_tokens=12).text
    whole = out.read_text()
    out.write_text("".join(line + "\n" for line in whole.splitlines()[:1]) + '{"index": 1, "wor')  # it was killed
    assert "1 of them from before" in write(prompts, out).output
    assert sorted(one["index"] for one in lines(out)) == [0, 1, 2]
    assert "3 of them from before" in write(prompts, out, "--at-once", 1).output


def test_texts_of_other_options_or_prompts_are_not_mixed(prompts, tmp_path):
    out = tmp_path / "o.jsonl"
    assert write(prompts, out).exit_code == 0
    before = out.read_text()
    said = write(prompts, out, "--temperature", 0.7)
    assert said.exit_code == 2 and "other options" in said.output
    prompts.write_text("Another\n")
    assert write(prompts, out).exit_code == 2
    (tmp_path / "notes.txt").write_text("mine")
    assert "something else" in write(prompts, tmp_path / "notes.txt").output
    assert out.read_text() == before and (tmp_path / "notes.txt").read_text() == "mine"


def test_one_that_cannot_be_written_has_a_line_that_says_why(tmp_path):
    file = tmp_path / "p.jsonl"
    file.write_text(json.dumps({"prompt": "class Reader"}) + "\n" + json.dumps({"prompt": "word " * 900}) + "\n")
    out = tmp_path / "o.jsonl"
    said = write(file, out)
    assert said.exit_code == 1 and "1 failed" in said.output
    found = {one["index"]: one for one in lines(out)}
    assert "window" in found[1]["error"] and found[0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--prompt", "x"), "--prompt is for one prompt"),
        (("--n", 2), "--n is for one prompt"),
        (("--at-once", 0), "--at-once is 0"),
        (("--memory", 0), "--memory is 0"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_said(prompts, tmp_path, given, says):
    assert says in write(prompts, tmp_path / "o.jsonl", *given).output


def test_prompts_and_out_go_together(prompts, tmp_path):
    assert "--out FILE" in invoke("run", *MODELS, "--prompts", prompts).output
    assert "--prompts" in invoke("run", *MODELS, "--prompt", "x", "--out", tmp_path / "o").output


def test_a_bench_of_batches_says_up_to_how_many_it_pays(prompts, tmp_path):
    file = tmp_path / "b.json"
    asked = ("--batch", "1,3", "--k", "2,auto", "--repeats", 2, "--max-new-tokens", 10, "--workload", prompts)
    said = invoke("bench", *MODELS, *asked, "--json", file)
    assert said.exit_code == 0, said.output
    assert "every text is the one that it is alone, plainly: yes" in " ".join(said.output.split())
    result = from_json(file.read_text())
    assert [(cell.size, cell.k) for cell in result.cells] == [(s, k) for s in (1, 3) for k in (0, 2, "auto")]
    for cell in result.cells:
        assert cell.identical and len(cell.seconds) == 2 and cell.tokens[0] == cell.tokens[1] > 0
    assert "Pays up to how many texts at once" in page([("b.json", result)])
    assert "give whole numbers" in invoke("bench", *MODELS, "--batch", "1,x").output
