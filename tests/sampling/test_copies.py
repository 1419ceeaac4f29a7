"""State is copied wherever it lies, so that what looks ahead changes nothing."""

from __future__ import annotations

import functools
import threading

import pytest
import torch
from transformers.generation import LogitsProcessor

from draftproof import ConfigError, Speculator
from draftproof.sampling.processors import clone
from draftproof.testing import noisy
from tests.sampling.test_processors import PROMPT


def counting_function():
    count = [0]

    def count_up(input_ids, scores):
        count[0] += 1
        scores[0, count[0]] += 50
        return scores

    return count_up


@pytest.mark.parametrize("k", [1, 4])
def test_a_function_that_counts_in_its_closure_is_copied_with_it(model, k):
    made = Speculator(model, noisy(model, 0.1), k=k).generate(
        PROMPT, max_new_tokens=20, processors=[counting_function()], check=True
    )
    assert made.identical
    assert made.tokens == tuple(range(1, 21))


def deep_counting():
    """A closure over another that counts."""
    count = counting_function()
    return lambda ids, scores: count(ids, scores)


class Holding(LogitsProcessor):
    """An object that holds a function that counts."""

    def __init__(self):
        self.count = counting_function()

    def __call__(self, input_ids, scores):
        return self.count(input_ids, scores)


def counting_on_itself():
    def count_up(input_ids, scores):
        count_up.calls += 1
        scores[0, count_up.calls] += 50
        return scores

    count_up.calls = 0
    return count_up


def counting_by_a_built_in_method():
    seen: list[int] = []
    add = seen.append

    def count_up(input_ids, scores):
        add(1)
        scores[0, len(seen)] += 50
        return scores

    return count_up


class Base(LogitsProcessor):
    def __init__(self):
        self.calls = 0
        self.step = super().__init__  # any bound method
        self.first = Base.__call__.__get__(self)

    def __call__(self, input_ids, scores):
        self.calls += 1
        scores[0, self.calls] += 50
        return scores


class Overriding(Base):
    """Calls what it overrides, through a bound method that it keeps."""

    def __call__(self, input_ids, scores):
        return self.first(input_ids, scores)


def counting_in_a_cache():
    seen = []

    @functools.lru_cache
    def place(length):
        seen.append(length)
        return len(seen)

    def count_up(input_ids, scores):
        scores[0, place(input_ids.shape[1])] += 50
        return scores

    return count_up


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1, dtype=torch.long))

    def forward(self, input_ids, scores):
        self.calls += 1
        scores[0, int(self.calls)] += 50
        return scores


MAKES = [
    counting_function,
    deep_counting,
    Holding,
    counting_on_itself,
    counting_by_a_built_in_method,
    Overriding,
    counting_in_a_cache,
    Module,
]


@pytest.mark.parametrize("rule", [{}, {"temperature": 0.01}, {"temperature": 0.01, "verify": "block"}])
@pytest.mark.parametrize("make", MAKES)
def test_state_is_copied_wherever_it_lies(model, make, rule):
    processor = make()
    for _ in range(2):  # the user's own object does not move
        made = Speculator(model, noisy(model, 0.1), k=3).generate(
            PROMPT, max_new_tokens=20, processors=[processor], seed=1, **rule
        )
        assert made.tokens == tuple(range(1, 21))


def test_processors_that_share_a_state_go_on_sharing_it(model):
    shared = [0]

    def first(input_ids, scores):
        shared[0] += 1
        return scores

    def second(input_ids, scores):
        scores[0, shared[0]] += 50
        return scores

    for k in (0, 3):
        made = Speculator(model, noisy(model, 0.1), k=k).generate(PROMPT, max_new_tokens=20, processors=[first, second])
        assert made.tokens == tuple(range(1, 21))
    assert shared == [0]


def test_views_of_one_tensor_stay_views_of_one():
    base = torch.zeros(5)
    view = base[:2]
    first, second = clone([
        functools.partial(lambda t, i, s: t.add_(1), view),
        functools.partial(lambda t, i, s: t, base),
    ])
    first(None, None)
    assert second(None, None).tolist() == [1, 1, 0, 0, 0]
    assert base.tolist() == [0] * 5


def test_a_class_that_keeps_its_state_in_a_closure_is_refused(model):
    state = [0]

    class Leaking:
        def __call__(self, input_ids, scores):
            state[0] += 1
            return scores

    with pytest.raises(ConfigError, match=r"'Leaking' cannot be copied \(Leaking.__call__ closes over a list"):
        Speculator(model, model, k=2).generate(PROMPT, processors=[Leaking()])


def test_a_processor_that_cannot_be_copied_is_refused_by_name(model):
    class Locked(LogitsProcessor):
        def __init__(self):
            self.lock = threading.Lock()

        def __call__(self, input_ids, scores):
            return scores

    with pytest.raises(ConfigError, match=r"'Locked' cannot be copied.*__deepcopy__"):
        Speculator(model, model, k=2).generate(PROMPT, processors=[Locked()])
    lock = threading.Lock()

    def locked(input_ids, scores):
        return scores if lock else None

    with pytest.raises(ConfigError, match="'locked' cannot be copied"):
        clone([locked])
