"""What passes over many tokens cost, for texts that are written at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import median

from draftproof.bench.precondition import Subject, time_passes
from draftproof.engines.local import Speculator
from draftproof.forecast.trace import Trace
from draftproof.models.load import Loaded

CONTEXT = 64
"""Tokens that stand before."""
SWEEPS = 3


def widened(trace: Trace, pairs: Mapping[str, Speculator], size: int, most: int) -> Trace:
    """Return a trace with passes for `size` texts at once and `most` guesses a round: of the target over all their
    tokens, of each draft over one of every text. They are timed in turns, over one text's tokens: attention of many
    short texts costs a little more than that.
    """
    first = next(iter(pairs.values()))
    subjects = {trace.target: _subject(first.target, size * (most + 1))}
    subjects |= {name: _subject(pair.draft, size) for name, pair in pairs.items() if pair.draft is not None}
    timings = time_passes(list(subjects.values()), first.clock, context=CONTEXT, sweeps=SWEEPS)
    wide = {
        name: tuple((one.tokens, median(one.seconds)) for one in found)
        for name, found in zip(subjects, timings, strict=True)
    }
    return replace(trace, wide=wide)


def _subject(loaded: Loaded, tokens: int) -> Subject:
    session = loaded.session()
    room = tokens if session.window is None else min(tokens, session.window - CONTEXT)
    sizes = [*(1 << i for i in range(room.bit_length()) if 1 << i < room), room]
    text = [i % session.width for i in range(CONTEXT + room)]  # what they read does not matter to passes
    return Subject(session, text, sizes)
