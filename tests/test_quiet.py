"""Importing and decoding say nothing that is not ours, and leave everybody's logging as it was."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

WATCH = """
import logging
names = ("", "torch", "torch.utils", "torch.utils._pytree", "torchao", "transformers")
state = lambda: {n: (l.level, l.propagate, l.disabled, list(l.handlers)) for n in names for l in [logging.getLogger(n)]}
import torch
before = state()
%s
after = state()
for name in names:  # transformers sets up its own logger when it is imported, whoever does so
    assert name == "transformers" or before[name] == after[name], (name, before[name], after[name])
import transformers
assert transformers.logging.get_verbosity() == transformers.logging.WARNING
logging.getLogger("torchao").warning("still heard")
"""
DECODE = "from draftproof import Speculator; Speculator('demo-target', 'demo-draft', compile='off')"
QUANTISE = DECODE.replace("compile='off'", "compile='off', weights='int8'")


@pytest.mark.parametrize(
    "what",
    [
        "import draftproof.sampling.processors",
        DECODE + ".generate('The', max_new_tokens=3)\n" + QUANTISE + ".generate('The', max_new_tokens=3)",
    ],
)
def test_nothing_is_said_and_no_logger_is_changed(what):
    environment = {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}
    command = [sys.executable, "-c", WATCH % what]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode == 0, ended.stderr
    said = [line for line in ended.stderr.replace("\r", "\n").splitlines() if "Loading weights" not in line]
    assert (ended.stdout, [line for line in said if line.strip()]) == ("", ["still heard"])
