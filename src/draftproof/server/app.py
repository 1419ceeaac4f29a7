"""The routes: OpenAI's interface, what tools read of a server, and the page."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated, Any

from fastapi import Body, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from draftproof import __version__
from draftproof.server.asking import Chat, Completion
from draftproof.server.engine import Engine
from draftproof.server.metrics import Metrics
from draftproof.server.problems import ApiError, error_of_body, problem_of
from draftproof.server.replies import Form
from draftproof.server.streams import streamed, until_gone, whole
from draftproof.server.texts import Running

LARGEST_BODY = 8 << 20
"""Bytes of a request at most."""
OPEN = ("/health", "/", "/favicon.ico")
"""What needs no key: whether it lives, and the page, which asks for the key itself."""


class TokenizeRequest(BaseModel):
    """`POST /tokenize`."""

    model_config = ConfigDict(extra="forbid")
    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None


class DetokenizeRequest(BaseModel):
    """`POST /detokenize`."""

    model_config = ConfigDict(extra="forbid")
    model: str | None = None
    tokens: list[int]


@dataclass(frozen=True, slots=True)
class Serving:
    """What a server is made of."""

    engine: Engine
    metrics: Metrics
    model: str
    """What clients call the target."""
    key: str | None = None


def make_app(serving: Serving) -> FastAPI:
    """Return the server as an ASGI application; its engine works while it runs."""
    engine, name = serving.engine, serving.model
    speculator = engine.speculator

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine.start()
        yield
        await asyncio.to_thread(engine.stop)

    app = FastAPI(title="draftproof", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)

    app.add_middleware(_Limited)

    @app.middleware("http")
    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        try:
            if serving.key is not None and request.url.path not in OPEN:
                _check_key(request, serving.key)
            if int(request.headers.get("content-length") or 0) > LARGEST_BODY:
                raise ApiError(413, f"the body is larger than {LARGEST_BODY} bytes.")
        except ValueError:
            return _refuse(ApiError(400, "content-length is not a number."))
        except ApiError as problem:
            return _refuse(problem)
        return await call_next(request)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return _refuse(error_of_body(error))

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        return _refuse(ApiError(error.status_code, f"{request.method} {request.url.path}: {error.detail}"))

    @app.exception_handler(ApiError)
    async def refused(request: Request, problem: ApiError) -> Response:
        return _refuse(problem)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return _refuse(problem_of(error))

    @app.post("/v1/completions")
    async def completions(request: Request, asked: Annotated[Completion, Body()]) -> Response:
        return await _write(request, asked)

    @app.post("/v1/chat/completions")
    async def chat_completions(request: Request, asked: Annotated[Chat, Body()]) -> Response:
        return await _write(request, asked)

    async def _write(request: Request, asked: Completion | Chat) -> Response:
        _check_model(asked.model, name)
        if engine.draining:
            raise ApiError(503, "the server is shutting down; ask another one.")
        try:
            wanted = await asyncio.to_thread(asked.wanted, speculator)
        except Exception as error:
            raise problem_of(error, asked) from error
        if engine.waiting + len(wanted) > engine.max_queue:
            raise ApiError(429, f"{engine.waiting} texts are waiting; come again later.", code="queue_full")
        form = Form(asked, name, speculator.target.tokenizer)
        running = [engine.submit(one) for one in wanted]
        if asked.stream:
            if any(one.scores is not None for one in wanted):
                for one in running:
                    one.cancel()
                raise ApiError(400, "echo is not streamed; leave out stream.", param="stream")
            return await streamed(form, wanted, running)
        all_of = asyncio.ensure_future(asyncio.gather(*(whole(one) for one in running)))
        gone = asyncio.ensure_future(until_gone(request))
        try:
            waits: set[asyncio.Future[Any]] = {all_of, gone}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not all_of.done():
                raise ApiError(499, "the client has gone.")
            try:
                return JSONResponse(form.answer(wanted, all_of.result()))
            except Exception as error:
                raise problem_of(error, asked) from error
        finally:
            gone.cancel()
            all_of.cancel()
            for one in running:
                one.cancel()

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        about = {"id": name, "object": "model", "created": 0, "owned_by": "draftproof"}
        return {"object": "list", "data": [{**about, "max_model_len": speculator.target_window, "root": name}]}

    @app.get("/v1/models/{model:path}")
    async def one_model(model: str) -> dict[str, Any]:
        _check_model(model, name)
        found: dict[str, Any] = (await models())["data"][0]
        return found

    @app.post("/tokenize")
    async def tokenize(asked: Annotated[TokenizeRequest, Body()]) -> dict[str, Any]:
        _check_model(asked.model, name)
        try:
            ids = await asyncio.to_thread(speculator.encode, asked.prompt, messages=asked.messages)
        except Exception as error:
            raise problem_of(error) from error
        return {"tokens": ids, "count": len(ids), "max_model_len": speculator.target_window}

    @app.post("/detokenize")
    async def detokenize(asked: Annotated[DetokenizeRequest, Body()]) -> dict[str, Any]:
        _check_model(asked.model, name)
        if any(not 0 <= token < speculator.target_width for token in asked.tokens):
            raise ApiError(400, f"tokens must lie between 0 and {speculator.target_width - 1}.", param="tokens")
        return {"prompt": speculator.target.tokenizer.decode(asked.tokens)}

    @app.get("/health")
    async def health() -> Response:
        return Response(status_code=200 if engine.alive and not engine.draining else 503)

    @app.get("/version")
    async def version() -> dict[str, str]:
        return {"version": __version__}

    @app.get("/metrics")
    async def numbers() -> Response:
        return Response(serving.metrics.text(), media_type="text/plain; version=0.0.4")

    @app.get("/draftproof/state")
    async def state() -> dict[str, Any]:
        return {
            "target": name,
            "draft": speculator.guesses_by,
            "k": speculator.policy or speculator.k,
            "running": [_told(one) for one in engine.running],
            "waiting": engine.waiting,
            "checked": engine.checks,
            "differences": engine.differences,
        }

    @app.post("/draftproof/cancel/{number}")
    async def cancel(number: int) -> dict[str, bool]:
        found = next((one for one in engine.running if id(one) == number), None)
        if found is None:
            raise ApiError(404, "that text is over.")
        found.cancel()
        return {"cancelled": True}

    @app.get("/")
    async def page() -> HTMLResponse:
        return HTMLResponse(files("draftproof.server").joinpath("page.html").read_text(encoding="utf-8"))

    return app


def _told(running: Running) -> dict[str, Any]:
    made = None if running.text is None else running.text.generation
    return {
        "id": id(running),
        "prompt_tokens": len(running.wanted.ids),
        "tokens": 0 if made is None else len(made.tokens),
        "accepted": 0 if made is None else made.counts.accepted,
        "proposed": 0 if made is None else made.counts.proposed,
        "k": None if made is None or not made.rounds else made.rounds[-1].asked,
    }


class _Limited:
    """Refuses bodies that are too large, however they come."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > LARGEST_BODY:
                raise HTTPException(413, f"the body is larger than {LARGEST_BODY} bytes.")
            return message

        await self._app(scope, counted, send)


def _refuse(problem: ApiError) -> Response:
    return JSONResponse(problem.body(), problem.status, problem.headers)


def _check_key(request: Request, key: str) -> None:
    given = request.headers.get("authorization", "")
    if not secrets.compare_digest(given.removeprefix("Bearer ").encode(), key.encode()) or not given.startswith(
        "Bearer "
    ):
        raise ApiError(401, "the key is missing or wrong; send it as a bearer token.", code="invalid_api_key")


def _check_model(asked: str | None, name: str) -> None:
    if asked not in (None, "", name):
        raise ApiError(
            404, f"the model {asked!r} is not served here; it is {name!r}.", param="model", code="model_not_found"
        )
