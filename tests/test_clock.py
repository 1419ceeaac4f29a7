"""The clock waits for the device on both sides of a span; one that does not measures how fast Python queues."""

from __future__ import annotations

import pytest
import torch

from draftproof.clock import DeviceClock


class QueueingDevice:
    """A fake accelerator: starting work takes no time, and its results are there only after a wait."""

    def __init__(self, monkeypatch, cost_s):
        self.time_s, self.cost_s, self.queued, self.waits = 100.0, cost_s, 0, 0
        monkeypatch.setattr(torch.mps, "synchronize", self.synchronize)
        monkeypatch.setattr("time.perf_counter", lambda: self.time_s)

    def start(self):
        self.time_s += 1e-5  # what Python needs to queue it
        self.queued += 1

    def synchronize(self):
        self.waits += 1
        self.time_s += self.queued * self.cost_s
        self.queued = 0


def span(clock, device):
    started = clock.now()
    for _ in range(4):
        device.start()
    return clock.now() - started


def test_a_clock_that_does_not_wait_would_have_been_wrong_and_ours_is_not(monkeypatch):
    device = QueueingDevice(monkeypatch, cost_s=0.05)
    assert span(DeviceClock("cpu"), device) == pytest.approx(4e-5), "the fault: 200 ms of work look like 40 µs"
    device.synchronize()
    assert span(DeviceClock("mps"), device) == pytest.approx(0.2 + 4e-5)


def test_work_queued_before_the_span_is_not_charged_to_it(monkeypatch):
    device = QueueingDevice(monkeypatch, cost_s=0.05)
    device.start()
    assert span(DeviceClock("mps"), device) == pytest.approx(0.2 + 4e-5)
    assert device.waits == 2, "once before the span and once at its end"


def test_every_device_is_waited_for_once(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    monkeypatch.setattr(torch.mps, "synchronize", lambda: waited.append("mps"))
    DeviceClock("cuda:1", "mps", "cpu", "cuda:0", "cuda:0").now()
    assert sorted(waited) == ["cuda:0", "cuda:1", "mps"]
