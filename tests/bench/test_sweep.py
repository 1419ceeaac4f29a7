"""A bench measures every arm of every prompt, survives what fails, and goes on where it stopped."""

from __future__ import annotations

import json

import pytest

from draftproof import ConfigError, Speculator
from draftproof.bench.sweep import Arm, measure
from draftproof.bench.workloads import read_workloads
from draftproof.engines.hf_assisted import ARMS, HfAssisted
from draftproof.models.load import load
from draftproof.propose.draft import Draft
from draftproof.report.bench_summary import bench_rows, doubt_sweep, peer_rows, recommend
from draftproof.results import Workload, from_json
from tests.test_cli import invoke

PAIR = ("--target", "demo-target", "--draft", "demo-draft")
PROSE = Workload("prose", ("The for statement",))


@pytest.fixture(scope="module")
def loaded():
    return load("demo-target"), load("demo-draft")


def arms(loaded, *ks):
    target, draft = loaded
    return [Arm(Speculator(target, draft, 5), None, 0), *(Arm(Speculator(target, draft, k), "d", k) for k in ks)]


def test_every_arm_writes_the_same_text_as_often_as_asked(loaded):
    cells, _ = measure(arms(loaded, 1, 4), PROSE, 0, max_new_tokens=20, repeats=3)
    assert [(c.draft, c.k, len(c.generations)) for c in cells] == [(None, 0, 3), ("d", 1, 3), ("d", 4, 3)]
    assert len({g.tokens for c in cells for g in c.generations}) == 1
    assert [c.identical for c in cells] == [None, True, True]
    for cell in cells:
        assert len({tuple(r.proposed for r in g.rounds) for g in cell.generations}) == 1, "repeats must count alike"


def test_peers_run_on_the_same_models_and_leave_them_as_they_were(loaded):
    target, draft = loaded
    before = draft.model.generation_config.to_dict(), target.model.generation_config.to_dict()
    clock = Speculator(target, draft).clock
    peers = [HfAssisted(arm, target, draft, 4, clock) for arm in ARMS]
    cells, found = measure(arms(loaded, 4), PROSE, 0, max_new_tokens=20, repeats=2, peers=peers)
    assert [p.error for p in found] == [None] * 4
    assert [p.identical for p in found] == [True] * 4
    assert all(p.tokens == cells[0].generations[0].tokens and len(p.seconds) == 2 for p in found)
    assert before == (draft.model.generation_config.to_dict(), target.model.generation_config.to_dict())


def test_an_arm_that_fails_leaves_its_error_and_the_others_their_numbers(loaded, monkeypatch):
    from draftproof import EngineError

    broken = arms(loaded, 2, 3)
    right = Draft.propose

    def propose(self, sequence, k):
        if self.session is broken[1].speculator._draft_session and len(sequence) > 8:
            raise EngineError("planted")
        return right(self, sequence, k)

    monkeypatch.setattr(Draft, "propose", propose)
    cells, _ = measure(broken, PROSE, 0, max_new_tokens=20, repeats=2)
    assert cells[1].error == "planted"
    assert cells[1].identical is None
    assert cells[2].error is None
    assert len(cells[0].generations) == len(cells[2].generations) == 2
    assert len(bench_rows(cells)) == 3


def test_a_peer_that_fails_is_reported(loaded, monkeypatch):
    peer = HfAssisted("hf-plain", *loaded, 4, Speculator(loaded[0]).clock)
    monkeypatch.setattr(peer, "generate", lambda *args: 1 / 0)
    _, (cell,) = measure(arms(loaded, 2), PROSE, 0, max_new_tokens=8, repeats=2, peers=[peer])
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
    for row in rows:
        if row.draft and not row.error:
            assert row.identical
            assert row.proposed == row.draft_passes
            assert row.speedup is None or row.speedup.low <= row.speedup.value <= row.speedup.high
    assert {r.engine for r in peer_rows(result)} == {"hf-plain", "hf-assisted-constant k=3", *ARMS[2:]}


def test_an_interrupted_bench_goes_on_where_it_stopped(tmp_path, monkeypatch):
    from draftproof.bench import sweep

    right, prompts = sweep.measure, []

    def stopping(arms, workload, prompt, **options):
        prompts.append(workload.name)
        if len(prompts) == 2:
            raise KeyboardInterrupt
        return right(arms, workload, prompt, **options)

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

    from draftproof.decode import loop

    right = loop.judge

    def generous(proposal, logits):
        verdict = right(proposal, logits)
        return replace(verdict, accepted=min(len(proposal.tokens), verdict.accepted + 1))

    monkeypatch.setattr(loop, "judge", generous)
    out = bench(tmp_path, "--only", "prose")
    assert out.exit_code == 1
    assert "NO" in out.stdout
    assert "(bug)" in out.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--k", "1,x"), "whole numbers"),
        (("--k", "0,1"), "between 1 and 64"),
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


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"prompt": 3}', '{"prompts": []}', '{"turns": [""]}', ""])
def test_a_line_that_is_no_workload_is_named(tmp_path, line):
    file = tmp_path / "bad.jsonl"
    file.write_text(line)
    with pytest.raises(ConfigError, match=r"bad\.jsonl"):
        read_workloads(file)


def test_a_sweep_is_judged(loaded):
    cells, _ = measure(arms(loaded, 1, 4), PROSE, 0, max_new_tokens=20, repeats=2)
    rows = bench_rows(cells)
    assert "pay" in recommend(rows)
    assert doubt_sweep(rows) is None
    from dataclasses import replace

    assert "no effect" in doubt_sweep([rows[0], replace(rows[1], proposed=9), replace(rows[2], proposed=9)])
    slow = [replace(r, speedup=r.speedup and replace(r.speedup, low=0.5)) for r in rows]
    assert recommend(slow).startswith("does not pay")
