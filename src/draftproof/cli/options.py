"""The options of a request as options of a command: one parameter for each field of `Options`."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from draftproof.errors import ConfigError
from draftproof.options import Options
from draftproof.reading import read_text
from draftproof.settings import NAMES as SETTINGS
from draftproof.settings import require_extra

_PANEL = "Options of the request"
_SWITCHES: dict[str, tuple[str, Any, str]] = {
    "max_new_tokens": ("--max-new-tokens", int, "Tokens to write at most."),
    "min_new_tokens": ("--min-new-tokens", int, "No end token before so many; a stop string still ends the text."),
    "stop": ("--stop", list[str] | None, "String that ends the text; may be given again."),
    "end_tokens": ("--end-token", list[int] | None, "Token id that ends the text, instead of the model's own."),
    "ignore_end": ("--ignore-end", bool, "Let no token end the text: it is as long as asked for."),
    "temperature": ("--temperature", float, "0 is greedy; above it tokens are sampled."),
    "top_k": ("--top-k", int, "Sample from so many most likely tokens; 0: from all."),
    "top_p": ("--top-p", float, "Sample from the most likely tokens that hold so much probability."),
    "min_p": ("--min-p", float, "Sample from tokens at least so likely, relative to the likeliest."),
    "repetition_penalty": ("--repetition-penalty", float, "Makes tokens of prompt and text less likely; 1: off."),
    "presence_penalty": ("--presence-penalty", float, "Subtracted from the logit of every token in the text."),
    "frequency_penalty": ("--frequency-penalty", float, "Subtracted for every time that the text holds a token."),
    "logit_bias": ("--logit-bias", list[str] | None, "ID=BIAS: added to a token's logit; may be given again."),
    "bad_words": ("--bad-word", list[str] | None, "Text that must not be written; may be given again."),
    "json_schema": ("--json-schema", Path | None, "File with a JSON schema that the text must meet."),
    "regex": ("--regex", str | None, "Regular expression that the whole text must match."),
    "seed": ("--seed", int | None, "Same seed, same text; none: a fresh one, recorded."),
    "verify": ("--verify", str, "Rule for sampled guesses: ratio, block, or coupled (same text on and off)."),
    "logprobs": ("--logprobs", bool, "Record every token's log-probability (model's own law) for --json."),
    "top_logprobs": ("--top-logprobs", int, "As --logprobs, with so many of the likeliest alternatives."),
}


Command = Callable[..., None]


def with_options(*, without: Sequence[str] = (), **defaults: Any) -> Callable[[Command], Command]:
    """Give a command the request's options, with other defaults where named; it gets them raw, in its `options`."""
    offered = {name: about for name, about in _SWITCHES.items() if name not in without}

    def decorate(command: Command) -> Command:
        hints = get_type_hints(command, include_extras=True)
        own = inspect.signature(command).parameters.values()
        parameters = [p.replace(annotation=hints[p.name]) for p in own if p.name != "options"]
        for name, (switch, kind, text) in offered.items():
            default = defaults.get(name, getattr(Options(), name, False) if kind in (int, float, bool, str) else None)
            about = typer.Option(switch, help=text, rich_help_panel=_PANEL)
            shown: Any = Annotated[kind, about]
            parameters.append(
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=shown)
            )

        @functools.wraps(command)
        def wrapper(**given: Any) -> None:
            command(options={name: given.pop(name) for name in offered}, **given)

        wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
        return wrapper

    return decorate


def read_options(given: dict[str, Any]) -> Options:
    """Return what a command was given as `Options`. Raises `ConfigError`."""
    wanted = {name: value for name, value in given.items() if value is not None}
    if wanted.pop("ignore_end", False):
        if "end_tokens" in wanted:
            raise ConfigError("--ignore-end and --end-token exclude each other; give one.")
        wanted["end_tokens"] = ()
    if wanted.get("top_logprobs"):
        wanted["logprobs"] = True
    if "logit_bias" in wanted:
        wanted["logit_bias"] = tuple(_bias(text) for text in wanted["logit_bias"])
    if "json_schema" in wanted:
        wanted["json_schema"] = read_text(wanted["json_schema"], "--json-schema")
    for name in ("stop", "end_tokens", "bad_words"):
        if name in wanted:
            wanted[name] = tuple(wanted[name])
    try:
        made = Options(**wanted)
    except ConfigError as error:
        raise ConfigError(re.sub(rf"(?<![-\w])(?:{_OPTIONS})\b", _named, in_switches(str(error)))) from None
    for name in ("json_schema", "regex"):
        if name in wanted:
            require_extra("grammar", name)
    return made


def doubt_escapes(stop: Sequence[str]) -> list[str]:
    """Say which stop strings hold a backslash where a line break or a tab may have been meant."""
    return [
        f"--stop '{text}' holds a backslash and a letter, taken as they are; a line break is $'\\n' in bash and zsh"
        for text in stop
        if re.search(r"\\[ntr]", text)
    ]


def in_switches(message: str) -> str:
    """Return what the library says with its options as they are called on the command line.

    Those are the one that a message is about, which it begins with, and what it advises, as in `dtype='float32'`.
    """
    return re.sub(_ADVICE, _advised, re.sub(rf"^(?:(?:{_OPTIONS})\b(?!=)|(?:{_NAMES})(?= is ))", _named, message))


def _named(found: re.Match[str]) -> str:
    return _switch(found[0])


def _advised(found: re.Match[str]) -> str:
    if found["value"] in (None, "True"):
        return _switch(found["name"] or found[0])
    value = found["value"].strip("'")
    return f"{_switch(found['name'])} {value}"


def _switch(name: str) -> str:
    return _SWITCHES[name][0] if name in _SWITCHES else f"--{name.replace('_', '-')}"


_OPTIONS = "|".join(sorted(_SWITCHES, key=len, reverse=True))
_NAMES = "|".join(sorted({*_SWITCHES, *SETTINGS, "n", "limit", "at", "cut", "compare_dtype"}, key=len, reverse=True))
_TWO_WORDS = "|".join(name for name in _NAMES.split("|") if "_" in name)
_ADVICE = rf"(?:^|(?<=[\s(]))(?:(?P<name>{_NAMES})=(?P<value>'[^']*'|\w+)|(?:{_TWO_WORDS})\b(?!=))"


def _bias(text: str) -> tuple[int, float]:
    token, _, bias = text.partition("=")
    try:
        return int(token), float(bias)
    except ValueError:
        raise ConfigError(f"--logit-bias is {text!r}; give ID=BIAS, such as 1234=-5.") from None
