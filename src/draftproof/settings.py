"""How a pair is loaded and run: the one list of what may be asked for, checked before anything heavy is imported."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from draftproof.errors import ConfigError, MissingExtraError

MAX_K = 64
"""Most guesses a round may ask for."""
DRAFT_CONTEXT = 512
"""Tokens of a prompt, the last ones, that a draft reads at least, unless told how many."""
DRAFT_CONTEXT_PER_TOKEN = 16
"""It reads so many for each token that may be written: reading more than is ever won back is in vain."""
DEVICES = ("auto", "cpu", "cuda", "mps")
"""Kinds of devices; all but `auto` may be followed by an index, as in `cuda:1`."""
DTYPES = ("auto", "float32", "bfloat16", "float16")
COMPILE = ("auto", "wait", "on", "off")
"""Compiled passes: where they are faster and ready, where they are faster, wherever they can be had, nowhere."""
NUMERICS = ("auto", "fixed", "fast")
WEIGHTS = ("none", "int8", "int4")

_CHOICES: Mapping[str, Sequence[str]] = {
    "device": DEVICES,
    "dtype": DTYPES,
    "compile": COMPILE,
    "numerics": NUMERICS,
    "weights": WEIGHTS,
}
_EXTRAS = {"adapters": ("peft",), "gguf": ("gguf", "accelerate"), "quantised": ("torchao",), "grammar": ("llguidance",)}
"""Optional packages by the extra that brings them."""
_OF_THE_DRAFT = (
    *("draft_device", "draft_dtype", "draft_weights", "draft_window", "draft_context"),
    *("draft_revision", "draft_adapter"),
)
NAMES = ("k", *_CHOICES, "revision", "adapter", "trust_remote_code", *_OF_THE_DRAFT)
"""What a setting is called in messages; the command line turns these into its switches."""


def check_settings(**given: Any) -> None:
    """Raise `ConfigError` for a setting with a value that it cannot have; None stands for a setting left alone.

    Names are those of `Speculator`; one with a role before it (`draft_dtype`) may be what it is without.
    """
    for name, value in given.items():
        kind = name.rpartition("_")[2]
        if value is None:
            continue
        if kind == "k":
            check_k(value)
        elif kind in ("window", "context"):
            check_number(name, value)
        elif kind in _CHOICES:
            known, _, index = value.partition(":") if kind == "device" and isinstance(value, str) else (value, "", "")
            if known not in _CHOICES[kind] or (_ and (known == "auto" or not index.isdecimal())):
                raise ConfigError(f"{name} is {value!r}; choose one of {', '.join(_CHOICES[kind])}.")
        if kind == "weights" and value in ("int8", "int4"):
            require_extra("quantised", f"{name}={value!r}")


_ELSEWHERE = {
    "num_speculative_tokens": "k",
    "num_assistant_tokens": "k",
    "num_draft_tokens": "k",
    "draft_max": "k",
    "gamma": "k",
    "model": "target",
    "assistant_model": "draft",
    "draft_model": "draft",
    "speculative_model": "draft",
    "torch_dtype": "dtype",
    "device_map": "device",
    "quantization": "weights",
    "quantization_config": "weights",
    "load_in_8bit": "weights='int8'",
    "load_in_4bit": "weights='int4'",
    "max_model_len": "max_new_tokens of a request",
    "assistant_tokenizer": "draft_tokenizer",
}
"""What a setting is called here that others call otherwise."""


def refuse_unknown(names: Iterable[str]) -> None:
    """Raise `ConfigError` for a setting that there is none of, with what it is called here."""
    for name in names:
        hint = f"use {_ELSEWHERE[name]}" if name in _ELSEWHERE else f"the settings are {', '.join(NAMES)}"
        own = "" if name in _ELSEWHERE else "; options of a request are given to generate"
        raise ConfigError(f"there is no setting {name!r}; {hint}{own}.")


def check_k(k: int, name: str = "k", least: int = 0) -> int:
    """Return `k` if it is in range; raise `ConfigError` if not."""
    if not isinstance(k, int) or isinstance(k, bool) or not least <= k <= MAX_K:
        lowest = "0 (plain decoding)" if least == 0 else f"{least}"
        always = "; plain decoding is always measured" if least else ""
        raise ConfigError(f"{name} is {k!r}; it must be a whole number between {lowest} and {MAX_K}{always}.")
    return k


def check_number(name: str, value: int, least: int = 1) -> None:
    """Raise `ConfigError` for what is not a whole number, or below `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{name} is {value!r}; it must be a whole number, at least {least}.")


def check_draft_is_named(draft: object, **of_the_draft: object) -> None:
    """Raise `ConfigError` for settings of a draft where there is none."""
    given = [name for name, value in of_the_draft.items() if value is not None]
    if draft is None and given:
        raise ConfigError(f"{given[0]} is given, and no draft; name one, or leave it out.")


def require_extra(extra: str, what: str) -> None:
    """Raise `MissingExtraError` if `what` needs packages that are not installed."""
    if missing := [name for name in _EXTRAS[extra] if importlib.util.find_spec(name) is None]:
        raise MissingExtraError(f"{what} needs {' and '.join(missing)}: pip install 'draftproof[{extra}]'")
