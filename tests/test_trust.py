"""Nobody behind a door is trusted: whatever they do, the text and its record stay what they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from draftproof import ConfigError, EngineError, Options, Speculator
from draftproof.exchange import Proposal
from draftproof.testing import noisy, random_model

pytestmark = pytest.mark.failing_proposer
PROMPT = [5, 9, 200, 7]
GREEDY = Options(max_new_tokens=20)
DRAWN = Options(max_new_tokens=20, temperature=0.9, seed=3, verify="ratio")


@pytest.fixture(scope="module")
def model():
    return random_model()


@pytest.fixture(scope="module")
def plain(model):
    return Speculator(model, compile="on").generate(PROMPT, GREEDY, k=0)


class Guesser:
    """A proposer that does as it is told."""

    def __init__(self, propose, hear=None):
        self._propose, self._hear = propose, hear

    def begin(self, prompt, reserve):
        prompt.clear()

    def propose(self, sequence, k, chance):
        return self._propose(sequence, k)

    def hear(self, proposal, verdict, states):
        if self._hear:
            self._hear(proposal)


def writes(model, propose, options=GREEDY, hear=None, k=3):
    return Speculator(model, lambda terms: Guesser(propose, hear), k, compile="on").generate(PROMPT, options)


def appends(sequence, k):
    n = len(sequence)
    for _ in range(k):
        sequence.append(sequence[-1])
    return Proposal(tuple(sequence[n:]))


def rewrites(sequence, k):
    sequence[-1] = 3
    return Proposal((1, 2))


def clears(sequence, k):
    sequence.clear()
    return Proposal((1,))


@pytest.mark.parametrize("propose", [appends, rewrites, clears])
def test_what_is_done_to_the_list_that_was_handed_over_changes_no_text(model, plain, propose):
    assert writes(model, propose).tokens == plain.tokens


NONSENSE = {
    "None": lambda s, k: None,
    "a list": lambda s, k: [1, 2],
    "no tuple": lambda s, k: Proposal(5),
    "None for tokens": lambda s, k: Proposal(None),
    "bools": lambda s, k: Proposal((True, False)),
    "texts": lambda s, k: Proposal(("a", "b")),
    "confidence None": lambda s, k: Proposal((1, 2, 3, 4, 5), confidence=None),
    "confidence a number": lambda s, k: Proposal((1, 2, 3, 4, 5), confidence=0.5),
    "confidence NaN": lambda s, k: Proposal((1, 2), confidence=(float("nan"), 1.0)),
    "confidence huge": lambda s, k: Proposal((1, 2), confidence=(1e308, 1e308)),
    "confidence texts": lambda s, k: Proposal((1, 2), confidence=("a", "b")),
    "too many confidences": lambda s, k: Proposal((1, 2), confidence=(0.5,) * 9),
    "passes None": lambda s, k: Proposal((1,), passes=None),
    "tree": lambda s, k: Proposal((1, 2), parents=(-1, -1)),
}
BAD_LAWS = {
    "q short": lambda s, k: Proposal((1, 2), q=[torch.ones(300) / 300]),
    "q narrow": lambda s, k: Proposal((1,), q=[torch.ones(7) / 7]),
    "q a number": lambda s, k: Proposal((1,), q=5),
    "q of Nones": lambda s, k: Proposal((1, 2), q=[None, None]),
    "q of zeros": lambda s, k: Proposal((1,), q=[torch.zeros(300)]),
    "q NaN": lambda s, k: Proposal((1,), q=[torch.full((300,), float("nan"))]),
    "q that cannot draw it": lambda s, k: Proposal((1,), q=[torch.nn.functional.one_hot(torch.tensor(2), 300).float()]),
}


@pytest.mark.parametrize("k", [3, "auto"])
@pytest.mark.parametrize("name", NONSENSE)
def test_an_offer_that_is_none_is_a_warning(model, plain, name, k):
    made = writes(model, NONSENSE[name], k=k)
    assert made.tokens == plain.tokens and made.warnings
    hash(made)


@pytest.mark.parametrize("verify", ["ratio", "block"])
@pytest.mark.parametrize("name", {**NONSENSE, **BAD_LAWS})
def test_so_it_is_where_guesses_are_drawn(model, name, verify):
    options = Options.of(DRAWN, verify=verify)
    made = writes(model, {**NONSENSE, **BAD_LAWS}[name], options)
    assert len(made.tokens) == 20 and made.warnings


def test_numbers_of_numpy_and_torch_are_guesses_like_others(model, plain):
    def guesses(sequence, k):
        at = len(sequence) - len(PROMPT)
        return Proposal([np.int64(plain.tokens[at]), torch.tensor(plain.tokens[min(at + 1, 19)])])

    made = writes(model, guesses)
    assert made.tokens == plain.tokens and made.counts.accepted and not made.warnings
    assert all(type(token) is int for done in made.rounds for token in done.proposed)


def test_passes_below_none_are_none(model):
    assert writes(model, lambda s, k: Proposal((1,), passes=-5)).counts.draft_passes == 0


def test_a_proposer_that_changes_what_it_offered_falsifies_no_record(model):
    offered = []

    def guesses(sequence, k):
        offered[:] = [1, 2]
        return Proposal(offered)

    made = writes(model, guesses, hear=lambda proposal: offered.clear())
    assert {done.proposed for done in made.rounds[:-2]} == {(1, 2)}


def test_one_that_cannot_be_made_is_a_warning(model, plain):
    def fails(terms):
        raise ValueError("no")

    made = Speculator(model, fails, 3, compile="on").generate(PROMPT, GREEDY)
    assert made.tokens == plain.tokens and "no" in made.warnings[0]


class Chooser:
    """A controller that does as it is told."""

    def __init__(self, next_, most=4):
        self.most, self._next = most, next_

    def next(self, rounds):
        return self._next(rounds)


def raises(rounds):
    raise ValueError("no")


CHOICES = {
    "raises": raises,
    "None": lambda rounds: None,
    "a text": lambda rounds: "3",
    "a fraction": lambda rounds: 2.5,
    "NaN": lambda rounds: float("nan"),
    "empties the record": lambda rounds: rounds.clear() or 2,
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_controller_that_asks_for_nonsense_is_a_warning(model, plain, name):
    pair = Speculator(model, noisy(model, 0.2), Chooser(CHOICES[name]), compile="on")
    made = pair.generate(PROMPT, GREEDY)
    assert made.tokens == plain.tokens and "controller failed" in made.warnings[0]


@pytest.mark.parametrize(("asked", "most"), [(60, 2), (-5, 2)])
def test_no_controller_asks_for_more_than_its_most_or_less_than_none(model, plain, asked, most):
    pair = Speculator(model, noisy(model, 0.2), Chooser(lambda rounds: asked, most), compile="on")
    made = pair.generate(PROMPT, GREEDY)
    assert made.tokens == plain.tokens
    assert {done.asked for done in made.rounds} == {min(most, max(0, asked))}


def test_a_seed_writes_its_text_again_whatever_the_clock_says(model):
    pair = Speculator(model, noisy(model, 0.2), "auto", compile="on")
    for verify in ("ratio", "block"):
        texts = {pair.generate(PROMPT, DRAWN, verify=verify).tokens for _ in range(5)}
        assert len(texts) == 1


def test_a_pair_that_was_opened_to_write_plainly_does_not_guess_with_numerics_that_part(model):
    coarse = random_model().to(torch.bfloat16)
    with pytest.raises(ConfigError, match="opened with k=0"):
        Speculator(coarse, coarse, 0, compile="off").generate(PROMPT, GREEDY, k=5)
    assert Speculator(coarse, coarse, 0, compile="off", numerics="fast").generate(PROMPT, GREEDY, k=5).tokens
    assert Speculator(model, model, 0, compile="off").generate(PROMPT, GREEDY, k=5).tokens


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_text_that_is_no_number_spoils_no_other(bad):
    broken = random_model()
    prompts = [PROMPT, [5, 9, 3]]
    seen = {t for p in prompts for t in (*p, *Speculator(broken, compile="on").generate(p, GREEDY).tokens)}
    token = min({*range(100, 300)} - seen)
    broken.model.embed_tokens.weight.data[token] = bad
    pair = Speculator(broken, "ngram", 4, compile="on")
    before = pair.generate(PROMPT, GREEDY)
    for _ in range(2):
        with pytest.raises(EngineError):
            pair.generate([5, 9, 3, 4, 6, 7, 8, 9, token, 3], GREEDY)
        assert pair.generate(PROMPT, GREEDY).tokens == before.tokens
        assert (
            pair.generate([5, 9, 3], GREEDY).tokens
            == Speculator(broken, compile="on").generate([5, 9, 3], GREEDY).tokens
        )


def test_a_draft_that_met_no_number_guesses_again(model):
    broken = noisy(model, 0.0)
    broken.model.embed_tokens.weight.data[111] = float("nan")
    pair = Speculator(model, broken, 4, compile="on")
    before = pair.generate(PROMPT, GREEDY)
    assert pair.generate([5, 9, 3, 4, 6, 7, 8, 9, 111, 3], GREEDY).counts.accepted == 0
    assert pair.generate(PROMPT, GREEDY).counts.accepted == before.counts.accepted > 0


def test_no_option_is_infinite(model):
    for name in ("repetition_penalty", "temperature"):
        with pytest.raises(ConfigError, match=name):
            Options(**{name: float("inf")})


def test_a_result_of_nonsense_is_still_a_result(model):
    made = writes(model, NONSENSE["confidence NaN"])
    assert all(share == share for done in made.rounds for share in done.confidence)
