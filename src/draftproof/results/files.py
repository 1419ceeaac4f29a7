"""Results files: versioned JSON that holds every raw value, and never NaN or Infinity."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from draftproof.errors import ResultError
from draftproof.records import Generation
from draftproof.results.base import SCHEMA_VERSION
from draftproof.results.kinds import AnyResult
from draftproof.results.versions import upgrade

_ADAPTER: TypeAdapter[AnyResult] = TypeAdapter(Annotated[AnyResult, Field(discriminator="kind")])
_HEAD = ("schema_version", "kind", "draftproof", "created", "machine")
_GENERATION_FIELDS = tuple(f.name for f in dataclasses.fields(Generation))


def to_json(result: AnyResult) -> str:
    """Return the result as JSON text."""
    data: dict[str, Any] = _ADAPTER.dump_python(result, mode="json")
    inner = data.pop("generation", {})
    return json.dumps(
        {key: data.pop(key) for key in _HEAD} | inner | data, indent=1, allow_nan=False, ensure_ascii=False
    )


def from_json(text: str) -> AnyResult:
    """Read what `to_json` wrote. Raises `ResultError`."""
    try:
        data = json.loads(text)
        if data["schema_version"] > SCHEMA_VERSION:
            raise ResultError(
                f"the file has schema version {data['schema_version']}, this draftproof reads up to {SCHEMA_VERSION}; "
                "upgrade draftproof."
            )
        upgrade(data)
        if data["kind"] == "run":
            data["generation"] = {name: data.pop(name) for name in _GENERATION_FIELDS if name in data}
        return _ADAPTER.validate_python(data)
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise ResultError(f"this is not a draftproof result: {str(error).splitlines()[0]}") from error


def check_writable(path: Path) -> None:
    """Raise `ResultError` if a result could not be written to `path`; called before the work, so that none is lost."""
    path = path.resolve()
    if path.is_dir():
        raise ResultError(f"{str(path)!r} is a folder; give a file name.")
    if not path.parent.is_dir():
        raise ResultError(f"the folder {str(path.parent)!r} does not exist; make it first.")
    places = [path] if _is_special(path) else [path.parent, *([path] if path.exists() else [])]
    if not all(os.access(place, os.W_OK) for place in places):
        raise ResultError(f"{str(path)!r} cannot be written here; choose another place.")


def write(result: AnyResult, path: Path) -> None:
    """Write the result to `path`; an older file there stays whole until the new one is. Raises `ResultError`."""
    write_text(to_json(result) + "\n", path)


def write_text(text: str, path: Path) -> None:
    """Write `text` as UTF-8, as `write` does. Raises `ResultError`."""
    write_bytes(text.encode(), path)


def write_bytes(data: bytes, path: Path) -> None:
    """Write `data`, as `write` does. Raises `ResultError`."""
    path = path.resolve()
    try:
        if _is_special(path):
            path.write_bytes(data)
            return
        part = path.with_name(path.name + ".part")
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        raise ResultError(f"cannot write {str(path)!r}: {error.strerror}") from error


def _is_special(path: Path) -> bool:
    """Whether something other than a file stands there, such as a pipe: it is written to, not replaced."""
    return path.exists() and not path.is_file()
