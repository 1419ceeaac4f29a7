"""Policies against every fixed k, plain decoding and the oracle, by replay of recorded traces. `make control`.

    python benchmarks/control.py TRACE.jsonl.gz …

Traces are what `draftproof forecast --trace` writes. The oracle knows beforehand which guesses will stand, and chooses
every round's k by it: nobody who does not can be faster. "auto, warm" begins with the costs that warming up finds.
Figures are times plain decoding behind the prompt.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import geometric_mean

from draftproof.control import CONTROLLERS
from draftproof.control.auto import Auto, Costs
from draftproof.forecast.predict import costs_of
from draftproof.forecast.replay import oracle, replay, seconds
from draftproof.forecast.trace import read_trace

KS = (1, 2, 3, 4, 6, 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path)
    arms = [*KS, *CONTROLLERS]
    print(f"{'text':34}" + "".join(f"{arm!s:>10}" for arm in arms) + f"{'auto, warm':>12}{'oracle':>8}")
    all_of: dict[str | int, list[float]] = {arm: [] for arm in (*arms, "auto, warm", "oracle")}
    for path in parser.parse_args().traces:
        trace = read_trace(path)
        for draft in trace.rounds:
            costs = costs_of(trace, draft, max(KS))
            for text in trace.texts:
                plain = len(text.tokens) * costs.plain_s
                found: dict[str | int, float] = {arm: plain / seconds(replay(text, draft, arm, costs)) for arm in arms}
                passes = {n: costs.target_s(n - 1) for n in (1, 2, max(KS) + 1)}
                drafted = costs.draft_s(1, 1) if text.drafts[draft].offers[0].passes else 0.0
                warm = Auto(costs=Costs(costs.plain_s, passes, drafted))
                found["auto, warm"] = plain / seconds(replay(text, draft, warm, costs))
                found["oracle"] = plain / oracle(text, draft, max(KS), costs)
                for arm, speedup in found.items():
                    all_of[arm].append(speedup)
                name = f"{text.workload} [{text.prompt}], {Path(draft).name}"
                print(f"{name[:33]:34}" + "".join(f"{speedup:10.2f}" for speedup in found.values()))
    print(f"{'all, geometric mean':34}" + "".join(f"{geometric_mean(each):10.3f}" for each in all_of.values()))


if __name__ == "__main__":
    main()
