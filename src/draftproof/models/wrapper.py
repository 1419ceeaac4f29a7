"""Models that also see or hear: around a language model, and which classes of transformers these are."""

from __future__ import annotations

from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    MODEL_FOR_MULTIMODAL_LM_MAPPING,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

SAME_ON_TEXT: dict[str, type[PreTrainedConfig]] = {
    "qwen2_vl_text": Qwen2Config,
    "qwen2_5_vl_text": Qwen2Config,
    "qwen3_vl_text": Qwen3Config,
}
"""Text models that number positions in three dimensions, and what they are where these are equal: on text alone."""


def wrapper_class(config: PreTrainedConfig) -> type[PreTrainedModel] | None:
    """Return the class of a model that also sees or hears and writes text, or None for any other configuration."""
    if config.get_text_config(decoder=True) is config:
        return None
    for mapping in (MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, MODEL_FOR_MULTIMODAL_LM_MAPPING):
        if type(config) in mapping:
            found: type[PreTrainedModel] = mapping[type(config)]
            return found
    return None


def text_class(config: PreTrainedConfig) -> type[PreTrainedModel] | None:
    """Return the class of the text side of a model alone, or None where there is none."""
    text = config.get_text_config(decoder=True)
    kind = SAME_ON_TEXT.get(text.model_type, type(text))
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING:
        return None
    found: type[PreTrainedModel] = MODEL_FOR_CAUSAL_LM_MAPPING[kind]
    return found
