"""Several requests in one pass: each gets the rows that it gets alone."""

from __future__ import annotations

import random

import pytest
import torch

from draftproof import ConfigError
from draftproof.models.native.decoder import NativeDecoder
from draftproof.models.native.runner import NativeRunner
from draftproof.models.quantise import quantise
from draftproof.models.runner import TransformersRunner
from draftproof.models.span import Span
from draftproof.testing import random_model
from tests.architectures import CONFIGS, NATIVE, build


def text(seed, length=100):
    chance = random.Random(seed)
    return [chance.randrange(300) for _ in range(length)]


def alone(runner, tokens):
    """All rows of a text, and its final hidden states, from one pass that it has to itself."""
    with torch.inference_mode():
        return runner.run([Span(runner.cache(), tokens, 0, len(tokens), states=True)])[0]


def mixed(runner, texts, seed, sizes=(1, 1, 2, 5, 9, 30)):
    """Yield each text's rows and states as passes bring them in which some of them read some tokens each, until all is
    read: now and then a text goes back first, after it has read other tokens."""
    chance = random.Random(seed)
    caches, read = [runner.cache() for _ in texts], [0] * len(texts)
    for cache, tokens in zip(caches, texts, strict=True):
        cache.reserve(len(tokens))
    while any(at < len(tokens) for at, tokens in zip(read, texts, strict=True)):
        spans, whose = [], []
        for i in chance.sample(range(len(texts)), len(texts)):
            left = len(texts[i]) - read[i]
            if not left or chance.random() < 0.3:
                continue
            count = min(left, chance.choice(sizes))
            guess = chance.random() < 0.3
            tokens = text(seed, count) if guess else texts[i][read[i] : read[i] + count]
            last = chance.choice([0, 1, count])
            spans.append(Span(caches[i], tokens, read[i], last, states=chance.random() < 0.3))
            whose.append((i, read[i], guess))
            read[i] += 0 if guess else count
        if spans:
            with torch.inference_mode():
                found = runner.run(spans)
            assert [len(rows.logits) for rows in found] == [span.last for span in spans]
            yield from (
                (i, start, span, rows)
                for (i, start, guess), span, rows in zip(whose, spans, found, strict=True)
                if not guess
            )


def decoder(name, dtype):
    if dtype == "int8":
        model = random_model()
        quantise(model, "int8")
        return NativeDecoder(model)
    return NativeDecoder(build(name).to(dtype))


MIXES = [(name, dtype) for name in NATIVE for dtype in (torch.float32, torch.bfloat16)] + [("llama", "int8")]


@pytest.mark.parametrize(("name", "dtype"), MIXES)
def test_compiled_rows_have_the_same_bits_whoever_stands_beside_them(name, dtype):
    runner = NativeRunner(decoder(name, dtype))
    texts = [text(i, length) for i, length in enumerate((100, 37, 1, 64))]
    wanted = [alone(runner, tokens) for tokens in texts]
    try:
        for seed in range(3):
            torch.set_num_threads(1 + seed if name == "llama" else 1)
            for i, start, span, rows in mixed(runner, texts, seed):
                end = start + len(span.tokens)
                assert torch.equal(rows.logits, wanted[i].logits[end - span.last : end])
                assert rows.states is None or torch.equal(rows.states, wanted[i].states[start:end])
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("name", CONFIGS)
def test_through_transformers_rows_are_those_of_each_alone_but_for_rounding(name):
    runner = TransformersRunner(build(name))
    texts = [text(i, length) for i, length in enumerate((100, 37, 1, 64))]
    wanted = [alone(runner, tokens) for tokens in texts]
    for seed in range(2):
        for i, start, span, rows in mixed(runner, texts, seed):
            end = start + len(span.tokens)
            assert torch.allclose(rows.logits, wanted[i].logits[end - span.last : end], rtol=1e-3, atol=1e-3)
            assert rows.logits.argmax(1).equal(wanted[i].logits[end - span.last : end].argmax(1))
            if rows.states is not None:
                assert torch.allclose(rows.states, wanted[i].states[start:end], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_padded_rows_keep_their_bits_in_passes_of_several(dtype):
    runner = TransformersRunner(build("llama").to(dtype), shape=5)
    texts = [text(i, length) for i, length in enumerate((50, 37, 1))]

    def found(texts, seed):
        sizes = (1, 2, 2)
        return {
            (i, start + len(s.tokens)): r.logits[-1] for i, start, s, r in mixed(runner, texts, seed, sizes) if s.last
        }

    first, second = found(texts, 0), found(texts, 1)
    shared = first.keys() & second.keys()
    assert len(shared) > 5
    assert all(torch.equal(first[key], second[key]) for key in shared)


@pytest.mark.parametrize("passes", ["compiled", "transformers"])
@torch.inference_mode()
def test_two_requests_decoded_in_shared_passes_write_their_own_texts(passes):
    model = random_model()
    runner = NativeRunner(NativeDecoder(model)) if passes == "compiled" else TransformersRunner(model)
    prompts = [text(1, 12), text(2, 30)]

    def step(texts, caches, read):
        spans = [Span(c, t[n:], n) for c, t, n in zip(caches, texts, read, strict=True)]
        for i, rows in enumerate(runner.run(spans)):
            read[i] = len(texts[i])
            texts[i].append(int(rows.logits[0].argmax()))

    together, caches, read = [list(p) for p in prompts], [runner.cache() for _ in prompts], [0, 0]
    for _ in range(20):
        step(together, caches, read)
    for prompt, written in zip(prompts, together, strict=True):
        own, caches, read = [list(prompt)], [runner.cache()], [0]
        for _ in range(20):
            step(own, caches, read)
        assert own == [written]


@pytest.mark.parametrize("passes", ["compiled", "transformers"])
@torch.inference_mode()
def test_final_hidden_states_are_what_the_head_reads(passes):
    model = random_model()
    runner = NativeRunner(NativeDecoder(model)) if passes == "compiled" else TransformersRunner(model)
    (rows,) = runner.run([Span(runner.cache(), text(3, 20), 0, 20, states=True)])
    assert rows.states.shape == (20, 64)
    assert torch.allclose(model.lm_head(rows.states), rows.logits, rtol=1e-4, atol=1e-4)
    (rows,) = runner.run([Span(runner.cache(), text(3, 20), 0, 0)])
    assert rows.logits.shape == (0, 300)
    assert rows.states is None


@pytest.mark.parametrize("passes", ["compiled", "transformers"])
@pytest.mark.parametrize("name", ["llama", "mistral-window"])
@torch.inference_mode()
def test_positions_are_what_a_model_is_told_and_what_a_window_counts(passes, name):
    """Behind a gap of 5 positions: the text is that without the gap where positions are relative and nothing is far."""
    model = build(name)
    runner = NativeRunner(NativeDecoder(model)) if passes == "compiled" else TransformersRunner(model)
    ids = text(4, 24)
    cache = runner.cache()
    runner.run([Span(cache, ids[:12], 0, 0)])
    (rows,) = runner.run([Span(cache, ids[12:], 12, 12, positions=range(17, 29))])
    positions = torch.tensor([[*range(12), *range(17, 29)]])
    near = positions.T - positions
    visible = (near >= 0) & (near < (8 if name == "mistral-window" else 100))
    wanted = model(input_ids=torch.tensor([ids]), position_ids=positions, attention_mask=visible[None, None]).logits
    assert torch.allclose(rows.logits, wanted[0, 12:], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("passes", ["compiled", "transformers"])
def test_what_contradicts_itself_is_refused(passes):
    model = random_model()
    runner = NativeRunner(NativeDecoder(model)) if passes == "compiled" else TransformersRunner(model)
    other = TransformersRunner(model) if passes == "compiled" else NativeRunner(NativeDecoder(model))
    cache = runner.cache()
    for wrong in (
        {"tokens": []},
        {"start": -1},
        {"last": 4},
        {"last": -1},
        {"parents": [-1, 0]},
        {"parents": [-1, 1, 0]},
        {"parents": [-2, 0, 0]},
        {"positions": [5, 6]},
        {"positions": [4, 5, 6]},
        {"positions": [5, 6, 6]},
    ):
        with pytest.raises(ConfigError):
            Span(**{"cache": cache, "tokens": [1, 2, 3], "start": 5} | wrong)
    with pytest.raises(ConfigError, match="one cache"):
        runner.run([Span(cache, [1], 0), Span(cache, [1], 1)])
    with pytest.raises(ConfigError, match="this runner made"):
        runner.run([Span(other.cache(), [1], 0)])


BRANCHES = [-1, 0, 0, 1, 2, -1, 5, 3, 3, 7]
"""Three branches behind the text, and one of them that forks twice."""


def path_to(token, parents=BRANCHES):
    found = []
    while token >= 0:
        found.append(token)
        token = parents[token]
    return found[::-1]


@pytest.mark.parametrize("before", [0, 5, 16, 30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", NATIVE)
@torch.inference_mode()
def test_compiled_a_token_of_a_tree_has_the_bits_of_the_chain_of_its_ancestors(name, dtype, before):
    runner = NativeRunner(decoder(name, dtype))
    prompt, guesses = text(5, before), text(6, len(BRANCHES))
    cache, beside = runner.cache(), runner.cache()
    if prompt:
        runner.run([Span(cache, prompt, 0, 0)])
    tree = Span(cache, guesses, before, len(guesses), parents=BRANCHES, states=True)
    rows = runner.run([Span(beside, text(7, 6), 0), tree, Span(runner.cache(), text(8, 3), 0, 0)])[1]
    for token in range(len(BRANCHES)):
        path = [*prompt, *(guesses[i] for i in path_to(token))]
        chain = alone(runner, path)
        assert torch.equal(rows.logits[token], chain.logits[-1])
        assert torch.equal(rows.states[token], chain.states[-1])


@pytest.mark.parametrize("name", CONFIGS)
@torch.inference_mode()
def test_through_transformers_a_tree_gives_the_rows_of_its_chains_but_for_rounding(name):
    runner = TransformersRunner(build(name))
    prompt, guesses = text(5, 20), text(6, len(BRANCHES))
    cache = runner.cache()
    runner.run([Span(cache, prompt, 0, 0)])
    (rows,) = runner.run([Span(cache, guesses, 20, len(guesses), parents=BRANCHES)])
    for token in range(len(BRANCHES)):
        chain = alone(runner, [*prompt, *(guesses[i] for i in path_to(token))])
        assert torch.allclose(rows.logits[token], chain.logits[-1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kept", [0, 4, 6, 8, 9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("passes", ["compiled", "transformers"])
@pytest.mark.parametrize("name", ["llama", "mistral-window"])
@torch.inference_mode()
def test_the_path_that_is_kept_is_moved_behind_the_text(name, passes, dtype, kept):
    model = build(name).to(dtype)
    runner = NativeRunner(NativeDecoder(model)) if passes == "compiled" else TransformersRunner(model)
    prompt, guesses = text(5, 21), text(6, len(BRANCHES))
    cache, path = runner.cache(), path_to(kept)
    runner.run([Span(cache, prompt, 0, 0)])
    runner.run([Span(cache, guesses, 21, 0, parents=BRANCHES)])
    cache.move([21 + i for i in path], 21)
    whole, more = [*prompt, *(guesses[i] for i in path)], text(7, 9)
    (rows,) = runner.run([Span(cache, more, len(whole), len(more))])
    wanted = alone(runner, [*whole, *more]).logits[-len(more) :]
    if passes == "compiled":
        assert torch.equal(rows.logits, wanted)
    else:
        rough = 1e-3 if dtype == torch.float32 else 0.1 * float(wanted.abs().max())
        assert torch.allclose(rows.logits, wanted, rtol=1e-3, atol=rough)


@pytest.mark.parametrize("name", ["llama", "mistral-window"])
@torch.inference_mode()
def test_a_tree_with_gaps_between_its_positions_is_the_chains_with_these_gaps(name):
    runner = NativeRunner(decoder(name, torch.bfloat16))
    prompt, guesses = text(5, 20), text(6, len(BRANCHES))
    places = [20 + 3 * len(path_to(i)) for i in range(len(BRANCHES))]
    cache = runner.cache()
    runner.run([Span(cache, prompt, 0, 0)])
    (rows,) = runner.run([Span(cache, guesses, 20, 10, positions=places, parents=BRANCHES)])
    for token in range(len(BRANCHES)):
        path = path_to(token)
        other = runner.cache()
        runner.run([Span(other, prompt, 0, 0)])
        (chain,) = runner.run([Span(other, [guesses[i] for i in path], 20, positions=[places[i] for i in path])])
        assert torch.equal(rows.logits[token], chain.logits[-1])
