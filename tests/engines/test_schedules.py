"""Every text of a batch is the text that it is alone: random arrivals, cancels, lengths, options, k, errors, memory."""

from __future__ import annotations

import os
import random

import pytest

from draftproof import Options, Speculator
from draftproof.engines.batch import Batch
from draftproof.models.native.cache import NativeCache
from draftproof.models.session import ModelSession
from draftproof.testing import noisy, random_model

SCHEDULES = int(os.environ.get("DRAFTPROOF_SCHEDULES", "30"))
SYSTEM = [7, 3, 99, 12, 250, 31, 8, 5] * 5
KINDS = [
    {},
    {"repetition_penalty": 1.3},
    {"temperature": 0.8},
    {"temperature": 0.9, "top_p": 0.9, "logprobs": True, "top_logprobs": 2},
    {"temperature": 0.8, "verify": "ratio"},
    {"temperature": 1.1, "top_k": 20, "verify": "block"},
]
KS = [0, 1, 3, 5, "auto", "auto"]


@pytest.fixture(scope="module")
def pairs():
    model = random_model()
    drafts = [noisy(model, 0.2), model, "ngram", random_model(seed=3)]
    return [Speculator(model, draft, compile="on") for draft in drafts]


def broken(at):
    """A processor that fails when the text reaches so many tokens."""

    def fails(ids, scores):
        if ids.shape[1] >= at:
            raise ValueError("a processor that fails")
        return scores

    return fails


class Job:
    """One request of a schedule, and what it writes alone."""

    def __init__(self, pair, rng):
        head = rng.choice([[], SYSTEM, SYSTEM[:20]])
        self.prompt = [*head, *(rng.randrange(1, 300) for _ in range(rng.choice([1, 3, 9, 40, 150])))]
        self.k = rng.choice(KS)
        kind = dict(rng.choice(KINDS))
        ends = [rng.randrange(300) for _ in range(rng.choice([0, 4]))]
        self.options = Options(
            max_new_tokens=rng.choice([1, 5, 20, 45]), seed=rng.randrange(99), end_tokens=ends, **kind
        )
        self.sample = rng.randrange(3)
        self.fails = rng.random() < 0.1
        self.processors = [broken(len(self.prompt) + rng.randrange(1, 9))] if self.fails else []
        self.arrives = rng.choice([0, 0, rng.randrange(30)])
        self.cancelled_at = rng.randrange(1, 25) if rng.random() < 0.15 else None
        self.pair = pair
        self.text = None

    def alone(self):
        return self.pair.generate(self.prompt, self.options, k=self.k, sample=self.sample)


def run(pair, seed):
    """Run one random schedule; return its jobs."""
    rng = random.Random(seed)
    jobs = [Job(pair, rng) for _ in range(rng.choice([1, 3, 8, 14]))]
    per_slot = pair.target_session.cache.bytes_per_slot
    memory = rng.choice([None, None, 3 * 256 * per_slot, 6 * 256 * per_slot])
    batch = Batch(pair, at_once=rng.choice([1, 3, 16]), memory=memory, beside=rng.choice([1, 16, 64]))
    for now in range(4000):
        for job in jobs:
            if job.text is None and job.arrives <= now:
                given = {"k": job.k, "sample": job.sample, "processors": job.processors}
                job.text = batch.add(job.prompt, job.options, **given)
            elif job.text is not None and job.cancelled_at is not None and now >= job.arrives + job.cancelled_at:
                job.text.cancel()
        batch.step()
        if not batch.busy and all(job.text is not None for job in jobs):
            break
    assert not batch.busy, "a schedule does not end"
    return jobs, batch


def differing(jobs):
    """Return what is not as it is alone."""
    found = []
    for job in jobs:
        made, error = job.text.generation, job.text.error
        if job.fails:
            error = None if isinstance(error, ValueError) or "processor" in str(error) else error
            if made.tokens != job_prefix(job, len(made.tokens)):
                found.append(f"{made.tokens} before an error")
        elif made.finish_reason == "cancelled":
            if made.tokens != job.alone().tokens[: len(made.tokens)]:
                found.append(f"{made.tokens} before it was cancelled")
        else:
            alone = job.alone()
            for name in ("tokens", "text", "finish_reason", "stop", "prompt_tokens"):
                if getattr(made, name) != getattr(alone, name):
                    found.append(f"{name} is {getattr(made, name)!r}, and alone {getattr(alone, name)!r}")
            ours, theirs = ([one for r in g.rounds for one in r.logprobs or ()] for g in (made, alone))
            if ours != theirs:
                found.append("other log-probabilities")
        if error is not None:
            found.append(f"failed: {error!r}")
    return found


def job_prefix(job, count):
    return job.alone().tokens[:count]


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_every_text_of_a_schedule_is_the_text_that_it_is_alone(pairs, seed):
    jobs, _ = run(pairs[seed % len(pairs)], seed)
    assert differing(jobs) == []


FAULTS = {}


def fault(plant):
    FAULTS[plant.__name__] = plant
    return plant


@fault
def a_position_off_by_one(monkeypatch):
    plan = ModelSession.plan

    def shifted(self, sequence, last=1, **how):
        span = plan(self, sequence, last, **how)
        if span.start > 20 and len(span.tokens) == 1:
            object.__setattr__(span, "positions", [span.start + 1])
        return span

    monkeypatch.setattr(ModelSession, "plan", shifted)


@fault
def the_noise_of_another(monkeypatch):
    from draftproof.engines import local

    made = local.sampler_of
    samples = iter(range(10**6))

    def mixed(*given, **named):
        given = list(given)
        given[4] = next(samples) % 7
        return made(*given, **named)

    monkeypatch.setattr(local, "sampler_of", mixed)


@fault
def a_prefix_that_is_shared_and_written(monkeypatch):
    def shared(self, slots):
        twin = NativeCache(self.decoder)
        twin._data, twin.capacity = self._data, self.capacity
        return twin

    monkeypatch.setattr(NativeCache, "copy", shared)


@fault
def a_text_that_goes_on_where_another_ended(monkeypatch):
    from draftproof.models import pool

    monkeypatch.setattr(pool, "common_prefix", lambda held, wanted: min(len(held), len(wanted)))


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found(pairs, name):
    found = []
    for seed in range(8):
        with pytest.MonkeyPatch.context() as patching:
            FAULTS[name](patching)
            try:
                jobs, _ = run(pairs[0], seed)
            except AssertionError as error:
                found.append(str(error))
                continue
        found += differing(jobs)
    assert found
