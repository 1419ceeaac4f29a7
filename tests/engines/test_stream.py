"""A stream read in every way that Python reads one: all of them hand out the same text."""

from __future__ import annotations

import asyncio
import threading

import pytest

from draftproof import ConfigError, EngineError, Speculator, Stream
from draftproof.testing import byte_tokenizer, noisy


@pytest.fixture(scope="module")
def speculator(model):
    tokenizer = byte_tokenizer(added=[f"<{i}>" for i in range(44)])
    return Speculator(model, noisy(model, 0.1), k=3, tokenizer=tokenizer, draft_tokenizer=tokenizer)


def begin(speculator):
    return speculator.stream("Hello", max_new_tokens=40)


def test_a_stream_goes_on_where_it_was_left(speculator):
    whole = "".join(chunk.text for chunk in begin(speculator))
    stream = begin(speculator)
    text = next(stream).text
    for chunk in stream:
        text += chunk.text
        break
    text += "".join(chunk.text for chunk in stream)
    assert text == whole == stream.generation.text
    assert next(stream, None) is None
    assert "40 tokens" in repr(stream)


def test_leaving_a_stream_ends_its_text(speculator):
    with begin(speculator) as stream:
        next(stream)
    assert stream.generation.finish_reason == "cancelled"
    assert len(stream.generation.rounds) == 1
    assert list(stream) == []
    with begin(speculator) as stream:
        list(stream)
    stream.close()
    assert stream.generation.finish_reason == "length"


def test_async_readers_get_the_same_text_and_leave_the_event_loop_free(speculator):
    async def read():
        threads = set()
        stream = begin(speculator)
        fill = stream._fill
        stream._fill = lambda: threads.add(threading.get_ident()) or fill()
        async with stream:
            text = "".join([chunk.text async for chunk in stream])
        return text, threads

    text, threads = asyncio.run(read())
    assert text == "".join(chunk.text for chunk in begin(speculator))
    assert threading.get_ident() not in threads


def test_a_chunk_prints_as_its_text(speculator):
    assert "".join(str(chunk) for chunk in begin(speculator)) == "".join(chunk.text for chunk in begin(speculator))


@pytest.mark.parametrize("then", ["async", "sync", "readable"])
def test_a_cancelled_reader_loses_no_round(speculator, monkeypatch, then):
    stream = begin(speculator)
    entered, go_on = threading.Event(), threading.Event()
    read_on = stream._decoding._target.read

    def slowly(*given, **more):
        entered.set()
        assert go_on.wait(30)
        return read_on(*given, **more)

    monkeypatch.setattr(stream._decoding._target, "read", slowly)

    async def read():
        reader = asyncio.create_task(anext(stream))
        await asyncio.to_thread(entered.wait)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        go_on.set()
        if then == "async":
            return "".join([chunk.text async for chunk in stream])
        if then == "sync":
            return "".join(chunk.text for chunk in stream)
        await stream.aclose()
        return stream.readable()

    text = asyncio.run(read())
    assert text == stream.generation.text
    whole = "".join(chunk.text for chunk in begin(speculator))
    assert text == (whole if then != "readable" else whole[: len(text)])
    assert len(text) > 0


def test_an_error_in_a_round_reaches_an_async_reader(speculator, monkeypatch):
    stream = begin(speculator)

    def fail(*given, **more):
        raise EngineError("no")

    monkeypatch.setattr(stream._decoding._target, "read", fail)

    async def read():
        async with stream:
            return [chunk async for chunk in stream]

    with pytest.raises(EngineError, match="no"):
        asyncio.run(read())
    assert isinstance(stream, Stream)


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        (["Hello", "there"], "a list of texts; give one text, and call it once for each"),
        ([{"role": "user", "content": "Hello"}], "a conversation is given as messages="),
        ([[1, 2], [3]], r"the prompt is \[\[1, 2\], \[3\]\]; give a text, token ids"),
        (7, "the prompt is 7; give a text, token ids"),
        (b"Hello", "the prompt is b'Hello'; give a text"),
    ],
)
def test_a_prompt_of_another_kind_is_refused_with_what_to_do(speculator, prompt, says):
    with pytest.raises(ConfigError, match=says):
        speculator.generate(prompt)
