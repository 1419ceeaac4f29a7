"""How fast at which k, and on which text? Every prompt is written by all arms, turn by turn, several times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from draftproof.bench import turns
from draftproof.bench.engines import conditions_of, open_engine
from draftproof.bench.plan import Plan
from draftproof.engines.local import Speculator
from draftproof.engines.ours import Ours
from draftproof.errors import ResultError
from draftproof.results import BenchResult, read_machine
from draftproof.stats.trust import doubt_machine


def run(
    plan: Plan,
    speculator: Speculator,
    old: BenchResult | None = None,
    *,
    where: str = "the result",
    on_start: Callable[[int], None] = lambda steps: None,
    on_repeat: Callable[[], None] = lambda: None,
) -> Iterator[BenchResult]:
    """Measure, and yield the result after every prompt: the last one is whole, and any earlier one can go on as `old`.

    `speculator` is the pair, opened at any k. The first that is yielded holds what was known before. `on_start` is
    told how many repeats there are to be written, and `on_repeat` is called behind each. Of `old` those prompts are
    written again that something failed on. Raises `ResultError` for an `old` from another machine.
    """
    result = _start(plan, speculator, old, where)
    plain = Ours(speculator, plain=True)
    arms = {k: Ours(speculator.at(k)) for k in sorted({*plan.ks, plan.k}, key=lambda k: (isinstance(k, str), k))}
    others = open_engine(plan.engine, arms[plan.k].speculator)
    for engine in (plain, *arms.values(), *others):
        engine.warm_up()
    failed = {(c.workload, c.prompt) for c in result.cells if c.error is not None}
    result = replace(result, cells=tuple(c for c in result.cells if (c.workload, c.prompt) not in failed))
    done = {(c.workload, c.prompt) for c in result.cells}
    jobs = [(i, w, p) for i, w in enumerate(plan.workloads) for p in range(len(w.prompts)) if (w.name, p) not in done]
    on_start(len(jobs) * plan.repeats)
    yield result
    for i, workload, prompt in jobs:
        mine = list(arms.values()) if i == 0 else [arms[plan.k]]
        told: dict[str, Any] = {"repeats": plan.repeats, "on_repeat": on_repeat}
        cells = turns.measure(plain, [*mine, *others], workload, prompt, plan.options, **told)
        result = replace(result, cells=(*result.cells, *cells))
        yield result


def _start(plan: Plan, speculator: Speculator, old: BenchResult | None, where: str) -> BenchResult:
    """Return the result to go on with."""
    asked = {f.name: getattr(plan, f.name) for f in fields(plan)}
    blank = BenchResult(
        machine=read_machine(),
        target_placement=speculator.target.placement,
        draft_placement=None if speculator.draft is None else speculator.draft.placement,
        **asked,
        by_rule=speculator.numerics.kind == "fixed",
        cells=(),
        notes=tuple(dict.fromkeys([*doubt_machine(), *conditions_of(plan.engine), *speculator.notes])),
    )
    if old is None:
        return blank
    here = {name: getattr(blank, name) for name in ("notes", "created", "draftproof")}
    old = replace(old, by_rule=blank.by_rule) if old.by_rule is None else old
    if replace(old, cells=(), **here) != blank:
        raise ResultError(
            f"{where} holds a measurement from another machine, device or number format; give another name."
        )
    return replace(old, notes=tuple(dict.fromkeys((*old.notes, *blank.notes))))
