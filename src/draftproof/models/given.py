"""Models that are handed over loaded, in whatever peft has put around them."""

from __future__ import annotations

import sys
from typing import Any

from transformers import PreTrainedModel

from draftproof.errors import ConfigError, PairError


def unwrap(given: Any) -> tuple[PreTrainedModel, tuple[str, ...]]:
    """Return the transformers model in `given`, and what is to be told of it; an adapter acts in it as it is set.

    Raises `PairError` for what holds no transformers model, and for an adapter that adds tokens of its own, since it
    acts outside the model.
    """
    peft = sys.modules.get("peft")  # whoever hands over one of its models has imported it
    model = given
    if peft is not None and isinstance(given, peft.PeftModel | peft.PeftMixedModel):
        kinds = [config for config in given.peft_config.values() if config.is_prompt_learning]
        if kinds:
            raise PairError(
                f"the model's adapter is of kind {kinds[0].peft_type.value!r}, which adds tokens of its own to a text; "
                "it cannot be used here."
            )
        model = given.get_base_model()
    if not isinstance(model, PreTrainedModel):
        raise PairError(f"expected a name, a path or a transformers model, got {type(given).__name__}.")
    names = sorted(getattr(model, "peft_config", None) or ())
    if not names:
        return model, ()
    return model, (
        f"the model was handed over with {_in_words(names)} in it, which acts as it is set there, unmerged; "
        "merge_and_unload() lets its passes be compiled",
    )


def _in_words(names: list[str]) -> str:
    return f"the adapter {names[0]!r}" if len(names) == 1 else f"the adapters {', '.join(map(repr, names))}"


def refuse_given_up(model: PreTrainedModel) -> None:
    """Raise `ConfigError` for a model whose weights are not in memory: only compiled passes hold them, or nobody."""
    if getattr(model, "weights_given_up", False):
        raise ConfigError("this model's weights were given up for compiled passes; load it with keep_weights=True.")
    if model.device.type != "meta":
        return
    if any(getattr(getattr(module, "_hf_hook", None), "offload", False) for module in model.modules()):
        raise ConfigError(
            "this model's weights are offloaded (device_map), its embeddings too, so no device is left to run it on; "
            "load it without device_map, or with one that keeps the embeddings in memory."
        )
    raise ConfigError("this model's weights hold no numbers (its device is 'meta'); load it with from_pretrained.")
