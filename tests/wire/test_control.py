#!/usr/bin/env python3
"""Control of requests over HTTP: deadlines, cancellation, and responses to wrong methods."""
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
sys.path.insert(0, os.path.join(ROOT, "tests/wire"))
from harness import Server, equal, program, read_all, read_until, run
from test_disconnect import CHAT, Line, big_prompt, chat, send, tiny_model

SLOW = {"text": "word " * 3000, "delay_ms": 20}


def fields_of(head):
    lines = head.decode().split("\r\n")[1:]
    return {k.lower(): v for k, v in (line.split(": ", 1) for line in lines if ": " in line)}


def head_of(c):
    return fields_of(read_until(c, lambda data: b"\r\n\r\n" in data, 1))


def test_a_wrong_method_gets_the_allowed_methods():
    with Server() as s:
        for method, path, allow, kind in (
                ("GET", CHAT, "POST", "application/json"),
                ("PUT", "/v1/models/demo", "GET, HEAD", "application/json"),
                ("POST", "/metrics", "GET, HEAD", "application/problem+json"),
                ("GET", "/v1/requests/req_1", "DELETE", "application/json"),
                ("DELETE", "/tokenize", "POST", "application/json")):
            status, fields, body = s.request(method, path, None)
            equal((status, fields["allow"], fields["content-type"]), (405, allow, kind), path)
            answer = json.loads(body)
            code = answer["code"] if "problem" in kind else answer["error"]["code"]
            equal(code, "method_not_allowed", path)
        equal(s.request("HEAD", "/livez", None)[0], 200)
        equal(s.request("GET", "/v1/requests/", None)[0], 404)
        status, fields, _ = s.request("OPTIONS", CHAT, None)
        equal((status, fields["allow"]), (405, "POST"))


def echoed(server, **more):
    """Returns (text, logprobs of its tokens) for each frame of an echoed completion."""
    body = {"model": "demo", "echo": True, "logprobs": 2, "temperature": 0, **more}
    if not body.get("stream"):
        c = json.loads(server.request("POST", "/v1/completions", json.dumps(body))[2])["choices"][0]
        return [(c["text"], c["logprobs"])]
    data = server.request("POST", "/v1/completions", json.dumps(body))[2].decode()
    frames = [json.loads(x[6:]) for x in data.split("\n\n") if x.startswith("data: {")]
    return [(f["choices"][0]["text"], f["choices"][0]["logprobs"]) for f in frames]


def test_an_echoed_stream_has_each_text_with_its_logprob():
    with Server() as s:
        tokens = json.loads(s.request("POST", "/tokenize",
            json.dumps({"content": "Wörter 🙂 like these"}))[2])["tokens"]
        for prompt in ("Hello, what is 3 plus 4?", "Wörter 🙂 like these", "x", tokens,
                "<|im_start|>user\nHi<|im_end|>\n"):
            for n in (0, 3):
                (text, want), = echoed(s, prompt=prompt, max_tokens=n)
                frames = echoed(s, prompt=prompt, max_tokens=n, stream=True)
                equal("".join(t for t, _ in frames), text, prompt)
                gathered = {k: sum((f[k] for _, f in frames if f), []) for k in want}
                equal(gathered, want, prompt)
                equal(want["token_logprobs"][0], None)
                assert all(x < 0 for x in want["token_logprobs"][1:]), want
                # The text of a frame is that of its tokens: no text precedes its logprobs.
                shown = token_text = ""
                for t, f in frames:
                    shown += t
                    token_text += "".join(f["tokens"]) if f else ""
                    assert "\\x" in token_text or token_text.startswith(shown), (shown, token_text)
                if prompt == "Hello, what is 3 plus 4?":
                    assert len([t for t, f in frames if t]) > 5, frames
        # The prompt of a script model has no scores: it is echoed unchanged.
        frames = echoed(s, prompt="one two", model="echo", script=" three", stream=True)
        equal("".join(t for t, _ in frames), "one two three")


def error_of(body):
    return json.loads(body)["error"]


def test_a_deadline_ends_a_request_with_an_error():
    with Server("--max-body", "16M") as s:
        line = Line(s)
        for bad in ("0", "-1", "1.5", "soon", "99999999999", ""):
            status, _, body = s.request("POST", CHAT, json.dumps(chat()), x_request_timeout_ms=bad)
            equal((status, error_of(body)["param"]), (400, "x-request-timeout-ms"), bad)
        # Deadline before the response has begun: an error status.
        began = time.monotonic()
        status, fields, body = s.request("POST", CHAT, json.dumps(chat(model="echo", script=SLOW)),
            x_request_timeout_ms="100")
        taken = time.monotonic() - began
        equal((status, error_of(body)["code"], fields["x-should-retry"]), (504, "timeout", "false"))
        assert 0.1 <= taken < 30, taken  # the response would take a minute
        # Deadline in a stream: the frames so far, then an error frame, and no [DONE].
        status, _, body = s.request("POST", CHAT,
            json.dumps(chat(model="echo", script=SLOW, stream=True)), x_request_timeout_ms="1500")
        frames = body.decode().strip().split("\n\n")
        equal(status, 200)
        assert '"content":"w' in body.decode(), frames
        equal(error_of(frames[-1][6:])["code"], "timeout")
        # Deadline while a long prompt is tokenized.
        status, _, body = s.request("POST", "/v1/completions",
            json.dumps({"model": "echo", "prompt": big_prompt(8 << 20)}), x_request_timeout_ms="20")
        equal((status, error_of(body)["code"]), (504, "timeout"))
        status, _, body = s.request("POST", "/tokenize",
            json.dumps({"content": big_prompt(8 << 20)}), x_request_timeout_ms="20")
        equal((status, error_of(body)["code"]), (504, "timeout"))
        line.until(lambda m: m["requests_running"] == 0, "all are gone")
        sums = line.invariants()
        assert sums["ok"] and sums["sequences"] == 0, sums
        equal(sums["pages"]["free"] + sums["pages"]["cached"], sums["pages"]["total"])
        equal(line.metrics()["requests_timed_out_total"], 3.0)
        # A deadline that is met has no effect.
        equal(s.request("POST", CHAT, json.dumps(chat(model="echo", script="quick")),
            x_request_timeout_ms="30000")[0], 200)


def test_deadlines_and_cancels_reach_the_queue_and_the_prefill():
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model(folder)
        with Server("--model", model, "--parallel", "1", "--ubatch-size", "64", config=None) as s:
            first = send(s, "/v1/completions", {"prompt": [5 + i % 97 for i in range(8000)],
                "max_tokens": 10, "stream": True})
            line = Line(s)
            line.until(lambda m: m["scheduler_steps_total"] >= 1, "the first")
            status, _, body = s.request("POST", "/v1/completions",
                json.dumps({"prompt": [5] * 9, "max_tokens": 1}), x_request_timeout_ms="50")
            # The request waited until its deadline, or was rejected at submission.
            assert (status, error_of(body)["code"]) in ((504, "timeout"), (503, "queue_full")), body
            equal(line.metrics()["generated_tokens_total"], 0.0)  # it waited, to the end
            equal(line.invariants()["requests"], {"running": 1, "waiting": 0})
            equal(cancel(s, head_of(first)["x-request-id"])[0], 200)
            line.until(lambda m: m["requests_running"] == 0, "it is gone")
            equal(line.metrics()["generated_tokens_total"], 0.0)
            equal(line.invariants()["sequences"], 0)
            first.close()


def test_the_server_has_its_own_limits():
    with Server("--chat-timeout", "150", "--completion-timeout", "1000000") as s:
        status, _, body = s.request("POST", CHAT, json.dumps(chat(model="echo", script=SLOW)),
            x_request_timeout_ms="100000")
        equal((status, error_of(body)["code"]), (504, "timeout"))
        equal(s.request("POST", "/v1/completions", json.dumps(
            {"model": "echo", "prompt": "x", "script": {"text": "a b c", "delay_ms": 100}}))[0], 200)


def test_a_rejected_request_gets_retry_after_at_once():
    with Server("--parallel", "1", "--max-queue", "1", "--batch", "1") as s:
        line = Line(s)
        body = json.dumps(chat(model="echo", script=SLOW)).encode()
        inside = [send(s, CHAT, json.loads(body)) for _ in range(2)]
        line.until(lambda m: m["requests_running"] == 2, "it is full")
        times = []
        for _ in range(30):
            began = time.monotonic()
            status, head, answer = line.ask(CHAT, "POST", body)
            times.append(time.monotonic() - began)
            equal((status, error_of(answer)["code"]), (503, "queue_full"))
            assert int(fields_of(head)["retry-after"]) >= 1
        print(f"     refused in {statistics.median(times) * 1e3:.2f} ms")
        assert statistics.median(times) < 0.5, times  # no place becomes free for a minute
        for c in inside:
            c.close()


def cancel(server, request_id, **fields):
    return server.request("DELETE", f"/v1/requests/{request_id}", None, **fields)


def test_a_request_is_cancelled_by_its_id():
    with Server("--parallel", "1", "--threads-http", "3") as s:
        streams = [send(s, CHAT, chat(model="echo", script=SLOW, stream=True)) for _ in range(4)]
        ids = [head_of(c)["x-request-id"] for c in streams]
        equal(len(set(ids)), 4)
        for i in (2, 0, 3, 1):  # running or queued, on any thread
            status, fields, body = cancel(s, ids[i])
            equal((status, json.loads(body)),
                (200, {"id": ids[i], "object": "request", "cancelled": True}))
            data = read_until(streams[i], lambda data: b"error" in data)
            assert b"[DONE]" not in data and b'"code":"cancelled"' in data, data
            status, _, body = cancel(s, ids[i])
            equal((status, error_of(body)["code"]), (404, "request_not_found"))
        line = Line(s)
        line.until(lambda m: m["requests_running"] == 0, "all are gone")
        equal(line.metrics()["requests_cancelled_total"], 4.0)
        for nobody in ("req_0", "x" * 3000, "%41", "req_/../x"):
            equal(cancel(s, nobody)[0], 404, nobody)
        for c in streams:
            c.close()


def test_inferctl_cancels():
    with Server() as s:
        c = send(s, CHAT, chat(model="echo", script=SLOW, stream=True))
        its = head_of(c)["x-request-id"]
        ctl = lambda *args: subprocess.run([program("inferctl"), "--url", s.url, *args],
            capture_output=True, text=True, timeout=60)
        r = ctl("cancel", its)
        equal((r.returncode, r.stdout, r.stderr), (0, f"{its} cancelled\n", ""))
        r = ctl("--json", "cancel", its)
        equal((r.returncode, r.stdout), (1, ""))
        equal(r.stderr, f"inferctl: the server responded with status 404: No request '{its}' is waiting or running.\n")
        equal(ctl("cancel").returncode, 2)
        c.close()


def test_every_phase_can_be_cancelled():
    with Server() as s:
        line = Line(s)

        # A response that has not begun has no id yet: the client may set one.
        for what, path, body in (
                ("running", CHAT, chat(model="echo", script=SLOW)),
                ("being read", "/v1/completions", {"model": "demo", "prompt": big_prompt(12 << 20)})):
            c, own = Line(s), f"mine-{what.split()[0]}"
            data = json.dumps(body).encode()
            c.s.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: {own}\r\n"
                f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
            line.until(lambda m: m["requests_running"] == 1, what)
            equal(cancel(s, own)[0], 200, what)
            status, head, answer = c.answer()
            equal((status, error_of(answer)["code"]), (499, "cancelled"), what)
            fields = fields_of(head)
            equal((fields["x-should-retry"], fields["x-request-id"]), ("false", own), what)
            line.until(lambda m: m["requests_running"] == 0, what)
        equal(s.get("/livez", X_Request_Id="no good")[1]["x-request-id"][:4], "req_")

        # A client that does not read: its sequence is parked, and is cancelled nevertheless.
        slow = s.connect()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        data = json.dumps(chat(model="echo", script="x y " * 500000, stream=True,
            max_tokens=100000)).encode()
        slow.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode()
            + data)
        blocked = head_of(slow)["x-request-id"]
        steps = -1
        while steps != (now := line.metrics()["scheduler_steps_total"]):
            steps = now
            time.sleep(0.2)
        equal(line.metrics()["requests_running"], 1.0)
        equal(cancel(s, blocked)[0], 200)
        line.until(lambda m: m["requests_running"] == 0, "it is gone")
        slow.close()
        sums = line.invariants()
        assert sums["ok"] and sums["sequences"] == 0, sums


def long_answer(own, **more):
    return own, {"model": "demo", "messages": [{"role": "user", "content": f"Count, {own}."}],
        "seed": 3, "temperature": 0, "ignore_eos": True, "stream": True, "max_tokens": 900, **more}


def begin_named(s, own, body):
    c, data = s.connect(), json.dumps(body).encode()
    c.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: {own}\r\n"
        f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return c


def n_draft_tokens(line):
    text = line.ask("/metrics")[2].decode()
    return sum(map(int, re.findall(r"spec_decode_draft_tokens_total\S* (\d+)", text)))


def test_cancelled_sequence_ends_before_the_next_step():
    """The engine reads the cancellation before the next request, both between the same two
    steps: the state that this test then reads exists at most one step after the cancellation,
    independent of the load of the machine."""
    def cancel_all(s, line, asked, what):
        for n, (own, c) in reversed(list(enumerate(asked))):
            equal(cancel(s, own)[0], 200, what)
            sums = line.invariants()
            assert sums["ok"], (what, sums)
            equal(sums["sequences"], n, what)
            c.close()
        equal(sums["pages"]["owned"], 0, what)

    with Server("--parallel", "1", "--fairness-timeslice", "2", "--max-sequences", "8") as s:
        line = Line(s)
        # three sequences: one runs, two were preempted by their time slice
        for order in (0, 1):
            asked = [(own, begin_named(s, own, body))
                for own, body in (long_answer(f"turn-{order}-{i}") for i in range(3))]
            line.until(lambda m: m["fairness_queue_depth"] == 2, "two sequences are preempted")
            cancel_all(s, line, asked[::-1] if order else asked, "yielded")
    with Server("--draft-min", "8") as s:
        line = Line(s)
        own, body = long_answer("guess", prediction={"type": "content", "content": "a b c " * 200})
        asked = [(own, begin_named(s, own, body))]
        line.until(lambda m: n_draft_tokens(line) > 0, "draft tokens are proposed")
        cancel_all(s, line, asked, "speculating")


LOADING = """
models:
  - id: echo
    backend: script
    path: {root}/models/demo.gguf
  - id: slow
    path: {slow}
  - id: demo
    path: {root}/models/demo.gguf
"""


class Loading:
    """A server that loads its model demo only after `load`: an open of the file of the model before it
    returns only then (tests/support/slow_open.c), and the file is not a model."""

    def __init__(self, *flags):
        self.dir = tempfile.TemporaryDirectory()
        self.slow = os.path.join(self.dir.name, "slow.gguf")
        library = os.path.join(self.dir.name, "slow_open.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, os.path.join(ROOT, "tests/support/slow_open.c")],
            check=True)
        open(self.slow, "w").close()
        os.mkfifo(self.slow + ".go")
        env = {"LD_PRELOAD": library, "SLOW_OPEN": self.slow,
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
        self.server = Server(*flags, config=LOADING.format(slow=self.slow, root=ROOT), ready=False, env=env)
        self.is_loaded = False

    def load(self):
        if not self.is_loaded:
            os.close(os.open(self.slow + ".go", os.O_WRONLY))
        self.is_loaded = True

    def __enter__(self):
        self.server.__enter__()
        return self

    def __exit__(self, *why):
        self.load()
        self.server.__exit__(*why)
        self.dir.cleanup()


def small(**more):
    return chat(model="demo", temperature=0, max_tokens=8, **more)


def test_a_request_may_wait_for_its_model():
    large = small()
    large["messages"] = [{"role": "user", "content": "Hi."}]
    large["metadata"] = {f"k{i}": "v" * 400 for i in range(12)}
    large["padding"] = "x" * 40000  # so that a worker thread parses it
    with Loading("--load-wait", "60000", "--threads-http", "2") as l:
        s, line = l.server, Line(l.server)
        bodies = [small(), small(stream=True), large,
            {"model": "demo", "prompt": "x", "max_tokens": 3}]
        paths = [CHAT, CHAT, CHAT, "/v1/completions"]
        asked = [send(s, p, b) for p, b in zip(paths, bodies)]
        line.until(lambda m: m["requests_loading"] == 4, "all wait")
        # A waiting request can be cancelled, time out, or be disconnected.
        status, _, body = s.request("POST", CHAT, json.dumps(small()), x_request_timeout_ms="50")
        equal((status, error_of(body)["code"]), (504, "timeout"))
        for i, path in enumerate((CHAT, CHAT)):
            c, own = Line(s), f"mine-{i}"
            data = json.dumps(large if i else small()).encode()
            c.s.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: {own}\r\n"
                f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
            line.until(lambda m: m["requests_loading"] == 5, "one more")
            equal(cancel(s, own)[0], 200)
            status, _, answer = c.answer()
            equal((status, error_of(answer)["code"]), (499, "cancelled"))
            line.until(lambda m: m["requests_loading"] == 4, "it is gone")
        gone = send(s, CHAT, small())
        line.until(lambda m: m["requests_loading"] == 5, "one more")
        gone.close()
        line.until(lambda m: m["requests_loading"] == 4, "the client has disconnected")
        # No request waits for a model that failed to load.
        l.load()
        answers = []
        for c in asked:
            answers.append(read_until(c, lambda data: data.endswith((b"[DONE]\n\n", b"0\r\n\r\n"))
                or (b"content-length" in data.lower() and data.endswith(b"}"))))
            c.close()
        for data in answers:
            assert data.startswith(b"HTTP/1.1 200"), data
        line.until(lambda m: m["requests_running"] == 0, "all requests have ended")
        equal(line.metrics()["requests_loading"], 0.0)
        status, _, body = s.request("POST", CHAT, json.dumps({**small(), "model": "slow"}))
        equal((status, error_of(body)["code"]), (503, "model_not_ready"))
        sums = line.invariants()
        assert sums["ok"] and sums["sequences"] == 0, sums


def test_waiting_for_a_model_has_an_end():
    with Loading() as l:  # by default requests do not wait for a model
        began = time.monotonic()
        status, fields, body = l.server.request("POST", CHAT, json.dumps(small()))
        equal((status, error_of(body)["code"]), (503, "model_not_ready"))
        assert int(fields["retry-after"]) >= 1 and time.monotonic() - began < 30
    with Loading("--load-wait", "100") as l:
        began = time.monotonic()
        status, fields, body = l.server.request("POST", CHAT, json.dumps(small()))
        taken = time.monotonic() - began
        equal((status, error_of(body)["code"]), (503, "model_not_ready"))
        assert 0.1 <= taken < 30, taken
        assert int(fields["retry-after"]) >= 1
    with Loading("--load-wait", "60000", "--drain-timeout", "100") as l:
        s, line = l.server, Line(l.server)
        c = send(s, CHAT, small())
        line.until(lambda m: m["requests_loading"] == 1, "it waits")
        s.process.send_signal(signal.SIGTERM)
        data = read_all(c)
        assert data.startswith(b"HTTP/1.1 503") and b"shutting_down" in data, data
        c.close()
        l.load()
        equal(s.process.wait(60), 0)


def test_requests_cut_by_the_drain_deadline_get_an_error():
    with Server("--drain-timeout", "300") as s:
        streams = [send(s, CHAT, chat(model="echo", script=SLOW, stream=True)) for _ in range(3)]
        streams.append(send(s, CHAT, chat(model="echo", script=SLOW)))
        line = Line(s)
        line.until(lambda m: m["requests_running"] == 4, "all run")
        s.process.send_signal(signal.SIGTERM)
        for i, c in enumerate(streams):
            data = read_all(c)
            assert b'"code":"shutting_down"' in data, data[-400:]
            if i < 3:
                assert b"[DONE]" not in data and data.endswith(b"0\r\n\r\n"), data[-100:]
            c.close()
        equal(s.process.wait(60), 0)


def test_only_requests_of_the_same_key_can_be_cancelled():
    env = {"INFERFLUX_API_KEYS": "alpha,beta,root:admin"}
    with Server("--threads-http", "2", env=env, ready=False) as s:
        key = lambda k: {"Authorization": f"Bearer {k}"}
        deadline = time.monotonic() + 60
        while s.get("/readyz")[0] != 200:
            assert time.monotonic() < deadline

        def begin():
            c = s.connect()
            data = json.dumps(chat(model="echo", script=SLOW, stream=True)).encode()
            while True:  # until both models are loaded
                c = s.connect()
                c.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alpha\r\n"
                    f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
                head = head_of(c)
                if "event-stream" in head["content-type"]:
                    return c, head["x-request-id"]
                assert time.monotonic() < deadline
                c.close()

        c, its = begin()
        equal(cancel(s, its)[0], 401)
        equal(cancel(s, its, **key("beta"))[0], 404)
        equal(cancel(s, its, **key("alpha"))[0], 200)
        c.close()
        c, its = begin()
        equal(cancel(s, its, **key("root"))[0], 200)
        c.close()


if __name__ == "__main__":
    run(globals())
