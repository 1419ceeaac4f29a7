"""What a request continues, as token ids: a text, ids, or a conversation."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from draftproof.errors import ConfigError
from draftproof.models.messages import conversation
from draftproof.models.template import render
from draftproof.models.tokens import encode, encode_text

Messages = Sequence[Mapping[str, Any]]
"""A conversation as OpenAI's interface writes it."""


def prompt_ids(
    tokenizer: Any,
    width: int,
    prompt: str | Sequence[int] | None,
    *,
    chat: bool = False,
    messages: Messages | None = None,
    tools: Sequence[Mapping[str, Any]] | None = None,
    continue_final_message: bool = False,
) -> list[int]:
    """Return the ids that a model of `width` logits is to continue. Raises `ConfigError`.

    Give either a `prompt`, as text (with `chat` it becomes a user's message) or as ids, or `messages`.
    """
    if messages is None:
        if prompt is None:
            raise ConfigError("there is no prompt; give a text, token ids, or messages.")
        if tools is not None or continue_final_message:
            raise ConfigError("tools and continue_final_message belong to a conversation; give messages.")
        if not isinstance(prompt, str):
            return _checked(prompt, width, chat)
    elif prompt is not None or chat:
        raise ConfigError("messages are the whole prompt; leave out prompt and chat.")
    if tokenizer is None:
        raise ConfigError("this Speculator has no tokenizer; pass tokenizer=…, or give the prompt as token ids.")
    if messages is None:
        assert isinstance(prompt, str)
        return encode(tokenizer, prompt, chat=chat)
    asked = conversation(messages, tools, continue_final_message)
    return encode_text(tokenizer, render(tokenizer, asked.messages, asked.tools, asked.continue_final_message))


def _checked(prompt: Sequence[int], width: int, chat: bool) -> list[int]:
    if chat:
        raise ConfigError("a chat prompt must be text; token ids are taken as they are.")
    if isinstance(prompt, bytes) or not isinstance(prompt, Iterable):
        raise ConfigError(f"the prompt is {_brief(prompt)}; give a text, token ids, or messages.")
    if isinstance(prompt, Mapping):
        raise ConfigError("the prompt is what a tokenizer returned; give its input_ids, one text's.")
    prompt = list(prompt)
    if any(isinstance(one, str) for one in prompt):
        raise ConfigError("the prompt is a list of texts; give one text, and call it once for each.")
    if any(isinstance(one, Mapping) for one in prompt):
        raise ConfigError("the prompt is a list of mappings; a conversation is given as messages=[…].")
    try:
        ids = [int(i) for i in prompt]
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"the prompt is {_brief(prompt)}; give a text, token ids, or messages.") from None
    if any(i != given for i, given in zip(ids, prompt, strict=True)):
        raise ConfigError("the prompt holds numbers that are not whole; give token ids.")
    if not ids:
        raise ConfigError("the prompt holds no tokens; give at least one.")
    if bad := next((i for i in ids if not 0 <= i < width), None):
        raise ConfigError(f"token id {bad} is outside the target's range 0..{width - 1}.")
    return ids


def _brief(value: object) -> str:
    return textwrap.shorten(repr(value), 60, placeholder=" …")
