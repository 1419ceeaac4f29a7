"""The texts to measure on: five built in, or one's own from a file of JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from draftproof.errors import ConfigError
from draftproof.reading import read_text
from draftproof.results import Workload

BUILT_IN = Path(__file__).with_name("workloads.jsonl")


Given = tuple[str, bool, list[Any], list[str]]
"""A line's workload, whether its texts go through the chat template, its prompts and, if it has any, responses."""


def read_workloads(path: Path = BUILT_IN, limit: int | None = None, *, responses: bool = False) -> tuple[Workload, ...]:
    """Read workloads, at most `limit` prompts of each.

    A file named `.txt` holds a prompt a line. Every line of another is JSON, and one of: a workload `{"name": …,
    "prompts": […], "chat": false}`; a plain prompt `{"prompt": …}`; a conversation's first message `{"turns": [message,
    …]}`; or a conversation as OpenAI logs it, `{"messages": […]}`. A prompt and a conversation may have a `response`
    beside them; an assistant's message at the end of a conversation is one too. Lines without a name form workloads
    of their own: by `category` if they have one, else named after the file. With `responses` every line must have one;
    without, they are left out. Raises `ConfigError` naming the line.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit is {limit}; it must be at least 1.")
    what = "responses" if responses else "workloads"
    lines = read_text(path, f"the {what} in").split("\n")
    found: dict[tuple[str, bool], tuple[list[Any], list[str]]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"line {number} of {str(path)!r}"
        plain = path.suffix == ".txt"
        name, chat, prompts, told = (path.stem, False, [line], []) if plain else _read_line(line, path, where)
        if responses and len(told) < len(prompts):
            raise ConfigError(f"{where} has no response; give 'response', or messages that end with the assistant's.")
        mine = found.setdefault((name, chat), ([], []))
        mine[0].extend(prompts)
        mine[1].extend(told if responses else ())
    if not found:
        raise ConfigError(f"{str(path)!r} holds no {what}; give one JSON object a line.")
    both = {name for name, chat in found if chat and (name, False) in found}  # a name must say which text is meant
    return tuple(
        Workload(f"{name} (chat)" if chat and name in both else name, tuple(prompts[:limit]), chat, tuple(told[:limit]))
        for (name, chat), (prompts, told) in found.items()
    )


def _read_line(line: str, path: Path, where: str) -> Given:
    try:
        data: Any = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where} is not JSON: {error}.") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{where} is not a JSON object.")
    name, response = str(data.get("name") or data.get("category") or path.stem), data.get("response")
    if "messages" in data:
        return name, True, *_read_log(data, where)
    if "prompts" in data:
        chat, prompts = bool(data.get("chat", False)), data["prompts"]
    elif "prompt" in data:
        chat, prompts = bool(data.get("chat", False)), [data["prompt"]]
    elif "turns" in data:
        chat, prompts = True, data["turns"][:1] if isinstance(data["turns"], list) else data["turns"]
    else:
        raise ConfigError(f"{where} has none of 'prompts', 'prompt', 'turns' and 'messages'.")
    if not isinstance(prompts, list) or not prompts or not all(isinstance(p, str) and p for p in prompts):
        raise ConfigError(f"{where}: prompts must be texts, and at least one.")
    told = [] if response is None else [response]
    if told and (len(prompts) > 1 or not isinstance(response, str) or not response):
        raise ConfigError(f"{where}: a response must be a text, and stand beside one prompt.")
    if any("\ud800" <= character <= "\udfff" for text in [*prompts, *told] for character in text):
        raise ConfigError(f"{where}: a prompt or response holds half a character (a lone surrogate); give valid text.")
    return name, chat, prompts, told


def _read_log(data: dict[str, Any], where: str) -> tuple[list[Any], list[str]]:
    """Return the conversation of a log as the one prompt, and what was answered."""
    from draftproof.models.messages import conversation  # its package imports torch, and most files hold no logs

    if data.get("tools"):
        raise ConfigError(f"{where} holds tools, which a workload cannot take along; leave such lines out.")
    try:
        messages = list(conversation(data["messages"]).messages)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    response = data.get("response")
    if messages[-1]["role"] == "assistant":
        last = messages.pop()
        response = last.get("content") if response is None else response
        if not messages:
            raise ConfigError(f"{where}: the assistant's message stands alone; nothing asked for it.")
    if response is not None and (not isinstance(response, str) or not response):
        raise ConfigError(f"{where}: the answer is no text (a call of a tool?); leave such lines out.")
    return [tuple(messages)], [] if response is None else [response]
