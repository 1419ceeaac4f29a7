"""How far a model reads, and how far each of its layers sees: everything, or a sliding window."""

from __future__ import annotations

from typing import Any


def layer_kinds(config: Any) -> list[str]:
    """Return the kind of every layer: `full_attention` or `sliding_attention`."""
    kinds = getattr(config, "layer_types", None)
    if kinds is None or config.model_type == "mistral":  # whose layers are all alike, whatever the config lists
        window = getattr(config, "sliding_window", None)
        return ["full_attention" if window is None else "sliding_attention"] * int(config.num_hidden_layers)
    return list(kinds)


def attention_windows(config: Any) -> dict[str, int | None]:
    """Return the attention window of each kind of layer, None for layers that see everything."""
    window = getattr(config, "sliding_window", None)
    return {kind: window if kind == "sliding_attention" else None for kind in dict.fromkeys(layer_kinds(config))}


def window_of(config: Any) -> int | None:
    """Return how many tokens a model can read, or None when its config sets no limit.

    YaRN stretches the original window by its factor, whether or not `max_position_embeddings` was raised with it: model
    cards give it as an addition to the config and leave that number as it was; linear RoPE likewise. Long-RoPE and
    dynamic models turn all their positions to other factors once a text outgrows the original window, so keys that
    were cached before no longer fit: for them the original window is the limit.
    """
    limit: int | None = getattr(config, "max_position_embeddings", None)
    own: int | None = getattr(config, "original_max_position_embeddings", None)
    settings = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    by_layer = [one for one in settings.values() if isinstance(one, dict)]  # such models declare what they read
    for rope in by_layer or [settings]:
        kind = rope.get("rope_type", rope.get("type"))
        original = rope.get("original_max_position_embeddings", own)
        if kind == "linear" and not by_layer:
            original = original or limit
        if original is None:
            continue
        if kind == "longrope":
            limit = min(int(original), limit or int(original))
        elif kind in ("yarn", "linear"):
            limit = max(int(original * (rope.get("factor") or 1)), limit or 0)
    return limit


def masks_by_length(model: Any) -> bool:
    """Whether attention finds its place by the cache's length (GPT-Neo): then the cache must end with the pass."""
    return any(name.endswith("attention.bias") and buffer.dim() == 4 for name, buffer in model.named_buffers())
