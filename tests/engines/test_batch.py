"""Many texts at once: what is shared, who waits, who guesses, and what each says of it."""

from __future__ import annotations

import pytest
import torch

from draftproof import ConfigError, Speculator
from draftproof.control.budget import Pace, shares
from draftproof.engines.batch import Batch, write_many
from draftproof.errors import DraftproofError
from draftproof.testing import noisy, random_model

SYSTEM = [7, 3, 99, 12, 250, 31, 8, 5] * 5


@pytest.fixture(scope="module")
def pair():
    model = random_model(max_position_embeddings=1024)
    return Speculator(model, noisy(model, 0.2), compile="on")


PROMPTS = [[*SYSTEM, n, 2 * n + 1] for n in range(1, 7)]


def test_results_come_as_they_are_over_and_each_says_whose_it_is(pair):
    batch = Batch(pair, at_once=4)
    found = dict(write_many(batch, PROMPTS, k=4, max_new_tokens=20))
    assert sorted(found) == list(range(6))
    for i, text in found.items():
        assert text.generation.tokens == pair.generate(PROMPTS[i], k=4, max_new_tokens=20).tokens
    assert batch.scheduler.counts.most_at_once == 4


def test_one_pass_serves_all_and_so_does_one_of_the_draft(pair):
    batch = Batch(pair)
    texts = [text for _, text in write_many(batch, PROMPTS, k=4, max_new_tokens=20)]
    rounds = [text.generation.counts.rounds for text in texts]
    counts = batch.scheduler.counts
    assert counts.passes < sum(rounds) / 2
    assert counts.draft_passes < sum(text.generation.counts.draft_passes for text in texts) / 2
    assert all(r.beside for text in texts for r in text.generation.rounds[:3])


def test_what_texts_have_in_common_is_read_once(pair):
    batch = Batch(pair, at_once=1)
    texts = dict(write_many(batch, PROMPTS, k=0, max_new_tokens=3))
    assert texts[0].generation.prompt_tokens_reused == 0
    assert all(texts[i].generation.prompt_tokens_reused == len(SYSTEM) for i in range(1, 6))


def test_a_text_goes_on_from_the_turn_before(pair):
    batch = Batch(pair)
    ((_, first),) = write_many(batch, PROMPTS[:1], max_new_tokens=12)
    turn = [*PROMPTS[0], *first.generation.tokens, 5, 6]
    ((_, second),) = write_many(batch, [turn], max_new_tokens=12)
    assert second.generation.prompt_tokens_reused >= len(turn) - 3
    assert second.generation.tokens == pair.generate(turn, max_new_tokens=12).tokens
    assert len(batch.scheduler.target.idle) == 1  # it went on in the same cache


def test_ledgers_share_the_seconds_of_passes(pair):
    texts = dict(write_many(Batch(pair), PROMPTS, k=3, max_new_tokens=15))
    for text in texts.values():
        seconds = text.generation.seconds
        assert seconds.total_s == pytest.approx(
            seconds.prompt_s + seconds.draft_s + seconds.target_s + seconds.overhead_s, rel=0.2
        )
        assert 0 < seconds.target_s < seconds.total_s


def test_a_long_prompt_stops_nobody(pair):
    batch = Batch(pair, beside=16)
    short = batch.add([5, 9, 200, 7], max_new_tokens=30, k=0)
    batch.step()
    long = batch.add([1 + i % 290 for i in range(400)], max_new_tokens=4, k=0)
    for _ in range(20):
        batch.step()
    assert short.generation.counts.tokens >= 19 and long.generation.counts.tokens == 0
    while batch.busy:
        batch.step()
    assert long.generation.finish_reason == "length"


def test_texts_wait_and_give_way_where_memory_is_short(pair):
    per_slot = pair.target_session.cache.bytes_per_slot + pair.draft_session.cache.bytes_per_slot
    batch = Batch(pair, memory=4 * 256 * per_slot)
    prompts = [[n, *([17 + n] * 200)] for n in range(1, 6)]  # each outgrows its first block
    texts = dict(write_many(batch, prompts, k=2, max_new_tokens=90))
    assert batch.scheduler.counts.preempted and batch.scheduler.counts.most_at_once < 5
    for i, text in texts.items():
        assert text.generation.tokens == pair.generate(prompts[i], k=2, max_new_tokens=90).tokens
    assert batch.scheduler.memory.used <= 4 * 256 * per_slot


def test_a_text_that_no_memory_holds_fails_alone(pair):
    per_slot = pair.target_session.cache.bytes_per_slot + pair.draft_session.cache.bytes_per_slot
    batch = Batch(pair, memory=2 * 256 * per_slot)
    texts = dict(write_many(batch, [[1 + i % 290 for i in range(700)], [5, 9]], k=2, max_new_tokens=5))
    assert "raise the limit" in str(texts[0].error)
    assert texts[1].generation.tokens == pair.generate([5, 9], k=2, max_new_tokens=5).tokens


def test_text_is_handed_out_as_it_becomes_final():
    pair = Speculator("demo-target", "demo-draft", compile="on")
    batch, parts = Batch(pair), []
    text = batch.add("The for statement", max_new_tokens=30, stop=["\n\n"])
    while batch.busy:
        batch.step()
        parts.append(text.readable())
    alone = pair.generate("The for statement", max_new_tokens=30, stop=["\n\n"])
    assert "".join(parts) == alone.text and len([part for part in parts if part]) > 2


@pytest.mark.parametrize("given", [{"at_once": 0}, {"memory": -1}, {"beside": 0}], ids=str)
def test_settings_that_cannot_be_are_refused(pair, given):
    with pytest.raises(ConfigError, match="at least 1"):
        Batch(pair, **given)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_through_transformers_the_texts_are_those_alone_where_numerics_are_fixed(dtype):
    model = random_model().to(getattr(torch, dtype))
    pair = Speculator(model, noisy(model, 0.2), 3, compile="off", numerics="fixed")
    texts = dict(write_many(Batch(pair, at_once=3), PROMPTS, max_new_tokens=16))
    for i, text in texts.items():
        assert text.generation.tokens == pair.generate(PROMPTS[i], max_new_tokens=16).tokens


def test_a_budget_takes_the_likeliest_guesses_as_long_as_they_pay():
    flat, steep = Pace({1: 1.0, 2: 1.0, 64: 1.0}), Pace({1: 1.0, 2: 2.0, 64: 64.0})
    cheap, dear = Pace({1: 0.1, 8: 0.1}), Pace({1: 1.0, 8: 1.0})
    sure, poor = [0.9, 0.8, 0.7, 0.6], [0.1, 0.01]
    assert shares([sure], 1, flat, cheap)[0] == [4]
    assert shares([sure], 1, steep, cheap)[0] == [0]  # full passes: under load k falls to none by itself
    assert shares([poor], 1, flat, dear)[0] == [0]
    assert shares([sure, poor], 2, flat, dear)[0][0] == 0
    ks, rate = shares([sure, poor], 2, Pace({1: 1.0, 2: 1.0, 4: 1.1, 64: 7.1}), cheap)
    assert ks[0] >= 3 and ks[1] == 0 and rate > 2.5


def test_under_load_nobody_guesses():
    model = random_model()
    pair = Speculator(model, noisy(model, 0.2), compile="on")
    batch = Batch(pair)
    batch.scheduler.pace, batch.scheduler.draft_pace = Pace({1: 1.0, 64: 64.0}), Pace({1: 0.5, 64: 32.0})
    batch.scheduler.pace.learn = batch.scheduler.draft_pace.learn = lambda *_: None
    texts = dict(write_many(batch, PROMPTS, k="auto", max_new_tokens=8))
    assert not any(text.generation.counts.proposed for text in texts.values())


@pytest.mark.failing_proposer
@pytest.mark.parametrize("k", [3, "auto"])
@pytest.mark.parametrize("length", [4, 200])
def test_a_draft_whose_passes_fail_costs_speed_only(pair, k, length):
    prompt = [1 + i % 290 for i in range(length)]
    runner = pair.draft_session.runner
    try:
        runner.run = lambda spans: (_ for _ in ()).throw(RuntimeError("no memory"))
        ((_, text),) = write_many(Batch(pair), [prompt], k=k, max_new_tokens=12)
    finally:
        del runner.run
    assert text.generation.tokens == pair.generate(prompt, k=0, max_new_tokens=12).tokens
    assert "no memory" in text.generation.warnings[0]


def test_a_failure_of_the_pass_itself_is_said(pair):
    batch = Batch(pair)
    batch.add([5, 9], max_new_tokens=5)
    runner = pair.target_session.runner
    try:
        runner.run = lambda spans: (_ for _ in ()).throw(RuntimeError("out of memory"))
        with pytest.raises(RuntimeError, match="out of memory"):
            batch.step()
    finally:
        del runner.run


def test_arguments_are_checked_before_anything_is_written(pair):
    batch = Batch(pair)
    with pytest.raises(DraftproofError):
        dict(write_many(batch, [[5, 9], [10**6]], max_new_tokens=5))
