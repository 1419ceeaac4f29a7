"""Memory over thousands of rounds, and at its peak. `make memory`.

What counts is memory of the process's own (RssAnon): pages of the weights' file that the system keeps while it has room
are given back when somebody needs them.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from pathlib import Path

from draftproof import Speculator

STATUS = Path("/proc/self/status")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="demo-target")
    parser.add_argument("--draft", default="demo-draft")
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--max-new-tokens", type=int, default=200)
    parser.add_argument("--compile", default="on", choices=("on", "off"))
    options = parser.parse_args()
    import torch
    import transformers  # noqa: F401

    torch.ones(1000, 1000) @ torch.ones(1000, 1000)
    before = _own()
    peak = [before]
    threading.Thread(target=_watch, args=(peak,), daemon=True).start()
    speculator = Speculator(options.target, options.draft, k=5, compile=options.compile)
    loaded = _own() - before
    assert speculator.draft is not None
    if options.compile == "on":
        models = (speculator.target, speculator.draft)
        weights = sum(m.decoder.held_bytes for m in models if m.decoder is not None)
        positions = speculator.target_window or 0
        print(f"weights {weights / 1e6:.0f} MB; own memory after loading {loaded / 1e6:.0f} MB, window {positions}")
    rounds, requests, series = 0, 0, []
    while rounds < options.rounds:
        generation = speculator.generate(f"Chapter {requests}. The", max_new_tokens=options.max_new_tokens)
        rounds += generation.counts.rounds
        requests += 1
        series.append((rounds, _own()))
    first = series[0][1]
    for done, own in series[:: max(1, len(series) // 10)]:
        print(f"after {done:>5} rounds: {own / 1e6:8.1f} MB ({100 * (own / first - 1):+.2f} %)")
    print(f"peak over what Python and torch held before: {(peak[0] - before) / 1e6:.0f} MB")
    drift = series[-1][1] / first - 1
    print(f"{rounds} rounds in {requests} requests: {100 * drift:+.2f} %")
    sys.exit(0 if abs(drift) <= 0.01 else 1)


def _own() -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


def _watch(peak: list[int]) -> None:
    while True:
        peak[0] = max(peak[0], _own())
        time.sleep(0.01)


if __name__ == "__main__":
    main()
