"""How far a model reads: as far as transformers does, and no position is another one's."""

from __future__ import annotations

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaForCausalLM, MistralForCausalLM

from draftproof import ConfigError, Speculator, custom_generate
from draftproof.models.session import ModelSession
from draftproof.testing import noisy
from tests.architectures import CONFIGS, build

YARN = {"rope_type": "yarn", "factor": 4.0}
ROPES = {
    "default": ({"rope_type": "default"}, {}, 64),
    "linear": ({"rope_type": "linear", "factor": 2.0}, {}, 128),
    "linear-of-original": ({"rope_type": "linear", "factor": 2.0, "original_max_position_embeddings": 32}, {}, 64),
    "dynamic": ({"rope_type": "dynamic", "factor": 2.0}, {}, 64),
    "yarn-as-cards-give-it": (YARN | {"original_max_position_embeddings": 64}, {}, 256),
    "yarn-without-original": (YARN, {}, 256),
    "yarn-raised": (YARN | {"original_max_position_embeddings": 32}, {"max_position_embeddings": 128}, 128),
    "yarn-beside": (YARN, {"original_max_position_embeddings": 32}, 128),
    "longrope": (
        {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [3.0] * 8},
        {"original_max_position_embeddings": 32},
        32,
    ),
    "llama3": (
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        | {"original_max_position_embeddings": 32},
        {},
        64,
    ),
    "proportional": ({"rope_type": "proportional", "partial_rotary_factor": 0.5}, {}, 64),
}


def test_every_kind_of_rope_has_a_row():
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    assert set(ROPE_INIT_FUNCTIONS) <= {rope["rope_type"] for rope, _, _ in ROPES.values()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ROPES)
def test_each_kind_of_rope_reads_what_it_is_made_for(name):
    rope, others, window = ROPES[name]
    config = CONFIGS["llama"]()
    config.max_position_embeddings = 64
    for key, value in others.items():
        setattr(config, key, value)
    config.rope_parameters = rope | {"rope_theta": 1e4}
    config.standardize_rope_params()
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    speculator = Speculator(model, noisy(model, 0.2), k=4)
    assert speculator.target_window == window
    prompt = [5, 9, 200, 7]
    made = speculator.generate(prompt, max_new_tokens=1000)
    assert len(prompt) + len(made.tokens) == window
    assert made.finish_reason == "length"
    assert made.counts.discarded
    ids = torch.tensor([prompt])
    theirs = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=window - 4, do_sample=False, pad_token_id=0
    )
    assert made.tokens == tuple(theirs[0, 4:].tolist())
    assert Speculator(model, noisy(model, 0.2), k=4, compile="on").generate(prompt, max_new_tokens=1000).tokens == (
        made.tokens
    )


def test_a_sliding_window_of_one_token_is_what_a_pass_without_a_cache_makes_of_it():
    """transformers' own `generate` writes another text there."""
    config = CONFIGS["mistral-window"]()
    config.sliding_window = 1
    torch.manual_seed(0)
    model = MistralForCausalLM(config).eval()
    text = [5, 9, 200, 7]
    made = Speculator(model, noisy(model, 0.2), k=4).generate(text, max_new_tokens=20)
    for token in made.tokens:
        logits = model(input_ids=torch.tensor([text]), use_cache=False).logits
        assert token == int(logits[0, -1].argmax())
        text.append(token)
    assert made.tokens == Speculator(model, noisy(model, 0.2), k=4, compile="on").generate(text[:4]).tokens[:20]


def test_nobody_reads_beyond_the_window(model):
    session = ModelSession(model)
    session.read([1] * 256)
    with pytest.raises(ConfigError, match="reads 256 tokens"):
        session.read([1] * 257)
    with pytest.raises(ConfigError, match="reads 256 tokens"):
        session.write([1] * 255, 3)


@pytest.mark.parametrize("family", ["phi3", "llama"])
def test_long_rope_models_stop_where_their_positions_would_turn(family):
    """Beyond the original window all positions get other factors, and cached keys no longer fit."""
    factors = {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [3.0] * 8, "rope_theta": 1e4}
    config = CONFIGS[family]()
    config.rope_parameters = {**factors, "original_max_position_embeddings": 32}
    config.original_max_position_embeddings = 32
    torch.manual_seed(0)
    model = type(build(family))(config).eval()
    speculator = Speculator(model, noisy(model, 0.2), k=4)
    assert speculator.target_window == 32
    made, plain = (speculator.generate([5, 9, 7], max_new_tokens=100, k=k) for k in (4, 0))
    assert made.tokens == plain.tokens
    assert len(made.tokens) == 29
    ids = torch.tensor([[5, 9, 7]])
    theirs = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=29, do_sample=False, pad_token_id=0
    )
    assert made.tokens == tuple(theirs[0, 3:].tolist())


SHORT = [
    {"rope_type": "default"},
    {"rope_type": "linear", "factor": 2.0, "original_max_position_embeddings": 4},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 4},
    ROPES["llama3"][0] | {"original_max_position_embeddings": 4},
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rope", [*SHORT, None], ids=lambda rope: "gpt2" if rope is None else rope["rope_type"])
def test_inside_generate_a_text_beyond_the_window_is_refused_and_up_to_it_is_generates(rope):
    torch.manual_seed(0)
    if rope is None:
        config = GPT2Config(vocab_size=300, n_embd=64, n_layer=2, n_head=4, n_positions=8, initializer_range=0.5)
        target = GPT2LMHeadModel(config).eval()
    else:
        config = CONFIGS["llama"]()
        config.max_position_embeddings, config.rope_parameters = 8, rope | {"rope_theta": 1e4}
        target = LlamaForCausalLM(config).eval()
    target.generation_config.eos_token_id = None
    ids = torch.tensor([[5, 9, 200]])
    asked = {"attention_mask": torch.ones_like(ids), "do_sample": False, "pad_token_id": 0}
    for k in (0, 1, 3):
        hook = custom_generate(noisy(target, 0.2), k=k)
        with pytest.raises(ConfigError, match="reads 8; give max_new_tokens=5 or less"):
            target.generate(ids, max_new_tokens=12, custom_generate=hook, **asked)
        theirs = target.generate(ids, max_new_tokens=5, **asked)
        assert torch.equal(target.generate(ids, max_new_tokens=5, custom_generate=hook, **asked), theirs)
