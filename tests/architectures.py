"""Tiny random models of the families people run, and their sliding windows."""

from __future__ import annotations

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Phi3Config,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

WINDOW = 8
_SMALL = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "initializer_range": 0.5,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "tie_word_embeddings": False,  # tied random embeddings only repeat their input
}
_GROUPED = _SMALL | {"num_key_value_heads": 2}
_MIXED = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": WINDOW, "head_dim": 16}
_GPT2 = {"vocab_size": 300, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "initializer_range": 0.5}
_NO_END = {"bos_token_id": None, "eos_token_id": None, "tie_word_embeddings": False}

CONFIGS = {
    "llama": lambda: LlamaConfig(**_GROUPED),
    "mistral": lambda: MistralConfig(**_GROUPED, sliding_window=None),
    "mistral-window": lambda: MistralConfig(**_GROUPED, sliding_window=WINDOW),
    "qwen2": lambda: Qwen2Config(**_GROUPED),
    "qwen3": lambda: Qwen3Config(**_GROUPED, head_dim=16),
    "gemma": lambda: GemmaConfig(**_GROUPED, head_dim=16),
    "gemma2": lambda: Gemma2Config(
        **_GROUPED, **_MIXED, attn_logit_softcapping=5.0, final_logit_softcapping=3.0, query_pre_attn_scalar=16
    ),
    "gemma3": lambda: Gemma3TextConfig(**_GROUPED, **_MIXED, query_pre_attn_scalar=16),
    "phi3": lambda: Phi3Config(**_GROUPED),
    "gpt2": lambda: GPT2Config(**_GPT2, **_NO_END),
    "gpt-neox": lambda: GPTNeoXConfig(**_SMALL),
    "mixtral": lambda: MixtralConfig(**_GROUPED, num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
}
NATIVE = ("llama", "mistral", "mistral-window", "qwen2", "qwen3", "gemma", "gemma2", "gemma3")
"""Those whose passes can be compiled."""


def build(name: str, attention: str | None = None) -> PreTrainedModel:
    torch.manual_seed(0)
    if name == "gemma2" and attention is None:
        attention = "eager"  # the only one that caps attention in every version of transformers
    kwargs = {} if attention is None else {"attn_implementation": attention}
    model = AutoModelForCausalLM.from_config(CONFIGS[name](), **kwargs).eval()
    model.generation_config.eos_token_id = None
    return model
