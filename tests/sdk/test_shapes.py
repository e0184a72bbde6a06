#!/usr/bin/env python3
"""Every response and event of every dialect matches the types of the official clients: no
required member is missing, no literal is unknown, no number is a string. A live server makes
the corpus: text, reasoning, calls, truncated output and errors, whole and streamed.

The clients themselves are lenient; this test reads their types strictly. It also checks the
order of events, and that a stream adds up to the body."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from sdk import Served, equal, until

import functools
import json
import typing

import anthropic.types as claude
import ollama._types as llamas
import openai.types as oai
import openai.types.chat as chat
import openai.types.responses as responses
from openai.types.responses.response_item_list import ResponseItemList
from openai.types.shared import ErrorObject
from pydantic import BaseModel, TypeAdapter

SERVER = Served()
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "%s"}}\n</tool_call>'
SAID = {
    "a text": "héllo \"wörld\" 🙂\n",
    "nothing": "",
    "thoughts and text": "<think>hm\nhm</think>yes",
    "only thoughts": "<think>hm</think>",
    "a call": CALL % "Paris",
    "text and two calls": "Both. " + CALL % "Paris" + "\n" + CALL % "Rome",
    "thoughts and a call": "<think>hm</think>" + CALL % "Paris",
    "a broken call": 'Well. <tool_call>\n{"name": "get_weather", "arguments": {"city": "Pa',
    "a call of nobody": '<tool_call>\n{"name": 7}\n</tool_call> and more',
}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "get_weather", "description": "Weather.", "parameters": SCHEMA}
n_checked = 0


# ---- requests

def post(path, body, want=200, **fields):
    status, head, text = SERVER.request("POST", path, json.dumps(body), **fields)
    equal(status, want, f"{path} {body} {text[:300]}")
    return head, text


def events(text):
    """Returns [(name or None, data)] of a stream; comments are skipped."""
    out = []
    for frame in text.decode().split("\n\n"):
        lines = [line for line in frame.split("\n") if line and not line.startswith(":")]
        if not lines:
            continue
        name = lines[0][7:] if lines[0].startswith("event: ") else None
        data = [line[6:] for line in lines if line.startswith("data: ")]
        equal(len(data), 1, frame)
        out.append((name, data[0]))
    return out


# ---- strictness

def members(union):
    """Returns the classes of a union by the literal of their `type`."""
    args = typing.get_args(union)
    if hasattr(union, "__metadata__"):
        args = typing.get_args(args[0])
    out = {}
    for cls in args:
        for word in typing.get_args(cls.model_fields["type"].annotation):
            out[word] = cls
    return out


adapter = functools.cache(TypeAdapter)


def fits(cls, text, what):
    global n_checked
    n_checked += 1
    try:
        adapter(cls).validate_json(text, strict=True)
    except Exception as e:
        raise AssertionError(f"{what}: {text[:2000]}\n{e}") from None
    return json.loads(text)


RESPONSE_EVENTS = members(responses.ResponseStreamEvent)
MESSAGE_EVENTS = members(claude.RawMessageStreamEvent)


# ---- OpenAI Chat Completions

def ask_chat(text, **more):
    return {"model": "echo", "messages": [{"role": "user", "content": "x"}], "script": {
        "text": text, "chunk": "char"}, "tools": [{"type": "function", "function": FUNCTION}],
        **more}


def add_chunks(chunks):
    """Returns the sum of a stream's chunks, by choice."""
    out = {}
    for c in chunks:
        for choice in c["choices"]:
            got = out.setdefault(choice["index"], {"content": "", "reasoning_content": "",
                "calls": [], "finish_reason": None})
            delta = choice["delta"]
            if not got.get("role"):
                equal(delta.get("role"), "assistant", "the first chunk")
                got["role"] = "assistant"
            equal(got["finish_reason"], None, "after the end")
            got["content"] += delta.get("content") or ""
            got["reasoning_content"] += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls") or []:
                if call["index"] == len(got["calls"]):
                    got["calls"].append({"id": call["id"], "name": call["function"]["name"],
                        "arguments": ""})
                else:
                    assert "id" not in call and "name" not in call["function"], call
                got["calls"][call["index"]]["arguments"] += call["function"]["arguments"]
            got["finish_reason"] = choice["finish_reason"]
    return out


def test_chats():
    for what, text in SAID.items():
        for more in ({}, {"logprobs": True, "top_logprobs": 2}, {"n": 2}, {"max_tokens": 3},
                {"stop": ["e"]}, {"parallel_tool_calls": False}):
            body = fits(chat.ChatCompletion, post("/v1/chat/completions", ask_chat(text, **more))[1],
                what)
            _, stream = post("/v1/chat/completions", ask_chat(text, stream=True,
                stream_options={"include_usage": True}, **more))
            frames = events(stream)
            if frames[-1][1] != "[DONE]":
                fits(ErrorObject, json.dumps(json.loads(frames[-1][1])["error"]), what)
            is_broken = what == "a broken call" and not {"max_tokens", "stop"} & set(more)
            equal(frames[-1][1] != "[DONE]", is_broken, (what, more))
            chunks = [fits(chat.ChatCompletionChunk, d, what) for _, d in frames[:-1]]
            equal(len({c["id"] for c in chunks}), 1)
            equal(chunks[-1]["choices"], [])
            equal(chunks[-1]["usage"], {**body["usage"], **{"prompt_tokens_details":
                chunks[-1]["usage"]["prompt_tokens_details"]}})
            whole = add_chunks(chunks)
            for c in body["choices"]:
                got, m = whole[c["index"]], c["message"]
                equal(got["content"], m["content"] or "", what)
                equal(got["reasoning_content"], m.get("reasoning_content") or "", what)
                if is_broken: # a stream cannot take back what it has sent
                    equal((got["finish_reason"], c["finish_reason"]), (None, "length"), what)
                    continue
                equal(got["finish_reason"], c["finish_reason"], what)
                equal([(k["name"], k["arguments"]) for k in got["calls"]],
                    [(k["function"]["name"], k["function"]["arguments"])
                        for k in m.get("tool_calls") or []], what)


def as_typed(text):
    """Removes values that OpenAI itself sends although its types do not declare them:
    finish_reason is null before the last chunk, and the first token of an echo has no
    logprob."""
    body = json.loads(text)
    for choice in body["choices"]:
        choice["finish_reason"] = choice["finish_reason"] or "stop"
        for key, nothing in (("token_logprobs", 0), ("top_logprobs", {})):
            values = (choice["logprobs"] or {}).get(key, [])
            values[:1] = [nothing if v is None else v for v in values[:1]]
    return json.dumps(body)


def test_completions():
    for more in ({}, {"logprobs": 2}, {"echo": True, "logprobs": 1}, {"n": 2}, {"max_tokens": 1},
            {"prompt": ["a", "b"]}):
        wish = {"model": "echo", "prompt": "Hello", "script": "one two three", **more}
        fits(oai.Completion, as_typed(post("/v1/completions", wish)[1]), more)
        for _, data in events(post("/v1/completions", {**wish, "stream": True})[1])[:-1]:
            fits(oai.Completion, as_typed(data), more)


# ---- Responses

def ask_response(said, **more):
    return {"model": "echo", "input": "x", "script": {"text": said, "chunk": "char"},
        "tools": [{"type": "function", **FUNCTION}], **more}


def check_order(seen, begins=("created", "in_progress")):
    """Items open and close one after the other; the final response contains the items that were
    completed."""
    kinds = [e["type"].removeprefix("response.") for e in seen]
    equal([e["sequence_number"] for e in seen], list(range(len(seen))))
    equal(tuple(kinds[:len(begins)]), begins)
    assert kinds[-1] in ("completed", "incomplete", "failed"), kinds
    is_open, n_items, done, text = None, 0, [], ""
    for e, kind in list(zip(seen, kinds))[len(begins):-1]:
        if kind == "output_item.added":
            equal((is_open, e["output_index"]), (None, n_items), kind)
            is_open, text = e["item"]["id"], ""
            continue
        if kind == "error":
            equal((is_open, e["code"]), (None, "incomplete_tool_call"))
            continue
        equal(e["output_index"], n_items, kind)
        if kind == "output_item.done":
            equal(e["item"]["id"], is_open, kind)
            is_open, n_items = None, n_items + 1
            if e["item"]["type"] != "function_call" or e["item"]["status"] == "completed":
                done.append(e["item"])
            continue
        equal(e["item_id"], is_open, kind)
        if kind.endswith(".delta"):
            text += e["delta"]
        elif kind.endswith("text.done") or kind.endswith("arguments.done"):
            equal(e.get("text", e.get("arguments")), text, kind)
    equal(is_open if kinds[-1] != "failed" else None, None)
    return done


def without_ids(items):
    """Removes the members that differ between responses."""
    return [{k: v for k, v in i.items() if k not in ("id", "call_id")} for i in items]


def test_responses():
    for what, text in SAID.items():
        for more in ({}, {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
                {"reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"]},
                {"max_output_tokens": 3}, {"store": False, "instructions": "i"},
                {"tool_choice": {"type": "allowed_tools", "mode": "auto",
                    "tools": [{"type": "function", "name": "get_weather"}]}},
                {"metadata": {"a": "b"}, "text": {"verbosity": "low"}, "user": "u"}):
            body = fits(responses.Response, post("/v1/responses", ask_response(text, **more))[1],
                what)
            seen = []
            for name, data in events(post("/v1/responses", ask_response(text, stream=True,
                    **more))[1]):
                seen.append(fits(RESPONSE_EVENTS[name], data, what))
                equal(seen[-1]["type"], name)
            done = check_order(seen)
            last = seen[-1]["response"]
            equal(last["output"], done, what)
            equal(without_ids(done), without_ids(body["output"]), what)
            equal((last["status"], last["usage"]["output_tokens"]),
                (body["status"], body["usage"]["output_tokens"]))


def test_responses_in_the_background():
    for what, text in SAID.items():
        body = json.loads(post("/v1/responses", ask_response(text))[1])
        first = fits(responses.Response, post("/v1/responses", ask_response(text,
            background=True))[1], what)
        seen = [fits(RESPONSE_EVENTS[n], d, what) for n, d in events(post("/v1/responses",
            ask_response(text, background=True, stream=True))[1])]
        done = check_order(seen, ("created", "queued", "in_progress"))
        last = seen[-1]["response"]
        equal(without_ids(done), without_ids(body["output"]), what)
        equal((last["output"], last["status"]), (done, body["status"]), what)
        for name in (first["id"], last["id"]):
            until(lambda: retrieve(name)["status"] == body["status"], "it has no end")
            equal(without_ids(retrieve(name)["output"]), without_ids(body["output"]), what)
        again = SERVER.get(f"/v1/responses/{last['id']}?stream=true&starting_after=3")[2]
        equal([json.loads(d) for _, d in events(again)], seen[4:], what)
    slow = {"text": "word " * 900, "chunk": "char", "delay_ms": 20}
    for more, end in (({}, "cancelled"), ({"x_timeout": 0.2}, "failed")):
        name = json.loads(post("/v1/responses", {"model": "echo", "input": "x", "script": slow,
            "background": True, **more})[1])["id"]
        until(lambda: retrieve(name)["status"] in ("in_progress", end), "it does not begin")
        if end == "cancelled":
            fits(responses.Response, post(f"/v1/responses/{name}/cancel", {})[1], end)
        until(lambda: retrieve(name)["status"] == end, "it has no end")


def retrieve(name):
    return fits(responses.Response, SERVER.get("/v1/responses/" + name)[2], "kept")


def test_responses_that_are_stored():
    text = SAID["text and two calls"]
    first = json.loads(post("/v1/responses", ask_response(text))[1])
    results = [{"type": "function_call_output", "call_id": i["call_id"], "output": "21"}
        for i in first["output"] if i["type"] == "function_call"]
    body = fits(responses.Response, post("/v1/responses", ask_response("done", input=[
        {"role": "user", "content": "x"}, *first["output"], *results,
        {"role": "assistant", "content": "said"}, {"role": "developer", "content": "d"}]))[1], "")
    fits(responses.Response, SERVER.get("/v1/responses/" + body["id"])[2], "kept")
    items = fits(ResponseItemList,
        SERVER.get("/v1/responses/" + body["id"] + "/input_items?limit=100")[2], "items")
    equal(len(items["data"]), 3 + len(first["output"]) + len(results))
    fits(responses.InputTokenCountResponse,
        post("/v1/responses/input_tokens", {"model": "echo", "input": "x"})[1], "count")


# ---- Anthropic

def ask_message(text, **more):
    return {"model": "echo", "max_tokens": 500, "messages": [{"role": "user", "content": "x"}],
        "script": {"text": text, "chunk": "char"}, "tools": [{"name": "get_weather",
            "description": "Weather.", "input_schema": SCHEMA}], **more}


def add_blocks(seen):
    """Blocks are sequential, from start to stop; returns their sum."""
    kinds = [e["type"] for e in seen if e["type"] != "ping"]
    equal((kinds[0], kinds[-2:]), ("message_start", ["message_delta", "message_stop"]))
    blocks, is_open = [], False
    for e in seen:
        if e["type"] == "content_block_start":
            equal((is_open, e["index"]), (False, len(blocks)))
            blocks.append({**e["content_block"], "json": ""})
            is_open = True
        elif e["type"] == "content_block_delta":
            equal((is_open, e["index"]), (True, len(blocks) - 1))
            d = e["delta"]
            if d["type"] == "input_json_delta":
                blocks[-1]["json"] += d["partial_json"]
            else:
                key = d["type"].removesuffix("_delta")
                blocks[-1][key] = blocks[-1].get(key, "") + d[key]
        elif e["type"] == "content_block_stop":
            equal((is_open, e["index"]), (True, len(blocks) - 1))
            is_open = False
    equal(is_open, False)
    for b in blocks:
        text = b.pop("json")
        if b["type"] == "tool_use":
            b["input"] = json.loads(text) if text else {}
    return blocks


def test_messages():
    for what, text in SAID.items():
        for more in ({}, {"max_tokens": 3}, {"stop_sequences": ["e"]},
                {"thinking": {"type": "adaptive"}},
                {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}):
            body = fits(claude.Message, post("/v1/messages", ask_message(text, **more))[1], what)
            seen = []
            for name, data in events(post("/v1/messages", ask_message(text, stream=True,
                    **more))[1]):
                equal(json.loads(data)["type"], name)
                seen.append(json.loads(data) if name == "ping" else
                    fits(MESSAGE_EVENTS[name], data, what))
            delta = next(e for e in seen if e["type"] == "message_delta")
            equal(delta["delta"]["stop_reason"], body["stop_reason"], what)
            equal(delta["usage"]["output_tokens"], body["usage"]["output_tokens"], what)
            strip = lambda blocks: [{k: v for k, v in b.items() if k not in ("id", "signature")}
                for b in blocks]
            equal(strip(add_blocks(seen)), strip(body["content"]), what)
    fits(claude.MessageTokensCount, post("/v1/messages/count_tokens", ask_message("x"))[1], "count")


# ---- Ollama

def test_ollama():
    for what, text in SAID.items():
        wish = {"model": "echo", "messages": [{"role": "user", "content": "x"}], "script": text,
            "tools": [{"type": "function", "function": FUNCTION}]}
        for more in ({}, {"think": True}, {"options": {"num_predict": 3}},
                {"logprobs": True, "top_logprobs": 2}):
            body = fits(llamas.ChatResponse, post("/api/chat", {**wish, **more,
                "stream": False})[1], what)
            lines = [fits(llamas.ChatResponse, line, what) for line in
                post("/api/chat", {**wish, **more})[1].splitlines()]
            equal([line["done"] for line in lines], [False] * (len(lines) - 1) + [True], what)
            equal("".join(line["message"]["content"] for line in lines),
                body["message"]["content"], what)
            equal([c["function"] for line in lines
                for c in line["message"].get("tool_calls") or []],
                [c["function"] for c in body["message"].get("tool_calls") or []], what)
    for more in ({}, {"raw": True}, {"options": {"num_predict": 3}}):
        wish = {"model": "echo", "prompt": "x", "script": "one two", **more}
        fits(llamas.GenerateResponse, post("/api/generate", {**wish, "stream": False})[1], more)
        for line in post("/api/generate", wish)[1].splitlines():
            fits(llamas.GenerateResponse, line, more)
    fits(llamas.ListResponse, SERVER.get("/api/tags")[2], "tags")
    fits(llamas.ProcessResponse, SERVER.get("/api/ps")[2], "ps")
    fits(llamas.ShowResponse, post("/api/show", {"model": "demo"})[1], "show")


# ---- models and errors

def test_models():
    for m in json.loads(SERVER.get("/v1/models")[2])["data"]:
        fits(oai.Model, json.dumps(m), "list")
    fits(oai.Model, SERVER.get("/v1/models/demo")[2], "one")
    for m in json.loads(SERVER.get("/v1/models", anthropic_version="2023-06-01")[2])["data"]:
        fits(claude.ModelInfo, json.dumps(m), "list")
    fits(claude.ModelInfo, SERVER.get("/v1/models/demo", anthropic_version="2023-06-01")[2], "one")


BAD = [({"temperature": 9}, 400), ({"model": "nobody"}, 404), ({"stream": 7}, 400)]


def test_errors():
    for more, status in BAD:
        for path, wish in (("/v1/chat/completions", ask_chat("x")), ("/v1/completions",
                {"model": "echo", "prompt": "x"}), ("/v1/responses", ask_response("x"))):
            error = json.loads(post(path, {**wish, **more}, status)[1])["error"]
            fits(ErrorObject, json.dumps(error), path)
        fits(claude.ErrorResponse, post("/v1/messages", {**ask_message("x"), **more}, status)[1],
            "messages")


def test_errors_during_a_stream():
    slow = {"text": "word " * 200, "delay_ms": 20}
    late = {"stream": True, "x_timeout": 0.15, "script": slow}
    frames = events(post("/v1/chat/completions", ask_chat("", **late))[1])
    error = json.loads(frames[-1][1])["error"]
    fits(ErrorObject, json.dumps(error), "chat")
    seen = [fits(RESPONSE_EVENTS[n], d, "responses") for n, d in
        events(post("/v1/responses", ask_response("", **late))[1])]
    check_order(seen)
    equal((seen[-1]["type"], seen[-1]["response"]["status"]), ("response.failed", "failed"))
    name, data = events(post("/v1/messages", ask_message("", **late))[1])[-1]
    equal(name, "error")
    fits(claude.ErrorResponse, data, "messages")


def test_strictness_is_strict():
    """The strict check detects wrong values."""
    body = json.loads(post("/v1/responses", ask_response("hi"))[1])
    for spoil in (lambda b: b.pop("tools"), lambda b: b.update(status="done"),
            lambda b: b.update(created_at="now"), lambda b: b["output"][0].pop("role"),
            lambda b: b["output"][0].update(type="song"), lambda b: b["usage"].pop("total_tokens")):
        bad = json.loads(json.dumps(body))
        spoil(bad)
        try:
            fits(responses.Response, json.dumps(bad), "")
        except AssertionError:
            continue
        raise AssertionError(f"accepted: {bad}")
    assert issubclass(responses.Response, BaseModel) and n_checked > 1000, n_checked


if __name__ == "__main__":
    SERVER.main(globals())
