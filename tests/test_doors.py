"""One door each for proposers, rules and controllers: whatever comes through it, the text stays the target's."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict

import pytest
import torch

from draftproof import ConfigError, Speculator
from draftproof.exchange import Proposal
from draftproof.options import RULES, Options
from draftproof.propose import PROPOSERS
from draftproof.settings import WITHOUT_MODEL
from draftproof.testing import noisy, random_model
from draftproof.verify import JUDGES

PROMPT = [5, 9, 200, 7]
END = 17


class Bigrams:
    """A proposer with a state: it guesses what followed each token most often so far."""

    def __init__(self, terms):
        self.followers = defaultdict(Counter)
        self.known = 0
        self.heard = []

    def begin(self, prompt, reserve):
        self.learn(prompt)

    def learn(self, text):
        for here, there in zip(text[max(0, self.known - 1) :], text[max(1, self.known) :], strict=False):
            self.followers[here][there] += 1
        self.known = len(text)

    def propose(self, sequence, k, chance):
        self.learn(sequence)
        text = list(sequence)
        while len(text) < len(sequence) + k and (after := self.followers[text[-1]]):
            text.append(after.most_common(1)[0][0])
        return Proposal(tuple(text[len(sequence) :]), source="bigrams")

    def hear(self, proposal, verdict, states):
        self.heard.append((proposal, verdict))


class Offers:
    """A proposer that offers the same whatever is asked; what is an error is raised."""

    def __init__(self, *tokens, **more):
        self.proposal = Proposal(tokens, **more)
        self.failing = {}

    def fail(self, name):
        if name in self.failing:
            raise self.failing[name]

    def begin(self, prompt, reserve):
        self.fail("begin")

    def propose(self, sequence, k, chance):
        self.fail("propose")
        return self.proposal

    def hear(self, proposal, verdict, states):
        self.fail("hear")


class Waves:
    """A controller that asks for 0, 1, …, `most` guesses in turn."""

    def __init__(self, most):
        self.most = most

    def next(self, rounds):
        return len(rounds) % (self.most + 1)


@pytest.fixture(scope="module")
def repeating():
    """A target that soon repeats itself."""
    return random_model(seed=4, vocab_size=24, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)


GIVEN = [{}, *({"temperature": 0.6, "seed": 3, "verify": rule} for rule in RULES)]


@pytest.mark.parametrize("options", GIVEN, ids=["greedy", *RULES])
@pytest.mark.parametrize("proposer", [Bigrams, "ngram"])
def test_any_proposer_may_guess(repeating, proposer, options):
    asked = Options(max_new_tokens=80, **options)
    made = Speculator(repeating, proposer, k=4).generate([5, 9, 7], asked)
    assert made.counts.accepted > 0 and not made.warnings
    assert {r.source for r in made.rounds if r.proposed} <= {"bigrams", "n-gram"}
    if asked.same_text:
        assert made.tokens == Speculator(repeating).generate([5, 9, 7], asked).tokens


def test_what_needs_no_model_is_known_before_anything_is_imported():
    assert tuple(PROPOSERS) == WITHOUT_MODEL


def test_proposers_are_made_for_every_request_and_named():
    made = []
    speculator = Speculator(random_model(), lambda terms: made.append(terms) or Bigrams(terms), k=3)
    for _ in range(2):
        speculator.generate(PROMPT, max_new_tokens=9, end_tokens=[END])
    assert [(terms.width, terms.end_tokens) for terms in made] == [(300, {END})] * 2
    for given, name in ((Bigrams, "Bigrams"), (Offers(), "Offers"), *((name, name) for name in PROPOSERS)):
        speculator = Speculator(random_model(), given)
        assert (speculator.guesses_by, speculator.draft) == (name, None)
    with pytest.raises(ConfigError, match="draft_window"):
        Speculator(random_model(), "ngram", draft_window=5)


def test_a_proposer_hears_what_became_of_its_guesses():
    proposer = Bigrams(None)
    made = Speculator(random_model(), proposer, k=3).generate(PROMPT * 3, max_new_tokens=30)
    heard = [(proposal.tokens, verdict.accepted) for proposal, verdict in proposer.heard]
    assert heard == [(r.proposed, r.accepted) for r in made.rounds]


class Head(Offers):
    """Guesses the token that the target's own head would put behind the state before: it learns from hidden states."""

    wants_states = True

    def __init__(self, head):
        super().__init__()
        self.head, self.heard = head, []

    @torch.inference_mode()
    def hear(self, proposal, verdict, states):
        self.heard.append(states)
        self.proposal = Proposal((int(self.head(states[-1]).argmax()),) * 2, source="head")


@pytest.mark.parametrize("compile", ["on", "off"])
def test_a_proposer_may_learn_from_hidden_states(compile):
    model = random_model()
    head = Head(model.lm_head)
    speculator = Speculator(model, head, k=3, compile=compile)
    made = speculator.generate(PROMPT, max_new_tokens=30)
    assert made.tokens == Speculator(model).generate(PROMPT, max_new_tokens=30).tokens and not made.warnings
    assert [len(states) for states in head.heard] == [r.accepted + 1 for r in made.rounds]
    with torch.inference_mode():
        best = [tuple(model.lm_head(states).argmax(-1).tolist()) for states in head.heard]
    for chosen, r in zip(best, made.rounds, strict=True):  # a state's logits choose the token that follows it
        assert chosen[: len(r.tokens)] == r.tokens


BAD = [
    (Offers(1, 2, 3, 4, 5, 6, 7, 8, 9), None),
    (Offers(300), "offered token 300, and the target knows 300"),
    (Offers(3, -1, 4), "offered token -1"),
    (Offers(10**12), "offered token 1000000000000"),
    (Offers(END, 3, 4), None),
    (
        Offers(1, 2, 3, parents=(-1, -1, 0), source="tree"),
        "tree offers a tree of guesses, and only chains are verified",
    ),
    (Offers(2.5), "offered 2.5, which is no token"),
    (Offers("word"), "offered 'word', which is no token"),
    (Offers(None), "offered None, which is no token"),
]


@pytest.mark.parametrize("options", GIVEN, ids=["greedy", *RULES])
@pytest.mark.parametrize(("proposer", "fault"), BAD)
def test_nobody_trusts_a_proposer(proposer, fault, options):
    asked = Options(max_new_tokens=20, end_tokens=[END], **options)
    made = Speculator(random_model(), proposer, k=4).generate(PROMPT, asked)
    assert all(len(r.proposed) <= 4 and all(0 <= t < 300 for t in r.proposed) for r in made.rounds)
    assert all(END not in r.proposed[:-1] for r in made.rounds)
    assert [fault in warning for warning in made.warnings] == ([True] if fault else [])
    plain = Speculator(random_model()).generate(PROMPT, asked)
    if asked.same_text:
        assert made.tokens == plain.tokens
    assert len(made.tokens) == 20 or made.tokens[-1] == END


@pytest.mark.failing_proposer
@pytest.mark.parametrize("where", ["begin", "propose", "hear"])
def test_a_proposer_that_fails_costs_speed_alone(where):
    proposer = Offers(1, 2)
    proposer.failing = {where: IndexError("nothing there")}
    made = Speculator(random_model(), proposer).generate(PROMPT, max_new_tokens=20)
    assert made.tokens == Speculator(random_model()).generate(PROMPT, max_new_tokens=20).tokens
    assert ["nothing there" in warning for warning in made.warnings] == [True]
    proposer.failing = {where: KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        Speculator(random_model(), proposer).generate(PROMPT, max_new_tokens=20)


@pytest.mark.parametrize("rule", RULES)
def test_what_stands_behind_an_end_token_is_nobodys_business(rule):
    """A processor that refuses such histories is right: they never become text."""

    def refuses(ids, scores):
        assert END not in ids[0, len(PROMPT) :].tolist(), "asked about what stands behind the end"
        return scores

    reasons = []
    flat = random_model(initializer_range=0.02)
    speculator = Speculator(flat, Offers(3, END, 4, 5), k=4)
    for seed in range(60):
        asked = Options(max_new_tokens=6, temperature=1.0, seed=seed, verify=rule, end_tokens=[END])
        asked = dataclasses.replace(asked, logit_bias={END: 4.0, 3: 6.0})
        made = speculator.generate(PROMPT, asked, processors=[refuses])
        assert made.counts.proposed
        reasons.append((made.finish_reason, made.counts.accepted > 1))
    assert ("stop", True) in reasons


@pytest.mark.parametrize("rule", RULES)
def test_numbers_that_a_proposer_takes_never_change_a_text(rule):
    model = random_model()

    class Wasteful:
        """Draws more than it needs, before and behind its guesses."""

        def __init__(self, inner):
            self.inner = inner
            self.begin, self.hear = inner.begin, inner.hear

        def propose(self, sequence, k, chance):
            made = self.inner.propose(sequence, k, chance)
            for _ in range(len(sequence) % 5):
                chance.draw(torch.ones(8))
            return made

    asked = Options(max_new_tokens=40, temperature=0.8, seed=5, verify=rule)
    plain = Speculator(model, noisy(model, 0.4), k=3)
    other = Speculator(model, lambda terms: Wasteful(plain._making(terms)), k=3)
    made = plain.generate(PROMPT, asked)
    assert made.counts.accepted and made.tokens == other.generate(PROMPT, asked).tokens


@pytest.mark.parametrize("options", GIVEN, ids=["greedy", *RULES])
@pytest.mark.parametrize("numerics", ["fast", "fixed"])
def test_any_controller_may_choose_k(options, numerics):
    model = random_model()
    asked = Options(max_new_tokens=40, **options)
    made = Speculator(model, noisy(model, 0.3), k=Waves(5), numerics=numerics).generate(PROMPT, asked)
    wanted = [i % 6 for i in range(len(made.rounds))]
    assert [r.asked for r in made.rounds] == wanted
    assert all(len(r.proposed) <= r.asked for r in made.rounds) and made.k == 5
    if asked.same_text:
        assert made.tokens == Speculator(model).generate(PROMPT, asked).tokens
    drawn = [r for r in made.rounds if r.proposed and asked.rule in ("ratio", "block")]
    assert all(len(r.confidence) == len(r.proposed) and all(0 < c <= 1 for c in r.confidence) for r in drawn)


def test_a_request_may_bring_its_own_controller():
    model = random_model()
    speculator = Speculator(model, model, k=2)
    made = speculator.generate(PROMPT, k=Waves(3), max_new_tokens=30)
    assert [r.asked for r in made.rounds][:5] == [0, 1, 2, 3, 0]
    assert made.counts.acceptance_rate == 1
    with pytest.raises(ConfigError, match="k is 65"):
        speculator.generate(PROMPT, k=Waves(65))


def test_a_rule_says_itself_whether_it_draws():
    assert set(JUDGES) == {"greedy", *RULES}
    for rule in RULES:
        assert JUDGES[rule].draws is not Options(temperature=1.0, verify=rule).same_text
    assert not JUDGES["greedy"].draws
