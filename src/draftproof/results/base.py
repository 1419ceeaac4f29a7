"""What every results file says of itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version

from draftproof.records import Machine

SCHEMA_VERSION = 3


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What every result says of itself."""

    machine: Machine
    notes: tuple[str, ...] = ()
    """What a reader should know, such as a reason not to trust a number."""
    schema_version: int = SCHEMA_VERSION
    draftproof: str = field(default_factory=lambda: version("draftproof"))
    created: str = field(default_factory=_now)
