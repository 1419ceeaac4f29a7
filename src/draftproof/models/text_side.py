"""The text side of a model that also sees or hears: its language model alone, as a model of its own family."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from draftproof.models.probe import logits_of, same_logits
from draftproof.models.wrapper import SAME_ON_TEXT, text_class


def text_weights(model: PreTrainedModel) -> set[str]:
    """Return the names of the weights that a pass over text reads."""
    sides = [model.get_decoder(), model.get_output_embeddings(), model.get_input_embeddings()]
    read = {id(weight) for side in sides if side is not None for weight in side.parameters()}
    return {name for name, weight in model.named_parameters(remove_duplicate=False) if id(weight) in read}


def text_side(model: PreTrainedModel) -> tuple[PreTrainedModel, tuple[str, ...]]:
    """Return the text side of `model`, and a note that says so; a model that is text alone is returned as it is.

    It has to give the whole model's logits on a few tokens. Where it does not, or where its family has no model of
    text alone, the whole model is returned, since it reads text too.
    """
    whole = repr(model.config.model_type)
    if model.config.get_text_config(decoder=True) is model.config:
        return model, ()
    found = _alone(model)
    if found is not None and same_logits(logits_of(found), logits_of(model), model.dtype):
        family = found.config.model_type
        return found, (f"of {whole} the text side was loaded, as {family!r}; images, sound and video are not read",)
    return model, (f"{whole} was loaded whole, and only its text side is used; images, sound and video are not read",)


def _alone(model: PreTrainedModel) -> PreTrainedModel | None:
    kind = text_class(model.config)
    body, head, embedding = model.get_decoder(), model.get_output_embeddings(), model.get_input_embeddings()
    if kind is None or head is None:
        return None
    own = model.config.get_text_config(decoder=True)
    config = copy.deepcopy(own) if own.model_type not in SAME_ON_TEXT else _renamed(own)
    config.tie_word_embeddings = head.weight is embedding.weight
    config._attn_implementation = own._attn_implementation
    config.name_or_path = model.config.name_or_path
    with torch.device("meta"):
        alone = kind(config)
    inner = getattr(alone, alone.base_model_prefix)
    if type(inner) is type(body):
        setattr(alone, alone.base_model_prefix, body)
    elif own.model_type in SAME_ON_TEXT:
        _move(body, inner)
    else:
        return None
    alone.set_output_embeddings(head)
    alone.generation_config = model.generation_config
    return alone.eval()


def _renamed(own: Any) -> Any:
    """The configuration of a text model as the family says it that computes the same."""
    settings = own.to_dict()
    rope = {key: value for key, value in settings.pop("rope_parameters").items() if not key.startswith("mrope")}
    if rope.get("rope_type") == "mrope":
        rope["rope_type"] = "default"
    for name in ("model_type", "dtype", "architectures"):
        settings.pop(name, None)
    return SAME_ON_TEXT[own.model_type](**settings, rope_parameters=rope)


def _move(body: nn.Module, into: nn.Module) -> None:
    """Put the weights of `body`, themselves, into a model of the same parts on the `meta` device."""
    for name, part in list(into.named_modules()):
        source = body.get_submodule(name)
        for key in list(part._parameters):
            part._parameters[key] = source._parameters[key]
        for key in list(part._buffers):
            part._buffers[key] = source._buffers[key]
