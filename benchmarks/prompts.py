"""How fast prompts are read: tokens a second, compiled and through transformers, in turns. `make prompts`."""

from __future__ import annotations

import argparse
import random
import time
from collections import defaultdict
from statistics import median

from draftproof.models.load import load
from draftproof.models.session import ModelSession

LENGTHS = (128, 512, 2048)


def main() -> None:
    """Measure, and print a line for each length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="hub name or folder")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--weights", default=None)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    loaded = load(options.model, dtype=options.dtype, weights=options.weights, compile="on", keep_weights=True)
    sessions = {"compiled": loaded.session(), "transformers": ModelSession(loaded.model)}
    rng = random.Random(0)
    longest = min(max(LENGTHS), (loaded.session().window or max(LENGTHS)) - 1)
    text = [rng.randrange(loaded.session().width // 2) for _ in range(longest)]
    seconds: dict[tuple[str, int], list[float]] = defaultdict(list)
    jobs = [(name, n) for name in sessions for n in LENGTHS if n <= longest]
    for _ in range(options.repeats):
        for name, n in rng.sample(jobs, len(jobs)):
            session = sessions[name]
            session.forget()
            session.begin((), n)
            started = time.perf_counter()
            session.read(text[:n])
            seconds[name, n].append(time.perf_counter() - started)
    print(f"{'tokens':>8}{'compiled, a second':>22}{'transformers':>16}{'ratio':>8}")
    for n in dict.fromkeys(n for _, n in jobs):
        ours, theirs = (n / median(seconds[name, n]) for name in sessions)
        print(f"{n:>8}{ours:>22.0f}{theirs:>16.0f}{ours / theirs:>8.2f}")


if __name__ == "__main__":
    main()
