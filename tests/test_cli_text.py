"""Text in and out of the command line: encodings, and what goes to standard output."""

from __future__ import annotations

import codecs
import json

import pytest
from typer.testing import CliRunner

from draftproof.bench.workloads import read_workloads
from draftproof.cli import app
from draftproof.results import from_json
from draftproof.testing import byte_tokenizer, noisy, random_model

TEXT = "café 漢"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    root = tmp_path_factory.mktemp("pair")
    target = random_model(vocab_size=257)
    for name, model in (("target", target), ("draft", noisy(target, 0.1))):
        model.save_pretrained(root / name)
        tokenizer = byte_tokenizer()
        tokenizer.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}|{% endfor %}"
        tokenizer.save_pretrained(root / name)
    return root / "target", root / "draft"


def invoke(*arguments, **kwargs):
    return CliRunner().invoke(app, [str(a) for a in arguments], **kwargs)


def run(pair, *arguments, **kwargs):
    return invoke("run", "--target", pair[0], "--draft", pair[1], "--max-new-tokens", 12, *arguments, **kwargs)


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_text_is_utf_8_with_or_without_a_mark_wherever_it_comes_from(pair, tmp_path, mark):
    file, lines = tmp_path / "prompt.txt", tmp_path / "lines.jsonl"
    file.write_bytes(mark + f"{TEXT}\r\n".encode())
    lines.write_bytes(mark + json.dumps({"prompt": TEXT}, ensure_ascii=False).encode())
    ways = [
        {"arguments": ["--prompt-file", file]},
        {"arguments": [], "input": mark + TEXT.encode(), "charset": "latin-1"},
        {"arguments": ["--prompt-file", "-"], "input": mark + TEXT.encode()},
    ]
    for way in ways:
        runner = CliRunner(charset=way.pop("charset", "utf-8"))
        arguments = ["run", "--target", pair[0], "--max-new-tokens", 2, "--json", "-", *way.pop("arguments")]
        out = runner.invoke(app, [str(a) for a in arguments], **way)
        assert out.exit_code == 0, out.output
        assert json.loads(out.stdout_bytes)["recipe"]["prompt"] == TEXT
    assert read_workloads(lines)[0].prompts == (TEXT,)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le"), "UTF-16"),
        (codecs.BOM_UTF32_LE + TEXT.encode("utf-32-le"), "UTF-32"),
        (codecs.BOM_UTF32_BE + TEXT.encode("utf-32-be"), "UTF-32"),
        (b"caf\xe9", "byte 0xe9 at 3 is not UTF-8"),
    ],
)
def test_other_encodings_are_named(pair, tmp_path, data, says):
    file = tmp_path / "file"
    file.write_bytes(data)
    for arguments in (["--prompt-file", file], ["--prompt", "x", "--json-schema", file], ["--prompt-file", "-"]):
        out = run(pair, *arguments, input=data)
        assert (out.exit_code, says in out.output.replace("\n", " ")) == (2, True), out.output
    assert says in invoke("report", file, "-o", tmp_path / "page.html").output.replace("\n", " ")


def test_a_result_on_standard_output_stands_alone(pair):
    out = run(pair, "--prompt", TEXT, "--json", "-")
    assert from_json(out.stdout).generation.text in out.stderr
    assert "identical: yes" in out.stderr
    assert invoke("one-pass", "--model", pair[0], "--text", "abcdef", "--json", "-").stdout.startswith("{")


@pytest.mark.parametrize("to", ["-", "file"])
def test_the_text_alone_goes_where_it_is_asked_to(pair, tmp_path, to):
    record, file = tmp_path / "r.json", tmp_path / "text.txt"
    out = run(pair, "--prompt", TEXT, "--json", record, "--text", to if to == "-" else file)
    wanted = json.loads(record.read_text(encoding="utf-8"))["text"]
    assert (out.stdout if to == "-" else file.read_bytes().decode()) == wanted
    assert "identical: yes" in (out.stderr if to == "-" else out.stdout)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["--json", "-", "--text", "-"], "name the same place"), (["--n", 2, "--text", "-"], "--n asks for 2")],
)
def test_outputs_that_exclude_each_other_are_refused(pair, arguments, says):
    out = run(pair, "--prompt", TEXT, *arguments)
    assert (out.exit_code, says in out.output) == (2, True), out.output


def test_a_backslash_in_a_stop_string_is_taken_as_it_is_with_a_note(pair):
    for stop, noted in (("\\n", True), ("\n", False)):
        notes = json.loads(run(pair, "--prompt", TEXT, "--stop", stop, "--json", "-").stdout)["notes"]
        assert any("a line break is $'\\n' in bash" in note for note in notes) is noted


TURNS = [{"role": "system", "content": "be"}, {"role": "user", "content": [{"type": "text", "text": "é"}]}]


@pytest.mark.parametrize("end", [False, True])
def test_chat_takes_a_file_of_messages_and_records_them(pair, tmp_path, end):
    file = tmp_path / "talk.json"
    file.write_text(json.dumps(TURNS if not end else {"messages": TURNS, "continue_final_message": True}))
    results = [
        run(pair, *arguments, "--json", "-", input=file.read_bytes())
        for arguments in (["--chat", file], [file, "--chat"], ["--chat", "-"])
    ]
    recipe = json.loads(results[0].stdout)["recipe"]
    assert [m["content"] for m in recipe["messages"]] == ["be", "é"]
    assert recipe["prompt"] == "system: be|user: é" + "|" * (not end)
    assert recipe["continue_final_message"] is end
    again = from_json(results[0].stdout)
    assert again.recipe.messages == tuple(recipe["messages"])
    assert len({json.loads(r.stdout)["text"] for r in results}) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["talk.json"], "stands alone"),
        (["--chat", "talk.json", "--prompt", "x"], "leave out --prompt"),
        (["--chat", "nowhere.json"], "cannot read the messages in 'nowhere.json'"),
    ],
)
def test_files_of_messages_that_cannot_be_meant_are_refused(pair, arguments, says):
    out = run(pair, *arguments)
    assert (out.exit_code, says in out.output) == (2, True), out.output


def test_reasons_are_one_line_unless_asked_for_and_a_price_is_always_told():
    command = ["run", "--target", "demo-target", "--draft", "demo-draft", "--prompt", "The", "--max-new-tokens", 4]
    short, long = (" ".join(invoke(*command, *more).output.split()) for more in ((), ("-v",)))
    assert "target and draft on cpu in float32" in short
    assert "-v says why" in short
    assert "no GPU found" not in short
    assert "target on cpu" in long
    assert "-v says why" not in long
    dear = " ".join(invoke(*command, "--dtype", "bfloat16", "--compile", "off").output.split())
    assert "× the time of one" in dear
