"""The engines' door: what writes a prompt in some way of its own, so that a bench can set it beside others."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from draftproof.answers import Answer, Reply, same_answer
from draftproof.options import Options
from draftproof.records import Divergence, Generation
from draftproof.results import Arm

Writing: TypeAlias = Generator[int, None, Generation | Reply]
"""A text that is being written: it yields how many tokens came since it yielded last, rests until it is asked again,
and returns its answer. What cannot rest yields once, at its end."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What every engine is given to continue."""

    text: str
    chat: bool
    """Whether the text is a message that goes through the chat template."""
    ids: tuple[int, ...]
    """The same as the target's tokenizer and template make it."""


class Engine:
    """One way to write. A subclass sets `arm`, and writes."""

    arm: Arm

    def warm_up(self) -> None:
        """Pay first-time costs, so that none fall into what is measured."""

    def write(self, prompt: Prompt, options: Options, sample: int) -> Writing:
        """Write sample `sample` of a request with `options`; its errors end this text and no other."""
        raise NotImplementedError

    def compare(
        self, prompt: Prompt, options: Options, mine: Sequence[Answer], plain: Sequence[Answer]
    ) -> tuple[bool | None, Divergence | None]:
        """Return whether every text is its plain twin's, None where there is nothing to compare; and where one parts,
        if the engine can say.
        """
        pairs = list(zip(mine, plain, strict=False))
        if not pairs or not options.same_text:
            return None, None
        return all(same_answer(*pair) for pair in pairs), None
