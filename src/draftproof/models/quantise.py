"""Weights of fewer bits, by torchao. The quantised model then is the model: all that is exact is exact against it."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from draftproof.errors import ConfigError, MissingExtraError

WEIGHTS = ("none", "int8", "int4")


def quantise(model: PreTrainedModel, weights: str) -> None:
    """Turn the linear layers of `model`, its output layer included, into `weights`, in place.

    `int8`: a scale for each output row. `int4`: a scale for each 32 inputs of an output row. Either way inputs are
    rounded to 8 bits with a scale for each token, so that products of whole numbers are summed. The table of embeddings
    stays as it is. Raises `MissingExtraError` without torchao.
    """
    for name in ("torchao", "torch.utils._pytree"):  # what they tell at import is of no use to whoever decodes
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        from torchao import quantization
        from torchao.quantization.granularity import PerGroup
    except ImportError as error:
        raise MissingExtraError("quantised weights need torchao: pip install 'draftproof[quantised]'") from error

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


def check_weights(weights: str | None) -> str | None:
    """Return what to quantise to, None for nothing. Raises `ConfigError` for an unknown name."""
    if weights is not None and weights not in WEIGHTS:
        raise ConfigError(f"weights is {weights!r}; choose one of {', '.join(WEIGHTS)}.")
    return None if weights == "none" else weights
