"""The official client against the real server: every text is its solo text, in every form that clients ask for."""

from __future__ import annotations

import concurrent.futures
import json
import socket
import time

import httpx2
import openai
import pytest

from draftproof import Options
from tests.server.conftest import serving

PROMPT = "The for statement"
GREEDY = {"model": "demo", "prompt": PROMPT, "max_tokens": 20, "temperature": 0}
TALK = [{"role": "user", "content": "What is a list?"}]


def alone(pair, prompt=PROMPT, **options):
    return pair.generate(prompt, Options(**{"max_new_tokens": 20, **options}), k=0)


def test_a_completion_is_the_text_that_it_is_alone(client, pair):
    answer = client.completions.create(**GREEDY)
    made = alone(pair)
    assert answer.choices[0].text == made.text and answer.choices[0].finish_reason == "length"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (made.prompt_tokens, 20)
    assert answer.model == "demo" and answer.object == "text_completion" and answer.id.startswith("cmpl-")


def test_so_it_is_sampled_streamed_and_beside_others(client, pair):
    def ask(seed):
        sampled = {"temperature": 0.8, "seed": seed, "max_tokens": 30, "extra_body": {"top_k": 40}}
        parts = client.completions.create(**{**GREEDY, **sampled}, stream=True)
        return "".join(choice.text for part in parts for choice in part.choices)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(ask, range(8)))
    for seed, text in enumerate(texts):
        assert text == alone(pair, temperature=0.8, seed=seed, max_new_tokens=30, top_k=40).text
    assert len(set(texts)) == 8


def test_guesses_are_the_clients_to_choose_and_change_no_text(client, pair):
    found = {}
    for asked in (False, True, "auto", {"k": 3}):
        answer = client.completions.create(**GREEDY, extra_body={"speculative": asked, "include_metrics": True})
        assert answer.choices[0].text == alone(pair).text
        found[str(asked)] = answer.model_extra["metrics"]["speculative_decoding"]
    assert found["False"]["num_drafts"] == 0
    three = found["{'k': 3}"]
    assert three["num_draft_tokens"] > 2 * three["num_drafts"] and len(three["num_accepted_tokens_per_pos"]) == 3
    assert sum(three["num_accepted_tokens_per_pos"]) == three["num_accepted_tokens"]


def test_several_prompts_and_several_texts_of_each_keep_their_order(client, pair):
    sampled = {"temperature": 1.0, "seed": 5, "n": 2}
    answer = client.completions.create(**{**GREEDY, **sampled, "prompt": [PROMPT, "class Reader"]})
    found = [choice.text for choice in answer.choices]
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    wanted = [
        pair.generate(prompt, Options(max_new_tokens=20, temperature=1.0, seed=5), k=0, sample=i).text
        for prompt in (PROMPT, "class Reader")
        for i in range(2)
    ]
    assert found == wanted
    ids = pair.encode(PROMPT)
    for prompt in (ids, [ids]):
        assert client.completions.create(**{**GREEDY, "prompt": prompt}).choices[0].text == alone(pair).text


def test_a_chat_goes_through_the_template(client, pair):
    asked = {"model": "demo", "messages": TALK, "temperature": 0, "max_completion_tokens": 20}
    answer = client.chat.completions.create(**asked)
    made = pair.generate(messages=TALK, max_new_tokens=20)
    assert answer.choices[0].message.content == made.text and answer.choices[0].message.role == "assistant"
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == made.text
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert reasons == [None] * (len(reasons) - 1) + ["length"]
    assert chunks[-2].choices[0].delta.content is None  # a last, empty delta
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 20


def test_a_stream_ends_with_done_and_never_holds_part_of_a_stop_string(server, pair):
    stop = alone(pair, max_new_tokens=40).text[20:24]
    with httpx2.stream(
        "POST", f"{server.url}/v1/completions", json={**GREEDY, "max_tokens": 40, "stop": stop, "stream": True}
    ) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    parts = [json.loads(line[6:])["choices"][0] for line in lines[:-1]]
    assert "".join(part["text"] for part in parts) == alone(pair, max_new_tokens=40, stop=[stop]).text
    assert parts[-1]["finish_reason"] == "stop"


def test_log_probabilities_have_the_form_of_either_interface(client, pair):
    made = alone(pair, logprobs=True, top_logprobs=2)
    wanted = [one.logprob for done in made.rounds for one in done.logprobs]
    legacy = client.completions.create(**GREEDY, logprobs=2).choices[0].logprobs
    assert legacy.token_logprobs == wanted and len(legacy.tokens) == 20 and len(legacy.top_logprobs[0]) == 2
    assert "".join(legacy.tokens) == made.text and legacy.text_offset[1] == len(legacy.tokens[0])
    told = pair.generate(messages=TALK, max_new_tokens=5, logprobs=True, top_logprobs=2)
    asked = {"model": "demo", "messages": TALK, "temperature": 0, "max_tokens": 5}
    chat = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert [one.logprob for one in chat] == [one.logprob for done in told.rounds for one in done.logprobs]
    assert all(len(one.top_logprobs) == 2 and bytes(one.bytes).decode(errors="replace") == one.token for one in chat)
    parts = client.chat.completions.create(**asked, logprobs=True, stream=True)
    streamed = [one.logprob for c in parts if c.choices[0].logprobs for one in c.choices[0].logprobs.content]
    assert streamed == [one.logprob for one in chat]


@pytest.mark.parametrize("most", [0, 1])
def test_an_echo_has_the_prompts_log_probabilities(client, pair, most):
    """What lm-eval's local-completions sends."""
    ids = pair.encode(PROMPT + " is used to")
    answer = client.completions.create(
        model="demo", prompt=[ids], max_tokens=most, logprobs=1, echo=True, temperature=0, seed=1
    )
    told = answer.choices[0].logprobs
    assert len(told.tokens) == len(told.token_logprobs) == len(told.top_logprobs) == len(ids) + most
    assert told.token_logprobs[0] is None and told.top_logprobs[0] is None
    rows = pair.target_session.another().read(ids[:-1], len(ids) - 1).log_softmax(-1)
    wanted = [float(row[token]) for row, token in zip(rows, ids[1:], strict=True)]
    assert told.token_logprobs[1 : len(ids)] == pytest.approx(wanted, abs=1e-5)
    assert answer.choices[0].text.startswith(PROMPT)


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


def test_a_schema_shapes_the_text(client):
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    answer = client.chat.completions.create(model="demo", messages=TALK, temperature=0, response_format=wanted, seed=3)
    assert set(json.loads(answer.choices[0].message.content)) == {"a"}


def test_a_tool_that_has_to_be_called_is_called(client):
    tool = {"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}}
    asked = {"model": "demo", "messages": TALK, "tools": [tool], "tool_choice": "required", "temperature": 0}
    choice = client.chat.completions.create(**asked).choices[0]
    (call,) = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    assert call.function.name == "look_up" and set(json.loads(call.function.arguments)) == {"a"}
    chunks = list(client.chat.completions.create(**asked, stream=True))
    calls = [c.choices[0].delta.tool_calls for c in chunks if c.choices[0].delta.tool_calls]
    told = calls[0][0].function
    assert (told.name, told.arguments) == (call.function.name, call.function.arguments)
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


BAD_SCHEMA = {"type": "json_schema", "json_schema": {"schema": {"type": 7}}}
BAD = [
    ({"temperature": -1}, 400, "temperature", None),
    ({"max_tokens": -1}, 400, "max_tokens", None),
    ({"max_tokens": 0}, 400, "max_tokens", None),
    ({"top_p": 7}, 400, "top_p", None),
    ({"n": 0}, 400, "n", None),
    ({"n": 10**6}, 400, "n", None),
    ({"foo": 1}, 400, "foo", "unknown_parameter"),
    ({"model": "other"}, 404, "model", "model_not_found"),
    ({"prompt": "word " * 900}, 400, "prompt", "context_length_exceeded"),
    ({"prompt": []}, 400, "prompt", None),
    ({"prompt": [10**7]}, 400, "prompt", None),
    ({"prompt": ["x"] * 1000}, 400, "prompt", None),
    ({"stop": ["a"] * 100}, 400, "stop", None),
    ({"stop": [""]}, 400, "stop", None),
    ({"logit_bias": {"a": 1}}, 400, "logit_bias", None),
    ({"logprobs": 99}, 400, "logprobs", None),
    ({"response_format": {"type": "json_schema"}}, 400, "response_format", None),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 7}}}},
        400,
        "response_format",
        None,
    ),
    ({"regex": "("}, 400, "regex", None),
    ({"speculative": {"k": -1}}, 400, "speculative", None),
    ({"speculative": {"k": 10**6}}, 400, "speculative", None),
    ({"best_of": 3}, 400, "best_of", None),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("given", "status", "param", "code"), BAD, ids=lambda one: str(one)[:40])
def test_bad_input_is_an_error_with_the_parameters_name(server, given, status, param, code, stream):
    answer = httpx2.post(f"{server.url}/v1/completions", json={**GREEDY, "stream": stream, **given}, timeout=30)
    error = answer.json()["error"]
    assert answer.status_code == status and error["param"] == param and error["code"] == code, answer.text
    assert error["type"] == "invalid_request_error" and len(error["message"]) > 8


def test_a_body_that_is_no_json_and_paths_that_are_none_are_errors_too(server):
    answer = httpx2.post(f"{server.url}/v1/completions", content=b"{", headers={"content-type": "application/json"})
    assert answer.status_code == 400 and "JSON" in answer.json()["error"]["message"]
    assert httpx2.get(f"{server.url}/nope").json()["error"]["message"]
    assert httpx2.post(f"{server.url}/v1/models").status_code == 405
    large = httpx2.post(f"{server.url}/v1/completions", json={**GREEDY, "prompt": "x" * (9 << 20)}, timeout=60)
    assert large.status_code == 413
    with pytest.raises(openai.BadRequestError) as refused:
        server.client.chat.completions.create(model="demo", messages=[])
    assert refused.value.param == "messages"


def test_tokens_go_in_and_out(server, pair):
    ids = httpx2.post(f"{server.url}/tokenize", json={"prompt": PROMPT}).json()
    assert ids["tokens"] == pair.encode(PROMPT) and ids["count"] == len(ids["tokens"])
    back = httpx2.post(f"{server.url}/detokenize", json={"tokens": ids["tokens"]}).json()
    assert back == {"prompt": PROMPT}
    chat = httpx2.post(f"{server.url}/tokenize", json={"messages": TALK}).json()
    assert chat["tokens"] == pair.encode(messages=TALK)


def test_what_tools_read_of_a_server_is_there(server):
    assert httpx2.get(f"{server.url}/health").status_code == 200
    assert httpx2.get(f"{server.url}/version").json()["version"]
    assert [one.id for one in server.client.models.list()] == ["demo"]
    assert server.client.models.retrieve("demo").id == "demo"
    before = _metrics(server)
    server.client.completions.create(**GREEDY, extra_body={"speculative": {"k": 3}})
    after = _metrics(server)
    for name in (
        "vllm:spec_decode_num_drafts_total",
        "vllm:spec_decode_num_draft_tokens_total",
        "vllm:generation_tokens_total",
        "vllm:request_success_total",
        "vllm:time_to_first_token_seconds_count",
        "vllm:inter_token_latency_seconds_count",
    ):
        assert after[name] > before.get(name, 0), name
    assert after["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"] == 20


def _metrics(server):
    found = {}
    for line in httpx2.get(f"{server.url}/metrics").text.splitlines():
        if line and not line.startswith("#") and "bucket" not in line:
            name, _, value = line.rpartition(" ")
            found[name.split("{")[0]] = found.get(name.split("{")[0], 0) + float(value)
    return found


def test_finished_texts_are_written_again_alone_when_nothing_else_is_to_be_done(server):
    server.client.completions.create(**GREEDY)
    deadline = time.monotonic() + 20
    while not server.engine.checks and time.monotonic() < deadline:
        time.sleep(0.05)
    assert server.engine.checks > 0 and server.engine.differences == 0


def test_a_client_that_hangs_up_frees_its_place(pair):
    with serving(pair) as server:
        asked = {**GREEDY, "max_tokens": 400, "extra_body": {"ignore_eos": True}}
        with server.client.completions.create(**asked, stream=True) as stream:
            next(iter(stream))
        _until(lambda: not server.engine.running)
        with socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1]))) as line:
            body = json.dumps({**GREEDY, "max_tokens": 450, "ignore_eos": True}).encode()
            head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            head += f"Content-Length: {len(body)}\r\n\r\n"
            line.sendall(head.encode() + body)
            _until(lambda: server.engine.running)
        _until(lambda: not server.engine.running, 5)
        assert server.client.completions.create(**GREEDY).choices[0].text


def _until(done, seconds=10):
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_key_guards_everything_but_health_and_the_page(pair):
    with serving(pair, key="secret") as server:
        for path in ("/v1/models", "/metrics", "/version", "/draftproof/state"):
            answer = httpx2.get(server.url + path)
            assert answer.status_code == 401 and answer.json()["error"]["code"] == "invalid_api_key"
            assert httpx2.get(server.url + path, headers={"Authorization": "Bearer secret"}).status_code == 200
        assert httpx2.get(server.url + "/health").status_code == 200 and httpx2.get(server.url).status_code == 200
        assert server.client.completions.create(**GREEDY).choices
        for wrong in ("Bearer secre", "Bearer secrets", "secret", "Basic secret", "Bearer sécret"):
            headers = {"Authorization": wrong.encode("latin-1")}
            assert httpx2.get(server.url + "/v1/models", headers=headers).status_code == 401


def test_a_full_queue_says_when_to_come_again(pair):
    with serving(pair, at_once=1, max_queue=2) as server:
        asked = {**GREEDY, "max_tokens": 300, "extra_body": {"ignore_eos": True}, "stream": True}
        streams = [server.client.completions.create(**asked)]
        next(iter(streams[0]))
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            waiting = [pool.submit(server.client.completions.create, **{**asked, "stream": False}) for _ in range(2)]
            _until(lambda: server.engine.waiting == 2)
            with pytest.raises(openai.RateLimitError) as refused:
                server.client.completions.create(**GREEDY)
            assert refused.value.response.headers["retry-after"] == "1"
            streams[0].close()
            assert all(one.result().choices[0].text for one in waiting)


def test_a_processor_or_grammar_that_fails_ends_one_request_only(server, pair):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        good = pool.submit(server.client.completions.create, **{**GREEDY, "max_tokens": 40})
        deep = "(" * 300 + "a" + ")*" * 300
        bad = httpx2.post(f"{server.url}/v1/completions", json={**GREEDY, "regex": deep}, timeout=60)
        assert bad.status_code in (200, 400)
        assert good.result().choices[0].text == alone(pair, max_new_tokens=40).text


def test_the_page_is_whole_and_loads_nothing(server):
    text = httpx2.get(server.url).text
    assert "<title>draftproof</title>" in text and "http://" not in text and "https://" not in text
