"""Weights in the layout of the kernels: panels of 16 output rows."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from draftproof.errors import CompileError

KINDS = {torch.float32: 0, torch.bfloat16: 1}
"""Number formats of weights and caches, by their number in kernels.cpp."""
INT8, INT4 = 2, 3
"""Weights of 8 bits with a scale for each row, and of 4 bits with one for each group of inputs (see `quantise`)."""
GROUP = 32
LANES = 16
_HUGE_PAGE = 1 << 21


def kind_of(weight: Any) -> int:
    """The number format of a matrix, by its number in kernels.cpp. Raises `CompileError` for others."""
    if not hasattr(weight, "qdata"):
        return KINDS[weight.dtype]
    if weight.scale.shape[-1] == 1:
        return INT8
    if weight.shape[1] != GROUP * weight.scale.shape[1] or weight.shape[1] % 64 or weight.scale.dtype != torch.bfloat16:
        raise CompileError(f"compiled passes need 4-bit weights in groups of {GROUP}, and rows of a multiple of 64")
    return INT4


def four_bits(weight: Any) -> Tensor:
    """Return 4-bit weights in panels, a row of bytes each: halves of bytes, and scales after every 64 inputs."""
    rows, columns = weight.shape
    padding = (0, 0, 0, -rows % LANES)
    halves = nn.functional.pad((weight.qdata + 8).to(torch.uint8), padding).view(-1, LANES, columns // 64, 8, 2, 4)
    packed = halves[..., 0, :] | halves[..., 1, :] << 4  # [panel, row, block, 8, 4]
    scales = nn.functional.pad(weight.scale, padding).view(-1, LANES, columns // 64, 2)
    lines = packed.permute(0, 2, 3, 1, 4).flatten(2), scales.permute(0, 2, 3, 1).flatten(2).contiguous()
    return torch.cat([lines[0], lines[1].view(torch.uint8)], dim=2).flatten(1)


def in_panels(values: Sequence[Tensor | None], rows: Sequence[int], alternate: bool) -> Tensor:
    """One number for each row of several matrices (None: zeros), in the order in which the rows are packed."""
    parts = []
    for value, count in zip(values, rows, strict=True):
        whole = value is not None and not value.is_floating_point()
        padded = torch.zeros(-(-count // LANES) * LANES, dtype=torch.int32 if whole else torch.float32)
        if value is not None:
            padded[:count] = value.detach()
        parts.append(padded.view(-1, LANES))
    return (torch.stack(parts, dim=1) if alternate else torch.cat(parts)).flatten()


def allocate(size: int) -> Tensor:
    """Return `size` bytes of memory, in huge pages where the system has them: far fewer pages to look up in a pass."""
    if size < _HUGE_PAGE:
        return torch.empty(size, dtype=torch.uint8)
    block = mmap.mmap(-1, size + _HUGE_PAGE)
    block.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(block, dtype=torch.uint8)
    skip = -whole.data_ptr() % _HUGE_PAGE
    return whole[skip : skip + size]
