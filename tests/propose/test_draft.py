"""What a draft stands on, when it stops guessing, and what it says when it guesses less. The text is never changed."""

from __future__ import annotations

import pytest
import torch

from draftproof import Speculator
from draftproof.models.session import ModelSession
from draftproof.propose.draft import Draft
from draftproof.testing import chain_model, noisy, random_model


def reads(session):
    """Record how many tokens each forward pass of the session reads."""
    seen = []
    run, write = session.runner.run, session.runner.write
    session.runner.run = lambda spans: seen.extend(len(span.tokens) for span in spans) or run(spans)
    session.runner.write = lambda cache, tokens, *args: seen.append(len(tokens)) or write(cache, tokens, *args)
    return seen


def successor(size=300):
    """A chain in which every token is followed by the next number: a draft is right whatever it has read before."""
    table = torch.zeros(size, size)
    for i in range(size):
        table[i, (i + 1) % size] = 5.0
    return table


def test_a_one_token_prompt_is_not_read_ahead(model):
    session = ModelSession(model)
    Draft(session, 300).begin([7], 10)
    assert session.passes == 0


@pytest.mark.parametrize("length", [31, 32, 33, 200])
@pytest.mark.parametrize("settings", [{}, {"temperature": 0.8, "seed": 3}])
def test_around_and_beyond_its_window_a_draft_goes_on_guessing(model, length, settings):
    prompt = [(11 * i + 3) % 300 for i in range(length)]
    speculator = Speculator(model, noisy(model, 0.1), k=4, draft_window=32)
    made = speculator.generate(prompt, max_new_tokens=40, **settings)
    assert made.tokens == Speculator(model).generate(prompt, max_new_tokens=40, **settings).tokens
    assert all(r.proposed for r in made.rounds[:-1])


def test_beyond_its_window_a_draft_is_as_right_as_before():
    model = chain_model(successor(), max_position_embeddings=512)
    speculator = Speculator(model, model, k=4, draft_window=64)
    seen = reads(speculator._model.session)
    made = speculator.generate([5], max_new_tokens=400)
    assert made.counts.acceptance_rate == 1.0
    assert len(made.rounds) <= 400 / 5 + 400 / 32  # near the window's end a round holds fewer guesses
    assert sum(seen) <= 3 * 400
    assert max(seen) <= 32 + 2


@pytest.mark.parametrize("context", [1, 7, 64])
def test_a_draft_reads_the_last_tokens_of_a_prompt_only(model, context):
    prompt = [(11 * i + 3) % 300 for i in range(100)]
    speculator = Speculator(model, model, k=4, draft_context=context)
    seen = reads(speculator._model.session)
    made = speculator.generate(prompt, max_new_tokens=30)
    assert made.tokens == Speculator(model).generate(prompt, max_new_tokens=30).tokens
    assert sum(seen) <= context + 30 + made.counts.discarded
    whole = Speculator(model, model, k=4, draft_context=100).generate(prompt, max_new_tokens=30)
    assert whole.counts.acceptance_rate == 1.0


@pytest.mark.parametrize(("new", "least"), [(4, 512), (40, 640), (64, 700)])
def test_what_a_draft_reads_of_a_prompt_grows_with_what_may_be_written(new, least):
    model = random_model(max_position_embeddings=1024)
    prompt = [(11 * i + 3) % 300 for i in range(700)]
    speculator = Speculator(model, model, k=4)
    seen = reads(speculator._model.session)
    made = speculator.generate(prompt, max_new_tokens=new)
    assert least - 1 <= sum(seen) <= least + new + made.counts.discarded


@pytest.mark.parametrize("verify", ["greedy", "coupled", "ratio", "block"])
def test_behind_a_guessed_end_nothing_is_guessed(verify):
    """A target that never ends, and a draft that always guesses the end."""
    table = torch.zeros(300, 300)
    table[:, 7] = 40.0
    settings = {} if verify == "greedy" else {"temperature": 0.5, "seed": 1, "verify": verify}
    target, draft = chain_model(successor(), max_position_embeddings=512), chain_model(table)
    for compile in ("off", "on"):
        speculator = Speculator(target, draft, k=6, compile=compile)
        made = speculator.generate([9], max_new_tokens=40, end_tokens=[7], **settings)
        assert len(made.tokens) == 40
        assert made.counts.draft_passes == made.counts.proposed == 39
    end = Speculator(draft, draft, k=6).generate([9], max_new_tokens=40, end_tokens=[7], **settings)
    assert (end.tokens, end.finish_reason, end.stop) == ((7,), "stop", 7)


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.8, "seed": 3}, {"temperature": 1.0, "verify": "ratio"}])
def test_a_token_that_the_draft_lacks_is_told_once_and_the_draft_goes_on_behind_it(settings):
    target, draft = chain_model(successor(300)), chain_model(successor(260))
    speculator = Speculator(target, draft, k=3)
    made = speculator.generate([5, 280, 200], max_new_tokens=30, **settings)
    assert [w for w in made.warnings if "token 280, which the draft does not know" in w] == list(made.warnings)
    assert made.counts.accepted > 0
    if "verify" not in settings:
        assert made.tokens == Speculator(target).generate([5, 280, 200], max_new_tokens=30, **settings).tokens
    last = speculator.generate([5, 200, 280], max_new_tokens=9, **settings)
    assert not last.rounds[0].proposed
    assert len(last.warnings) == 1


def test_a_guess_that_the_target_lacks_is_told():
    target = random_model(vocab_size=260)
    draft = chain_model(successor(300))
    made = Speculator(target, draft, k=3).generate([258], max_new_tokens=9)
    assert all(token < 260 for r in made.rounds for token in r.proposed)
    greedy_past_the_end = Speculator(target, draft, k=3).generate([259], max_new_tokens=2)
    assert "tokens that the target does not know" in greedy_past_the_end.warnings[0]


@pytest.mark.parametrize("options", [{}, {"temperature": 0.8, "seed": 3}, {"temperature": 0.8, "verify": "block"}])
@pytest.mark.parametrize("compile", ["on", "off"])
def test_a_draft_says_how_sure_it_was_of_each_guess(options, compile):
    """Its own probability, before the request's transforms where a guess was chosen, behind them where it was drawn."""
    draft = noisy(random_model(), 0.2)
    speculator = Speculator(random_model(), draft, k=3, compile=compile)
    made = speculator.generate([5, 9, 200, 7], max_new_tokens=30, **options)
    text = [5, 9, 200, 7]
    for r in made.rounds:
        for i, (guess, share) in enumerate(zip(r.proposed, r.confidence, strict=True)):
            with torch.inference_mode():
                row = draft(input_ids=torch.tensor([[*text, *r.proposed[:i]]])).logits[0, -1]
            if options.get("verify") == "block":
                row = row / 0.8
            assert float(row.softmax(-1)[guess]) == pytest.approx(share, abs=1e-4)
        text += r.tokens
