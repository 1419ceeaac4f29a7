"""Logits processors: transformers' order and meaning, the real history at every position, copies that look ahead."""

from __future__ import annotations

import pytest
import torch
from transformers import GenerationConfig
from transformers.generation import LogitsProcessor, LogitsProcessorList

from draftproof import ConfigError, EngineError, Options, Speculator
from draftproof.sampling.processors import processors_of
from draftproof.testing import byte_tokenizer, chain_model, noisy, random_model

PROMPT = [5, 9, 7, 200, 31, 9, 9]


def generate(model, **settings):
    """transformers' own greedy text."""
    config = GenerationConfig(max_new_tokens=40, do_sample=False, pad_token_id=0, **settings)
    out = model.generate(torch.tensor([PROMPT]), generation_config=config)
    return tuple(out[0, len(PROMPT) :].tolist())


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"repetition_penalty": 1.3}, {"repetition_penalty": 1.3}),
        ({"repetition_penalty": 0.8}, {"repetition_penalty": 0.8}),
        ({"logit_bias": {7: 30.0, 9: -30.0}}, {"sequence_bias": [[[7], 30.0], [[9], -30.0]]}),
        ({"bad_words": [[7], [9, 200]]}, {"bad_words_ids": [[7], [9, 200]]}),
        ({"end_tokens": [3, 40], "min_new_tokens": 20}, {"eos_token_id": [3, 40], "min_new_tokens": 20}),
        (
            {"repetition_penalty": 1.2, "logit_bias": {7: 9.0}, "bad_words": [[31]], "end_tokens": [3]},
            {
                "repetition_penalty": 1.2,
                "sequence_bias": [[[7], 9.0]],
                "bad_words_ids": [[31]],
                "eos_token_id": 3,
            },
        ),
    ],
)
@pytest.mark.parametrize("size", [0.0, 0.1, 0.4])
def test_greedy_text_with_options_is_that_of_transformers(model, ours, theirs, size):
    made = Speculator(model, noisy(model, size), k=4).generate(PROMPT, max_new_tokens=40, check=True, **ours)
    assert made.tokens == generate(model, **theirs)
    if size == 0:
        assert made.counts.acceptance_rate == 1.0  # the draft guesses under the same transforms


def test_the_order_is_that_of_transformers(model):
    """All at once, against the list that transformers builds from the same settings, sampling included."""
    from draftproof.sampling.chance import SeededChance
    from draftproof.sampling.sampler import RowSampler

    options = Options(
        repetition_penalty=1.3,
        logit_bias={7: 3.0, 31: 60.0},
        bad_words=[[31], [9, 44]],
        end_tokens=[3, 40],
        min_new_tokens=5,
        temperature=0.7,
        top_k=40,
        top_p=0.9,
        min_p=0.02,
        verify="ratio",
    )
    config = GenerationConfig(
        repetition_penalty=1.3,
        sequence_bias=[[[7], 3.0], [[31], 60.0]],
        bad_words_ids=[[31], [9, 44]],
        eos_token_id=[3, 40],
        min_new_tokens=5,
        max_new_tokens=40,
        do_sample=True,
        temperature=0.7,
        top_k=40,
        top_p=0.9,
        min_p=0.02,
        num_beams=1,
    )
    model._prepare_special_tokens(config, False, "cpu")
    custom = [lambda ids, scores: scores + torch.sin(torch.arange(300.0)) * ids.shape[1]]
    theirs = model._get_logits_processor(
        generation_config=config,
        input_ids_seq_length=len(PROMPT),
        encoder_input_ids=torch.tensor([PROMPT]),
        logits_processor=LogitsProcessorList(custom),
        device="cpu",
    )
    own = processors_of(options, width=300, prompt_tokens=len(PROMPT), end_tokens=[3, 40])
    sampler = RowSampler(options, SeededChance(0), width=300, processors=own, custom=custom)
    for n in range(12):
        history = [*PROMPT, *range(7, 7 + n), 9][: len(PROMPT) + n]
        row = torch.randn(300, generator=torch.Generator().manual_seed(n)) * 4
        wanted = theirs(torch.tensor([history]), row[None].clone())[0].double().softmax(-1)
        assert torch.allclose(sampler.law(row, history), wanted, atol=1e-12)


def test_presence_and_frequency_penalties_count_the_text_and_not_the_prompt():
    options = Options(presence_penalty=0.5, frequency_penalty=0.25)
    (processor,) = processors_of(options, width=10, prompt_tokens=3, end_tokens=[])
    scores = processor(torch.tensor([[1, 2, 3, 4, 4, 4, 2]]), torch.zeros(1, 10))
    assert scores[0].tolist() == [0, 0, -0.75, 0, -1.25, 0, 0, 0, 0, 0]


def test_a_bad_word_is_kept_out_also_behind_a_space():
    tokenizer = byte_tokenizer()
    options = Options(bad_words=["ab"])
    (processor,) = processors_of(options, width=260, prompt_tokens=1, end_tokens=[], tokenizer=tokenizer)
    after_a = processor(torch.tensor([[5, *b"xa"]]), torch.zeros(1, 260))
    assert after_a[0, ord("b")] == -torch.inf
    assert (after_a == -torch.inf).sum() == 1
    with pytest.raises(ConfigError, match="needs a tokenizer"):
        processors_of(options, width=260, prompt_tokens=1, end_tokens=[])


@pytest.mark.parametrize(
    ("options", "says"),
    [({"logit_bias": {300: 1}}, "logit_bias names token id 300"), ({"bad_words": [[1, 305]]}, "bad_words names token")],
)
def test_ids_beyond_the_targets_range_are_named(model, options, says):
    with pytest.raises(ConfigError, match=says + r".*between 0 and 299"):
        Speculator(model, k=0).generate(PROMPT, **options)


CALLS: list[tuple[str, int]] = []


class Counting(LogitsProcessor):
    """Keeps a state: bans the token that it saw last, and notes how it is called."""

    def __init__(self):
        self.seen: list[int] = []
        self.name = "original"

    def __deepcopy__(self, memo):
        twin = Counting()
        twin.seen, twin.name = list(self.seen), "copy of " + self.name
        return twin

    def __call__(self, input_ids, scores):
        CALLS.append((self.name, input_ids.shape[1]))
        assert input_ids.shape[1] == (self.seen[-1] + 1 if self.seen else len(PROMPT)), "called out of order"
        self.seen.append(input_ids.shape[1])
        scores[0, input_ids[0, -1]] = -torch.inf  # it may write into what it is given
        scores[0, len(self.seen) % 300] += 5
        return scores


@pytest.mark.parametrize("k", [1, 3, 6])
@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "seed": 3}], ids=["greedy", "coupled"])
def test_a_processor_with_a_state_sees_every_position_once_and_in_order(model, k, options):
    wanted = Options(max_new_tokens=40, **options)
    speculator = Speculator(model, noisy(model, 0.1), k=k)
    plain = speculator.generate(PROMPT, wanted, k=0, processors=[Counting()])
    CALLS.clear()
    made = speculator.generate(PROMPT, wanted, processors=[Counting()])
    assert made.tokens == plain.tokens
    assert 0 < made.counts.accepted < made.counts.proposed
    called = [length for name, length in CALLS if name == "copy of original"]
    assert called == [len(PROMPT) + i for i in range(40)]


@pytest.mark.parametrize("rule", ["ratio", "block"])
def test_a_processor_with_a_state_is_right_under_the_rules_that_draw(model, rule):
    """It raises when it is called out of order; a self-draft under it is always right."""
    speculator = Speculator(model, model, k=4)
    made = speculator.generate(PROMPT, temperature=1.0, seed=1, verify=rule, max_new_tokens=40, processors=[Counting()])
    assert made.counts.acceptance_rate == 1.0
    texts = noisy(model, 0.2)
    made = Speculator(model, texts, k=4).generate(
        PROMPT, temperature=1.0, seed=1, verify=rule, max_new_tokens=40, processors=[Counting()]
    )
    assert 0 < made.counts.acceptance_rate < 1
    assert all(a != b for a, b in zip(made.tokens, made.tokens[1:], strict=False))


def test_nobody_is_asked_about_what_stands_behind_an_end_token(model):
    text = Speculator(model, model, k=6).generate(PROMPT, max_new_tokens=12).tokens
    end = text[8]

    def strict(input_ids, scores):
        assert end not in input_ids[0, len(PROMPT) :].tolist()
        return scores

    made = Speculator(model, model, k=6).generate(PROMPT, end_tokens=end, max_new_tokens=30, processors=[strict])
    assert made.tokens == text[: text.index(end) + 1]


@pytest.mark.parametrize("rule", ["greedy", "coupled", "ratio", "block"])
def test_what_happens_only_on_guesses_does_not_reach_the_text(rule):
    """The draft guesses 7 and the target never writes it: a processor may fail there, and options rule out all."""
    target, draft = (torch.full((12, 12), -5.0) for _ in range(2))
    target[:, 3] = draft[:, 7] = 5.0
    pair = Speculator(chain_model(target), chain_model(draft), k=2)
    options = {"max_new_tokens": 8} if rule == "greedy" else {"temperature": 1.0, "top_p": 0.99, "verify": rule}

    def raising(scores):
        raise KeyError("never")

    for fault in (raising, lambda scores: None, lambda scores: scores[:, :5], lambda scores: scores * float("nan")):

        def fails_behind_7(input_ids, scores, fault=fault):
            return fault(scores) if input_ids[0, -1] == 7 else scores

        made = pair.generate([1], processors=[fails_behind_7], seed=1, **{"max_new_tokens": 8, **options})
        assert made.tokens == (3,) * 8
    bad_words = [(7, i) for i in range(12)]
    assert pair.generate([1], bad_words=bad_words, seed=1, **{"max_new_tokens": 8, **options}).tokens == (3,) * 8


@pytest.mark.parametrize("rule", ["greedy", "coupled", "ratio", "block"])
def test_a_token_that_the_draft_does_not_know_is_not_guessed_on(model, rule):
    small = random_model(1, vocab_size=280)

    def force(input_ids, scores):
        if input_ids.shape[1] % 2:
            scores[:] = -torch.inf
            scores[0, 290] = 0
        return scores

    options = {} if rule == "greedy" else {"temperature": 1.0, "verify": rule, "seed": 2}
    made = Speculator(model, small, k=3).generate(PROMPT, max_new_tokens=8, processors=[force], **options)
    assert made.tokens[::2] == (290,) * 4


@pytest.mark.parametrize("rule", ["coupled", "ratio", "block"])
def test_plain_decoding_asks_once_a_token_under_every_rule_and_lets_errors_through(model, rule):
    CALLS.clear()
    Speculator(model, k=0).generate(PROMPT, temperature=1.0, verify=rule, max_new_tokens=12, processors=[Counting()])
    assert len([name for name, _ in CALLS if name == "copy of original"]) == 12

    def mine(input_ids, scores):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        Speculator(model, model, k=3).generate(PROMPT, temperature=1.0, verify=rule, processors=[mine])


@pytest.mark.parametrize("rule", ["greedy", "ratio"])
def test_a_text_that_was_interrupted_between_two_states_does_not_go_on(model, rule):
    class Once(LogitsProcessor):
        left = 9

        def __deepcopy__(self, memo):
            return self

        def __call__(self, input_ids, scores):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
            return scores

    options = {} if rule == "greedy" else {"temperature": 1.0, "verify": rule}
    stream = Speculator(model, noisy(model, 0.1), k=3).stream(PROMPT, max_new_tokens=40, processors=[Once()], **options)
    with pytest.raises(KeyboardInterrupt):
        for _ in stream:
            pass
    written = stream.generation.tokens
    with pytest.raises(EngineError, match="interrupted inside a round"):
        for _ in stream:
            pass
    assert stream.cancel().tokens == written


def test_a_constraint_that_switches_on_in_mid_text_holds_from_there():
    """Behind marker m only even ids may stand, wherever in a round m was guessed."""
    model = random_model(seed=4)
    plain = Speculator(model, k=0).generate(PROMPT, max_new_tokens=20).tokens

    for marker in dict.fromkeys(plain):

        def even_after(input_ids, scores, marker=marker):
            if marker in input_ids[0, len(PROMPT) :]:
                scores[0, 1::2] = -torch.inf
            return scores

        made = Speculator(model, model, k=6).generate(PROMPT, max_new_tokens=30, processors=[even_after], check=True)
        behind = made.tokens[made.tokens.index(marker) + 1 :]
        assert all(token % 2 == 0 for token in behind)
        assert made.counts.acceptance_rate == 1.0
