"""How a pair is loaded and run: the one list of what may be asked for, checked before anything heavy is imported."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from draftproof.about import About, no_such
from draftproof.errors import ConfigError, MissingExtraError

MAX_K = 64
"""Most guesses a round may ask for."""
USUAL_K = 5
"""Guesses a round where they cannot follow from what was measured."""
DRAFT_CONTEXT = 512
"""Tokens of a prompt, the last ones, that a draft reads at least, unless told how many."""
DRAFT_CONTEXT_PER_TOKEN = 16
"""It reads so many for each token that may be written: reading more than is ever won back is in vain."""
DEVICES = ("auto", "cpu", "cuda", "mps")
"""Kinds of devices; all but `auto` may be followed by an index, as in `cuda:1`."""
DTYPES = ("auto", "float32", "bfloat16", "float16")
COMPILE = ("auto", "wait", "on", "off")
"""Compiled passes: where they are faster and ready, where they are faster, wherever they can be had, nowhere."""
POLICIES = ("auto", "schedule", "threshold")
"""What may stand for a number of guesses: as many as pay; transformers' schedule; as long as the draft is sure."""
WITHOUT_MODEL = ("ngram",)
"""What may be named in place of a draft model, as it guesses without one; `propose.PROPOSERS` has them."""
NUMERICS = ("auto", "fixed", "fast")
WEIGHTS = ("none", "int8", "int4")


def _either(choices: Sequence[str]) -> str:
    return f"{', '.join(choices[:-1])} or {choices[-1]}"


SETTINGS: Mapping[str, About] = {
    "k": About(
        help="Guesses a round; 0 is plain decoding; auto: as many as pay, none where none do.",
        kind=int,
        form="K",
        default="auto",
        least=0,
        most=MAX_K,
        remark=", or auto",
        elsewhere=dict.fromkeys(
            ("num_speculative_tokens", "num_assistant_tokens", "num_draft_tokens", "draft_max", "gamma"), ""
        ),
    ),
    "device": About(help=f"{_either(DEVICES)}.", default="auto", choices=DEVICES, elsewhere={"device_map": ""}),
    "dtype": About(help=f"{_either(DTYPES)}.", default="auto", choices=DTYPES, elsewhere={"torch_dtype": ""}),
    "compile": About(
        help="Compiled passes: auto (where they are faster), wait (for the compiler too), on, or off.",
        default="auto",
        choices=COMPILE,
    ),
    "numerics": About(
        help="fixed (the same bits on and off), fast, or auto: fixed in 16 bits and fewer.",
        default="auto",
        choices=NUMERICS,
    ),
    "weights": About(
        help="int8 or int4: quantise the target (needs torchao); it then is the model whose text is wanted.",
        choices=WEIGHTS,
        elsewhere={
            "quantization": "",
            "quantization_config": "",
            "load_in_8bit": "weights='int8'",
            "load_in_4bit": "weights='int4'",
        },
    ),
    "revision": About(help="Hub revision of the target."),
    "adapter": About(
        help="Folder or hub name of a LoRA adapter to merge into the target (needs peft); none: not the folder's own."
    ),
    "trust_remote_code": About(
        help="Run code that a model's files bring along; read it first.", kind=bool, default=False
    ),
    "draft_device": About(help="Device of the draft, if not the target's.", choices=DEVICES),
    "draft_dtype": About(help="Number format of the draft, if not as the target's.", choices=DTYPES),
    "draft_weights": About(help="The same for the draft, if not as the target's; none: as stored.", choices=WEIGHTS),
    "draft_window": About(help="Use only so much of the draft's window.", kind=int, least=1),
    "draft_context": About(
        help=f"Last tokens of a prompt that the draft reads; default {DRAFT_CONTEXT}, or {DRAFT_CONTEXT_PER_TOKEN} for "
        "each new token if more.",
        kind=int,
        least=1,
    ),
    "draft_revision": About(help="Hub revision of the draft."),
    "draft_adapter": About(help="The same for the draft."),
}
"""Every setting by its name; the command line turns the names in messages into its switches."""
NO_SETTINGS = {
    "model": "target",
    "assistant_model": "draft",
    "draft_model": "draft",
    "model_draft": "draft",
    "speculative_model": "draft",
    "max_model_len": "max_new_tokens of a request",
    "assistant_tokenizer": "draft_tokenizer",
}
"""What is no setting here, though others have it among theirs, and what to use."""
_EXTRAS = {
    "adapters": ("peft",),
    "gguf": ("gguf", "accelerate"),
    "quantised": ("torchao",),
    "grammar": ("llguidance",),
    "serve": ("fastapi", "uvicorn", "prometheus_client"),
}
"""Optional packages by the extra that brings them."""


def check_settings(**given: Any) -> None:
    """Raise `ConfigError` for a setting with a value that it cannot have; None stands for a setting left alone.

    Names are those of `Speculator`; one with a role before it (`draft_dtype`) may be what it is without.
    """
    for name, value in given.items():
        kind = name.rpartition("_")[2]
        about = SETTINGS.get(name) or SETTINGS.get(kind)
        if value is None or about is None:
            continue
        if kind == "k":
            read_k(value)
        elif kind == "device" and isinstance(value, str) and ":" in value:
            known, _, index = value.partition(":")
            about.check(name, known if known != "auto" and index.isdecimal() else value)
        elif about.choices or about.kind is int:
            about.check(name, value)
        if kind == "weights" and value in ("int8", "int4"):
            require_extra("quantised", f"{name}={value!r}")


def refuse_unknown(names: Iterable[str]) -> None:
    """Raise `ConfigError` for a setting that there is none of, with what it is called here."""
    for name in names:
        raise no_such("setting", name, SETTINGS, NO_SETTINGS, "; options of a request are given to generate")


def check_k(k: int, name: str = "k", least: int = 0) -> int:
    """Return `k` if it is in range; raise `ConfigError` if not."""
    if not isinstance(k, int) or isinstance(k, bool) or not least <= k <= MAX_K:
        lowest = "0 (plain decoding)" if least == 0 else f"{least}"
        always = "; plain decoding is always measured" if least else ""
        raise ConfigError(f"{name} is {k!r}; it must be a whole number between {lowest} and {MAX_K}{always}.")
    return k


def read_k(k: Any) -> Any:
    """Return a number of guesses, given as it is or in digits, the name of a policy, or a controller as it is.

    Raises `ConfigError`.
    """
    if isinstance(k, str) and k not in POLICIES:
        if not k.removeprefix("-").isdecimal():
            raise ConfigError(f"k is {k!r}; it must be a whole number, or one of {', '.join(POLICIES)}.")
        k = int(k)
    return check_k(k) if isinstance(k, int) else k


def check_draft_is_named(draft: object, **of_the_draft: object) -> None:
    """Raise `ConfigError` for settings of a draft where there is none."""
    given = [name for name, value in of_the_draft.items() if value is not None]
    if draft is None and given:
        raise ConfigError(f"{given[0]} is given, and no draft; name one, or leave it out.")


def require_extra(extra: str, what: str) -> None:
    """Raise `MissingExtraError` if `what` needs packages that are not installed."""
    if missing := [name for name in _EXTRAS[extra] if importlib.util.find_spec(name) is None]:
        raise MissingExtraError(f"{what} needs {' and '.join(missing)}: pip install 'draftproof[{extra}]'")
