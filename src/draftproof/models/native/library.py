"""Compile the kernels once for this machine, keep the result, and load it."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from draftproof.errors import CompileError

SOURCE = Path(__file__).with_name("kernels.cpp")
FLAGS = ("-O3", "-march=native", "-std=c++17", "-fPIC", "-fopenmp")


def library(*, wait: bool = True) -> ctypes.CDLL:
    """Return the compiled kernels, compiling them first if this machine has not yet: a few seconds, once.

    They are kept in `$DRAFTPROOF_CACHE`, or `~/.cache/draftproof`, under a name that depends on the source, the flags,
    the compiler and the processor. Without `wait`, kernels that are not there are compiled in the background, for
    whoever comes next. Raises `CompileError` where they are not to be had (now).
    """
    target = _target()
    if not target.is_file():
        if not wait:
            _compile_in_background(target)
            raise CompileError("the kernels are being compiled in the background; the next run will have them")
        _compile(target)
    return _loaded(target)


@functools.cache
def _loaded(target: Path) -> ctypes.CDLL:
    try:
        # its OpenMP is the one that torch has loaded: two pools of threads would spin against each other
        return ctypes.CDLL(str(target))
    except OSError as error:
        raise CompileError(f"the compiled kernels do not load: {error}") from error


@functools.cache
def _target() -> Path:
    if sys.platform != "linux":
        raise CompileError(f"compiled passes are built for Linux only, and this is {sys.platform}")
    folder = Path(os.environ.get("DRAFTPROOF_CACHE") or "~/.cache/draftproof").expanduser() / "compiled"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CompileError(f"cannot make the folder {str(folder)!r}: {error}; set DRAFTPROOF_CACHE") from error
    return folder / f"kernels-{_fingerprint(_compiler())}.so"


def _compiler() -> str:
    found = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if found is None:
        raise CompileError("no C++ compiler was found; install g++, or set CXX")
    return found


def _fingerprint(compiler: str) -> str:
    try:
        version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise CompileError(f"the compiler {compiler!r} does not run: {error}") from error
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    processor = next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
    parts = (SOURCE.read_text(), " ".join(FLAGS), version, platform.machine(), processor)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def _commands(work: Path, target: Path) -> list[list[str]]:
    """Build beside the target and rename, so that two processes may do it at once."""
    unit, built = work / "kernels.o", work / "kernels.so"
    # linked without -fopenmp: the symbols are found in the library that torch has loaded
    return [
        [_compiler(), *FLAGS, "-c", str(SOURCE), "-o", str(unit)],
        [_compiler(), "-shared", str(unit), "-o", str(built)],
        ["mv", str(built), str(target)],
    ]


def _compile(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        for command in _commands(Path(work), target):
            try:
                subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
            except subprocess.CalledProcessError as error:
                lines = error.stderr.strip().splitlines()
                why = next((line for line in lines if "error" in line), lines[0] if lines else str(error))
                raise CompileError(f"{command[0]} failed: {why}") from error
            except (OSError, subprocess.SubprocessError) as error:
                raise CompileError(f"{command[0]} did not run: {error}") from error


def _compile_in_background(target: Path) -> None:
    """Start the compiler at the lowest priority and leave it to itself; a start within ten minutes is enough."""
    work = target.with_suffix(".building")
    if work.is_dir() and time.time() - work.stat().st_mtime < 600:
        return
    work.mkdir(exist_ok=True)
    os.utime(work)
    steps = " && ".join(shlex.join(command) for command in _commands(work, target))
    off = subprocess.DEVNULL
    command = ["nice", "-n", "19", "sh", "-c", f"{steps} && rm -r {shlex.quote(str(work))}"]
    subprocess.Popen(command, stdin=off, stdout=off, stderr=off, start_new_session=True)
