"""one-pass and precondition measure what they say."""

from __future__ import annotations

import json

import pytest
import torch

from draftproof import ConfigError
from draftproof.bench.one_pass import one_pass
from draftproof.bench.precondition import Subject, context_tokens, time_passes
from draftproof.engines.local import Speculator
from draftproof.models.load import load
from draftproof.records import Placement
from draftproof.report.summary import pass_rows, precondition_verdict
from draftproof.results import PassTimes, Timing, from_json
from draftproof.stats import trust
from draftproof.stats.passes import cost_curve
from draftproof.testing import HandSetClock, TableSession, byte_tokenizer
from tests.test_cli import invoke

HERE = Placement("cpu", "float32", "asked for")


def times(cost, sizes=(1, 2, 4, 8, 16), dtype="float32"):
    timings = tuple(Timing(n, (cost(n),) * 5, 9.9) for n in sizes)
    return PassTimes("m", "target", Placement("cpu", dtype, "asked for"), timings)


def test_one_pass_answers_every_prefix_as_separate_passes_do():
    loaded = load("demo-target")
    found = one_pass(loaded, "The for statement is used", 2)
    ids = loaded.tokenizer("The for statement is used")["input_ids"]
    assert [r.token for r in found.rows] == ids
    for i, row in enumerate(found.rows):
        with torch.inference_mode():
            alone = loaded.model(input_ids=torch.tensor([ids[: i + 1]]), use_cache=False).logits[0, -1]
        assert row.predicted == int(alone.argmax())
    assert found.same_tokens
    assert 0 <= found.largest_difference < 1e-3
    assert [r.shortened is None for r in found.rows] == [False] * (len(ids) - 2) + [True] * 2


@pytest.mark.parametrize(("text", "cut"), [("a b c d e f", 0), ("a b c d e f", 99), ("", 1)])
def test_one_pass_refuses_what_leaves_nothing_to_compare(text, cut):
    with pytest.raises(ConfigError):
        one_pass(load("demo-target"), text, cut)


def test_the_cost_of_a_pass_is_found_whatever_the_order():
    """A fake device: n tokens take 100 + 7 n ms, and the first pass of every size 5 s more."""
    clock = HandSetClock()
    seen = set()

    def spend(tokens):
        clock.advance(0.1 + 0.007 * tokens + (0 if tokens in seen else 5.0))
        seen.add(tokens)

    session = TableSession(lambda history: [0.0], width=1)
    session.on_pass = spend
    subject = Subject(session, list(range(200)), (1, 2, 4, 8))
    (found,) = time_passes([subject], clock, context=20, sweeps=6)
    for timing in found:
        assert timing.seconds == pytest.approx((0.1 + 0.007 * timing.tokens,) * 6)
        assert timing.warm_up_s >= 0.1
    assert found[2].warm_up_s > 5


def test_models_are_measured_in_turns_not_one_after_the_other():
    order = []
    sessions = [TableSession(lambda history: [0.0], width=1) for _ in range(2)]
    for name, session in zip("ab", sessions, strict=True):
        session.on_pass = lambda tokens, name=name: order.append((name, tokens))
    time_passes([Subject(s, list(range(99)), (1, 2, 3)) for s in sessions], HandSetClock(), context=9, sweeps=4)
    sweeps = [order[8 + 6 * i : 14 + 6 * i] for i in range(4)]
    assert all(sorted(sweep) == [(m, n) for m in "ab" for n in (1, 2, 3)] for sweep in sweeps)
    assert len({tuple(sweep) for sweep in sweeps}) > 1


def test_a_timed_pass_reads_exactly_its_tokens(model):
    speculator = Speculator(model)
    session = speculator._target_session
    seen = []
    run = session.runner.run
    session.runner.run = lambda spans: seen.extend((len(span.tokens), span.start) for span in spans) or run(spans)
    time_passes([Subject(session, list(range(100)), (1, 5))], HandSetClock(), context=30, sweeps=3)
    assert seen[0] == (30, 0)
    assert sorted(set(seen[1:])) == [(1, 30), (5, 30)]


@pytest.mark.parametrize(
    ("context", "sizes", "says"), [(0, (1, 2), "context"), (10, (2, 4), "1 among them"), (90, (1, 32), "window")]
)
def test_sizes_that_cannot_be_measured_are_refused(context, sizes, says):
    session = TableSession(lambda history: [0.0], width=1, window=100)
    with pytest.raises(ConfigError, match=says):
        time_passes([Subject(session, [0] * 200, sizes)], HandSetClock(), context=context, sweeps=1)


def test_context_is_as_long_as_asked_for():
    assert [len(context_tokens(byte_tokenizer(), n)) for n in (1, 300, 5000)] == [1, 300, 5000]


@pytest.mark.parametrize(
    ("cost", "says"),
    [
        (lambda n: 0.1 + 0.0005 * n, "16 tokens cost 1.07 × one: checking is nearly free up to there, so speculation"),
        (lambda n: 0.1 if n <= 8 else 0.3, "8 tokens cost 1.00 × one"),
        (lambda n: 0.1 * (n + 1) / 2, "4 tokens cost 2.50 × one: speculation can hardly pay in float32"),
        (lambda n: 0.1 if n == 1 else 0.13, "4 tokens cost 1.30 × one: speculation can pay with the right draft"),
        (lambda n: 0.1 if n == 1 else 0.185, "1.07 × at c = 0.3 (k = 3), 1.89 × at c = 0.05 (k = 7)"),
    ],
)
def test_the_verdict_follows_the_curve(cost, says):
    assert says in precondition_verdict(times(cost))


def test_a_curve_that_wavers_is_read_at_its_farthest_cheap_size():
    wavering = {1: 0.1, 2: 0.13, 4: 0.112, 8: 0.118, 16: 0.163}
    assert precondition_verdict(times(wavering.__getitem__)).startswith("8 tokens cost 1.18 × one: checking is nearly")


def test_sizes_that_were_not_measured_are_not_spoken_of():
    assert "only one size" in precondition_verdict(times(lambda n: 0.1, sizes=(1,)))
    assert precondition_verdict(times(lambda n: 0.1 * n, sizes=(1, 8))).startswith("8 tokens cost 8.00")


def test_float32_is_sent_to_bfloat16_and_bfloat16_is_not():
    assert "bfloat16 may be better" in precondition_verdict(times(lambda n: 0.1 * n))
    assert "may be better" not in precondition_verdict(times(lambda n: 0.1 * n, dtype="bfloat16"))


def test_rows_are_medians_and_ratios():
    spiky = PassTimes("m", "target", HERE, (Timing(1, (1.0, 1.0, 9.0), 0.0), Timing(2, (2.0, 2.0, 2.0), 0.0)))
    rows = pass_rows(spiky)
    assert [(r.tokens, r.seconds, r.ratio) for r in rows] == [(1, 1.0, 1.0), (2, 2.0, 2.0)]
    assert rows[0].spread > 1 > rows[1].spread
    assert cost_curve(spiky).at(3) == 3.0


def test_doubts_are_raised_where_they_should_and_nowhere_else(model, monkeypatch):
    assert trust.doubt_spread([("x", [1.0, 1.0, 1.01, 1.02]), ("empty", [])]) == []
    (both,) = trust.doubt_spread([("x", [1.0, 1.3, 1.6, 2.0]), ("y", [1.0, 1.0]), ("z", [1.0, 2.0, 4.0])])
    assert "(x 33%, z 75%)" in both
    monkeypatch.setattr("psutil.cpu_percent", lambda interval: 5.0)
    monkeypatch.setattr("psutil.cpu_count", lambda logical=True: 64)
    assert trust.doubt_machine() == []
    monkeypatch.setattr("psutil.cpu_percent", lambda interval: 80.0)
    monkeypatch.setattr("torch.get_num_threads", lambda: 65)
    busy, threads = trust.doubt_machine()
    assert "80%" in busy
    assert "65 threads on 64 cores" in threads
    made = Speculator(model).generate([5, 9, 7], max_new_tokens=30)
    assert trust.doubt_text(made, 30) == []
    assert "ended after 30 of 40" in trust.doubt_text(made, 40)[0]


def test_repeated_text_is_noticed():
    assert trust.repetition([1, 2, 3] * 20) > 0.9
    assert trust.repetition(list(range(60))) == 0.0
    assert trust.repetition([1] * 8) == 0.0


def test_the_commands_print_tables_and_write_files(tmp_path):
    file = tmp_path / "r.json"
    out = invoke("one-pass", "--model", "demo-target", "--text", "The for statement", "--cut", 1, "--json", file)
    assert out.exit_code == 0, out.output
    assert "every prediction is the same" in out.stdout
    assert from_json(file.read_text()).passes[0].same_tokens
    out = invoke(
        *("precondition", "--model", "demo-target", "--draft", "demo-draft", "--compare-dtype", "bfloat16"),
        *("--sizes", "1,4", "--sweeps", 2, "--context", 16, "--json", file),
    )
    assert out.exit_code == 0, out.output
    assert "4 tokens cost" in " ".join(out.stdout.split())
    assert "c = 0." in out.stdout
    found = from_json(file.read_text())
    assert [(p.role, p.placement.dtype) for p in found.passes] == [
        ("target", "float32"),
        ("target", "bfloat16"),
        ("draft", "float32"),
    ]
    assert all(len(t.seconds) == 2 for p in found.passes for t in p.timings)
    assert json.loads(file.read_text())["kind"] == "precondition"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("precondition", "--model", "demo-target", "--sizes", "1,x"), "whole numbers"),
        (("precondition", "--model", "demo-target", "--sizes", "2,4"), "1 must be the smallest"),
        (("precondition", "--model", "demo-target", "--sweeps", "0"), "--sweeps is 0"),
        (("precondition", "--model", "demo-target", "--context", "512"), "window"),
        (("one-pass", "--model", "demo-target", "--cut", "99"), "cut is 99"),
        (("one-pass", "--model", "./nowhere"), "does not exist"),
    ],
)
def test_misuse_of_the_instruments_is_one_line(arguments, says):
    out = invoke(*arguments)
    assert out.exit_code == 2, out.output
    assert says in " ".join(out.output.split())
