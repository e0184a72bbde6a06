#!/usr/bin/env python3
"""Ollama's official client for Python against a running server."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))

import json
import typing

from sdk import Served

import ollama
import pydantic
from harness import equal

SERVER = Served("--sse-ping-interval", "50")
client = ollama.Client(host=SERVER.url)
QUESTION = [{"role": "user", "content": "What is InferFlux?"}]
GREEDY = {"temperature": 0, "num_predict": 40}
LONG = {"temperature": 0, "num_predict": 400}


def chat(model="demo", messages=QUESTION, options=GREEDY, **more):
    return client.chat(model=model, messages=messages, options=options, **more)


def test_a_chat_has_a_response_and_counts():
    r = chat()
    assert r.message.role == "assistant" and r.message.content.strip()
    assert r.done and r.done_reason in ("stop", "length") and r.model == "demo"
    assert r.prompt_eval_count > 0 and r.eval_count > 0
    assert r.total_duration >= r.eval_duration > 0 and r.prompt_eval_duration > 0


def test_stream_and_body_have_the_same_content():
    body = chat()
    parts = list(chat(stream=True))
    equal("".join(p.message.content for p in parts), body.message.content)
    equal([p.done for p in parts], [False] * (len(parts) - 1) + [True])
    equal(parts[-1].eval_count, body.eval_count)


def test_a_prompt_is_a_chat_of_one_turn_unless_raw():
    equal(client.generate(model="demo", prompt=QUESTION[0]["content"], options=GREEDY).response,
        chat().message.content)
    equal(client.generate(model="demo", prompt=QUESTION[0]["content"], system="Be brief.",
        options=GREEDY).response,
        chat(messages=[{"role": "system", "content": "Be brief."}, *QUESTION]).message.content)
    raw = list(client.generate(model="demo", prompt="Hello", raw=True, options=GREEDY, stream=True))
    assert raw[-1].done and raw[-1].prompt_eval_count < chat().prompt_eval_count


def test_the_model_uses_earlier_turns():
    messages = [{"role": "user", "content": "Hello!"}]
    for turn in ("What is 2 plus 3?", "And plus 4?"):
        answer = "".join(p.message.content for p in chat(messages=messages, stream=True))
        assert answer
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": turn}]
    assert chat(messages=messages).message.content


def test_options_arrive():
    equal(chat(options={"temperature": 0, "num_predict": 3}).eval_count, 3)
    equal(chat(options={"temperature": 0, "num_predict": 3}).done_reason, "length")
    texts = {chat(options={"temperature": 1.3, "seed": 17}).message.content for _ in range(3)}
    equal(len(texts), 1)
    r = chat(model="echo", messages=[{"role": "user", "content": "one two three"}],
        options={"stop": ["three"]})
    equal((r.message.content, r.done_reason), ("one two ", "stop"))


def test_text_is_returned_unchanged():
    for text in ("héllo wörld", "日本語 🙂👩‍👩‍👧 ok", "a\nb\tc  d", "<|im_end|> stays", "{\"a\": 1}"):
        said = [{"role": "user", "content": text}]
        equal(chat(model="echo", messages=said).message.content, text)
        equal("".join(p.message.content for p in chat(model="echo", messages=said, stream=True)), text)


def test_logprobs_have_bytes_and_alternatives():
    r = chat(logprobs=True, top_logprobs=3, options={"temperature": 0, "num_predict": 6})
    assert len(r.logprobs) == 6 and all(len(t.top_logprobs) == 3 for t in r.logprobs)
    parts = list(chat(logprobs=True, options={"temperature": 0, "num_predict": 6}, stream=True))
    equal([t.token for p in parts for t in p.logprobs or []], [t.token for t in r.logprobs])


def test_models_are_listed_and_described():
    equal([m.model for m in client.list().models], ["demo", "echo"])
    equal([m.model for m in client.ps().models], ["demo", "echo"])
    shown = client.show("demo")
    assert "completion" in shown.capabilities and shown.details.format == "gguf"
    assert shown.template and shown.modelinfo["general.parameter_count"] > 1000000
    assert chat(model="demo:latest").message.content
    equal(json.loads(SERVER.get("/api/version")[2]).keys(), {"version"})


def test_version_and_running_models_are_reported():
    equal(SERVER.get("/")[2], b"Ollama is running")
    equal(SERVER.request("HEAD", "/", None)[0], 200)


def test_an_empty_request_loads_a_model():
    r = client.generate(model="demo")
    equal((r.done, r.done_reason, r.response), (True, "load", ""))
    r = client.chat(model="demo", messages=[], keep_alive=0)
    equal((r.done, r.done_reason, r.message.content), (True, "load", ""))


def get_weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: Its name.
    """
    return f"sunny in {city}"


def call(city):
    arguments = json.dumps({"name": "get_weather", "arguments": {"city": city}}, ensure_ascii=False)
    return f"<tool_call>\n{arguments}\n</tool_call>"


def chat_echo(text, **more):
    """A script model returns the last user message."""
    return client.chat(model="echo", messages=[{"role": "user", "content": text}], **more)


def test_reasoning_and_calls_are_returned():
    text = "<think>\nHm.\n</think>\n\nLet me see. " + call("Zürich") + call("Oslo")
    body = chat_echo(text, tools=[get_weather])
    equal((body.message.thinking, body.message.content), ("Hm.", "Let me see."))
    calls = [(c.function.name, c.function.arguments) for c in body.message.tool_calls]
    equal(calls, [("get_weather", {"city": "Zürich"}), ("get_weather", {"city": "Oslo"})])
    equal((body.done, body.done_reason), (True, "stop"))
    parts = list(chat_echo(text, tools=[get_weather], stream=True))
    equal("".join(p.message.thinking or "" for p in parts), "Hm.")
    equal("".join(p.message.content or "" for p in parts).strip(), "Let me see.")
    equal([(c.function.name, c.function.arguments) for p in parts for c in p.message.tool_calls or []], calls)
    # Without tools no text is a call.
    assert "get_weather" in chat_echo(text).message.content
    # A truncated call is not a call either.
    broken = chat_echo("<tool_call>\n{\"name\": \"get_weather\", \"arg", tools=[get_weather])
    assert not broken.message.tool_calls and "get_weather" in broken.message.content
    text = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
    broken = chat_echo(text, tools=[get_weather])
    equal((broken.message.tool_calls, broken.message.content), (None, text))
    parts = list(chat_echo(text, tools=[get_weather], stream=True))
    equal(("".join(p.message.content or "" for p in parts), parts[-1].done_reason), (text, "length"))
    equal((broken.done_reason, [p for p in parts if p.message.tool_calls]), ("length", []))


def test_reasoning_is_requested_by_the_think_field():
    for think in (True, False, "low", "high"):
        r = client.generate(model="echo", prompt="<think>\nHm.\n</think>\n\na", think=think)
        equal((r.thinking, r.response), ("Hm.", "a"))
    parts = list(client.generate(model="echo", prompt="<think>\nHm.\n</think>\n\na", stream=True))
    equal(("".join(p.thinking or "" for p in parts), "".join(p.response for p in parts)), ("Hm.", "a"))


def test_a_tool_loop_of_three_turns():
    """Same loop as in Ollama's examples; the script has a text for each turn of the assistant."""
    turns = [call("Rome"), call("Oslo") + call("Bern"), "Sunny everywhere."]
    messages = [{"role": "user", "content": "How is the weather?"}]
    asked = []
    for stream in (False, True):
        del messages[1:], asked[:]
        while True:
            r = loop_turn(messages, turns, stream)
            messages.append(r)
            if not r.get("tool_calls"):
                break
            for c in r["tool_calls"]:
                asked.append(c["function"]["arguments"]["city"])
                messages.append({"role": "tool", "tool_name": c["function"]["name"],
                    "content": get_weather(**c["function"]["arguments"])})
        equal(asked, ["Rome", "Oslo", "Bern"])
        equal(messages[-1]["content"], "Sunny everywhere.")


def loop_turn(messages, turns, stream):
    """The client sends only fields that it declares: this request is sent without it, and the
    client parses the response."""
    tools = [ollama._utils.convert_function_to_tool(get_weather).model_dump()]
    text = SERVER.request("POST", "/api/chat", json.dumps({"model": "echo", "messages": messages,
        "tools": tools, "stream": stream, "script": turns}))[2]
    whole = {"role": "assistant", "content": "", "tool_calls": []}
    for line in text.splitlines():
        part = ollama.ChatResponse.model_validate_json(line)
        whole["content"] += part.message.content or ""
        whole["tool_calls"] += [c.model_dump() for c in part.message.tool_calls or []]
    return whole


def raises(status, what, fn):
    try:
        fn()
    except ollama.ResponseError as e:
        equal(e.status_code, status)
        assert what in e.error, e.error
        return
    raise AssertionError(f"no error about {what}")


def test_errors_are_readable():
    raises(404, "nobody", lambda: chat(model="nobody"))
    raises(404, "nobody", lambda: list(chat(model="nobody", stream=True)))
    raises(404, "nobody", lambda: client.show("nobody"))
    raises(400, "temperature", lambda: chat(options={"temperature": -1}))
    raises(400, "format", lambda: chat(format={"type": "text"}))
    raises(400, "fill-in-the-middle", lambda: client.generate(model="demo", prompt="x", suffix="y"))
    raises(400, "images", lambda: client.generate(model="demo", prompt="x", images=[b"\x89PNG"]))
    raises(400, "context", lambda: chat(messages=[{"role": "user", "content": "word " * 100000}]))


def test_the_format_of_a_pydantic_model_is_enforced():
    class Answer(pydantic.BaseModel):
        sentiment: typing.Literal["good", "bad"]
        stars: int = pydantic.Field(ge=1, le=5)

    schema = Answer.model_json_schema()
    Answer.model_validate_json(chat(format=schema, options=LONG).message.content)
    parts = [p.message.content for p in chat(format=schema, options=LONG, stream=True)]
    Answer.model_validate_json("".join(parts))
    made = client.generate(model="demo", prompt="How was it?", format=schema, options=LONG)
    Answer.model_validate_json(made.response)


def script(text, **more):
    """The client cannot send undeclared fields: the same request is sent without it."""
    return json.dumps({"model": "echo", "messages": QUESTION, "script": text, **more})


def test_an_idle_stream_is_kept_alive_between_lines():
    body = SERVER.request("POST", "/api/chat", script({"text": "late", "delay_ms": 600}))[2]
    lines = body.split(b"\n")
    assert lines[0].startswith(b" "), body
    equal("".join(json.loads(line)["message"]["content"] for line in lines[:-1]), "late")
    equal(lines[-1], b"")


def test_disconnect_during_the_stream_ends_the_request():
    stream = client.chat(model="demo", messages=QUESTION, stream=True,
        options={"temperature": 2, "num_predict": 100000, "repeat_penalty": 1.0})
    next(stream)
    stream.close()
    SERVER.until_idle()


if __name__ == "__main__":
    SERVER.main(globals())
