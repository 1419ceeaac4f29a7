"""A replay has the counts of the live loop, exactly: whatever k, draft, controller and end of the text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof import ConfigError, Options, Speculator
from draftproof.bench.record import InTurn, record
from draftproof.engines.foresee import foresee
from draftproof.forecast.replay import replay
from draftproof.forecast.trace import read_trace, write_trace
from draftproof.results import Workload
from draftproof.testing import noisy, random_model

DEPTH = 8
PROMPT = [5, 9, 200, 7]
SAID = ("proposed", "accepted", "tokens", "cut", "draft_passes", "asked")


class Wary:
    """A controller that asks for as much as was kept and one more, and stops where the draft is unsure."""

    most = DEPTH

    def __init__(self, floor):
        self.floor = floor

    def next(self, rounds):
        return min(self.most, rounds[-1].accepted + 1 + len(rounds) % 3) if rounds else 3


def counts(rounds):
    return [tuple(getattr(r, name) for name in SAID) for r in rounds]


def trace_of(pair, prompts, options):
    """Record prompts, given as ids."""
    workload = Workload("w", tuple(prompts))
    *_, trace = record({"d": pair}, [workload], options, depth=DEPTH)
    return trace


def agree(pair, prompt, options, controllers):
    (text,) = trace_of(pair, [prompt], options).texts
    for controller in controllers:
        live = pair.generate(prompt, options, k=controller)
        assert live.tokens == text.tokens and not live.warnings
        assert counts(replay(text, "d", controller_of(controller))) == counts(live.rounds)


def controller_of(k):
    from draftproof.control import controller_of as made

    return made(k)


FEW = [1, 3, DEPTH, InTurn((0, 3, 1, 8)), Wary(0.05)]
EVERY = [*FEW, 2, *range(4, DEPTH), Wary(0.0), Wary(0.4)]


@pytest.fixture(scope="module")
def pairs():
    """Targets with drafts from the target itself to one that knows little."""
    models = [
        random_model(seed=seed, vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
        for seed in range(3)
    ]
    noises = (0.0, 0.1, 0.3, 1.0)
    return [Speculator(m, noisy(m, n) if n else m, k=DEPTH, compile="on") for m in models for n in noises]


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), which=st.integers(0, 11), length=st.integers(1, 40), ends=st.booleans())
def test_a_replay_is_the_live_loop(pairs, seed, which, length, ends):
    prompt = [1 + (seed * i) % 39 for i in range(1, 2 + seed % 9)]
    options = Options(max_new_tokens=length, end_tokens=[seed % 40, (seed // 40) % 40] if ends else None)
    agree(pairs[which], prompt, options, EVERY)


@pytest.mark.parametrize("compile", ["on", "off"])
@pytest.mark.parametrize("given_", [{}, {"repetition_penalty": 1.3}, {"temperature": 0.8, "seed": 4}], ids=str)
def test_so_it_is_for_every_kind_of_pass_and_of_text(compile, given_):
    model = random_model()
    pair = Speculator(model, noisy(model, 0.3), k=DEPTH, compile=compile)
    agree(pair, PROMPT, Options(max_new_tokens=40, **given_), FEW)


@pytest.mark.parametrize("prompt", ["The for statement", "class Reader"])
@pytest.mark.parametrize("draft", ["demo-draft", "ngram", "demo-target"])
@pytest.mark.parametrize("stop", [(), (" the", "\n")])
def test_so_it_is_for_the_embedded_pair_in_bfloat16(prompt, draft, stop):
    pair = Speculator("demo-target", draft, k=DEPTH, dtype="bfloat16", compile="on")
    options = Options(max_new_tokens=48, stop=stop)
    agree(pair, pair.encode(prompt), options, FEW)


def test_a_draft_whose_window_moves_is_asked_at_every_place():
    model = random_model()
    pair = Speculator(model, noisy(model, 0.2), k=DEPTH, draft_window=20)
    agree(pair, PROMPT, Options(max_new_tokens=60), FEW)


def test_a_trace_outlives_its_models(tmp_path):
    model = random_model()
    trace = trace_of(Speculator(model, noisy(model, 0.3), k=DEPTH), [PROMPT, PROMPT * 3], Options(max_new_tokens=20))
    write_trace(trace, tmp_path / "t.jsonl.gz")
    again = read_trace(tmp_path / "t.jsonl.gz")
    assert again == trace
    with pytest.raises(ConfigError, match="k is 9, and the trace holds 8"):
        replay(again.texts[0], "d", controller_of(9), depth=again.depth)
    assert {one.guesses for one in again.rounds["d"]} >= {0, 1, 4, 8} and again.plain


def test_nobody_foresees_for_a_target_alone():
    with pytest.raises(ConfigError, match="name a draft"):
        foresee(Speculator(random_model()), PROMPT, [1, 2], 3)
