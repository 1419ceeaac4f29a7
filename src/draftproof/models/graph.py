"""A CUDA graph: the kernels of one pass, recorded once and started together."""

from __future__ import annotations

from collections.abc import Callable

import torch


class Graph:
    """What `function` does with tensors of these shapes, captured; a call copies its inputs in and replays.

    `function` must have run on such inputs before, so that all it allocates for good is there.
    """

    def __init__(self, function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> None:
        self._inputs = [tensor.clone() for tensor in inputs]
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            function(*self._inputs)
        torch.cuda.current_stream().wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._output = function(*self._inputs)

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        for own, given in zip(self._inputs, inputs, strict=True):
            own.copy_(given)
        self._graph.replay()
        return self._output.clone()
