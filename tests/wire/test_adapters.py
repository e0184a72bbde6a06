#!/usr/bin/env python3
"""Prompts and capabilities of models over HTTP: /apply-template with a template in the body,
tools in the system prompt, and the results of the capability probe, stored across restarts."""
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import Server, equal, program, read_all, run

DEMO = os.path.join(ROOT, "models/demo.gguf")
HI = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "look_up", "description": "Looks it up.",
    "parameters": {"type": "object", "properties": {"what": {"type": "string"}}}}}
NOTICE = "Model not probed \u2014 capabilities may be incomplete"


def apply(server, **body):
    status, _, text = server.request("POST", "/apply-template", json.dumps(body))
    return status, json.loads(text)


def test_a_body_may_contain_a_template_and_tokens():
    own = "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}{{ eos_token }}"
    with Server() as s:
        status, body = apply(s, messages=HI, chat_template=own, bos_token="<b>", eos_token="<e>")
        equal((status, body), (200, {"prompt": "<b>[user] Hi<e>"}))
        status, body = apply(s, messages=HI, chat_template=own + "{{ x }}{{ tools | length }}",
            bos_token="", eos_token="", tools=[TOOL], chat_template_kwargs={"x": "y"})
        equal((status, body), (200, {"prompt": "[user] Hiy1"}))
        plain = apply(s, messages=HI)[1]["prompt"]
        assert plain.startswith("<|im_start|>user\nHi<|im_end|>"), plain
        for bad, field in (("{% if %}", "chat_template"), ("{{ x | nofilter }}", "chat_template"),
                           (7, "chat_template")):
            status, body = apply(s, messages=HI, chat_template=bad)
            equal((status, body["error"]["param"]), (400, field), bad)
        status, body = apply(s, messages=HI, chat_template="{{ raise_exception('not so') }}")
        equal((status, body["error"]["message"]), (400, "not so"))
        status, _, body = s.request("POST", "/v1/chat/completions",
            json.dumps({"messages": HI, "chat_template": own, "max_tokens": 1}))
        equal((status, json.loads(body)["error"]["param"]), (400, "chat_template"))


def test_a_template_in_the_body_never_runs_on_the_io_thread():
    slow = "{% for i in range(100000) %}{% endfor %}" * 20
    with Server() as s:
        for key in "chat_template", "chat_tem\\u0070late":
            body = json.dumps({"messages": HI, "KEY": slow}).replace("KEY", key).encode()
            clients = [s.connect() for _ in range(8)]
            for c in clients:
                c.sendall(b"POST /apply-template HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                          b"Content-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(0.02)
            equal(s.get("/livez")[0], 200)
            clients[-1].setblocking(False)
            try:
                early = clients[-1].recv(1)
                raise AssertionError(f"{key}: the probe waited for all templates: {early}")
            except BlockingIOError:
                pass
            for c in clients:
                c.setblocking(True)
                assert read_all(c).startswith(b"HTTP/1.1 "), key
                c.close()


def test_a_template_in_the_body_requires_the_admin_scope():
    with Server(env={"INFERFLUX_API_KEYS": "user,boss:admin"}, key="boss") as s:
        for field, value in (("chat_template", "{{ 1 }}"), ("bos_token", "x"), ("eos_token", "x")):
            s.key = "user"
            status, body = apply(s, messages=HI, **{field: value})
            equal((status, body["error"]["param"] in ("chat_template", "bos_token")), (403, True))
            equal(apply(s, messages=HI)[0], 200)
            s.key = "boss"
            equal(apply(s, messages=HI, **{field: value})[0], 200)
        equal(apply(s, messages=HI, chat_template="{{ 1 }}")[1], {"prompt": "1"})


HOSTILE = [
    "{% for i in range(10**9) %}{% for j in range(10**9) %}{% endfor %}{% endfor %}",
    "{{ 'a' * 10**9 }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    # Fails as late as possible, and again in each template variant that rendering tries.
    "{% for i in range(90000) %}{% endfor %}{{ raise_exception('late') }}",
    "{{ '" + "(" * 30000 + "' }}" + "{{ " + "(" * 20000,
]


def cpu_seconds(server):
    """CPU time of the server, including the few requests of the monitoring client."""
    with open(f"/proc/{server.process.pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_hostile_template_is_a_400_and_blocks_no_other_request():
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefghi", "type": "function",
        "function": {"name": "f", "arguments": "{}"}}]}
    with Server() as s:
        slowest, stop = [0.0], threading.Event()

        def look():
            while not stop.is_set():
                began = time.monotonic()
                s.get("/livez")
                slowest[0] = max(slowest[0], time.monotonic() - began)
                stop.wait(0.01)

        looker = threading.Thread(target=look)
        looker.start()
        try:
            for source in HOSTILE:
                before = cpu_seconds(s)
                for _ in range(5):
                    status, body = apply(s, messages=HI + [call] + HI, chat_template=source)
                    equal(status, 400, source[:60])
                took = (cpu_seconds(s) - before) / 5  # independent of other load on the machine
                print(f"{took * 1000:6.1f} ms: {source[:60]}: {body['error']['message'][:60]}")
                assert took <= (0.5 if "asan" in program("") else 0.05), (source[:60], took)
        finally:
            stop.set()
            looker.join()
        print(f"slowest of the others: {slowest[0] * 1000:.1f} ms")


def adapter(server, name):
    return json.loads(server.get("/v1/models/" + name)[2])["adapter"]


def config(**fields):
    lines = "".join(f"    {k}: {v}\n" for k, v in fields.items())
    return f"models:\n  - id: echo\n    path: {DEMO}\n    backend: script\n{lines}"


def test_tools_are_injected_if_the_template_lacks_them():
    with Server(config=config(family="gemma")) as s:
        status, body = apply(s, model="echo", messages=[{"role": "system", "content": "Be kind."}] + HI,
            tools=[TOOL])
        equal(status, 200)
        assert "# Tools" in body["prompt"] and '"name":"look_up"' in body["prompt"], body
        equal(adapter(s, "echo")["tool_format"], "injection")
        capabilities = json.loads(s.get("/v1/models/echo")[2])["capabilities"]
        assert "tools" in capabilities, capabilities
    with Server("--tool-injection=false", config=config(family="gemma")) as s:
        status, body = apply(s, model="echo", messages=HI, tools=[TOOL])
        equal((status, body["error"]["param"]), (400, "tools"))
        equal(apply(s, model="echo", messages=HI)[0], 200)


def test_an_unprobed_model_is_reported_as_such():
    with Server() as s:
        equal((adapter(s, "demo")["probed"], adapter(s, "demo")["notice"]), (False, NOTICE))
        assert "unprobed  model=demo " in s.errors(), s.errors()


def test_a_template_with_calls_of_an_unknown_format_is_reported():
    source = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}{% for c in m.tool_calls or "
        "[] %}((call {{ c.function.name }} {{ c.function.arguments | tojson }})){% endfor %}<|im_end|>\n"
        "{% endfor %}{{ tools | tojson if tools }}")
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
        f.write(source)
        f.flush()
        with Server(config=config(template_path=f.name)) as s:
            equal([adapter(s, "echo")[k] for k in ("tool_parser", "tool_format", "tool_format_unknown")],
                ["null", None, True])
            assert "tool_format_unknown model=echo option=tool_parser " in s.errors(), s.errors()
        with Server(config=config(template_path=f.name, tool_parser="hermes_json")) as s:
            equal([adapter(s, "echo")[k] for k in ("tool_parser", "tool_format", "tool_format_unknown")],
                ["hermes_json", "native", False])
            assert "tool_format_unknown" not in s.errors(), s.errors()


def test_configured_parsers_have_precedence():
    with Server(config=config(tool_parser="llama_xml", thinking_parser="seed_oss")) as s:
        equal([adapter(s, "echo")[k] for k in ("tool_parser", "thinking_parser")],
            ["llama_xml", "seed_oss"])


def test_probe_results_are_used_by_the_server():
    with tempfile.TemporaryDirectory() as d:
        store = os.path.join(d, "x/y/store.db")
        done = subprocess.run([program("inferctl"), "probe", "--store", store, "--json", DEMO],
            capture_output=True, text=True)
        equal(done.returncode, 0, done.stderr)
        row = json.loads(done.stdout)
        equal((row["model_id"], row["model_type"], row["model_family"], row["probe_version"]),
            ("demo", "TEXT_GEN", "qwen", 3))
        equal((row["tool_parser_id"], row["thinking_parser_id"], row["tool_format"]),
            ("hermes_json", "think_tag", "native"))  # the probe found tool calls and reasoning
        with Server("--store", store) as s:
            known = adapter(s, "demo")
            equal((known["probed"], known["tool_parser"], known["thinking_parser"],
                known["tool_format"]), (True, row["tool_parser_id"], row["thinking_parser_id"],
                row["tool_format"]))
            assert "notice" not in known
            ask = [program("inferctl"), "--url", s.url, "probe", "demo"]
            shown = subprocess.run(ask, capture_output=True, text=True)
            equal((shown.returncode, "probed     yes" in shown.stdout), (0, True), shown.stderr)
            shown = subprocess.run([*ask, "--json"], capture_output=True, text=True)
            equal(json.loads(shown.stdout), known)
            shown = subprocess.run([*ask[:-1], "nobody"], capture_output=True, text=True)
            equal((shown.returncode, "does not exist" in shown.stderr), (1, True), shown.stderr)
        with open(store, "r+b") as f:
            f.seek(100)  # after the magic of SQLite
            f.write(b"no database" * 20)
        with Server("--store", store) as s:  # the log names the reason, and the server works
            equal(adapter(s, "demo")["probed"], False)
            assert "damaged" in s.errors(), s.errors()
            equal(s.request("POST", "/v1/chat/completions",
                json.dumps({"messages": HI, "max_tokens": 1}))[0], 200)


@contextlib.contextmanager
def model_without_template(tokens):
    """A copy of the demo model without chat template, and with other texts for some tokens."""
    with open(DEMO, "rb") as f:
        data = f.read()
    for old, new in {"tokenizer.chat_template": "tokenizer.chat_nothing_", **tokens}.items():
        assert len(old) == len(new) and old.encode() in data
        data = data.replace(old.encode(), new.encode())
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "bare.gguf")
        with open(path, "wb") as f:
            f.write(data)
        yield path


OTHER_TOKENS = {"<|im_start|>": "<|im_st?rt|>", "<|im_end|>": "<|im_?nd|>"}
CHATML = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_a_model_without_template_falls_back_to_chatml():
    for tokens, is_fallback in (({}, False), (OTHER_TOKENS, True)):
        with model_without_template(tokens) as path, \
                Server("--model", path, "--alias", "bare", config=None) as s:
            lines = [x for x in s.errors().split("\n") if "no_chat_template" in x]
            equal(len(lines), int(is_fallback))
            assert all("model=bare fallback=chatml" in x for x in lines), lines
            equal(apply(s, messages=HI), (200, {"prompt": CHATML}))
            assert "<|im_start|>" in json.loads(s.get("/props")[2])["chat_template"]
            model = json.loads(s.get("/v1/models")[2])["data"][0]
            assert "chat" in model["capabilities"], model
            status, _, text = s.request("POST", "/v1/chat/completions",
                json.dumps({"messages": HI, "max_tokens": 3}))
            equal(status, 200, text)


def test_a_turn_ends_at_the_text_of_a_marker_that_is_no_token():
    """The built-in template writes <|im_end|>, which is ordinary text in this vocabulary."""
    whole = "Hello.<|im_end|>\nUser: more"

    def ask(server, path="/v1/chat/completions", script=whole, chunk="all", **more):
        status, _, answer = server.request("POST", path, json.dumps({"messages": HI,
            "max_tokens": 99, "script": {"text": script, "chunk": chunk}, **more}))
        equal(status, 200, answer)
        return json.loads(answer)

    with model_without_template(OTHER_TOKENS) as path:
        config = f"models:\n  - id: bare\n    path: {path}\n    backend: script\n"
        with Server(config=config) as s:
            for more, want in (({}, "Hello."), ({"stop": ["nothing"]}, "Hello."),
                    ({"stop": ["lo"]}, "Hel"), ({"chunk": "char"}, "Hello."),
                    ({"stop": ["ser"], "include_stop_str_in_output": True}, "Hello."),
                    ({"stop": ["lo"], "include_stop_str_in_output": True}, "Hello"),
                    ({"stop": [f"s{i}" for i in range(16)]}, "Hello."),
                    ({"ignore_eos": True}, whole), ({"script": "Hello <|im_en"}, "Hello <|im_en")):
                choice = ask(s, **more)["choices"][0]
                equal((choice["message"]["content"], choice["finish_reason"]), (want, "stop"), more)
                matched = choice.get("stop_reason")
                equal(matched, "lo" if "lo" in more.get("stop", []) else None, more)
            answer = ask(s, "/v1/messages")
            equal((answer["content"][0]["text"], answer["stop_reason"], answer["stop_sequence"]),
                ("Hello.", "end_turn", None))
            # A completion has no turns.
            equal(ask(s, "/v1/completions", prompt="x")["choices"][0]["text"], whole)
    with Server() as s:  # The marker is a token here: its text is only text.
        equal(ask(s, model="echo")["choices"][0]["message"]["content"], whole)


def test_the_first_load_can_probe_the_model():
    with tempfile.TemporaryDirectory() as d:
        store = os.path.join(d, "store.db")
        with Server("--store", store, "--probe", "auto") as s:
            equal(adapter(s, "demo")["probed"], True)
            # a script model generates nothing for a probe
            equal(adapter(s, "echo")["probed"], False)
            equal(s.errors().count("probe_start"), 1)
        with Server("--store", store, "--probe", "auto") as s:
            equal(adapter(s, "demo")["probed"], True)
            equal(s.errors().count("probe_start"), 0)


if __name__ == "__main__":
    run(globals())
