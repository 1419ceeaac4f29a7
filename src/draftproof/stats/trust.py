"""Reasons not to trust a number, each with what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import psutil

from draftproof.records import Generation

SPREAD = 0.10
BUSY = 0.20


def spread(seconds: Sequence[float]) -> float:
    """Return the middle half's width over the median; of fewer than four values half their whole width."""
    if not seconds:
        return 0.0
    low, middle, high = np.percentile(seconds, [25, 50, 75])
    if len(seconds) < 4:
        low, high = min(seconds) / 2, max(seconds) / 2
    return float((high - low) / middle) if middle else 0.0


def doubt_spread(named: Iterable[tuple[str, Sequence[float]]]) -> list[str]:
    """Warn, in one sentence, about all named seconds that spread by more than a tenth of their median."""
    found = [f"{name} {wide:.0%}" for name, seconds in named if (wide := spread(seconds)) > SPREAD]
    if not found:
        return []
    return [f"times spread widely around their median ({', '.join(found)}); run it alone, or with more repeats"]


def doubt_machine() -> list[str]:
    """Warn about a machine that is busy, oversubscribed or slow by build; looks for a fifth of a second."""
    import torch

    warnings = []
    busy = psutil.cpu_percent(interval=0.2) / 100
    if busy > BUSY:
        warnings.append(f"other programs keep {busy:.0%} of the processors busy; close them and measure again")
    cores = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    if torch.get_num_threads() > cores:
        warnings.append(f"torch uses {torch.get_num_threads()} threads on {cores} cores; set OMP_NUM_THREADS={cores}")
    if torch.version.debug:
        warnings.append("this torch is a debug build; install a release build to measure")
    return warnings


def doubt_text(generation: Generation, asked: int) -> list[str]:
    """Warn about a text that ended early or runs in a loop: neither measures what was asked."""
    warnings = []
    if len(generation.tokens) < asked:
        warnings.append(f"the text ended after {len(generation.tokens)} of {asked} tokens; choose another prompt")
    return warnings + doubt_loop(generation)


def doubt_loop(generation: Generation) -> list[str]:
    """Warn about a text that runs in a loop."""
    if repetition(generation.tokens) <= 0.5:
        return []
    return ["more than half of the text repeats itself (4-grams); acceptance is flattered, vary the prompt"]


def repetition(tokens: Sequence[int]) -> float:
    """Return the fraction of 4-grams that occurred before, 0 for a text of fewer than 16 tokens."""
    grams = [tuple(tokens[i : i + 4]) for i in range(len(tokens) - 3)]
    return 1 - len(set(grams)) / len(grams) if len(tokens) >= 16 else 0.0
