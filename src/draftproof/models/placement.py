"""One decision for device and number format, with its reason."""

from __future__ import annotations

import torch

from draftproof import settings
from draftproof.errors import ConfigError
from draftproof.records import Placement

DTYPES = {name: getattr(torch, name) for name in settings.DTYPES if name != "auto"}


def place(
    device: str = "auto", dtype: str = "auto", *, stored: str | None = None, because: str = "asked for"
) -> Placement:
    """Decide where a model runs and in which format.

    `device` is one of `settings.DEVICES`, or one with an index such as `"cuda:1"`; `dtype` is one of `settings.DTYPES`;
    `stored` names the format of the weights on disk, where it is known; `because` is the reason to give for a device
    that was not left to `auto`. Raises `ConfigError` for an unknown name and
    for a device that is not there.
    """
    settings.check_settings(device=device, dtype=dtype)
    kind, _, index = device.partition(":")
    if kind == "auto":
        kind = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        device, why = kind, {"cuda": "a CUDA GPU is there", "mps": "an Apple GPU is there", "cpu": "no GPU found"}[kind]
    else:
        _require(kind, int(index or 0))
        why = because
    if dtype != "auto":
        return Placement(device, dtype, f"{device}: {why}; {dtype}: asked for")
    dtype, reason = _best_dtype(kind, stored)
    return Placement(device, dtype, f"{device}: {why}; {dtype}: {reason}")


def _require(kind: str, index: int) -> None:
    if kind == "cuda" and (not torch.cuda.is_available() or index >= torch.cuda.device_count()):
        found = torch.cuda.device_count() if torch.cuda.is_available() else 0
        raise ConfigError(f"device cuda:{index} is not there ({found} CUDA devices found); try device='cpu'.")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("device mps is not there (it needs an Apple GPU); try device='cpu'.")


def _best_dtype(kind: str, stored: str | None) -> tuple[str, str]:
    if stored == "float32":
        return "float32", "as the weights are stored"
    if kind == "cuda":
        if torch.cuda.is_bf16_supported():
            return "bfloat16", "half the bytes to read, and this GPU computes in it"
        return "float16", "half the bytes to read; this GPU has no bfloat16"
    if kind == "mps":
        return "float16", "half the bytes to read"
    if cpu_has_bfloat16():
        return "bfloat16", "half the bytes to read, and this CPU multiplies in it"
    return "float32", "this CPU has no bfloat16 instructions"


def cpu_has_bfloat16() -> bool:
    """Return whether the CPU has instructions that multiply in bfloat16."""
    tests = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return any(bool(getattr(torch.cpu, name, bool)()) for name in tests)
