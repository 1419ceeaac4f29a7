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
from draftproof.files.cache import cache_folder, processor
from draftproof.models.native.structures import declare

SOURCE = Path(__file__).with_name("kernels.cpp")
"""What is compiled; it includes the headers beside it."""
FLAGS = ("-O3", "-march=native", "-std=c++17", "-fPIC", "-fopenmp", "-ffp-contract=off", "-Wno-psabi")
"""Without contraction the sources alone say which products and sums are rounded once (see `fused` in vectors.h)."""


SLOWER = (
    "without AVX-512 a compiled pass over several tokens takes longer than transformers' own; "
    "compile='on' takes it all the same"
)


def library(*, wait: bool = True, slower: bool = True) -> ctypes.CDLL:
    """Return the compiled kernels, compiling them first if this machine has not yet: a few seconds, once.

    They are kept in `$DRAFTPROOF_CACHE`, or `~/.cache/draftproof`, under a name that depends on the source, the flags,
    the compiler and the processor. Without `wait`, kernels that are not there are compiled in the background, for
    whoever comes next. Without `slower`, those that are slower than what they replace are not to be had: by rule, those
    without AVX-512. Raises `CompileError` where they are not to be had (now).
    """
    if sys.platform != "linux":
        raise CompileError(f"compiled passes are built for Linux only, and this is {sys.platform}")
    if not slower and "avx512f" not in processor().split():
        raise CompileError(SLOWER)
    try:
        target = _target()
        if not _intact(target):
            if not wait:
                _compile_in_background(target)
                raise CompileError("the kernels are being compiled in the background; the next run will have them")
            _compile(target)
        found = _loaded(target)
        if not slower and found.draftproof_level() == 0:  # the processor could, and the compiler was told otherwise
            raise CompileError(SLOWER)
        return found
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # no home, no room, no permission, no shell
        raise CompileError(f"the kernels cannot be compiled or kept: {error}") from error


@functools.cache
def _loaded(target: Path) -> ctypes.CDLL:
    # its OpenMP is the one that torch has loaded: two pools of threads would spin against each other
    found = ctypes.CDLL(str(target))
    declare(found)
    return found


def _target() -> Path:
    return cache_folder("compiled") / f"kernels-{_fingerprint(_compiler())}.so"


def _intact(target: Path) -> bool:
    """Whether the file is there and whole: a torn one would kill the process that loads it."""
    try:
        return hashlib.sha256(target.read_bytes()).hexdigest() == _seal(target).read_text().split()[0]
    except (FileNotFoundError, IndexError):
        return False


def _seal(target: Path) -> Path:
    return target.with_suffix(".sha256")


def _compiler() -> tuple[str, ...]:
    """The compiler and its first arguments: `CXX` may hold several words, such as `ccache g++`."""
    words = shlex.split(os.environ.get("CXX", ""))
    found = words or [name for name in ("g++", "c++") if shutil.which(name)][:1]
    if not found:
        raise CompileError("no C++ compiler was found; install g++, or set CXX")
    if absent := [word for word in found if not word.startswith("-") and shutil.which(word) is None]:
        raise CompileError(f"the compiler {absent[0]!r}, which CXX names, was not found")
    return tuple(found)


def _fingerprint(compiler: tuple[str, ...]) -> str:
    """Of what the kernels depend on; the compiler counts by its file, since asking it for its version takes time."""
    found = [Path(path).resolve() for path in map(shutil.which, compiler) if path]
    files = [f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in found]
    sources = (source.read_text() for source in (SOURCE, *sorted(SOURCE.parent.glob("*.h"))))
    parts = (*sources, " ".join(FLAGS), *compiler, *files, platform.machine(), processor())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def _commands(work: Path, target: Path) -> list[list[str]]:
    """Build in a folder beside the target and rename, so that two processes may do it at once."""
    unit, built = work / "kernels.o", work / target.name
    # linked without -fopenmp: the symbols are found in the library that torch has loaded
    return [
        [*_compiler(), *FLAGS, "-c", str(SOURCE), "-o", str(unit)],
        [*_compiler(), "-shared", str(unit), "-o", str(built)],
        ["mv", str(built), str(target)],
    ]


def _compile(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        *build, move = _commands(Path(work), target)
        for command in build:
            try:
                subprocess.run(command, capture_output=True, errors="replace", check=True, timeout=600)
            except subprocess.CalledProcessError as error:
                raise CompileError(f"{command[0]} failed: {_complaint(error.stderr) or error}") from error
            except subprocess.TimeoutExpired as error:
                raise CompileError(f"{command[0]} took more than ten minutes") from error
        digest = hashlib.sha256(Path(move[1]).read_bytes()).hexdigest()
        Path(move[1]).replace(target)
        _seal(target).write_text(digest)


def _complaint(output: str) -> str:
    lines = output.strip().splitlines()
    return next((line for line in lines if "error" in line), lines[0] if lines else "")


def _compile_in_background(target: Path) -> None:
    """Start the compiler at the lowest priority and leave it to itself; one start within ten minutes is enough."""
    work = target.with_suffix(".building")
    errors = work / "errors.txt"
    try:
        work.mkdir()  # of two processes one gets past this
    except FileExistsError:
        if time.time() - work.stat().st_mtime < 600:
            if complaint := _complaint(errors.read_text(errors="replace") if errors.is_file() else ""):
                raise CompileError(f"the kernels could not be compiled in the background: {complaint}") from None
            return
        shutil.rmtree(work)  # given up, or killed
        work.mkdir()
    *build, move = (shlex.join(command) for command in _commands(work, target))
    built, seal = shlex.quote(str(work / target.name)), shlex.quote(str(_seal(target)))
    steps = " && ".join([*build, f"sha256sum {built} > {seal}", move, f"rm -r {shlex.quote(str(work))}"])
    # through a shell that ends at once, so that nobody has to wait for the compiler; in the same session, since Linux
    # weighs niceness within a session only, but out of the reach of the terminal's Ctrl-C
    detached = f"nice -n 19 sh -c {shlex.quote(steps)} 2> {shlex.quote(str(errors))} &"
    off = subprocess.DEVNULL
    subprocess.run(["sh", "-c", detached], stdin=off, stdout=off, stderr=off, process_group=0, check=True)
