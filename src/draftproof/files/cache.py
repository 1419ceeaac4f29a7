"""The folder that things made for this machine are kept in, and what the machine's processor can do."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def cache_folder(kind: str) -> Path:
    """Return the folder for things of this kind in `$DRAFTPROOF_CACHE`, or `~/.cache/draftproof`; make it if need be.

    Raises `OSError` where it cannot be made, and `RuntimeError` where there is no home.
    """
    folder = Path(os.environ.get("DRAFTPROOF_CACHE") or "~/.cache/draftproof").expanduser() / kind
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def processor() -> str:
    """Return what the processor can do, as Linux lists it, or its name elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
