"""What a folder's JSON files declare beside the model: code to run, kernels to fetch, weights that are quantised."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, dynamic_module_utils
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING, AutoHfQuantizer

from draftproof.errors import LoadError, brief

_OURS = {"attn_implementation": ("eager", "sdpa"), "experts_implementation": ("eager", "batched_mm", "grouped_mm")}
"""Settings that name who computes, and the values for which nothing is fetched from the hub."""
_FETCHING = {"eetq", "fbgemm_fp8", "fp8", "metal", "mxfp4", "mxfp8", "nvfp4"}
"""Ways to quantise for which transformers downloads kernels, once the package `kernels` is there."""


def read_json(file: Path) -> dict[str, Any]:
    """Return the object in `file`. Raises `LoadError`."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise LoadError(f"{str(file)!r} cannot be read ({error.strerror}); check what it is and its rights.") from error
    except (ValueError, RecursionError) as error:
        raise LoadError(f"{str(file)!r} is not valid JSON ({brief(error)}); download it again.") from error
    if not isinstance(found, dict):
        raise LoadError(f"{str(file)!r} holds a {type(found).__name__}, not an object; download it again.")
    return found


def read_json_if_there(file: Path) -> dict[str, Any]:
    """Return the object in `file`, an empty one if there is no such file. Raises `LoadError`."""
    return read_json(file) if file.exists() or file.is_symlink() else {}


@contextmanager
def never_asking() -> Iterator[None]:
    """Have transformers raise where it would ask on the terminal whether to run code, and take a line as the answer."""
    before = dynamic_module_utils.TIME_OUT_REMOTE_CODE
    dynamic_module_utils.TIME_OUT_REMOTE_CODE = 0
    try:
        yield
    finally:
        dynamic_module_utils.TIME_OUT_REMOTE_CODE = before


def own_code(name: str, config: dict[str, Any], trust: bool) -> tuple[str, ...]:
    """Return the code that the model of a folder brings along and wants run, such as `modeling_x.XForCausalLM`.

    Without `trust` none of it may run: raises `LoadError` where transformers has no such model itself.
    """
    code = _classes(config, "AutoConfig", "AutoModelForCausalLM")
    if code and not trust and not _known(config.get("model_type")):
        raise LoadError(wants_code(repr(name), code))
    if elsewhere := [one for one in code if trust and "--" in one]:
        repository = elsewhere[0].split("--")[0]
        raise LoadError(
            f"{name!r} names code in another repository, {repository!r}; nothing is fetched for a folder: "
            f"put its .py files into the folder, and leave out '{repository}--' in config.json."
        )
    return code


def wants_code(whose: str, code: tuple[str, ...]) -> str:
    """Say that a model cannot be had without running its own code."""
    return (
        f"{whose} brings code of its own ({', '.join(code)}), which transformers cannot do without; "
        "read that code, and if you trust it, run it with trust_remote_code=True."
    )


def not_run(whose: str, code: tuple[str, ...]) -> str:
    """Say that code in a folder was left alone."""
    return f"{whose} brings code of its own ({', '.join(code)}), which is not run: transformers has the like itself"


def is_own_code(thing: object) -> bool:
    """Whether a model, a config or a tokenizer is of a class that came with its files."""
    return type(thing).__module__.startswith("transformers_modules")


def tokenizer_code(tokenizer_config: dict[str, Any]) -> tuple[str, ...]:
    """Return the code that a tokenizer brings along."""
    mapped = tokenizer_config.get("auto_map")
    if isinstance(mapped, list):  # as it was written before there were kinds
        return tuple(one for one in mapped if isinstance(one, str))
    return _classes(tokenizer_config, "AutoTokenizer")


def _classes(config: dict[str, Any], *kinds: str) -> tuple[str, ...]:
    mapped = config.get("auto_map")
    if not isinstance(mapped, dict):
        return ()
    found = [mapped.get(kind) for kind in kinds]
    flat = [one for value in found for one in (value if isinstance(value, list) else [value])]
    return tuple(dict.fromkeys(one for one in flat if isinstance(one, str)))


def _known(model_type: object) -> bool:
    known = isinstance(model_type, str) and model_type in CONFIG_MAPPING
    return known and CONFIG_MAPPING[model_type] in MODEL_FOR_CAUSAL_LM_MAPPING


def refuse_fetched_kernels(name: str, config: Any) -> None:
    """Raise `LoadError` if a config, or a part of it, names kernels that would be downloaded and run."""
    if not isinstance(config, dict):
        return
    for key, value in config.items():
        allowed = _OURS.get(key.removeprefix("_").removesuffix("_internal"))
        if allowed is None:
            refuse_fetched_kernels(name, value)
            continue
        wanted = value.values() if isinstance(value, dict) else [value]
        if bad := [one for one in wanted if one is not None and one not in allowed]:
            raise LoadError(
                f"{name!r} has {key}={bad[0]!r} in its config.json, whose kernels may be fetched from the hub and run; "
                f"take that line out, or set it to {allowed[0]!r}."
            )


def refuse_other_weights(name: str, config: dict[str, Any]) -> None:
    """Raise `LoadError` if a config has transformers read another file than the one that was checked."""
    if config.get("transformers_weights") is not None:
        raise LoadError(
            f"{name!r} has transformers_weights={config['transformers_weights']!r} in its config.json; take that line "
            "out, and call the weights model.safetensors."
        )


def quantised_already(name: str, config: dict[str, Any], weights: str | None) -> str | None:
    """Return how the weights of a folder are quantised; None if they are not, or are turned back as they are read.

    Raises `LoadError` if they cannot be used as they are here, and if they are to be quantised to `weights` on top.
    """
    told = config.get("quantization_config")
    for part in config.values():
        if told is None and isinstance(part, dict):
            told = part.get("quantization_config")
    if told is None:
        return None
    method = told.get("quant_method") if isinstance(told, dict) else None
    if method is None and isinstance(told, dict) and (told.get("load_in_8bit") or told.get("load_in_4bit")):
        method = "bitsandbytes"
    if weights is not None:
        raise LoadError(
            f"{name!r} is already quantised ({method}), so it cannot be quantised to {weights}; "
            f"leave out weights={weights!r}, or give the model that it was made from."
        )
    try:
        if not isinstance(told, dict) or not isinstance(method, str):
            raise ValueError("its quantization_config names no quant_method")
        if method != "bitsandbytes" and method not in AUTO_QUANTIZATION_CONFIG_MAPPING:
            raise ValueError("transformers does not know that method")
        if method in _FETCHING and importlib.util.find_spec("kernels") is not None:
            raise ValueError("its kernels would be fetched from the hub and run")
        quantiser = AutoHfQuantizer.from_config(dict(told), pre_quantized=True)
        quantiser.validate_environment(device_map=None, weights_only=True)
    except Exception as error:  # every method checks in its own way for packages and devices
        raise LoadError(
            f"{name!r} is quantised ({method}) in a way that cannot be run here: {brief(error)}. "
            "Give the model that it was made from, or a .gguf file."
        ) from error
    return None if getattr(quantiser.quantization_config, "dequantize", False) else method
