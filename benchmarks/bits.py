"""Speculation on and off, bit for bit: token ids, and the SHA-256 of every logit that chose one. `make bits`.

Each prompt is written plainly and at several k; all rows of logits that the texts were chosen from must have the same
bits. Compiled, prompts are also read four at a time in shared passes, each a random piece or tree of guesses: all rows
must have the bits that they have in a pass over the one text. Prompts are passages of this project's own sources and
documents.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from draftproof import Speculator
from draftproof.models.load import load
from draftproof.models.native.runner import NativeRunner
from draftproof.models.span import Cache, Rows, Span
from draftproof.testing import noisy

KS = (0, 1, 3, 5, 8)
TOGETHER = 4
ROOT = Path(__file__).parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="demo-target")
    parser.add_argument("--draft", help="default: a noisy copy of the target, which is wrong now and then")
    parser.add_argument("--dtypes", default="bfloat16,float32")
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--max-new-tokens", type=int, default=32)
    parser.add_argument("--compile", default="on", choices=("on", "off"), help="off: padded passes of transformers")
    parser.add_argument("--weights")
    options = parser.parse_args()
    if options.target == "demo-target" and options.draft is None:
        options.draft = "demo-draft"
    wrong = 0
    for dtype in options.dtypes.split(","):
        wrong += _compare(options, dtype)
    sys.exit(1 if wrong else 0)


def _compare(options: argparse.Namespace, dtype: str) -> int:
    how = {"dtype": dtype, "weights": options.weights, "compile": options.compile}
    draft = load(options.draft, **how) if options.draft else noisy(load(options.target, dtype=dtype).model, 0.3)
    settings = {} if options.draft else {"compile": options.compile}
    target = load(options.target, keep_weights=True, **how)
    speculator = Speculator(target, draft, k=max(KS), numerics="fixed", **settings)
    started, differing, rows, accepted, proposed = time.monotonic(), [], 0, 0, 0
    prompts = _prompts(options.prompts)
    for i, prompt in enumerate(prompts):
        seen = set()
        for k in KS:
            tokens, digest, generation = _write(speculator, prompt, k, options.max_new_tokens)
            seen.add((tokens, digest))
            rows += len(tokens)
            accepted += generation.counts.accepted
            proposed += generation.counts.proposed
        if len(seen) > 1:
            differing.append(i)
        if sys.stderr.isatty():
            print(f"\r{dtype}: {i + 1} of {len(prompts)}", end="", file=sys.stderr)
    numerics = speculator.numerics
    print(
        f"{options.target} {options.weights or ''} in {dtype}, {numerics.kind} numerics ({numerics.reason}): "
        f"{len(prompts)} prompts × k = {', '.join(map(str, KS))}: {rows} tokens and their rows of logits, "
        f"{accepted} of {proposed} guesses accepted, {len(differing)} prompts differ "
        f"({time.monotonic() - started:.0f} s)",
        flush=True,
    )
    return len(differing) + _shared(speculator, prompts)


@torch.inference_mode()
def _shared(speculator: Speculator, prompts: list[str]) -> int:
    decoder = speculator.target.decoder
    if decoder is None:
        return 0
    runner, chance = NativeRunner(decoder), random.Random(1)
    passes = rows = wrong = 0
    for first in range(0, len(prompts), TOGETHER):
        texts = [speculator.encode(prompt) for prompt in prompts[first : first + TOGETHER]]
        whole = [runner.run([Span(runner.cache(), text, 0, len(text))])[0].logits for text in texts]
        caches, read = [runner.cache() for _ in texts], [0] * len(texts)
        while left := [i for i, text in enumerate(texts) if read[i] < len(text)]:
            spans = [_piece(caches[i], texts[i], read[i], chance) for i in chance.sample(left, len(left))]
            for span, found in zip(spans, runner.run(spans), strict=True):
                i = next(i for i, cache in enumerate(caches) if cache is span.cache)
                path = range(len(span.tokens)) if span.parents is None else _right(span.parents)
                if span.parents is not None:
                    span.cache.move([span.start + token for token in path], span.start)
                read[i] = span.start + len(path)
                wrong += sum(
                    not torch.equal(a, b) for a, b in zip(found.logits[path], whole[i][span.start :], strict=False)
                )
                rows += len(path)
            passes += 1
    print(f"in {passes} passes that up to {TOGETHER} requests shared, {wrong} of {rows} rows differ", flush=True)
    return wrong


def _piece(cache: Cache, text: list[int], start: int, chance: random.Random) -> Span:
    """The next tokens of a text, as a chain, or on a tree with as many wrong guesses beside them."""
    tokens = text[start : start + chance.choice((1, 1, 2, 5, 9, 30))]
    if len(tokens) > 9 or chance.random() < 0.5:
        return Span(cache, tokens, start, len(tokens))
    both = [token for right in tokens for token in (text[0], right)]
    parents = [i - 1 - i % 2 for i in range(len(both))]  # a wrong guess and the right one follow the right one before
    return Span(cache, both, start, len(both), parents=[max(parent, -1) for parent in parents])


def _right(parents: Sequence[int]) -> range:
    return range(1, len(parents), 2)


def _write(speculator: Speculator, prompt: str, k: int, limit: int) -> tuple[tuple[int, ...], str, object]:
    stream = speculator.stream(prompt, max_new_tokens=limit, k=k)
    session, digest, last = stream._decoding._target, hashlib.sha256(), []
    rows_of = session.rows

    def keep(*given: Any, **named: Any) -> Rows:
        rows = rows_of(*given, **named)
        last[:] = [rows.logits]
        return rows

    session.rows = keep  # type: ignore[method-assign]
    try:
        for chunk in stream:
            used = last[0][: len(chunk.round.tokens)].contiguous()
            digest.update(used.view(torch.uint8).numpy().tobytes())
    finally:
        del session.rows
    generation = stream.generation
    return generation.tokens, digest.hexdigest(), generation


def _prompts(count: int) -> list[str]:
    files = sorted([*ROOT.glob("src/draftproof/**/*.py"), *ROOT.glob("docs/*.md"), ROOT / "README.md"])
    order = random.Random(0)
    prompts = []
    while len(prompts) < count:
        text = order.choice(files).read_text(encoding="utf-8")
        if len(text) > 400:
            start = order.randrange(len(text) - 300)
            prompts.append(text[start : start + order.randrange(20, 300)])
    return prompts


if __name__ == "__main__":
    main()
