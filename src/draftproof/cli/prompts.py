"""What a command is to continue: a prompt from an option, a file or standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from draftproof.errors import ConfigError
from draftproof.reading import STANDARD, read_standard_input, read_text


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
