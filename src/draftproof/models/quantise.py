"""Weights of fewer bits, by torchao. The quantised model then is the model: all that is exact is exact against it."""

from __future__ import annotations

import logging
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from draftproof.errors import ConfigError, MissingExtraError

WEIGHTS = ("none", "int8")


def quantise(model: PreTrainedModel) -> None:
    """Turn the linear layers of `model`, its output layer included, into 8-bit ones, in place.

    A scale for each output row; inputs are rounded to 8 bits too, with a scale for each token, so that products
    of whole numbers are summed. The table of embeddings stays as it is. Raises `MissingExtraError`
    without torchao.
    """
    for name in ("torchao", "torch.utils._pytree"):  # what they tell at import is of no use to whoever decodes
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
    except ImportError as error:
        raise MissingExtraError("quantised weights need torchao: pip install 'draftproof[quantised]'") from error

    def linear(module: nn.Module, name: str) -> bool:
        return isinstance(module, nn.Linear)

    config: Any = Int8DynamicActivationInt8WeightConfig(set_inductor_config=False)
    quantize_(model, config, filter_fn=linear)


def check_weights(weights: str | None) -> str | None:
    """Return what to quantise to, None for nothing. Raises `ConfigError` for an unknown name."""
    if weights is not None and weights not in WEIGHTS:
        raise ConfigError(f"weights is {weights!r}; choose one of {', '.join(WEIGHTS)}.")
    return None if weights == "none" else weights
