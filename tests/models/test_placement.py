"""Where a model is put, in which number format, and why."""

from __future__ import annotations

import pytest
import torch

from draftproof import ConfigError, LoadError
from draftproof.models.load import load
from draftproof.models.placement import place


def test_too_little_memory_is_said_before_loading(model, tmp_path, monkeypatch):
    folder = tmp_path / "model"
    model.save_pretrained(folder)
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 1000})())
    with pytest.raises(LoadError, match="GiB"):
        load(folder)


def test_devices_and_dtypes_that_are_not_there():
    with pytest.raises(ConfigError, match="device is 'gpu'"):
        place("gpu")
    with pytest.raises(ConfigError, match="dtype is 'int4'"):
        place("cpu", "int4")
    with pytest.raises(ConfigError, match="cuda:9"):
        place("cuda:9")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match=r"device='cpu'"):
            place("cuda")
    if not torch.backends.mps.is_available():
        with pytest.raises(ConfigError, match="Apple"):
            place("mps")


def test_a_placement_gives_its_reason():
    assert place("cpu", "float32").reason == "cpu: asked for; float32: asked for"
    assert "as the weights are stored" in place("cpu", stored="float32").reason


@pytest.mark.parametrize(("has_units", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_bfloat16_on_a_cpu_only_where_it_computes_in_it(monkeypatch, has_units, expected):
    monkeypatch.setattr("draftproof.models.placement.cpu_has_bfloat16", lambda: has_units)
    assert place("cpu", stored="bfloat16").dtype == expected
