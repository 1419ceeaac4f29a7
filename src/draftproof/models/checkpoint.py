"""Whether a folder's weight files are whole, one model's, fit into memory, and hold every number that is needed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from draftproof.errors import LoadError, brief
from draftproof.models.declared import read_json
from draftproof.models.memory import free_bytes
from draftproof.models.placement import DTYPES
from draftproof.records import Placement

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def check_weight_files(name: str, path: Path, placement: Placement, *, quantised: bool = False) -> tuple[str, ...]:
    """Return notes on the weight files of the folder `path`.

    Raises `LoadError` if they are absent, cut off, of two models, or larger than the memory left; `quantised` says that
    they stay as small as they are.
    """
    single, shards = path / SINGLE, _shards(name, path)
    absent = [file.name for file in shards if not file.is_file()]
    notes: tuple[str, ...] = ()
    if single.is_file():
        others = [file for file in shards if file != single]
        if others and not absent and not _same_weights([single], shards):
            raise LoadError(
                f"{name!r} holds two sets of weights that differ, {SINGLE} and the {len(shards)} files that {INDEX} "
                "names, and nothing says which is meant; move one of them away."
            )
        if others and absent:
            notes = (f"{name}: {INDEX} names {absent[0]!r}, which is not there; {SINGLE} is read instead",)
        files = [single]
    elif shards:
        if absent:
            raise LoadError(f"{name!r} lacks {absent[0]!r}, which its index names; download it again.")
        files = shards
    else:
        raise LoadError(_no_weights(name, path))
    sizes = [size for file in files for size in _sizes(file).values()]
    if not sizes:
        raise LoadError(f"{name!r} has weight files that hold nothing; download it again.")
    in_memory = sum(file.stat().st_size for file in files)
    if not quantised:
        in_memory = sum(sizes) * DTYPES[placement.dtype].itemsize
    require_memory(name, in_memory, placement)
    return notes


def _shards(name: str, path: Path) -> list[Path]:
    index = path / INDEX
    if not index.is_file():
        return []
    named = read_json(index).get("weight_map")
    files = set(named.values()) if isinstance(named, dict) else set()
    if not files or not all(isinstance(file, str) and file and Path(file).name == file for file in files):
        raise LoadError(f"{INDEX} of {name!r} does not name the files beside it; download it again.")
    return sorted(path / file for file in files)


def _no_weights(name: str, path: Path) -> str:
    pickled = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for file in path.glob(pattern))
    if not pickled:
        return f"{name!r} has no .safetensors weights; give a folder that holds them, or a .gguf file."
    return (
        f"{name!r} has no .safetensors weights, only {pickled[0]}, a pickle, which may run code as it is read; if you "
        "trust it, convert it once: AutoModelForCausalLM.from_pretrained(folder).save_pretrained(another_folder)."
    )


def _sizes(file: Path) -> dict[str, int]:
    try:
        with safe_open(file, framework="pt") as tensors:
            return {key: int(torch.Size(tensors.get_slice(key).get_shape()).numel()) for key in tensors.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise LoadError(f"{str(file)!r} is cut off or damaged ({brief(error)}); download it again.") from error


def _same_weights(some: Sequence[Path], others: Sequence[Path]) -> bool:
    where = [{key: file for file in files for key in _sizes(file)} for files in (some, others)]
    if where[0].keys() != where[1].keys():
        return False
    for key in where[0]:
        with safe_open(where[0][key], framework="pt") as one, safe_open(where[1][key], framework="pt") as other:
            a, b = one.get_tensor(key), other.get_tensor(key)
            if a.dtype != b.dtype or not torch.equal(a, b):
                return False
    return True


def require_memory(name: str, needed: int, placement: Placement) -> None:
    """Raise `LoadError` if fewer than `needed` bytes are free where the model goes."""
    free = free_bytes(placement.device)
    if needed > free:
        raise LoadError(
            f"{name!r} needs {needed / 2**30:.1f} GiB in {placement.dtype}, and {free / 2**30:.1f} GiB are free on "
            f"{placement.device}; close other programs, choose a smaller model, or dtype='bfloat16'."
        )


def judge_loading(
    name: str, info: dict[str, Any], config: Any, needed: Collection[str] | None = None
) -> tuple[str, ...]:
    """Return notes on what transformers says it did with the weights; `needed` are those that are used, None for all.

    Raises `LoadError` where the model would run with random numbers, and where the weights are of a deeper model.
    """
    missing = sorted(key for key in info["missing_keys"] if needed is None or key in needed)
    mismatched = sorted(str(m[0]) for m in info["mismatched_keys"] if needed is None or str(m[0]) in needed)
    if missing or mismatched:
        what = f"lacks the weight {missing[0]!r}" if missing else f"has {mismatched[0]!r} in another shape than it says"
        more = len(missing) + len(mismatched) - 1
        also = f" (and {more} more)" if more else ""
        raise LoadError(f"{name!r} {what}{also}; it would run with random numbers there, so it is not run.")
    unused = sorted(info["unexpected_keys"])
    refuse_deeper(name, unused, config)
    return (unused_note(name, unused),) if unused else ()


def refuse_deeper(name: str, unused: Iterable[str], config: Any) -> None:
    """Raise `LoadError` if some of the weights that are not used are of layers beyond those of the config."""
    text = config.get_text_config(decoder=True)
    layers = getattr(text, "num_hidden_layers", None)
    if layers is None:
        return
    ahead = getattr(text, "num_nextn_predict_layers", None) or 0  # these guess several tokens, behind the others
    found = [re.search(r"(?:^|\.)(?:layers|h|blk|blocks)\.(\d+)\.", key) for key in unused]
    beyond = sorted({int(one[1]) for one in found if one and int(one[1]) >= layers + ahead})
    if beyond:
        raise LoadError(
            f"{name!r} has {layers} layers by its config, and weights for layer {beyond[0]}"
            f"{f' to {beyond[-1]}' if len(beyond) > 1 else ''} too; config and weights are of different models: "
            "download them again together."
        )


def unused_note(name: str, unused: Sequence[str]) -> str:
    """Say which weights of the files have no place in the model."""
    shown = ", ".join(unused[:3])
    more = f" and {len(unused) - 3} more" if len(unused) > 3 else ""
    return f"{name}: the model has no place for the weights {shown}{more}; they are not used"
