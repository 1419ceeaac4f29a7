"""Models in a folder, as `save_pretrained` writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
)

from draftproof.errors import LoadError
from draftproof.files.adapter import CONFIG as ADAPTER
from draftproof.models.checkpoint import check_weight_files, judge_loading
from draftproof.models.declared import (
    is_own_code,
    never_asking,
    not_run,
    own_code,
    quantised_already,
    read_json,
    read_json_if_there,
    refuse_fetched_kernels,
    refuse_other_weights,
)
from draftproof.models.placement import DTYPES
from draftproof.models.support import refuse_unsupported
from draftproof.models.text_side import text_weights
from draftproof.models.tokenizer import read_tokenizer
from draftproof.models.wrapper import wrapper_class
from draftproof.records import Placement

Read = tuple[PreTrainedModel, Any, Placement, tuple[str, ...]]
"""A model, its tokenizer, its placement, and notes on how it was read."""


def read_folder(
    name: str,
    path: Path,
    decide: Callable[..., Placement],
    *,
    weights: str | None = None,
    trust: bool = False,
    tokenizer: Any = None,
) -> Read:
    """Return the model of the folder `path`; `weights` is what it is going to be quantised to.

    A `tokenizer` that is given is taken for the one that lies in the folder.

    Nothing is fetched, and code that lies in the folder runs only with `trust`. Raises `LoadError` and `CacheError`.
    """
    declared = read_json(path / "config.json")
    refuse_fetched_kernels(name, declared)
    refuse_other_weights(name, declared)
    read_json_if_there(path / "generation_config.json")  # transformers would pass over a damaged one without a word
    code = own_code(name, declared, trust)
    quantised = quantised_already(name, declared, weights)
    with never_asking():
        config = AutoConfig.from_pretrained(path, trust_remote_code=trust, local_files_only=True)
    stored = str(getattr(config, "dtype", None) or "").removeprefix("torch.") or None
    placement = decide(stored=stored)
    foreign = bool(code) and trust
    auto, kind = _class_of(config)
    if kind is None and not foreign and not config.is_encoder_decoder:
        raise LoadError(f"{name!r} is a {config.model_type!r} model, which does not write text token by token.")
    if not foreign:
        refuse_unsupported(config, kind)
    notes = check_weight_files(name, path, placement, quantised=quantised is not None)
    of_tokenizer: tuple[str, ...] = ()
    if tokenizer is None:
        tokenizer, of_tokenizer = read_tokenizer(name, path, trust=trust)
    with never_asking(), _without_adapter(path) as folder:
        model, info = auto.from_pretrained(
            folder,
            dtype=DTYPES[placement.dtype],
            output_loading_info=True,
            trust_remote_code=trust,
            local_files_only=True,
            use_safetensors=True,
        )
    model.config.name_or_path = str(path)
    if foreign:
        refuse_unsupported(model.config, type(model))
    wrapper = model.config.get_text_config(decoder=True) is not model.config
    notes += judge_loading(name, info, model.config, text_weights(model) if wrapper else None)
    notes += of_tokenizer
    ran = any(is_own_code(one) for one in (model.config, model, tokenizer))
    if code and not ran:
        notes += (not_run("the model", code),)
    if ran:
        placement = replace(placement, own_code=True, reason=f"{placement.reason}; code of its own, as trusted")
    if quantised is not None:
        placement = replace(
            placement, weights=quantised, reason=f"{placement.reason}; weights stored quantised ({quantised})"
        )
    return model, tokenizer, placement, notes


@contextmanager
def _without_adapter(path: Path) -> Iterator[Path]:
    """Give the folder `path` as if no adapter lay in it: transformers applies one that it finds, and is not to."""
    if not (path / ADAPTER).is_file():
        yield path
        return
    with TemporaryDirectory() as folder:
        for entry in path.iterdir():
            if entry.name != ADAPTER:
                (Path(folder) / entry.name).symlink_to(entry.resolve())
        yield Path(folder)


def _class_of(config: PreTrainedConfig) -> tuple[Any, type[PreTrainedModel] | None]:
    """Return what loads a model of this configuration, and its class; None for one that writes no text."""
    if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING:
        return AutoModelForCausalLM, MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    kind = wrapper_class(config)
    return kind or AutoModelForCausalLM, kind
