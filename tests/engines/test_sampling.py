"""Sampling on models: laws, seeds, samples, log-probabilities; from public reports of what went wrong elsewhere."""

from __future__ import annotations

import collections
import threading

import pytest
import torch
from scipy import stats

from draftproof import ConfigError, EngineError, Options, Speculator
from draftproof.decode.loop import Decoding
from draftproof.decode.stop import Stop
from draftproof.options import RULES
from draftproof.propose.draft import Draft
from draftproof.sampling.chance import SeededChance
from draftproof.sampling.sampler import RowSampler
from draftproof.testing import HandSetClock, TableSession, byte_tokenizer, chain_model, noisy

PROMPT = [5, 9, 7]
P = torch.tensor([2, 1, 0.5, 0, -0.5, -1])
Q = torch.tensor([0.5, 1.5, 0, 1, -1, 0])


def chain(row, **settings):
    """A model with the same logits after every token."""
    return chain_model(row.repeat(len(row), 1), **settings)


@pytest.fixture(scope="module")
def six():
    return Speculator(chain(P), chain(Q), k=3)


def law_of(options):
    """What plain sampling draws from, by transformers' own arithmetic on the table."""
    from tests.sampling.test_laws import theirs

    return theirs(P, options).double().softmax(-1)


def fits(tokens, law):
    """Whether tokens can be draws from a law; those of probability 0 must not be there."""
    counts = torch.bincount(torch.tensor(tokens), minlength=len(law)).double()
    assert not counts[law == 0].any()
    return stats.chisquare(counts[law > 0], law[law > 0] * len(tokens)).pvalue > 1e-4


def text_of_tables(options, seed, k=3, end_tokens=()):
    """A text of the two rows without a model in between, so that many can be written."""
    sampler = RowSampler(options, SeededChance(seed), width=6)
    target, draft = (TableSession(lambda history, row=row: row.tolist(), width=6) for row in (P, Q))
    decoding = Decoding(
        target,
        [0],
        proposer=Draft(draft, 6, sampler, end_tokens),
        k=k,
        stop=Stop(limit=options.max_new_tokens, end_tokens=end_tokens),
        clock=HandSetClock(),
        sampler=sampler,
    )
    for _ in decoding:
        pass
    return decoding.generation()


GIVEN = [
    {"temperature": 1.0},
    {"temperature": 0.5},
    {"temperature": 2.0, "top_k": 3},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 1.5, "min_p": 0.2},
]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("given", GIVEN)
def test_many_tokens_follow_the_filtered_law_of_the_target(rule, given):
    """Every row of the tables is the same, so that all tokens of long texts are draws from one law."""
    options = Options(max_new_tokens=200, verify=rule, **given)
    made = [text_of_tables(options, seed) for seed in range(10)]
    assert fits([token for one in made for token in one.tokens], law_of(options))
    accepted, proposed = (sum(getattr(one.counts, name) for one in made) for name in ("accepted", "proposed"))
    assert 0.1 < accepted / proposed < 1  # draws are not constants


@pytest.mark.parametrize("rule", RULES)
def test_tokens_of_models_follow_it_too(six, rule):
    options = Options(max_new_tokens=200, verify=rule, temperature=0.7, top_p=0.9)
    tokens = [token for seed in range(3) for token in six.generate([0], options, seed=seed).tokens]
    assert fits(tokens, law_of(options))


def test_acceptance_of_the_first_guess_is_one_minus_total_variation():
    made = [text_of_tables(Options(temperature=1.0, verify="ratio", max_new_tokens=120), seed) for seed in range(40)]
    first = [r.accepted > 0 for one in made for r in one.rounds if r.proposed]
    overlap = float(torch.minimum(P.softmax(-1), Q.softmax(-1)).sum())
    assert sum(first) / len(first) == pytest.approx(overlap, abs=0.03) == pytest.approx(0.567, abs=0.03)


@pytest.mark.parametrize("rule", RULES)
def test_the_second_and_third_token_follow_the_first(rule):
    """b follows a or c does; after b always d, after c always f: an answer a step late would mix them."""
    table = torch.full((6, 6), -30.0)
    for here, there in [(0, 1), (0, 2), (1, 3), (2, 4), (3, 0), (4, 0), (5, 0)]:
        table[here, there] = 3.0
    speculator = Speculator(chain_model(table), chain_model(table + torch.randn(6, 6)), k=4)
    pairs = collections.Counter()
    for seed in range(25):
        made = speculator.generate([0], temperature=1.0, seed=seed, verify=rule, max_new_tokens=40)
        pairs.update(zip(made.tokens, made.tokens[1:], strict=False))
    assert set(pairs) <= {(0, 1), (0, 2), (1, 3), (2, 4), (3, 0), (4, 0)}
    assert 0.35 < pairs[0, 1] / (pairs[0, 1] + pairs[0, 2]) < 0.65


@pytest.mark.parametrize("size", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("compile", ["on", "off"])
def test_coupled_text_is_the_same_with_any_draft_any_k_and_none(model, size, compile):
    texts = set()
    for k in (0, 1, 3, 8):
        speculator = Speculator(model, noisy(model, size), k=k, compile=compile)
        made = speculator.generate(PROMPT, temperature=0.9, top_p=0.95, seed=11, max_new_tokens=60)
        assert (made.verify, made.seed) == ("coupled", 11)
        texts.add(made.tokens)
    texts.add(
        Speculator(model, compile=compile)
        .generate(PROMPT, temperature=0.9, top_p=0.95, seed=11, max_new_tokens=60)
        .tokens
    )
    assert len(texts) == 1


@pytest.mark.parametrize("rule", RULES)
def test_the_same_seed_writes_the_same_text_beside_others_and_another_seed_another(model, rule):
    draft = noisy(model, 0.2)

    def text(seed):
        options = {"temperature": 2.0, "verify": rule, "seed": seed, "max_new_tokens": 24}
        return Speculator(model, draft, k=4).generate(PROMPT, **options).tokens

    state = torch.get_rng_state()
    alone = [text(42) for _ in range(3)]
    assert torch.equal(torch.get_rng_state(), state)
    beside = []
    threads = [threading.Thread(target=lambda i=i: beside.append((i, text(42 + i)))) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(alone)) == 1
    assert dict(beside)[0] == alone[0]
    assert len({tokens for _, tokens in beside}) == 4


def test_a_seed_does_not_matter_at_temperature_zero_and_does_above(model):
    speculator = Speculator(model, noisy(model, 0.2), k=4)
    assert len({speculator.generate(PROMPT, seed=seed, max_new_tokens=20).tokens for seed in range(10)}) == 1
    sampled = {speculator.generate(PROMPT, seed=seed, temperature=1.0, max_new_tokens=20).tokens for seed in range(10)}
    assert len(sampled) == 10


@pytest.mark.parametrize("rule", RULES)
def test_requests_without_a_seed_differ_and_say_with_which_they_were_written(six, rule):
    options = {"temperature": 1.0, "verify": rule, "max_new_tokens": 12}
    made = [six.generate([0], **options) for _ in range(20)]
    assert len({one.tokens for one in made}) >= 18
    again = six.generate([0], **options, seed=made[0].seed)
    assert again.tokens == made[0].tokens


@pytest.mark.parametrize("rule", RULES)
def test_samples_of_one_request_are_texts_of_their_own(six, rule):
    options = {"temperature": 1.0, "verify": rule, "max_new_tokens": 16, "seed": 3}
    made = six.samples([0], 5, **options, check=rule == "coupled")
    assert len({one.tokens for one in made}) == 5
    assert [one.sample for one in made] == [0, 1, 2, 3, 4]
    assert made[0].tokens == six.generate([0], **options).tokens
    assert made[3].tokens == six.generate([0], **options, sample=3).tokens
    assert {one.seed for one in six.samples([0], 2, temperature=1.0)} != {None}
    with pytest.raises(ConfigError, match="n is 0"):
        six.samples([0], 0)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("temperature", [1e-3, 1e-6])
def test_next_to_no_temperature_is_the_argmax(model, rule, temperature):
    made = Speculator(model, model, k=4).generate(PROMPT, temperature=temperature, verify=rule, max_new_tokens=40)
    assert made.tokens == Speculator(model).generate(PROMPT, max_new_tokens=40).tokens
    assert made.counts.acceptance_rate == 1.0


def test_check_compares_what_can_be_compared(model):
    speculator = Speculator(model, model, k=2)
    for rule in ("ratio", "block"):
        with pytest.raises(ConfigError, match="choose verify='coupled', or prove the law with draftproof certify"):
            speculator.generate(PROMPT, temperature=1.0, verify=rule, check=True)
        assert speculator.generate(PROMPT, verify=rule, check=True, max_new_tokens=4).verify == "greedy"


@pytest.mark.parametrize("rule", RULES)
def test_end_tokens_come_as_often_as_the_target_says(rule):
    """As many texts end at once as the end token has probability."""
    options = Options(temperature=1.0, verify=rule, max_new_tokens=3)
    ended = sum(len(text_of_tables(options, seed, k=2, end_tokens=[1]).tokens) == 1 for seed in range(2500))
    assert ended / 2500 == pytest.approx(float(P.softmax(-1)[1]), abs=0.035)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("rule", RULES)
def test_a_draft_with_broken_logits_costs_speed_and_not_the_law(bad, rule):
    broken = chain(Q)
    with torch.no_grad():
        broken.lm_head.weight[:] = bad
    speculator = Speculator(chain(P), broken, k=3)
    tokens = []
    for seed in range(2):
        made = speculator.generate([0], temperature=1.0, seed=seed, verify=rule, max_new_tokens=100)
        tokens += made.tokens
        assert made.warnings == ("the draft gave non-finite logits, so it guessed less; try another draft_dtype",)
    assert fits(tokens, P.double().softmax(-1))


@pytest.mark.parametrize("rule", RULES)
def test_broken_logits_of_the_target_are_an_error(rule):
    broken = chain(P)
    with torch.no_grad():
        broken.lm_head.weight[:] = float("nan")
    with pytest.raises(EngineError, match="the target's logits are not numbers"):
        Speculator(broken, k=0).generate([0], temperature=1.0, verify=rule)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_options_that_rule_out_every_token_are_an_error(six, temperature):
    with pytest.raises(EngineError, match="rule out every token"):
        six.generate([0], bad_words=[[i] for i in range(6)], temperature=temperature)


def test_least_tokens_ends_where_plain_decoding_with_the_same_least_ends():
    """The end token would come at step 5; it may not come before the least number of tokens."""
    table = torch.zeros(8, 8)
    for here, there in zip(range(7), range(1, 8), strict=True):
        table[here, there] = 5.0
    table[:, 5] += 4.0
    model = chain_model(table)
    for k in range(1, 7):
        speculator = Speculator(model, model, k=k)
        for least in range(10):
            made = speculator.generate([0], end_tokens=5, min_new_tokens=least, max_new_tokens=12, check=True)
            assert len(made.tokens) >= max(1, least)
            assert made.counts.acceptance_rate in (None, 1.0)


def test_the_draft_stops_behind_an_end_token_that_it_guessed():
    model = chain(torch.tensor([0.0, 0.0, 8.0, 0.0]))
    made = Speculator(model, model, k=6).generate([0], temperature=0.5, seed=1, end_tokens=2, max_new_tokens=20)
    assert made.finish_reason == "stop"
    assert made.counts.draft_passes == made.counts.proposed == len(made.tokens)


def test_a_smaller_or_larger_draft_vocabulary_is_no_hindrance():
    """Rows are filled up or cut to the target's; what the target does not know is never guessed."""
    for width in (4, 10):
        row = torch.zeros(width)
        row[: min(6, width)] = Q[: min(6, width)]
        row[6:] = 5.0
        for rule in RULES:
            speculator = Speculator(chain(P), chain(row), k=3)
            made = [
                speculator.generate([0], temperature=1.0, seed=s, verify=rule, max_new_tokens=200) for s in range(2)
            ]
            tokens = [token for one in made for token in one.tokens]
            assert fits(tokens, P.double().softmax(-1))
            assert sum(one.counts.accepted for one in made) > 0


def test_a_stop_string_ends_a_sampled_text_alike_with_any_k(model):
    tokenizer = byte_tokenizer(added=[f"<{i}>" for i in range(44)])
    options = Options(temperature=0.8, seed=4, max_new_tokens=60)
    pair = [
        Speculator(model, noisy(model, 0.1), k=k, tokenizer=tokenizer, draft_tokenizer=tokenizer) for k in (0, 1, 5)
    ]
    text = pair[0].generate("Hi", options).text
    stop = text[20:22]
    made = [one.generate("Hi", options, stop=stop) for one in pair]
    assert {one.text for one in made} == {text[: text.index(stop)]}
    assert {one.stop for one in made} == {stop}
