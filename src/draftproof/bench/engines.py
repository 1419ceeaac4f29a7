"""The other engines that can be measured beside ours, by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from draftproof.errors import ConfigError

if TYPE_CHECKING:
    from draftproof.engines.base import Engine
    from draftproof.engines.local import Speculator

ENGINES = {"hf-assisted": "draftproof.engines.hf_assisted"}
"""The module of each: its `beside(speculator)` returns its ways to write as `engines.base.Engine`s, its `conditions()`
what a reader of the figures should know. Named by its path, as what it needs takes seconds to import."""
ALONE = "draftproof"
"""What stands for no other engine."""


def check_engine(name: str) -> None:
    """Raise `ConfigError` for an engine that nobody knows."""
    if name not in (ALONE, *ENGINES):
        raise ConfigError(f"unknown engine {name!r}; choose one of {', '.join((ALONE, *ENGINES))}.")


def open_engine(name: str, speculator: Speculator) -> list[Engine]:
    """Return an engine's ways to write with the models of `speculator`, none for ours alone. Raises `ConfigError`."""
    found: list[Engine] = [] if name == ALONE else import_module(ENGINES[name]).beside(speculator)
    return found


def conditions_of(name: str) -> list[str]:
    """Return what a reader of an engine's figures should know."""
    found: list[str] = [] if name == ALONE else import_module(ENGINES[name]).conditions()
    return found
