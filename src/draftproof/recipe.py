"""A recipe: what `draftproof tune` found best, as a file that a person can read and every command can take."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit

from draftproof.errors import ConfigError
from draftproof.reading import read_text
from draftproof.settings import SETTINGS, check_settings

RECIPE_VERSION = 1
MODELS = ("target", "draft")


def read_recipe(path: Path | str) -> dict[str, Any]:
    """Return the settings of `Speculator` that a recipe holds, `target` among them. Raises `ConfigError`."""
    where = repr(str(path))
    try:
        data = tomllib.loads(read_text(Path(path), "the recipe in"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} is not TOML: {error}; draftproof tune writes recipes.") from error
    version, found = data.get("version"), data.get("speculator")
    if not isinstance(version, int) or not isinstance(found, dict) or "target" not in found:
        raise ConfigError(f"{where} is no recipe; it needs a version, and a target under [speculator].")
    if version > RECIPE_VERSION:
        raise ConfigError(f"{where} has version {version}, this draftproof reads {RECIPE_VERSION}; upgrade draftproof.")
    if unknown := next((name for name in found if name not in (*MODELS, *SETTINGS)), None):
        raise ConfigError(f"{where} holds {unknown!r}, which is no setting; leave it out.")
    if wrong := next((name for name in MODELS if not isinstance(found.get(name, ""), str)), None):
        raise ConfigError(f"{where}: {wrong} is {found[wrong]!r}; it must be a name.")
    try:
        check_settings(**{name: value for name, value in found.items() if name not in MODELS})
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    return found


def to_toml(
    settings: Mapping[str, Any],
    reasons: Sequence[str],
    evidence: Mapping[str, Any],
    elsewhere: Mapping[str, Mapping[str, str]],
) -> str:
    """Return a recipe's text: why, the settings, what was measured, and the same choice for other engines."""
    document = tomlkit.document()
    for reason in reasons:
        document.add(tomlkit.comment(reason))
    document.add("version", tomlkit.item(RECIPE_VERSION))
    chosen = tomlkit.table()
    for name, value in settings.items():
        if value is not None:
            chosen.add(name, tomlkit.item(value))
    document.add("speculator", chosen)
    document.add("evidence", tomlkit.item(_known(evidence)))
    document.add("elsewhere", tomlkit.item({name: dict(one) for name, one in elsewhere.items()}))
    return tomlkit.dumps(document)


def _known(value: Any) -> Any:
    """Return the same without what is not known: TOML has no word for it."""
    if isinstance(value, Mapping):
        return {name: _known(one) for name, one in value.items() if one is not None}
    return [_known(one) for one in value] if isinstance(value, list | tuple) else value
