"""A model's tokenizer, from its files."""

from __future__ import annotations

import filecmp
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

_BESIDE = (*_FILES, "tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt")
"""All that has a say in what the tokens of a folder are; a chat template has none."""


def has_tokenizer(path: Path) -> bool:
    """Whether what a tokenizer is read from lies in the folder `path`."""
    return any(found for pattern in _FILES for found in path.glob(pattern))


def same_tokenizer(one: Path, other: Path) -> bool:
    """Whether two folders number the same tokens: the same files but for templates, and no code of their own."""
    if not (one.is_dir() and other.is_dir()):
        return False
    declared = [read_json_if_there(path / "config.json").get("model_type") for path in (one, other)]
    names = [{file.name for pattern in _BESIDE for file in path.glob(pattern)} for path in (one, other)]
    if declared[0] != declared[1] or names[0] != names[1] or not has_tokenizer(one):
        return False
    if tokenizer_code(read_json_if_there(one / "tokenizer_config.json")):
        return False
    return all((one / n).is_file() and filecmp.cmp(one / n, other / n, shallow=False) for n in names[0])


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
