"""Passes that were found right are not tried again for the same files, and only for those."""

from __future__ import annotations

import os

import pytest

from draftproof import CacheError
from draftproof.models import checked
from draftproof.models import load as load_module
from draftproof.models.load import load
from draftproof.testing import byte_tokenizer, noisy, random_model


@pytest.fixture
def tried(monkeypatch, nothing_checked):
    """What was tried, in an empty memory."""
    names = []
    for name in ("check_cache", "agrees"):
        right = getattr(load_module, name)
        monkeypatch.setattr(load_module, name, lambda *args, r=right, n=name: names.append(n) or r(*args))
    return names


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "model"
    random_model(vocab_size=257).save_pretrained(path)
    byte_tokenizer().save_pretrained(path)
    return path


@pytest.mark.parametrize(("compile", "once"), [("off", ["check_cache"]), ("on", ["agrees"])])
def test_the_same_files_are_tried_once(folder, tried, compile, once):
    for _ in range(3):
        found = load(folder, dtype="float32", compile=compile)
        assert (found.placement.passes == "compiled") == (compile == "on")
        assert tried == once


def test_other_files_formats_and_passes_are_tried(folder, tried):
    given = [
        {"dtype": "float32"},
        {"dtype": "bfloat16"},
        {"dtype": "float32", "compile": "on"},
        {"dtype": "float32", "weights": "int8"},
    ]
    for i, options in enumerate(given):
        load(folder, **options)
        assert len(tried) > i
    before = len(tried)
    for options in given:
        load(folder, **options)
    assert len(tried) == before
    weights = folder / "model.safetensors"
    noisy(random_model(vocab_size=257), 0.1).save_pretrained(folder)
    load(folder, dtype="float32")
    assert len(tried) == before + 1
    os.utime(weights, ns=(1, 1))
    load(folder, dtype="float32")
    assert len(tried) == before + 2


def test_what_was_found_wrong_is_tried_again(folder, tried, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("draftproof.models.trial.agrees", lambda session, sample: False)
        for _ in range(2):
            with pytest.raises(CacheError, match="in pieces"):
                load(folder, dtype="float32")
    assert tried == ["check_cache"] * 2
    load(folder, dtype="float32")
    load(folder, dtype="float32")
    assert tried == ["check_cache"] * 3


def test_where_nothing_can_be_kept_everything_is_tried(folder, tried, monkeypatch):
    def refuse(kind):
        raise PermissionError("read-only")

    monkeypatch.setattr(checked, "cache_folder", refuse)
    for _ in range(2):
        load(folder, dtype="float32")
    assert tried == ["check_cache"] * 2
