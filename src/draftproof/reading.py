"""The one reader of text from outside: files and standard input, as UTF-8 with or without a byte-order mark."""

from __future__ import annotations

import codecs
import io
import sys
from pathlib import Path

from draftproof.errors import ConfigError, DraftproofError

STANDARD = Path("-")
"""What stands for standard input, and for standard output, where a file is asked for."""
_OTHER_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def decode_text(data: bytes, name: str, error: type[DraftproofError] = ConfigError) -> str:
    """Return UTF-8 bytes as text: without a byte-order mark, lines ending as `\\n`. Raises `error`, naming `name`."""
    for mark, encoding in _OTHER_MARKS.items():
        if data.startswith(mark):
            raise error(f"cannot read {name}: its byte-order mark says {encoding}; save it as UTF-8.")
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as failed:
        raise error(
            f"cannot read {name}: byte {data[failed.start + _marked(data)]:#04x} at {failed.start + _marked(data)} is "
            "not UTF-8; save it as UTF-8."
        ) from failed
    return io.IncrementalNewlineDecoder(None, translate=True).decode(text, final=True)


def read_text(path: Path, name: str = "", error: type[DraftproofError] = ConfigError) -> str:
    """Return what a file holds, as `decode_text` does; `name` says what it is for. Raises `error`."""
    name = f"{name} {str(path)!r}".strip()
    try:
        data = path.read_bytes()
    except OSError as failed:
        raise error(f"cannot read {name}: {failed.strerror or failed}.") from failed
    return decode_text(data, name, error)


def read_standard_input() -> str:
    """Return all of standard input as UTF-8, whatever the locale. Raises `ConfigError`."""
    return decode_text(sys.stdin.buffer.read(), "standard input")


def _marked(data: bytes) -> int:
    return len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
