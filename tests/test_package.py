"""The package's public face."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import draftproof
from draftproof import errors

ROOT = Path(draftproof.__file__).parent


def test_public_names_are_sorted_complete_and_importable():
    assert list(draftproof.__all__) == sorted(draftproof.__all__)
    for name in draftproof.__all__:
        assert getattr(draftproof, name).__doc__
    tree = [e for e in vars(errors).values() if isinstance(e, type) and e.__module__ == errors.__name__]
    assert {e.__name__ for e in tree} <= set(draftproof.__all__)
    assert set(draftproof.__all__) < set(dir(draftproof))
    with pytest.raises(AttributeError, match="no_such_name"):
        draftproof.no_such_name  # noqa: B018


def test_every_module_imports_and_explains_itself():
    for module in pkgutil.walk_packages([str(ROOT)], "draftproof."):
        assert importlib.import_module(module.name).__doc__, module.name


def test_no_source_file_is_longer_than_an_idea():
    longest = max(ROOT.rglob("*.py"), key=lambda f: len(f.read_text().splitlines()))
    assert len(longest.read_text().splitlines()) <= 330, longest


def test_the_embedded_pair_is_small_enough_for_a_wheel():
    assert sum(f.stat().st_size for f in (ROOT / "pair").rglob("*") if f.is_file()) <= 25e6


def test_the_wheel_carries_the_pair_and_its_card(tmp_path):
    root = ROOT.parent.parent
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, root],
        check=True,
    )
    (wheel,) = tmp_path.glob("draftproof-*.whl")
    names = {name.removeprefix("draftproof/pair/") for name in zipfile.ZipFile(wheel).namelist()}
    for part in ("target", "draft"):
        assert {f"{part}/model.safetensors", f"{part}/config.json", f"{part}/tokenizer.json"} <= names
    assert {"README.md", "training.json"} <= names
    assert wheel.stat().st_size <= 25e6
