"""Against llama.cpp's plain decoding of the same model in 4 bits: one interleaved run. Needs llama-cpp-python.

Its 4-bit file and our quantised weights are different models of about the same size, so their texts differ; what is
compared is tokens a second over whole requests, the prompt included, and for our own whether the text is the same with
speculation on and off.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from statistics import median

from llama_cpp import Llama

from draftproof import Speculator
from draftproof.bench.workloads import read_workloads


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gguf", help="the target as a 4-bit .gguf file")
    parser.add_argument("target", help="the target's folder or hub name")
    parser.add_argument("draft", help="the draft's folder or hub name")
    parser.add_argument("--weights", default="int4,int8")
    parser.add_argument("--k", default="1,2,3,5")
    parser.add_argument("--workloads", default="prose,code,chat")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    rival = Llama(options.gguf, n_ctx=1024, n_threads=options.threads, n_threads_batch=options.threads, verbose=False)
    ks = [int(k) for k in options.k.split(",")]
    ours = {
        w: Speculator(options.target, options.draft, k=max(ks), weights=w, compile="on")
        for w in options.weights.split(",")
    }
    known = {w.name: w for w in read_workloads(limit=1)}
    for name in options.workloads.split(","):
        workload = known[name]
        rates: dict[str, list[float]] = defaultdict(list)
        texts = defaultdict(set)
        for _ in range(options.repeats + 1):
            ids = next(iter(ours.values())).encode(workload.prompts[0], chat=workload.chat)
            started = time.perf_counter()
            count = _write(rival, ids, options.max_new_tokens)
            rates["llama.cpp, plain"].append(count / (time.perf_counter() - started))
            for weights, speculator in ours.items():
                for k in (0, *ks):
                    started = time.perf_counter()
                    made = speculator.generate(ids, max_new_tokens=options.max_new_tokens, k=k)
                    rates[f"{weights}, k = {k}"].append(len(made.tokens) / (time.perf_counter() - started))
                    texts[weights].add(made.tokens)
        base = median(rates["llama.cpp, plain"][1:])
        print(f"{name}: tokens/s, medians of {options.repeats} after a warm-up")
        for way, measured in rates.items():
            print(f"  {way:20}{median(measured[1:]):8.2f}{median(measured[1:]) / base:8.2f} ×")
        print(
            "  identical on and off: " + ", ".join(f"{w}: {'yes' if len(t) == 1 else 'NO'}" for w, t in texts.items())
        )


def _write(model: Llama, ids: list[int], limit: int) -> int:
    model.reset()
    model.eval(ids)
    for count in range(1, limit + 1):
        token = model.sample(temp=0.0)
        if token == model.token_eos() or count == limit:
            return count
        model.eval([token])
    return limit


if __name__ == "__main__":
    main()
