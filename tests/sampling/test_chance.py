"""Randomness comes from one seeded object, and its numbers are what they are said to be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from draftproof.sampling.chance import SeededChance

LAW = torch.tensor([0.1, 0.0, 0.5, 0.15, 0.25, 0.0], dtype=torch.float64)


def chi_square(tokens, law):
    counts = np.bincount(tokens, minlength=len(law))
    assert (counts[law == 0] == 0).all()
    return stats.chisquare(counts[law > 0], law[law > 0] * len(tokens)).pvalue


def test_draws_follow_the_law():
    chance = SeededChance(1)
    assert chi_square([chance.draw(LAW) for _ in range(20_000)], LAW.numpy()) > 1e-3
    unnormalised = LAW * 1e-9
    assert chi_square([chance.draw(unnormalised) for _ in range(20_000)], LAW.numpy()) > 1e-3


def test_accepting_follows_the_probability():
    chance = SeededChance(2)
    kept = sum(chance.accept(0.3) for _ in range(20_000))
    assert abs(kept / 20_000 - 0.3) < 0.015
    assert not any(chance.accept(0.0) for _ in range(1000))
    assert all(chance.accept(1.0) for _ in range(1000))


@pytest.mark.parametrize("over", ["positions", "seeds", "samples"])
def test_coupled_draws_follow_the_law_over_positions_seeds_and_samples(over):
    scores = LAW.log().float()
    tokens = [
        {
            "positions": lambda i: SeededChance(7).couple(scores, i),
            "seeds": lambda i: SeededChance(i).couple(scores, 5),
            "samples": lambda i: SeededChance(7, i).couple(scores, 5),
        }[over](i)
        for i in range(6000)
    ]
    assert chi_square(tokens, LAW.numpy()) > 1e-3


def test_noise_is_a_pure_function_of_seed_sample_position_and_token():
    scores = torch.randn(50, generator=torch.Generator().manual_seed(0))
    chance = SeededChance(3)
    in_order = [chance.couple(scores, i) for i in range(40)]
    chance.draw(LAW)
    backwards = [chance.couple(scores, i) for i in reversed(range(40))]
    assert backwards[::-1] == in_order == [SeededChance(3).couple(scores, i) for i in range(40)]
    short = chance.noisy(scores[:20], 9) - scores[:20]
    assert torch.allclose(short, (chance.noisy(scores, 9) - scores)[:20], atol=1e-12)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e4])
def test_the_quick_way_finds_the_token_of_the_exact_sums(scale):
    source = torch.Generator().manual_seed(5)
    chance = SeededChance(9)
    for position in range(300):
        scores = torch.randn(2000, generator=source) * scale
        if position % 3 == 0:
            scores[torch.randperm(2000, generator=source)[: 1990 + position % 10]] = -torch.inf
        if position % 5 == 0:
            scores[:7] = scores.max()  # equal scores: the noise decides
        assert chance.couple(scores, position) == int(chance.noisy(scores, position).argmax())


def test_requests_never_share_a_stream():
    def stream(chance):
        return [chance.accept(0.5) for _ in range(64)], [chance.couple(torch.zeros(9), i) for i in range(64)]

    streams = [stream(SeededChance(seed, sample)) for seed in (0, 1, 2**64 - 1) for sample in (0, 1, 2)]
    for kind in (0, 1):
        assert len({tuple(s[kind]) for s in streams}) == len(streams)
    assert stream(SeededChance(1, 2)) == stream(SeededChance(1, 2))


def test_nobody_elses_generator_is_touched():
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    chance = SeededChance(1)
    chance.draw(LAW)
    chance.accept(0.5)
    chance.couple(LAW.log(), 3)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()


def test_a_draw_pushed_over_the_end_by_rounding_takes_the_last_possible_token(monkeypatch):
    monkeypatch.setattr(SeededChance, "_uniform", lambda self: 1.0)
    assert SeededChance(1).draw(LAW) == 4
    monkeypatch.setattr(SeededChance, "_uniform", lambda self: 0.0)
    assert SeededChance(1).draw(torch.tensor([0.0, 0.3, 0.7], dtype=torch.float64)) == 1


def test_the_numbers_stay_what_they_are():
    """A seed written down today writes the same text with the next release."""
    chance = SeededChance(42)
    scores = torch.linspace(0, 1, 1000)
    assert [SeededChance(42).couple(scores, i) for i in range(6)] == [294, 613, 540, 760, 353, 790]
    assert [SeededChance(42).draw(torch.ones(1000, dtype=torch.float64)), chance.accept(1.0)] == [132, True]
