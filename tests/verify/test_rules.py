"""The law of the output, by walking every outcome in fractions; and that faults in it are seen."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

from draftproof.bench.certify import (
    END,
    LENGTH,
    PROPOSERS,
    WIDTH,
    LawSession,
    jobs,
    largest_difference,
    law_of_texts,
    law_written,
    table,
    walk,
)
from draftproof.decode.rows import Rows
from draftproof.exchange import Proposal, Verdict
from draftproof.options import RULES
from draftproof.propose import draft as draft_module
from draftproof.propose.draft import Draft
from draftproof.sampling.outcomes import EveryChance, every_outcome
from draftproof.verify import JUDGES, block, ratio
from draftproof.verify.matching import Matching

TARGET, OTHER = table(0), table(-1)


@pytest.mark.parametrize("job", list(jobs()), ids=lambda job: " ".join(map(str, job)))
def test_texts_follow_the_targets_law_exactly(job):
    row = walk(*job, pairs=1)
    assert row.largest_difference == 0
    assert row.outcomes > 50


def off_by(rule, k=3, make=None):
    """How far the law of the texts is from the target's."""
    law, _, _ = law_written(rule, make or PROPOSERS["a draft"](0), k, TARGET)
    return largest_difference(law, law_of_texts(TARGET))


def test_the_fixture_has_what_faults_need():
    """Histories where the draft's guess is impossible, and where a token has no chance under the draft."""
    laws = [(TARGET(h), OTHER(h)) for h in ([0], [0, 0], [0, 1], [0, 2], [0, 0, 1], [0, 1, 1])]
    assert any((p == 0).any() and ((p == 0) & (q > 0)).any() for p, q in laws)
    assert any(((p > 0) & (q == 0)).any() for p, q in laws)
    assert END < WIDTH and LENGTH > 3


class Planted(Draft):
    """A draft with a fault in how it draws or in what it says of it."""

    def __init__(self, sampler, draw, claim):
        super().__init__(LawSession(OTHER), WIDTH, sampler, [END])
        self._draw, self._claim = draw, claim

    def propose(self, sequence, k, chance):
        text, q = list(sequence), []
        for _ in range(k):
            law = OTHER(text)
            text.append(chance.draw(self._draw(law)))
            q.append(self._claim(law))
            if text[-1] == END:
                break
        return Proposal(tuple(text[len(sequence) :]), len(q), q=q)


def same(law):
    return law


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("never", [{0}, {1, 2}, {0, 1, 2, 3}, {2, WIDTH + 5}])
def test_a_draft_that_never_guesses_some_ids_leaves_the_law_alone(rule, never):
    seen = set()

    class Watched(Draft):
        def propose(self, sequence, k, chance):
            proposal = super().propose(sequence, k, chance)
            seen.update(proposal.tokens)
            return proposal

    assert off_by(rule, make=lambda sampler: Watched(LawSession(OTHER), WIDTH, sampler, [END], never=never)) == 0
    assert not seen & never
    assert bool(seen) == (not never >= set(range(WIDTH)))


@pytest.mark.parametrize("rule", ["ratio", "block"])
def test_a_law_that_keeps_what_is_never_guessed_is_seen(monkeypatch, rule):
    """Drawn without an id, but said to be drawn from the whole law."""
    right = draft_module._without
    whole = {}

    def without(law, never):
        made = right(law, never)
        whole[id(made)] = (made, law)
        return made

    monkeypatch.setattr(draft_module, "_without", without)

    class Lying(Draft):
        def propose(self, sequence, k, chance):
            proposal = super().propose(sequence, k, chance)
            return replace(proposal, q=proposal.q and [whole[id(law)][1] for law in proposal.q])

    assert off_by(rule, make=lambda sampler: Lying(LawSession(OTHER), WIDTH, sampler, [END], never={0})) > 0.01


def argmax(law):
    """All probability on the likeliest token."""
    return np.array([Fraction(int(i == law.argmax())) for i in range(WIDTH)], dtype=object)


def nucleus(law):
    """The likeliest tokens that hold 0.6."""
    kept, total = law * 0, Fraction(0)
    for token in sorted(range(WIDTH), key=lambda i: -law[i]):
        if total < Fraction(6, 10):
            kept[token] = law[token]
            total += law[token]
    return kept / total


@pytest.mark.parametrize("rule", ["ratio", "block"])
def test_the_planted_drafts_are_exact_when_they_say_what_they_drew_from(rule):
    for law in (same, argmax, nucleus):
        assert off_by(rule, make=lambda sampler, law=law: Planted(sampler, law, law)) == 0


@pytest.mark.parametrize("rule", ["ratio", "block"])
@pytest.mark.parametrize("draw", [argmax, nucleus], ids=["argmax draft", "top-p on one side"])
def test_a_draft_that_claims_another_law_than_it_drew_from_is_seen(rule, draw):
    assert off_by(rule, make=lambda sampler: Planted(sampler, draw, same)) > 0.01


def draw_from_p_after_rejection(patch):
    for module in (ratio, block):
        patch.setattr(module, "residual", lambda p, q: p)


def residual_through_softmax(patch):
    def softmaxed(p, q):
        parts = [Fraction(round(float(np.exp(float(x))) * 1000), 1000) for x in (p - q).clip(0)]
        return np.array(parts, dtype=object)

    for module in (ratio, block):
        patch.setattr(module, "residual", softmaxed)


def integer_draws(patch):
    """torch.randint in place of torch.rand: every draw is 0, below every ratio but 0."""
    patch.setattr(EveryChance, "accept", lambda self, probability: probability > 0)


def bonus_from_q(patch):
    """The row behind a fully accepted block is the draft's."""
    for name in ("law", "law_ahead"):
        right = getattr(Rows, name)

        def bent(self, i, right=right):
            last = len(self._guesses)
            return OTHER([*self._sequence, *self._guesses[:-1]]) if i == last and last else right(self, i)

        patch.setattr(Rows, name, bent)


def ratio_without_a_cap(patch):
    """q/p for p/q."""
    for module in (ratio, block):
        patch.setattr(module, "at_most_one", lambda p, q: 1 if p >= q or not q else p * p / (q * q))


@pytest.mark.parametrize("rule", ["ratio", "block"])
@pytest.mark.parametrize(
    "plant",
    [draw_from_p_after_rejection, residual_through_softmax, integer_draws, bonus_from_q, ratio_without_a_cap],
)
def test_a_fault_in_the_rule_is_seen(monkeypatch, rule, plant):
    with monkeypatch.context() as patch:
        plant(patch)
        assert off_by(rule) > 0.01
    assert off_by(rule) == 0


def test_a_block_rule_that_forgets_the_weight_is_seen(monkeypatch):
    right = block.residual
    monkeypatch.setattr(block, "residual", lambda p, q: right(p / sum(p) if sum(p) else p, q))
    assert off_by("block") > 0.001


def test_noise_that_is_shared_by_the_positions_of_a_round_is_seen(monkeypatch):
    right = EveryChance.couple
    monkeypatch.setattr(EveryChance, "couple", lambda self, scores, position: right(self, scores, position // 2))
    assert off_by("coupled") > 0.01


def test_a_guess_that_is_kept_unseen_is_seen(monkeypatch):
    def unseen(self, rows, proposal, chance):
        return Verdict(len(proposal.tokens), rows.token(len(proposal.tokens)))

    monkeypatch.setattr(Matching, "judge", unseen)
    assert off_by("coupled") > 0.01


@pytest.mark.parametrize("seed", range(4))
def test_expected_acceptance_of_ratio_is_one_minus_total_variation(seed):
    p, q = table(seed)([0]), table(-1 - seed)([0])
    _, kept, _ = law_written("ratio", PROPOSERS["a draft"](seed), 1, table(seed))
    assert kept == 1 - sum(abs(p - q)) / 2 == sum(np.minimum(p, q))


def test_block_keeps_at_least_as_many_as_ratio_and_coupled_no_more_than_ratio():
    more = []
    for seed in range(3):
        kept = {}
        for rule in RULES:
            _, kept[rule], _ = law_written(rule, PROPOSERS["a draft"](seed), 3, table(seed))
        assert kept["coupled"] <= kept["ratio"] <= kept["block"]
        more.append(kept["block"] > kept["ratio"])
    assert any(more)


@pytest.mark.parametrize("rule", RULES)
def test_a_self_draft_is_always_right(rule):
    def first(chance):
        from draftproof.bench.certify import write

        made = write(rule, PROPOSERS["a self-draft"](0), 3, chance, TARGET)
        return all(r.accepted == len(r.proposed) for r in made.rounds)

    outcomes, _ = every_outcome(first, grid=8)
    assert outcomes == {True: 1}


def test_every_outcome_is_walked_once_with_its_probability():
    def two_draws(chance):
        if chance.accept(Fraction(1, 3)):
            return "yes", chance.draw(np.array([Fraction(1), Fraction(0), Fraction(3)], dtype=object))
        return ("no",)

    law, runs = every_outcome(two_draws)
    assert law == {("yes", 0): Fraction(1, 12), ("yes", 2): Fraction(1, 4), ("no",): Fraction(2, 3)}
    assert runs == 3


class Stub:
    """Chance with a given uniform number."""

    def __init__(self, uniform):
        self.uniform = uniform

    def accept(self, probability):
        return self.uniform < float(probability)

    def draw(self, law):
        return int(torch.as_tensor(law).argmax())


class Same:
    """The same law everywhere."""

    def __init__(self, law):
        self.law = self.law_ahead = lambda i: law

    def settle(self, accepted):
        pass


DRAWING = [name for name, rule in JUDGES.items() if rule.draws]


@pytest.mark.parametrize("name", DRAWING)
def test_a_draw_of_zero_does_not_keep_an_impossible_guess(name):
    p, q = torch.tensor([0.0, 1.0]), torch.tensor([0.5, 0.5])
    assert JUDGES[name].judge(Same(p), Proposal((0,), q=[q]), Stub(0.0)).accepted == 0


@pytest.mark.parametrize("name", DRAWING)
def test_equal_laws_and_a_forced_rejection_give_a_token_and_no_nan(name):
    p = torch.tensor([1.0 - 1e-7, 1e-7], dtype=torch.float64)
    verdict = JUDGES[name].judge(Same(p), Proposal((1,), q=[p * 1.0000001]), Stub(1 - 1e-16))
    assert verdict.next_token == 0
    assert JUDGES[name].judge(Same(p), Proposal((0, 0), q=[p, p]), Stub(1 - 1e-16)).accepted == 2
