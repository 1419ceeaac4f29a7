"""Shared fixtures. Tests run on the CPU, in float32, on one thread, without a network."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings

from draftproof.decode import request as request_module
from draftproof.errors import brief
from draftproof.models import checked
from draftproof.models.native.library import library
from draftproof.testing import byte_tokenizer, random_model

torch.set_num_threads(1)
settings.register_profile("no clock", deadline=None)  # no timing decides a test
settings.load_profile("no clock")


@pytest.fixture(scope="session", autouse=True)
def kernels():
    """The compiled kernels, built before anything asks for them."""
    return library()


@pytest.fixture(scope="session", autouse=True)
def checked_here(tmp_path_factory):
    """What is remembered of passes is of this run: a test must not hang on what the machine's user loaded before."""
    folder = tmp_path_factory.mktemp("checked")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checked, "cache_folder", lambda kind: folder)
        yield folder


@pytest.fixture(autouse=True)
def no_proposer_fails(request, monkeypatch):
    """An error in a proposer costs speed alone, so it would pass unseen: only tests that are about one may have it."""
    told = []
    monkeypatch.setattr(request_module, "brief", lambda error: told.append(error) or brief(error))
    yield
    if told and request.node.get_closest_marker("failing_proposer") is None:
        pytest.fail(f"a proposer failed: {told[0]!r}")


@pytest.fixture
def nothing_checked(monkeypatch, tmp_path):
    """Nothing at all is remembered of passes yet."""
    folder = tmp_path / "checked"
    folder.mkdir()
    monkeypatch.setattr(checked, "cache_folder", lambda kind: folder)
    return folder


@pytest.fixture(scope="session")
def model():
    """A random target with a window of 256 and no end token."""
    return random_model()


@pytest.fixture(scope="session")
def tokenizer():
    return byte_tokenizer()
