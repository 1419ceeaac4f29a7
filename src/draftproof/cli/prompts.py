"""What a command is to continue: a prompt from an option, a file or standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftproof.errors import ConfigError
from draftproof.reading import STANDARD, read_standard_input, read_text

if TYPE_CHECKING:
    from draftproof.models.messages import Conversation

CHAT_HELP = "Put the prompt into the model's chat template; with a file of messages, all of them."
MESSAGES_HELP = "With --chat: a JSON file of messages as OpenAI has them (- is standard input)."


def read_messages(chat: bool, file: Path | None, prompt: str | None, prompt_file: Path | None) -> Conversation | None:
    """Return the conversation in `file`, if one was named. Raises `ConfigError`."""
    if file is None:
        return None
    if not chat:
        raise ConfigError(f"{str(file)!r} stands alone; a prompt needs --prompt, a file of messages --chat before it.")
    if prompt is not None or prompt_file is not None:
        raise ConfigError("a file of messages is the whole prompt; leave out --prompt and --prompt-file.")
    from draftproof.models.messages import read_conversation

    name = "standard input" if file == STANDARD else repr(str(file))
    return read_conversation(read_standard_input() if file == STANDARD else read_text(file, "the messages in"), name)


def render(tokenizer: Any, asked: Conversation) -> str:
    """Return what the model's chat template makes of a conversation. Raises `ConfigError`."""
    from draftproof.models.template import render as render_template

    return render_template(tokenizer, asked.messages, asked.tools, asked.continue_final_message)


def read_prompt(prompt: str | None, prompt_file: Path | None) -> str:
    """Return the prompt; of a file or standard input, one final newline is dropped. Raises `ConfigError`."""
    if prompt is not None and prompt_file is not None:
        raise ConfigError("--prompt and --prompt-file exclude each other; give one.")
    if prompt is not None:
        return prompt
    if prompt_file is not None and prompt_file != STANDARD:
        return read_text(prompt_file, "--prompt-file").removesuffix("\n")
    if prompt_file is None and sys.stdin.isatty():
        raise ConfigError("no prompt; give --prompt, --prompt-file, or text on standard input.")
    return read_standard_input().removesuffix("\n")
