"""Which architectures can go back after a rejected guess; told from a configuration, before weights are read."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from transformers import PreTrainedModel

from draftproof.errors import CacheError
from draftproof.models.wrapper import text_class

_SUPPORTED_LAYERS = {"full_attention", "sliding_attention"}
_STATELESS = {"mlp", "moe"}
"""Kinds of layers that stand beside others which cannot go back, and are not to blame."""


def refuse_unsupported(config: Any, model_class: type[PreTrainedModel] | None) -> None:
    """Raise `CacheError` for a model whose past cannot be addressed by position; needs no weights."""
    name = f"{config.model_type!r}"
    if config.is_encoder_decoder or model_class is None:
        raise CacheError(f"{name} is an encoder-decoder model; draftproof works with decoder-only models.")
    classes = [kind for kind in (model_class, text_class(config)) if kind is not None]
    config = config.get_text_config(decoder=True)
    kinds = set(getattr(config, "layer_types", None) or ()) - _SUPPORTED_LAYERS
    if kinds == {"chunked_attention"}:
        raise CacheError(
            f"{name} has layers of kind chunked_attention, which draftproof makes no masks for yet. "
            "Choose a model whose layers are all attention (full or sliding window)."
        )
    if kinds or any(getattr(kind, "_is_stateful", False) for kind in classes):
        what = f"layers of kind {', '.join(sorted(kinds - _STATELESS or kinds))}" if kinds else "a recurrent state"
        raise CacheError(
            f"{name} has {what}, which cannot go back after a rejected guess. "
            "Choose a model whose layers are all attention (full or sliding window)."
        )
    if getattr(config, "use_bidirectional_attention", None) in (True, "all"):
        raise CacheError(f"{name} reads its prompt in both directions, so what it has read changes with what follows.")
    if "position_ids" not in inspect.signature(model_class.forward).parameters:
        raise CacheError(
            f"{name} does not take positions, so its cache cannot be addressed by position; choose another."
        )
    modules = [sys.modules[kind.__module__] for kind in classes]
    windowed = getattr(config, "sliding_window", None) is not None
    own_way = windowed and not any(hasattr(module, "create_sliding_window_causal_mask") for module in modules)
    if own_way or hasattr(config, "keep_window_size"):
        raise CacheError(
            f"{name} declares a window that it applies in a way of its own, so going back beyond it is not safe; "
            "choose another model."
        )
    if (config._attn_implementation or "sdpa") not in ("eager", "sdpa"):
        raise CacheError(
            f"{name} was loaded with attention {config._attn_implementation!r}, which takes no mask; "
            "load it with attn_implementation='sdpa' or 'eager'."
        )
