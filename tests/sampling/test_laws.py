"""Temperature, top-k, top-p and min-p are transformers'."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from draftproof.options import Options
from draftproof.sampling import laws
from draftproof.sampling.laws import law_of, truncate


def theirs(scores, options):
    warpers = LogitsProcessorList([TemperatureLogitsWarper(options.temperature)])
    if options.top_k:
        warpers.append(TopKLogitsWarper(options.top_k))
    if options.top_p < 1:
        warpers.append(TopPLogitsWarper(options.top_p))
    if options.min_p:
        warpers.append(MinPLogitsWarper(options.min_p))
    return warpers(torch.zeros(1, 1, dtype=torch.long), scores[None])[0]


OPTIONS = st.builds(
    Options,
    temperature=st.sampled_from([0.3, 0.7, 1.0, 2.0]),
    top_k=st.integers(0, 60),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 0.97, 1.0]),
    min_p=st.sampled_from([0.0, 0.01, 0.2, 1.0]),
)


@settings(max_examples=200, deadline=None)
@given(options=OPTIONS, seed=st.integers(0, 10**6), width=st.integers(1, 60), enough=st.sampled_from([1, 4, 1024]))
def test_truncation_is_that_of_transformers(options, seed, width, enough):
    scores = torch.randn(width, generator=torch.Generator().manual_seed(seed)) * 3
    if seed % 3 == 0:
        scores[:: 1 + seed % 5] = -torch.inf
        scores[-1] = 1.0
    keep = laws._ENOUGH
    laws._ENOUGH = enough
    try:
        ours = truncate(scores, options)
    finally:
        laws._ENOUGH = keep
    assert torch.equal(ours, theirs(scores, options))


@pytest.mark.parametrize("top_p", [0.2, 0.5, 0.8])
def test_of_equal_tokens_at_the_edge_the_lower_ids_stay(top_p):
    """Logits in bfloat16 are often equal."""
    scores = (torch.randn(4000, generator=torch.Generator().manual_seed(3))).bfloat16().float()
    assert len(scores.unique()) < 1500
    options = Options(temperature=1.0, top_p=top_p)
    ours, precisely = truncate(scores, options), theirs(scores.double(), options).float()
    assert torch.equal(ours.sort().values, precisely.sort().values)  # as many, and as likely
    edge = ours[ours > -torch.inf].min()
    kept, left_out = ((scores == edge) & (ours == edge)).nonzero(), ((scores == edge) & (ours != edge)).nonzero()
    assert not len(left_out) or kept.max() < left_out.min()


def test_a_law_adds_up_and_impossible_tokens_have_none():
    law = law_of(torch.tensor([1.0, -torch.inf, 2.0]))
    assert law.dtype == torch.float64
    assert float(law.sum()) == pytest.approx(1, abs=1e-15)
    assert law[1] == 0


@pytest.mark.parametrize("temperature", [1e-2, 1e-3, 1e-6])
def test_a_tiny_temperature_is_the_argmax(temperature):
    law = law_of(truncate(torch.tensor([1.0, 3e4, 2e4]), Options(temperature=temperature)))
    assert law.tolist() == pytest.approx([0, 1, 0], abs=1e-40)
