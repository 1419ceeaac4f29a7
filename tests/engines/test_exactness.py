"""Greedy output is that of plain decoding and of transformers' own generate, whatever the draft and k."""

from __future__ import annotations

import pytest
import torch

from draftproof import Speculator
from draftproof.testing import noisy
from tests.architectures import CONFIGS, NATIVE, WINDOW, build

PROMPTS = {"one token": [7], "longer than the window": [5, 9, 200, 7, 33, 1, 2, 3, 4, 8, 11, 12][: WINDOW + 4]}
NEW = 28


def generate(model, prompt, new=NEW):
    ids = torch.tensor([prompt])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False, pad_token_id=0)
    return tuple(out[0, len(prompt) :].tolist())


GUESSES = {"self": (0, 8), "noisy": (1, 3, 20)}
PATHS = {
    "transformers": {"numerics": "fast"},
    "padded": {"numerics": "fixed", "k": 20},
    "compiled": {"compile": "on"},
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", CONFIGS)
def test_greedy_gives_the_tokens_of_plain_decoding_and_of_generate(name, path):
    if (path == "compiled" and name not in NATIVE) or (path == "padded" and name == "mixtral"):
        pytest.skip("this family has no such passes")
    model = build(name)
    drafts = {
        "self": Speculator(model, model, **PATHS[path]),
        "noisy": Speculator(model, noisy(model, 0.3), **PATHS[path]),
    }
    assert (drafts["self"].target.decoder is not None) == (path == "compiled")
    rejected = 0
    for prompt in PROMPTS.values():
        expected = generate(model, prompt)
        assert len(set(expected)) > 3, "the fixture is stuck, so it proves nothing"
        for draft, speculator in drafts.items():
            for k in GUESSES[draft]:
                made = speculator.generate(prompt, max_new_tokens=NEW, k=k)
                assert made.tokens == expected, (draft, k)
                if draft == "self" and k:
                    assert made.counts.acceptance_rate == 1.0
                    assert made.counts.discarded == 0
                rejected += made.counts.discarded
    assert rejected > 0, "nothing was ever rejected, so going back was not tested"


@pytest.mark.parametrize("k", range(21))
def test_every_k_from_0_to_20_gives_one_text(model, k):
    prompt = [5, 9, 200, 7, 33]
    expected = generate(model, prompt, 30)
    for draft in (noisy(model, 0.1), noisy(model, 0.4)):
        assert Speculator(model, draft, k=k).generate(prompt, max_new_tokens=30).tokens == expected


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("length", [6, 12])
def test_a_sliding_window_is_crossed_with_either_attention(attention, length):
    model = build("mistral-window", attention)
    prompt = list(range(40, 40 + length))
    expected = generate(model, prompt, 40)
    for draft in (model, noisy(model, 0.1), noisy(model, 0.4)):
        assert Speculator(model, draft, k=6).generate(prompt, max_new_tokens=40).tokens == expected


@pytest.mark.parametrize("length", [1, 2, 3, 100])
def test_prompt_lengths_do_not_matter(model, length):
    prompt = [(11 * i + 3) % 300 for i in range(length)]
    expected = generate(model, prompt, 40)
    for draft in (model, noisy(model, 0.1), noisy(model, 0.8)):
        for k in (1, 6):
            assert Speculator(model, draft, k=k).generate(prompt, max_new_tokens=40).tokens == expected


@pytest.mark.parametrize("k", range(1, 9))
def test_a_draft_that_is_the_target_is_always_right(model, k):
    counts = Speculator(model, model, k=k).generate([5, 9, 7], max_new_tokens=120).counts
    assert counts.acceptance_rate == 1.0
    assert counts.discarded == 0
    assert counts.rounds == -(-120 // (k + 1))
    assert counts.draft_passes == counts.proposed, "a round costs k draft passes, and none only to catch up"


def test_a_long_prompt_read_in_chunks_gives_the_same_text(model, monkeypatch):
    monkeypatch.setattr("draftproof.models.session.CHUNK", 7)
    prompt = [(11 * i + 3) % 300 for i in range(60)]
    assert Speculator(model, noisy(model, 0.2), k=4).generate(prompt, max_new_tokens=30).tokens == generate(
        model, prompt, 30
    )


def test_a_draft_in_another_dtype_changes_nothing(model):
    import copy

    half = copy.deepcopy(model).to(torch.bfloat16)
    made = Speculator(model, half, k=4).generate([5, 9, 7], max_new_tokens=60)
    assert made.tokens == generate(model, [5, 9, 7], 60)
    assert 0 < made.counts.acceptance_rate <= 1


@pytest.mark.parametrize(("compile", "numerics"), [("off", "fast"), ("off", "fixed"), ("on", "auto")])
def test_warming_up_leaves_no_cache_cold(model, compile, numerics):
    """Plain decoding too, padded and not: what is measured first is as warm as what is measured last."""
    speculator = Speculator(model, noisy(model, 0.1), k=3, compile=compile, numerics=numerics)
    speculator.warm_up()
    sessions = {*speculator._own_sessions, speculator.unpadded._plain_session, speculator._model.session}
    assert all(session.passes for session in sessions)
    before = {session: session.passes for session in sessions}
    for who, k in ((speculator, 3), (speculator, 0), (speculator.unpadded, 0)):
        who.generate([5, 9, 200, 7], max_new_tokens=4, k=k)
    assert all(session.passes > before[session] for session in sessions)
