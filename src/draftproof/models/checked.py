"""What was found right of a model's passes on this machine, so that loading it again need not try them again."""

from __future__ import annotations

import functools
import hashlib
import tempfile
from pathlib import Path

import torch
import transformers

from draftproof.files.cache import cache_folder, processor

ROOT = Path(__file__).parent


class Checked:
    """The passes of one model's files, as they are now, in one number format, by the code that is installed now.

    `what` tells how the files are read. Files count by their names, sizes and times of change; whatever is remembered
    lies in a small file each in `$DRAFTPROOF_CACHE`, or `~/.cache/draftproof`. Where nothing can be kept, nothing is.
    """

    def __init__(self, path: Path, *what: str | None) -> None:
        kinds = ("config.json", "*.safetensors", "*.index.json")
        files = [path] if path.is_file() else sorted({one for kind in kinds for one in path.glob(kind)})
        stats = [(str(one.resolve()), one.stat()) for one in files]
        self._told = [
            *(f"{name}, {stat.st_size} bytes, changed at {stat.st_mtime_ns}" for name, stat in stats),
            ", ".join(str(one) for one in what),
            f"torch {torch.__version__}, transformers {transformers.__version__}, draftproof {_sources()}",
            processor(),
        ]

    def holds(self, passes: str) -> bool:
        """Whether these passes were found right before."""
        try:
            return self._file(passes).is_file()
        except (OSError, RuntimeError):  # no home, no permission
            return False

    def keep(self, passes: str) -> None:
        """Remember that these passes were found right just now."""
        try:
            file = self._file(passes)
            with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as made:
                made.write(self._text(passes))
            Path(made.name).replace(file)
        except (OSError, RuntimeError):
            return

    def _text(self, passes: str) -> str:
        return "\n".join([f"passes {passes}: found right for", *self._told, ""])

    def _file(self, passes: str) -> Path:
        return cache_folder("checked") / f"{hashlib.sha256(self._text(passes).encode()).hexdigest()[:20]}.txt"


@functools.cache
def _sources() -> str:
    """A digest of the code that runs models."""
    digest = hashlib.sha256()
    for source in sorted((*ROOT.rglob("*.py"), *ROOT.rglob("*.cpp"), *ROOT.rglob("*.h"))):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:20]
