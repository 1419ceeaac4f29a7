"""Does a pass over several tokens cost about what a pass over one costs? The claim about hardware, measured."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from draftproof.clock import Clock, DeviceClock
from draftproof.errors import ConfigError
from draftproof.models.load import Loaded
from draftproof.models.session import Session
from draftproof.results import PassTimes, PreconditionResult, Timing, read_machine
from draftproof.stats.trust import doubt_machine, doubt_spread

CONTEXT_TEXT = (
    "The ferry left the harbour a little after six, while the lamps along the quay were still burning. A few fishermen "
    "waved from the steps, and somebody's dog ran beside the boat until the wall ended. On deck it was cold. The "
    "passengers stood close together and watched the town become a line of lights, then a smear, then nothing at all. "
)


@dataclass(frozen=True, slots=True)
class Subject:
    """A model whose passes are timed."""

    session: Session
    text: Sequence[int]
    """At least `context` + the largest size tokens."""
    sizes: Sequence[int]


@dataclass(frozen=True, slots=True)
class Timed:
    """A model to be timed, what it is to the others, and the numbers of new tokens."""

    loaded: Loaded
    role: Literal["target", "draft"]
    sizes: Sequence[int]


def precondition(
    models: Sequence[Timed], *, context: int = 128, sweeps: int = 9, on_pass: Callable[[], None] = lambda: None
) -> PreconditionResult:
    """Return what passes of loaded models cost here, as `time_passes` measures them; `on_pass` is called behind each,
    `(sweeps + 1) *` all sizes times. Raises `ConfigError`.
    """
    subjects = [
        Subject(one.loaded.session(), context_tokens(one.loaded.tokenizer, context + max(one.sizes)), one.sizes)
        for one in models
    ]
    notes = [*doubt_machine(), *(note for one in models for note in one.loaded.told())]
    clock = DeviceClock(*(one.loaded.placement.device for one in models))
    timings = time_passes(subjects, clock, context=context, sweeps=sweeps, on_pass=on_pass)
    passes = tuple(
        PassTimes(one.loaded.name, one.role, one.loaded.placement, found)
        for one, found in zip(models, timings, strict=True)
    )
    notes += doubt_spread(
        (f"{times.role} in {times.placement.dtype}, {timing.tokens} tokens", timing.seconds)
        for times in passes
        for timing in times.timings
    )
    told = tuple(dict.fromkeys(notes))
    return PreconditionResult(machine=read_machine(), context=context, sweeps=sweeps, passes=passes, notes=told)


def time_passes(
    subjects: Sequence[Subject],
    clock: Clock,
    *,
    context: int,
    sweeps: int,
    seed: int = 0,
    on_pass: Callable[[], None] = lambda: None,
) -> list[tuple[Timing, ...]]:
    """Time one pass over n new tokens behind `context` tokens, for every subject and each of its sizes.

    Every sweep goes through all subjects and sizes in a new random order, so that a drift of the machine meets all of
    them alike. The first pass of each is its warm-up, kept apart. Raises `ConfigError` for sizes and contexts that the
    model's window cannot hold.
    """
    for subject in subjects:
        _check(subject, context)
    jobs = [(i, n) for i, subject in enumerate(subjects) for n in subject.sizes]
    seconds: dict[tuple[int, int], list[float]] = {job: [] for job in jobs}
    for subject in subjects:
        subject.session.begin((), context + max(subject.sizes))
        subject.session.read(subject.text[:context])
    order = random.Random(seed)
    for sweep in range(sweeps + 1):
        for i, n in jobs if sweep == 0 else order.sample(jobs, len(jobs)):
            sequence = subjects[i].text[: context + n]
            started = clock.now()
            subjects[i].session.read(sequence, last=n)
            seconds[i, n].append(clock.now() - started)
            on_pass()
    return [
        tuple(Timing(n, tuple(seconds[i, n][1:]), seconds[i, n][0]) for n in sorted(subject.sizes))
        for i, subject in enumerate(subjects)
    ]


def context_tokens(tokenizer: object, count: int) -> list[int]:
    """Return `count` token ids of plain prose, repeated as often as needed."""
    ids = [int(i) for i in tokenizer(CONTEXT_TEXT, add_special_tokens=False)["input_ids"]]  # type: ignore[operator]
    return (ids * (count // len(ids) + 1))[:count]


def _check(subject: Subject, context: int) -> None:
    if context < 1:
        raise ConfigError(f"context is {context}; at least one token must be in the cache.")
    if not subject.sizes or min(subject.sizes) < 1 or 1 not in subject.sizes:
        raise ConfigError(f"sizes are {list(subject.sizes)}; give positive numbers, 1 among them, to compare with.")
    window, needed = subject.session.window, context + max(subject.sizes)
    if window is not None and needed > window:
        raise ConfigError(
            f"context + largest size is {needed} tokens and the model's window holds {window}; lower one of them."
        )
