"""The engines' door: what another engine tells is measured beside ours, and what it does not tell is not made up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from draftproof import ConfigError, Speculator
from draftproof.answers import Reply
from draftproof.bench.engines import ENGINES, open_engine
from draftproof.bench.turns import measure
from draftproof.engines.base import Engine
from draftproof.engines.ours import Ours
from draftproof.options import Options
from draftproof.results import Arm, Workload
from draftproof.stats.rows import bench_rows


class Parrot(Engine):
    """An engine that says the prompt again, tells its tokens or not, and breaks where it is told to."""

    def __init__(self, *, tells=True, breaks=False):
        self.arm = Arm(None, None, "parrot", "loudly")
        self.tells, self.breaks = tells, breaks

    def write(self, prompt, options, sample):
        tokens = prompt.ids[: options.max_new_tokens]
        yield len(tokens)
        if self.breaks:
            raise ValueError("lost its voice")
        return Reply(prompt.text, tokens if self.tells else None, "length", 0.01, 0.02 + sample % 2 / 100)


def test_any_engine_may_be_measured_beside_ours():
    pair = Speculator("demo-target", "demo-draft", k=3)
    workload = Workload("one", ("The for statement",))
    engines = [Ours(pair), Parrot(), Parrot(tells=False), Parrot(breaks=True)]
    cells = measure(Ours(pair, plain=True), engines, workload, 0, Options(max_new_tokens=12), repeats=3)
    assert [cell.identical for cell in cells] == [None, True, False, False, None]
    assert cells[4].error == "ValueError: lost its voice" and not cells[4].answers
    assert [len(cell.answers) for cell in cells[:4]] == [3] * 4
    rows = bench_rows([replace(cell, identical=None) for cell in cells[:3]])
    assert [row.arm.name for row in rows] == ["plain", "k=3", "loudly"]
    assert rows[2].speedup.low < rows[2].speedup.value < rows[2].speedup.high
    silent = bench_rows([cells[0], replace(cells[3], identical=None)])[1]
    assert (silent.tokens_per_s, silent.target_passes, silent.tokens_per_round) == (None, None, None)
    assert silent.speedup is not None


def test_an_engine_is_opened_by_its_name():
    pair = Speculator("demo-target", "demo-draft", k=3, keep_weights=True)
    for name in ENGINES:
        assert all(isinstance(one, Engine) for one in open_engine(name, pair))
        with pytest.raises(ConfigError, match="draft"):
            open_engine(name, Speculator("demo-target"))
