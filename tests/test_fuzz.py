"""Random requests, on and off; and, planted one by one, the faults that this would find."""

from __future__ import annotations

import os
from dataclasses import fields

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, note, settings

from draftproof.options import Options
from tests.fuzzing import CASES, differences
from tests.planting import PLANTS, keep_place

COUNT = int(os.environ.get("DRAFTPROOF_FUZZ", "150"))
"""Cases of the run; `make fuzz` sets it to many."""


@settings(
    max_examples=COUNT,
    deadline=None,
    derandomize="DRAFTPROOF_FUZZ" not in os.environ,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)
@given(case=CASES)
def test_no_option_changes_its_meaning_when_guesses_are_in_play(case):
    found = differences(case)
    note("\n".join(found))
    assert not found


def could_show(plant, case):
    """Whether a request has what the fault is about: others need not be written."""
    name = plant.__name__.removeprefix("plant_")
    drawn = {"end_token": case.end_at, "several_end_tokens": case.end_at, "stop_string": case.stop_at}
    drawn |= {"bad_words": case.ban_at}
    options = [one.name for one in fields(Options) if name.endswith(one.name)]
    return bool(drawn[name]) if name in drawn else all(option in case.options for option in options)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__.removeprefix("plant_"))
def test_a_planted_fault_is_found(monkeypatch, plant):
    keep_place(monkeypatch)
    plant(monkeypatch)
    looked_at = []

    @settings(
        max_examples=600,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=CASES.filter(lambda case: could_show(plant, case)))
    def search(case):
        looked_at.append(case)
        assert not differences(case)

    with pytest.raises((AssertionError, IndexError)):
        search()
    assert torch.is_inference_mode_enabled() is False
    assert looked_at
