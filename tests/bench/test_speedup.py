"""A speedup is a ratio of interleaved runs with an interval that means something."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from draftproof import Speculator
from draftproof.bench.race import compare, duel, judge_pair
from draftproof.decode.loop import Decoding
from draftproof.decode.stop import Stop
from draftproof.records import Interval
from draftproof.report.terminal import verdict
from draftproof.stats.speedup import speedup
from draftproof.testing import HandSetClock, TableSession, noisy


@pytest.fixture(scope="module")
def speculator(model):
    return Speculator(model, noisy(model, 0.1), k=4)


def timed(generation, seconds):
    """Give the rounds of a generation made-up seconds."""
    rounds = tuple(replace(r, draft_s=0.0, target_s=seconds(), overhead_s=0.0) for r in generation.rounds)
    parts = replace(
        generation.seconds, prompt_s=0.0, draft_s=0.0, target_s=sum(r.target_s for r in rounds), overhead_s=0.0
    )
    return replace(generation, rounds=rounds, seconds=replace(parts, total_s=parts.target_s))


def test_both_ways_write_the_same_and_take_turns(speculator):
    contest = duel(speculator, [5, 9, 7], max_new_tokens=40)
    written = {"plain": 0, "speculative": 0}
    for arm, chunk in contest:
        written[arm] += len(chunk.round.tokens)
        assert abs(written["plain"] - written["speculative"]) <= 5
    pair = judge_pair(speculator, [5, 9, 7], *(contest.streams[arm].generation for arm in ("speculative", "plain")))
    assert pair.divergence is None
    assert pair.speculative.tokens == pair.plain.tokens
    assert written == {"plain": 40, "speculative": 40}


def test_plain_against_plain_covers_one(speculator):
    pair = compare(speculator, [5, 9, 7], max_new_tokens=60)
    rng = random.Random(1)
    covered = 0
    for seed in range(40):
        a, b = (timed(pair.plain, lambda: rng.lognormvariate(-4, 0.2)) for _ in range(2))
        found = speedup([(a, b)], seed)
        covered += found.low <= 1 <= found.high
    assert covered >= 34


def test_a_slowdown_of_3_per_cent_is_found():
    """The loop itself on a hand-set clock: passes of one arm take 3 % longer, in the noise of 5 % that both have."""
    rng = random.Random(2)

    def write(slowdown):
        clock = HandSetClock()
        session = TableSession(lambda history: [float(i == len(history) % 7) for i in range(7)], width=7)
        session.on_pass = lambda tokens: clock.advance(slowdown * rng.gauss(0.1, 0.005))
        decoding = Decoding(session, [1, 2], stop=Stop(limit=200), clock=clock)
        for _ in decoding:
            pass
        return decoding.generation()

    found = speedup([(write(1.03), write(1.0))])
    assert found.high < 1
    assert found.value == pytest.approx(1 / 1.03, abs=0.01)
    same = speedup([(write(1.0), write(1.0))])
    assert same.low < 1 < same.high


def test_texts_of_different_length_are_no_noise(speculator):
    """Prompts of 1, 2 and 3 times the cost and no noise at all: the interval has no width."""
    pairs = []
    for scale, prompt in ((1, [5, 9, 7]), (2, [8, 1, 2]), (3, [4, 4, 200])):
        pair = compare(speculator, prompt, max_new_tokens=60)
        arms = [
            timed(g, lambda cost=cost, scale=scale: scale * cost)
            for g, cost in ((pair.speculative, 0.2), (pair.plain, 0.1))
        ]
        pairs.append(tuple(arms))
    found = speedup(pairs)
    assert found.low == pytest.approx(found.value)
    assert found.high == pytest.approx(found.value)


@pytest.mark.parametrize("new", [1, 7])
def test_a_few_rounds_say_nothing_about_speed(speculator, new):
    pair = compare(speculator, [5, 9, 7], max_new_tokens=new)
    assert speedup([(pair.speculative, pair.plain)]) is None
    assert "too few rounds" in verdict(None, identical=True).plain


def test_who_begins_alternates(speculator):
    first = []
    for plain_first in (False, True):
        race = duel(speculator, [5, 9, 7], max_new_tokens=8)
        if plain_first:
            race.streams = dict(reversed(list(race.streams.items())))
        first.append(next(iter(race))[0])
    assert first == ["speculative", "plain"]


@pytest.mark.parametrize(
    ("interval", "identical", "says"),
    [
        (Interval(1.5, 1.4, 1.6), True, "1.50 × plain (95 % interval 1.40 – 1.60): faster"),
        (Interval(1.1, 0.9, 1.2), True, "no difference"),
        (Interval(0.7, 0.6, 0.8), True, "slower"),
        (Interval(1.5, 1.4, 1.6), False, "no speedup"),
    ],
)
def test_faster_is_said_only_when_the_interval_leaves_no_doubt(interval, identical, says):
    assert says in verdict(interval, identical=identical).plain
