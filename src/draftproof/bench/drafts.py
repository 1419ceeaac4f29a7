"""Which draft for this target? Each at one k, then each at the k that its own figures forecast as best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from draftproof import cost
from draftproof.bench.precondition import Subject, context_tokens, time_passes
from draftproof.bench.sweep import Arm, measure
from draftproof.engines.local import Speculator
from draftproof.errors import ConfigError, DraftproofError
from draftproof.models.load import Loaded
from draftproof.options import Options
from draftproof.results import Cell, DraftFacts, PassTimes, Workload

SIZES = (1, 2, 3, 4, 5, 7, 9, 13, 17)
CONTEXT = 64
SWEEPS = 5


def pair_up(
    target: Loaded, names: Sequence[str], load: Callable[[str], Loaded], k: int, numerics: str = "fast"
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


def time_models(target: Loaded, pairs: dict[str, Speculator]) -> tuple[PassTimes, dict[str, float]]:
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


def measure_at(
    target: Loaded,
    pairs: dict[str, Speculator],
    ks: dict[str, int],
    workload: Workload,
    options: Options,
    *,
    repeats: int,
    numerics: str = "fast",
) -> list[Cell]:
    """Write every prompt plainly and with every draft at its k, in turns."""
    arms = [Arm(Speculator(target), None)]
    arms += [Arm(Speculator(target, pairs[name].draft, k, numerics=numerics), name) for name, k in ks.items()]
    for arm in arms:
        arm.speculator.warm_up()
    cells: list[Cell] = []
    for prompt in range(len(workload.prompts)):
        found, _ = measure(arms, workload, prompt, options, repeats=repeats)
        cells += found
    return cells


def facts(
    name: str, pair: Speculator, cells: Sequence[Cell], curve: cost.CostCurve, pass_s: float, max_k: int = 16
) -> DraftFacts:
    """Return what a draft is here, and the k with the best forecast from its agreement and the measured costs."""
    made = [g for c in cells if c.draft == name for g in c.generations]
    rounds = [r for g in made for r in g.rounds]
    alpha = cost.agreement(rounds)
    plain = [r.overhead_s for c in cells if c.draft is None for g in c.generations for r in g.rounds]
    overhead_s, plain_overhead_s = (median(found or [0.0]) for found in ([r.overhead_s for r in rounds], plain))
    in_the_loop = [r.draft_s / r.draft_passes for r in rounds if r.draft_passes]
    pass_s = median(in_the_loop) if in_the_loop else pass_s  # beside the target, as it will be used
    return DraftFacts(
        draft=name,
        placement=None if pair.draft is None else pair.draft.placement,
        error=next((c.error for c in cells if c.draft == name and c.error), None),
        pass_s=pass_s,
        c=pass_s / curve.at(1),
        agreement=alpha,
        best_k=None
        if alpha is None
        else cost.best_k(alpha, curve, pass_s, range(1, max_k + 1), overhead_s, plain_overhead_s),
    )
