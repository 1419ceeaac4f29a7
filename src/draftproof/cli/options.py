"""The options of a request as options of a command: one parameter for each field of `Options`."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from draftproof.about import About, names_elsewhere
from draftproof.errors import ConfigError
from draftproof.options import NO_OPTIONS, OPTIONS, Options
from draftproof.reading import read_text
from draftproof.recipe import read_recipe
from draftproof.settings import NO_SETTINGS, SETTINGS, require_extra

_NO_END = About(help="Let no token end the text: it is as long as asked for.", kind=bool, default=False)
_OFFERED: Mapping[str, About] = {**OPTIONS, "ignore_end": _NO_END}

_ELSEWHERE = {
    **names_elsewhere(OPTIONS, NO_OPTIONS),
    **names_elsewhere(SETTINGS, NO_SETTINGS),
    "ignore_eos": "ignore_end",
    "num_return_sequences": "n",
    "target": "model",
}
"""What others call it, and what it is called here; an option of the command line may stand for several of Python's."""
Command = Callable[..., None]


class Parsing(TyperCommand):
    """A command that knows what its switches are called elsewhere."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # whose class is private: typer brings its own
            given = getattr(error, "option_name", None) or ""
            use = _ELSEWHERE.get(given.lstrip("-").replace("-", "_"), "")
            use = _switch(use) if use.isidentifier() else in_switches(use)
            if any(use.startswith(switch) for parameter in self.params for switch in parameter.opts):
                ctx.fail(f"there is no option {given}; use {use}.")
            raise


def with_options(*, without: Sequence[str] = (), **defaults: Any) -> Callable[[Command], Command]:
    """Give a command the request's options, with other defaults where named; it gets them raw, in its `options`."""
    offered = {name: about for name, about in _OFFERED.items() if name not in without}
    return _taking("options", offered, defaults, "Options of the request")


def with_settings(*more: str) -> Callable[[Command], Command]:
    """Give a command those settings that every model has, and `more`; it gets them in its `settings`."""
    wanted = {"device", "dtype", "trust_remote_code", *more}
    return _taking("settings", {name: about for name, about in SETTINGS.items() if name in wanted}, {})


def _from_recipe(context: typer.Context, path: Path | None) -> Path | None:
    """Let a recipe say what is not given: its settings stand where the command's defaults do."""
    if path is not None:
        try:
            found = read_recipe(path)
        except ConfigError as error:
            raise typer.BadParameter(str(error)) from error
        context.default_map = {**found, "at": found.get("k"), **(context.default_map or {})}
    return path


RecipeFile = Annotated[
    Path | None,
    typer.Option("--recipe", callback=_from_recipe, is_eager=True, help="A recipe of tune: models and settings."),
]
"""The switch of commands that take a recipe; what else is given goes before it."""


def _taking(
    into: str, offered: Mapping[str, About], defaults: Mapping[str, Any], panel: str | None = None
) -> Callable[[Command], Command]:
    """Give a command switches for what is offered; it gets the values together, in its parameter `into`."""

    def decorate(command: Command) -> Command:
        hints = get_type_hints(command, include_extras=True)
        own = inspect.signature(command).parameters.values()
        parameters = [p.replace(annotation=hints[p.name]) for p in own if p.name != into]
        for name, about in offered.items():
            default = None if about.many else defaults.get(name, about.default)
            kind: Any = str if about.form else about.kind
            kind = list[kind] if about.many else kind
            text = f"{about.help.removesuffix('.')}; may be given again." if about.many else about.help
            shown = typer.Option(_switch(name), help=text, metavar=about.form or None, rich_help_panel=panel)
            annotation: Any = Annotated[kind if default is not None else kind | None, shown]
            parameters.append(
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            )

        @functools.wraps(command)
        def wrapper(**given: Any) -> None:
            command(**{into: {name: given.pop(name) for name in offered}}, **given)

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
    known = _OFFERED.get(name)
    return f"--{known.switch if known and known.switch else name.replace('_', '-')}"


_OPTIONS = "|".join(sorted(_OFFERED, key=len, reverse=True))
_NAMES = "|".join(sorted({*_OFFERED, *SETTINGS, "n", "limit", "at", "cut", "compare_dtype"}, key=len, reverse=True))
_TWO_WORDS = "|".join(name for name in _NAMES.split("|") if "_" in name)
_ADVICE = rf"(?:^|(?<=[\s(]))(?:(?P<name>{_NAMES})=(?P<value>'[^']*'|\w+)|(?:{_TWO_WORDS})\b(?!=))"


def _bias(text: str) -> tuple[int, float]:
    token, _, bias = text.partition("=")
    try:
        return int(token), float(bias)
    except ValueError:
        raise ConfigError(f"--logit-bias is {text!r}; give ID=BIAS, such as 1234=-5.") from None
