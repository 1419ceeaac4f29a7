"""Chat templates: whatever one does, the user meets one of our errors, and soon."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress

import pytest

from draftproof import ConfigError
from draftproof.models import template
from draftproof.models.messages import conversation, read_conversation
from draftproof.models.template import render
from draftproof.testing import byte_tokenizer

TURN = [{"role": "user", "content": "hi"}]
LOOP = "{% for a in range(90000) %}{% for b in range(90000) %}{{ messages }}{% endfor %}{% endfor %}"
DOUBLING = "{% set ns = namespace(s='ab') %}{% for a in range(90000) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"


def with_template(text):
    tokenizer = byte_tokenizer(added=("<end>", "<user>", "<reply>"))
    tokenizer.chat_template = text
    return tokenizer


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{{ missing | tojson }}", "TypeError"),
        ("{{ 1 // 0 }}", "ZeroDivisionError"),
        ("{{ messages | sum }}", "TypeError"),
        ("{{ messages[0].nope.nada }}", "no attribute 'nope'"),
        ("{{ raise_exception('no such role') }}", "refuses this conversation: no such role."),
        ("{% if %}", "Expected an expression"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ 'a' * 10**15 }}", "MemoryError"),
        ("{{ range(10**9) | list }}", "OverflowError"),
        ({"rag": "x", "plain": "y"}, "several chat templates \\(rag, plain\\)"),
        (None, "no chat template"),
        (LOOP, "did not end within 0.2 seconds"),
        (DOUBLING, "writes more than 20,000,000 characters"),
        ("{{ ('a' * 6000000) }}" * 4, "writes more than"),
    ],
)
def test_every_error_of_a_template_is_a_config_error_in_any_thread(monkeypatch, text, says):
    monkeypatch.setattr(template, "LIMIT_S", 0.2 if text is LOOP else 60)
    found = []

    def attempt():
        with pytest.raises(ConfigError, match=says) as caught:
            render(with_template(text), TURN)
        found.append(caught.value)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    attempt()
    assert len(found) == 2
    assert "\n" not in str(found[0])


def test_a_trace_function_that_was_set_before_is_set_again():
    before = sys.gettrace()
    mine = lambda *args: None  # noqa: E731
    try:
        sys.settrace(mine)
        for text in ("ok", "{{ 1 // 0 }}"):
            with suppress(ConfigError):
                render(with_template(text), TURN)
            assert sys.gettrace() is mine
    finally:
        sys.settrace(before)


PARTS = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}


def test_messages_come_out_plain_and_whole():
    asked = conversation(
        [
            {"role": "system", "content": PARTS},
            {"role": "assistant", "content": None, "tool_calls": [CALL], "name": "me"},
            {"role": "tool", "content": "", "tool_call_id": "1"},
        ],
        tools=[{"type": "function", "function": {"name": "f"}}],
    )
    assert asked.messages == (
        {"role": "system", "content": "a\nb"},
        {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "f", "arguments": {"x": 1}}}], "name": "me"},
        {"role": "tool", "content": "", "tool_call_id": "1"},
    )
    text = "{{ messages | tojson }}|{{ tools | tojson }}|{{ add_generation_prompt }}"
    assert '"arguments": {"x": 1}' in render(with_template(text), asked.messages, asked.tools)


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ("hi", "messages is a text"),
        ([], "messages is empty"),
        (["hi"], r"messages\[0\] is a text"),
        ([*TURN, {"content": "x"}], r"messages\[1\] has no role"),
        ([{"role": 3, "content": "x"}], r"messages\[0\] has no role"),
        ([{"role": "user"}], r"messages\[0\] has no content"),
        ([{"role": "user", "content": 3}], r"messages\[0\].content is of type int"),
        ([{"role": "user", "content": [*PARTS, {"type": "image_url"}]}], r"content\[2\] is of type 'image_url'"),
        ([{"role": "user", "content": [{"type": "text"}]}], r"content\[0\] is no text part"),
        ([{"role": "user", "content": ["x"]}], r"content\[0\] is no text part"),
        ([{"role": "user", "content": "\ud800"}], "half a character"),
        ([{"role": "user", "content": "x", "more": {1, 2}}], "cannot be written as JSON"),
        ([{"role": "assistant", "tool_calls": "f"}], "tool_calls is a text"),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]}],
            r"tool_calls\[0\].function.arguments is not JSON",
        ),
    ],
)
def test_a_malformed_message_is_named_with_what_is_wrong(messages, says):
    with pytest.raises(ConfigError, match=says):
        conversation(messages)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "f.json is not JSON"),
        ('{"message": []}', "holds 'message'"),
        ('{"tools": []}', "holds no messages"),
        ("3", "f.json: messages is of type int"),
        ('{"messages": [{"role": "user", "content": "x"}], "tools": {}}', "f.json: tools is an object"),
        ('{"messages": [{"role": "user", "content": "x"}], "continue_final_message": 1}', "must be True or False"),
        ('{"messages": [{"role": "user", "content": ""}], "continue_final_message": true}', "no text to continue"),
    ],
)
def test_a_malformed_file_of_messages_is_named(text, says):
    with pytest.raises(ConfigError, match=says):
        read_conversation(text, "f.json")
