"""Imports that talk: what torchao tells as it is imported is of no use to whoever decodes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_TALKERS = ("torchao", "torch.utils._pytree")
"""Who tells of kernels for other machines, and of what will be an error in a later torch."""


@contextmanager
def hushed() -> Iterator[None]:
    """Drop what `_TALKERS` log inside; afterwards their loggers are as they were before."""
    loggers = [logging.getLogger(name) for name in _TALKERS]
    before = [(logger.propagate, logger.handlers) for logger in loggers]
    for logger in loggers:
        logger.propagate, logger.handlers = False, [logging.NullHandler()]
    try:
        yield
    finally:
        for logger, (propagate, handlers) in zip(loggers, before, strict=True):
            logger.propagate, logger.handlers = propagate, handlers


def import_transformers() -> None:
    """Import what of transformers pulls torchao in, without its talk; whoever imports transformers comes here first."""
    with hushed():
        import transformers.modeling_utils  # noqa: F401
