"""What a bench of many texts at once says, as frozen records. docs/results-format.md describes them field by field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from draftproof.options import Options
from draftproof.records import Placement
from draftproof.results.base import Result
from draftproof.results.bench import Workload


@dataclass(frozen=True, slots=True)
class BatchCell:
    """So many texts at once, at one k."""

    size: int
    k: int | str
    """Guesses a round, 0 for plain decoding, or the policy that chooses them."""
    tokens: tuple[int, ...]
    """Of each repeat: tokens written once every text has its first."""
    seconds: tuple[float, ...]
    """What they took."""
    proposed: int
    accepted: int
    passes: int
    """Of the target, in the last repeat."""
    identical: bool
    """Whether all texts are those that plain decoding wrote one at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult(Result):
    """One bench of many texts at once."""

    target: str
    draft: str
    target_placement: Placement
    draft_placement: Placement | None
    sizes: tuple[int, ...]
    ks: tuple[int | str, ...]
    """Plain decoding is measured too."""
    workloads: tuple[Workload, ...]
    options: Options
    repeats: int
    cells: tuple[BatchCell, ...]
    kind: Literal["batch"] = "batch"
