"""Workloads: the built-in ones, and those of a file."""

from __future__ import annotations

import json

import pytest

from draftproof import ConfigError
from draftproof.bench.workloads import read_workloads
from draftproof.results import Workload
from tests.bench.test_sweep import bench


def test_five_workloads_are_built_in():
    built_in = read_workloads()
    assert [w.name for w in built_in] == ["prose", "code", "chat", "list", "repetitive"]
    assert [w.chat for w in built_in] == [False, False, True, False, False]


def test_own_workloads_are_read_line_by_line(tmp_path):
    file = tmp_path / "mine.jsonl"
    lines = [
        {"prompt": "a"},
        {"prompt": "b"},
        {"turns": ["hello", "and then?"], "category": "writing"},
        {"name": "x", "prompts": ["p", "q", "r"], "chat": True},
    ]
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    assert read_workloads(file, 2) == (
        Workload("mine", ("a", "b")),
        Workload("writing", ("hello",), chat=True),
        Workload("x", ("p", "q"), chat=True),
    )


def test_logs_and_responses_are_read(tmp_path):
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    file = tmp_path / "log.jsonl"
    lines = [
        {"messages": [*asked, {"role": "assistant", "content": "Because."}]},
        {"messages": asked, "response": "So."},
        {"prompt": "a", "response": "b", "category": "plain"},
    ]
    file.write_text("\n".join(json.dumps(line) for line in lines))
    told = read_workloads(file, responses=True)
    assert told == (
        Workload("log", (tuple(asked), tuple(asked)), chat=True, responses=("Because.", "So.")),
        Workload("plain", ("a",), responses=("b",)),
    )
    assert [(w.prompts, w.responses) for w in read_workloads(file)] == [(w.prompts, ()) for w in told]
    plain = tmp_path / "mine.txt"
    plain.write_text('The for statement\n\n{"not": "JSON here"}\n')
    assert read_workloads(plain) == (Workload("mine", ("The for statement", '{"not": "JSON here"}')),)


CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"prompt": "a"}, "has no response"),
        ({"prompt": "a", "response": 3}, "must be a text"),
        ({"prompt": "a", "response": ""}, "must be a text"),
        ({"prompts": ["a", "b"], "response": "c"}, "beside one prompt"),
        ({"messages": []}, "messages is empty"),
        ({"messages": [{"content": "x"}]}, "has no role"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "nothing asked for it"),
        ({"messages": [{"role": "user", "content": "x"}], "tools": [{}]}, "holds tools"),
        ({"messages": [{"role": "user", "content": "x"}]}, "has no response"),
        (
            {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [CALL]}]},
            "has no response",
        ),
        ({"prompt": "a", "response": "\ud800"}, "half a character"),
    ],
)
def test_a_line_without_a_usable_response_is_named(tmp_path, line, says):
    file = tmp_path / "r.jsonl"
    file.write_text(json.dumps({"prompt": "a", "response": "b"}) + "\n" + json.dumps(line))
    with pytest.raises(ConfigError, match=r"line 2 of .*r\.jsonl") as caught:
        read_workloads(file, responses=True)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "{}",
        '{"prompt": 3}',
        '{"prompts": []}',
        '{"turns": [""]}',
        '{"turns": 3}',
        '{"prompt": "\\ud800"}',
        "",
    ],
)
def test_a_line_that_is_no_workload_is_named(tmp_path, line):
    file = tmp_path / "bad.jsonl"
    file.write_text(line)
    with pytest.raises(ConfigError, match=r"bad\.jsonl"):
        read_workloads(file)


def test_names_of_workloads_are_unique_and_no_markup(tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_text('{"name": "a[/b]", "prompt": "p"}\n{"name": "a[/b]", "prompt": "q", "chat": true}\n')
    assert [w.name for w in read_workloads(file)] == ["a[/b]", "a[/b] (chat)"]
    out = bench(tmp_path, "--workload", file)
    assert out.exit_code == 0, out.output
    assert "k sweep on 'a[/b]'" in out.stdout
