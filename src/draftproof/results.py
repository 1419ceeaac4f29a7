"""Results files: versioned JSON that holds every raw value, and never NaN or Infinity."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from pydantic import TypeAdapter, ValidationError

from draftproof.errors import ResultError
from draftproof.records import Divergence, Generation, Interval, Machine, Placement

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Recipe:
    """What was asked for."""

    target: str
    draft: str | None
    k: int
    prompt: str
    chat: bool
    max_new_tokens: int
    stop: tuple[str, ...]
    seed: int
    check: bool
    repeats: int
    target_placement: Placement
    draft_placement: Placement | None
    target_window: int | None
    """Most tokens the target can read; None when it sets no limit."""
    draft_window: int | None
    """The same for the draft, as lowered by an option."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """One `draftproof run`: the speculative generation, and plain decoding of the same prompt where it was checked.

    In the file the fields of `generation` stand at the top level: `text`, `tokens`, `finish_reason`, `rounds`, …
    """

    machine: Machine
    recipe: Recipe
    generation: Generation
    plain: Generation | None
    speedup: Interval | None
    """Plain seconds / speculative seconds over the whole request, all repeats; None when it was not measured."""
    divergence: Divergence | None
    repeats: tuple[tuple[Generation, Generation], ...] = ()
    """Further interleaved pairs (speculative, plain) that only served the timing."""
    notes: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION
    kind: str = "run"
    draftproof: str = version("draftproof")
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))


_ADAPTER = TypeAdapter(RunResult)
_GENERATION_FIELDS = tuple(f.name for f in dataclasses.fields(Generation))


def to_json(result: RunResult) -> str:
    """Return the result as JSON text."""
    data: dict[str, Any] = _ADAPTER.dump_python(result, mode="json")
    generation = data.pop("generation")
    head = ("schema_version", "kind", "draftproof", "created", "machine", "recipe")
    return json.dumps(
        {key: data[key] for key in head} | generation | {k: v for k, v in data.items() if k not in head},
        indent=1,
        allow_nan=False,
        ensure_ascii=False,
    )


def from_json(text: str) -> RunResult:
    """Read what `to_json` wrote. Raises `ResultError`."""
    try:
        data = json.loads(text)
        if data["schema_version"] > SCHEMA_VERSION:
            raise ResultError(
                f"the file has schema version {data['schema_version']}, this draftproof reads up to {SCHEMA_VERSION}; "
                "upgrade draftproof."
            )
        data["generation"] = {name: data.pop(name) for name in _GENERATION_FIELDS}
        return _ADAPTER.validate_python(data)
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise ResultError(f"this is not a draftproof run result: {str(error).splitlines()[0]}") from error


def check_writable(path: Path) -> None:
    """Raise `ResultError` if a result could not be written to `path`; called before the work, so that none is lost."""
    if path.is_dir():
        raise ResultError(f"{str(path)!r} is a folder; give a file name.")
    if not path.parent.is_dir():
        raise ResultError(f"the folder {str(path.parent)!r} does not exist; make it first.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ResultError(f"{str(path)!r} cannot be written here; choose another place.")


def write(result: RunResult, path: Path) -> None:
    """Write the result to `path`; an older file there stays whole until the new one is. Raises `ResultError`."""
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(to_json(result) + "\n", encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise ResultError(f"cannot write {str(path)!r}: {error.strerror}") from error


def read_machine() -> Machine:
    """Describe the machine this runs on."""
    import torch
    import transformers

    return Machine(
        cpu=_cpu_name(),
        cores=psutil.cpu_count(logical=False) or os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        torch=torch.__version__,
        transformers=transformers.__version__,
        threads=torch.get_num_threads(),
    )


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
