"""Passes of one shape through transformers: padded, and replayed from a graph."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from transformers import GPTNeoConfig, GPTNeoForCausalLM

from draftproof import CompileError, ConfigError, Speculator
from draftproof.models import load as load_module
from draftproof.models import runner as runner_module
from draftproof.models.runner import TransformersRunner
from draftproof.models.session import ModelSession
from draftproof.models.span import Span
from draftproof.models.trial import agrees, sample_of
from draftproof.testing import noisy, random_model
from tests.architectures import CONFIGS, build

PROMPT = [5, 9, 200, 7, 33, 1, 2, 3, 4, 8]
IDS = [(11 + 7 * i) % 300 for i in range(60)]


ALONE = [name for name in CONFIGS if name != "mixtral"]
"""A mixture of experts multiplies the rows of one expert together, so there a row does depend on its neighbours."""


def rows_in_pieces(model, pieces, shape):
    session = ModelSession(model, shape=shape)
    session.forget()
    session.begin((), 80)
    rows = [session.read(IDS[:20])]
    for size in pieces:
        start = len(session.held)
        rows.append(session.read(IDS[: start + size], last=size))
    return torch.cat(rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ALONE)
def test_padded_rows_have_the_same_bits_however_they_are_split(name, dtype):
    model = build(name).to(dtype)
    first, *others = (rows_in_pieces(model, pieces, 9) for pieces in ([1] * 40, [9, 9, 9, 9, 4], [3, 8, 1, 6, 9, 9, 4]))
    assert all(torch.equal(first, rows) for rows in others)


@pytest.mark.parametrize("name", ALONE)
@torch.inference_mode()
def test_padding_and_stale_entries_filled_with_huge_numbers_never_change_a_bit(name):
    model = build(name)
    wanted = rows_in_pieces(model, [5] * 8, 9)
    session = ModelSession(model, shape=9)
    session.forget()
    session.begin((), 80)
    rows = [session.read(IDS[:20])]
    for end in range(25, 61, 5):
        for layer in session.cache.layers:
            layer.keys[:, :, end - 5 :] = 1e30
            layer.values[:, :, end - 5 :] = -1e30
        rows.append(session.read(IDS[:end], last=5))
    assert torch.equal(torch.cat(rows), wanted)


def test_padding_may_reach_beyond_the_models_positions():
    model = build("gpt2")  # 128 positions, with a row of a table for each
    prompt = [(3 * i) % 300 for i in range(100)]
    made = Speculator(model, noisy(model, 0.3), k=8, numerics="fixed").generate(prompt, max_new_tokens=60, check=True)
    assert len(prompt) + len(made.tokens) == 128
    assert made.tokens == Speculator(model).generate(prompt, max_new_tokens=60).tokens


@pytest.mark.parametrize("seed", range(2))
def test_in_bfloat16_fixed_numerics_write_one_text_whatever_is_guessed(seed):
    model = random_model(seed, num_hidden_layers=2).to(torch.bfloat16)
    speculator = Speculator(model, noisy(model, 0.2), k=5, numerics="fixed")
    for start in range(3):
        prompt = [start, 9, 200]
        texts = {speculator.generate(prompt, max_new_tokens=60, k=k).tokens for k in range(6)}
        assert len(texts) == 1


def test_more_guesses_than_the_numerics_are_fixed_for_are_refused(model):
    speculator = Speculator(model, model, k=3, numerics="fixed")
    with pytest.raises(ConfigError, match="3 guesses at most"):
        speculator.generate(PROMPT, k=4)
    with pytest.raises(ConfigError, match="exact"):
        Speculator(model, numerics="exact")


def test_where_rows_depend_on_their_neighbours_numerics_are_not_fixed():
    model = build("mixtral")
    assert "depend on" in Speculator(model.to(torch.bfloat16), model, k=8).numerics.reason
    with pytest.raises(ConfigError, match="depend on"):
        Speculator(model, model, k=8, numerics="fixed")


def test_numerics_are_chosen_by_rule_whatever_the_clock_says(model, monkeypatch):
    def chosen(cost, dtype=torch.bfloat16, draft=True, **options):
        monkeypatch.setattr("draftproof.engines.opening._padding_cost", lambda model, shape: cost)
        target = random_model().to(dtype)
        return Speculator(target, target if draft else None, **options).numerics

    for dtype in (torch.bfloat16, torch.float16):
        for cost in (0.9, 1.04, 7.5):
            numerics = chosen(cost, dtype)
            assert (numerics.kind, numerics.shape) == ("fixed", 6)
            assert f"{cost:.2f} ×" in numerics.reason
    assert chosen(1.8, numerics="fast").kind == "fast"
    assert chosen(1.04, torch.float32).kind == "fast"
    assert chosen(1.04, draft=False).kind == "fast"
    assert chosen(1.8, torch.float32, numerics="fixed").shape == 6
    assert chosen(1.8, compile="on") == chosen(1.8, compile="on", numerics="fast")
    assert chosen(1.8, compile="on").kind == "fixed"


def test_a_refusal_names_a_k_for_which_numerics_can_be_fixed(model, monkeypatch):
    monkeypatch.setattr("draftproof.engines.opening._why_not_fixed", lambda model, k: None if k in (1, 7) else "rows")
    with pytest.raises(ConfigError, match="with k=7 they can, or choose numerics='fast'"):
        Speculator(model, model, k=5, numerics="fixed")
    monkeypatch.setattr("draftproof.engines.opening._why_not_fixed", lambda model, k: "rows depend")
    with pytest.raises(ConfigError, match="rows depend; choose numerics='fast'"):
        Speculator(model, model, k=5, numerics="fixed")


def test_a_model_that_finds_its_place_by_the_caches_length_is_never_padded():
    """GPT-Neo: padded, its local layers would see other keys, and its mask is as large as its window."""
    config = GPTNeoConfig(
        vocab_size=300,
        hidden_size=64,
        num_layers=2,
        num_heads=4,
        window_size=8,
        attention_types=[[["global", "local"], 1]],
        max_position_embeddings=128,
        initializer_range=0.5,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    target = GPTNeoForCausalLM(config).eval()
    with pytest.raises(ConfigError, match="cache's length"):
        Speculator(target, target, numerics="fixed")
    made = Speculator(target, noisy(target, 0.2), k=4).generate(PROMPT, max_new_tokens=200)
    ids = torch.tensor([PROMPT])
    theirs = target.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=118, do_sample=False)
    assert made.tokens == tuple(theirs[0, len(PROMPT) :].tolist())
    assert made.counts.discarded
    runner = TransformersRunner(target)
    with pytest.raises(ConfigError, match="no trees"):
        runner.run([Span(runner.cache(), [1, 2, 3], 0, parents=[-1, -1, 0])])
    half = Speculator(target.to(torch.bfloat16), target, k=4)
    assert half.numerics.kind == "fast"
    assert "near ties" in half.numerics.reason
    half.generate(PROMPT, max_new_tokens=200)


@pytest.mark.parametrize("window", [1, 2, 3, 4, 5])
def test_a_model_of_a_few_positions_is_read_in_what_it_holds(window):
    target = random_model(max_position_embeddings=window).to(torch.bfloat16)
    speculator = Speculator(target, target, k=8)
    assert speculator.numerics.kind == "fixed"
    if window > 1:
        assert len(speculator.generate([7], max_new_tokens=9, check=True).tokens) == window - 1


def test_what_padding_costs_is_measured():
    from draftproof.engines.opening import _padding_cost

    assert 0.1 < _padding_cost(random_model(), 60) < 100


class TracedGraph:
    """Like a CUDA graph it knows tensors only: every number that Python had at the capture is part of it."""

    def __init__(self, function, *inputs):
        self.inputs = [tensor.clone() for tensor in inputs]
        self.traced = make_fx(function, tracing_mode="real", pre_dispatch=False)(*self.inputs)

    def __call__(self, *inputs):
        for own, given in zip(self.inputs, inputs, strict=True):
            own.copy_(given)
        return self.traced(*self.inputs).clone()


@pytest.fixture
def traced(monkeypatch):
    made = []
    monkeypatch.setattr(runner_module, "Graph", lambda *args: made.append(TracedGraph(*args)) or made[-1])
    return made


@pytest.mark.parametrize("name", [name for name in CONFIGS if name not in ("mistral", "gemma", "phi3", "qwen2")])
def test_a_replayed_pass_is_the_pass(name, traced):
    model = build(name)
    session = ModelSession(model, graphs=True)
    assert agrees(session, sample_of(model))
    session.forget()
    session.begin((), 80)
    rows = [session.read(IDS[:20])]
    for size in (1, 1, 4, 1, 4, 4, 1):
        rows.append(session.read(IDS[: len(session.held) + size], last=size))
    plain = ModelSession(model)
    wanted = plain.read(IDS[:36], last=17)
    assert (torch.cat(rows) - wanted).abs().max() < 1e-4 * wanted.abs().max()
    shapes = [key[0] for key in session.cache.captured]
    assert {20, 1, 4} <= {*shapes} and len({*shapes}) == len(shapes)


@pytest.mark.parametrize("shape", [None, 5])
def test_texts_from_graphs_are_plain_decodings(shape, traced):
    model = random_model()
    wanted = Speculator(model).generate(PROMPT, max_new_tokens=30).tokens
    speculator = Speculator(model, noisy(model, 0.2), k=4)
    speculator._target_session = ModelSession(model, graphs=True, shape=shape)
    speculator._model.session = ModelSession(speculator.draft.model, graphs=True)
    for new in (30, 12, 30):
        made = speculator.generate(PROMPT, max_new_tokens=new)
        assert made.tokens == wanted[:new]
        assert made.counts.discarded > 0
    assert traced


def test_graphs_of_a_cache_of_another_length_are_given_up(traced, monkeypatch):
    monkeypatch.setattr("draftproof.models.room.BLOCK", 16)
    session, seen = ModelSession(random_model(), graphs=True), set()
    for end in (*range(20, 40), 21, 22):
        session.read(IDS[:end])
        (found,) = {key[1] for key in session.cache.captured}
        seen.add(found)
    assert seen == {32, 48}


def test_a_model_that_cannot_be_captured_is_told(monkeypatch):
    def refuse(*args):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(runner_module, "Graph", refuse)
    model = random_model()
    session = ModelSession(model, graphs=True)
    with pytest.raises(CompileError, match="cannot be captured as a graph: operation not permitted"):
        load_module._agrees(session, sample_of(model))


@torch.inference_mode()
def test_guesses_are_fetched_once(model):
    runner = TransformersRunner(model)
    cache, other = runner.cache(), runner.cache()
    cache.reserve(60)
    written, sure = runner.write(cache, PROMPT, 0, 4)
    text = list(PROMPT)
    for token, share in zip(written, sure, strict=True):
        row = runner.run([Span(other, text, 0)])[0].logits[0]
        assert int(row.argmax()) == token
        assert float(row.softmax(-1).max()) == pytest.approx(share, abs=1e-4)
        text.append(token)
