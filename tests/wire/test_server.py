#!/usr/bin/env python3
"""General behaviour of the server over HTTP: probes, keys, CORS, invalid bodies, disconnects,
draining."""
import contextlib
import glob
import http.client
import json
import os
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import CONFIG, SHARED, Server, equal, program, read_all, read_until, run

CHAT = "/v1/chat/completions"


def chat_body(**more):
    return json.dumps({"messages": [{"role": "user", "content": "Hi"}], **more})


def metric(server, name):
    return metric_as(server, name, {})


def metric_of(connection, name):
    """The same, over an open connection."""
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    return float(re.search(rf"^inferflux_{name} (\S+)$", text, re.M).group(1))


def metric_as(server, name, fields):
    for line in server.get("/metrics", **fields)[2].decode().splitlines():
        if line.startswith(f"inferflux_{name} "):
            return float(line.split()[1])
    raise AssertionError(f"no metric {name}")


def until(condition, what, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)


def invariants(server):
    return json.loads(server.get("/debug/invariants")[2])


def test_probes_return_the_expected_status_and_body():
    with Server() as s:
        equal(s.get("/livez")[2], b'{"status":"alive"}')
        equal(s.get("/healthz")[2], b'{"status":"ok"}')
        equal(s.get("/readyz")[2], b'{"status":"ready","role":"unified"}')


def test_stalled_reader_of_stderr_delays_nothing():
    """stderr is a pipe that nothing reads; requests follow until the queue of lines is full."""
    log_read, log_write = os.pipe()
    try:
        with Server(log=log_write) as s:
            c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=20)
            body = json.dumps({"prompt": "x", "max_tokens": 1})
            for _ in range(12000):
                if metric_of(c, "log_lines_dropped_total") > 0:
                    break
                for _ in range(100):
                    c.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
                    equal(c.getresponse().read()[:1], b"{")
            else:
                raise AssertionError("no line was dropped")
            equal(s.get("/livez")[0], 200)
            s.process.send_signal(signal.SIGTERM)
            equal(s.process.wait(30), 0)
    finally:
        os.close(log_read)
        os.close(log_write)


def test_keys_are_required_except_for_probes():
    env = {"INFERFLUX_API_KEYS": "alpha, beta:admin"}
    with Server(env=env, ready=False) as s:
        until(lambda: s.get("/readyz")[0] == 200, "ready")
        for path in ("/livez", "/readyz", "/healthz"):
            equal(s.get(path)[0], 200, path)
        for path in ("/v1/models", "/metrics", "/debug/invariants"):
            status, _, body = s.get(path)
            equal(status, 401, path)
        equal(json.loads(s.get("/v1/models")[2])["error"]["code"], "invalid_api_key")
        equal(s.get("/v1/models", Authorization="Bearer wrong")[0], 401)
        equal(s.get("/v1/models", Authorization="Bearer alpha")[0], 200)
        equal(s.get("/v1/models", x_api_key="alpha")[0], 200)
        equal(s.get("/debug/invariants", Authorization="Bearer alpha")[0], 403)
        equal(s.get("/debug/invariants", Authorization="Bearer beta")[0], 200)
        equal(s.request("OPTIONS", CHAT, None, Origin="http://x")[0], 403)
        # A large body without a key is rejected before it is read.
        with s.connect() as c:
            c.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n\r\n".encode())
            assert b" 401 " in c.recv(4096)
        assert "alpha" not in s.errors() and "wrong" not in s.errors()


def test_listening_beyond_loopback_needs_a_key():
    for flags, starts in (([], False), (["--auth", "never"], True)):
        try:
            with Server("--host", "0.0.0.0", *flags, ready=False):
                assert starts, "it started without a key"
        except RuntimeError as e:
            assert not starts and "INFERFLUX_API_KEYS" in str(e), e


def test_preflight_is_answered_before_the_key_is_checked():
    preflight = {"Access_Control_Request_Method": "POST",
        "Access_Control_Request_Headers": "authorization,x-y"}
    admin = "/v1/admin/cache"
    with Server("--api-key", "k:admin", "--cors-origin", "https://ui.example", ready=False) as s:
        for origin in ("https://ui.example", "http://localhost:3000", "app://obsidian.md"):
            status, fields, _ = s.request("OPTIONS", CHAT, None, Origin=origin, **preflight)
            equal((status, fields["access-control-allow-origin"], fields["vary"]),
                (204, origin, "Origin"))
            equal(fields["access-control-allow-headers"], "authorization,x-y")
            status, fields, _ = s.request("OPTIONS", admin, None, Origin=origin, **preflight)
            equal((status, "access-control-allow-origin" in fields), (403, False))
            # An error is readable for the page, too.
            status, fields, _ = s.request("POST", CHAT, "{}", Origin=origin)
            equal((status, fields["access-control-allow-origin"]), (401, origin))
        status, fields, _ = s.request("OPTIONS", CHAT, None, Origin="http://a", **preflight)
        equal((status, "access-control-allow-origin" in fields), (403, False))
    with Server("--api-key", "k", "--cors-origin", "*", ready=False) as s:
        status, fields, _ = s.request("OPTIONS", CHAT, None, Origin="http://a", **preflight)
        equal((status, fields["access-control-allow-origin"]), (204, "*"))
        assert "access-control-allow-credentials" not in fields
        equal(s.request("OPTIONS", admin, None, Origin="http://a", **preflight)[0], 403)
    for flags in (("--cors-origin", "*"), ("--cors-origin", "x"), ("--hosts", "a:1")):
        try:
            with Server(*flags, ready=False):
                raise AssertionError(f"the server started with {flags}")
        except RuntimeError as e:
            assert "server." in str(e), e


def test_foreign_web_pages_are_refused():
    evil = {"Origin": "https://evil.example"}
    prompt = '{"model":"demo","prompt":"hi","max_tokens":2}'
    with Server("--hosts", "llm.example") as s:
        for path, body in (("/v1/completions", prompt), (CHAT, "{}"), ("/nothing", "{}"),
                ("/v1/messages", "{}"), ("/api/chat", "{}"), ("/completion", "{}")):
            status, fields, text = s.request("POST", path, body, Content_Type="text/plain", **evil)
            equal((status, "access-control-allow-origin" in fields), (403, False), path)
            assert b"origin" in text, text
        equal(s.request("PUT", "/v1/admin/fairness", '{"max_timeslice_tokens":1}', **evil)[0], 403)
        host = {"Host": f"evil.example:{s.port}"}
        status, fields, text = s.request("GET", "/v1/admin/cache", None, **host)
        equal((status, fields["content-type"]), (421, "application/problem+json"))
        equal(json.loads(text)["code"], "misdirected_request")
        status, _, text = s.request("POST", "/v1/messages", "{}", **host)
        equal((status, json.loads(text)["type"]), (421, "error"))
        for good in ("llm.example", "LLM.example.:9", "localhost:1", "[::1]", "a.localhost"):
            equal(s.request("POST", "/v1/completions", prompt, Host=good)[0], 200, good)
            equal(s.request("GET", "/v1/admin/cache", None, Host=good)[0], 200, good)
        heads = (("GET / HTTP/1.0", 200), ("GET http://evil.example/ HTTP/1.0", 421),
            ("GET http://localhost/ HTTP/1.0", 200),
            ("GET http://evil.example/ HTTP/1.1\r\nHost: evil.example", 421),
            ("GET http://evil.example/ HTTP/1.1\r\nHost: localhost", 400),
            ("GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost", 400),
            ("GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: a\r\nOrigin: b", 400),
            ("GET / HTTP/1.1\r\nHost:", 200), ("GET / HTTP/1.1", 400))
        for head, want in heads:
            with s.connect() as c:
                c.sendall(f"{head}\r\nConnection: close\r\n\r\n".encode())
                equal(int(read_all(c)[9:12]), want, head)
        # The body of a refused request is not read.
        with s.connect() as c:
            c.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n".encode())
            assert b" 421 " in c.recv(4096)


def test_pages_of_this_machine_may_generate_and_not_administrate():
    page = {"Origin": "http://localhost:3000", "Sec_Fetch_Site": "same-site"}
    with Server() as s:
        status, fields, _ = s.request("POST", "/v1/completions",
            '{"model":"demo","prompt":"hi","max_tokens":2}', **page)
        equal((status, fields["access-control-allow-origin"]), (200, "http://localhost:3000"))
        equal(s.request("GET", "/v1/admin/cache", None, **page)[0], 403)
        equal(s.request("GET", "/v1/admin/cache", None, Origin=s.url)[0], 200)
        template = '{"model":"demo","messages":[{"role":"user","content":"x"}],"chat_template":"x"}'
        equal(s.request("POST", "/apply-template", template)[0], 200)
        equal(s.request("POST", "/apply-template", template, **page)[0], 403)


def test_unknown_paths_are_problems_and_models_are_not():
    with Server() as s:
        status, fields, body = s.get("/nothing")
        equal((status, fields["content-type"]), (404, "application/problem+json"))
        status, fields, body = s.request("PUT", CHAT, "{}")
        assert status in (404, 405), status
        status, _, body = s.request("POST", CHAT, chat_body(model="nobody"))
        equal((status, json.loads(body)["error"]["code"]), (404, "model_not_found"))


def test_one_model_accepts_any_name_unless_strict():
    demo = os.path.join(ROOT, "models/demo.gguf")
    listed = f"models:\n  - id: demo\n    path: {demo}\n"
    by_flag, by_file = (["--model", demo], None), ([], listed)
    strict = {"a flag": (["--strict-model"], "", {}), "the file": ([], "model:\n  strict: true\n", {}),
        "the environment": ([], "", {"INFERFLUX_STRICT_MODEL": "true"})}

    def model_of(flags, config, env=None):
        with Server(*flags, config=config, env=env) as s:
            status, _, body = s.request("POST", CHAT, chat_body(model="gpt-4o", max_tokens=2))
            answer = json.loads(body)
            return answer["model"] if status == 200 else (status, answer["error"]["code"])

    for flags, config in (by_flag, by_file):
        equal(model_of(flags, config), "demo", config)
        for how, (more, text, env) in strict.items():
            equal(model_of(flags + more, (config or "") + text, env), (404, "model_not_found"), how)
    # With several models, a name that none of them has is an error, also before they are loaded.
    with Server("--model", demo, "--alias", "other", config=listed, ready=False) as s:
        equal(s.request("POST", CHAT, chat_body(model="gpt-4o", max_tokens=2))[0], 404)


def test_every_json_of_the_suite_is_answered():
    paths = sorted(glob.glob(os.path.join(SHARED, "json-bodies/test_parsing/*.json")))
    if not paths:
        print("     skipped: no JSON suite")
        return
    with Server() as s:
        for path in paths:
            name = os.path.basename(path)
            with open(path, "rb") as f:
                body = f.read()
            status, _, answer = s.request("POST", CHAT, body)
            if name.startswith("n_"):
                equal(status, 400, name)
                assert "error" in json.loads(answer), name
            else:
                assert status in (200, 400), (name, status)
        equal(s.request("POST", CHAT, chat_body(max_tokens=1))[0], 200)


def test_the_limit_of_stop_strings_is_reported():
    with Server() as s:
        status, _, body = s.request("POST", CHAT, chat_body(stop=["x" * 5000]))
        equal((status, json.loads(body)["error"]["param"]), (400, "stop"))


def test_a_body_over_the_cap_is_refused():
    with Server("--max-body", "64K") as s:
        equal(s.request("POST", CHAT, b" " * 70000)[0], 413)
        with s.connect() as c:
            c.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
            answer = b""
            try:
                for _ in range(10):
                    c.sendall(b"2000\r\n" + b" " * 0x2000 + b"\r\n")
            except OSError:
                pass
            try:
                answer = c.recv(4096)
            except OSError:
                pass
            assert not answer or b" 413 " in answer, answer


def post(s, body, close=False):
    c = s.connect()
    data = body.encode()
    c.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return c


def test_a_disconnect_ends_the_request():
    with Server() as s:
        slow = {"text": "word " * 3000, "delay_ms": 50}
        for phase in ("waiting", "prefill", "stream"):
            if phase == "prefill":
                c = post(s, chat_body(model="demo", max_tokens=1000, ignore_eos=True,
                    messages=[{"role": "user", "content": "word " * 300}]))
            else:
                c = post(s, chat_body(model="echo", script=slow, stream=phase == "stream"))
            until(lambda: metric(s, "requests_running") == 1, phase)
            if phase == "stream":
                assert b"200 OK" in c.recv(4096)
            left = time.monotonic()
            c.close()
            until(lambda: metric(s, "requests_running") == 0, phase)
            assert time.monotonic() - left < 30, phase
            sums = invariants(s)
            assert sums["ok"] and sums["sequences"] == 0, (phase, sums)
            equal(sums["pages"]["free"] + sums["pages"]["cached"], sums["pages"]["total"], phase)
            equal(sums["pages"]["owned"], 0, phase)
        equal(metric(s, "requests_cancelled_total"), 3.0)


def chat_of(server, messages, **more):
    body = json.dumps({"model": "demo", "messages": messages, "max_tokens": 40,
        "temperature": 0, "ignore_eos": True, **more.pop("body", {})})
    status, _, answer = server.request("POST", CHAT, body, **more)
    equal(status, 200, answer)
    answer = json.loads(answer)
    return (answer["choices"][0]["message"]["content"], answer["usage"]["prompt_tokens"],
        answer["usage"]["prompt_tokens_details"]["cached_tokens"])


def test_the_next_turn_uses_the_prefix_cache():
    first = [{"role": "user", "content": "Tell me of the sea, at length. " * 12}]
    with Server("--prefix-cache", "off") as off:
        text, n, cached = chat_of(off, first)
        second = first + [{"role": "assistant", "content": text},
            {"role": "user", "content": "And of the wind?"}]
        reply, n_second, cached_second = chat_of(off, second)
        equal((cached, cached_second), (0, 0))
        equal(metric(off, "prefix_queries_total"), 0.0)
    alpha, beta = ({"Authorization": f"Bearer {k}"} for k in ("alpha", "beta"))
    with Server("--api-key", "alpha,beta", ready=False) as s:
        until(lambda: s.get("/readyz")[0] == 200, "ready")
        equal(chat_of(s, first, **alpha), (text, n, 0))
        equal(chat_of(s, second, **alpha)[:2], (reply, n_second))
        equal(metric_as(s, "prefix_queries_total", alpha), 2.0)
        # The previous turn is cached; the template may render the end of a reply differently.
        assert metric_as(s, "prefix_matched_tokens_total", alpha) >= n - 8
        again = chat_of(s, second, **alpha)
        equal(again, (reply, n_second, n_second - 1))
        # Another key, another salt, or a request without caching finds nothing.
        equal(chat_of(s, second, **beta), (reply, n_second, 0))
        equal(chat_of(s, second, body={"cache_salt": "mine"}, **alpha), (reply, n_second, 0))
        equal(chat_of(s, second, body={"cache_prompt": False}, **alpha), (reply, n_second, 0))
        equal(chat_of(s, second, body={"cache_salt": "mine"}, **alpha)[2], n_second - 1)
    with Server("--api-key", "alpha,beta", "--prefix-share", "all", "--kv-evict", "clock",
            ready=False) as s:
        until(lambda: s.get("/readyz")[0] == 200, "ready")
        equal(chat_of(s, first, **alpha), (text, n, 0))
        equal(chat_of(s, first, **beta), (text, n, n - 1))


def test_kv_pages_survive_a_restart_on_disk():
    first = [{"role": "user", "content": "Tell me of the sea, at length. " * 12}]
    with tempfile.TemporaryDirectory() as disk:
        for turn in range(2):
            with Server("--kv-disk", disk, "--kv-disk-bytes", "64M") as s:
                reply = chat_of(s, first)
                if turn == 0:
                    cold = reply
                    equal(reply[2], 0)
                else:
                    equal(reply[:2], cold[:2])
                    assert metric(s, "kv_disk_fetched_pages_total") >= 2
                    equal(reply[2], 32 * metric(s, "kv_disk_fetched_pages_total"))


def test_a_slow_reader_is_bounded_and_blocks_no_other():
    with Server() as s:
        text = "x y " * 500000
        c = socket.socket()
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.connect(("127.0.0.1", s.port))
        body = chat_body(model="echo", script=text, stream=True, max_tokens=100000).encode()
        c.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body)
        until(lambda: metric(s, "requests_running") == 1, "it runs")
        began = time.monotonic()
        equal(s.request("POST", CHAT, chat_body(model="echo", script="quick"))[0], 200)
        assert time.monotonic() - began < 30
        steps = 0
        while steps != (now := metric(s, "scheduler_steps_total")):
            steps = now
            time.sleep(0.2)
        equal(metric(s, "requests_running"), 1.0)  # parked, not finished
        c.close()
        until(lambda: metric(s, "requests_running") == 0, "the client has disconnected")


def test_an_idle_stream_gets_comments():
    with Server("--sse-ping-interval", "20") as s:
        c = post(s, chat_body(model="echo", script={"text": "late", "delay_ms": 1500}, stream=True))
        data = read_until(c, lambda data: b"[DONE]" in data)
        assert data.count(b"\n:") + data.count(b"\r\n:") >= 3, data
        c.close()


def test_draining_finishes_requests_and_accepts_no_new_ones():
    with Server() as s:
        c = post(s, chat_body(model="echo", script={"text": "one two three", "delay_ms": 200},
            stream=True))
        data = read_until(c, lambda data: b"\r\n\r\n" in data)  # the request runs
        s.process.send_signal(signal.SIGTERM)
        data += read_all(c)
        equal(b"".join(re.findall(rb'"content":"([^"]*)"', data)), b"one two three")
        assert b"[DONE]" in data, data
        equal(s.process.wait(60), 0)
    with Server("--drain-timeout", "100") as s:
        c = post(s, chat_body(model="echo", script={"text": "word " * 1000, "delay_ms": 1000}))
        until(lambda: metric(s, "requests_running") == 1, "it runs")
        began = time.monotonic()
        equal(s.stop(), 0)
        assert time.monotonic() - began < 30
        c.close()


def test_concurrent_clients_get_the_same_output_as_alone():
    with Server("--parallel", "5") as s:
        bodies = [chat_body(model="demo", max_tokens=12, temperature=t, seed=i,
            messages=[{"role": "user", "content": f"What is {i} plus {i % 7}?"}])
            for i in range(12) for t in (0, 1.1)]
        alone = [json.loads(s.request("POST", CHAT, b)[2])["choices"] for b in bodies]
        together = [None] * len(bodies)

        def one(i):
            together[i] = json.loads(s.request("POST", CHAT, bodies[i])[2])["choices"]

        threads = [threading.Thread(target=one, args=(i,)) for i in range(len(bodies))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        equal(together, alone)


def test_tokenize_and_detokenize_round_trip():
    with Server() as s:
        text = "Hello, wörld! 🙂 12"
        r = json.loads(s.request("POST", "/tokenize", json.dumps({"content": text}))[2])
        back = s.request("POST", "/detokenize", json.dumps({"tokens": r["tokens"]}))[2]
        equal(json.loads(back)["content"], text)
        pieces = json.loads(s.request("POST", "/tokenize",
            json.dumps({"content": text, "with_pieces": True}))[2])["tokens"]
        equal([p["id"] for p in pieces], r["tokens"])
        prompt = json.loads(s.request("POST", "/apply-template", chat_body())[2])["prompt"]
        assert prompt.endswith("<|im_start|>assistant\n") and "Hi" in prompt, prompt
        equal(s.request("POST", "/detokenize", '{"tokens":[99999999]}')[0], 400)


PARSE = "/v1/parse"


def test_parse_is_independent_of_cuts():
    text = ("<think>\nHm, 2 < 3.\n</think>\n\nI'll look.\n<tool_call>\n"
            '{"name": "get_weather", "arguments": {"city": "S\u00e3o \\"Paulo\\" \U0001f600", "n": [1]}}'
            "\n</tool_call>")
    ids = {"tool_parser": "hermes_json", "thinking_parser": "think_tag"}
    with Server() as s:
        def parse(**body):
            status, _, answer = s.request("POST", PARSE, json.dumps({**ids, **body}))
            equal(status, 200, answer)
            return json.loads(answer)

        for chunks in ([text], list(text), [text[i:i + 7] for i in range(0, len(text), 7)]):
            r = parse(chunks=chunks)
            equal(r["content"], "I'll look.")
            equal(r["reasoning"], "Hm, 2 < 3.")
            equal(r["finish_reason"], "tool_calls")
            call, = r["tool_calls"]
            equal((call["type"], call["function"]["name"]), ("function", "get_weather"))
            equal(json.loads(call["function"]["arguments"]),
                {"city": "S\u00e3o \"Paulo\" \U0001f600", "n": [1]})
            deltas = r["deltas"]
            equal("".join(d.get("content", "") for d in deltas), r["content"])
            equal("".join(d.get("reasoning", "") for d in deltas), r["reasoning"])
            equal("".join(d["tool_calls"][0]["function"]["arguments"]
                for d in deltas if "tool_calls" in d), call["function"]["arguments"])
        broken = parse(chunks=[text[:-25]])
        equal((broken["tool_calls"], broken["finish_reason"]), ([], "stop"))
        assert broken["content"].startswith('I\'ll look.\n<tool_call>\n{"name"'), broken
        assert {"broken_call": 0} in broken["deltas"], broken
        status, _, answer = s.request("POST", PARSE, '{"tool_parser":"nobody","chunks":[]}')
        equal(status, 400)
        error = json.loads(answer)["error"]
        equal(error["param"], "tool_parser")
        assert "hermes_json" in error["message"] and "qwen3_coder" in error["message"], error


def test_parse_requires_the_scope_of_tokenize():
    with Server(env={"INFERFLUX_API_KEYS": "alpha"}, ready=False) as s:
        body = '{"chunks":["x"]}'
        equal(s.request("POST", PARSE, body)[0], 401)
        equal(s.request("POST", PARSE, body, Authorization="Bearer alpha")[0], 200)


def audit_lines(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


def verify_audit(*paths):
    """Returns the exit status of `inferctl admin audit verify`."""
    command = [program("inferctl"), "admin", "audit", "verify", *paths]
    return subprocess.run(command, capture_output=True).returncode


def command_line(process):
    with open(f"/proc/{process.pid}/cmdline", "rb") as f:
        return f.read()


def test_key_of_the_command_line_is_not_in_the_process_list():
    for flags in ["--api-key", "secret-key"], ["--api-key=secret-key"]:
        with Server(*flags, "--log-level", "info", key="secret-key") as s:
            equal(s.get("/v1/models")[0], 200)
            assert b"secret-key" not in command_line(s.process)
            assert b"--log-level\0info\0" in command_line(s.process)
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", 0))
                listener.listen()
                url = f"http://127.0.0.1:{listener.getsockname()[1]}"
                with subprocess.Popen([program("inferctl"), "--url", url, *flags, "models"],
                                      stderr=subprocess.DEVNULL) as ctl:
                    c, _ = listener.accept()
                    head = read_until(c, lambda d: b"\r\n\r\n" in d)
                    assert b"secret-key" not in command_line(ctl)
                    c.close()
                assert b"Bearer secret-key" in head


def test_a_key_that_is_given_twice_is_an_error():
    try:
        with Server(env={"INFERFLUX_API_KEYS": "a,b,a:admin"}):
            raise AssertionError("a key has two sets of scopes")
    except RuntimeError as e:
        assert "entry 3: the same key as key 1" in str(e), e


def test_trailers_that_are_too_large_are_431():
    with Server() as s, s.connect() as c:
        c.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: "
                  % CHAT.encode() + b"x" * 100000 + b"\r\n\r\n")
        assert read_all(c).startswith(b"HTTP/1.1 431"), "trailers"


def test_requests_that_can_never_succeed_are_400():
    with Server("--max-queue", "20", "--max-queue-tokens", "400") as s:
        def post(**more):
            status, _, body = s.request("POST", "/v1/completions", json.dumps(
                {"model": "demo", "max_tokens": 1, **more}))
            return status, json.loads(body).get("error", {}).get("code")

        equal(post(prompt=["a"] * 1024), (400, "invalid_value"), "more prompts than the queue")
        equal(post(prompt=["a"] * 20), (200, None))
        equal(post(prompt=["a"] * 24, n=20), (400, "invalid_value"), "more choices than the queue")
        equal(post(prompt=["a b c d " * 30] * 10), (400, "invalid_value"), "more tokens")
        equal(metric(s, "scheduler_steps_total") < 100, True)


def test_response_above_its_limit_is_400_before_it_is_computed():
    with Server() as s:
        steps = metric(s, "scheduler_steps_total")
        large = {"model": "demo", "n": 128, "max_tokens": 900, "ignore_eos": True,
            "logprobs": True, "top_logprobs": 20}
        status, _, body = s.request("POST", CHAT, chat_body(**large))
        equal((status, json.loads(body)["error"]["code"]), (400, "invalid_value"))
        assert "64 MB" in body.decode(), body
        equal(metric(s, "scheduler_steps_total"), steps)
        # The context ends the output before max_tokens, so the response fits.
        equal(s.request("POST", CHAT, chat_body(**{**large, "n": 1, "max_tokens": 10**7,
            "ignore_eos": False}))[0], 200)


def test_error_of_a_failed_model_has_no_path():
    config = CONFIG + "  - id: broken\n    path: /srv/secret-project/x.gguf\n"
    with Server(config=config, ready=False) as s:
        until(lambda: b"could not be" in s.request("POST", CHAT, chat_body(model="broken"))[2],
              "the model does not fail")
        for path in CHAT, "/tokenize", "/v1/messages", "/api/chat", "/completion":
            status, _, body = s.request("POST", path, chat_body(
                model="broken", max_tokens=1, content="x", prompt="x", text="x"))
            assert status in (503, 529) and b"secret-project" not in body, (path, status, body)
        for path in "/v1/models", "/props?model=broken", "/api/tags", "/api/ps":
            assert b"secret-project" not in s.get(path)[2], path
        assert "secret-project" in s.errors()


@contextlib.contextmanager
def audit_path():
    with tempfile.TemporaryDirectory() as d:
        yield os.path.join(d, "audit.log")


def test_an_audit_log_has_a_line_per_request_and_no_prompt():
    with audit_path() as path:
        with Server("--audit-log", path) as s:
            for _ in range(3):
                s.request("POST", CHAT, chat_body(model="echo", script="secret answer",
                    messages=[{"role": "user", "content": "secret question"}]))
        with Server("--audit-log", path) as s:
            s.request("POST", CHAT, chat_body(model="echo", script="x"))
        begin, *lines = audit_lines(path)
        equal((begin["event"], begin["reason"]), ("begin", "new"))
        equal(len(lines), 4)
        assert "secret" not in json.dumps(lines)
        equal(lines[0]["completion_tokens"] > 0, True)
        equal(len({line["prompt_hmac"] for line in lines[:3]}), 1)
        equal(len({line["response_hmac"] for line in lines[:3]}), 1)
        equal(len({line["response_hmac"] for line in lines}), 2)
        equal({line["action"] for line in lines}, {"generate"})
        equal([line["decision_ids"] for line in lines], [[]] * 4)
        assert all(0 <= line["ttft_ms"] <= line["total_ms"] for line in lines), lines
        equal(verify_audit(path), 0)
        with open(path) as f:
            text = f.read().splitlines()
        with open(path, "w") as f:
            f.write("\n".join([text[0], text[1], text[3], text[4]]) + "\n")
        equal(verify_audit(path), 1)
        equal(verify_audit(), 2)


def test_a_torn_audit_line_is_recorded_and_a_second_server_is_refused():
    with audit_path() as path:
        with Server("--audit-log", path) as s:
            s.request("POST", CHAT, chat_body(model="echo", script="x"))
        with open(path, "a") as f:
            f.write('{"prev":"half a line')
        equal(verify_audit(path), 1)
        with Server("--audit-log", path) as s:
            try:
                with Server("--audit-log", path):
                    raise AssertionError("two servers write to one audit log")
            except RuntimeError as e:
                assert "another process writes to it" in str(e), e
            s.request("POST", CHAT, chat_body(model="echo", script="x"))
        equal([line.get("event") for line in audit_lines(path)], ["begin", None, "torn", None])
        equal(verify_audit(path), 0)


def test_an_audit_log_that_was_cut_is_not_intact_and_the_server_starts():
    with audit_path() as path:
        with Server("--audit-log", path) as s:
            for _ in range(2):
                s.request("POST", CHAT, chat_body(model="echo", script="x"))
        with open(path) as f:
            text = f.read().splitlines(keepends=True)
        with open(path, "w") as f:
            f.write("".join(text[:-1]))
        equal(verify_audit(path), 1)
        with Server("--audit-log", path):
            pass
        equal([line["reason"] for line in audit_lines(path)], ["missing"])
        equal(verify_audit(path), 1)
        equal(len([f for f in os.listdir(os.path.dirname(path)) if ".damaged-" in f]), 1)


def test_the_hmac_of_several_choices_does_not_depend_on_their_interleaving():
    with audit_path() as path:
        with Server("--audit-log", path) as s:
            for stream in (False, True):
                s.request("POST", CHAT, chat_body(n=3, temperature=1, seed=7, max_tokens=20,
                    stream=stream))
            s.request("POST", "/v1/completions", json.dumps({"model": "demo", "max_tokens": 3,
                "prompt": ["a", "b"]}))
        lines = audit_lines(path)[1:]
        equal(lines[0]["response_hmac"], lines[1]["response_hmac"])
        equal(lines[0]["prompt_hmac"], lines[1]["prompt_hmac"])
        equal(len({line["response_hmac"] for line in lines}), 2)


def test_texts_are_in_the_audit_log_in_debug_mode_only():
    long = "\u0001\"é" * 20000
    with audit_path() as path:
        with Server("--audit-log", path, "--audit-debug-mode",
                "--audit-when-full", "refuse") as s:
            s.request("POST", CHAT, chat_body(model="echo", script="secret answer",
                messages=[{"role": "user", "content": "secret question"}]))
            equal(s.request("POST", CHAT, chat_body(model="echo", script=long,
                messages=[{"role": "user", "content": long}]))[0], 200)
        short, cut = audit_lines(path)[1:]
        assert "secret question" in short["prompt"], short
        equal(short["responses"], ["secret answer"])
        equal("is_text_cut" in short, False)
        equal(cut["is_text_cut"], True)
        assert long.startswith(cut["responses"][0]) and len(cut["responses"][0]) > 1000
        assert 1000 < len(cut["prompt"]) < 30000
        equal(verify_audit(path), 0)


def test_changes_of_an_administrator_are_in_the_audit_log_before_and_after():
    with audit_path() as path:
        with Server("--audit-log", path) as s:
            equal(s.request("PUT", "/v1/admin/fairness",
                json.dumps({"max_timeslice_tokens": 77}), X_Request_Id="own")[0], 200)
            equal(s.request("DELETE", "/v1/admin/cache", "")[0], 200)
        fairness, cache = audit_lines(path)[1:]
        equal((fairness["event"], fairness["action"], fairness["request_id"]),
            ("change", "fairness.changed", "own"))
        equal([fairness[m]["max_timeslice_tokens"] for m in ("before", "after")], [0, 77])
        equal((cache["action"], cache["before"]), ("cache.flushed", {"responses": 0}))
        equal(verify_audit(path), 0)


def test_the_audit_log_is_searched_by_filters_and_in_pages():
    def page(s, query="", **fields):
        status, _, text = s.get("/v1/admin/audit" + query, **fields)
        return status, json.loads(text)

    def lines(s, query=""):
        status, body = page(s, query)
        equal(status, 200, body)
        return body["data"]

    def ctl(s, *arguments):
        done = subprocess.run([program("inferctl"), "--url", s.url, "--api-key", "root", "admin",
            "audit", "list", *arguments], capture_output=True, text=True)
        return done.returncode, done.stdout

    with audit_path() as path:
        with Server("--audit-log", path, env={"INFERFLUX_API_KEYS": "alpha,root:admin"},
                key="root") as s:
            s.url = f"http://127.0.0.1:{s.port}"
            for _ in range(5):
                s.request("POST", CHAT, chat_body(model="echo", script="x"))
            s.request("POST", CHAT, chat_body(model="demo", max_tokens=1),
                Authorization="Bearer alpha")
            equal(s.request("POST", CHAT, "{", X_Request_Id="own")[0], 400)
            until(lambda: len(lines(s)) == 8, "the lines are not in the index")
            alpha, = lines(s, "?model=demo")
            equal([len(lines(s, q)) for q in ("?action=generate", "?action=refused", "?status=400",
                f"?key={alpha['key']}", "?key=", "?model=echo&status=200", "?tenant=x",
                "?from=2000-01-01T00:00:00Z", "?to=2000-01-01T00:00:00Z", "?from=9999999999")],
                [6, 1, 1, 1, 1, 5, 0, 8, 0, 0])
            equal(lines(s, "?status=400")[0]["request_id"], "own")
            got, query = [], "?limit=3"
            while query:
                body = page(s, query)[1]
                got += body["data"]
                query = f"?limit=3&before={body['next_before']}" if body["has_more"] else ""
            equal([line["seq"] for line in got], list(range(7, -1, -1)))
            with open(path) as f:  # the bytes of the log
                equal(got[::-1], [json.loads(line) for line in f][:8])
            for query, name in (("?limit=501", "limit"), ("?limit=0", "limit"), ("?from=x", "from"),
                    ("?status=7", "status"), ("?before=-1", "before"), ("?a=1", "a"),
                    ("?key=" + "k" * 300, "key"), ("?model=%zz", "model")):
                status, body = page(s, query)
                equal((status, name in json.dumps(body)), (400, True), body)
            equal(page(s, Authorization="Bearer alpha")[0], 403)
            equal(ctl(s, "--action", "generate", "--json", "--limit", "6")[0], 0)
            equal(len(ctl(s, "--action", "generate", "--limit", "4")[1].splitlines()), 4)
            equal(len(ctl(s, "--json", "--model", "demo")[1].splitlines()), 1)
            equal(ctl(s, "--limit", "0")[0], 2)
            equal(ctl(s, "--from", "x")[0], 1)
        with Server() as s:
            equal(page(s)[0], 501)


def test_the_address_of_the_client_is_accepted_from_proxies_only():
    def peer(s, **fields):
        equal(s.get("/v1/nowhere", X_Request_Id="own", **fields)[0], 404)
        until(lambda: metric(s, "audit_lines_total") > peer.n, "the line was not written")
        peer.n = metric(s, "audit_lines_total")
        return audit_lines(s.path)[-1]["peer"]

    forwarded = {"Forwarded": 'for=192.0.2.9, for="[2001:db8::7]:99", for=10.1.2.3'}
    for proxies, fields, want in (
            ([], forwarded, "127.0.0.1"),
            ([], {"X_Forwarded_For": "192.0.2.9"}, "127.0.0.1"),
            (["--proxies", "10.0.0.0/8"], forwarded, "127.0.0.1"),
            (["--proxies", "127.0.0.1,10.0.0.0/8"], forwarded, "2001:db8::7"),
            (["--proxies", "127.0.0.0/8"], forwarded, "10.1.2.3"),
            (["--proxies", "127.0.0.1"], {"X_Forwarded_For": "192.0.2.9, 192.0.2.10"}, "192.0.2.10"),
            (["--proxies", "127.0.0.1"], {"Forwarded": "proto=https"}, "unknown"),
            (["--proxies", "127.0.0.1"], {}, "127.0.0.1")):
        with audit_path() as path:
            with Server("--audit-log", path, *proxies) as s:
                s.path, peer.n = path, 0
                equal(peer(s, **fields), want)
                if proxies == ["--proxies", "127.0.0.1"]:
                    status, _, text = s.get("/v1/models", Forwarded="for=")
                    equal((status, b"Forwarded" in text), (400, True))
                    # without keys, administration is for loopback clients only
                    equal(s.get("/v1/admin/cache", Forwarded="for=192.0.2.9")[0], 403)
                    equal(s.get("/v1/admin/cache")[0], 200)


def test_refused_requests_are_in_the_audit_log_with_their_reason():
    config = CONFIG + "  - id: broken\n    path: /nonexistent.gguf\n"
    large = b"POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alpha\r\n" \
            b"Content-Length: 99999999\r\n\r\n" % CHAT.encode()
    prompt = {"messages": [{"role": "user", "content": "secret"}]}
    with audit_path() as path:
        with Server("--audit-log", path, config=config, ready=False,
                    env={"INFERFLUX_API_KEYS": "alpha,root:admin"}, key="alpha") as s:
            until(lambda: metric(s, "models_ready") == 2, "the models did not load")
            own = {"X-Request-Id": "own"}
            broken = chat_body(model="broken")
            until(lambda: b"could not be" in s.request("POST", CHAT, broken)[2], "no failed model")
            got = [
                s.request("POST", CHAT, "{}", Authorization="Bearer nope", **own)[0],
                s.request("POST", CHAT, "{}", Authorization="", **own)[0],
                s.get("/v1/admin/cache", **own)[0],
                s.request("POST", CHAT, "{", **own)[0],
                s.request("POST", CHAT, json.dumps({**prompt, "temperature": "secret"}), **own)[0],
                s.request("POST", CHAT, json.dumps({**prompt, "model": "secret"}), **own)[0],
                s.request("POST", CHAT, broken, **own)[0],
                s.request("POST", "/tokenize", "{", **own)[0],
                s.request("POST", "/v1/messages", "{", **own)[0],
                s.get("/v1/nowhere?q=secret", **own)[0],
                s.get(CHAT, **own)[0],
                s.get("/v1/models", X_Request_Timeout_Ms="x", **own)[0],
            ]
            equal(got, [401, 401, 403, 400, 400, 404, 503, 400, 400, 404, 405, 400])
            with s.connect() as c:
                c.sendall(large)
                assert read_until(c, lambda d: b"\r\n\r\n" in d).startswith(b"HTTP/1.1 413")
            equal(s.get("/livez")[0], 200)
            until(lambda: metric(s, "audit_lines_total") >= 14, "the lines were not written")
            equal(metric(s, "audit_lines_lost_total"), 0)
            equal(metric(s, "audit_failures_total"), 0)
        lines = [line for line in audit_lines(path) if line.get("request_id") == "own"]
        equal([line["status"] for line in lines], got)
        equal([line["reason"] for line in lines], [
            "AUTH", "AUTH", "FORBIDDEN", "SYNTAX", "INVALID", "NOT_FOUND", "NOT_READY", "SYNTAX",
            "SYNTAX", "NOT_FOUND", "METHOD", "RANGE"])
        equal({line["event"] for line in lines}, {"refused"})
        equal([line["key"] == "" for line in lines[:3]], [True, True, False])
        equal(lines[9]["route"], "/v1/nowhere")
        equal(lines[0]["peer"], "127.0.0.1")
        text = json.dumps(audit_lines(path))
        assert "secret" not in text and '"status": 413' in text and "TOO_LARGE" in text
        equal(verify_audit(path), 0)


def test_a_request_above_the_share_of_its_key_is_in_the_audit_log_as_429():
    upload = b"POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alpha\r\n" \
             b"X-Request-Id: own\r\nContent-Length: 900000\r\n\r\n" % CHAT.encode()
    with audit_path() as path, contextlib.ExitStack() as held:
        s = held.enter_context(Server("--audit-log", path, "--max-bodies", "4M",
            env={"INFERFLUX_API_KEYS": "alpha,beta"}, key="alpha"))
        status = b""
        for _ in range(8):  # the share of alpha is 2 MB
            c = held.enter_context(s.connect())
            c.sendall(upload + b" " * 800000)
            c.settimeout(1)
            with contextlib.suppress(TimeoutError):
                status = c.recv(100)
                break
        assert status.startswith(b"HTTP/1.1 429"), status
        body = chat_body(max_tokens=1)
        equal(s.request("POST", CHAT, body, Authorization="Bearer beta")[0], 200)
        until(lambda: metric(s, "audit_lines_total") >= 2, "the lines were not written")
        line, = [line for line in audit_lines(path) if line.get("request_id") == "own"]
        equal((line["event"], line["status"], line["reason"]), ("refused", 429, "RATE"))
        assert line["key"], line


def test_sighup_reopens_the_audit_log_during_traffic():
    with audit_path() as path:
        n_sent, over = [0] * 4, threading.Event()

        def client(s, i):
            while not over.is_set():
                equal(s.request("POST", CHAT, chat_body(model="echo", script="x"))[0], 200)
                n_sent[i] += 1

        with Server("--audit-log", path) as s:
            clients = [threading.Thread(target=client, args=(s, i)) for i in range(len(n_sent))]
            for c in clients:
                c.start()
            old = []
            for i in range(1, 6):
                until(lambda: min(n_sent) > 2 * i, "no traffic")
                old.append(f"{path}.{i}")
                os.rename(path, old[-1])
                s.process.send_signal(signal.SIGHUP)
                until(lambda: os.path.exists(path), "the audit log was not reopened")
                s.process.send_signal(signal.SIGHUP)  # the file is the same
            over.set()
            for c in clients:
                c.join()
        lines = [line for p in [*old, path] for line in audit_lines(p)]
        equal(sum("finish" in line for line in lines), sum(n_sent))
        equal(sum(line.get("reason") == "reopened" for line in lines), 2 * 5)
        equal(verify_audit(*old, path), 0)
        equal(verify_audit(old[1], old[0]), 1)


def test_requests_are_refused_while_the_audit_log_is_full():
    with audit_path() as path:
        with Server("--audit-log", path, "--audit-when-full", "refuse") as s:
            body, n_done = chat_body(model="echo", script="x"), 0
            resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
            c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
            status = 200
            while status == 200:
                c.request("POST", CHAT, body, {"Content-Type": "application/json"})
                r = c.getresponse()
                status, text = r.status, r.read()
                n_done += status == 200
                assert n_done < 100000, "no request was refused"
            c.close()
            equal(status, 503, text)
            assert b"audit log" in text, text
            equal(s.get("/livez")[0], 200)
            infinity = resource.RLIM_INFINITY
            resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, (infinity, infinity))
            until(lambda: s.request("POST", CHAT, body)[0] == 200, "requests are still refused")
        lines = audit_lines(path)
        equal(sum("finish" in line for line in lines), n_done + 1)
        equal(verify_audit(path), 0)


def fill_audit_queue(s, body):
    """Sends requests until one waits for the audit log. Returns their number and its connection."""
    n_done = 0
    while True:
        c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
        c.request("POST", CHAT, body, {"Content-Type": "application/json"})
        c.sock.settimeout(1)
        try:
            while True:
                equal(c.getresponse().read() != b"", True)
                n_done += 1
                assert n_done < 100000, "no request waited"
                c.request("POST", CHAT, body, {"Content-Type": "application/json"})
        except TimeoutError:
            if metric(s, "requests_waiting_for_audit") == 1:
                return n_done, c
            c.close()  # the machine is slow: the request was not waiting


def test_requests_wait_while_the_audit_log_is_full():
    infinity = resource.RLIM_INFINITY
    with audit_path() as path:
        with Server("--audit-log", path, "--audit-when-full", "block") as s:
            body = chat_body(model="echo", script="x")
            resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, (100, infinity))
            n_done, first = fill_audit_queue(s, body)
            waiting = [s.connect() for _ in range(3)]
            head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%s\r\n%s"
            for c in waiting:
                c.sendall(head % (CHAT.encode(), len(body), b"", body.encode()))
            until(lambda: metric(s, "requests_waiting_for_audit") == 4, "the requests do not wait")
            equal(s.get("/livez")[0], 200)  # the event loop runs
            waiting.pop().close()
            until(lambda: metric(s, "requests_waiting_for_audit") == 3, "the client has left")
            equal(s.request("POST", CHAT, body, X_Request_Timeout_Ms="100")[0], 504)
            equal(metric(s, "requests_waiting_for_audit"), 3)
            resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, (infinity, infinity))
            for c in waiting:
                assert read_until(c, lambda d: b"\r\n\r\n" in d).startswith(b"HTTP/1.1 200")
            first.sock.settimeout(60)
            equal(first.getresponse().status, 200)
            first.close()
            equal(metric(s, "audit_lines_lost_total"), 1)  # of the refused request
        equal(sum("finish" in line for line in audit_lines(path)), n_done + 3)
        equal(verify_audit(path), 0)


def test_a_server_drains_while_a_request_waits_for_the_audit_log():
    with audit_path() as path:
        with Server("--audit-log", path, "--audit-when-full", "block", "--drain-timeout", "200") as s:
            resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
            _, c = fill_audit_queue(s, chat_body(model="echo", script="x"))
            s.process.send_signal(signal.SIGTERM)
            c.sock.settimeout(60)
            equal(c.getresponse().status, 503)
            c.close()
            equal(s.process.wait(60), 0)


def make_certificate(d, cn):
    """Writes cert.pem and key.pem, each by a rename."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
        "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", f"/CN={cn}", "-keyout",
        f"{d}/key.new", "-out", f"{d}/cert.new"], check=True, capture_output=True)
    for name in ("key", "cert"):
        os.rename(f"{d}/{name}.new", f"{d}/{name}.pem")


def test_certificates_are_reloaded_without_dropping_a_stream():
    def certificate(s):
        return ssl.get_server_certificate(("127.0.0.1", s.port))

    with tempfile.TemporaryDirectory() as d:
        make_certificate(d, "first")
        with Server("--ssl-cert-file", f"{d}/cert.pem", "--ssl-key-file", f"{d}/key.pem",
                ready=False) as s:
            context = ssl._create_unverified_context()
            def connect():
                return http.client.HTTPSConnection("127.0.0.1", s.port, timeout=60, context=context)
            first = certificate(s)
            def is_ready():
                c = connect()
                c.request("GET", "/readyz")
                status = c.getresponse().status
                c.close()
                return status == 200
            until(is_ready, "the server is not ready")
            stream = connect()
            stream.request("POST", CHAT, chat_body(model="demo", stream=True, max_tokens=900,
                min_tokens=900, ignore_eos=True), {"Content-Type": "application/json"})
            r = stream.getresponse()
            equal(r.status, 200)
            head = r.read(100)
            make_certificate(d, "second")
            s.process.send_signal(signal.SIGHUP)
            until(lambda: certificate(s) != first, "SIGHUP does not reload the certificate")
            second = certificate(s)
            make_certificate(d, "third")  # without a signal
            until(lambda: certificate(s) != second, "a changed file is not reloaded")
            third = certificate(s)
            with open(f"{d}/cert.pem", "w") as f:
                f.write("broken")
            until(lambda: "tls_reload_failed" in s.errors(), "no error")
            equal(certificate(s), third)  # the last good certificate remains
            assert (head + r.read()).endswith(b"data: [DONE]\n\n")
            stream.close()


def test_sighup_without_an_audit_log_has_no_effect():
    with Server() as s:
        s.process.send_signal(signal.SIGHUP)
        until(lambda: "reopen" in s.errors(), "SIGHUP was not received")
        equal(s.get("/livez")[0], 200)


if __name__ == "__main__":
    run(globals())
