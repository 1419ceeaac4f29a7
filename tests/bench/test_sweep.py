"""A bench measures every arm of every prompt, survives what fails, and goes on where it stopped."""

from __future__ import annotations

import json
from statistics import median

import pytest
import torch

from draftproof import EngineError, Speculator
from draftproof.bench.sweep import Arm, measure
from draftproof.engines.hf_assisted import ARMS, HfAssisted
from draftproof.models.load import load
from draftproof.options import Options
from draftproof.records import Interval
from draftproof.report.bench_summary import bench_rows, doubt_cells, doubt_sweep, peer_rows, recommend
from draftproof.results import Workload, from_json
from tests.test_cli import invoke

PAIR = ("--target", "demo-target", "--draft", "demo-draft")
PROSE = Workload("prose", ("The for statement",))


@pytest.fixture(scope="module")
def loaded():
    return load("demo-target"), load("demo-draft")


def arms(loaded, *ks):
    target, draft = loaded
    return [Arm(Speculator(target, draft, 5), None), *(Arm(Speculator(target, draft, k), "d") for k in ks)]


def test_every_arm_writes_the_same_text_as_often_as_asked(loaded):
    cells, _ = measure(arms(loaded, 1, 4), PROSE, 0, Options(max_new_tokens=20), repeats=3)
    assert [(c.draft, c.k, len(c.generations)) for c in cells] == [(None, 0, 3), ("d", 1, 3), ("d", 4, 3)]
    assert len({g.tokens for c in cells for g in c.generations}) == 1
    assert [c.identical for c in cells] == [None, True, True]
    for cell in cells:
        assert len({tuple(r.proposed for r in g.rounds) for g in cell.generations}) == 1, "repeats must count alike"


def test_samples_without_a_seed_are_drawn_alike_by_all_arms(loaded):
    cells, _ = measure(arms(loaded, 1, 4), PROSE, 0, Options(max_new_tokens=20, temperature=0.8), repeats=2)
    plain, *others = cells
    assert all(cell.identical for cell in others)
    assert plain.generations[0].seed is not None
    assert plain.generations[0].tokens != plain.generations[1].tokens


def test_peers_run_on_the_same_models_and_leave_them_as_they_were(loaded):
    target, draft = loaded
    before = draft.model.generation_config.to_dict(), target.model.generation_config.to_dict()
    clock = Speculator(target, draft).clock
    peers = [HfAssisted(arm, target, draft, 4, clock) for arm in ARMS]
    cells, found = measure(arms(loaded, 4), PROSE, 0, Options(max_new_tokens=20), repeats=2, peers=peers)
    assert [p.error for p in found] == [None] * 4
    assert [p.identical for p in found] == [True] * 4
    assert all(p.tokens == (cells[0].generations[0].tokens,) * 2 and len(p.seconds) == 2 for p in found)
    assert before == (draft.model.generation_config.to_dict(), target.model.generation_config.to_dict())


@pytest.mark.parametrize(
    ("error", "message"),
    [(EngineError("planted"), "planted"), (torch.OutOfMemoryError("no room\nat all"), "OutOfMemoryError: no room")],
)
def test_an_arm_that_fails_leaves_its_error_and_the_others_their_numbers(loaded, monkeypatch, error, message):
    broken = arms(loaded, 2, 3)
    session = broken[1].speculator._target_session
    right = session.read

    def read(sequence, last=1, whole=None):
        if len(sequence) > 8:
            raise error
        return right(sequence, last, whole)

    monkeypatch.setattr(session, "read", read)
    cells, _ = measure(broken, PROSE, 0, Options(max_new_tokens=20), repeats=2)
    assert cells[1].error == message
    assert cells[1].identical is None
    assert cells[2].error is None
    assert len(cells[0].generations) == len(cells[2].generations) == 2
    assert [(r.draft, r.k) for r in bench_rows(cells)] == [(None, 0), ("d", 3)]
    assert doubt_cells(cells, 20)[-1].endswith(f"d k = 2: not measured: {message}")


def test_a_peer_that_fails_is_reported(loaded, monkeypatch):
    peer = HfAssisted("hf-plain", *loaded, 4, Speculator(loaded[0]).clock)
    monkeypatch.setattr(peer, "generate", lambda *args: 1 / 0)
    _, (cell,) = measure(arms(loaded, 2), PROSE, 0, Options(max_new_tokens=8), repeats=2, peers=[peer])
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
    assert {(r.workload, r.k) for r in rows} >= {("prose", 0), ("prose", 1), ("prose", 3), ("code", 3)}
    assert ("code", 1) not in {(r.workload, r.k) for r in rows}
    assert "another engine" in out.stdout or "workloads at k = 3: " in " ".join(out.stdout.split())
    for row in rows:
        if row.draft:
            assert row.identical
            assert row.proposed == row.draft_passes
            assert row.speedup is None or row.speedup.low <= row.speedup.value <= row.speedup.high
    assert {r.engine for r in peer_rows(result)} == {"hf-plain", "hf-assisted-constant k=3", *ARMS[2:]}


def test_an_interrupted_bench_goes_on_where_it_stopped(tmp_path, monkeypatch):
    from draftproof.bench import sweep

    right, prompts = sweep.measure, []

    def stopping(arms, workload, *rest, **settings):
        prompts.append(workload.name)
        if len(prompts) == 2:
            raise KeyboardInterrupt
        return right(arms, workload, *rest, **settings)

    monkeypatch.setattr(sweep, "measure", stopping)
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
    cells, _ = measure(arms(loaded, 1, 4), PROSE, 0, Options(max_new_tokens=20), repeats=2)
    rows = bench_rows(cells)
    assert doubt_sweep(rows) is None
    from dataclasses import replace

    assert "no effect" in doubt_sweep([rows[0], replace(rows[1], proposed=9), replace(rows[2], proposed=9)])

    def given(low, high):
        return [r if r.draft is None else replace(r, speedup=Interval(1.0, low, high)) for r in rows]

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
    cells, _ = measure(arms(loaded, 1, 4), PROSE, 0, Options(max_new_tokens=20), repeats=2)
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
    lame = tuple(
        replace(p, error="planted", seconds=()) if p.engine == "hf-plain" and p.prompt == 1 else p for p in result.peers
    )
    row = next(r for r in peer_rows(replace(result, peers=lame)) if r.engine == "hf-plain")
    mine = next(p for p in result.peers if p.engine == "hf-plain" and p.prompt == 0)
    plain = next(c for c in result.cells if c.draft is None and c.prompt == 0)
    ours = median(g.seconds.total_s for g in plain.generations)
    assert row.speedup == pytest.approx(ours / median(mine.seconds))


def test_another_engine_is_another_measurement(tmp_path):
    assert bench(tmp_path, "--only", "code").exit_code == 0
    out = bench(tmp_path, "--only", "code", "--engine", "hf-assisted")
    assert out.exit_code == 2
    assert "holds another measurement" in " ".join(out.output.split())


def test_the_settings_of_one_model_that_is_target_and_draft_survive(loaded):
    target, _ = loaded
    before = target.model.generation_config
    for arm in ARMS:
        HfAssisted(arm, target, target, 3, Speculator(target).clock).generate([5, 6, 7], 4)
    assert target.model.generation_config is before
