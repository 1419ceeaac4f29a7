"""How fast at which k, and on which text? Every prompt is written by all arms, turn by turn, several times."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from draftproof.bench.race import Race, finish, prove
from draftproof.decode.divergence import same_text
from draftproof.engines.hf_assisted import HfAssisted
from draftproof.engines.local import Speculator
from draftproof.engines.stream import Stream
from draftproof.errors import DraftproofError
from draftproof.options import Options
from draftproof.records import Generation
from draftproof.results import Cell, PeerCell, Workload


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to write: a pair as it was opened, or its target alone. Arms share models and nothing else."""

    speculator: Speculator
    draft: str | None
    """None for plain decoding."""

    @property
    def k(self) -> int:
        """The guesses of a round that it really asks for."""
        return 0 if self.draft is None else self.speculator.k


@dataclass(slots=True)
class _Group:
    """What was measured of one prompt so far, arm by arm."""

    generations: list[list[Generation]]
    errors: dict[int, str] = field(default_factory=dict)


def measure(
    arms: Sequence[Arm],
    workload: Workload,
    prompt: int,
    options: Options,
    *,
    repeats: int,
    peers: Sequence[HfAssisted] = (),
    on_repeat: Callable[[], None] = lambda: None,
) -> tuple[list[Cell], list[PeerCell]]:
    """Write one prompt with all arms, `repeats` times; the first arm must be plain decoding.

    Every repeat of a sampled text is another sample of the same seed, the same one for all arms. Peers, which cannot be
    interrupted, take their turns between the races. An arm that fails leaves its error in its
    cell and does not stop the others.
    """
    assert arms[0].draft is None
    options = options.seeded()
    order = list(range(len(arms)))
    random.Random(f"{workload.name} {prompt}").shuffle(order)
    first = crc32(f"{workload.name} {prompt}".encode())  # texts of different prompts share no stream of chance
    group = _Group([[] for _ in arms])
    theirs: list[list[tuple[tuple[int, ...], float]]] = [[] for _ in peers]
    failed: dict[int, str] = {}
    ids: list[int] = []
    try:
        ids = arms[0].speculator.encode(workload.prompts[prompt], chat=workload.chat)
    except Exception as error:
        group.errors = dict.fromkeys(range(len(arms)), _message(error))
    window = arms[0].speculator.target_window
    limit = options.max_new_tokens if window is None else min(options.max_new_tokens, window - len(ids))
    for repeat in range(repeats if ids else 0):
        order.reverse()  # who begins pays for a cold start, so they take turns at that too
        _race(arms, group, ids, options, order, (first + repeat) % 2**32)
        for i in range(len(peers)) if repeat % 2 else reversed(range(len(peers))):
            if i not in failed and 0 not in group.errors:
                try:
                    theirs[i].append(peers[i].generate(ids, limit))
                except Exception as error:  # another engine may raise anything, and must not end the bench
                    failed[i] = _message(error)
        on_repeat()
    cells = [_cell(arm, i, group, ids, workload, prompt, options) for i, arm in enumerate(arms)]
    plain = cells[0].generations[0].tokens if cells[0].generations else None
    peer_cells = [
        PeerCell(
            workload=workload.name,
            prompt=prompt,
            engine=peer.name,
            seconds=tuple(seconds for _, seconds in runs),
            tokens=tuple(tokens for tokens, _ in runs),
            identical=all(tokens == plain for tokens, _ in runs) if runs else None,
            error=failed.get(i),
        )
        for i, (peer, runs) in enumerate(zip(peers, theirs, strict=True))
    ]
    return cells, peer_cells


def _race(
    arms: Sequence[Arm], group: _Group, ids: Sequence[int], options: Options, order: Sequence[int], sample: int
) -> None:
    streams: dict[str, Stream] = {}
    for i in order:
        if i not in group.errors:
            try:
                k = 0 if arms[i].draft is None else None
                arms[i].speculator.forget()
                streams[str(i)] = arms[i].speculator.stream(ids, options, k=k, bare=k == 0, sample=sample)
            except Exception as error:  # whatever stops one arm, the others go on
                group.errors[i] = _message(error)
    race = Race(streams, tolerant=True)
    finish(race)
    group.errors |= {int(i): _message(error) for i, error in race.errors.items()}
    for name, stream in streams.items():
        if int(name) not in group.errors:
            group.generations[int(name)].append(stream.generation)


def _cell(
    arm: Arm, i: int, group: _Group, ids: Sequence[int], workload: Workload, prompt: int, options: Options
) -> Cell:
    made, plain = group.generations[i], group.generations[0]
    divergence = None
    identical: bool | None = None
    if made and plain and arm.draft is not None and options.same_text:
        pairs = list(zip(made, plain, strict=False))
        twins = [prove(arm.speculator, ids, one, twin, options) for one, twin in pairs]
        differing = [(one, twin) for one, twin in zip(made, twins, strict=False) if not same_text(one, twin)]
        identical = not differing
        if differing:
            divergence = arm.speculator.attribute(ids, *differing[0], options)
    return Cell(
        workload=workload.name,
        prompt=prompt,
        draft=arm.draft,
        k=arm.k,
        generations=tuple(made),
        identical=identical,
        divergence=divergence,
        error=group.errors.get(i),
    )


def _message(error: Exception) -> str:
    name = "" if isinstance(error, DraftproofError) else f"{type(error).__name__}: "
    return (name + str(error)).splitlines()[0]
