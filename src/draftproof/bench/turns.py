"""Several ways to write one prompt, turn by turn in one process, several times over."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar
from zlib import crc32

from draftproof.answers import Reply
from draftproof.engines.base import Engine, Prompt, Writing
from draftproof.engines.ours import Ours
from draftproof.errors import DraftproofError
from draftproof.options import Options
from draftproof.records import Generation
from draftproof.results import Cell, Workload

Key = TypeVar("Key")
Step = TypeVar("Step")


def take_turns(
    running: Mapping[Key, Iterator[Step]],
    spent: Callable[[Step], float],
    on_error: Callable[[Key, Exception], None] | None = None,
) -> Iterator[tuple[Key, Step]]:
    """Yield every step of all iterators, always from the one that spent least so far, so that a drifting machine meets
    all of them alike. With `on_error` one that raises is told of and the others go on.
    """
    left, totals = dict(running), dict.fromkeys(running, 0.0)
    while left:
        key = min(left, key=lambda one: totals[one])
        try:
            step = next(left[key])
        except StopIteration:
            del left[key]
            continue
        except Exception as error:
            if on_error is None:
                raise
            on_error(key, error)
            del left[key]
            continue
        totals[key] += spent(step)
        yield key, step


def measure(
    plain: Ours,
    others: Sequence[Engine],
    workload: Workload,
    prompt: int,
    options: Options,
    *,
    repeats: int,
    on_repeat: Callable[[], None] = lambda: None,
) -> list[Cell]:
    """Write one prompt plainly and with all other engines, `repeats` times; return a cell of each, plain first.

    Every repeat of a sampled text is another sample of the same seed, the same one for all. An engine that fails leaves
    its error in its cell and does not stop the others.
    """
    assert plain.arm.plain
    engines: list[Engine] = [plain, *others]
    options = options.seeded()
    order = list(range(len(engines)))
    random.Random(f"{workload.name} {prompt}").shuffle(order)
    first = crc32(f"{workload.name} {prompt}".encode())  # texts of different prompts share no stream of chance
    answers: list[list[Generation | Reply]] = [[] for _ in engines]
    errors: dict[int, str] = {}

    def failed(i: int, error: Exception) -> None:  # whatever stops one engine, the others go on
        errors[i] = _message(error)

    given: Prompt | None = None
    try:
        given = plain.prompt(workload.prompts[prompt], chat=workload.chat)
    except Exception as error:
        errors = dict.fromkeys(order, _message(error))
    for repeat in range(repeats if given else 0):
        assert given is not None
        order.reverse()  # who begins pays for a cold start, so they take turns at that too
        sample = (first + repeat) % 2**32
        texts = {i: _Text(engines[i].write(given, options, sample)) for i in order if i not in errors}
        for _ in take_turns({i: iter(text) for i, text in texts.items()}, float, failed):
            pass
        for i, text in texts.items():
            if text.answer is not None and i not in errors:
                answers[i].append(text.answer)
        on_repeat()
    cells = []
    for i, engine in enumerate(engines):
        identical, divergence = (None, None)
        if given is not None and i > 0:
            identical, divergence = engine.compare(given, options, answers[i], answers[0])
        made = tuple(answers[i])
        cells.append(Cell(workload.name, prompt, engine.arm, made, identical, divergence, errors.get(i)))
    return cells


class _Text:
    """A text that is being written, and its answer once it is."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self.answer: Generation | Reply | None = None

    def __iter__(self) -> Iterator[int]:
        self.answer = yield from self._writing


def _message(error: Exception) -> str:
    name = "" if isinstance(error, DraftproofError) else f"{type(error).__name__}: "
    return (name + str(error)).splitlines()[0]
