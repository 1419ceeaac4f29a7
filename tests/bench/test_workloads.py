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
