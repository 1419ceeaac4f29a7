"""A model's tokenizer, from its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from draftproof.errors import LoadError, brief


def read_tokenizer(name: str, path: Path, **kwargs: str) -> Any:
    try:
        return AutoTokenizer.from_pretrained(path, **kwargs)
    except Exception as error:  # tokenizers raise bare exceptions of their own for broken files
        raise LoadError(f"cannot load the tokenizer of {name!r}: {brief(error)}") from error
