"""Which draft for this target? Each at one k, then each at the k that its own figures forecast as best."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

from draftproof import cost
from draftproof.bench.precondition import Subject, context_tokens, time_passes
from draftproof.bench.turns import measure
from draftproof.engines.base import Engine
from draftproof.engines.local import Speculator
from draftproof.engines.ours import Ours
from draftproof.errors import ConfigError, DraftproofError
from draftproof.models.load import Loaded
from draftproof.options import Options
from draftproof.results import Cell, DraftFacts, DraftsResult, PassTimes, Workload, read_machine
from draftproof.stats.passes import cost_curve
from draftproof.stats.trust import doubt_machine

SIZES = (1, 2, 3, 4, 5, 7, 9, 13, 17)
CONTEXT = 64
SWEEPS = 5
MOST = 16
"""The largest k that a draft is forecast at."""


def compare_drafts(
    target: Loaded,
    drafts: Sequence[str],
    load: Callable[[str], Loaded],
    workload: Workload,
    *,
    k: int = 5,
    options: Options | None = None,
    repeats: int = 3,
    numerics: str = "auto",
    on_stage: Callable[[str], None] = lambda stage: None,
) -> Iterator[DraftsResult]:
    """Compare drafts for `target`, and yield what is known after every stage: the last result is whole.

    `load` opens a draft by its name; one that does not load or fit is left out, and its reason told. `on_stage` hears
    what is done next, in words. Raises `ConfigError` if no draft can be used.
    """
    options = options or Options(max_new_tokens=64, seed=0)
    pairs, failed = _pair_up(target, drafts, load, k, numerics)
    on_stage("timing passes")
    curve, pass_s = _time_models(target, pairs)
    notes = [*doubt_machine(), *(note for pair in pairs.values() for note in pair.notes)]
    result = DraftsResult(
        machine=read_machine(),
        target=target.name,
        target_placement=target.placement,
        k=k,
        options=options,
        repeats=repeats,
        workload=workload,
        curve=curve,
        facts=tuple(failed),
        cells=(),
        best_cells=(),
        numerics=numerics,
        notes=tuple(dict.fromkeys(notes)),
    )
    on_stage(f"writing with every draft at k = {k}")
    cells = _write(target, pairs, workload, options, repeats)
    measured = cost_curve(curve)
    facts = [_facts(name, pair, cells[name], cells[None], measured, pass_s[name]) for name, pair in pairs.items()]
    result = replace(result, facts=(*facts, *failed), cells=_flat(cells))
    yield result
    best = {f.draft: pairs[f.draft].at(f.best_k) for f in facts if f.best_k}
    if best:
        on_stage("writing with every draft at its own best k")
        yield replace(result, best_cells=_flat(_write(target, best, workload, options, repeats)))


def _pair_up(
    target: Loaded, names: Sequence[str], load: Callable[[str], Loaded], k: int, numerics: str
) -> tuple[dict[str, Speculator], list[DraftFacts]]:
    """Load every draft and pair it with the target; return the pairs, and the reasons of those that do not fit."""
    pairs, failed = {}, []
    for name in names:
        try:
            pairs[name] = Speculator(target, load(name), k, numerics=numerics)
        except DraftproofError as error:
            failed.append(DraftFacts(name, None, str(error)))
    if not pairs:
        raise ConfigError("none of the drafts can be used: " + " / ".join(f"{f.draft}: {f.error}" for f in failed))
    return pairs, failed


def _time_models(target: Loaded, pairs: Mapping[str, Speculator]) -> tuple[PassTimes, dict[str, float]]:
    """Return the target's cost curve, and the seconds of one pass of every draft, measured in turns."""
    models = [target, *(p.draft for p in pairs.values() if p.draft is not None)]
    sizes = [SIZES if model is target else (1,) for model in models]
    sessions = [model.session() for model in models]
    room = [s.window - max(ns) for s, ns in zip(sessions, sizes, strict=True) if s.window is not None]
    context = max(1, min([CONTEXT, *room]))
    subjects = [
        Subject(session, context_tokens(model.tokenizer, context + max(ns)), ns)
        for session, model, ns in zip(sessions, models, sizes, strict=True)
    ]
    first = next(iter(pairs.values()))
    timings = time_passes(subjects, first.clock, context=context, sweeps=SWEEPS)
    curve = PassTimes(target.name, "target", target.placement, timings[0])
    return curve, {name: median(t[0].seconds) for name, t in zip(pairs, timings[1:], strict=True)}


def _write(
    target: Loaded, pairs: Mapping[str, Speculator], workload: Workload, options: Options, repeats: int
) -> dict[str | None, list[Cell]]:
    """Write every prompt plainly and with every draft, in turns; return the cells by draft, plain ones under None."""
    plain = Ours(Speculator(target), plain=True)
    engines: list[Engine] = [Ours(pair) for pair in pairs.values()]
    for engine in (plain, *engines):
        engine.warm_up()
    found: dict[str | None, list[Cell]] = {name: [] for name in (None, *pairs)}
    for prompt in range(len(workload.prompts)):
        cells = measure(plain, engines, workload, prompt, options, repeats=repeats)
        for name, cell in zip(found, cells, strict=True):
            found[name].append(cell)
    return found


def _flat(cells: Mapping[str | None, Sequence[Cell]]) -> tuple[Cell, ...]:
    return tuple(cell for of_one_prompt in zip(*cells.values(), strict=True) for cell in of_one_prompt)


def _facts(
    name: str, pair: Speculator, cells: Sequence[Cell], plain: Sequence[Cell], curve: cost.CostCurve, pass_s: float
) -> DraftFacts:
    """Return what a draft is here, and the k with the best forecast from its agreement and the measured costs."""
    rounds = [r for c in cells for g in c.generations for r in g.rounds]
    plain_rounds = [r for c in plain for g in c.generations for r in g.rounds]
    alpha = cost.agreement(rounds)
    overheads = [median([r.overhead_s for r in found] or [0.0]) for found in (rounds, plain_rounds)]
    in_the_loop = [r.draft_s / r.draft_passes for r in rounds if r.draft_passes]
    pass_s = median(in_the_loop) if in_the_loop else pass_s  # beside the target, as it will be used
    best = None if alpha is None else cost.best_k(alpha, curve, pass_s, range(1, MOST + 1), *overheads)
    return DraftFacts(
        draft=name,
        placement=None if pair.draft is None else pair.draft.placement,
        error=next((c.error for c in cells if c.error), None),
        pass_s=pass_s,
        c=pass_s / curve.at(1),
        agreement=alpha,
        best_k=best,
    )
