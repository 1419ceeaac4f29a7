"""Running something as a process of its own, without the seconds that importing torch takes again."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from subprocess import CompletedProcess
from typing import Any

_NO_THREADS = {"TOKENIZERS_PARALLELISM": "false", "HF_DEACTIVATE_ASYNC_LOAD": "1"}
"""Pools of threads do not live on in a fork."""


def forked(
    call: Callable[[], Any], *, stdin: str = "", env: Mapping[str, str | None] | None = None, timeout: int = 120
) -> CompletedProcess[str]:
    """Run `call` in a fork of this process with standard streams of its own; return what it wrote and its exit code.

    `env` changes the environment (None takes a variable away). What ends the call with a traceback ends it with 1.
    """
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        given.write(stdin.encode())
        given.seek(0)
        child = os.fork()
        if child == 0:
            os._exit(_run(call, (given.fileno(), out.fileno(), errors.fileno()), env or {}, timeout))
        _, status = os.waitpid(child, 0)
        written = []
        for file in (out, errors):
            file.seek(0)
            written.append(file.read().decode())
    return CompletedProcess([], os.waitstatus_to_exitcode(status), *written)


def script(path: object) -> Callable[[], Any]:
    """Return what runs a file as `python FILE` would."""
    return lambda: runpy.run_path(str(path), run_name="__main__")


def command(*arguments: object) -> Callable[[], Any]:
    """Return what runs `draftproof` with these arguments."""

    def call() -> None:
        from draftproof.cli import main

        sys.argv = ["draftproof", *map(str, arguments)]
        main()

    return call


def _run(call: Callable[[], Any], streams: Sequence[int], env: Mapping[str, str | None], timeout: int) -> int:
    signal.alarm(timeout)  # whoever hangs is killed
    for number, file in enumerate(streams):
        os.dup2(file, number)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode, encoding="utf-8") for number, mode in enumerate("rww"))
    for name, value in {**_NO_THREADS, **env}.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    code: Any = 0
    try:
        call()
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else int(code is not None)
