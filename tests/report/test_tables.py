"""Tables in terminals of any width."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from draftproof.report.bench_summary import doubts, identity
from draftproof.report.grid import draw
from draftproof.report.tables import bench_table
from draftproof.results import BenchResult, from_json
from draftproof.stats.rows import bench_rows

DATA = Path(__file__).parent.parent / "results" / "data"


@pytest.fixture(scope="module")
def bench():
    found = [from_json(file.read_text()) for file in sorted(DATA.glob("bench*.json"))]
    result = next(one for one in found if isinstance(one, BenchResult))
    named = [replace(cell, workload="repetitive") for cell in result.cells]
    return replace(result, cells=tuple(named))


@pytest.mark.parametrize("width", [200, 80, 79, 70, 60, 50])
def test_no_word_and_no_number_is_broken_in_a_narrow_terminal(bench, width):
    rows = [r for r in bench_rows(bench.cells) if r.arm.ours or width >= 70]
    out = Console(width=width)
    with out.capture() as shown:
        out.print(draw(bench_table("all", rows, "workload"), width))
    text = shown.get()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert re.search(r"\brepetitive\b", text)
    for row in rows:
        assert f"{row.tokens_per_s:.2f}" in text


def test_a_bench_says_whether_texts_are_the_same_by_rule_or_as_it_fell(bench):
    counted = len([c for c in bench.cells if c.arm.ours and c.arm.draft and c.identical is not None])
    assert counted
    for by_rule, says in ((True, "by rule"), (False, "as it fell"), (None, "of texts")):
        said = identity(replace(bench, by_rule=by_rule))
        assert said.startswith(f"identical: {counted} of {counted} pairs of texts")
        assert says in said
    assert identity(replace(bench, cells=())) is None


def test_a_bench_says_once_why_the_draft_guessed_less(bench):
    silent = [
        replace(cell, answers=tuple(replace(g, warnings=("it could not",)) for g in cell.generations))
        if cell.arm.draft
        else cell
        for cell in bench.cells
    ]
    told = [doubt for doubt in doubts(replace(bench, cells=tuple(silent)), []) if "it could not" in doubt]
    assert told == ["repetitive: it could not"]
