"""How fast are so many texts at once, and up to how many does speculation pay?"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from draftproof.engines.batch import Batch, Text
from draftproof.engines.local import Speculator
from draftproof.engines.ours import Ours
from draftproof.errors import ConfigError
from draftproof.options import Options
from draftproof.results import BatchCell, BatchResult, Workload, read_machine
from draftproof.stats.trust import doubt_machine


def batches(
    speculator: Speculator,
    names: tuple[str, str],
    workloads: Sequence[Workload],
    options: Options,
    *,
    sizes: Sequence[int],
    ks: Sequence[int | str],
    repeats: int = 3,
    on_cell: Callable[[], None] = lambda: None,
) -> Iterator[BatchResult]:
    """Measure every size at every k and plainly, in turns of another order each time; yield the result after every
    repeat. `names` are what target and draft are called.

    `size` texts are written at once, after the workloads' prompts in turn, from the beginning if they are fewer; the
    clock runs from when every text has its first token until the last has ended. Raises `ConfigError`.
    """
    if repeats < 1 or not sizes or min(sizes) < 1:
        raise ConfigError("sizes and repeats must be at least 1.")
    options = options.seeded()
    prompts, refused = _encoded(speculator, workloads)
    prompts = [prompts[i % len(prompts)] for i in range(max(sizes))]
    arms = [(size, k) for size in sorted(set(sizes)) for k in dict.fromkeys((0, *ks))]
    cells = {arm: BatchCell(*arm, (), (), 0, 0, 0, identical=True) for arm in arms}
    warm = Batch(speculator)
    warm.warm_up(sorted({1, 2, 4, 8, *(size for size in sizes)}))
    alone = {tuple(ids): speculator.generate(ids, options, k=0).tokens for ids in prompts}
    result = BatchResult(
        machine=read_machine(),
        target=names[0],
        draft=names[1],
        target_placement=speculator.target.placement,
        draft_placement=None if speculator.draft is None else speculator.draft.placement,
        sizes=tuple(sorted(set(sizes))),
        ks=tuple(ks),
        workloads=tuple(workloads),
        options=options,
        repeats=repeats,
        cells=(),
        notes=tuple(dict.fromkeys([*doubt_machine(), *refused, *speculator.notes])),
    )
    order = random.Random(0)
    for _ in range(repeats):
        for size, k in order.sample(arms, len(arms)):
            batch = Batch(speculator, at_once=size, beside=512)
            batch.scheduler.pace, batch.scheduler.draft_pace = warm.scheduler.pace, warm.scheduler.draft_pace
            texts = [batch.add(ids, options, k=k) for ids in prompts[:size]]
            tokens, seconds = _write(batch, texts)
            made = [text.generation for text in texts]
            old = cells[size, k]
            cells[size, k] = replace(
                old,
                tokens=(*old.tokens, tokens),
                seconds=(*old.seconds, seconds),
                proposed=old.proposed + sum(one.counts.proposed for one in made),
                accepted=old.accepted + sum(one.counts.accepted for one in made),
                passes=batch.scheduler.counts.passes,
                identical=old.identical
                and all(one.tokens == alone[tuple(ids)] for one, ids in zip(made, prompts, strict=False)),
            )
            on_cell()
        result = replace(result, cells=tuple(cells.values()))
        yield result


def _encoded(speculator: Speculator, workloads: Sequence[Workload]) -> tuple[list[list[int]], list[str]]:
    """Return the ids of all prompts that can be written, and why others cannot. Raises `ConfigError` if none can."""
    encode, found, refused = Ours(speculator).prompt, [], []
    for workload in workloads:
        for prompt in workload.prompts:
            try:
                found.append(list(encode(prompt, chat=workload.chat).ids))
            except ConfigError as error:
                refused.append(f"{workload.name} is left out: {error}")
    if not found:
        raise ConfigError(refused[0] if refused else "there are no prompts.")
    return found, refused


def _write(batch: Batch, texts: Sequence[Text]) -> tuple[int, float]:
    """Write them all; return tokens and seconds from when each had its first."""
    clock = batch.speculator.clock
    while batch.busy and not all(text.over or text.generation.rounds for text in texts):
        batch.step()
    before, started = sum(len(text.generation.tokens) for text in texts), clock.now()
    while batch.busy:
        batch.step()
    for text in texts:
        if text.error is not None:
            raise text.error
    return sum(len(text.generation.tokens) for text in texts) - before, clock.now() - started
