"""Models in a folder, as `save_pretrained` writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM, PreTrainedModel

from draftproof.errors import LoadError
from draftproof.models.checkpoint import check_weight_files, refuse_random_weights
from draftproof.models.placement import DTYPES
from draftproof.models.session import refuse_unsupported
from draftproof.models.tokenizer import read_tokenizer
from draftproof.records import Placement


def read_folder(name: str, path: Path, decide: Callable[..., Placement]) -> tuple[PreTrainedModel, Any, Placement]:
    """Return the model of the folder `path`, its tokenizer and its placement. Raises `LoadError` and `CacheError`."""
    config = AutoConfig.from_pretrained(path)
    stored = str(getattr(config, "dtype", None) or "").removeprefix("torch.") or None
    placement = decide(stored=stored)
    known = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    if not known and not config.is_encoder_decoder:
        raise LoadError(f"{name!r} is a {config.model_type!r} model, which does not write text token by token.")
    refuse_unsupported(config, MODEL_FOR_CAUSAL_LM_MAPPING[type(config)] if known else None)
    check_weight_files(name, path, placement)
    tokenizer = read_tokenizer(name, path)
    model, info = AutoModelForCausalLM.from_pretrained(path, dtype=DTYPES[placement.dtype], output_loading_info=True)
    refuse_random_weights(name, info)
    return model, tokenizer, placement
