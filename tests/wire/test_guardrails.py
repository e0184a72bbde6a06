#!/usr/bin/env python3
"""Guardrails: prompts and output in every dialect, as a body and as a stream, tool arguments,
logprobs, choices, sets per model and tenant, the admin routes, storage, audit log and metrics."""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
sys.path.insert(0, os.path.join(ROOT, "tests/wire"))
from harness import equal, program, run
from test_api_keys import Keys, as_key

PATH, CHAT = "/v1/admin/guardrails", "/v1/chat/completions"
USER = as_key("user")


class Guarded(Keys):
    def __init__(self, **options):
        super().__init__(**{"ready": True, **options})

    def put(self, name="", expect=200, **members):
        body = {"action": "redact", **members}
        status, head, data = self.call("PUT", PATH + ("/" + name if name else ""), body)
        equal(status, expect, data)
        return data


def script(text, unit="chars", n=1):
    return {"text": text, "unit": unit, "per_chunk": n}


def messages(text):
    return [{"role": "user", "content": text}]


def sse(data):
    return [json.loads(line[6:]) for line in data.decode().splitlines()
        if line.startswith("data: ") and line != "data: [DONE]"]


def lines(data):
    return [json.loads(line) for line in data.decode().splitlines() if line]


# path: body of a prompt; text and finish of a body, and of a stream; finish of blocked output; member
# of an error, and its value for a blocked prompt
DIALECTS = {
    CHAT: (lambda t: {"messages": messages(t)},
        lambda b: (b["choices"][0]["message"]["content"], b["choices"][0]["finish_reason"]),
        lambda d: ("".join(e["choices"][0]["delta"].get("content") or "" for e in sse(d) if e["choices"]),
            [e["choices"][0]["finish_reason"] for e in sse(d) if e["choices"]][-1]),
        "content_filter", lambda b: b["error"]["code"], "content_filter"),
    "/v1/completions": (lambda t: {"prompt": t},
        lambda b: (b["choices"][0]["text"], b["choices"][0]["finish_reason"]),
        lambda d: ("".join(e["choices"][0]["text"] for e in sse(d) if e["choices"]),
            [e["choices"][0]["finish_reason"] for e in sse(d) if e["choices"]][-1]),
        "content_filter", lambda b: b["error"]["code"], "content_filter"),
    "/v1/responses": (lambda t: {"input": t},
        lambda b: ("".join(c["text"] for i in b["output"] for c in i["content"]),
            (b["incomplete_details"] or {}).get("reason")),
        lambda d: ("".join(e["delta"] for e in sse(d) if e["type"] == "response.output_text.delta"),
            (sse(d)[-1]["response"]["incomplete_details"] or {}).get("reason")),
        "content_filter", lambda b: b["error"]["code"], "content_filter"),
    "/v1/messages": (lambda t: {"messages": messages(t)},
        lambda b: ("".join(c["text"] for c in b["content"]), b["stop_reason"]),
        lambda d: ("".join(e["delta"]["text"] for e in sse(d) if e["type"] == "content_block_delta"),
            [e["delta"]["stop_reason"] for e in sse(d) if e["type"] == "message_delta"][-1]),
        "refusal", lambda b: b["error"]["type"], "invalid_request_error"),
    "/api/chat": (lambda t: {"messages": messages(t)},
        lambda b: (b["message"]["content"], b["done_reason"]),
        lambda d: ("".join(e["message"]["content"] for e in lines(d)), lines(d)[-1]["done_reason"]),
        "content_filter", lambda b: type(b["error"]).__name__, "str"),
    "/api/generate": (lambda t: {"prompt": t},
        lambda b: (b["response"], b["done_reason"]),
        lambda d: ("".join(e["response"] for e in lines(d)), lines(d)[-1]["done_reason"]),
        "content_filter", lambda b: type(b["error"]).__name__, "str"),
    "/completion": (lambda t: {"prompt": t},
        lambda b: (b["content"], b["stop_type"]),
        lambda d: ("".join(e["content"] for e in sse(d)), sse(d)[-1]["stop_type"]),
        "content_filter", lambda b: b["error"]["code"], 400),
}


def generate(s, path, prompt, text, stream=False, **more):
    unit = more.pop("unit", "chars")
    body = {"model": "echo", "max_tokens": 400, "stream": stream, "script": script(text, unit),
        **DIALECTS[path][0](prompt), **more}
    return s.request("POST", path, json.dumps(body), **USER)


def test_output_is_redacted_in_every_dialect_and_for_every_cut():
    with Guarded() as s:
        s.put(blocklist=["secret plan"], patterns=["ACME-\\d+"], detectors=["email"])
        text = "the SECRET Plan of ACME-17 is at ann@example.com now"
        want = "the [redacted] of [redacted] is at [redacted] now"
        for path, (_, of_body, of_stream, *_) in DIALECTS.items():
            for unit in "chars", "tokens", "all":
                status, _, data = generate(s, path, "x", text, unit=unit)
                equal(status, 200, data)
                equal(of_body(json.loads(data))[0], want, path)
                status, _, data = generate(s, path, "x", text, True, unit=unit)
                equal(status, 200, data)
                equal(of_stream(data)[0], want, path)


def test_blocked_output_ends_with_the_finish_reason_of_each_dialect():
    with Guarded() as s:
        s.put(action="block", blocklist=["forbidden"])
        for path, (_, of_body, of_stream, finish, *_) in DIALECTS.items():
            status, _, data = generate(s, path, "x", "this is forBIDden text")
            equal(status, 200, data)
            equal(of_body(json.loads(data)), ("this is ", finish), path)
            assert b"forbid" not in data.lower(), data
            status, _, data = generate(s, path, "x", "this is forbidden text", True)
            equal(of_stream(data), ("this is ", finish), path)
        # a whole entry at the end, and the beginning of one
        equal(DIALECTS[CHAT][1](json.loads(generate(s, CHAT, "x", "ends forbidden")[2])),
            ("ends ", "content_filter"))
        equal(DIALECTS[CHAT][1](json.loads(generate(s, CHAT, "x", "ends forbid")[2])),
            ("ends forbid", "stop"))


def test_a_blocked_prompt_is_refused_in_the_form_of_each_dialect():
    with Guarded() as s:
        s.put(action="block", blocklist=["forbidden"], apply_to=["prompt"])
        for path, (_, _, _, _, of_error, want) in DIALECTS.items():
            status, _, data = generate(s, path, "say Forbidden words", "forbidden is permitted here")
            equal(status, 400, data)
            equal(of_error(json.loads(data)), want, path)
            assert b"orbidden" not in data, data
            equal(generate(s, path, "say other words", "forbidden is permitted here")[0], 200)


def test_every_text_of_a_request_is_searched():
    tool = lambda name, **more: {"type": "function", "function": {"name": name,
        "parameters": {"type": "object", "properties": {"q": {"type": "string", **more}}}}}
    bad = "forbidden"
    user = {"role": "user", "content": "x"}
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function",
        "function": {"name": "f", "arguments": json.dumps({"q": "a \u0066orbidden"})}}]}
    escaped = json.loads(json.dumps(call))
    escaped["tool_calls"][0]["function"]["arguments"] = '{"q":"for\\u0062idden"}'
    result = {"role": "tool", "tool_call_id": "c", "content": "it is " + bad}
    bodies = [
        (CHAT, {"messages": [{"role": "system", "content": bad}, user]}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": bad}]}]}),
        (CHAT, {"messages": [user, call, {**result, "content": "y"}]}),
        (CHAT, {"messages": [user, escaped, {**result, "content": "y"}]}),
        (CHAT, {"messages": [user, {**call, "tool_calls": [{"id": "c", "type": "function",
            "function": {"name": "f", "arguments": "{}"}}]}, result]}),
        (CHAT, {"messages": [user], "tools": [tool("f", description=bad)]}),
        (CHAT, {"messages": [user], "tools": [tool(bad)]}),
        (CHAT, {"messages": [user], "chat_template_kwargs": {"note": bad}}),
        (CHAT, {"messages": [user], "prediction": {"type": "content", "content": bad}}),
        ("/v1/completions", {"prompt": ["a", bad]}),
        ("/v1/messages", {"system": bad, "messages": [user]}),
        ("/v1/messages", {"system": [{"type": "text", "text": bad}], "messages": [user]}),
        ("/v1/responses", {"instructions": bad, "input": "x"}),
        ("/v1/responses", {"input": [{"role": "user", "content": bad}]}),
        ("/api/generate", {"system": bad, "prompt": "x"}),
    ]
    with Guarded() as s:
        s.put(action="block", blocklist=[bad])
        _, _, tokens = s.call("POST", "/tokenize", {"model": "echo", "content": "a " + bad})
        bodies.append(("/v1/completions", {"prompt": tokens["tokens"]}))
        for path, body in bodies:
            body = {"model": "echo", "max_tokens": 4, "script": {"text": "y"}, **body}
            status, _, data = s.request("POST", path, json.dumps(body), **USER)
            equal(status, 400, (path, body, data))
            assert b"guardrails" in data, data
            clean = json.loads(json.dumps(body).replace("for\\\\u0062idden", "fine").replace(bad, "fine"))
            if "prompt" not in body or not isinstance(body["prompt"][0], int):
                status, _, data = s.request("POST", path, json.dumps(clean), **USER)
                equal(status, 200, (path, clean, data))


def test_redacted_prompts_reach_the_model_without_the_value():
    with Guarded() as s:
        def n_prompt(text, **more):
            status, _, data = s.request("POST", CHAT, json.dumps({"model": "demo", "max_tokens": 1,
                "messages": messages(text), **more}), **USER)
            equal(status, 200, data)
            return json.loads(data)["usage"]["prompt_tokens"]
        mail = "mail " + "a" * 60 + "@example.com now"
        before, want = n_prompt(mail), n_prompt("mail [redacted] now")
        s.put(detectors=["email"], apply_to=["prompt"])
        equal(n_prompt(mail), want)
        assert before > want
        equal(n_prompt(mail, seed=1, tools=[]), want)


def test_tool_arguments_stay_valid_json():
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
        "properties": {"a": {"type": "string"}}}}}]
    arguments = '{"a": "se\\u0063ret \\"x\\" \\ud83d\\ude00", "card": 4111111111111111, "n": [1, "secret"]}'
    text = '<tool_call>\n{"name": "f", "arguments": %s}\n</tool_call>' % arguments
    want = {"a": '[redacted] "x" \U0001f600', "card": "[redacted]", "n": [1, "[redacted]"]}
    with Guarded() as s:
        s.put(blocklist=["secret"], detectors=["card"])
        for unit in "chars", "tokens", "all":
            _, _, data = generate(s, CHAT, "x", text, tools=tools, unit=unit)
            message = json.loads(data)["choices"][0]["message"]
            equal(json.loads(message["tool_calls"][0]["function"]["arguments"]), want, data)
            _, _, data = generate(s, CHAT, "x", text, True, tools=tools, unit=unit)
            parts = [c["function"].get("arguments", "") for e in sse(data) if e["choices"]
                for c in e["choices"][0]["delta"].get("tool_calls", [])]
            equal(json.loads("".join(parts)), want, data)
        s.put(action="block", blocklist=["secret"])
        _, _, data = generate(s, CHAT, "x", "ok " + text, tools=tools)
        choice = json.loads(data)["choices"][0]
        equal(choice["finish_reason"], "content_filter")
        assert not choice["message"].get("tool_calls"), choice


def test_logprobs_and_usage_and_stop_strings_and_choices():
    with Guarded() as s:
        s.put(blocklist=["secret"])
        _, _, data = generate(s, CHAT, "x", "a secret b", logprobs=True)
        body = json.loads(data)
        entries = "".join(t["token"] for t in body["choices"][0]["logprobs"]["content"])
        assert "sec" not in entries and "a " in entries and "b" in entries, entries
        _, _, data = generate(s, CHAT, "x", "a secret b", True, logprobs=True)
        entries = "".join(t["token"] for e in sse(data) if e["choices"]
            for t in (e["choices"][0].get("logprobs") or {"content": []})["content"] or [])
        assert "sec" not in entries and "b" in entries, entries
        _, _, data = generate(s, CHAT, "x", "a secret b STOP c", stop=["STOP"])
        equal(DIALECTS[CHAT][1](json.loads(data)), ("a [redacted] b ", "stop"))
        _, _, data = generate(s, CHAT, "x", "a secret b", n=3)
        equal([c["message"]["content"] for c in json.loads(data)["choices"]], ["a [redacted] b"] * 3)
        _, _, data = generate(s, CHAT, "x", "<think>a secret</think>no secret")
        assert "secret" not in data.decode(), data
        equal(s.call("DELETE", PATH)[0], 200)
        _, _, data = generate(s, CHAT, "x", "a secret b")
        equal(DIALECTS[CHAT][1](json.loads(data)), ("a secret b", "stop"))
        equal(json.loads(data)["usage"]["completion_tokens"], body["usage"]["completion_tokens"])


def test_sets_apply_to_their_models_and_tenants():
    with Guarded() as s:
        s.put("of-demo", models=["demo"], blocklist=["word"])
        s.put("of-acme", tenants=["acme"], blocklist=["secret"])
        acme = s.create(tenant="acme")
        def content(key, text):
            _, _, data = s.request("POST", CHAT, json.dumps({"model": "echo", "max_tokens": 40,
                "messages": messages("x"), "script": script(text)}), **as_key(key))
            return json.loads(data)["choices"][0]["message"]["content"]
        equal(content("user", "a word, a secret"), "a word, a secret")
        equal(content(acme["key"], "a word, a secret"), "a word, a [redacted]")


def test_routes_read_change_and_test_sets():
    def check(backend):
        with tempfile.TemporaryDirectory() as d:
            with Guarded(backend=backend, directory=d) as s:
                first = s.put(blocklist=["a"], models=["demo"], tenants=["t"])
                equal([first["object"], first["name"], first["blocklist"], first["apply_to"]],
                    ["guardrail", "default", ["a"], ["prompt", "output"]])
                for i in range(4):
                    s.put(f"set-{i}", detectors=["iban"], action="log")
                _, _, page = s.call("GET", PATH + "?limit=2")
                equal([x["name"] for x in page["data"]], ["default", "set-0"])
                assert page["has_more"] and page["last_id"] == "set-0", page
                equal(s.call("GET", PATH + "?limit=501")[0], 400)
                status, head, one = s.call("GET", PATH + "/set-1")
                equal((status, head["etag"]), (200, '"%d"' % one["version"]))
                status, _, problem = s.call("PUT", PATH + "/set-1", {"action": "log"},
                    **{"If-Match": '"1"'})
                equal(status, 412, problem)
                equal(s.call("PUT", PATH + "/set-1", {"action": "log"}, **{"If-Match": head["etag"]})[0],
                    200)
                for body, param in (({"action": "log", "blocklist": ["x", 1]}, "blocklist[1]"),
                        ({"action": "log", "patterns": ["("]}, "patterns[0]"), ({}, "action"),
                        ({"action": "log", "blocklist": ["x" * 300]}, "blocklist[0]")):
                    status, head, problem = s.call("PUT", PATH, body)
                    equal((status, problem["param"]), (400, param), problem)
                    equal(head["content-type"], "application/problem+json")
                equal(s.call("DELETE", PATH + "/set-3")[0], 200)
                equal(s.call("DELETE", PATH + "/set-3")[0], 404)
                equal(s.request("GET", PATH, None, **USER)[0], 403)
                s.put("t", blocklist=["Secret"], whole_words=True)
                _, _, result = s.call("POST", PATH + "/test", {"text": "my SECRET, secrets"})
                equal(result["text"], "my [redacted], secrets")
                equal(result["hits"], [{"set": "t", "entry": "word[0]", "action": "redact",
                    "start": 3, "end": 9}])
                equal(s.call("POST", PATH + "/test", {"text": 1})[0], 400)
                _, _, before = s.call("GET", PATH)
            with Guarded(backend=backend, directory=d) as s:
                equal(s.call("GET", PATH)[2], before)
                equal(s.call("POST", PATH + "/test", {"text": "secret"})[2]["text"], "[redacted]")
    for backend in "ini", "sqlite":
        check(backend)


def test_audit_log_and_metrics_have_the_hits_without_the_text():
    with tempfile.TemporaryDirectory() as d:
        log = os.path.join(d, "audit.log")
        with Guarded(more=("--audit-log", log)) as s:
            s.put("cards", detectors=["card"])
            s.put("names", action="block", blocklist=["zanzibar"])
            generate(s, CHAT, "card 4111 1111 1111 1111", "fine")
            equal(generate(s, CHAT, "go to Zanzibar", "fine")[0], 400)
            generate(s, CHAT, "x", "from zanzibar")
            _, _, metrics = s.get("/metrics")
            for line in ('inferflux_guardrail_hits_total{action="redact",place="prompt"} ',
                    'inferflux_guardrail_hits_total{action="block",place="output"} 1',
                    "inferflux_guardrail_blocked_requests_total 2"):
                assert line in metrics.decode(), line
        with open(log) as f:
            entries = [json.loads(line) for line in f]
        found = [e.get("guardrails") for e in entries if "guardrails" in e]
        equal(found, [["cards/card redact prompt"], ["names/word[0] block prompt"],
            ["names/word[0] block output"]])
        equal([e["reason"] for e in entries if e.get("event") == "refused"], ["CONTENT"])
        without_changes = [e for e in entries if e.get("event") != "change"]
        assert "anzibar" not in json.dumps(without_changes)


def test_a_blocked_prompt_counts_for_the_rate_limit():
    with Guarded() as s:
        s.put(action="block", blocklist=["forbidden"])
        key = s.create(limits={"requests_per_minute": 1})
        body = json.dumps({"model": "echo", "messages": messages("forbidden"), "script": {"text": "y"}})
        equal(s.request("POST", CHAT, body, **as_key(key["key"]))[0], 400)
        equal(s.request("POST", CHAT, body, **as_key(key["key"]))[0], 429)


def test_inferctl_changes_and_tests_sets():
    with Guarded() as s, tempfile.TemporaryDirectory() as d:
        def ctl(*arguments, code=0):
            done = subprocess.run([program("inferctl"), "--url", s.url, "--api-key", "boss", "admin", "guardrails",
                *arguments], capture_output=True, text=True)
            equal(done.returncode, code, done.stderr)
            return done.stdout
        path = os.path.join(d, "set.json")
        with open(path, "w") as f:
            json.dump({"action": "redact", "blocklist": ["secret"]}, f)
        ctl("put", "mine", path)
        equal(json.loads(ctl("get", "mine"))["blocklist"], ["secret"])
        assert "mine" in ctl("ls")
        equal(json.loads(ctl("test", "a secret"))["text"], "a [redacted]")
        ctl("rm", "mine")
        ctl("get", "mine", code=1)
        ctl("put", "mine", code=2)


if __name__ == "__main__":
    run(globals())
