"""The compiler: where there is none, where it fails, where nothing can be kept; and who waits for it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from draftproof import CompileError, Speculator
from draftproof.models.native import library as library_module


@pytest.mark.parametrize("flags", ["flags : fma avx2 avx_vnni", "Features : fp asimd bf16", ""])
def test_where_compiled_passes_would_be_slower_nothing_is_compiled_by_itself(flags, tmp_path, monkeypatch):
    monkeypatch.setattr(library_module, "processor", lambda: flags)
    monkeypatch.setenv("DRAFTPROOF_CACHE", str(tmp_path))
    for compile in ("auto", "wait"):
        speculator = Speculator("demo-target", "demo-draft", compile=compile)
        assert speculator.target.placement.passes == speculator.draft.placement.passes == "transformers"
        (note,) = [note for note in speculator.notes if "without AVX-512" in note]
        assert note.startswith("demo-target and demo-draft: ")
    assert not list(tmp_path.rglob("*.so"))


@pytest.mark.parametrize(
    ("compiler", "reason"),
    [
        ("/nowhere/g++", "'/nowhere/g++', which CXX names, was not found"),
        ("/bin/false", "failed"),
        ("env", "failed"),
        ("broken", "failed: kernels.cpp: error: no"),
    ],
)
def test_without_a_compiler_decoding_goes_on(tmp_path, monkeypatch, compiler, reason):
    monkeypatch.setenv("DRAFTPROOF_CACHE", str(tmp_path))
    monkeypatch.setenv("CXX", str(_broken(tmp_path)) if compiler == "broken" else compiler)
    speculator = Speculator("demo-target", "demo-draft", compile="on")
    assert speculator.target.decoder is None
    assert reason in speculator.notes[0]
    assert speculator.generate("The", max_new_tokens=5, check=True).identical


@pytest.mark.parametrize("wait", [True, False])
def test_where_nothing_can_be_kept_decoding_goes_on(tmp_path, monkeypatch, wait):
    (tmp_path / "compiled").write_text("a file in the way")
    monkeypatch.setenv("DRAFTPROOF_CACHE", str(tmp_path))
    with pytest.raises(CompileError, match="cannot be compiled or kept"):
        library_module.library(wait=wait)


def test_a_torn_library_is_built_again(tmp_path, monkeypatch):
    library_module.library()
    built = library_module._target()
    monkeypatch.setenv("DRAFTPROOF_CACHE", str(tmp_path))
    copying = tmp_path / "c++"  # a compiler that needs no time: it hands out the kernels that are there
    copying.write_text(f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done; cp {built} "$2"\n')
    copying.chmod(0o755)
    monkeypatch.setenv("CXX", str(copying))
    target = library_module._target()
    target.write_bytes(b"\x7fELF")
    assert not library_module._intact(target)
    library_module.library()
    assert library_module._intact(target)
    torn = tmp_path / "torn.so"  # another file: the whole one is mapped into this process
    torn.write_bytes(target.read_bytes()[:20_000])
    torn.replace(target)
    assert not library_module._intact(target)


def test_a_compiler_that_fails_in_the_background_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTPROOF_CACHE", str(tmp_path))
    monkeypatch.setenv("CXX", str(_broken(tmp_path)))
    with pytest.raises(CompileError, match="being compiled in the background"):
        library_module.library(wait=False)
    deadline = time.monotonic() + 30
    errors = library_module._target().with_suffix(".building") / "errors.txt"
    while not (errors.is_file() and errors.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    with pytest.raises(CompileError, match=r"could not be compiled in the background: kernels\.cpp: error: no"):
        library_module.library(wait=False)


def _broken(folder):
    """A compiler that always complains."""
    script = folder / "c++"
    script.write_text("#!/bin/sh\necho 'kernels.cpp: error: no' >&2; exit 1\n")
    script.chmod(0o755)
    return script


def test_nobody_waits_for_the_compiler_by_default(tmp_path):
    """The first run goes through transformers while the kernels are made; the next has them."""
    code = (
        "from draftproof import Speculator; s = Speculator('demo-target', 'demo-draft'); "
        "print(s.target.placement.passes, *s.notes)"
    )
    env = {"DRAFTPROOF_CACHE": str(tmp_path), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin"}

    def run():
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
        return done.stdout

    first = run()
    assert first.startswith("transformers")
    if "avx512f" not in Path("/proc/cpuinfo").read_text():  # there nothing is compiled by itself
        assert "without AVX-512" in first
        return
    assert "in the background" in first
    deadline = time.monotonic() + 90
    while not list(tmp_path.glob("compiled/*.so")) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert run().startswith("compiled")
