"""The theory holds its own laws, and gives the numbers that others worked out."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof import cost
from draftproof.cost import CostCurve
from draftproof.records import Round

ALPHA = st.floats(0, 1)
K = st.integers(1, 40)
FLAT = CostCurve((1, 2, 40), (0.1, 0.1, 0.1))


def a_round(proposed, accepted):
    return Round(tuple(range(proposed)), accepted, (0,) * (accepted + 1), 0, proposed, 0.0, 0.0, 0.0)


@given(ALPHA, K)
def test_tokens_per_round_lie_between_one_and_both_ceilings(alpha, k):
    made = cost.tokens_per_round(alpha, k)
    assert 1 <= made <= min(k + 1, cost.ceiling(alpha)) + 1e-9
    assert made <= cost.tokens_per_round(alpha, k + 1)
    if alpha < 0.999:
        assert made == pytest.approx((1 - alpha ** (k + 1)) / (1 - alpha))


@given(ALPHA, K)
def test_the_acceptance_rate_is_at_most_alpha_and_can_be_turned_back(alpha, k):
    rate = cost.acceptance_rate(alpha, k)
    assert rate <= alpha + 1e-9
    back = cost.alpha_of_acceptance_rate(rate, k)
    assert cost.acceptance_rate(back, k) == pytest.approx(rate, abs=1e-9)


@given(ALPHA, st.floats(0, 1))
def test_the_condition_is_met_exactly_when_one_guess_pays(alpha, c):
    """Leviathan's corollary: if any k improves, k = 1 does, and it does if alpha > c."""
    assert cost.can_pay(alpha, c) == (cost.improvement_factor(alpha, 1, c) > 1) or alpha == pytest.approx(c)
    if cost.improvement_factor(alpha, 7, c) > 1 + 1e-9:
        assert cost.can_pay(alpha, c)


@given(ALPHA, K, st.floats(0.001, 1))
def test_with_free_verification_the_forecast_is_leviathans_factor(alpha, k, c):
    assert cost.forecast(alpha, k, FLAT, c * 0.1) == pytest.approx(cost.improvement_factor(alpha, k, c))


@given(ALPHA, st.floats(0.001, 0.2), st.floats(0, 0.1), st.floats(0, 0.02))
def test_the_best_k_beats_every_other_and_plain_decoding(alpha, draft_s, slope, overhead_s):
    curve = CostCurve((1, 17), (0.1, 0.1 + 16 * slope))
    ks = range(1, 17)
    best = cost.best_k(alpha, curve, draft_s, ks, overhead_s)
    top = max(cost.forecast(alpha, k, curve, draft_s, overhead_s) for k in ks)
    if best == 0:
        assert top <= 1
    else:
        assert cost.forecast(alpha, best, curve, draft_s, overhead_s) == top > 1


@pytest.mark.parametrize(
    ("alpha", "k", "c", "tokens", "factor"),
    [
        (0.7, 4, 0.1, 2.773, 1.98),
        (0.8, 5, 0.11, 3.689, 2.38),
        (0.0, 4, 0.1, 1.0, 1 / 1.4),
        (1.0, 4, 0.1, 5.0, 5 / 1.4),
        (0.7, 0, 0.1, 1.0, 1.0),
    ],
)
def test_known_values(alpha, k, c, tokens, factor):
    assert cost.tokens_per_round(alpha, k) == pytest.approx(tokens, abs=1e-3)
    assert cost.improvement_factor(alpha, k, c) == pytest.approx(factor, abs=5e-3)


def test_the_acceptance_rate_over_all_guesses_is_not_alpha():
    """64 tokens in 15 rounds of 5: 54 of 75 guesses accepted. Put in for alpha, 0.72 forbids what was measured."""
    measured = 64 / 15
    assert cost.ceiling(0.72) < measured
    alpha = cost.alpha_of_acceptance_rate(54 / 75, 5)
    assert alpha == pytest.approx(0.893, abs=1e-3)
    assert cost.tokens_per_round(alpha, 5) == pytest.approx(4.6)


@given(st.floats(0.05, 0.95), st.integers(1, 8), st.integers(0, 10_000))
def test_alpha_is_found_again_in_simulated_rounds(alpha, k, seed):
    rng = random.Random(seed)
    rounds = []
    for _ in range(600):
        accepted = next((i for i in range(k) if rng.random() >= alpha), k)
        rounds.append(a_round(k, accepted))
    assert cost.agreement(rounds) == pytest.approx(alpha, abs=0.12)
    by_position = cost.agreement_by_position(rounds)
    assert by_position[0][0] == 600
    assert sum(right for _, right in by_position) == sum(r.accepted for r in rounds)
    assert all(after[0] == before[1] for before, after in itertools.pairwise(by_position))


def test_nothing_tested_has_no_agreement():
    assert cost.agreement([a_round(0, 0)]) is None
    assert cost.agreement_by_position([]) == []


@given(st.integers(1, 100))
def test_the_curve_is_straight_between_points_and_beyond(n):
    curve = CostCurve((1, 4, 8), (1.0, 2.5, 4.5))
    assert curve.at(n) == pytest.approx(1 + (n - 1) / 2)
    assert curve.ratio(4) == 2.5
    assert CostCurve((1,), (3.0,)).at(n) == 3.0


def test_the_best_k_is_asked_for_against_plain_decoding_with_its_own_overhead():
    """A pass of 1 ms, and 0.3 ms around each round, plain ones too: two guesses a round pay."""
    milliseconds = {"overhead_s": 3e-4, "plain_overhead_s": 3e-4}
    flat = cost.CostCurve((1, 64), (1e-3, 1e-3))
    assert cost.forecast(0.6, 2, flat, 0.36e-3, **milliseconds) == pytest.approx(1.26, abs=0.005)
    assert cost.best_k(0.6, flat, 0.36e-3, range(1, 9), **milliseconds) == 2
    assert cost.best_k(0.6, flat, 0.36e-3, range(1, 9), 3e-4) == 0
