"""Shared fixtures. Tests run on the CPU, in float32, on one thread, without a network."""

from __future__ import annotations

import pytest
import torch

from draftproof.models.native.library import library
from draftproof.testing import byte_tokenizer, random_model

torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def kernels():
    """The compiled kernels, built before anything asks for them."""
    return library()


@pytest.fixture(scope="session")
def model():
    """A random target with a window of 256 and no end token."""
    return random_model()


@pytest.fixture(scope="session")
def tokenizer():
    return byte_tokenizer()
