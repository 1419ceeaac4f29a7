"""Our own engine through the engines' door: a pair as it was opened, or its target alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from draftproof.answers import Answer
from draftproof.decode.divergence import same_text
from draftproof.engines.base import Engine, Prompt, Writing
from draftproof.engines.local import Speculator
from draftproof.engines.prompt import Messages
from draftproof.engines.request import seeded_as
from draftproof.options import Options
from draftproof.records import Divergence, Generation
from draftproof.results import Arm


class Ours(Engine):
    """A `Speculator` at the k it was opened with; or with `plain`, its target alone, as fast as that goes here.

    Engines of one target share its weights, and nothing else.
    """

    def __init__(self, speculator: Speculator, *, plain: bool = False) -> None:
        self.speculator = speculator.unpadded if plain else speculator
        self.arm = Arm() if plain else Arm(speculator.guesses_by, speculator.k, way=speculator.policy or "")

    def warm_up(self) -> None:
        """Run passes of the shapes that a request uses."""
        self.speculator.warm_up()

    def prompt(self, text: str | Messages, *, chat: bool) -> Prompt:
        """Return a text, or a conversation, as all engines are given it. Raises `ConfigError`."""
        if isinstance(text, str) or not isinstance(text[0], Mapping):
            return Prompt(str(text), chat, tuple(self.speculator.encode(text, chat=chat)))
        last = str(text[-1].get("content") or "")
        return Prompt(last, True, tuple(self.speculator.encode(messages=text)))

    def write(self, prompt: Prompt, options: Options, sample: int) -> Writing:
        """Write round by round, from nothing: no prompt is held from an earlier text."""
        self.speculator.forget()
        stream = self.speculator.stream(prompt.ids, options, k=0 if self.arm.plain else None, sample=sample)
        for chunk in stream:
            yield len(chunk.round.tokens)
        return stream.generation

    def compare(
        self, prompt: Prompt, options: Options, mine: Sequence[Answer], plain: Sequence[Answer]
    ) -> tuple[bool | None, Divergence | None]:
        """Compare to the last token, and say of the first text that differs where and why."""
        if not mine or not plain or not options.same_text or self.arm.plain:
            return None, None
        made, ours = cast("Sequence[Generation]", mine), cast("Sequence[Generation]", plain)
        for one, twin in zip(made, ours, strict=False):
            proof = prove(self.speculator, prompt.ids, one, twin, options)
            if not same_text(one, proof):
                return False, self.speculator.attribute(prompt.ids, one, proof, options)
        return True, None


def prove(
    speculator: Speculator,
    prompt: Sequence[int],
    speculative: Generation,
    plain: Generation,
    options: Options | None = None,
) -> Generation:
    """Return what the speculative text has to equal: `plain`, or under padded numerics its padded twin."""
    if speculator.numerics.shape is None or same_text(speculative, plain):
        return plain
    wanted = seeded_as(speculative, options)
    return speculator.generate(prompt, wanted, k=0, sample=speculative.sample)
