"""What is known of an option or a setting, in one record: checks, messages, switches and docs are made from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from draftproof.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """One option or setting, whatever it is called."""

    help: str
    """What it does, as a sentence that fits the command line too."""
    default: Any = None
    kind: type = str
    """What one value is; `Path` is a text, and on the command line the file that holds it."""
    many: bool = False
    """Whether it takes several values; its switch may be given again."""
    least: float = -math.inf
    most: float = math.inf
    above: bool = False
    """Whether `least` itself is too little."""
    choices: tuple[str, ...] = ()
    remark: str = ""
    """What a refusal says behind the range."""
    switch: str = ""
    """The word behind the dashes of its switch, where that is not the name."""
    form: str = ""
    """How a value is written on the command line, where its kind does not say."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """What others call it, and what to use here, where that is not the name alone."""

    @property
    def range(self) -> str:
        """The values it takes, in words."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.kind is bool:
            return "True or False"
        if self.kind not in (int, float):
            return "a text"
        words = ["a whole number" if self.kind is int else "a number"]
        if self.least > -math.inf:
            words.append(f", {'above' if self.above else 'at least'} {self.least:g}")
        if self.most < math.inf:
            words.append(f" and at most {self.most:g}" if self.most < 2**53 else " and below 2**64")
        return "".join(words)

    def check(self, name: str, value: Any) -> Any:
        """Return one value as it is kept; numbers of NumPy are numbers too. Raises `ConfigError` out of the range."""
        if self.choices:
            known = value in self.choices
        elif self.kind in (int, float):
            known = isinstance(value, Integral if self.kind is int else Real) and not isinstance(value, bool)
            known = (
                known
                and (isinstance(value, Integral) or math.isfinite(value))
                and self.least <= value <= self.most
                and not (self.above and value == self.least)
            )
        else:
            known = isinstance(value, str if self.kind is Path else self.kind)
        if not known:
            must = "choose" if self.choices else "it must be"
            raise ConfigError(f"{name} is {value!r}; {must} {self.range}{self.remark}.")
        return self.kind(value) if self.kind in (int, float) else value


def names_elsewhere(known: Mapping[str, About], others: Mapping[str, str]) -> dict[str, str]:
    """Return what to use here, by the names that others have for it; `others` are those of none of the known."""
    called = {theirs: use or own for own, about in known.items() for theirs, use in about.elsewhere.items()}
    return called | dict(others)


def no_such(what: str, name: str, known: Mapping[str, About], others: Mapping[str, str], more: str = "") -> ConfigError:
    """Return the error for a name that there is none of, and what to use; `others` as in `names_elsewhere`."""
    called = names_elsewhere(known, others)
    hint = f"use {called[name]}" if name in called else f"the {what}s are {', '.join(known)}{more}"
    return ConfigError(f"there is no {what} {name!r}; {hint}.")
