"""The law of whole texts under penalties, truncation and the rest, against transformers' own arithmetic."""

from __future__ import annotations

import random

import pytest
import torch
from transformers import GenerationConfig

from draftproof.decode.loop import Decoding
from draftproof.decode.stop import Stop
from draftproof.options import Options
from draftproof.propose.draft import Draft
from draftproof.sampling.outcomes import every_outcome
from draftproof.sampling.processors import processors_of
from draftproof.sampling.sampler import RowSampler
from draftproof.testing import HandSetClock, TableSession, random_model

WIDTH, LENGTH, END = 5, 3, 4
PROMPT = [0, 2]


def logits(seed):
    def rule(history):
        source = random.Random(f"{seed} {list(history)}")
        return [source.gauss(0, 1.5) for _ in range(WIDTH)]

    return rule


TARGET, DRAFT = logits(1), logits(2)

GIVEN = [
    ({"temperature": 0.7}, {"temperature": 0.7}),
    ({"temperature": 1.0, "top_k": 2}, {"top_k": 2}),
    ({"temperature": 1.3, "top_p": 0.8}, {"temperature": 1.3, "top_p": 0.8}),
    ({"temperature": 1.0, "min_p": 0.3}, {"min_p": 0.3}),
    ({"temperature": 1.0, "repetition_penalty": 2.0}, {"repetition_penalty": 2.0}),
    ({"temperature": 1.0, "bad_words": [[1, 3], [2]]}, {"bad_words_ids": [[1, 3], [2]]}),
    ({"temperature": 1.0, "min_new_tokens": 2}, {"min_new_tokens": 2}),
    (
        {"temperature": 0.8, "top_k": 4, "top_p": 0.9, "repetition_penalty": 1.5, "logit_bias": {3: 1.0}},
        {"temperature": 0.8, "top_k": 4, "top_p": 0.9, "repetition_penalty": 1.5, "sequence_bias": [[[3], 1.0]]},
    ),
]


def wanted(settings):
    """The product of the laws that transformers' processors make of the table, along every text."""
    config = GenerationConfig(
        do_sample=True, num_beams=1, eos_token_id=END, max_new_tokens=9, **{"top_k": 0, **settings}
    )
    model = random_model(vocab_size=WIDTH, num_hidden_layers=1)
    model._prepare_special_tokens(config, False, "cpu")
    processors = model._get_logits_processor(
        generation_config=config,
        input_ids_seq_length=len(PROMPT),
        encoder_input_ids=torch.tensor([PROMPT]),
        logits_processor=[],
        device="cpu",
    )

    def along(text):
        if len(text) == LENGTH or END in text:
            return {text: 1.0}
        ids = torch.tensor([[*PROMPT, *text]])
        law = processors(ids, torch.tensor([TARGET(ids[0].tolist())]))[0].double().softmax(-1)
        found = {}
        for token, probability in enumerate(law.tolist()):
            if probability:
                found |= {whole: probability * rest for whole, rest in along((*text, token)).items()}
        return found

    return along(())


def written(options, k):
    """The law of the loop's texts, by walking every outcome."""

    def experiment(chance):
        own = processors_of(options, width=WIDTH, prompt_tokens=len(PROMPT), end_tokens=[END])
        sampler = RowSampler(options, chance, width=WIDTH, processors=own)
        decoding = Decoding(
            TableSession(TARGET, width=WIDTH),
            PROMPT,
            proposer=Draft(TableSession(DRAFT, width=WIDTH), WIDTH, sampler, [END]),
            k=k,
            stop=Stop(limit=LENGTH, end_tokens=[END]),
            clock=HandSetClock(),
            sampler=sampler,
        )
        for _ in decoding:
            pass
        return decoding.generation().tokens

    return every_outcome(experiment)[0]


@pytest.mark.parametrize("rule", ["ratio", "block"])
@pytest.mark.parametrize(("ours", "theirs"), GIVEN, ids=lambda given: "+".join(given))
def test_texts_follow_the_law_that_transformers_would_draw_from(rule, ours, theirs):
    expected = wanted(theirs)
    found = written(Options(verify=rule, max_new_tokens=9, **ours), 2)
    assert sum(found.values()) == pytest.approx(1, abs=1e-12)
    assert {text for text, p in found.items() if p > 1e-12} == set(expected)
    assert max(abs(found[text] - p) for text, p in expected.items()) < 1e-6  # transformers' laws are in float32
