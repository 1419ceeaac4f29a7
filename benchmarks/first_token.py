"""From a cold process to the first token: what compiling costs a short request. `make first-token`.

Fresh processes in turns: without compiled passes, with kernels that were built before, with kernels that are not there
and are left to the background (`auto`), and with kernels that one waits for (`on`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from statistics import median

CHILD = """
import json, sys, time
started = time.perf_counter()
from draftproof import Speculator
imported = time.perf_counter()
speculator = Speculator(sys.argv[1], sys.argv[2], k=5, compile=sys.argv[3])
loaded = time.perf_counter()
stream = iter(speculator.stream("The first token of this text", max_new_tokens=int(sys.argv[4])))
next(stream)
first = time.perf_counter()
for _ in stream:
    pass
passes = speculator.target.placement.passes
times = {"import": imported - started, "load": loaded - imported, "first": first - loaded}
print(json.dumps({"passes": passes, **times, "rest": time.perf_counter() - first}))
"""
WAYS = {
    "off": ("off", False),
    "auto, kernels built before": ("auto", False),
    "auto, no kernels yet": ("auto", True),
    "on, no kernels yet": ("on", True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", nargs="?", default="demo-target")
    parser.add_argument("draft", nargs="?", default="demo-draft")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--max-new-tokens", type=int, default=16)
    options = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    for _ in range(options.repeats):
        for way, (compile, empty) in WAYS.items():
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                env = {**os.environ, **({"DRAFTPROOF_CACHE": folder} if empty else {})}
                command = [sys.executable, "-c", CHILD, options.target, options.draft, compile]
                command.append(str(options.max_new_tokens))
                done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
                found[way].append(json.loads(done.stdout.splitlines()[-1]))
    print(f"medians of {options.repeats} fresh processes in turns, seconds ({options.max_new_tokens} tokens)")
    print(f"{'':28}{'passes':>14}{'import':>8}{'load':>8}{'first token':>13}{'the rest':>10}{'all':>8}")
    for way, runs in found.items():
        parts = [median(run[part] for run in runs) for part in ("import", "load", "first", "rest")]
        whole = median(run["import"] + run["load"] + run["first"] + run["rest"] for run in runs)
        print(
            f"{way:28}{runs[-1]['passes']:>14}{parts[0]:8.2f}{parts[1]:8.2f}{parts[2]:13.2f}{parts[3]:10.2f}{whole:8.2f}"
        )


if __name__ == "__main__":
    main()
