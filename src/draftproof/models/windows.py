"""How far each layer sees: everything, or a sliding window."""

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
