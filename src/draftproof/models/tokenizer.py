"""A model's tokenizer, from its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from draftproof.errors import LoadError, brief
from draftproof.models.declared import (
    is_own_code,
    never_asking,
    not_run,
    read_json_if_there,
    tokenizer_code,
    wants_code,
)

_FILES = ("tokenizer.json", "*.model", "vocab.json", "vocab.txt", "tekken.json", "*.tiktoken")
"""What a tokenizer is read from, whoever wrote it."""


def has_tokenizer(path: Path) -> bool:
    """Whether what a tokenizer is read from lies in the folder `path`."""
    return any(found for pattern in _FILES for found in path.glob(pattern))


def read_tokenizer(name: str, path: Path, *, trust: bool = False) -> tuple[Any, tuple[str, ...]]:
    """Return the tokenizer in the folder `path`, and notes. Raises `LoadError`; its own code runs only with `trust`."""
    code = tokenizer_code(read_json_if_there(path / "tokenizer_config.json"))
    if not (code and trust) and not has_tokenizer(path):
        if code:
            raise LoadError(wants_code(f"the tokenizer of {name!r}", code))
        raise LoadError(
            f"{name!r} has no tokenizer files (tokenizer.json, tokenizer.model, vocab.json or the like); "
            "put those of the model that it was made from beside its weights."
        )
    try:
        with never_asking():
            tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=trust, local_files_only=True)
    except Exception as error:  # tokenizers raise bare exceptions of their own for broken files
        if code and not trust and "trust_remote_code" in str(error):
            raise LoadError(wants_code(f"the tokenizer of {name!r}", code)) from error
        raise LoadError(
            f"cannot load the tokenizer of {name!r}: {brief(error)}. Its files are damaged, incomplete or of another "
            "version; download them again."
        ) from error
    return tokenizer, (not_run("the tokenizer", code),) if code and not is_own_code(tokenizer) else ()


def read_gguf_tokenizer(name: str, file: Path) -> Any:
    """Return the tokenizer that a GGUF file holds. Raises `LoadError`."""
    try:
        with never_asking():
            return AutoTokenizer.from_pretrained(
                file.parent, gguf_file=file.name, trust_remote_code=False, local_files_only=True
            )
    except Exception as error:  # as above
        raise LoadError(
            f"cannot load the tokenizer of {name!r}: {brief(error)}. The file holds none, or one that transformers "
            "does not read; convert the model again with its tokenizer."
        ) from error
