"""An adapter merged into the weights of its model, by peft. The merged model then is the model."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import re
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from transformers import PreTrainedModel

from draftproof.errors import DraftproofError, LoadError, brief
from draftproof.files.adapter import WEIGHTS, Adapter
from draftproof.models.probe import logits_of, same_logits
from draftproof.models.text_side import text_side
from draftproof.models.tokenizer import has_tokenizer, read_tokenizer


def merge(model: PreTrainedModel, adapter: Adapter, tensors: dict[str, torch.Tensor]) -> PreTrainedModel:
    """Return `model` with `adapter` merged into its weights, as peft's `merge_and_unload` does; `model` is used up.

    Every weight of the adapter has to find its place and no other may be missing, and the merged model has to give the
    logits of the unmerged one on a few tokens, but for rounding. Raises `LoadError` for an adapter that does not fit.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what peft warns of is looked at here, or of no use to whoever decodes
            return _merged(model, adapter, tensors)
    except DraftproofError:
        raise
    except Exception as error:  # a strange adapter makes peft raise almost anything
        raise LoadError(f"adapter {adapter.name!r} does not fit the model: {_told(error)}") from error


def _merged(model: PreTrainedModel, adapter: Adapter, tensors: dict[str, torch.Tensor]) -> PreTrainedModel:
    from peft import LoraConfig, PeftModel

    _refuse_unknown(adapter, {field.name for field in dataclasses.fields(LoraConfig)})
    _resize(model, tensors)
    config = LoraConfig.from_pretrained(str(adapter.path))
    config.inference_mode = True
    outer = PeftModel(model, config)
    found = outer.load_adapter(
        str(adapter.path),
        "default",
        torch_device="cpu",
        key_mapping=getattr(model, "_checkpoint_conversion_mapping", None),
    )
    for keys, words in ((found.missing_keys, "lacks"), (found.unexpected_keys, "holds weights for")):
        if keys:
            key = re.sub(r"^base_model\.model\.|\.default\b", "", sorted(keys)[0])
            more = f" (and {len(keys) - 1} more)" if len(keys) > 1 else ""
            where = ", which this model has not" if words != "lacks" else ""
            raise LoadError(
                f"adapter {adapter.name!r} {words} {key!r}{more}{where}; give the model that it was made for"
                + (f", {adapter.made_for!r}." if adapter.made_for else ".")
            )
    outer.eval()
    unmerged = logits_of(outer.get_base_model())
    _untie(model)
    merged: PreTrainedModel = outer.merge_and_unload(safe_merge=True)
    if not same_logits(logits_of(merged.eval()), unmerged, model.dtype):
        raise LoadError(f"adapter {adapter.name!r} gives other logits merged than unmerged, so it is not merged.")
    return merged


def read_tensors(adapter: Adapter) -> dict[str, torch.Tensor]:
    """Return the adapter's weights by name. Raises `LoadError` for a damaged file, and for one without weights."""
    path = adapter.path / WEIGHTS
    try:
        tensors: dict[str, torch.Tensor] = load_file(path)
    except (SafetensorError, OSError) as error:
        raise LoadError(f"{str(path)!r} is cut off or damaged ({brief(error)}); download it again.") from error
    if not tensors:
        raise LoadError(f"{str(path)!r} holds no weights; download it again.")
    if bad := next((name for name, tensor in tensors.items() if not tensor.isfinite().all()), None):
        raise LoadError(f"{str(path)!r} holds NaN or infinity in {bad!r}; the training that made it went wrong.")
    return tensors


def _refuse_unknown(adapter: Adapter, known: set[str]) -> None:
    """Raise `LoadError` for a setting of another version of peft, which this one would leave out."""
    unknown = [name for name, value in adapter.config.items() if value and name not in known]
    if unknown:
        raise LoadError(
            f"adapter {adapter.name!r} was made with {unknown[0]}={adapter.config[unknown[0]]!r}, which this peft "
            f"({importlib.metadata.version('peft')}) does not know; update peft."
        )


def _resize(model: PreTrainedModel, tensors: dict[str, torch.Tensor]) -> None:
    """Give the model as many embeddings as the adapter brings along, if it brings some: tokens were added to it."""
    embedding = model.get_input_embeddings().weight
    rows = {
        tensor.shape[0]
        for name, tensor in tensors.items()
        if name.endswith(("embed_tokens.weight", "lm_head.weight", "wte.weight")) and tensor.ndim == 2
    }
    if len(rows) == 1 and (count := rows.pop()) != embedding.shape[0]:
        model.resize_token_embeddings(count, mean_resizing=False)


def _untie(model: PreTrainedModel) -> None:
    """Let what is merged into the embeddings, or the output layer, not reach the other by a weight they share."""
    ends: list[Any] = [model.get_input_embeddings(), model.get_output_embeddings()]
    if not any(type(end).__module__.startswith("peft.") for end in ends):
        return
    layers = [getattr(end, "base_layer", getattr(end, "original_module", end)) for end in ends]
    if layers[0].weight is layers[1].weight:
        layers[1].weight = nn.Parameter(layers[1].weight.detach().clone(), requires_grad=False)


def merge_and_take_text_side(model: PreTrainedModel, adapter: Adapter) -> tuple[PreTrainedModel, tuple[str, ...]]:
    """Return the text side of `model` with the adapter merged, and what `text_side` tells.

    An adapter of a model that also sees was made for the whole, or for its text side: the names of its weights say so.
    """
    tensors = read_tensors(adapter)
    if any(name in key for key in tensors for name in ("language_model.", "text_model.", "vision", "visual.")):
        return text_side(merge(model, adapter, tensors))
    model, told = text_side(model)
    return merge(model, adapter, tensors), told


def about_base(adapter: Adapter, name: str) -> tuple[str, ...]:
    """Tell if an adapter says that it was made for a model of another name than that of the model `name`."""
    made_for = adapter.made_for
    if made_for is None or _last(made_for) == _last(name) or Path(name).expanduser() == adapter.path:
        return ()
    return (
        f"adapter {adapter.name!r} says that it was made for {made_for!r}; it fits {name!r}, and is merged into it",
    )


def _last(name: str) -> str:
    return Path(name).name.removesuffix(".gguf").lower()


def tokenizer_of(adapter: Adapter, own: Any, model: PreTrainedModel) -> tuple[Any, tuple[str, ...]]:
    """Return the tokenizer to use with an adapter that was merged into `model`, and what is to be told.

    It is the adapter's, where it brings one with other tokens or another chat template than the model's `own`.
    """
    if not has_tokenizer(adapter.path):
        return own, ()
    brought, told = read_tokenizer(adapter.name, adapter.path)
    other = set(brought.get_vocab().items()) ^ set(own.get_vocab().items())
    width = model.get_output_embeddings().weight.shape[0]
    if (beyond := max((i for _, i in other), default=0)) >= width:
        raise LoadError(
            f"adapter {adapter.name!r} brings a tokenizer with token id {beyond}, and no embedding for it; save the "
            "adapter again with save_embedding_layers=True."
        )
    changes = [f"{len(other)} other tokens"] if other else []
    changes += ["another chat template"] if brought.chat_template != own.chat_template else []
    if not changes:
        return own, ()
    return brought, (
        f"adapter {adapter.name!r} brings its own tokenizer, with {' and '.join(changes)}; it is used",
        *told,
    )


def _told(error: Exception) -> str:
    """The line of torch's or peft's message that says which weight does not fit."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line[:300] for line in lines if "size mismatch" in line), brief(error)).rstrip(".") + "."
