"""Text held to a grammar stays valid with any k, and is the text of plain decoding."""

from __future__ import annotations

import json
import re
import sys

import pytest

from draftproof import ConfigError, EngineError, MissingExtraError, Speculator
from draftproof.options import RULES, Options
from draftproof.sampling.grammar import Grammar
from draftproof.testing import byte_tokenizer, noisy, random_model

SCHEMA = json.dumps({
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "ok": {"type": "boolean"}},
    "required": ["name", "ok"],
    "additionalProperties": False,
})
TOKENIZER = byte_tokenizer(added=[f"<{i}>" for i in range(44)])
END = 256


@pytest.fixture(scope="module")
def target():
    model = random_model(initializer_range=0.2)
    model.generation_config.eos_token_id = END
    return model


def valid(text):
    data = json.loads(text)
    return isinstance(data["ok"], bool) and len(data["name"]) <= 6 and len(data) == 2


@pytest.mark.parametrize("size", [0.0, 0.3], ids=["self-draft", "noisy"])
@pytest.mark.parametrize("options", [{}, {"temperature": 1.5}], ids=["greedy", "coupled"])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_json_is_valid_and_the_text_of_plain_decoding(target, size, options, k):
    speculator = Speculator(target, noisy(target, size), k=k, tokenizer=TOKENIZER, draft_tokenizer=TOKENIZER)
    for seed in range(4):
        made = speculator.generate("x", json_schema=SCHEMA, max_new_tokens=200, seed=seed, check=True, **options)
        assert (made.finish_reason, made.stop) == ("stop", END)
        assert valid(made.text)
        if size == 0:
            assert made.counts.acceptance_rate == 1.0


@pytest.mark.parametrize("rule", RULES)
def test_json_is_valid_under_every_rule(target, rule):
    speculator = Speculator(target, noisy(target, 0.3), k=5, tokenizer=TOKENIZER, draft_tokenizer=TOKENIZER)
    for seed in range(8):
        made = speculator.generate("x", json_schema=SCHEMA, max_new_tokens=200, temperature=2.0, verify=rule, seed=seed)
        assert valid(made.text)


def test_a_draft_without_the_grammar_cannot_break_it(target):
    """Guesses that the grammar forbids are judged like any other, and rejected."""
    from draftproof.clock import DeviceClock
    from draftproof.decode.loop import Decoding
    from draftproof.engines.request import sampler_of, stop_of
    from draftproof.testing import Scripted

    speculator = Speculator(target, k=0, tokenizer=TOKENIZER)
    for rule in RULES:
        options = Options(json_schema=SCHEMA, max_new_tokens=200, temperature=1.5, verify=rule, seed=1)
        sampler = sampler_of(speculator.target, 300, options, 1)
        stop = stop_of(speculator.target, [5], options, 256)
        wild = Scripted(lambda sequence, k: [(sum(sequence) * 7 + i) % 300 for i in range(k)])
        for _ in Decoding(
            speculator.target.session(),
            [5],
            proposer=wild,
            k=4,
            stop=stop,
            clock=DeviceClock("cpu"),
            sampler=sampler,
        ):
            pass
        assert valid(stop.text)


def test_a_regular_expression_is_matched_whole(target):
    speculator = Speculator(target, noisy(target, 0.3), k=4, tokenizer=TOKENIZER, draft_tokenizer=TOKENIZER)
    made = speculator.generate("x", regex=r"[a-c]{2,5}-\d{3}", temperature=1.0, seed=2, check=True)
    assert re.fullmatch(r"[a-c]{2,5}-\d{3}", made.text)


def test_it_may_be_asked_for_any_history(target):
    """As fresh matchers answer, forwards, backwards, and over tokens that it forbids."""
    import torch

    def mask(grammar, text):
        return (grammar(torch.tensor([[5, *text]]), torch.zeros(1, 300)) == 0)[0]

    def fresh():
        return Grammar(Options(json_schema=SCHEMA), TOKENIZER, 1, [END], 300)

    whole = [*b'{"name":"abc","ok":true}', END]
    asked = fresh()
    for n in [*range(len(whole) + 1), *reversed(range(len(whole) + 1)), 3, 20, 24, 25, 9]:
        assert torch.equal(mask(asked, whole[:n]), mask(fresh(), whole[:n])), n
    mask(asked, [*whole[:5], 7, 8, 9])
    assert torch.equal(mask(asked, whole[:6]), mask(fresh(), whole[:6]))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"json_schema": "{"}, "json_schema is not JSON"),
        ({"json_schema": "[1]"}, r"json_schema is '\[1\]'; it must be a JSON object"),
        ({"json_schema": '{"type": "nonsense"}'}, "this grammar cannot be used: .*nonsense"),
        ({"regex": "("}, "this grammar cannot be used"),
        ({"regex": "a", "end_tokens": []}, "need an end token"),
    ],
)
def test_a_grammar_that_cannot_be_used_is_said_before_anything_is_written(target, options, says):
    with pytest.raises(ConfigError, match=says):
        Speculator(target, k=0, tokenizer=TOKENIZER).generate("x", **options)


@pytest.mark.parametrize("k", [0, 1, 3])
def test_a_grammar_that_becomes_too_much_is_an_error_and_not_an_end(target, k):
    speculator = Speculator(target, noisy(target, 0.3), k=k, tokenizer=TOKENIZER, draft_tokenizer=TOKENIZER)
    with pytest.raises(EngineError, match="the grammar cannot be followed further"):
        speculator.generate("x", temperature=1.0, seed=2, max_new_tokens=200, regex="(a?){500}a{500}")


def test_blanks_are_limited_unless_the_schema_says_otherwise(target):
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    speculator = Speculator(target, k=0, tokenizer=TOKENIZER)
    for seed in range(5):
        made = speculator.generate("x", json_schema=schema, temperature=1.5, seed=seed, max_new_tokens=150)
        assert not re.search(r"\s{21}", made.text)
        tight = {**schema, "x-guidance": {"whitespace_flexible": False}}
        made = speculator.generate("x", json_schema=tight, temperature=1.5, seed=seed, max_new_tokens=150)
        assert not re.search(r"\s", made.text)


@pytest.mark.parametrize("k", [0, 3])
def test_an_end_token_that_is_also_text_ends_only_what_is_complete(target, k):
    speculator = Speculator(target, noisy(target, 0.3), k=k, tokenizer=TOKENIZER, draft_tokenizer=TOKENIZER)
    for seed in range(6):
        options = {"regex": "[a-c]{3,5}", "end_tokens": ord("b"), "temperature": 1.5, "seed": seed}
        made = speculator.generate("x", **options)
        assert made.stop == ord("b")
        assert re.fullmatch("[ac]{3,5}", made.text)


def test_what_is_missing_is_said(target, monkeypatch):
    with pytest.raises(ConfigError, match="need a tokenizer"):
        Speculator(target, k=0).generate([5], regex="a")
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'draftproof\[grammar\]'"):
        Speculator(target, k=0, tokenizer=TOKENIZER).generate("x", regex="a")
