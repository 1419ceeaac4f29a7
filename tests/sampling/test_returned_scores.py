"""What a logits processor returns is looked at before it is used."""

from __future__ import annotations

import pytest
import torch

from draftproof import ConfigError, EngineError, Speculator
from tests.sampling.test_processors import PROMPT


@pytest.mark.parametrize(
    ("processor", "says"),
    [
        (lambda ids, scores: None, "returned NoneType; it must return scores, \\[1, 300\\]"),
        (lambda ids, scores: scores[0], "returned a tensor of shape \\[300\\]"),
        (lambda ids, scores: scores[:, :10], "returned a tensor of shape \\[1, 10\\]"),
        (lambda ids, scores: scores * float("nan"), "not numbers"),
    ],
)
@pytest.mark.parametrize("k", [0, 3])
def test_what_a_processor_returns_is_looked_at(model, processor, says, k):
    with pytest.raises(ConfigError, match="'<lambda>'.*" + says):
        Speculator(model, model, k=k).generate(PROMPT, processors=[processor])
    for wrong in (processor, [5], None):
        with pytest.raises(ConfigError, match="give a list of logits processors"):
            Speculator(model, model, k=k).generate(PROMPT, processors=wrong)


@pytest.mark.parametrize("rule", ["coupled", "ratio", "block"])
@pytest.mark.parametrize("k", [0, 2])
def test_scores_that_become_infinite_are_an_error_that_says_so(model, rule, k):
    def explode(input_ids, scores):
        scores[0, 7] = torch.inf
        return scores

    with pytest.raises(EngineError, match="scores are infinite once the options have transformed them"):
        Speculator(model, model, k=k).generate(PROMPT, temperature=0.8, verify=rule, processors=[explode])
