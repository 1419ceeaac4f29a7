"""Which models the kernels cover: what is not known to be computed alike is refused, and goes through transformers."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import PreTrainedModel

from draftproof.errors import CompileError
from draftproof.models.native.packing import KINDS, LANES, kind_of

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text")
ACTIVATIONS = {"SiLUActivation": 0, "SiLU": 0, "GELUTanh": 1, "PytorchGELUTanh": 1}
"""Classes of activations, by their number in kernels.cpp."""
_ROPES = {"default", "linear", "llama3", "yarn"}


def refuse(model: PreTrainedModel) -> None:
    """Raise `CompileError`, with the reason, for a model that the kernels do not cover."""
    config = model.config.get_text_config(decoder=True)
    family = config.model_type
    if family not in FAMILIES or not type(model).__module__.startswith("transformers.models."):
        raise CompileError(f"compiled passes cover {', '.join(FAMILIES)}, and this is {family!r}")
    if model.device.type != "cpu":
        raise CompileError(f"compiled passes are for the CPU, and this model is on {model.device}")
    if model.dtype not in KINDS:
        raise CompileError(f"compiled passes are for float32 and bfloat16, and this model is in {model.dtype}")
    body = model.get_decoder()
    if not body.layers:
        raise CompileError("compiled passes need a model with layers")
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    sizes = (config.hidden_size, config.intermediate_size, head_dim)
    if any(size % LANES for size in sizes) or heads % config.num_key_value_heads:
        raise CompileError(f"compiled passes need sizes that are multiples of {LANES}, and these are {sizes}")
    activation = type(body.layers[0].mlp.act_fn).__name__
    if activation not in ACTIVATIONS:
        raise CompileError(f"compiled passes do not know the activation {activation}")
    if family == "gemma2" and config.attn_logit_softcapping and config._attn_implementation != "eager":
        raise CompileError(  # whether transformers' other attentions heed the cap depends on its version
            f"compiled passes cap attention as attn_implementation='eager' does, and this model was loaded with "
            f"{config._attn_implementation!r}"
        )
    rotary = body.rotary_emb.rope_type
    kinds = set(rotary.values()) if isinstance(rotary, dict) else {rotary}
    if kinds - _ROPES:
        raise CompileError(f"compiled passes do not know positions of kind {', '.join(sorted(kinds - _ROPES))}")
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    if head.weight.shape != embedding.weight.shape:
        raise CompileError(
            f"compiled passes need as many embeddings as logits, and there are {embedding.weight.shape[0]} and "
            f"{head.weight.shape[0]}"
        )
    for name, module in [*body.named_modules(), ("output layer", head)]:
        _refuse_module(name or "the decoder", module, model)


def _refuse_module(name: str, module: nn.Module, model: PreTrainedModel) -> None:
    """Somebody's own module, or a hook on one, may do anything."""
    kind: Any = type(module)
    if not kind.__module__.startswith(("torch.nn.modules.", "transformers.")):
        raise CompileError(f"compiled passes need modules of torch and transformers, and {name} is {kind.__name__}")
    if name.endswith(("_proj", "output layer")) and kind is not nn.Linear:
        raise CompileError(f"compiled passes need plain linear layers, and {name} is {kind.__name__}")
    if module._forward_hooks or module._forward_pre_hooks:
        raise CompileError(f"compiled passes cannot call hooks, and {name} has one")
    if kind is nn.Linear:
        kind_of(module.weight)
    for parameter in module.parameters(recurse=False):
        if parameter.device.type != "cpu" or (parameter.dtype != model.dtype and not hasattr(parameter, "qdata")):
            raise CompileError(f"compiled passes need one number format, and {name} is in {parameter.dtype}")
