"""The clock waits for the device on both sides of a span."""

from __future__ import annotations

import torch

from draftproof.clock import DeviceClock


def test_the_clock_reads_only_after_every_device_is_done(monkeypatch):
    """A fake device that queues work: reading without waiting would have missed it."""
    done = {"cuda:0": False, "cuda:1": False, "mps": False}
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: done.update({device: True}))
    monkeypatch.setattr(torch.mps, "synchronize", lambda: done.update(mps=True))
    monkeypatch.setattr("time.perf_counter", lambda: 1.0 if all(done.values()) else 0.0)
    clock = DeviceClock("cuda:1", "mps", "cpu", "cuda:0", "cuda:0")
    assert not any(done.values())
    assert clock.now() == 1.0


def test_on_the_cpu_there_is_nothing_to_wait_for():
    clock = DeviceClock("cpu")
    assert clock.now() <= clock.now()
