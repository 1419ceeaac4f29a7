"""Room for a text is made as it grows, whatever length it may reach, and given back; where it ends, no bit changes."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from draftproof import Speculator
from draftproof.models.native.decoder import NativeDecoder
from draftproof.models.native.runner import NativeRunner
from draftproof.models.room import room_for
from draftproof.models.runner import TransformersRunner
from draftproof.models.session import ModelSession
from draftproof.models.span import Span
from draftproof.testing import noisy, random_model

KINDS = {
    "compiled": lambda model: ModelSession(model, decoder=NativeDecoder(model)),
    "transformers": ModelSession,
    "padded": lambda model: ModelSession(model, shape=9),
}
IDS = [(11 + 7 * i) % 300 for i in range(250)]


def slots(session):
    return session.cache.capacity if hasattr(session.cache, "capacity") else session.cache.layers[0].keys.shape[2]


@given(st.integers(0, 10**7))
def test_room_is_a_quarter_more_at_most_or_a_block(tokens):
    room = room_for(tokens)
    assert tokens <= room < tokens + max(256, tokens / 4 + 1)
    assert room % 256 == 0
    assert room_for(room) == room


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_is_not_an_allocation_and_a_large_cache_is_given_back(kind):
    session = KINDS[kind](random_model(max_position_embeddings=2_000_000, num_hidden_layers=1))
    session.begin((), 1_000_000)
    session.read([1] * 10)
    assert slots(session) <= 256 + 9
    session.read([1] * 5000)
    assert 5000 <= slots(session) <= 6250 + 256
    session.begin([1] * 10, 1300)
    assert slots(session) >= 5000  # not far more than is needed
    session.begin([1] * 10, 20)
    assert slots(session) <= 256 + 9
    again = session.read([1] * 600)
    fresh = KINDS[kind](session.model)
    assert torch.equal(again, fresh.read([1] * 600))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["compiled", "transformers"])
def test_a_cache_that_grows_keeps_its_bits(kind, dtype, monkeypatch):
    model = random_model().to(dtype)
    ids, ends, rows, sizes = IDS[:130], (5, 16, 17, 33, 60, 130), {}, set()
    for block in (16, 256):
        monkeypatch.setattr("draftproof.models.room.BLOCK", block)
        session = KINDS[kind](model)
        rows[block] = []
        for end in ends:
            rows[block].append(session.read(ids[:end]))
            sizes.add(slots(session))
    assert len(sizes) > 4
    assert all(torch.equal(a, b) for a, b in zip(rows[16], rows[256], strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_padded_rows_have_the_same_bits_wherever_passes_begin_to_see_more(dtype, monkeypatch):
    """Also with the final hidden states, and with positions that are given."""
    monkeypatch.setattr("draftproof.models.room.BLOCK", 16)
    runner = TransformersRunner(random_model().to(dtype), shape=9)
    shapes = []
    run = runner._pass
    runner._pass = lambda cache, *args, **options: shapes.append(cache.standing.seen) or run(cache, *args, **options)

    @torch.inference_mode()
    def rows(pieces, **options):
        cache, start, logits, states = runner.cache(), 20, [], []
        runner.run([Span(cache, IDS[:20], 0, 0)])
        for size in pieces:
            places = range(start, start + size) if "positions" in options else None
            span = Span(cache, IDS[start : start + size], start, size, positions=places, states="states" in options)
            (found,) = runner.run([span])
            logits.append(found.logits)
            states.append(found.states)
            start += size
        return torch.cat(logits), torch.cat(states) if "states" in options else None

    one = [1] * 60
    for options in ({}, {"states": True}, {"positions": True}, {"positions": True, "states": True}):
        wanted = rows(one, **options)
        for pieces in ([9] * 6 + [6], [3, 8, 1, 6, 9, 9, 4, 5, 8, 7]):
            found = rows(pieces, **options)
            assert torch.equal(found[0], wanted[0])
            assert found[1] is None or torch.equal(found[1], wanted[1])
    assert len(set(shapes)) > 3


def test_padded_texts_do_not_hang_on_how_long_they_may_get(monkeypatch):
    monkeypatch.setattr("draftproof.models.room.BLOCK", 16)
    model = copy.deepcopy(random_model()).to(torch.bfloat16)
    speculator = Speculator(model, noisy(model, 0.2), k=4, numerics="fixed")
    long = speculator.generate([5, 9, 200, 7], max_new_tokens=120, logprobs=True)
    for k in (0, 4):
        short = speculator.generate([5, 9, 200, 7], max_new_tokens=60, logprobs=True, k=k)
        assert short.tokens == long.tokens[:60]
        assert short.logprobs == long.logprobs[:60]


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_given_back_counts_as_held_no_longer(kind):
    """A long text, a short request that reads nothing, and the long text again."""
    session = KINDS[kind](random_model(max_position_embeddings=8000, num_hidden_layers=1))
    text = [(11 + 7 * i) % 300 for i in range(4000)]
    session.begin(text, 4010)
    wanted = session.read(text)
    session.begin(text[:10], 20)
    session.begin(text, 4010)
    assert torch.equal(session.read(text), wanted)


@torch.inference_mode()
def test_a_written_chain_crosses_an_edge(monkeypatch):
    monkeypatch.setattr("draftproof.models.room.BLOCK", 16)
    model = random_model()
    for runner in (TransformersRunner(model, shape=5), TransformersRunner(model), NativeRunner(NativeDecoder(model))):
        cache, other = runner.cache(), runner.cache()
        runner.run([Span(cache, IDS[:12], 0, 0)])
        written, sure = runner.write(cache, IDS[12:15], 12, 9)
        whole = [*IDS[:15], *written]
        (rows,) = runner.run([Span(other, whole, 0, 10)])
        assert rows.logits[:-1].argmax(1).tolist() == written
        assert rows.logits[:-1].softmax(1).max(1).values.tolist() == pytest.approx(sure, abs=1e-4)
