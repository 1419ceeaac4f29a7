"""Traces: the target's own texts, and what each proposer would have guessed at every place of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from draftproof.errors import ResultError
from draftproof.options import Options
from draftproof.records import Machine, Placement
from draftproof.results import write_bytes

TRACE_VERSION = 2


@dataclass(frozen=True, slots=True)
class Offer:
    """What a proposer guesses behind one place of a text when it is asked for as much as it is ever asked for."""

    tokens: tuple[int, ...]
    confidence: tuple[float, ...] = ()
    """For each guess how likely the proposer held it; empty where it does not say."""
    passes: int = 0
    """Draft passes that it took; asked for fewer guesses, it takes no more passes than that."""


@dataclass(frozen=True, slots=True)
class Told:
    """One proposer on one text."""

    offers: tuple[Offer, ...]
    """One for each token of the text: what was guessed in its place; empty where guesses are drawn."""
    prompt_s: float = 0.0
    """Seconds that it took over the prompt."""
    ranks: tuple[int, ...] = ()
    """For each token of the text how many tokens the draft held likelier; empty where it does not say."""
    odds: tuple[float, ...] = ()
    """Where guesses are drawn: for each token of the text how much likelier than the target the draft held it."""


@dataclass(frozen=True, slots=True)
class Text:
    """One text of the target, written plainly, or given."""

    workload: str
    prompt: int
    """Index of the prompt in its workload."""
    prompt_tokens: int
    tokens: tuple[int, ...]
    beyond: tuple[int, ...]
    """What the target goes on with behind a stop string, as far as guesses may reach."""
    limit: int
    """Tokens that it was allowed to have."""
    prompt_s: float
    """Seconds in which the target read the prompt."""
    drafts: Mapping[str, Told]


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured round of the loop, as it ran: what a round of so many guesses costs."""

    guesses: int
    draft_passes: int
    draft_s: float
    target_s: float
    overhead_s: float
    padded: int | None = None
    """Tokens that the target's pass was padded to, where passes are padded: then every round of a k costs alike."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything that replaying needs."""

    machine: Machine
    target: str
    target_placement: Placement
    depth: int
    """Guesses that were asked for at every place: no k above it can be replayed."""
    options: Options
    texts: tuple[Text, ...]
    plain: tuple[Sample, ...]
    """Rounds of plain decoding as fast as it goes there."""
    rounds: Mapping[str, tuple[Sample, ...]]
    """Rounds of every draft, at every number of guesses, measured in turns with the plain ones."""
    wide: Mapping[str, tuple[tuple[int, float], ...]] = field(default_factory=dict)
    """Tokens and seconds of passes over many tokens, of the target and of the drafts by their names, if measured."""
    notes: tuple[str, ...] = ()
    created: str = ""
    version: int = TRACE_VERSION
    kind: str = field(default="trace", init=True)


_HEAD, _TEXT = TypeAdapter(Trace), TypeAdapter(Text)


def write_trace(trace: Trace, path: Path) -> None:
    """Write a trace as compressed JSON lines: all but the texts first, then a line for each. Raises `ResultError`."""
    head: dict[str, Any] = _HEAD.dump_python(trace, mode="json")
    texts = head.pop("texts")
    lines = "".join(json.dumps(one, allow_nan=False, separators=(",", ":")) + "\n" for one in [head, *texts])
    write_bytes(gzip.compress(lines.encode(), mtime=0), path)


def read_trace(path: Path) -> Trace:
    """Read what `write_trace` wrote. Raises `ResultError`."""
    where = repr(str(path))
    try:
        head, *texts = (json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines())
        if head.get("kind") != "trace":
            raise ResultError(f"{where} is not a trace.")
        if head["version"] > TRACE_VERSION:
            newer = f"{where} has version {head['version']}, this draftproof reads up to {TRACE_VERSION}"
            raise ResultError(f"{newer}; upgrade draftproof.")
        return _HEAD.validate_python({**head, "texts": texts})
    except OSError as error:
        raise ResultError(f"cannot read {where}: {error.strerror or 'it is no compressed trace'}.") from error
    except (ValueError, KeyError, EOFError, AttributeError, ValidationError) as error:
        raise ResultError(f"{where} is not a trace: {str(error).splitlines()[0]}") from error
