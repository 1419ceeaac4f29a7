"""Weights in the layout of the kernels: panels of 16 output rows."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from draftproof.errors import CompileError

KINDS = {torch.float32: 0, torch.bfloat16: 1}
"""Number formats of weights and caches, by their number in kernels.cpp."""
INT8, INT4 = 2, 3
"""Weights of 8 bits with a scale for each row, and of 4 bits with one for each group of inputs (see `quantise`)."""
GROUP = 32
"""Inputs of a 4-bit row that share a scale."""
BLOCK4 = 8 * 64 + 2 * 32
"""Bytes of 64 inputs for 16 rows of 4-bit weights, with their scales."""
LANES = 16
_HUGE_PAGE = 1 << 21


def kind_of(weight: Any) -> int:
    """The number format of a matrix, by its number in kernels.cpp. Raises `CompileError` for others.

    Of torchao's many formats only those that `quantise` makes are covered.
    """
    if not hasattr(weight, "qdata"):
        if weight.dtype not in KINDS:
            raise CompileError(f"compiled passes do not know weights in {weight.dtype}")
        return KINDS[weight.dtype]
    columns, kind = weight.shape[1], type(weight).__name__
    symmetric = weight.zero_point is None or not bool(weight.zero_point.any())
    if kind == "Int8Tensor" and weight.act_quant_kwargs is not None:
        inputs = weight.act_quant_kwargs
        dynamic = weight.act_quant_scale is None and weight.act_pre_scale is None
        by_row = list(weight.block_size) == [1, columns] and type(inputs.granularity).__name__ == "PerRow"
        alike = inputs.mapping_type.name == "SYMMETRIC" and not inputs.reduce_range and not weight.reduce_range
        if symmetric and dynamic and by_row and alike and columns % 4 == 0:
            return INT8
    if kind == "IntxUnpackedToInt8Tensor" and str(weight.target_dtype) == "torch.int4":
        inputs = getattr(weight.activation_quantization, "value", weight.activation_quantization)
        grouped = list(weight.block_size) == [1, GROUP] and weight.scale.dtype == torch.bfloat16
        if grouped and columns % 64:
            raise CompileError(f"compiled passes need 4-bit rows of a multiple of 64, and there is one of {columns}")
        if symmetric and grouped and inputs == "int8_asym_per_token":
            return INT4
    raise CompileError(f"compiled passes do not know weights of this kind of {kind}")


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


class Arena:
    """Memory for weights, handed out piece by piece from large blocks, so that little of a huge page is left over."""

    BLOCK = 1 << 28

    def __init__(self) -> None:
        self._left = torch.empty(0, dtype=torch.uint8)

    def take(self, size: int) -> Tensor:
        """Return `size` bytes that begin on a line of the processor's cache."""
        if size > self._left.numel():
            self._left = allocate(max(size, self.BLOCK))
        taken, self._left = self._left[:size], self._left[-(-size // 64) * 64 :]
        return taken


def allocate(size: int) -> Tensor:
    """Return `size` bytes of memory, in huge pages where the system has them: far fewer pages to look up in a pass."""
    if size < _HUGE_PAGE:
        return torch.empty(size, dtype=torch.uint8)
    block = mmap.mmap(-1, size + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError, AttributeError):  # a kernel without them
        block.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(block, dtype=torch.uint8)
    skip = -whole.data_ptr() % _HUGE_PAGE
    return whole[skip : skip + size]
