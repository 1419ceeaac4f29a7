"""Passes against the roofline: how long one takes, and how long reading its weights would take. `make passes`.

One interleaved run for everything: the memory's read bandwidth, compiled passes and transformers' own over 1 and 8
tokens, and the draft's chain of guesses.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median

from draftproof.bench.precondition import context_tokens
from draftproof.models.load import load
from draftproof.models.native.library import library
from draftproof.models.native.packing import allocate
from draftproof.models.session import ModelSession
from draftproof.results import read_machine

CONTEXT = 128
SIZES = (1, 2, 4, 6, 8, 9, 12, 16)
CHAIN = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", help="hub names or folders; the first is the target, the second its draft")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--weights", default=None)
    parser.add_argument("--sweeps", type=int, default=15)
    parser.add_argument("--no-eager", action="store_true", help="leave transformers' own passes out")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    memory = allocate(1 << 30).fill_(0)
    kernels, size = library(), ctypes.c_int64(memory.numel())
    jobs: dict[tuple[str, str], Callable[[], object]] = {
        ("memory", "read"): lambda: kernels.draftproof_sum(ctypes.c_void_p(memory.data_ptr()), size)
    }
    weight_bytes = {}
    for name in options.models:
        keep = not options.no_eager
        loaded = load(name, dtype=options.dtype, weights=options.weights, compile="on", keep_weights=keep)
        assert loaded.decoder is not None, loaded.why_not_compiled
        label = Path(name).name
        weight_bytes[label] = loaded.decoder.weight_bytes
        text = context_tokens(loaded.tokenizer, CONTEXT + max(SIZES))
        for kind, session in [("compiled", loaded.session())] + (
            [("transformers", ModelSession(loaded.model))] if keep else []
        ):
            session.forget()
            session.begin((), CONTEXT + max(SIZES) + CHAIN)
            session.read(text[:CONTEXT])
            for n in SIZES:
                jobs[label, f"{kind} {n}"] = _reader(session, text[: CONTEXT + n], n)
            if kind == "compiled":
                jobs[label, f"chain of {CHAIN}"] = _writer(session, text[: CONTEXT + 1])

    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    order = random.Random(0)
    for sweep in range(options.sweeps + 1):
        for key in order.sample(list(jobs), len(jobs)):
            started = time.perf_counter()
            jobs[key]()
            if sweep:
                seconds[key].append(time.perf_counter() - started)
    middle = {key: median(times) for key, times in seconds.items()}
    bandwidth = memory.numel() / middle["memory", "read"]
    print(f"read bandwidth {bandwidth / 1e9:.1f} GB/s (median of {options.sweeps}, 1 GiB by the kernels' own threads)")
    for label, size in weight_bytes.items():
        floor = size / bandwidth
        print(f"\n{label}: {size / 1e9:.2f} GB of weights, {1e3 * floor:.1f} ms to read them")
        print(f"{'tokens':>8}{'compiled ms':>13}{'/ floor':>9}{'transformers ms':>17}{'/ floor':>9}{'ratio':>8}")
        for n in SIZES:
            ours, theirs = middle[label, f"compiled {n}"], middle.get((label, f"transformers {n}"))
            row = f"{n:>8}{1e3 * ours:>13.1f}{ours / floor:>9.2f}"
            print(row + (f"{1e3 * theirs:>17.1f}{theirs / floor:>9.2f}{theirs / ours:>8.2f}" if theirs else ""))
        print(f"a chain of {CHAIN} guesses in one call: {1e3 * middle[label, f'chain of {CHAIN}'] / CHAIN:.1f} ms each")
    if len(options.models) > 1:
        target, draft = (Path(name).name for name in options.models[:2])
        c = middle[draft, f"chain of {CHAIN}"] / CHAIN / middle[target, "compiled 1"]
        print(f"\nc, a guess of {draft} / a pass of {target}: {c:.2f}")
        if not options.no_eager:
            print(f"c through transformers: {middle[draft, 'transformers 1'] / middle[target, 'transformers 1']:.2f}")
    if options.json:
        found = [{"model": m, "what": w, "seconds": times} for (m, w), times in seconds.items()]
        report = {"machine": str(read_machine()), "weight_bytes": weight_bytes, "measured": found}
        options.json.write_text(json.dumps(report, indent=1))


def _reader(session: ModelSession, tokens: list[int], last: int) -> Callable[[], object]:
    return lambda: session.read(tokens, last=last)


def _writer(session: ModelSession, tokens: list[int]) -> Callable[[], object]:
    return lambda: session.write(tokens, CHAIN)


if __name__ == "__main__":
    main()
