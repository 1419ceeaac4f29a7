"""Log-probabilities of a request's tokens."""

from __future__ import annotations

import pytest
import torch

from draftproof import Options, Speculator
from draftproof.testing import chain_model, random_model


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("k", [0, 4])
def test_log_probabilities_are_the_models_own_for_every_token(k, temperature):
    table = torch.randn(6, 6, generator=torch.Generator().manual_seed(1)) * 2
    speculator = Speculator(chain_model(table), chain_model(table + 0.8 * torch.randn(6, 6)), k=k)
    options = Options(temperature=temperature, seed=1, logprobs=True, top_logprobs=3, frequency_penalty=0.5)
    made = speculator.generate([0], options, max_new_tokens=40)
    assert len(made.logprobs) == 40
    assert [one.token for one in made.logprobs] == list(made.tokens)
    for before, one in zip([0, *made.tokens], made.logprobs, strict=False):
        law = table[before].log_softmax(-1)
        assert one.logprob == pytest.approx(float(law[one.token]), abs=1e-4)
        assert [token for token, _ in one.top] == law.topk(3).indices.tolist()
        assert [value for _, value in one.top] == pytest.approx(law.topk(3).values.tolist(), abs=1e-4)
    if k:
        assert {len(r.tokens) for r in made.rounds} > {1}


def test_without_being_asked_for_there_are_no_log_probabilities():
    speculator = Speculator(random_model())
    assert speculator.generate([0], max_new_tokens=4).logprobs is None
    assert speculator.generate([0], max_new_tokens=4, logprobs=True).logprobs[0].top == ()
