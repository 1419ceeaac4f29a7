"""Policies write the target's text, and the automatic one is hardly ever slower than plain decoding."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from draftproof import ConfigError, Options, Speculator
from draftproof.control import CONTROLLERS, controller_of, policy_of
from draftproof.control.auto import Auto, Costs
from draftproof.forecast.replay import oracle, replay, seconds
from draftproof.forecast.trace import Offer, Text, Told
from draftproof.options import RULES
from draftproof.settings import POLICIES
from draftproof.testing import noisy, random_model

PROMPT = [5, 9, 200, 7]
LENGTH = 300


@dataclass(frozen=True)
class Price:
    """Seconds of rounds: a plain pass takes 1, one more token `slope`, a draft pass `c`."""

    c: float
    slope: float
    rest: float = 0.0
    plain_s: float = 1.0

    def draft_s(self, passes, guesses):
        return self.c * guesses

    def target_s(self, guesses):
        return 1 + self.slope * guesses

    def overhead_s(self, guesses):
        return self.rest if guesses else 0.0


def text_of(agreement, *, knows=False, seed=0):
    """Return a text whose guesses are right with the chance `agreement(place)`; a draft that `knows` says so."""
    source = random.Random(seed)
    right = [source.random() < agreement(i) for i in range(LENGTH + 16)]
    share = [source.uniform(0.75, 1) if ok else source.uniform(0, 0.7) for ok in right]
    share = share if knows else [agreement(i) for i in range(len(right))]
    offers = [Offer(tuple(int(ok) for ok in right[i : i + 16]), tuple(share[i : i + 16]), 16) for i in range(LENGTH)]
    return Text("w", 0, 9, (1,) * LENGTH, (1,) * 16, 2 * LENGTH, 1.0, {"d": Told(tuple(offers))})


def speedup(text, price, k):
    return LENGTH * price.plain_s / seconds(replay(text, "d", k, price))


HOSTILE = {
    "a random draft": (lambda i: 0.02, Price(0.3, 0.02)),
    "a draft as slow as the target": (lambda i: 0.6, Price(1.0, 0.02)),
    "passes that cost by the token": (lambda i: 0.7, Price(0.3, 0.6)),
    "a loop that costs much": (lambda i: 0.5, Price(0.2, 0.1, rest=0.7)),
}
FRIENDLY = {
    "usual": (lambda i: 0.75, Price(0.3, 0.02)),
    "good and cheap": (lambda i: 0.9, Price(0.05, 0.01)),
    "often wrong and cheap": (lambda i: 0.5, Price(0.05, 0.02)),
    "by turns": (lambda i: 0.95 if i // 50 % 2 else 0.3, Price(0.2, 0.05)),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("seed", range(3))
def test_where_nothing_pays_it_is_nearly_plain_decoding(name, seed):
    agreement, price = HOSTILE[name]
    text = text_of(agreement, seed=seed)
    assert speedup(text, price, "auto") > 0.97
    known = Costs(price.plain_s, {n: price.target_s(n - 1) for n in (1, 2, 9)}, price.c)
    assert speedup(text, price, Auto(costs=known)) > 0.97


@pytest.mark.parametrize("name", FRIENDLY)
@pytest.mark.parametrize("knows", [False, True])
def test_where_it_pays_it_is_near_the_best_fixed_k(name, knows):
    agreement, price = FRIENDLY[name]
    ratios = []
    for seed in range(3):
        text = text_of(agreement, knows=knows, seed=seed)
        ratios.append(speedup(text, price, "auto") / max(speedup(text, price, k) for k in range(1, 9)))
    assert sum(ratios) / len(ratios) > 0.95


def test_nobody_is_faster_than_the_oracle():
    for agreement, price in [*HOSTILE.values(), *FRIENDLY.values()]:
        text = text_of(agreement)
        best = LENGTH * price.plain_s / oracle(text, "d", 8, price)
        assert best >= 1
        for k in (*range(9), "auto"):
            assert speedup(text, price, k) <= best + 1e-9


def test_it_looks_again_and_finds_that_it_pays_now():
    text = text_of(lambda i: 0.0 if i < 100 else 1.0)
    rounds = replay(text, "d", "auto", Price(0.1, 0.02))
    assert sum(len(r.tokens) for r in rounds[-20:]) > 60


@pytest.mark.parametrize("rule", ["greedy", *RULES])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_changes_no_text(policy, rule):
    model = random_model()
    asked = (
        Options(max_new_tokens=40)
        if rule == "greedy"
        else Options(max_new_tokens=40, temperature=0.7, seed=2, verify=rule)
    )
    speculator = Speculator(model, noisy(model, 0.2), k=policy)
    made = speculator.generate(PROMPT, asked)
    assert speculator.policy == policy and not made.warnings
    if asked.same_text:
        assert made.tokens == Speculator(model).generate(PROMPT, asked).tokens


def test_a_draft_reads_nothing_before_it_is_asked():
    model = random_model()

    class Late:
        most = 3

        def next(self, rounds):
            return 3 if len(rounds) >= 5 else 0

    pair = Speculator(model, noisy(model, 0.1), k=Late())
    stream = pair.stream(PROMPT * 5, max_new_tokens=30)
    for _ in range(5):
        next(stream)
    assert pair._model.session.passes == 0
    made = [*stream] and stream.generation
    assert made.counts.proposed and made.tokens == Speculator(model).generate(PROMPT * 5, max_new_tokens=30).tokens


def test_policies_have_names():
    assert set(CONTROLLERS) == set(POLICIES)
    for name in POLICIES:
        assert policy_of(controller_of(name)) == name
    assert policy_of(controller_of(4)) is None
    assert controller_of("4").most == 4
    for bad in ("fast", "-1", "65", ""):
        with pytest.raises(ConfigError, match="k is"):
            controller_of(bad)
