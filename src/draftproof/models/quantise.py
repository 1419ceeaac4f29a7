"""Weights of fewer bits, by torchao. The quantised model then is the model: all that is exact is exact against it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from draftproof.quiet import hushed
from draftproof.settings import require_extra


def quantise(model: PreTrainedModel, weights: str) -> None:
    """Turn the linear layers of `model`, its output layer included, into `weights`, in place.

    `int8`: a scale for each output row. `int4`: a scale for each 32 inputs of an output row. Either way inputs are
    rounded to 8 bits with a scale for each token, so that products of whole numbers are summed. The table of embeddings
    stays as it is. Raises `MissingExtraError` without torchao.
    """
    require_extra("quantised", f"weights={weights!r}")
    with hushed():
        from torchao import quantization
        from torchao.quantization.granularity import PerGroup

    def linear(module: nn.Module, name: str) -> bool:
        return isinstance(module, nn.Linear)

    config: Any
    if weights == "int8":
        config = quantization.Int8DynamicActivationInt8WeightConfig(set_inductor_config=False)
    else:
        groups = PerGroup(32)
        config = quantization.Int8DynamicActivationIntxWeightConfig(
            weight_dtype=torch.int4,  # type: ignore[attr-defined]
            weight_granularity=groups,
            weight_scale_dtype=torch.bfloat16,
        )
    quantization.quantize_(model, config, filter_fn=linear)


def is_quantised(model: PreTrainedModel) -> bool:
    """Whether weights are stored in fewer bits than they are computed with, by torchao or by the checkpoint."""
    if any(hasattr(weight, "qdata") for weight in model.parameters()):
        return True
    stored = getattr(model.config, "quantization_config", None)
    return stored is not None and not getattr(stored, "dequantize", False)
