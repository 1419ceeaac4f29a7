"""The families that docs/models.md names as refused are refused, for the reason given; latent attention runs."""

from __future__ import annotations

import pytest
import torch
import transformers
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM

from draftproof import CacheError, Speculator
from draftproof.models.support import refuse_unsupported

_SMALL = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 128,
    "initializer_range": 0.5,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "tie_word_embeddings": False,
}
_LATENT = _SMALL | {
    "kv_lora_rank": 16,
    "q_lora_rank": None,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("Mamba2", {}, "cannot go back"),
        ("Rwkv", {}, "cannot go back"),
        ("Jamba", {}, "cannot go back"),
        ("FalconH1", {}, "cannot go back"),
        ("Bamba", {}, "cannot go back"),
        ("NemotronH", {}, "cannot go back"),
        ("Qwen3Next", {}, "layers of kind linear_attention, which cannot go back"),
        ("Qwen3_5Text", {}, "layers of kind linear_attention, which cannot go back"),
        ("MiniMax", {}, "cannot go back"),
        (
            "Lfm2",
            {"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"]},
            "of kind conv, which cannot go back",
        ),
        ("Llama4Text", {}, "chunked_attention, which draftproof makes no masks for yet"),
        ("Bloom", {}, "does not take positions"),
        ("Mpt", {}, "does not take positions"),
        ("Gemma", {"use_bidirectional_attention": True}, "in both directions"),
        ("T5", {}, "encoder-decoder"),
    ],
)
def test_what_cannot_go_back_is_refused_before_weights_are_read(name, settings, says):
    config = getattr(transformers, f"{name}Config")(**settings)
    kind = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    with pytest.raises(CacheError, match=says):
        refuse_unsupported(config, kind)


@pytest.mark.parametrize("name", ["DeepseekV2", "DeepseekV3"])
def test_latent_attention_runs_through_transformers(name):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(getattr(transformers, f"{name}Config")(**_LATENT)).eval()
    model.generation_config.eos_token_id = None
    ids = torch.tensor([[11, 18, 25, 32, 39, 46, 3, 99]])
    whole = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False)
    made = Speculator(model, model, 3).generate(ids[0].tolist(), max_new_tokens=24, check=True)
    assert made.tokens == tuple(whole[0, ids.shape[1] :].tolist())
    assert len(set(made.tokens)) > 5
    assert made.counts.acceptance_rate == 1.0
