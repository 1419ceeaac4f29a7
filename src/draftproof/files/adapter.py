"""Adapters: a small folder of changes to a model, as peft writes it, and the model that it belongs to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof.errors import LoadError, brief
from draftproof.files.find import EMBEDDED, download, find, find_here
from draftproof.settings import require_extra

_NOT_MERGED = {
    "alora_invocation_tokens": "acts from certain tokens on only",
    "layer_replication": "repeats layers that share their weights",
    "megatron_config": "has the module that computes it imported by name",
}
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter's folder, read as far as it can be without a model."""

    name: str
    path: Path
    config: dict[str, Any]

    @property
    def made_for(self) -> str | None:
        """The model that it was made for, as whoever made it called that."""
        return self.config.get("base_model_name_or_path") or None


def settle(name: str, path: Path, wanted: str | None) -> tuple[Path, Adapter | None, tuple[str, ...]]:
    """Say which model and which adapter are meant by the model `name`, found at `path`, and the adapter `wanted`.

    A folder may hold a model, an adapter or both; what was not asked for by name is told in the notes, the third thing
    returned. `"none"` wants no adapter. Raises `LoadError` where it cannot be told what is meant, and
    `MissingExtraError` for an adapter without peft.
    """
    asked = None if wanted is None or wanted == "none" else _read_adapter(wanted)
    if path.is_file() or not (path / CONFIG).is_file():
        return path, asked, ()
    if not (path / "config.json").is_file():
        return _with_its_model(name, path, wanted)
    if asked is not None:
        return path, asked, (f"{name!r} holds an adapter of its own, which is not applied: {asked.name!r} is",)
    if wanted == "none":
        return path, None, (f"{name!r} holds an adapter, which is not applied, as asked for",)
    try:
        own = _read(name, path)
    except LoadError as error:
        raise type(error)(f"{error}; or leave it out with adapter='none'") from None
    return path, own, (f"{name!r} holds a model and an adapter, which is applied; adapter='none' leaves it out",)


def check_here(name: str, revision: str | None, adapter: str | None) -> None:
    """Raise what `find` and `settle` would, as far as the files lie here; fetches nothing."""
    found = find_here(name, revision)
    if found is not None and (adapter is None or adapter == "none" or _here(adapter)):
        settle(name, found, adapter)


def _with_its_model(name: str, path: Path, wanted: str | None) -> tuple[Path, Adapter, tuple[str, ...]]:
    own = _read(name, path)
    if wanted is not None:
        raise LoadError(f"{name!r} holds only an adapter; give {_base_in_words(own)} as the model.")
    base = own.made_for
    if base is None or not (base in EMBEDDED or Path(base).expanduser().is_dir()):
        raise LoadError(
            f"{name!r} holds only an adapter; give {_base_in_words(own)} as the model, and this as adapter={name!r} "
            "(draft_adapter for a draft)."
        )
    found = find(base)
    if not (found / "config.json").is_file():
        raise LoadError(f"{name!r} holds an adapter for {base!r}, which holds only an adapter too; give the model.")
    return found, own, (f"{name!r} holds an adapter for {base!r}: both were loaded",)


def _base_in_words(adapter: Adapter) -> str:
    return "the model that it was made for" if adapter.made_for is None else f"its model {adapter.made_for!r}"


def _read_adapter(name: str) -> Adapter:
    path = Path(name).expanduser()
    if path.is_file():
        raise LoadError(f"adapter {name!r} is a file; give the folder that holds {CONFIG} and {WEIGHTS}.")
    return _read(name, path if _here(name) else download(name))


def _here(name: str) -> bool:
    """Whether an adapter lies here, and is no hub name. Raises `LoadError` for what can be neither."""
    path = Path(name).expanduser()
    if path.exists():
        return True
    if name in EMBEDDED or path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise LoadError(f"adapter {name!r} does not exist; give a folder that holds {CONFIG}, or a hub name.")
    return False


def _read(name: str, path: Path) -> Adapter:
    if not (path / CONFIG).is_file():
        below = sorted(found.parent.name for found in path.glob(f"*/{CONFIG}"))
        hint = f"; there is one in each of {', '.join(below[:5])}: give one of them" if below else ""
        raise LoadError(f"adapter {name!r} has no {CONFIG}{hint or '; give the folder that peft wrote'}.")
    try:
        config = json.loads((path / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LoadError(f"adapter {name!r}: its {CONFIG} cannot be read ({brief(error)}); download it again.") from None
    if not isinstance(config, dict):
        raise LoadError(f"adapter {name!r}: its {CONFIG} holds no settings; download it again.")
    kind = config.get("peft_type")
    if kind != "LORA":
        if config.get("num_virtual_tokens"):
            raise LoadError(
                f"adapter {name!r} is of kind {kind!r}, which adds tokens of its own to a text; give a LoRA adapter."
            )
        raise LoadError(
            f"adapter {name!r} is of kind {kind!r}, and what can be applied is LoRA; merge it into its model with peft "
            "(merge_and_unload), and give the saved model."
        )
    for setting, why in _NOT_MERGED.items():
        if config.get(setting):
            raise LoadError(f"adapter {name!r} {why} ({setting}), so it cannot be merged; give another adapter.")
    if not (path / WEIGHTS).is_file():
        other = "" if not list(path.glob("*.bin")) else " (it has a .bin file: save it again with save_pretrained)"
        raise LoadError(f"adapter {name!r} has no {WEIGHTS}{other}.")
    require_extra("adapters", f"adapter {name!r}")
    return Adapter(name, path, config)
