"""A real server on a free port, and the official client."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager

import openai
import pytest
import uvicorn

from draftproof import Speculator
from draftproof.models.load import load
from draftproof.server.app import Serving, make_app
from draftproof.server.engine import Engine
from draftproof.server.metrics import Metrics

TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] or m['tool_calls'] }}\n{% endfor %}"
    "{% if tools %}{{ tools | length }} tools\n{% endif %}assistant:"
)


@pytest.fixture(scope="session")
def pair():
    """The embedded pair, whose target has a chat template."""
    target = load("demo-target", compile="on")
    target.tokenizer.chat_template = TEMPLATE
    return Speculator(target, "demo-draft", compile="on")


class Server:
    """A server in a thread."""

    def __init__(self, pair, *, key=None, **settings):
        metrics = Metrics("demo")
        self.engine = Engine(pair, watcher=metrics, **settings)
        metrics.watch(self.engine)
        config = uvicorn.Config(
            make_app(Serving(self.engine, metrics, "demo", key)), host="127.0.0.1", port=0, log_level="warning"
        )
        self.server = uvicorn.Server(config)
        socket = config.bind_socket()
        self.url = f"http://127.0.0.1:{socket.getsockname()[1]}"
        self._thread = threading.Thread(target=lambda: asyncio.run(self.server.serve([socket])))
        self._thread.start()
        while not self.server.started:
            time.sleep(0.01)
        self.client = openai.OpenAI(base_url=f"{self.url}/v1", api_key=key or "none", max_retries=0)

    def stop(self):
        self.client.close()
        self.server.should_exit = True
        self._thread.join()


@contextmanager
def serving(pair, **settings):
    server = Server(pair, **settings)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def server(pair):
    with serving(pair, check_every=1) as made:
        yield made


@pytest.fixture
def client(server):
    return server.client
