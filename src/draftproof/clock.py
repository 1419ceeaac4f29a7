"""The only reader of a clock. Accelerators queue their work, so a clock that does not wait for them measures Python."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Something that tells the time in seconds, from an arbitrary start."""

    def now(self) -> float:
        """Return the time in seconds once all work that was queued before the call is done."""
        ...


class DeviceClock:
    """The real clock: waits for the queues of the given devices (`"cuda:0"`, `"mps"`, `"cpu"`), then reads."""

    def __init__(self, *devices: str) -> None:
        self._waits: list[Callable[[], None]] = []
        for device in sorted(set(devices)):
            if device.startswith(("cuda", "mps")):
                self._waits.append(_wait_for(device))

    def now(self) -> float:
        for wait in self._waits:
            wait()
        return time.perf_counter()


def _wait_for(device: str) -> Callable[[], None]:
    import torch

    if device.startswith("mps"):
        return torch.mps.synchronize
    return lambda: torch.cuda.synchronize(device)


class HandSetClock:
    """A clock that moves only when told to."""

    def __init__(self) -> None:
        self.time_s = 0.0

    def now(self) -> float:
        return self.time_s

    def advance(self, seconds: float) -> None:
        self.time_s += seconds
