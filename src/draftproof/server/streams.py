"""Texts on their way to clients: waited for, or handed on piece by piece."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from draftproof.records import Generation
from draftproof.server.asking import Chat
from draftproof.server.problems import problem_of
from draftproof.server.replies import Form
from draftproof.server.texts import Ended, Piece, Running, Wanted


async def whole(running: Running) -> Ended:
    """Wait for the end of a text."""
    async for piece in running.pieces():
        if isinstance(piece, Ended):
            return piece
    raise AssertionError("a text ends")


async def until_gone(request: Request) -> None:
    """Wait until the client has hung up."""
    while not await request.is_disconnected():
        await asyncio.sleep(0.05)


async def streamed(form: Form, wanted: Sequence[Wanted], running: Sequence[Running]) -> Response:
    """Answer in pieces: an error before the first of them is an HTTP error."""
    told = merged(running)
    try:
        begin = await anext(told)
    except Exception as error:
        raise problem_of(error, form.asked) from error

    async def events() -> AsyncIterator[str]:
        places, ended = [0] * len(running), dict[int, Generation]()
        started: set[int] = set()
        options = form.asked.stream_options
        buffered = isinstance(form.asked, Chat) and bool(form.asked.tools)  # what calls a tool is known at the end
        index, event = begin
        try:
            while True:
                if index not in started:
                    started.add(index)
                    if chunk := form.first(index):
                        yield event_of(chunk)
                if isinstance(event, Piece):
                    if not buffered and (chunk := form.piece(index, event, places[index])):
                        yield event_of(chunk)
                    places[index] += len(event.text)
                elif event.generation is not None:
                    ended[index] = event.generation
                    for chunk in form.last(index, event.generation):
                        yield event_of(chunk)
                index, event = await anext(told)
        except StopAsyncIteration:
            if options is not None and options.include_usage:
                yield event_of(form.usage_chunk(wanted, [ended[i] for i in sorted(ended)]))
        except Exception as error:
            yield event_of(problem_of(error, form.asked).body())
        finally:
            for one in running:
                one.cancel()
        yield "data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})


async def merged(running: Sequence[Running]) -> AsyncIterator[tuple[int, Piece | Ended]]:
    """Yield what any of the texts tells, with whose it is."""
    heard: asyncio.Queue[tuple[int, Piece | Ended | Exception]] = asyncio.Queue()

    async def follow(index: int, one: Running) -> None:
        try:
            async for piece in one.pieces():
                heard.put_nowait((index, piece))
        except Exception as error:
            heard.put_nowait((index, error))

    tasks = [asyncio.ensure_future(follow(i, one)) for i, one in enumerate(running)]
    left = len(running)
    try:
        while left:
            index, event = await heard.get()
            if isinstance(event, Exception):
                raise event
            left -= isinstance(event, Ended)
            yield index, event
    finally:
        for task in tasks:
            task.cancel()


def event_of(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False, allow_nan=False)}\n\n"
