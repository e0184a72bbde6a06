#!/usr/bin/env python3
"""Tool calls and thinking through /v1/chat/completions: what models of every format say, by a
script model, whole and streamed, in tokens and in characters."""
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))

from harness import ROOT, SHARED, Server, equal, run

CHAT = "/v1/chat/completions"
TOOLS = [{"type": "function", "function": {"name": name, **more}} for name, more in (
    ("get_weather", {"description": "Tells the weather.", "parameters": {"type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}),
    ("now", {}),
    ("note", {"parameters": {"type": "object", "properties": {"text": {"type": "string"}}}}),
    ("plan", {"parameters": {"type": "object", "properties": {"where": {"type": "object"},
        "list": {"type": "array"}, "on": {"type": "boolean"}}}}))]
NAMES = ("one call", "two calls", "no arguments", "unicode and quotes", "text before",
    "text before and after", "text only", "cut off inside an argument", "thinking and a call",
    "thinking, then a call", "thinking, then an answer")


def cases():
    """[(tool, thinking, name, text, content, reasoning, [(name, arguments)], broken)]"""
    with open(os.path.join(ROOT, "tests/golden/parser.txt"), encoding="utf-8") as f:
        blocks = [b for b in f.read().split("\n\n") if b.strip().startswith("case ")]
    for block in blocks:
        head, *lines = block.strip().split("\n")
        tool, thinking, name = re.fullmatch(r"case (\S+) (\S+): (.*)", head).groups()
        said = {"in": "", "content": "", "reasoning": "", "call": [], "broken": 0}
        for line in lines:
            key, _, value = line.partition(": ")
            value = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], value)
            if key == "call":
                said["call"].append((line[6:].split(" ", 1)[0], json.loads(line[6:].split(" ", 1)[1])))
            else:
                said[key] = value
        if name in NAMES and not any(k.split(" ")[0] in ("start", "tools") for k in said):
            yield tool, thinking, name, said


def config(pairs):
    return "models:\n" + "".join(f"""  - id: {tool}-{thinking}
    path: {ROOT}/models/demo.gguf
    backend: script
    tool_parser: {tool}
    thinking_parser: {thinking}
""" for tool, thinking in pairs)


MAIN = config([("hermes_json", "think_tag")])


def ask(server, text, status=200, chunk="all", **more):
    body = {"messages": [{"role": "user", "content": "?"}], "tools": TOOLS,
        "script": {"text": text, "chunk": chunk}, **more}
    got, _, answer = server.request("POST", CHAT, json.dumps(body))
    equal(got, status, answer)
    return answer


def gather(stream):
    """What a client makes of a stream: the message of choice 0, why it ended, usage."""
    m = {"content": "", "reasoning_content": "", "tool_calls": []}
    finish = usage = None
    for i, frame in enumerate(stream.decode().split("\n\n")[:-2]):
        said = json.loads(frame.removeprefix("data: "))
        usage = said.get("usage") or usage
        if not said["choices"]:
            continue
        choice, = said["choices"]
        delta = choice["delta"]
        if i == 0:
            equal(delta, {"role": "assistant", "content": ""})
        for key in ("content", "reasoning_content"):
            m[key] += delta.get(key) or ""
        for call in delta.get("tool_calls", []):
            if "id" in call:
                equal(call["index"], len(m["tool_calls"]))
                assert call["function"]["name"] and call["type"] == "function", call
                equal(call["function"]["arguments"], "")
                m["tool_calls"].append(call)
            else:
                equal(sorted(call), ["function", "index"])
                assert call["function"]["arguments"], call
                m["tool_calls"][call["index"]]["function"]["arguments"] += \
                    call["function"]["arguments"]
        finish = choice["finish_reason"] or finish
    assert stream.endswith(b"data: [DONE]\n\n")
    return m, finish, usage


def calls_of(m):
    return [(c["function"]["name"], json.loads(c["function"]["arguments"]))
        for c in m.get("tool_calls") or []]


def test_every_format_is_understood_in_bodies_and_in_streams():
    todo = list(cases())
    pairs = sorted({(tool, thinking) for tool, thinking, _, _ in todo})
    assert len({tool for tool, _ in pairs}) >= 34, pairs
    n = 0
    with Server(config=config(pairs)) as s:
        for tool, thinking, name, want in todo:
            what = f"{tool} {thinking}: {name}"
            model = {"model": f"{tool}-{thinking}"}
            reason = "tool_calls" if want["call"] else "stop"
            choice, = json.loads(ask(s, want["in"], **model))["choices"]
            m = choice["message"]
            equal(m["content"] or "", want["content"], what)
            equal(m["content"] is None, bool(want["call"]) and not want["content"], what)
            equal(m.get("reasoning_content", ""), want["reasoning"], what)
            equal(m.get("reasoning", ""), want["reasoning"], what)
            equal(calls_of(m), want["call"], what)
            equal(choice["finish_reason"], reason, what)
            for chunk in ("token", "char", "all"):
                told, finish, _ = gather(ask(s, want["in"], stream=True, chunk=chunk, **model))
                equal(told["content"], want["content"], what)
                equal(told["reasoning_content"], want["reasoning"], what)
                equal(finish, reason, what)
                if not want["broken"]:
                    equal(calls_of(told), want["call"], what)
                n += 1
    assert n > 600, n


def test_a_tool_loop_goes_back_into_the_prompt():
    with Server(config=MAIN) as s:
        text = 'Hm.</think>On it.<tool_call>{"name": "get_weather", "arguments": {"city": "Rom"}}</tool_call>'
        m = json.loads(ask(s, "<think>" + text))["choices"][0]["message"]
        equal(m["content"], "On it.")
        equal(m["reasoning_content"], "Hm.")
        call, = m["tool_calls"]
        assert re.fullmatch(r"call_[0-9A-Za-z]{24}", call["id"]), call
        messages = [{"role": "user", "content": "Rom?"}, m, {"role": "tool",
            "tool_call_id": call["id"], "content": [{"type": "text", "text": "sunny"}]}]
        r = json.loads(ask(s, "Sunny.", messages=messages))
        equal(r["choices"][0]["message"]["content"], "Sunny.")
        equal(r["choices"][0]["finish_reason"], "stop")


def test_what_looks_like_a_call_is_text_without_tools():
    text = 'A <tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    with Server(config=MAIN) as s:
        for more in ({"tools": None}, {"tools": []}, {"tool_choice": "none"}):
            choice, = json.loads(ask(s, "<think>x</think>" + text, **more))["choices"]
            equal(choice["message"]["content"], text, more)
            equal(choice["message"]["reasoning"], "x", more)
            equal(choice["finish_reason"], "stop")
        choice, = json.loads(ask(s, "<think>x</think>y", reasoning_format="none"))["choices"]
        equal(choice["message"]["content"], "<think>x</think>y")
        choice, = json.loads(ask(s, "<think>x</think>y", include_reasoning=False))["choices"]
        equal(choice["message"]["content"], "y")
        assert "reasoning" not in choice["message"], choice


def test_one_call_is_enough_where_that_was_said():
    text = "".join(f'<tool_call>{{"name": "note", "arguments": {{"text": "{i}"}}}}</tool_call>'
        for i in range(3)) + "More."
    with Server(config=MAIN) as s:
        for chunk in ("all", "token", "char"):
            m, finish, usage = gather(ask(s, text, parallel_tool_calls=False, stream=True, chunk=chunk,
                stream_options={"include_usage": True}))
            equal(calls_of(m), [("note", {"text": "0"})])
            equal((m["content"], finish), ("", "tool_calls"))
            m, finish, _ = gather(ask(s, text, stream=True, chunk=chunk))
            equal(calls_of(m), [("note", {"text": str(i)}) for i in range(3)])
            equal(m["content"], "More.")


def test_a_choice_is_forced_or_refused():
    named = {"type": "function", "function": {"name": "note"}}
    with Server(config=MAIN + config([("null", "null")])[len("models:\n"):]) as s:
        for chunk in ("all", "token", "char"):
            for stream in (False, True):
                def one(rest, **more):
                    answer = ask(s, rest, chunk=chunk, stream=stream, **more)
                    if stream:
                        m, finish, _ = gather(answer)
                    else:
                        choice, = json.loads(answer)["choices"]
                        m, finish = choice["message"], choice["finish_reason"]
                    return calls_of(m), finish
                # The prompt has begun the call: the model says the rest of it, and no more counts.
                equal(one('{"text": "a"}}\n</tool_call> And?', tool_choice=named),
                    ([("note", {"text": "a"})], "tool_calls"))
                equal(one('plan", "arguments": {"on": true}}\n</tool_call>', tool_choice="required"),
                    ([("plan", {"on": True})], "tool_calls"))
                only = {"type": "allowed_tools", "allowed_tools": {"mode": "required",
                    "tools": [named]}}
                equal(one('{"text": "b"}}', tool_choice=only), ([("note", {"text": "b"})], "tool_calls"))
        # What it says is no call, or not one that may be: an honest error.
        for choice, said in (("required", "I will not."), (named, "nothing"),
                ("required", 'nobody", "arguments": {}}')):
            error = json.loads(ask(s, said, 422, tool_choice=choice))["error"]
            equal(error["param"], "tool_choice")
            frames = ask(s, said, tool_choice=choice, stream=True).decode()
            assert '"error":{' in frames and "[DONE]" not in frames, frames
        text = s.get("/metrics")[2].decode()
        counted = {k: int(re.search(rf"^inferflux_{k} (\d+)$", text, re.M)[1]) for k in
            ("tool_calls_total", "tool_choices_unmet_total")}
        equal(counted, {"tool_calls_total": 18, "tool_choices_unmet_total": 6})
        # Cut off is what it is.
        choice, = json.loads(ask(s, '{"text": "abcdefgh"}}', tool_choice=named,
            max_tokens=2))["choices"]
        equal(choice["finish_reason"], "length")
        # allowed tools: the others are not known to the model, and calls of them are text.
        auto = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named]}}
        m = json.loads(ask(s, '<tool_call>{"name": "plan", "arguments": {}}</tool_call>',
            tool_choice=auto))["choices"][0]
        assert "tool_calls" not in m["message"] and "plan" in m["message"]["content"], m
        equal(m["finish_reason"], "stop")
        # Refused before anything is computed.
        for more in ({"tools": []}, {"tool_choice": {"type": "function", "function": {"name": "x"}}},
                {"model": "null-null"}):
            error = json.loads(ask(s, "", 400, **{"tool_choice": "required", **more}))["error"]
            equal(error["param"], "tool_choice")


def test_the_first_way_of_calling_functions_works():
    functions = [t["function"] for t in TOOLS]
    text = 'Hm<tool_call>{"name": "note", "arguments": {"text": "a"}}</tool_call>'
    with Server(config=MAIN) as s:
        choice, = json.loads(ask(s, text * 2, tools=None, functions=functions))["choices"]
        equal(choice["message"]["function_call"], {"name": "note", "arguments": '{"text": "a"}'})
        equal(choice["finish_reason"], "function_call")
        assert "tool_calls" not in choice["message"]
        frames = ask(s, text, tools=None, functions=functions, stream=True, chunk="char").decode()
        deltas = [json.loads(f[6:])["choices"][0]["delta"].get("function_call", {})
            for f in frames.split("\n\n")[:-2]]
        equal("".join(d.get("arguments", "") for d in deltas), '{"text": "a"}')
        equal([d["name"] for d in deltas if "name" in d], ["note"])
        choice, = json.loads(ask(s, '{"text": "b"}}', tools=None, functions=functions,
            function_call={"name": "note"}))["choices"]
        equal(choice["message"]["function_call"]["arguments"], '{"text": "b"}')


def test_choices_stop_strings_and_counts():
    text = '<think>one two</think>A<tool_call>{"name": "note", "arguments": {"text": "STOP"}}</tool_call>'
    with Server(config=MAIN) as s:
        r = json.loads(ask(s, text, n=3, chunk="token"))
        for choice in r["choices"]:
            equal(calls_of(choice["message"]), [("note", {"text": "STOP"})])
        equal(len({c["message"]["tool_calls"][0]["id"] for c in r["choices"]}), 3)
        thoughts = r["usage"]["completion_tokens_details"]["reasoning_tokens"]
        assert 0 < thoughts < r["usage"]["completion_tokens"], r["usage"]
        # Stop strings act on what is said, wherever it stands: the call is cut, and is none.
        choice, = json.loads(ask(s, text, stop="STOP", chunk="token"))["choices"]
        equal((choice["finish_reason"], choice["stop_reason"]), ("stop", "STOP"))
        equal(choice["message"]["content"], 'A{"name": "note", "arguments": {"text": "')
        # Log-probabilities of all tokens, in order, whatever they became.
        whole = json.loads(ask(s, text, logprobs=True, chunk="token"))["choices"][0]["logprobs"]
        streamed = [t for f in ask(s, text, logprobs=True, stream=True, chunk="token").decode()
            .split("\n\n")[:-2] for t in (json.loads(f[6:])["choices"][0]["logprobs"] or
                {"content": []})["content"]]
        equal(streamed, whole["content"])
        equal("".join(t["token"] for t in streamed), text)


def test_ids_are_those_that_a_template_wants_back():
    files = {"mistral": "mistralai-Mistral-Nemo-Instruct-2407", "kimi": "Kimi-K2-Instruct"}
    if not os.path.exists(f"{SHARED}/templates/{files['kimi']}.jinja"):
        print("skip: no templates at hand")
        return
    models = "".join(f"""  - id: {name}
    path: {ROOT}/models/demo.gguf
    backend: script
    template_path: {SHARED}/templates/{file}.jinja
""" for name, file in files.items())
    says = {"mistral": '[TOOL_CALLS][{"name": "now", "arguments": {}}]',
        "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0"
            "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"}
    forms = {"mistral": "[0-9A-Za-z]{9}", "kimi": "functions.now:0"}
    with Server(config="models:\n" + models) as s:
        for name in files:
            m = json.loads(ask(s, says[name], model=name))["choices"][0]["message"]
            call, = m["tool_calls"]
            assert re.fullmatch(forms[name], call["id"]), call
            for id in (call["id"], "call_of_another_server"):
                turn = [{"role": "user", "content": "?"}, {**m, "tool_calls": [{**call, "id": id}]},
                    {"role": "tool", "tool_call_id": id, "content": "noon"}]
                choice, = json.loads(ask(s, "Noon.", model=name, messages=turn))["choices"]
                equal(choice["message"]["content"], "Noon.")
                prompt = json.loads(s.request("POST", "/apply-template",
                    json.dumps({"model": name, "messages": turn, "tools": TOOLS}))[2])["prompt"]
                equal(len(re.findall(forms[name], prompt.split("noon")[0].rsplit("?", 1)[1])) >= 1,
                    True, prompt)
                assert "another" not in prompt, prompt


def test_thoughts_have_the_names_that_the_operator_wants():
    for field, names in (("both", {"reasoning_content", "reasoning"}), ("reasoning", {"reasoning"}),
            ("reasoning_content", {"reasoning_content"})):
        with Server("--reasoning-field", field, config=MAIN) as s:
            m = json.loads(ask(s, "<think>x</think>y"))["choices"][0]["message"]
            equal({k for k in m if "reason" in k}, names)
            deltas = [json.loads(f[6:])["choices"][0]["delta"] for f in
                ask(s, "<think>x</think>y", stream=True).decode().split("\n\n")[:-2]]
            equal({k for d in deltas for k in d if "reason" in k}, names)


def test_a_gap_is_refused_by_a_model_that_has_no_tokens_for_it():
    with Server(config=MAIN) as s:
        status, _, answer = s.request("POST", "/v1/completions",
            json.dumps({"prompt": "a = ", "suffix": "\nprint(a)", "script": "1"}))
        equal((status, json.loads(answer)["error"]["param"]), (400, "suffix"))


def test_thinking_begins_where_the_prompt_has_put_it():
    files = {"r1": "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "qwen": "Qwen-Qwen3-0.6B",
        "m2": "MiniMax-M2"}
    if not os.path.exists(f"{SHARED}/templates/{files['r1']}.jinja"):
        print("skip: no templates at hand")
        return
    models = "".join(f"""  - id: {name}
    path: {ROOT}/models/demo.gguf
    backend: script
    template_path: {SHARED}/templates/{file}.jinja
""" for name, file in files.items())
    with Server(config="models:\n" + models) as s:
        def said(text, **more):
            m = json.loads(ask(s, text, **{"tools": None, **more}))["choices"][0]["message"]
            return m.get("reasoning_content"), m["content"]
        # The template opens the thinking; the answer begins inside.
        equal(said("Hm.</think>Yes.", model="m2"), ("Hm.", "Yes."))
        equal(said("Hm.</think>Yes.", model="r1", enable_thinking=True), ("Hm.", "Yes."))
        equal(said("Yes.", model="r1", enable_thinking=False), (None, "Yes."))
        # It opens nothing: the model does, or not.
        equal(said("<think>Hm.</think>Yes.", model="qwen"), ("Hm.", "Yes."))
        equal(said("Yes.", model="qwen"), (None, "Yes."))
        # It has been closed: what follows is the answer.
        for off in ({"chat_template_kwargs": {"enable_thinking": False}}, {"enable_thinking": False},
                {"reasoning_effort": "none"}):
            equal(said("Yes.", model="qwen", **off), (None, "Yes."))
        # A call that has to come closes what is open.
        for name, rest in (("m2", "</invoke>"), ("r1", "{}\n```"), ("qwen", "{}}\n</tool_call>")):
            m = json.loads(ask(s, rest, model=name, enable_thinking=True, tool_choice={"type": "function",
                "function": {"name": "now"}}))["choices"][0]["message"]
            equal(calls_of(m), [("now", {})])
            assert "reasoning" not in m, m


def test_requests_that_make_no_sense_are_named():
    f = {"name": "f"}
    with Server(config=MAIN) as s:
        for param, more in (
                ("tools", {"tools": {}}),
                ("tools[0].function", {"tools": [{"type": "function"}]}),
                ("tools[0].function.name", {"tools": [{"type": "function", "function": {}}]}),
                ("tools[0].function.name", {"tools": [{"function": {"name": ""}}]}),
                ("tools[1].type", {"tools": [{"function": f}, {"type": "custom", "custom": f}]}),
                ("tools[0].function.parameters", {"tools": [{"function": {**f, "parameters": 1}}]}),
                ("tool_choice", {"tool_choice": "maybe"}),
                ("tool_choice.type", {"tool_choice": {}}),
                ("tool_choice.type", {"tool_choice": {"type": "custom", "custom": f}}),
                ("tool_choice.name", {"tool_choice": {"type": "function"}}),
                ("tool_choice.allowed_tools.tools", {"tool_choice": {"type": "allowed_tools",
                    "allowed_tools": {"mode": "auto"}}}),
                ("parallel_tool_calls", {"parallel_tool_calls": "yes"}),
                ("functions[0].name", {"tools": None, "functions": [{}]})):
            equal(json.loads(ask(s, "x", 400, **more))["error"]["param"], param, more)
        equal(json.loads(ask(s, "x", tools=[{"function": f}]))["choices"][0]["message"]["content"],
            "x")


if __name__ == "__main__":
    run(globals())
