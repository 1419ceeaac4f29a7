"""What is priced without being run: expectations of drawn guesses, texts at once, drafting while verifying."""

from __future__ import annotations

from fractions import Fraction

import pytest

from draftproof import ConfigError, Options, Speculator
from draftproof.bench import certify
from draftproof.bench.forecast import forecast_all
from draftproof.bench.record import record
from draftproof.bench.wide import widened
from draftproof.control import Fixed
from draftproof.engines.foresee import foresee
from draftproof.forecast.expect import expect, survival
from draftproof.forecast.overlap import fan_out, pearl, saguaro
from draftproof.forecast.replay import replay
from draftproof.forecast.together import Wide, together
from draftproof.forecast.trace import Offer, Text, Told
from draftproof.results import Workload
from draftproof.sampling.outcomes import every_outcome
from draftproof.testing import noisy, random_model

PROMPT = [5, 9, 200, 7]


def told(text, target, draft):
    """The trace of a text of certify's tables."""
    odds = []
    for i, token in enumerate(text):
        p, q = target([0, *text[:i]])[token], draft([0, *text[:i]])[token]
        odds.append(float(q / p))
    return Text("", 0, 1, text, (), certify.LENGTH, 0.0, {"d": Told((), odds=tuple(odds))})


@pytest.mark.parametrize("rule", ["ratio", "block"])
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("seed", [0, 1])
def test_expectations_are_those_of_every_way_that_chance_can_fall(rule, k, seed):
    target, draft = certify.table(seed), certify.table(-1 - seed)

    def experiment(chance):
        made = certify.write(rule, certify._draft(draft), k, chance, target)
        return made.tokens, made.counts.rounds, made.counts.accepted

    outcomes, _ = every_outcome(experiment, grid=certify.PARTS)
    found = {}
    for (text, rounds, accepted), probability in outcomes.items():
        sums = found.setdefault(text, [Fraction(0)] * 3)
        for i, value in enumerate((1, rounds, accepted)):
            sums[i] += value * probability
    assert len(found) > 8
    for text, (probability, rounds, accepted) in found.items():
        expected = expect(told(text, target, draft), "d", k, rule)
        assert expected.rounds == pytest.approx(float(rounds / probability))
        assert expected.accepted == pytest.approx(float(accepted / probability))


def test_block_keeps_what_ratio_keeps_and_more():
    assert survival([0.5, 4.0, 0.5], "ratio") == [0.5, 0.5, 0.25]
    assert survival([0.5, 4.0, 0.5], "block") == [0.5, 0.5, 0.5]


@pytest.mark.parametrize("verify", ["ratio", "block"])
def test_a_self_draft_is_expected_to_be_kept_always(verify):
    model = random_model()
    pair = Speculator(model, model, k=4, compile="on")
    options = Options(temperature=0.9, seed=3, verify=verify, max_new_tokens=25)
    *_, trace = record({"d": pair}, [Workload("w", (PROMPT,))], options, depth=4)
    (text,) = trace.texts
    live = pair.generate(PROMPT, options, k=4)
    made = expect(text, "d", 4, verify)
    assert made.rounds == pytest.approx(live.counts.rounds) == 5
    assert made.accepted == pytest.approx(made.proposed) == live.counts.accepted == 20
    (cell,) = forecast_all(trace, [4]).cells
    assert (cell.rounds, cell.accepted, cell.draft_passes) == (5, 20, 20)


@pytest.mark.parametrize("verify", ["ratio", "block"])
def test_what_is_expected_is_what_many_seeds_come_to(verify):
    model = random_model()
    pair = Speculator(model, noisy(model, 0.2), k=3, compile="on")
    options = [Options(temperature=1.0, seed=seed, verify=verify, max_new_tokens=24) for seed in range(120)]
    live = [pair.generate(PROMPT, one, k=3).counts for one in options]
    expected = []
    for one in options:
        *_, trace = record({"d": pair}, [Workload("w", (PROMPT,))], one, depth=3, probes=1)
        expected.append(expect(trace.texts[0], "d", 3, verify))
    rounds = sum(one.rounds for one in live)
    assert sum(one.rounds for one in expected) == pytest.approx(rounds, rel=0.05)
    assert sum(one.accepted for one in expected) == pytest.approx(sum(one.accepted for one in live), rel=0.08)


def test_a_proposer_that_draws_and_says_not_from_what_is_refused():
    model = random_model()
    pair = Speculator(model, noisy(model, 0.2), k=3, draft_window=20)
    with pytest.raises(ConfigError, match="draws its guesses"):
        foresee(pair, PROMPT, [1, 2] * 20, 3, Options(temperature=1.0, verify="ratio", max_new_tokens=40))


class Cheap:
    """Costs in whole seconds: a draft pass takes 1, a target's 4."""

    plain_s = 4.0

    def draft_s(self, passes, guesses):
        return float(passes)

    def target_s(self, guesses):
        return 4.0

    def overhead_s(self, guesses):
        return 0.0


class CheapWide:
    """All widths cost alike."""

    def draft_s(self, passes, guesses):
        return float(max(passes))

    def target_s(self, tokens):
        return 4.0


def text_of(hits, ranks=()):
    """A text of zeros, whose draft is right where `hits` say so."""
    offers = tuple(Offer((0 if hit else 1,), (), 1) for hit in hits)
    return Text("", 0, 1, (0,) * len(hits), (), len(hits), 0.0, {"d": Told(offers, ranks=ranks)})


def test_texts_at_once_take_turns_in_one_pass():
    costs, wide = Cheap(), CheapWide()
    assert together([[(0, 0)] * 5], 1, costs, wide) == 20
    assert together([[(0, 0)] * 5, [(0, 0)] * 3], 2, costs, wide) == 20  # the second is read beside the first
    assert together([[(0, 0)] * 5, [(0, 0)] * 3], 1, costs, wide) == 32
    assert together([[(0, 0)] * 5, [(0, 0)] * 3, [], [(0, 0)] * 2], 2, costs, wide) == 20  # one after another
    assert together([[(2, 2), (1, 1)], [(0, 0)]], 2, costs, wide) == (2 + 4) + (1 + 4)


def test_pearl_hides_the_draft_behind_the_target():
    right = [True] * 12
    # the first guess is judged while four are made; then four tokens a step, and the draft's four seconds are hidden
    assert pearl(text_of(right), "d", 4, Cheap()) == 4 * (1 + 3)
    assert pearl(text_of([False] * 5), "d", 4, Cheap()) == 4 * 5  # never slower than plain, where the draft keeps up
    assert pearl(text_of([False] * 5), "d", 6, Cheap()) == 6 * 5


def test_an_outcome_that_was_foreseen_has_its_guesses_ready():
    hits = [True, False, True, False]
    known, unknown = text_of(hits, (0, 1, 0, 1)), text_of(hits, (0, 99, 0, 99))
    # each round writes two tokens; drafting comes before the first, and where the outcome was not foreseen
    assert saguaro(known, "d", 2, Cheap()) == 2 + 4 + 4
    assert saguaro(unknown, "d", 2, Cheap()) == 2 + 4 + 2 + 4
    with pytest.raises(ConfigError, match="record it again"):
        saguaro(text_of(hits), "d", 2, Cheap())
    assert fan_out(0.5, 2, 16) == [8, 4, 4]


def test_a_forecast_prices_what_is_asked_for():
    model = random_model()
    pairs = {"d": Speculator(model, noisy(model, 0.2), k=8, compile="on"), "n": Speculator(model, "ngram", k=8)}
    prompts = Workload("w", (PROMPT, PROMPT * 2))
    *_, trace = record({"d": pairs["d"]}, [prompts], Options(max_new_tokens=20), depth=8)
    with pytest.raises(ConfigError, match="many tokens"):
        forecast_all(trace, [2, 4], sizes=[1, 2])
    trace = widened(trace, {"d": pairs["d"]}, 4, 8)
    result = forecast_all(trace, [2, 4, "auto"], sizes=[1, 4], overlap=True)
    found = {(one.what, one.size): one for one in result.priced}
    assert set(found) == {("oracle", 1), ("PEARL", 1), ("speculative speculative", 1), ("batch", 1), ("batch", 4)}
    best = max(cell.speedup.value for cell in result.cells)
    assert found["oracle", 1].speedup.value > 0.95 * best
    assert found["batch", 4].tokens_per_s > 0
    *_, other = record({"n": pairs["n"]}, [prompts], Options(max_new_tokens=20), depth=8)
    with pytest.raises(ConfigError, match="no passes"):
        forecast_all(other, [2], overlap=True)
    assert {one.what for one in forecast_all(widened(other, {"n": pairs["n"]}, 2, 8), [2], sizes=[2]).priced} == {
        "oracle",
        "batch",
    }


def test_one_text_at_once_costs_what_it_costs_alone():
    model = random_model()
    pair = Speculator(model, noisy(model, 0.2), k=4, compile="on")
    *_, trace = record({"d": pair}, [Workload("w", (PROMPT,))], Options(max_new_tokens=20), depth=4)
    trace = widened(trace, {"d": pair}, 1, 4)
    from draftproof.forecast.predict import costs_of

    costs = costs_of(trace, "d", 4)
    rounds = replay(trace.texts[0], "d", Fixed(0), costs)
    shapes = [(len(one.proposed), one.draft_passes) for one in rounds]
    alone = sum(costs.target_s(0) + costs.overhead_s(0) for _ in rounds)
    assert together([shapes], 1, costs, Wide(trace, "d", costs)) == pytest.approx(alone)
