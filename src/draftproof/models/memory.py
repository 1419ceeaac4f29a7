"""How much memory is free: of a GPU, or of the machine, or of the container that this process is confined to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import torch


def free_bytes(device: str = "cpu", root: Path = Path("/")) -> int:
    """Return the bytes that are free on `device`; `root` is where `proc` and `sys` are looked for."""
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(device)[0])
    return max(0, min([psutil.virtual_memory().available, *_left_in_groups(root)]))


def _left_in_groups(root: Path) -> Iterator[int]:
    """Yield what each control group around this process has left, in cgroups of version 1 and 2."""
    groups = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, own = ([*line.split(":", 2), "", ""])[:3]
        if not controllers:
            yield from _left(groups, own, ("memory.max", "memory.high"), "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"
            yield from _left(groups / "memory", own, *names)


def _left(base: Path, own: str, limits: tuple[str, ...], used: str, reclaimable: str) -> Iterator[int]:
    """Yield limit - used of a group and of all around it; files that the kernel can drop from memory count as free.

    Inside a container a group may be mounted as the root while its name is still the host's: what is not there is
    passed over, and the root is read in any case.
    """
    parts = [part for part in own.split("/") if part not in ("", "..")]
    for depth in range(len(parts), -1, -1):
        group = base.joinpath(*parts[:depth])
        held = _number(_text(group / used))
        if held is None:
            continue
        stat = dict(line.split(maxsplit=1) for line in _text(group / "memory.stat").splitlines() if " " in line)
        droppable = min(_number(stat.get(reclaimable, "")) or 0, held)
        for name in limits:
            limit = _number(_text(group / name))  # none where it says "max"
            if limit is not None:
                yield limit - held + droppable


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdecimal() else None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
