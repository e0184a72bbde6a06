#!/usr/bin/env python3
"""/v1/responses over HTTP: isolation of keys, limits of the response store and operation without
it, disconnects, and truncation."""
import json
import os
import socket
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import Server, equal, read_until, run


def post(s, body, want=200, path="/v1/responses", **fields):
    status, _, text = s.request("POST", path, json.dumps(body), **fields)
    equal(status, want, text[:300])
    return json.loads(text)


def script_body(text, **more):
    return {"model": "echo", "input": "hi", "script": text, **more}


def code(s, method, path, **fields):
    status, _, text = s.request(method, path, None, **fields)
    return status, json.loads(text)["error"]["code"] if status >= 400 else None


def test_responses_of_another_key_are_not_found():
    with Server("--api-key", "aaaa:group=g,bbbb:group=g,cccc:admin", key="aaaa") as s:
        mine = post(s, script_body("mine"))
        path, item = "/v1/responses/" + mine["id"], mine["output"][0]["id"]
        equal(code(s, "GET", path), (200, None))
        for other in ("bbbb", "cccc"):
            key = {"Authorization": "Bearer " + other}
            for method, to in (("GET", path), ("GET", path + "/input_items"), ("DELETE", path)):
                equal(code(s, method, to, **key), (404, "response_not_found"))
            equal(post(s, script_body("x", previous_response_id=mine["id"]), 404, **key)["error"]["code"],
                "previous_response_not_found")
            e = post(s, script_body("x", input=[{"type": "item_reference", "id": item}]), 404, **key)
            equal(e["error"]["param"], "input[0].id")
        equal(code(s, "GET", path, Authorization="Bearer no")[0], 401)
        post(s, script_body("x", previous_response_id=mine["id"]))
        equal(code(s, "DELETE", path), (200, None))


def test_a_server_without_a_store_returns_an_error():
    with Server("--responses-store", "0") as s:
        r = post(s, script_body("hello"))
        equal(r["store"], False)
        equal(code(s, "GET", "/v1/responses/" + r["id"]), (404, "response_not_found"))
        for body, param in ((script_body("x", previous_response_id=r["id"]), "previous_response_id"),
                (script_body("x", input=[{"type": "item_reference", "id": r["output"][0]["id"]}]),
                    "input")):
            e = post(s, body, 400)["error"]
            equal((e["param"], e["code"]), (param, "unsupported_parameter"))


def test_the_oldest_responses_are_evicted():
    with Server("--responses-store", "64K", "--responses-key-share", "50") as s:
        big = "word " * 400  # 2 kB, twice: as the item and in its text
        ids = [post(s, script_body("ok", input=big))["id"] for _ in range(30)]
        there = [code(s, "GET", "/v1/responses/" + i)[0] == 200 for i in ids]
        equal(there, sorted(there))
        assert there[-1] and not there[0] and 4 <= sum(there) <= 16, there
        metrics = dict(line.split() for line in s.get("/metrics")[2].decode().splitlines()
            if line.startswith("inferflux_responses_"))
        equal(int(metrics["inferflux_responses_kept"]), sum(there))
        equal(int(metrics["inferflux_responses_evicted_total"]), 30 - sum(there))
        assert int(metrics["inferflux_responses_kept_bytes"]) <= 32 * 1024
        huge = post(s, script_body("", model="demo", input="word " * 9000, truncation="auto"), 400)
        equal(huge["error"]["code"], "context_length_exceeded")


def test_a_used_conversation_does_not_expire():
    with Server("--responses-ttl", "2") as s:
        longest = 2
        while longest >= 2:  # if this program paused for that long, the response may have expired
            asked = began = time.monotonic()
            first = last = post(s, script_body("one"))
            longest, status = 0, 200
            while status == 200 and time.monotonic() - began < 3:
                time.sleep(0.6)
                before, asked = asked, time.monotonic()
                status, _, text = s.request("POST", "/v1/responses",
                    json.dumps(script_body("more", previous_response_id=last["id"])))
                last = json.loads(text)
                longest = max(longest, time.monotonic() - before)
            there = code(s, "GET", "/v1/responses/" + first["id"])[0]
            longest = max(longest, time.monotonic() - asked)
        equal((status, there), (200, 200))
        time.sleep(2.2)
        equal(code(s, "GET", "/v1/responses/" + last["id"])[0], 404)


def test_the_first_responses_of_a_conversation_may_be_deleted():
    with Server() as s:
        first = post(s, script_body("one"))
        second = post(s, script_body("two", previous_response_id=first["id"]))
        equal(code(s, "DELETE", "/v1/responses/" + first["id"])[0], 200)
        third = post(s, script_body("three", previous_response_id=second["id"]))
        assert third["usage"]["input_tokens"] > second["usage"]["input_tokens"]


def test_a_response_is_stored_when_its_stream_ends():
    """On any thread: the id is valid as soon as the last event was read."""
    with Server("--threads-http", "3") as s:
        last = None
        for i in range(40):
            more = {"previous_response_id": last} if last else {}
            text = s.request("POST", "/v1/responses", json.dumps(script_body(str(i), stream=True,
                **more)))[2].decode()
            last = json.loads(text.strip().rsplit("data: ", 1)[1])["response"]["id"]
            equal(code(s, "GET", "/v1/responses/" + last)[0], 200)


def test_a_disconnected_response_is_not_stored():
    with Server() as s:
        c = s.connect()
        body = json.dumps(script_body({"text": "word " * 1000, "delay_ms": 20}, stream=True))
        c.sendall(f"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            f"{body}".encode())
        got = read_until(c, lambda data: b"output_text.delta" in data)
        c.close()
        text = got.decode()
        answer = json.loads(text.split("data: ", 1)[1].split("\n", 1)[0])["response"]["id"]
        deadline = time.monotonic() + 60
        while b'"sequences":0' not in s.get("/debug/invariants")[2]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        equal(code(s, "GET", "/v1/responses/" + answer)[0], 404)


def test_a_conversation_is_truncated_if_permitted():
    turn = [{"role": "user", "content": "word " * 40}, {"role": "assistant", "content": "ok"}]
    items = turn * 40 + [{"role": "user", "content": "Hello!"}]
    body = {"model": "demo", "instructions": "Be brief.", "input": items, "temperature": 0,
        "max_output_tokens": 20}
    with Server() as s:
        equal(post(s, body, 400)["error"]["code"], "context_length_exceeded")
        r = post(s, {**body, "truncation": "auto"})
        n_ctx = json.loads(s.get("/v1/models/demo")[2])["max_model_len"]
        counted = lambda n: post(s, {"model": "demo", "instructions": "Be brief.",
            "input": items[-n:]}, path="/v1/responses/input_tokens")["input_tokens"]
        fit = max(n for n in range(1, 2 * 40, 2) if counted(n) + 20 <= n_ctx)
        equal(r["usage"]["input_tokens"], counted(fit))  # as many whole turns as fit, no more
        whole = post(s, {**body, "input": items[-fit:]})
        equal(r["output"][0]["content"], whole["output"][0]["content"])
        huge = {**body, "input": "word " * 9000, "truncation": "auto"}
        equal(post(s, huge, 400)["error"]["code"], "context_length_exceeded")
        # Tool results are dropped together with their call.
        loop = [{"role": "user", "content": "word " * 100}, {"type": "function_call",
            "call_id": "c", "name": "f", "arguments": "{}"}, {"type": "function_call_output",
            "call_id": "c", "output": "o"}] * 30 + [{"role": "user", "content": "Hello!"}]
        post(s, {**body, "input": loop, "truncation": "auto"})


def test_requests_of_coding_agents_are_accepted():
    """The twelve fields, the tool types and the history that coding agents send to every server."""
    tools = [{"type": "function", "name": "shell", "description": "Runs.", "strict": False,
        "parameters": {"type": "object", "properties": {"command": {"type": "array",
            "items": {"type": "string"}}}, "required": ["command"]}},
        {"type": "custom", "name": "apply_patch", "description": "Edits.", "format": {
            "type": "grammar", "syntax": "lark", "definition": "start: /x/"}},
        {"type": "namespace", "name": "mcp", "description": "Others.", "tools": []},
        {"type": "web_search", "external_web_access": False}, {"type": "image_generation"},
        {"type": "local_shell"}]
    body = {"model": "echo", "instructions": "You are an agent.", "tools": tools,
        "tool_choice": "auto", "parallel_tool_calls": False, "store": False, "stream": True,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "include": ["reasoning.encrypted_content"], "prompt_cache_key": "thread-1",
        "client_metadata": {"x-codex-installation-id": "i"}}
    said = ('<think>look</think><tool_call>\n{"name": "shell", "arguments": '
        '{"command": ["ls"]}}\n</tool_call>')
    history = [{"type": "message", "role": "developer", "content": [
        {"type": "input_text", "text": "<permissions>"}]}, {"type": "message", "role": "user",
        "content": [{"type": "input_text", "text": "What is here?"}]}]
    with Server() as s:
        for text in (said, said, "Two files."):
            stream = s.request("POST", "/v1/responses", json.dumps({**body, "input": history,
                "script": text}), session_id="thread-1", x_openai_subagent="review")[2].decode()
            done = [json.loads(f.split("data: ", 1)[1]) for f in stream.split("\n\n") if f]
            items = [e["item"] for e in done if e["type"] == "response.output_item.done"]
            equal(done[-1]["response"]["output"], items)
            for item in items:
                kept = {k: v for k, v in item.items() if k not in ("id", "status")}
                history.append(kept)
                if item["type"] == "function_call":
                    history.append({"type": "function_call_output", "call_id": item["call_id"],
                        "output": "a b"})
        equal([i["type"] for i in history[2:]], ["reasoning", "function_call",
            "function_call_output"] * 2 + ["message"])
        equal(history[2]["summary"], [{"type": "summary_text", "text": "look"}])
        probe = post(s, {"model": "echo", "input": [], "script": "Two.", "max_output_tokens": 1,
            "stream": False})
        equal((probe["status"], probe["usage"]["output_tokens"]), ("incomplete", 1))
        assert json.loads(s.get("/v1/models")[2])["models"]


def test_invalid_paths_are_rejected():
    with Server() as s:
        r = post(s, script_body("x"))
        for path in (f"/v1/responses/{r['id']}/nothing", f"/v1/responses/{r['id']}/input_items/x"):
            equal(code(s, "GET", path), (404, "not_found"))
        equal(s.request("POST", f"/v1/responses/{r['id']}", "{}")[0], 404)
        equal(code(s, "GET", f"/v1/responses/{r['id']}?stream=true"), (400, "invalid_value"))
        for query in ("limit=0", "limit=x", "order=up"):
            equal(code(s, "GET", f"/v1/responses/{r['id']}/input_items?{query}")[0], 400)
        equal(s.request("PUT", "/v1/responses", "{}")[0], 405)


def test_a_long_conversation_in_many_items():
    """A large body is parsed by a worker thread; its references are resolved there, too."""
    with Server() as s:
        r = post(s, script_body("x", input=[{"role": "user", "content": "a b c"}] * 10))
        items = [{"type": "item_reference", "id": f"msg_{r['id'][5:]}_i{i % 10}"}
            for i in range(40)]
        body = script_body("done", input=items, metadata={}, script="done",
            safety_identifier="s" * 1000, x_padding="p" * 40000)
        equal(post(s, body)["output"][0]["content"][0]["text"], "done")


def test_long_input_is_listed_by_a_worker_thread():
    """A hundred kilobytes of input items, page by page, with some clients that disconnect."""
    with Server() as s:
        n = 200
        items = [{"role": "user", "content": f"{i} " + "a" * 500} for i in range(n)]
        path = f"/v1/responses/{post(s, script_body('x', input=items))['id']}/input_items"
        page = json.loads(s.get(path + "?limit=2&order=asc")[2])
        equal([i["content"][0]["text"].split()[0] for i in page["data"]], ["0", "1"])
        page = json.loads(s.get(path + f"?limit=1&order=asc&after={page['last_id']}")[2])
        equal((page["data"][0]["content"][0]["text"].split()[0], page["has_more"]), ("2", True))
        page = json.loads(s.get(path + "?limit=100")[2])
        equal([i["content"][0]["text"].split()[0] for i in page["data"]],
            [str(n - 1 - i) for i in range(100)])
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", s.port)) as c:
                c.sendall(f"GET {path}?limit=100 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        equal(s.get(path + "?limit=1")[0], 200)
        equal(code(s, "GET", path + "?limit=0")[0], 400)


if __name__ == "__main__":
    run(globals())
