"""The examples run, and say what they promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.forking import forked, script

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
PROMISES = {
    "1_is_it_identical": "identical: True",
    "2_stream_with_stop": "guesses accepted in each round",
    "3_inside_transformers": "same tokens as generate without a draft: True",
    "4_sample": "same text with k = 0, 3 and 8: True",
    "5_measure": "k=3: ",
}


def test_every_example_has_a_promise():
    assert {e.stem for e in EXAMPLES} == set(PROMISES)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.stem)
def test_an_example_runs(example):
    out = forked(script(example))
    assert out.returncode == 0, out.stderr
    assert PROMISES[example.stem] in out.stdout
