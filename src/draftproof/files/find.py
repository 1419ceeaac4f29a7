"""Where a model's files are: in a folder, a GGUF file, the package itself, or on the hub."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from draftproof.errors import ConfigError, LoadError, brief
from draftproof.settings import require_extra

EMBEDDED = {"demo-target": "target", "demo-draft": "draft"}
"""Names of the pair that ships inside the package, and their folders."""
HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
HUB_DUPLICATES = ["consolidated*", "original/*"]  # the same weights again, in other layouts


def find(name: str, revision: str | None = None, *, code: bool = False) -> Path:
    """Return the folder or file that `name` stands for, downloading it from the hub if it is a hub name.

    `code` has Python files downloaded too.
    """
    return find_here(name, revision) or download(name, revision, code)


def find_here(name: str, revision: str | None = None) -> Path | None:
    """Return the folder or file that `name` stands for, or None for a hub name. Raises `LoadError`, `ConfigError`."""
    found = _find_here(name)
    if found is not None and revision is not None:
        raise ConfigError(f"a revision ({revision!r}) is for hub names, and {name!r} lies here; leave it out.")
    if found is not None and found.suffix == ".gguf" and found.is_file():
        require_extra("gguf", "a .gguf file")
    return found


def _find_here(name: str) -> Path | None:
    if name in EMBEDDED:
        return Path(__file__).parent.parent / "pair" / EMBEDDED[name]
    path = Path(name).expanduser()
    if path.is_dir():
        if not any((path / name).is_file() for name in ("config.json", "adapter_config.json")):
            raise LoadError(f"{name!r} is a folder without config.json; give the folder that holds the model's files.")
        return path
    if path.is_file():
        if path.suffix != ".gguf":
            raise LoadError(f"{name!r} is a file, but not a .gguf file; give a folder, a .gguf file or a hub name.")
        return path
    if path.suffix == ".gguf" or path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise LoadError(
            f"{name!r} does not exist; give a folder, a .gguf file or a hub name such as 'Qwen/Qwen3-0.6B'."
        )
    return None


def _meant(name: str) -> str:
    near = get_close_matches(name, EMBEDDED, 1, 0.8)
    return f"Did you mean {near[0]!r}? " if near else ""


def download(name: str, revision: str | None = None, code: bool = False) -> Path:
    """Return the folder with the files of a hub name. Raises `LoadError`."""
    from huggingface_hub import snapshot_download

    try:
        wanted = [*HUB_FILES, *(["*.py"] if code else [])]
        return Path(snapshot_download(name, revision=revision, allow_patterns=wanted, ignore_patterns=HUB_DUPLICATES))
    except Exception as error:  # the hub's client raises a dozen unrelated kinds; each means the same to the user
        raise LoadError(
            f"{name!r} is neither a folder or file here nor to be had from the model hub ({type(error).__name__}: "
            f"{brief(error).rstrip('.')}). {_meant(name)}Check the spelling and the network, or give a folder."
        ) from error
