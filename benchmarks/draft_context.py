"""What a draft loses by reading only the end of a long prompt, and what it saves. `make draft-context`.

The target writes its greedy text once for each prompt. For each number of last prompt tokens the draft then reads
that end and the target's text, and is asked for its guess at every place. Since a guess counts only behind right ones,
rounds at any k follow from where it agrees: no text need be written again. Seconds are of reading the prompt's end.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

from draftproof import Speculator
from draftproof.models.load import load
from draftproof.results import read_machine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    parser.add_argument("draft")
    parser.add_argument("--prompts", type=Path, required=True, help='JSON lines with "prompt" or "turns"')
    parser.add_argument("--categories", default="", help="only these, with commas")
    parser.add_argument("--limit", type=int, default=8, help="so many prompts, the longest of each category in turn")
    parser.add_argument("--longest", type=int, default=4096, help="longer prompts are left out")
    parser.add_argument("--max-new-tokens", type=int, default=48)
    parser.add_argument("--contexts", default="128,256,512,1024,2048")
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    speculator = Speculator(options.target, compile="wait")
    draft = load(options.draft, compile="wait", dtype=speculator.target.placement.dtype)
    prompts = _longest(speculator, options)
    contexts = [int(n) for n in options.contexts.split(",")]
    print(
        f"{read_machine().cpu}: {speculator!r}; {len(prompts)} prompts of {min(map(len, prompts))} to "
        f"{max(map(len, prompts))} tokens",
        flush=True,
    )
    rows: list[dict[str, float]] = []
    for i, prompt in enumerate(prompts):
        began = time.perf_counter()
        written = speculator.generate(prompt, max_new_tokens=options.max_new_tokens)
        text = list(written.tokens)
        print(
            f"prompt {i + 1}: {len(prompt)} tokens read in {written.seconds.prompt_s:.1f} s, "
            f"{len(text)} written in {time.perf_counter() - began:.1f} s",
            flush=True,
        )
        for context in (*contexts, len(prompt)):
            view = prompt[-context:]
            session = draft.session()
            session.forget()
            session.begin((), len(view) + len(text))
            began = time.perf_counter()
            session.read(view)
            seconds = time.perf_counter() - began
            logits = session.read([*view, *text[:-1]], last=len(text))
            right = [int(g) == t for g, t in zip(logits.argmax(-1), text, strict=True)]
            accepted, proposed, rounds = replay(right, options.k)
            rows.append({
                "prompt": i,
                "prompt_tokens": len(prompt),
                "context": context if context in contexts else 0,
                "read": len(view),
                "seconds": seconds,
                "right": sum(right),
                "tokens": len(text),
                "accepted": accepted,
                "proposed": proposed,
                "rounds": rounds,
            })
        _print(rows, contexts)
    if options.json:
        options.json.write_text(json.dumps(rows))


def replay(right: Sequence[bool], k: int) -> tuple[int, int, int]:
    """Return accepted and proposed guesses, and rounds, of a text at each place of which a guess is right or not.

    A round proposes k guesses, or as many as there are tokens left less the one that the target adds itself.
    """
    at = accepted = proposed = rounds = 0
    while at < len(right):
        count = min(k, len(right) - at - 1)
        kept = 0
        while kept < count and right[at + kept]:
            kept += 1
        accepted, proposed, rounds, at = accepted + kept, proposed + count, rounds + 1, at + kept + 1
    return accepted, proposed, rounds


def _longest(speculator: Speculator, options: argparse.Namespace) -> list[list[int]]:
    """Return the longest prompts, turn by turn from each category."""
    found: dict[str, list[list[int]]] = {}
    for line in options.prompts.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        category = str(entry.get("category", ""))
        if not options.categories or category in options.categories.split(","):
            prompt = entry["prompt"] if "prompt" in entry else entry["turns"][0]
            chat = bool(getattr(speculator.target.tokenizer, "chat_template", None))
            found.setdefault(category, []).append(speculator.encode(prompt, chat=chat))
    ranked = {c: sorted((p for p in of if len(p) <= options.longest), key=len, reverse=True) for c, of in found.items()}
    turns = [p for turn in range(max(map(len, ranked.values()))) for of in ranked.values() for p in of[turn : turn + 1]]
    return turns[: options.limit]


def _print(rows: Sequence[dict[str, float]], contexts: Sequence[int]) -> None:
    for context in (*contexts, 0):
        mine = [row for row in rows if row["context"] == context]
        tokens, rounds, accepted, proposed, right, seconds = (
            sum(row[name] for row in mine) for name in ("tokens", "rounds", "accepted", "proposed", "right", "seconds")
        )
        name = f"last {context}" if context else "all"
        print(
            f"  {name:>10}: right {right / tokens:6.1%}, accepted {accepted / max(proposed, 1):6.1%}, "
            f"{tokens / rounds:.2f} tokens a round, reading {seconds / len(mine):.2f} s a prompt",
            flush=True,
        )


if __name__ == "__main__":
    main()
