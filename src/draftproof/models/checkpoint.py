"""Whether a folder's weight files are whole, fit into memory, and hold every number that the model needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import torch
from safetensors import SafetensorError, safe_open

from draftproof.errors import LoadError, brief
from draftproof.models.placement import DTYPES
from draftproof.records import Placement


def check_weight_files(name: str, path: Path, placement: Placement) -> None:
    """Raise `LoadError` if weight files are absent, cut off, or larger than the memory left."""
    index = path / "model.safetensors.index.json"
    if (path / "model.safetensors").is_file():
        files = [path / "model.safetensors"]
    elif index.is_file():
        files = sorted({path / name for name in json.loads(index.read_text())["weight_map"].values()})
    else:
        other = " (it has .bin files: save it again with model.save_pretrained)" if list(path.glob("*.bin")) else ""
        raise LoadError(f"{name!r} has no .safetensors weights{other}.")
    if absent := [file.name for file in files if not file.is_file()]:
        raise LoadError(f"{name!r} lacks {absent[0]!r}, which its index names; download it again.")
    parameters = 0
    for file in files:
        try:
            with safe_open(file, framework="pt") as tensors:
                parameters += sum(_size(tensors.get_slice(key).get_shape()) for key in tensors.keys())  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise LoadError(f"{str(file)!r} is cut off or damaged ({brief(error)}); download it again.") from error
    require_memory(name, parameters * DTYPES[placement.dtype].itemsize, placement)


def _size(shape: list[int]) -> int:
    return int(torch.Size(shape).numel())


def require_memory(name: str, needed: int, placement: Placement) -> None:
    free = psutil.virtual_memory().available
    if placement.device.startswith("cuda"):
        free = torch.cuda.mem_get_info(placement.device)[0]
    if needed > free:
        raise LoadError(
            f"{name!r} needs {needed / 2**30:.1f} GiB in {placement.dtype}, and {free / 2**30:.1f} GiB are free on "
            f"{placement.device}; close other programs, choose a smaller model, or --dtype bfloat16."
        )


def refuse_random_weights(name: str, info: dict[str, Any]) -> None:
    missing = sorted(info["missing_keys"])
    mismatched = sorted(str(m[0]) for m in info["mismatched_keys"])
    if missing or mismatched:
        what = f"lacks the weight {missing[0]!r}" if missing else f"has {mismatched[0]!r} in another shape than it says"
        more = len(missing) + len(mismatched) - 1
        also = f" (and {more} more)" if more else ""
        raise LoadError(f"{name!r} {what}{also}; it would run with random numbers there, so it is not run.")
