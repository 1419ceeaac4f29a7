"""The same texts on another machine: the models' agreement from here, what passes cost from there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean

from draftproof.errors import ConfigError
from draftproof.forecast.trace import Sample, Trace
from draftproof.results import PassTimes, PreconditionResult


def priced_there(trace: Trace, costs: PreconditionResult) -> Trace:
    """Return a trace whose rounds cost what `draftproof precondition` measured on another machine.

    The target's passes are those of its first target, a draft's those of the draft of its name, or of the only one. A
    draft without passes costs what it costs here, and so does everything but the passes; prompts, whose reading was not
    measured there, cost nothing. Raises `ConfigError` where passes of a draft, or over several tokens, are missing.
    """
    target = next((one for one in costs.passes if one.role == "target"), None)
    if target is None or len(target.timings) < 2:
        raise ConfigError(
            "the costs hold no passes of a target over several tokens; measure with draftproof precondition."
        )
    curve = [(timing.tokens, seconds) for timing in target.timings for seconds in timing.seconds]
    overhead_s = fmean(one.overhead_s for one in trace.plain) if trace.plain else 0.0
    plain = tuple(Sample(0, 0, 0.0, seconds, overhead_s) for tokens, seconds in curve if tokens == 1)
    rounds = {}
    for name, here in trace.rounds.items():
        walks = any(one.draft_passes for one in here)
        passes = _draft_of(costs.passes, name) if walks else [0.0]
        busy = [one for one in here if one.guesses]
        rest_s = fmean(one.overhead_s for one in busy) if busy else 0.0
        free_s = fmean(one.draft_s / one.guesses for one in busy) if busy and not walks else 0.0
        rounds[name] = tuple(
            Sample(n - 1, (n - 1) * walks, (n - 1) * (one_s + free_s), seconds, rest_s if n > 1 else overhead_s)
            for (n, seconds), one_s in product(curve, passes)
        )
    texts = tuple(
        replace(text, prompt_s=0.0, drafts={n: replace(told, prompt_s=0.0) for n, told in text.drafts.items()})
        for text in trace.texts
    )
    there = (f"passes cost as on {costs.machine.cpu or 'another machine'}", "prompts' reading is left out")
    return replace(
        trace,
        machine=costs.machine,
        target_placement=target.placement,
        plain=plain,
        rounds=rounds,
        texts=texts,
        notes=(*trace.notes, "; ".join(there)),
    )


def _draft_of(passes: Sequence[PassTimes], name: str) -> list[float]:
    drafts = [one for one in passes if one.role == "draft"]
    mine = [one for one in drafts if one.model == name] or (drafts if len(drafts) == 1 else [])
    found = [seconds for one in mine[:1] for timing in one.timings if timing.tokens == 1 for seconds in timing.seconds]
    if not found:
        raise ConfigError(f"the costs hold no passes of the draft {name!r}; draftproof precondition takes a draft too.")
    return found
