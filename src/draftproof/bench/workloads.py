"""The texts to measure on: five built in, or one's own from a file of JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from draftproof.errors import ConfigError
from draftproof.reading import read_text
from draftproof.results import Workload

BUILT_IN = Path(__file__).with_name("workloads.jsonl")


def read_workloads(path: Path = BUILT_IN, limit: int | None = None) -> tuple[Workload, ...]:
    """Read workloads, at most `limit` prompts of each.

    Every line of the file is one of: a workload `{"name": …, "prompts": […], "chat": false}`; a plain prompt
    `{"prompt": …}`; or a conversation's first message `{"turns": [message, …]}`. Lines without a name form workloads
    of their own: by `category` if they have one, else named after the file. Raises `ConfigError` naming the line.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit is {limit}; it must be at least 1.")
    lines = read_text(path, "the workloads in").split("\n")
    found: dict[tuple[str, bool], list[str]] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            name, chat, prompts = _read_line(line, path, number)
            found.setdefault((name, chat), []).extend(prompts)
    if not found:
        raise ConfigError(f"{str(path)!r} holds no workloads; give one JSON object a line.")
    both = {name for name, chat in found if chat and (name, False) in found}  # a name must say which text is meant
    return tuple(
        Workload(f"{name} (chat)" if chat and name in both else name, tuple(prompts[:limit]), chat)
        for (name, chat), prompts in found.items()
    )


def _read_line(line: str, path: Path, number: int) -> tuple[str, bool, list[str]]:
    where = f"line {number} of {str(path)!r}"
    try:
        data: Any = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where} is not JSON: {error}.") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{where} is not a JSON object.")
    name = str(data.get("name") or data.get("category") or path.stem)
    if "prompts" in data:
        chat, prompts = bool(data.get("chat", False)), data["prompts"]
    elif "prompt" in data:
        chat, prompts = bool(data.get("chat", False)), [data["prompt"]]
    elif "turns" in data:
        chat, prompts = True, data["turns"][:1] if isinstance(data["turns"], list) else data["turns"]
    else:
        raise ConfigError(f"{where} has none of 'prompts', 'prompt' and 'turns'.")
    if not isinstance(prompts, list) or not prompts or not all(isinstance(p, str) and p for p in prompts):
        raise ConfigError(f"{where}: prompts must be texts, and at least one.")
    if any("\ud800" <= character <= "\udfff" for prompt in prompts for character in prompt):
        raise ConfigError(f"{where}: a prompt holds half a character (a lone surrogate); give valid text.")
    return name, chat, prompts
