"""Conversations as OpenAI's interface writes them: checked, and plain enough for any chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from draftproof.errors import ConfigError

Message = dict[str, Any]
_EMPTY = ("tool_calls", "function_call", "reasoning_content")
"""What lets a message do without content."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages that are to be answered, or whose last one is to be continued, and the tools that may be called."""

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] | None = None
    continue_final_message: bool = False


def conversation(messages: Any, tools: Any = None, continue_final_message: Any = False) -> Conversation:
    """Return a checked conversation. Raises `ConfigError` naming the message and what is wrong with it.

    Content is a text or a list of parts, all of them text, which are joined by line breaks; arguments of tool calls may
    be JSON in a text. Other keys (`name`, `tool_call_id`, …) go to the chat template as they are.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise ConfigError(f"messages is {_kind(messages)}; give a list of messages, each with a role and content.")
    if not messages:
        raise ConfigError("messages is empty; give at least one message.")
    found = tuple(_message(message, f"messages[{i}]") for i, message in enumerate(messages))
    if not isinstance(continue_final_message, bool):
        raise ConfigError(f"continue_final_message is {continue_final_message!r}; it must be True or False.")
    if continue_final_message and not found[-1].get("content"):
        raise ConfigError(f"messages[{len(found) - 1}] has no text to continue; leave out continue_final_message.")
    return Conversation(found, _tools(tools), continue_final_message)


def read_conversation(text: str, name: str) -> Conversation:
    """Return the conversation in a JSON text: a list of messages, or an object with `messages`, and perhaps `tools` and
    `continue_final_message`. Raises `ConfigError`; `name` says where the text is from."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is not JSON: {error}; give a list of messages.") from error
    data = data if isinstance(data, dict) else {"messages": data}
    if unknown := [key for key in data if key not in ("messages", "tools", "continue_final_message")]:
        raise ConfigError(f"{name} holds {unknown[0]!r}; it may hold messages, tools and continue_final_message.")
    if "messages" not in data:
        raise ConfigError(f"{name} holds no messages; give a list of them.")
    try:
        return conversation(**data)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from error


def _message(message: Any, where: str) -> Message:
    if not isinstance(message, Mapping):
        raise ConfigError(f"{where} is {_kind(message)}; it must be an object with a role and content.")
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise ConfigError(f"{where} has no role; give one, such as 'user', 'assistant' or 'system'.")
    made = {key: value for key, value in message.items() if value is not None}
    if "content" in made:
        made["content"] = _content(made["content"], f"{where}.content")
    elif not any(made.get(key) for key in _EMPTY):
        raise ConfigError(f"{where} has no content; give a text.")
    if "tool_calls" in made:
        made["tool_calls"] = _tool_calls(made["tool_calls"], f"{where}.tool_calls")
    try:
        json.dumps(made, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{where} holds half a character (a lone surrogate); give valid text.") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where} cannot be written as JSON ({error}); give texts, numbers, lists.") from None
    return made


def _content(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise ConfigError(f"{where} is {_kind(content)}; it must be a text, or a list of parts of type 'text'.")
    texts = []
    for i, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind != "text" and kind is not None:
            raise ConfigError(f"{where}[{i}] is of type {kind!r}; only text is read here, so leave it out.")
        if kind is None or not isinstance(part.get("text"), str):
            raise ConfigError(f"{where}[{i}] is no text part; give {{'type': 'text', 'text': …}}.")
        texts.append(part["text"])
    return "\n".join(texts)


def _tool_calls(calls: Any, where: str) -> list[Any]:
    if not isinstance(calls, Sequence) or isinstance(calls, str | bytes):
        raise ConfigError(f"{where} is {_kind(calls)}; it must be a list of calls.")
    found = []
    for i, call in enumerate(calls):
        if not isinstance(call, Mapping):
            raise ConfigError(f"{where}[{i}] is {_kind(call)}; it must be an object.")
        function = call.get("function")
        if isinstance(function, Mapping) and isinstance(function.get("arguments"), str):
            try:  # OpenAI writes JSON in a text, chat templates expect what it means
                arguments = json.loads(function["arguments"] or "{}")
            except ValueError as error:
                raise ConfigError(f"{where}[{i}].function.arguments is not JSON: {error}.") from error
            call = {**call, "function": {**function, "arguments": arguments}}
        found.append(dict(call))
    return found


def _tools(tools: Any) -> tuple[dict[str, Any], ...] | None:
    if tools is None:
        return None
    if not isinstance(tools, Sequence) or isinstance(tools, str | bytes):
        raise ConfigError(f"tools is {_kind(tools)}; give a list of tools, each an object.")
    for i, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            raise ConfigError(f"tools[{i}] is {_kind(tool)}; it must be an object, as OpenAI's interface has it.")
        try:
            json.dumps(tool, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"tools[{i}] cannot be written as JSON ({error}).") from None
    return tuple(dict(tool) for tool in tools) or None


def _kind(value: Any) -> str:
    names = {"str": "a text", "dict": "an object", "NoneType": "missing", "list": "a list"}
    return names.get(type(value).__name__, f"of type {type(value).__name__}")
