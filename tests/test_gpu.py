"""What only a GPU can show."""

from __future__ import annotations

import pytest
import torch

from draftproof import Speculator
from draftproof.clock import DeviceClock
from draftproof.testing import noisy, random_model

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize(("target", "draft"), [("cuda", "cuda"), ("cpu", "cuda"), ("cuda", "cpu")])
def test_target_and_draft_may_stand_on_different_devices(target, draft):
    model = random_model()
    expected = Speculator(model).generate([5, 9, 7], max_new_tokens=60).tokens
    speculator = Speculator(random_model().to(target), noisy(model, 0.1).to(draft), k=4)
    made = speculator.generate([5, 9, 7], max_new_tokens=60)
    assert made.tokens == speculator.generate([5, 9, 7], max_new_tokens=60, k=0).tokens
    assert made.tokens == expected
    assert 0 < made.counts.acceptance_rate < 1


def test_the_clock_waits_for_the_queue():
    clock = DeviceClock("cuda:0")
    a = torch.randn(4096, 4096, device="cuda")
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    began = clock.now()
    start.record()
    for _ in range(50):
        a = a @ a / 4096
    end.record()
    spent = clock.now() - began
    assert spent >= 0.9 * start.elapsed_time(end) / 1000
