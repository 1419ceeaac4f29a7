"""A bench measures every arm of every prompt, survives what fails, and goes on where it stopped."""

from __future__ import annotations

import json
from math import exp, log
from statistics import fmean

import pytest
import torch

from draftproof import EngineError, Speculator
from draftproof.bench.turns import measure
from draftproof.engines.base import Prompt
from draftproof.engines.hf_assisted import NAME, WAYS, HfAssisted
from draftproof.engines.ours import Ours
from draftproof.models.load import load
from draftproof.options import Options
from draftproof.records import Interval
from draftproof.report.bench_summary import doubt_cells, doubt_sweep, recommend
from draftproof.results import Arm, Workload, from_json
from draftproof.stats.rows import bench_rows
from tests.test_cli import invoke

PAIR = ("--target", "demo-target", "--draft", "demo-draft")
PROSE = Workload("prose", ("The for statement",))
SHORT = Options(max_new_tokens=20)


@pytest.fixture(scope="module")
def loaded():
    return load("demo-target"), load("demo-draft")


def arms(loaded, *ks):
    """Return plain decoding, and every k."""
    pair = Speculator(*loaded, 5)
    return Ours(pair, plain=True), [Ours(pair.at(k)) for k in ks]


def test_every_arm_writes_the_same_text_as_often_as_asked(loaded):
    cells = measure(*arms(loaded, 1, 4), PROSE, 0, Options(max_new_tokens=20), repeats=3)
    assert [(c.arm.name, len(c.generations)) for c in cells] == [("plain", 3), ("k=1", 3), ("k=4", 3)]
    assert len({g.tokens for c in cells for g in c.generations}) == 1
    assert [c.identical for c in cells] == [None, True, True]
    for cell in cells:
        assert len({tuple(r.proposed for r in g.rounds) for g in cell.generations}) == 1, "repeats must count alike"


def test_samples_without_a_seed_are_drawn_alike_by_all_arms(loaded):
    cells = measure(*arms(loaded, 1, 4), PROSE, 0, Options(max_new_tokens=20, temperature=0.8), repeats=2)
    plain, *others = cells
    assert all(cell.identical for cell in others)
    assert plain.generations[0].seed is not None
    assert plain.generations[0].tokens != plain.generations[1].tokens


def test_peers_run_on_the_same_models_and_leave_them_as_they_were(loaded):
    target, draft = loaded
    before = draft.model.generation_config.to_dict(), target.model.generation_config.to_dict()
    clock = Speculator(target, draft).clock
    peers = [HfAssisted(way, target, draft, 4, clock) for way in WAYS]
    plain, _, *found = measure(*arms(loaded)[:1], [*arms(loaded, 4)[1], *peers], PROSE, 0, SHORT, repeats=2)
    assert [(c.error, c.identical, c.generations) for c in found] == [(None, True, ())] * 4
    (written,) = {g.tokens for g in plain.generations}
    for reply in (reply for cell in found for reply in cell.answers):
        assert (reply.tokens, reply.text, reply.finish_reason) == (written, plain.generations[0].text, "length")
        assert 0 < reply.first_s < reply.total_s
    passes = {cell.arm.name: {reply.target_passes for reply in cell.answers} for cell in found}
    assert passes["hf-plain"] == {20}
    assert max(passes["hf-assisted-constant k=4"]) < 20
    rows = bench_rows([plain, *found])
    assert [r.arm.name for r in rows] == ["plain", *passes]
    for row in rows[1:]:
        assert row.speedup.low < row.speedup.value < row.speedup.high, "two repeats say how sure it is"
        assert (row.proposed, row.agreement) == (None, None), "which transformers does not tell"
    assert before == (draft.model.generation_config.to_dict(), target.model.generation_config.to_dict())


@pytest.mark.parametrize(
    ("error", "message"),
    [(EngineError("planted"), "planted"), (torch.OutOfMemoryError("no room\nat all"), "OutOfMemoryError: no room")],
)
def test_an_arm_that_fails_leaves_its_error_and_the_others_their_numbers(loaded, monkeypatch, error, message):
    plain, broken = arms(loaded, 2, 3)
    session = broken[0].speculator._target_session
    right = session.read

    def read(sequence, last=1, whole=None):
        if len(sequence) > 8:
            raise error
        return right(sequence, last, whole)

    monkeypatch.setattr(session, "read", read)
    cells = measure(plain, broken, PROSE, 0, SHORT, repeats=2)
    assert cells[1].error == message
    assert cells[1].identical is None
    assert cells[2].error is None
    assert len(cells[0].generations) == len(cells[2].generations) == 2
    assert [r.arm.name for r in bench_rows(cells)] == ["plain", "k=3"]
    assert doubt_cells(cells, 20)[-1].endswith(f"demo-draft k = 2: not measured: {message}")


def test_a_peer_that_fails_is_reported(loaded, monkeypatch):
    peer = HfAssisted("hf-plain", *loaded, 4, Speculator(loaded[0]).clock)
    monkeypatch.setattr(peer, "_generate", lambda *args: 1 / 0)
    plain, mine = arms(loaded, 2)
    *_, cell = measure(plain, [*mine, peer], PROSE, 0, Options(max_new_tokens=8), repeats=2)
    assert "ZeroDivisionError" in cell.error


def bench(tmp_path, *arguments, file="r.json"):
    short = ("--k", "1,3", "--at", 3, "--max-new-tokens", 12, "--repeats", 2, "--json", tmp_path / file)
    return invoke("bench", *PAIR, *short, *arguments)


def test_a_bench_writes_tables_and_a_file_that_can_be_summed_up_again(tmp_path):
    out = bench(tmp_path, "--engine", "hf-assisted")
    assert out.exit_code == 0, out.output
    for part in ("k sweep on 'prose'", "workloads at k = 3", "repetitive", "hf-prompt-lookup", "k=1"):
        assert part in out.stdout
    assert "chat, plain: not measured: this tokenizer has no chat template" in " ".join(out.stdout.split())
    result = from_json((tmp_path / "r.json").read_text())
    rows = bench_rows(result.cells)
    assert {(r.workload, r.k) for r in rows if r.arm.ours} >= {("prose", 0), ("prose", 1), ("prose", 3), ("code", 3)}
    assert ("code", 1) not in {(r.workload, r.k) for r in rows if r.arm.ours}
    assert "another engine" in out.stdout or "workloads at k = 3: " in " ".join(out.stdout.split())
    for row in rows:
        if row.guesses:
            assert row.identical
            assert row.proposed == row.draft_passes
            assert row.speedup is None or row.speedup.low <= row.speedup.value <= row.speedup.high
    assert {r.arm.name for r in rows if not r.arm.ours} == {"hf-plain", "hf-assisted-constant k=3", *WAYS[2:]}


def test_an_interrupted_bench_goes_on_where_it_stopped(tmp_path, monkeypatch):
    from draftproof.bench import turns

    right, prompts = turns.measure, []

    def stopping(plain, others, workload, *rest, **settings):
        prompts.append(workload.name)
        if len(prompts) == 2:
            raise KeyboardInterrupt
        return right(plain, others, workload, *rest, **settings)

    monkeypatch.setattr(turns, "measure", stopping)
    out = bench(tmp_path, "--only", "prose,code,list")
    assert out.exit_code == 130
    assert "run the same command to go on" in " ".join(out.output.split())
    assert "k sweep on 'prose'" in out.stdout
    first = json.loads((tmp_path / "r.json").read_text())["cells"]
    out = bench(tmp_path, "--only", "prose,code,list")
    assert out.exit_code == 0, out.output
    assert prompts == ["prose", "code", "code", "list"]
    assert json.loads((tmp_path / "r.json").read_text())["cells"][: len(first)] == first
    out = bench(tmp_path, "--only", "prose")
    assert out.exit_code == 2
    assert "holds another measurement" in " ".join(out.output.split())


def test_a_difference_fails_the_bench(tmp_path, monkeypatch):
    from dataclasses import replace

    from draftproof.verify.matching import Matching

    right = Matching.judge

    def generous(self, rows, proposal, chance):
        verdict = right(self, rows, proposal, chance)
        return replace(verdict, accepted=min(len(proposal.tokens), verdict.accepted + 1))

    monkeypatch.setattr(Matching, "judge", generous)
    out = bench(tmp_path, "--only", "prose")
    assert out.exit_code == 1
    assert "NO" in out.stdout
    assert "(bug)" in out.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--k", "1,x"), "whole numbers"),
        (("--k", "0,1"), "between 1 and 64"),
        (("--at", "0"), "--at is 0"),
        (("--engine", "vllm"), "unknown engine 'vllm'"),
        (("--only", "poetry"), "unknown workload 'poetry'"),
        (("--limit", "0"), "limit is 0"),
        (("--repeats", "0"), "--repeats is 0"),
        (("--workload", "/nowhere.jsonl"), "cannot read the workloads"),
    ],
)
def test_misuse_of_bench_is_one_line(arguments, says):
    out = invoke("bench", *PAIR, *arguments)
    assert out.exit_code == 2, out.output
    assert says in " ".join(out.output.split())


def test_a_sweep_is_judged(loaded):
    cells = measure(*arms(loaded, 1, 4), PROSE, 0, Options(max_new_tokens=20), repeats=2)
    rows = bench_rows(cells)
    assert doubt_sweep(rows) is None
    from dataclasses import replace

    assert "no effect" in doubt_sweep([rows[0], replace(rows[1], proposed=9), replace(rows[2], proposed=9)])

    def given(low, high):
        return [r if not r.guesses else replace(r, speedup=Interval(1.0, low, high)) for r in rows]

    assert recommend(given(0.5, 0.9)).startswith("does not pay")
    assert recommend(given(0.5, 1.5)).startswith("cannot tell")
    assert recommend(given(1.1, 1.5)).startswith("pays: k = 1 is the fastest of 2 measured")
    assert recommend(rows[:1]) == "nothing was measured"


def test_a_prompt_that_fails_takes_itself_out_and_nothing_else(tmp_path):
    file = tmp_path / "two.jsonl"
    file.write_text(json.dumps({"name": "w", "prompts": ["The for statement", "word " * 600]}))
    out = bench(tmp_path, "--workload", file)
    assert out.exit_code == 0, out.output
    assert "w [1], plain: not measured: the prompt has" in " ".join(out.stdout.split())
    cells = from_json((tmp_path / "r.json").read_text()).cells
    alone = [c for c in cells if c.prompt == 0]
    assert bench_rows(cells) == bench_rows(alone)
    assert {r.k for r in bench_rows(cells)} == {0, 1, 3}


def test_a_bench_that_measured_nothing_says_so_and_fails(tmp_path):
    out = bench(tmp_path, "--only", "chat")
    assert out.exit_code == 1
    assert "nothing was measured" in out.stdout
    assert "pay" not in out.stdout.replace("nothing was measured", "")


def test_a_text_that_differs_has_no_speedup(loaded):
    cells = measure(*arms(loaded, 1, 4), PROSE, 0, Options(max_new_tokens=20), repeats=2)
    from dataclasses import replace

    rows = bench_rows([cells[0], replace(cells[1], identical=False), cells[2]])
    assert [r.speedup is None for r in rows] == [True, True, False]
    assert rows[1].identical is False


def test_a_peer_is_compared_on_the_prompts_that_it_finished(tmp_path):
    file = tmp_path / "two.jsonl"
    file.write_text(json.dumps({"name": "w", "prompts": ["The for statement", "class Reader"]}))
    assert bench(tmp_path, "--workload", file, "--engine", "hf-assisted").exit_code == 0
    from dataclasses import replace

    result = from_json((tmp_path / "r.json").read_text())
    lame = Arm(None, 0, NAME, "hf-plain")
    cells = [replace(c, error="planted", answers=()) if (c.arm, c.prompt) == (lame, 1) else c for c in result.cells]
    rows = bench_rows(cells)
    row = next(r for r in rows if r.arm == lame)
    mine = next(c for c in cells if (c.arm, c.prompt) == (lame, 0))
    plain = next(c for c in cells if c.arm.plain and c.prompt == 0)
    logs = [log(p.total_s / m.total_s) for p, m in zip(plain.answers, mine.answers, strict=True)]
    assert row.speedup.value == pytest.approx(exp(fmean(logs)))
    ours = [r for r in rows if r.arm.ours]
    assert ours == bench_rows([c for c in cells if c.arm.ours]), "an engine that fails takes nothing from ours"


def test_another_engine_is_another_measurement(tmp_path):
    assert bench(tmp_path, "--only", "code").exit_code == 0
    out = bench(tmp_path, "--only", "code", "--engine", "hf-assisted")
    assert out.exit_code == 2
    assert "holds another measurement" in " ".join(out.output.split())


def test_the_settings_of_one_model_that_is_target_and_draft_survive(loaded):
    target, _ = loaded
    before = target.model.generation_config
    for way in WAYS:
        peer = HfAssisted(way, target, target, 3, Speculator(target).clock)
        assert list(peer.write(Prompt("", False, (5, 6, 7)), Options(max_new_tokens=4), 0)) == [4]
    assert target.model.generation_config is before
