#!/usr/bin/env python3
"""The official Anthropic client for Python against a running server."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))

import json

from sdk import Served

import anthropic
import pydantic
from harness import equal

SERVER = Served("--sse-ping-interval", "50")
client = anthropic.Anthropic(base_url=SERVER.url, api_key="none", max_retries=0)
QUESTION = [{"role": "user", "content": "What is InferFlux?"}]


def ask(model="demo", max_tokens=40, messages=QUESTION, temperature=0, **more):
    extra = {"temperature": temperature, **more.pop("extra", {})}
    return dict(model=model, max_tokens=max_tokens, messages=messages, extra_body=extra, **more)


def create(**more):
    return client.messages.create(**ask(**more))


def script(text, **more):
    return ask(model="echo", extra={"script": text}, **more)


def test_a_message_has_a_response_and_usage():
    r = create()
    assert r.content[0].type == "text" and r.content[0].text.strip()
    assert r.stop_reason in ("end_turn", "max_tokens") and r.stop_sequence is None
    assert r.id.startswith("msg_") and r.type == "message" and r.role == "assistant"
    assert r.usage.input_tokens + r.usage.cache_read_input_tokens > 0
    assert r.usage.output_tokens > 0
    assert r._request_id.startswith("req_")


def test_stream_and_body_have_the_same_content():
    body = create()
    with client.messages.stream(**ask()) as stream:
        kinds = [e.type for e in stream]
        final = stream.get_final_message()
    equal(final.content[0].text, body.content[0].text)
    equal(final.stop_reason, body.stop_reason)
    equal(final.usage.output_tokens, body.usage.output_tokens)
    order = [k for i, k in enumerate(kinds) if i == 0 or kinds[i - 1] != k]
    equal([k for k in order if k != "text"][:2], ["message_start", "content_block_start"])
    equal(order[-3:], ["content_block_stop", "message_delta", "message_stop"])


def test_all_routes_count_prompt_tokens_equally():
    n = client.messages.count_tokens(model="demo", messages=QUESTION, system="Be brief.").input_tokens
    r = create(system="Be brief.")
    equal(r.usage.input_tokens + r.usage.cache_read_input_tokens, n)
    with client.messages.stream(**ask(system="Be brief.")) as stream:
        u = stream.get_final_message().usage
    equal(u.input_tokens + u.cache_read_input_tokens, n)


def test_a_system_prompt_as_a_string_or_as_blocks():
    a = create(system="Be brief.")
    b = create(system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}])
    equal(a.content[0].text, b.content[0].text)
    nonce = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=0af3;"}
    c = create(system=[nonce, {"type": "text", "text": "Be brief."}])
    equal(c.content[0].text, a.content[0].text)
    equal(client.messages.count_tokens(model="demo", messages=QUESTION, system=[nonce]).input_tokens,
        client.messages.count_tokens(model="demo", messages=QUESTION).input_tokens)


def test_blocks_and_strings_mean_the_same():
    blocks = [{"role": "user", "content": [{"type": "text", "text": "What is InferFlux?"}]}]
    equal(create(messages=blocks).content[0].text, create().content[0].text)


def test_a_prefill_is_continued():
    whole = create().content[0].text
    head = " ".join(whole.split(" ")[:3])
    r = create(messages=QUESTION + [{"role": "assistant", "content": head}])
    equal(head + r.content[0].text, whole)


def test_the_model_uses_earlier_turns():
    messages = [{"role": "user", "content": "Hello!"}]
    for turn in ("What is 2 plus 3?", "And plus 4?"):
        with client.messages.stream(**ask(messages=messages)) as stream:
            answer = stream.get_final_text()
        assert answer
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": turn}]
    assert create(messages=messages).content[0].text


def test_a_stop_sequence_ends_the_response_and_is_named():
    r = client.messages.create(**script("one two three four", stop_sequences=["three"]))
    equal(r.content[0].text, "one two ")
    equal((r.stop_reason, r.stop_sequence), ("stop_sequence", "three"))
    with client.messages.stream(**script({"text": "one two three four", "chunk": "char"},
            stop_sequences=["three"])) as stream:
        final = stream.get_final_message()
    equal(final.content[0].text, "one two ")
    equal((final.stop_reason, final.stop_sequence), ("stop_sequence", "three"))


def test_script_text_is_returned_unchanged():
    for text in ("héllo wörld", "日本語 🙂👩‍👩‍👧 ok", "a\nb\tc  d", "<|im_end|> stays", "{\"a\": 1}"):
        for chunk in ("token", "char", "all"):
            with client.messages.stream(**script({"text": text, "chunk": chunk})) as stream:
                equal(stream.get_final_text(), text, f"chunk {chunk}")
        equal(client.messages.create(**script(text)).content[0].text, text)


def test_max_tokens_ends_a_long_response():
    r = create(max_tokens=3)
    equal((r.stop_reason, r.usage.output_tokens), ("max_tokens", 3))
    r = create(max_tokens=0)
    equal((r.content, r.stop_reason, r.usage.output_tokens), ([], "max_tokens", 0))


def test_pings_keep_an_idle_stream_alive():
    with client.messages.create(**script({"text": "late", "delay_ms": 600}), stream=True) as stream:
        raw = b"".join(stream.response.iter_bytes())
    assert raw.count(b"event: ping\n") >= 2, raw  # one is sent at the beginning
    assert raw.index(b"event: message_start\n") < raw.index(b"event: ping\n")


WEATHER = {"name": "get_weather", "description": "The weather of a city.", "input_schema": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
CLOCK = {"name": "now", "input_schema": {"type": "object", "properties": {}}}
TOOLS = [WEATHER, CLOCK]


def call(name, arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"


def blocks(message):
    """Returns [(type, content)]."""
    says = {"text": lambda b: b.text, "thinking": lambda b: b.thinking,
        "tool_use": lambda b: (b.name, b.input)}
    return [(b.type, says[b.type](b)) for b in message.content]


SAID = [("<think>\nHm.\n</think>\n\nLet me see.\n" + call("get_weather", {"city": "Zürich \"x\""}),
        [("thinking", "Hm."), ("text", "Let me see."),
            ("tool_use", ("get_weather", {"city": "Zürich \"x\""}))], "tool_use"),
    (call("now", {}), [("tool_use", ("now", {}))], "tool_use"),
    (call("now", {}) + "\n" + call("get_weather", {"city": "Oslo"}),
        [("tool_use", ("now", {})), ("tool_use", ("get_weather", {"city": "Oslo"}))], "tool_use"),
    ("No need.", [("text", "No need.")], "end_turn"),
    ("Look: <tool_call>\n{\"name\": \"now\", \"argum", None, "end_turn"),
    ("<think>\nonly thoughts", [("thinking", "only thoughts")], "end_turn")]


def test_tools_are_called_in_bodies_and_streams():
    for text, want, why in SAID:
        body = client.messages.create(**script(text, tools=TOOLS, max_tokens=300))
        equal(body.stop_reason, why, text)
        equal(blocks(body), want or [("text", text)])  # not a complete call: text
        ids = [b.id for b in body.content if b.type == "tool_use"]
        assert all(i.startswith("toolu_") for i in ids) and len(set(ids)) == len(ids)
        for chunk in ("token", "char", "all"):
            with client.messages.stream(**script({"text": text, "chunk": chunk}, tools=TOOLS,
                    max_tokens=900)) as stream:
                events = list(stream)
                final = stream.get_final_message()
            equal(blocks(final), blocks(body), f"chunk {chunk}")
            equal((final.stop_reason, [b.type for b in final.content]),
                (why, [b.type for b in body.content]))
            indices = [e.index for e in events if e.type == "content_block_start"]
            equal(indices, list(range(len(body.content))))
            parts = [e.partial_json for e in events if e.type == "input_json"]
            equal("".join(parts), "".join(json.dumps(b.input, ensure_ascii=False)
                for b in body.content if b.type == "tool_use"))


def test_eager_arguments_are_streamed_as_generated():
    tool = {**WEATHER, "eager_input_streaming": True}
    text = call("get_weather", {"city": "a" * 200})
    with client.messages.stream(**script({"text": text, "chunk": "char"}, tools=[tool],
            max_tokens=900)) as stream:
        parts = [e.partial_json for e in stream if e.type == "input_json"]
        equal(stream.get_final_message().content[0].input, {"city": "a" * 200})
    assert len(parts) > 100, len(parts)


def test_incomplete_call_is_not_executed():
    """An eager stream has sent the start of the call; the tool runner executes no call of a
    message that ends with max_tokens."""
    asked = []

    @anthropic.beta_tool
    def get_weather(city: str = "") -> str:
        """The weather of a city."""
        asked.append(city)
        return "fine"

    open_call = 'Try. <tool_call>\n{"name": "get_weather", "arguments": {"city": '
    complete = call("get_weather", {"city": "Rome"})
    for text in (open_call, open_call + "oops}} and on.", open_call + "oops}} " + complete):
        body = client.messages.create(**script(text, tools=[WEATHER], max_tokens=300))
        ends_inside, has_call = text is open_call, text.endswith(complete)
        equal(body.stop_reason,
            "max_tokens" if ends_inside else "tool_use" if has_call else "end_turn")
        equal([b.type for b in body.content], ["text", "tool_use"] if has_call else ["text"])
        with client.messages.stream(**script({"text": text, "chunk": "char"}, tools=[WEATHER],
                max_tokens=300)) as stream:
            final = stream.get_final_message()
        equal((final.stop_reason, blocks(final)), (body.stop_reason, blocks(body)))
        runner = client.beta.messages.tool_runner(model="echo", max_tokens=300, messages=QUESTION,
            tools=[get_weather], stream=True, max_iterations=2, extra_body={"script": {
                "text": text, "chunk": "char"}, "tools": [{**WEATHER, "eager_input_streaming": True}]})
        for s in runner:
            final = s.get_final_message()
        equal((final.stop_reason, asked), ("max_tokens", []))


def test_tool_choice_is_enforced():
    one = client.messages.create(**script(SAID[2][0], tools=TOOLS, max_tokens=300,
        tool_choice={"type": "auto", "disable_parallel_tool_use": True}))
    equal(blocks(one), SAID[2][1][:1])
    none = client.messages.create(**script("plain", tools=TOOLS, tool_choice={"type": "none"}))
    equal((blocks(none), none.stop_reason), ([("text", "plain")], "end_turn"))
    # A forced call has been begun in the prompt: the model generates the rest.
    rest = '{"city": "Rome"}}\n</tool_call>'
    for choice in ({"type": "tool", "name": "get_weather"}, {"type": "any"}):
        tools = TOOLS if choice["type"] == "tool" else [WEATHER]
        for stream in (False, True):
            with client.messages.stream(**script(rest, tools=tools, max_tokens=300,
                    tool_choice=choice)) as s:
                equal(blocks(s.get_final_message()), [("tool_use", ("get_weather", {"city": "Rome"}))])


def test_tool_results_and_reasoning_are_accepted_as_history():
    strange = lambda: int(SERVER.get("/metrics")[2].decode().split(
        "\ninferflux_unverified_reasoning_blocks_total ")[1].split()[0])
    before = strange()
    first = client.messages.create(**script(SAID[0][0], tools=TOOLS, max_tokens=300))
    signature = first.content[0].signature
    assert len(signature) == 44, signature
    history = [*QUESTION, {"role": "assistant", "content": first.content}, {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": first.content[2].id, "content": "sunny"}]}]
    equal(client.messages.create(**script("Sunny.", tools=TOOLS, messages=history)).content[0].text,
        "Sunny.")
    equal(strange(), before)
    altered = [{**b.to_dict(), "thinking": "Other."} if b.type == "thinking" else b
        for b in first.content]
    history[1] = {"role": "assistant", "content": altered}
    equal(client.messages.create(**script("ok", tools=TOOLS, messages=history)).content[0].text, "ok")
    equal(strange(), before + 1)


def test_reasoning_may_be_omitted_from_the_response():
    thinking = {"type": "adaptive", "display": "omitted"}
    with client.messages.stream(**script("<think>\nsecret\n</think>\n\na", thinking=thinking)) as stream:
        final = stream.get_final_message()
    equal(blocks(final), [("thinking", ""), ("text", "a")])
    assert final.content[0].signature


def test_tools_count_as_tokens():
    count = lambda **more: client.messages.count_tokens(model="echo", messages=QUESTION, **more).input_tokens
    assert count(tools=TOOLS) > count(tools=[CLOCK]) > count()
    search = {"type": "web_search_20250305", "name": "web_search"}
    equal(count(tools=[CLOCK, search]), count(tools=[CLOCK]))
    try:
        raise AssertionError(f"counted: {count(tools=[search])}")
    except anthropic.BadRequestError as e:
        assert "web_search_20250305" in str(e), e
    r = client.messages.create(**script("x", tools=TOOLS))
    equal(r.usage.input_tokens + r.usage.cache_read_input_tokens, count(tools=TOOLS))


def test_tool_runner_completes_three_turns():
    asked = []

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """The weather of a city.

        Args:
            city: Its name.
        """
        asked.append(city)
        return f"sunny in {city}"

    turns = ["<think>\nRome first.\n</think>\n\nOne moment." + call("get_weather", {"city": "Rome"}),
        call("get_weather", {"city": "Oslo"}) + call("get_weather", {"city": "Bern"}),
        "Sunny everywhere."]
    for stream in (False, True):
        asked.clear()
        runner = client.beta.messages.tool_runner(model="echo", max_tokens=300, tools=[get_weather],
            messages=QUESTION, extra_body={"script": turns}, stream=stream)
        messages = [m.get_final_message() if stream else m for m in runner]
        equal(asked, ["Rome", "Oslo", "Bern"])
        equal([m.stop_reason for m in messages], ["tool_use", "tool_use", "end_turn"])
        equal(messages[-1].content[-1].text, "Sunny everywhere.")


def raises(kind, status, what, fn):
    try:
        fn()
    except kind as e:
        equal(e.status_code, status)
        assert what in e.body["error"]["message"], e.body
        equal(e.body["type"], "error")
        equal(e.body["request_id"], e.response.headers["request-id"])
        return e
    raise AssertionError(f"no {kind.__name__}")


def test_errors_have_the_classes_of_the_client():
    bad = anthropic.BadRequestError
    raises(bad, 400, "temperature", lambda: create(temperature=9))
    raises(bad, 400, "messages", lambda: create(messages=[]))
    raises(bad, 400, "tool_choice", lambda: create(tool_choice={"type": "tool", "name": "g"},
        tools=[{"name": "f", "input_schema": {"type": "object"}}]))
    raises(bad, 400, "messages[0].content[0]", lambda: create(messages=[{"role": "user", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}]}]))
    e = raises(anthropic.NotFoundError, 404, "nobody", lambda: create(model="nobody"))
    equal(e.body["error"]["type"], "not_found_error")
    raises(bad, 400, "prompt is too long: ",
        lambda: create(messages=[{"role": "user", "content": "word " * 100000}]))
    assert client.messages.create(**ask(model="claude-opus-4-1")).model == "demo"


def test_every_response_matches_the_declared_types():
    """The client does not validate its objects; this test does."""
    event = pydantic.TypeAdapter(anthropic.types.RawMessageStreamEvent)

    def post(body, path="/v1/messages"):
        return SERVER.request("POST", path, json.dumps(body))[2]

    body = {"model": "demo", "max_tokens": 9, "messages": QUESTION, "stop_sequences": ["e"]}
    called = {"model": "echo", "script": SAID[0][0], "max_tokens": 200, "tools": TOOLS}
    for more in ({}, {"temperature": 0}, {"max_tokens": 0}, {"model": "echo", "script": ""}, called):
        anthropic.types.Message.model_validate_json(post({**body, **more}), strict=True)
        for frame in post({**body, **more, "stream": True}).split(b"\n\n")[:-1]:
            name, data = frame.split(b"\n")
            if name != b"event: ping":
                equal(event.validate_json(data.removeprefix(b"data: ")).type, name[7:].decode())
    anthropic.types.MessageTokensCount.model_validate_json(
        post(body, "/v1/messages/count_tokens"), strict=True)
    for e in client.models.list():
        anthropic.types.ModelInfo.model_validate(e.model_dump())
    anthropic.types.ErrorResponse.model_validate_json(post({}), strict=True)


def test_models_have_the_form_of_this_client():
    equal([m.id for m in client.models.list()], ["demo", "echo"])
    equal([m.id for m in client.models.list(limit=1)], ["demo", "echo"])
    m = client.models.retrieve("demo")
    equal((m.id, m.type), ("demo", "model"))
    assert m.created_at.year >= 2024 and m.max_input_tokens > 0
    try:
        client.models.retrieve("nobody")
        raise AssertionError("found")
    except anthropic.NotFoundError as e:
        equal(e.body["error"]["type"], "not_found_error")


def test_disconnect_during_the_stream_ends_the_request():
    with client.messages.create(**script({"text": "word " * 2000, "delay_ms": 20}, max_tokens=3000),
            stream=True) as stream:
        for _, _ in zip(range(4), stream):
            pass
        equal(SERVER.running(), 1)
    SERVER.until_idle()


if __name__ == "__main__":
    SERVER.main(globals())
