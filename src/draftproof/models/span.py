"""A pass as data: what it reads for each request, and what it gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from draftproof.errors import ConfigError


class Cache(Protocol):
    """One request's keys and values, each in a slot; made by the runner whose passes write them."""

    def reserve(self, positions: int) -> None:
        """Expect a text of about this many tokens, and keep what lies in the slots below.

        Room is made as the text grows; what is far larger than expected is given back.
        """
        ...

    @property
    def capacity(self) -> int:
        """Slots that there is memory for."""
        ...

    @property
    def bytes(self) -> int:
        """Memory that it has."""
        ...

    @property
    def bytes_per_slot(self) -> int:
        """Memory that a slot takes; 0 where that is not known yet."""
        ...

    def copy(self, slots: int) -> Cache:
        """Return a cache of its own that holds the first so many slots."""
        ...

    def move(self, slots: Sequence[int], start: int) -> None:
        """Put what lies in `slots`, in their order, into the slots `start`, `start` + 1, …: of a tree the path that was
        kept, behind the text before."""
        ...


@dataclass(frozen=True, slots=True)
class Span:
    """What a pass reads for one request: `tokens`, written to the slots `start`, `start` + 1, … of its cache.

    What stands in the slots before `start` is the text before: seen by all tokens of the span, at positions that are
    its slots. Raises `ConfigError` for what contradicts itself.
    """

    cache: Cache
    tokens: Sequence[int]
    start: int
    last: int = 1
    """How many of the final rows of logits are wanted."""
    positions: Sequence[int] | None = None
    """One for each token, larger than its parent's and never below `start`. None: each is one behind its parent, which
    in a chain are the slots."""
    parents: Sequence[int] | None = None
    """Of a tree: the index of each token's parent within the span, -1 for the text before. A token sees the text
    before, its ancestors and itself. None: a chain."""
    states: bool = False
    """Whether the final hidden states of all tokens are wanted, behind the final norm."""

    def __post_init__(self) -> None:
        count = len(self.tokens)
        if not count or self.start < 0 or not 0 <= self.last <= count:
            raise ConfigError(f"a span of {count} tokens at {self.start} has no {self.last} rows of logits to give.")
        if self.parents is not None and (
            len(self.parents) != count or any(not -1 <= parent < i for i, parent in enumerate(self.parents))
        ):
            raise ConfigError(f"each token's parent stands before it in the span, or is -1; got {list(self.parents)}.")
        if self.positions is not None and (
            len(self.positions) != count or any(p <= self._above(i) for i, p in enumerate(self.positions))
        ):
            raise ConfigError(
                f"each token's position is behind its parent's, and none is below {self.start}; "
                f"got {list(self.positions)}."
            )

    @property
    def end(self) -> int:
        """The slot behind the last token's."""
        return self.start + len(self.tokens)

    def placed(self) -> Sequence[int]:
        """The position of each token."""
        if self.positions is not None:
            return self.positions
        if self.parents is None:
            return range(self.start, self.end)
        found: list[int] = []
        for parent in self.parents:
            found.append(found[parent] + 1 if parent >= 0 else self.start)
        return found

    def _above(self, i: int) -> int:
        assert self.positions is not None
        parent = i - 1 if self.parents is None else self.parents[i]
        return self.positions[parent] if parent >= 0 else self.start - 1


@dataclass(frozen=True, slots=True)
class Rows:
    """What a pass gives for one span."""

    logits: torch.Tensor
    """`[last, width]`"""
    states: torch.Tensor | None = None
    """`[tokens, hidden]`, if they were wanted."""


def refuse_shared(spans: Sequence[Span]) -> None:
    """Raise `ConfigError` where two spans of a pass stand on one cache: neither would know what the other wrote."""
    if len({id(span.cache) for span in spans}) < len(spans):
        raise ConfigError("two spans of one pass stand on one cache; each request needs its own.")
