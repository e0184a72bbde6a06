#!/usr/bin/env python3
"""Constrained output over HTTP: every field of every dialect gives output that satisfies the
constraint; errors have the field and the place; /v1/grammar/check."""
import http.client
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))

from harness import Server, equal, run

CHAT, CHECK = "/v1/chat/completions", "/v1/grammar/check"
HI = [{"role": "user", "content": "Hi"}]
QUIET = {"enable_thinking": False}
REGEX = "(ab|c[de]){2,6}"
CHOICE = ["left", "right", "left or right"]


def send(server, path, status=200, **body):
    got, _, text = server.request("POST", path, json.dumps(body))
    equal(got, status, text)
    return text


def post(server, path, status=200, **body):
    return json.loads(send(server, path, status, **body))


def frames(text):
    return [json.loads(line[6:]) for line in text.decode().split("\n")
        if line.startswith("data: {")]


def chat(server, **body):
    return post(server, CHAT, **{"messages": HI, "max_tokens": 60, "seed": 7, **body})["choices"]


def only(server, **body):
    choice, = chat(server, **body)
    return choice["message"]["content"], choice["finish_reason"], choice["constraint"]


def refusal(server, path=CHAT, **body):
    """The message and the field of a 400."""
    error = post(server, path, 400, **{"messages": HI, **body})["error"]
    return error["message"], error["param"]


BYTE = "the byte at this offset is not permitted"
SHORT = "the text ends before it is complete"


def verdict(server, **body):
    got = post(server, CHECK, **body)
    assert got.pop("compile_us") >= 0 and got.pop("mask_us_max") >= 0, got
    return got


# ---- fields of the dialects

OPENAI = [("regex", {"response_format": {"type": "regex", "regex": REGEX}}),
    ("regex", {"structured_outputs": {"regex": REGEX}}),
    ("regex", {"guided_regex": REGEX}), ("regex", {"regex": REGEX}),
    ("choice", {"response_format": {"type": "choice", "choice": CHOICE}}),
    ("choice", {"structured_outputs": {"choice": CHOICE}}),
    ("choice", {"guided_choice": CHOICE})]


def satisfies(kind, text):
    return re.fullmatch(REGEX, text) if kind == "regex" else text in CHOICE


def test_openai_fields():
    with Server() as s:
        for kind, fields in OPENAI:
            text, finish, constraint = only(s, **fields)
            assert satisfies(kind, text), (fields, text)
            equal((finish, constraint), ("stop", {"kind": kind, "complete": True}))
            choice, = post(s, "/v1/completions", prompt="A", max_tokens=60, **fields)["choices"]
            assert satisfies(kind, choice["text"]), choice
            equal(choice["constraint"], {"kind": kind, "complete": True})


def test_responses_format():
    with Server() as s:
        body = {"input": "Hi", "text": {"format": {"type": "regex", "regex": REGEX}}, "seed": 3}
        got = post(s, "/v1/responses", **body)
        text = got["output"][-1]["content"][0]["text"]
        assert satisfies("regex", text), text
        equal((got["status"], got["constraint"]), ("completed", {"kind": "regex", "complete": True}))
        last = frames(send(s, "/v1/responses", stream=True, **body))[-1]
        equal(last["type"], "response.completed")
        equal(last["response"]["output"][-1]["content"][0]["text"], text)
        equal(last["response"]["constraint"], {"kind": "regex", "complete": True})


GBNF = 'root ::= "(" item ("," item){0,2} ")"\nitem ::= [a-c]{1,3} | "(" [a-c] ")"'
NESTED = r"\(([a-c(),])*\)"


def test_grammars():
    with Server() as s:
        more = {"max_tokens": 400, **QUIET}
        for fields in ({"response_format": {"type": "grammar", "grammar": GBNF}}, {"ebnf": GBNF},
                {"structured_outputs": {"grammar": GBNF}}, {"guided_grammar": GBNF}, {"grammar": GBNF}):
            text, finish, constraint = only(s, **fields, **more)
            assert re.fullmatch(NESTED, text) and finish == "stop", (fields, text)
            equal(constraint, {"kind": "gbnf", "complete": True})
            assert verdict(s, gbnf=GBNF, text=text)["accepted"]
        native = {"prompt": "A", "n_predict": 400, "seed": 1, "grammar": GBNF}
        got = post(s, "/completion", **native)
        assert re.fullmatch(NESTED, got["content"]), got
        equal((got["stop_type"], got["constraint"]), ("eos", {"kind": "gbnf", "complete": True}))
        last = frames(send(s, "/completion", stream=True, **native))[-1]
        equal(last["constraint"], {"kind": "gbnf", "complete": True})
        text = json.loads(send(s, "/completion", **native))["content"]
        equal("".join(f["content"] for f in frames(send(s, "/completion", stream=True, **native))), text)
        equal(verdict(s, gbnf=GBNF, text="(a,(b),c"), {"accepted": False, "at": 8, "reason": SHORT})
        equal(verdict(s, gbnf=GBNF, text="(a;b)"), {"accepted": False, "at": 2, "reason": BYTE})
        message, field = refusal(s, ebnf="root ::= missing")
        equal(field, "ebnf")
        assert message.startswith("ebnf: ") and "missing" in message, message


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 99},
    "kind": {"enum": ["left", "right"]}, "list": {"type": "array", "items": {"type": "boolean"},
    "maxItems": 3}}, "required": ["n", "kind", "list"], "additionalProperties": False}
NAMED = {"name": "thing", "schema": SCHEMA}


def check_object(text):
    got = json.loads(text)
    equal(list(got), ["n", "kind", "list"])
    assert 3 <= got["n"] <= 99 and got["kind"] in ("left", "right") and len(got["list"]) <= 3, got
    assert all(isinstance(v, bool) for v in got["list"]), got


def has_schemas(s):
    status, _, text = s.request("POST", CHECK, json.dumps({"schema": {}, "text": "1"}))
    if status == 400:
        print("     skipped: this build compiles no JSON Schema:", json.loads(text)["error"]["message"])
    return status == 200


def test_json_schemas():
    with Server() as s:
        if not has_schemas(s):
            return
        more = {"max_tokens": 1000, **QUIET}
        for fields in ({"response_format": {"type": "json_schema", "json_schema": NAMED}},
                {"response_format": {"type": "json_object", "schema": SCHEMA}},
                {"structured_outputs": {"json": SCHEMA}}, {"guided_json": json.dumps(SCHEMA)},
                {"json_schema": SCHEMA}, {"json_schema": SCHEMA, "x_constraint": {"whitespace": "compact"}}):
            text, finish, constraint = only(s, **fields, **more)
            check_object(text)
            equal((finish, constraint), ("stop", {"kind": "json_schema", "complete": True}))
            assert "x_constraint" not in fields or not re.search(r"\s", text), text
        text, _, constraint = only(s, response_format={"type": "json_object"}, stop=["}"], **more)
        assert text.lstrip().startswith("{") and not constraint["complete"], text
        got = post(s, "/v1/responses", input="Hi", reasoning={"effort": "none"}, max_output_tokens=1000,
            text={"format": {"type": "json_schema", **NAMED}})
        check_object(got["output"][-1]["content"][0]["text"])
        for name in ("output_config", "output_format"):
            form = {"type": "json_schema", "schema": SCHEMA}
            body = {"messages": HI, "max_tokens": 1000, "thinking": {"type": "disabled"},
                name: {"format": form} if name == "output_config" else form}
            got = post(s, "/v1/messages", **body)
            check_object(got["content"][-1]["text"])
            equal((got["stop_reason"], got["constraint"]["complete"]), ("end_turn", True))
            end = [f for f in frames(send(s, "/v1/messages", stream=True, **body))
                if f["type"] == "message_delta"][0]["delta"]
            equal((end["stop_reason"], end["constraint"]["complete"]), ("end_turn", True))
        got = post(s, "/api/chat", messages=HI, format=SCHEMA, stream=False, think=False)
        check_object(got["message"]["content"])
        got = post(s, "/api/generate", prompt="Hi", format=SCHEMA, stream=False, think=False)
        check_object(got["response"])
        equal(got["constraint"], {"kind": "json_schema", "complete": True})
        check_object(post(s, "/completion", prompt="A", n_predict=1000, json_schema=SCHEMA)["content"])


def test_schema_errors_have_a_pointer():
    with Server() as s:
        if not has_schemas(s):
            return
        bad = {"type": "object", "properties": {"a": {"type": "string", "pattern": "a(?<=b)"}}}
        for fields, where in (({"response_format": {"type": "json_schema", "json_schema":
                {"name": "x", "schema": bad}}}, "response_format.json_schema.schema"),
                ({"guided_json": bad}, "guided_json"),
                ({"structured_outputs": {"json": bad}}, "structured_outputs.json")):
            message, field = refusal(s, **fields)
            equal(field, where)
            assert message.startswith(f"{where}#/properties/a/pattern: "), message
        yes = {"accepted": True, "at": None, "reason": None}
        thing = {"list": [True], "kind": "left", "n": 5.0}
        equal(verdict(s, schema=SCHEMA, instance=thing), yes)
        equal(verdict(s, schema=SCHEMA, instance={**thing, "n": 100})["accepted"], False)
        equal(verdict(s, schema=SCHEMA, text=json.dumps({**thing, "n": 5}))["accepted"], False)
        equal(verdict(s, schema=SCHEMA, text=json.dumps({**thing, "n": 5}), any_order=True), yes)


# ---- whole and streamed, several choices

def test_stream_equals_whole():
    with Server() as s:
        for n in (1, 3):
            body = {"regex": REGEX, "n": n, "temperature": 1.2, "seed": 5}
            whole = [c["message"]["content"] for c in chat(s, **body)]
            texts, ends = [""] * n, {}
            for frame in frames(send(s, CHAT, messages=HI, max_tokens=60, stream=True, **body)):
                for choice in frame["choices"]:
                    texts[choice["index"]] += choice["delta"].get("content", "")
                    if choice["finish_reason"]:
                        ends[choice["index"]] = choice["constraint"]
            equal(texts, whole)
            equal(ends, {i: {"kind": "regex", "complete": True} for i in range(n)})
            for text in whole:
                assert satisfies("regex", text), text


def test_sampling_fields_apply():
    with Server() as s:
        for more in ({"min_tokens": 50}, {"frequency_penalty": 2}, {"repetition_penalty": 1.5},
                {"temperature": 2, "top_p": 0.3}, {"temperature": 0}, {"ignore_eos": True},
                {"logit_bias": {str(i): 100 for i in range(1000)}}, {"min_p": 0.5, "top_k": 2}):
            text, finish, constraint = only(s, regex=REGEX, **more)
            assert satisfies("regex", text), (more, text)
            equal((finish, constraint["complete"]), ("stop", True))
        equal(only(s, regex=REGEX), only(s, regex=REGEX))
        all_texts = {only(s, regex=REGEX, seed=i, temperature=1.5)[0] for i in range(6)}
        assert len(all_texts) > 1, all_texts


# ---- ends

def test_partial_output_is_not_complete():
    with Server() as s:
        text, finish, constraint = only(s, regex="[ab]{100}", max_tokens=5, **QUIET)
        assert finish == "length" and re.fullmatch("[ab]{1,99}", text)
        equal(constraint, {"kind": "regex", "complete": False})
        text, finish, constraint = only(s, regex="a{20}b", stop=["aaa"], **QUIET)
        equal((text, finish, constraint), ("", "stop", {"kind": "regex", "complete": False}))
        last = frames(send(s, CHAT, messages=HI, regex="[ab]{100}", max_tokens=5, stream=True))[-1]
        equal(last["choices"][0]["constraint"], {"kind": "regex", "complete": False})
        text = s.get("/metrics")[2].decode()
        for cause, n in (("length", 2), ("stop", 1)):
            assert f'inferflux_constraint_ends_total{{kind="regex",cause="{cause}"}} {n}\n' in text
        assert "inferflux_constraint_compile_seconds_count 3\n" in text
        assert re.search(r"inferflux_constraint_masks_total [1-9]", text)


CLOSE = {"x_constraint": {"close_at_limit": True}}
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 300},
    "tags": {"type": "array", "items": {"type": "string"}}, "age": {"type": "integer"}},
    "required": ["name", "age"], "additionalProperties": False}
OF_PERSON = {"type": "json_schema", "json_schema": {"name": "p", "schema": PERSON}}


def is_person(text):
    value = json.loads(text)
    assert set(value) <= {"name", "tags", "age"} and type(value["age"]) is int, value
    assert isinstance(value["name"], str), value


def test_output_is_completed_at_the_limit():
    with Server() as s:
        for limit in (24, 30, 45):
            for kind, fields in (("json_schema", {"response_format": OF_PERSON}),
                    ("regex", {"regex": "([a-z]+, )*[a-z]+[.]"})):
                texts = []
                for choice in chat(s, n=3, temperature=1.3, max_tokens=limit, **CLOSE, **QUIET,
                        **fields):
                    equal((choice["finish_reason"], choice["constraint"]),
                        ("stop", {"kind": kind, "complete": True}))
                    texts.append(choice["message"]["content"])
                    is_person(texts[-1]) if kind == "json_schema" else re.fullmatch(
                        "([a-z]+, )*[a-z]+[.]", texts[-1])
                got = [""] * 3
                for frame in frames(send(s, CHAT, messages=HI, seed=7, n=3, temperature=1.3,
                        max_tokens=limit, stream=True, **CLOSE, **QUIET, **fields)):
                    for choice in frame["choices"]:
                        got[choice["index"]] += choice["delta"].get("content", "")
                equal(got, texts)
        # reasoning ends in time
        for seed in range(4):
            choice, = chat(s, response_format=OF_PERSON, max_tokens=60, seed=seed, **CLOSE)
            equal(choice["finish_reason"], "stop")
            is_person(choice["message"]["content"])
        # a forced call
        choice, = chat(s, tools=TOOLS, tool_choice="required", max_tokens=60, **CLOSE, **QUIET)
        equal((choice["finish_reason"], choice["constraint"]),
            ("tool_calls", {"kind": "tools", "complete": True}))
        for call in choice["message"]["tool_calls"]:
            check_call(call["function"]["name"], call["function"]["arguments"])


def test_output_is_completed_at_the_limit_in_every_dialect():
    with Server() as s:
        choice, = post(s, "/v1/completions", prompt="A", max_tokens=30, response_format=OF_PERSON,
            **CLOSE)["choices"]
        is_person(choice["text"])
        got = post(s, "/v1/responses", input="Hi", max_output_tokens=30, **CLOSE, **QUIET,
            text={"format": {"type": "json_schema", "name": "p", "schema": PERSON}})
        is_person(got["output"][-1]["content"][0]["text"])
        equal((got["status"], got["constraint"]["complete"]), ("completed", True))
        got = post(s, "/v1/messages", messages=HI, max_tokens=30, thinking={"type": "disabled"},
            output_config={"format": {"type": "json_schema", "schema": PERSON}}, **CLOSE)
        is_person(got["content"][0]["text"])
        equal((got["stop_reason"], got["constraint"]["complete"]), ("end_turn", True))
        got = post(s, "/api/chat", messages=HI, options={"num_predict": 30}, format=PERSON,
            stream=False, think=False, **CLOSE)
        is_person(got["message"]["content"])
        equal((got["done_reason"], got["constraint"]["complete"]), ("stop", True))
        got = post(s, "/api/generate", prompt="Hi", options={"num_predict": 30}, format=PERSON,
            stream=False, think=False, **CLOSE)
        is_person(got["response"])
        got = post(s, "/completion", prompt="Hi", n_predict=30, json_schema=PERSON, **CLOSE)
        is_person(got["content"])
        equal(got["stop_type"], "eos")


def test_limits_below_the_shortest_output_are_refused():
    with Server() as s:
        field = "x_constraint.close_at_limit"
        message, name = refusal(s, regex="[ab]{100}", max_tokens=5, **CLOSE, **QUIET)
        equal(name, field)
        assert "at most 5 tokens" in message, message
        equal(refusal(s, max_tokens=5, **CLOSE)[1], field)
        equal(refusal(s, max_tokens=50, tools=TOOLS, **CLOSE)[1], field)


def ambiguous(prefix, n=2500):
    """A grammar whose position after the prefix exceeds the bound on items of a position."""
    rules = "\n".join(f'a{i} ::= "q" a{i} "w" | "{i}"' for i in range(n))
    return f"root ::= {prefix} ( {' | '.join(f'a{i}' for i in range(n))} )\n{rules}\n"


def test_choice_that_is_not_met_does_not_fail_the_others():
    unmet = {"kind": "gbnf", "complete": False, "error": "constraint_not_met"}
    fields = {"messages": HI, "max_tokens": 90, "n": 8, "temperature": 2,
        "chat_template_kwargs": QUIET, "grammar": ambiguous('"left" | "b" [xyz]{40}')}
    with Server("--max-constraint", "1048576") as s:
        for seed in range(40):
            if len({c["constraint"].get("error") for c in chat(s, seed=seed, **fields)}) == 2:
                break
        body = chat(s, seed=seed, **fields)
        for choice in body:
            if choice["constraint"] == unmet:
                equal(choice["finish_reason"], "length")
                assert re.match("b[xyz]{30,40}$", choice["message"]["content"]), choice
            else:
                equal(choice["constraint"]["complete"], choice["message"]["content"] == "left")
        sent = frames(send(s, CHAT, **fields, seed=seed, stream=True))
        assert not any("error" in f for f in sent)
        ends = {c["index"]: c["constraint"] for f in sent for c in f["choices"] if "constraint" in c}
        equal(ends, {c["index"]: c["constraint"] for c in body})


def test_request_fails_if_no_choice_is_met():
    with Server("--max-constraint", "1048576") as s:
        equal(refusal(s, grammar=ambiguous(""))[1], "grammar")
        fields = {"messages": HI, "grammar": ambiguous('"b"')}
        for n in 1, 3:
            error = post(s, CHAT, 422, n=n, **fields)["error"]
            equal(error["code"], "constraint_not_met")
            assert "Earley items" in error["message"], error
            *_, last = frames(send(s, CHAT, stream=True, n=n, **fields))
            equal(last["error"]["code"], "constraint_not_met")


ENDLESS = "(ab|c[de])*x"
LONG = {"messages": HI, "max_tokens": 900, "chat_template_kwargs": QUIET}
CANCELLED = [
    (CHAT, {**LONG, "regex": ENDLESS, "stream": True}, "regex"),
    (CHAT, {**LONG, "regex": ENDLESS}, "regex"),
    ("/v1/completions", {"prompt": "A", "max_tokens": 900, "regex": ENDLESS, "stream": True}, "regex"),
    ("/v1/responses", {"input": "A", "text": {"format": {"type": "json_object"}}, "stream": True},
        "json_object"),
    ("/v1/messages", {**LONG, "output_config": {"format": {"type": "json_schema",
        "schema": {"type": "array"}}}, "stream": True}, "json_schema"),
    ("/api/chat", {"messages": HI, "format": "json"}, "json_object"),
    ("/completion", {"prompt": "A", "grammar": 'root ::= "a"* "b"', "stream": True}, "gbnf")]


def begin(server, path, body, name):
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    c.request("POST", path, json.dumps(body), {"X-Request-Id": name,
        "Content-Type": "application/json", "anthropic-version": "2023-06-01"})
    return c


def until_queued(server, n):
    while f"\ninferflux_scheduler_queue_depth {n}".encode() not in server.get("/metrics")[2]:
        pass


def cancel(server, name):
    equal(server.request("DELETE", f"/v1/requests/{name}", None)[0], 200)


def test_cancelled_output_is_not_complete():
    with Server("--parallel", "1") as s:
        first = begin(s, CHAT, {**LONG, "n": 16, "regex": ENDLESS, "stream": True}, "first")
        stream = first.getresponse()
        assert stream.read(6) == b"data: "
        for path, body, kind in CANCELLED:  # they wait for the first request
            c = begin(s, path, body, "mine")
            until_queued(s, 1)
            cancel(s, "mine")
            until_queued(s, 0)
            text = c.getresponse().read()
            want = json.dumps({"kind": kind, "complete": False}, separators=(",", ":")).encode()
            assert b'"constraint":' + want in text, (path, text)
            c.close()
        cancel(s, "first")
        *_, last = frames(b"data: " + stream.read())
        equal((last["error"]["code"], last["constraint"]),
            ("cancelled", {"kind": "regex", "complete": False}))
        first.close()


def test_reasoning_precedes_the_constrained_output():
    with Server() as s:
        seen = 0
        for seed in range(8):
            message = chat(s, regex=REGEX, seed=seed, max_tokens=2000)[0]["message"]
            seen += "reasoning_content" in message
            assert satisfies("regex", message["content"]), message
        assert seen, "the model did not reason"
        equal(only(s, regex="ab{3}c", **QUIET)[0], "abbbc")


def test_prefix_of_the_assistant_is_read_first():
    with Server() as s:
        def with_prefix(prefix):
            return {"messages": HI + [{"role": "assistant", "content": prefix}], "regex": "ab{3}c",
                "continue_final_message": True, "add_generation_prompt": False}
        equal(only(s, **with_prefix("ab"))[0], "bbc")
        message, field = refusal(s, **with_prefix("abx"))
        equal(field, "messages")
        equal(message, "'regex' does not permit the last message, which the model continues: "
            "the byte at offset 2 is not permitted.")


def test_compiled_constraints_are_cached():
    def counts(s):
        text = s.get("/metrics")[2].decode()
        return [int(re.search(rf"inferflux_constraint_cache_{name} (\d+)", text)[1])
            for name in ("hits_total", "misses_total", "entries")]
    with Server() as s:
        first = only(s, regex=REGEX)
        equal(counts(s), [0, 1, 1])
        equal(only(s, regex=REGEX), first)
        only(s, guided_choice=CHOICE)
        equal(counts(s), [1, 2, 2])
        refusal(s, regex="(")
        equal(counts(s)[2], 2)
    with Server("--constraint-cache", "0") as s:
        equal(only(s, regex=REGEX), first)
        equal(only(s, regex=REGEX), first)
        equal(counts(s), [0, 0, 0])


# ---- errors

# ---- tool calls


def function(name, schema=None, **more):
    return {"type": "function", "function": {"name": name, "parameters": schema, **more}}


PLACE = {"type": "object", "properties": {"city": {"type": "string", "pattern": "^[a-z]{2,5}$"},
    "days": {"enum": [1, 2]}}, "required": ["city", "days"], "additionalProperties": False}
TOOLS = [function("place", PLACE, strict=True), function("free")]


def check_call(name, arguments):
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    assert name in ("place", "free"), name
    if name == "place":
        equal(sorted(arguments), ["city", "days"])
        assert re.fullmatch("[a-z]{2,5}", arguments["city"]) and arguments["days"] in (1, 2), arguments


def calls_of(server, **body):
    choice, = chat(server, **{"max_tokens": 400, "tools": TOOLS, **QUIET, **body})
    if choice["finish_reason"] == "length":
        return []
    equal(choice["constraint"], {"kind": "tools", "complete": True})
    found = [c["function"] for c in choice["message"].get("tool_calls") or []]
    for call in found:
        check_call(call["name"], call["arguments"])
    return [c["name"] for c in found]


def test_required_calls_satisfy_strict_schemas():
    named = {"type": "function", "function": {"name": "place"}}
    only_place = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}
    with Server() as s:
        for seed in range(6):
            equal(calls_of(s, tool_choice=named, seed=seed), ["place"])
            assert set(calls_of(s, tool_choice=only_place, seed=seed)) <= {"place"}
            assert len(calls_of(s, tool_choice="required", parallel_tool_calls=False, seed=seed)) <= 1
        thinking = calls_of(s, tool_choice=named, seed=3, enable_thinking=True, max_tokens=2000)
        assert thinking in ([], ["place"])
        text = send(s, CHAT, messages=HI, tools=TOOLS, tool_choice=named, stream=True, seed=1,
            max_tokens=400, **QUIET)
        deltas = [f["choices"][0]["delta"] for f in frames(text) if f["choices"]]
        parts = [c["function"] for d in deltas for c in d.get("tool_calls") or []]
        check_call(parts[0]["name"], "".join(p.get("arguments") or "" for p in parts))


def test_calls_are_required_in_every_dialect():
    tool = {"type": "function", "name": "place", "parameters": PLACE, "strict": True}
    with Server() as s:
        got = post(s, "/v1/responses", input="Hi", tools=[tool], tool_choice="required",
            parallel_tool_calls=False, max_output_tokens=400, **QUIET)
        call, = [i for i in got["output"] if i["type"] == "function_call"]
        check_call(call["name"], call["arguments"])
        got = post(s, "/v1/messages", messages=HI, max_tokens=400, thinking={"type": "disabled"},
            tools=[{"name": "place", "input_schema": PLACE, "strict": True}],
            tool_choice={"type": "any", "disable_parallel_tool_use": True})
        call, = [b for b in got["content"] if b["type"] == "tool_use"]
        check_call(call["name"], call["input"])


def masks(server):
    text = server.request("GET", "/metrics", "")[2].decode()
    return int(re.search(r"^inferflux_constraint_masks_total (\d+)", text, re.M)[1])


def calls_in_text(server, strict, **more):
    """(number of calls, number of calls with valid arguments): the model may call."""
    short = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 3}, "days":
        {"type": "integer", "minimum": 7, "maximum": 9}}, "required": ["city", "days"],
        "additionalProperties": False}
    asks = [{"role": "user", "content": "What is the weather in Rome?"}]
    n = n_valid = 0
    for seed in range(6):
        choice, = chat(server, messages=asks, seed=seed, max_tokens=150,
            tools=[function("get_weather", short, strict=strict)], **more)
        assert "constraint" not in choice, choice
        for call in choice["message"].get("tool_calls") or []:
            args = json.loads(call["function"]["arguments"])
            n += 1
            n_valid += sorted(args) == ["city", "days"] and len(args["city"]) <= 3 and \
                args["days"] in (7, 8, 9)
    return n, n_valid


def test_calls_in_text_are_enforced():
    for level, enforced in (("asked", False), ("names", False), ("all", True)):
        with Server("--tool-strictness=" + level) as s:
            n, n_valid = calls_in_text(s, True)
            assert n and n == n_valid, (n, n_valid)
            n, n_valid = calls_in_text(s, True, stop=["zzz"], logprobs=True, n=1)
            assert n and n == n_valid, (n, n_valid)
            before = masks(s)
            n, n_valid = calls_in_text(s, False)
            equal(n > 0 and n == n_valid, enforced)
            equal(masks(s) > before, level != "asked")


def test_tools_that_are_not_strict_are_never_refused():
    bad = {"type": "object", "properties": {"a": {"type": "string", "pattern": "a(?<=b)"}}}
    for level in ("names", "all"):
        with Server("--tool-strictness=" + level) as s:
            for choice in ("auto", "required"):
                chat(s, tools=[function("bad", bad), function("free")], tool_choice=choice,
                    max_tokens=9)
            message, field = refusal(s, tools=[function("bad", bad, strict=True)])
            equal(field, "tools")
            assert message.startswith("tools: tool 'bad': #/properties/a/pattern: look"), message


def test_the_output_is_a_call_or_a_value_of_the_format():
    with Server() as s:
        for seed in range(12):
            choice, = chat(s, tools=TOOLS, regex="(ab|cd){1,3}", seed=seed, max_tokens=400, **QUIET)
            for c in choice["message"].get("tool_calls") or []:
                check_call(c["function"]["name"], c["function"]["arguments"])
            text = choice["message"]["content"]
            assert not text or re.fullmatch("(ab|cd){1,3}", text), choice
        equal(only(s, tools=TOOLS, tool_choice="none", regex="ab", **QUIET)[0], "ab")


def test_only_schemas_of_strict_tools_are_compiled():
    bad = {"type": "object", "properties": {"a": {"type": "string", "pattern": "a(?<=b)"}}}
    with Server() as s:
        message, field = refusal(s, tools=[function("bad", bad, strict=True)], tool_choice="required")
        equal(field, "tools")
        assert message.startswith("tools: tool 'bad': #/properties/a/pattern: lookbehind"), message
        for more in ({"strict": False}, {}):
            chat(s, tools=[function("bad", bad, **more)], tool_choice="required", max_tokens=9)


def test_errors_name_field_and_place():
    with Server() as s:
        equal(refusal(s, guided_regex="a(?<=b)"), ("guided_regex: pattern: lookbehinds are not "
            "supported: lookbehind at offset 1", "guided_regex"))
        message, field = refusal(s, response_format={"type": "regex", "regex": "("})
        equal(field, "response_format.regex")
        assert message.startswith("response_format.regex: "), message
        message, field = refusal(s, regex="a" * 20000)
        assert field == "regex" and "16384" in message, message
        equal(refusal(s, regex="a", guided_regex="b"), ("'regex' and 'guided_regex' exclude each "
            "other: a request has at most one constraint.", "regex"))
        error = post(s, "/v1/messages", 400, messages=HI, max_tokens=5,
            output_config={"format": {"type": "json_schema", "schema": {"type": 7}}})["error"]
        assert error["message"].startswith("output_config.format.schema"), error
        error = post(s, "/api/chat", 400, messages=HI, format={"type": 7})["error"]
        assert error.startswith("format"), error
        error = post(s, "/completion", 400, prompt="a", json_schema={"type": 7})["error"]
        assert error["message"].startswith("json_schema"), error


def test_hostile_constraints_are_answered():
    hostile = ["(" * 8000, "(a{0,1000}){0,1000}" * 20, "(.*a){30}", "((a{0,1000}){0,1000}){0,1000}",
        "[" * 9000, "a|" * 8000, "(a?){10000}", "\\", "(?=" * 500 + ")" * 500, "[^\\0-\\uffff]",
        "a{1000000000}", "\ud800"]
    with Server() as s:
        for pattern in hostile:
            status, _, text = s.request("POST", CHAT, json.dumps({"messages": HI, "regex": pattern,
                "max_tokens": 3}))
            assert status in (200, 400), (pattern[:40], status, text)
            status, _, text = s.request("POST", CHECK, json.dumps({"regex": pattern, "text": "a" * 99}))
            assert status in (200, 400), (pattern[:40], status, text)
        for choice in ([""], ["a"] * 3000, ["x" * 9000], ["\0", "\n"]):
            status, _, text = s.request("POST", CHAT, json.dumps({"messages": HI, "max_tokens": 3,
                "guided_choice": choice}))
            assert status in (200, 400), (choice[:2], status, text)
        equal(s.get("/healthz")[0], 200)


def test_a_client_that_leaves_stops_its_request():
    with Server() as s:
        for _ in range(20):
            c = s.connect()
            body = json.dumps({"messages": HI, "regex": "[a-z]{900}", "max_tokens": 900})
            c.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
                f"\r\n{body}".encode())
            c.close()
        assert satisfies("regex", only(s, regex=REGEX)[0])


def test_states_count_against_the_memory_of_requests():
    with Server("--request-memory", "1M") as s:
        status, _, text = s.request("POST", CHAT, json.dumps({"messages": HI, "regex": REGEX,
            "n": 128, "max_tokens": 5}))
        assert status == 413 and b"needs more than" in text, (status, text)
        equal(s.request("POST", CHAT, json.dumps({"messages": HI, "max_tokens": 5}))[0], 200)


# ---- /v1/grammar/check

def test_check_route():
    with Server() as s:
        yes = {"accepted": True, "at": None, "reason": None}
        equal(verdict(s, regex="[a-f]{2,3}é", text="abé"), yes)
        equal(verdict(s, regex="[a-f]{2,3}", text="abx"), {"accepted": False, "at": 2, "reason": BYTE})
        equal(verdict(s, regex="[a-f]{2,3}", text="a"), {"accepted": False, "at": 1, "reason": SHORT})
        equal(verdict(s, choice=["left", "right"], text="right"), yes)
        equal(verdict(s, regex="a*", text="a" * 100000), yes)
        message, field = refusal(s, CHECK, regex="a(?<=b)", text="a")
        equal(field, "regex")
        assert message.startswith("regex: "), message
        assert "16384" in refusal(s, CHECK, regex="a" * 20000, text="a")[0]
        post(s, CHECK, 404, regex="a", text="a", model="nobody")


def test_bound_of_a_constraint_is_an_option():
    with Server("--max-constraint", "100") as s:
        assert "100" in refusal(s, regex="a" * 101)[0]
        equal(only(s, regex="b" * 50, **QUIET)[0], "b" * 50)


if __name__ == "__main__":
    run(globals())
