#!/usr/bin/env python3
"""inferctl and inferfluxd from the command line: commands, exit statuses, terminal use."""
import contextlib
import http.server
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import Server, equal, program, run

DEMO = os.path.join(ROOT, "models/demo.gguf")


def ctl(*args, stdin="", server=None):
    env = {**os.environ, "INFERFLUX_URL": server.url if server else "http://127.0.0.1:9",
        "HOME": "/nonexistent"}
    r = subprocess.run([program("inferctl"), *args], input=stdin, capture_output=True, text=True,
        env=env, timeout=120)
    return r.returncode, r.stdout, r.stderr


def daemon(*args):
    r = subprocess.run([program("inferfluxd"), *args], capture_output=True, text=True, timeout=120)
    return r.returncode, r.stdout, r.stderr


def one_line(text):
    assert text.endswith("\n") and text.count("\n") == 1, text
    return text


def test_usage_errors_are_one_line_and_status_2():
    for args, says in (([], "usage:"), (["fly"], "unknown command 'fly'"),
            (["--nope"], "unknown option --nope"), (["status", "x"], "takes no arguments"),
            (["chat", "--temperature"], "needs a value"), (["completion", "a", "b"], "one prompt"),
            (["chat", "--seed", "x", "hi"], "not a number"), (["inspect"], "which model?"),
            (["bench"], "which file?")):
        status, _, err = ctl(*args)
        equal(status, 2, args)
        assert says in err, (args, err)
    for args, says in ((["--nope"], "unknown flag --nope"), (["--port", "x"], "not a number"),
            (["--port"], "needs a value")):
        status, _, err = daemon(*args)
        equal(status, 2, args)
        assert says in one_line(err), err


def test_failures_are_one_line_and_status_1():
    status, _, err = ctl("status")
    equal(status, 1)
    assert "127.0.0.1:9" in one_line(err), err
    status, _, err = ctl("inspect", "/nonexistent.gguf")
    equal(status, 1)
    assert "/nonexistent.gguf" in one_line(err), err
    status, _, err = ctl("inspect", __file__)
    equal(status, 1)
    one_line(err)
    status, _, err = daemon()
    equal(status, 1)
    assert "no model" in one_line(err), err


def test_help_and_version():
    for name in ("inferctl", "inferfluxd"):
        for flag in ("--help", "--version"):
            r = subprocess.run([program(name), flag], capture_output=True, text=True)
            equal((r.returncode, r.stderr), (0, ""), f"{name} {flag}")
            assert r.stdout.startswith(("usage:", name)), r.stdout
    for command in ("completion", "chat", "inspect", "bench", "replay", "constrain"):
        status, out, _ = ctl(command, "--help")
        equal(status, 0)
        assert out.startswith("usage: inferctl " + command)


def test_status_and_models():
    with Server() as s:
        status, out, _ = ctl("status", server=s)
        equal(status, 0)
        assert re.search(r"^status +ready$", out, re.M), out
        equal(json.loads(ctl("--json", "status", server=s)[1])["status"], "ready")
        status, out, _ = ctl("models", server=s)
        equal(status, 0)
        assert re.search(r"^demo +", out, re.M) and re.search(r"^echo +", out, re.M), out
        equal(len(json.loads(ctl("models", "--json", server=s)[1])["data"]), 2)


def test_one_response_for_an_argument_or_a_pipe():
    with Server() as s:
        equal(ctl("--model", "echo", "chat", "say this", server=s)[:2], (0, "say this\n"))
        equal(ctl("--model", "echo", "chat", stdin="from a pipe", server=s)[:2], (0, "from a pipe\n"))
        equal(ctl("--model", "echo", "chat", "sum up:", stdin="text", server=s)[1],
            "sum up:\n\ntext\n")
        equal(ctl("--model", "echo", "completion", "--no-stream", "abc", server=s)[1], "abc\n")
        status, out, _ = ctl("--model", "demo", "completion", "--max-tokens", "4", "Hello", server=s)
        equal(status, 0)
        lines = ctl("--json", "--model", "echo", "chat", "hi", server=s)[1].splitlines()
        assert all(json.loads(line)["object"] == "chat.completion.chunk" for line in lines)
        status, _, err = ctl("--model", "nobody", "chat", "hi", server=s)
        equal(status, 1)
        assert "404" in one_line(err) and "nobody" in err, err


def test_a_trace_is_replayed():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "trace.csv")
        with open(path, "w") as f:
            f.write("time,prompt,output,prefix\n")
            for i in range(60):
                f.write(f"{i * 0.5},{200 + i // 3 * 20},20,conversation {i % 3}\n")
        status, out, _ = ctl("replay", path)
        equal(status, 0)
        assert "60 requests in" in out and "60 done" in out, out
        warm = json.loads(ctl("replay", "--json", path)[1])
        equal(warm, json.loads(ctl("replay", "--json", path)[1]))
        cold = json.loads(ctl("replay", "--json", "--no-prefix-cache", path)[1])
        equal((warm["done"], cold["done"], cold["hit_rate"]), (60, 60, 0))
        assert warm["hit_rate"] > 0.7 and warm["ttft_s"]["p50"] < cold["ttft_s"]["p50"]
        late = json.loads(ctl("replay", "--json", "--no-prefix-cache", "--speed", "50",
            "--deadline", "6", path)[1])
        assert late["done"] < 60 and late["refused"] + late["dropped"] + late["late"] > 0, late
        with open(path, "a") as f:
            f.write("1,2\n")
        status, _, err = ctl("replay", path)
        equal(status, 1)
        assert "trace.csv:62: expected seconds" in err, err


def test_a_trace_is_replayed_to_a_server():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "trace.csv")
        with open(path, "w") as f:
            for i in range(40):
                f.write(f"{i * 0.02},{40 + i},6,p{i % 2},tenant {i % 2},{i % 3}\n")
        with Server("--parallel", "4") as s:
            began = time.monotonic()
            j = json.loads(ctl("--json", "--model", "demo", "replay", "--live", path, server=s)[1])
            assert time.monotonic() - began > 39 * 0.02
            for who in ("server", "simulator"):
                r = j[who]
                equal((r["requests"], r["done"], r["failed"]), (40, 40, 0), who)
                assert r["hit_rate"] > 0.3 and r["ttft_s"]["p50"] > 0 and r["seconds"] > 0.7, r
                equal(round(r["goodput_tokens_s"] * r["seconds"]), 240, who)
            m = s.get("/metrics")[2].decode()
            assert "inferflux_requests_finished_total 40\n" in m
            assert 'fairness_tokens_total{priority="2"} 78\n' in m, m  # 13 requests of 6 tokens
            status, out, _ = ctl("--model", "demo", "replay", "--live", path, server=s)
            equal(status, 0)
            assert "-- the server\n40 requests" in out and "-- the simulator\n40" in out, out
        # More load than capacity, each request with a deadline: after some have ended, requests
        # that would miss their deadline are rejected at once. On a slow machine that takes a while.
        with Server("--parallel", "1") as s:
            flood = os.path.join(d, "flood.csv")
            with open(flood, "w") as f:
                for i in range(300):
                    f.write(f"{i * 0.0025},60,240,,{i % 2}\n")
            j = json.loads(ctl("--json", "--model", "demo", "replay", "--live", "--deadline", "1",
                flood, server=s)[1])["server"]
            equal(j["done"] + j["refused"] + j["dropped"] + j["late"], 300, j)
            assert j["done"] > 0 and j["refused"] > 0 and j["refused_s"]["p50"] < 0.5, j
        keys = {"INFERFLUX_API_KEYS": "alpha,beta"}
        with Server(env=keys, ready=False) as s:
            s.key = "alpha"
            s.until_ready()
            j = json.loads(ctl("--json", "--api-key", "alpha", "--model", "demo", "replay", "--live",
                "--keys", "alpha, beta", "--speed", "5", path, server=s)[1])["server"]
            equal(j["done"], 40)
            bad = json.loads(ctl("--json", "--api-key", "alpha", "--model", "demo", "replay",
                "--live", "--keys", "wrong", "--speed", "5", path, server=s)[1])["server"]
            equal((bad["done"], bad["failed"]), (0, 40))
            status, _, err = ctl("--api-key", "x", "replay", "--live", path, server=s)
            equal(status, 1)
            assert "401" in one_line(err), err


def test_constrain_checks_and_samples_texts():
    with tempfile.TemporaryDirectory() as d:
        def write(name, text):
            path = os.path.join(d, name)
            with open(path, "w") as f:
                f.write(text)
            return path

        pattern, grammar = write("p", "a+b?[0-9]{2}\n"), write("g", 'root ::= "[" root* "]"\n')
        good, bad, short = write("good", "aab12\n"), write("bad", "aax"), write("short", "aab1")
        status, out, _ = ctl("constrain", "check", "--kind", "regex", pattern, good, bad, short)
        equal(status, 1)
        rows = out.splitlines()
        assert rows[0].endswith("good: accepted"), out
        assert "rejected at byte 2" in rows[1] and "permitted: 0-9 ab" in rows[1], out
        assert "rejected at byte 4: the text is not complete" in rows[2], out
        status, out, _ = ctl("constrain", "check", "--json", "--kind", "regex", pattern, good, bad)
        rows = [json.loads(line) for line in out.splitlines()]
        equal([(r["accepted"], r["at"]) for r in rows], [(True, None), (False, 2)])
        for vocab in ([], ["--vocab", DEMO]):
            args = ["constrain", "sample", "--count", "20", "--seed", "3", *vocab]
            status, out, _ = ctl(*args, "--kind", "regex", pattern)
            equal(status, 0)
            equal(len(out.splitlines()), 20)
            assert all(re.fullmatch("a+b?[0-9]{2}", line) for line in out.splitlines()), out
            equal(ctl(*args, "--kind", "regex", pattern)[1], out)
        status, out, _ = ctl("constrain", "sample", "--kind", "gbnf", grammar)
        equal((status, set(out)), (0, set("[]\n")))
        status, _, err = ctl("constrain", "check", "--kind", "regex", bad, os.path.join(d, "none"))
        equal(status, 1)
        assert "none" in one_line(err), err
        status, _, err = ctl("constrain", "check", "--kind", "gbnf", pattern, good)
        equal(status, 1)
        assert "line 1" in one_line(err), err
    with tempfile.TemporaryDirectory() as d:  # a refused instance is printed to its end, not further
        tests = [{"valid": True, "data": value} for value in ("x" * 60, "y")]
        with open(os.path.join(d, "A---1.json"), "w") as f:
            json.dump({"schema": {"type": "integer"}, "tests": tests}, f)
        lines = ctl("constrain", "bench", d)[2].splitlines()
        for value in ("x" * 60, "y"):
            assert f'A---1.json: a valid instance is refused: "{value}"' in lines, lines
    for args in (["check", "x"], ["sample"], ["bench"], ["fly"], ["check", "--kind", "x"]):
        equal(ctl("constrain", *args)[0], 2, args)


def test_inspect_describes_a_file():
    status, out, _ = ctl("inspect", DEMO)
    equal(status, 0)
    assert "general.architecture" in out and "token_embd.weight" in out, out
    j = json.loads(ctl("inspect", "--json", DEMO)[1])
    assert j, j


def test_bench_prints_a_table_and_csv():
    status, out, err = ctl("bench", "--quick", DEMO)
    equal(status, 0, err)
    assert "prefill" in out and "decode" in out, out
    status, out, err = ctl("bench", "--quick", "--csv", DEMO)
    equal(status, 0, err)
    rows = [line.split(",") for line in out.splitlines()]
    assert len(rows) > 2 and len({len(r) for r in rows}) == 1, out
    json.loads(ctl("--json", "bench", "--quick", DEMO)[1])


def test_bench_of_a_workload_reports_equal_outputs():
    status, out, err = ctl("--json", "bench", "--workload", "edit", "--answer", "24", DEMO)
    equal(status, 0, err)
    row = json.loads(out)
    equal((row["workload"], row["same"]), ("edit", True))
    assert row["tokens_s"] > 0 and row["ratio"] > 0 and row["accepted"] <= row["drafted"], row
    equal(ctl("bench", "--workload", "nonsense", DEMO)[0], 2)


class Terminal:
    """A program on a pseudo terminal."""

    def __init__(self, *args, env):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(args[0], args, {**os.environ, "TERM": "xterm", **env})
        self.text = ""

    def until(self, what, seconds=60):
        """Reads until `what` occurs in the output since the last match."""
        deadline = time.monotonic() + seconds
        while what not in self.text:
            left = deadline - time.monotonic()
            assert left > 0, f"no {what!r} in {self.text!r}"
            if select.select([self.fd], [], [], left)[0]:
                self.text += os.read(self.fd, 65536).decode(errors="replace")
        before, self.text = self.text.split(what, 1)
        return before

    def editing(self, seconds=60):
        """Waits until the program reads single keys: earlier input would go to the terminal's
        line discipline, and Ctrl-C would flush it."""
        deadline = time.monotonic() + seconds
        while termios.tcgetattr(self.fd)[3] & termios.ICANON:
            assert time.monotonic() < deadline, "the editor does not start"
            time.sleep(0.005)

    def more(self, seconds=60):
        """Reads until there is unmatched output."""
        deadline = time.monotonic() + seconds
        while not self.text:
            assert time.monotonic() < deadline, "nothing came"
            if select.select([self.fd], [], [], 0.1)[0]:
                self.text += os.read(self.fd, 65536).decode(errors="replace")

    def say(self, text):
        """Types a text at the prompt."""
        self.until("> ")
        self.editing()
        self.send(text)

    def send(self, text):
        os.write(self.fd, text.encode())

    def wait(self):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    os.read(self.fd, 65536)
                except OSError:
                    pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError("the program did not end")


def test_a_conversation_at_a_terminal():
    with Server() as s:
        t = Terminal(program("inferctl"), "--url", s.url, "--model", "echo", "chat",
            env={"HOME": "/nonexistent"})
        t.until("Ctrl-D ends")
        t.say("parrot\n")
        t.until("parrot\r\n")  # the typed line
        t.until("parrot\r\n")  # the response
        t.say("/help\n")
        t.until("Ctrl-C stops a response.")
        t.say("one\\\n")
        t.until("\r\n. ")
        t.send("two\n")
        t.until("\r\none\r\ntwo\r\n")
        t.say('"""\n')
        for line in ("red", "", "blue", '"""'):
            t.until("\r\n. ")
            t.editing()
            t.send(line + "\n")
        t.until("\r\nred\r\n\r\nblue\r\n")
        t.say("<think>hm</think>yes\n")
        t.until("\x1b[2mhm\x1b[0m\r\nyes\r\n")  # reasoning is shown separately
        t.say("/history\n")
        t.until("assistant: parrot")
        t.say("\x03")  # Ctrl-C at the prompt does not end the program
        t.until("/quit")
        t.say("/quit\n")
        equal(t.wait(), 0)


def test_ctrl_c_stops_the_response_and_not_the_program():
    with Server() as s:
        t = Terminal(program("inferctl"), "--url", s.url, "--model", "demo", "chat",
            "--max-tokens", "100000", "--temperature", "2", env={"HOME": "/nonexistent"})
        t.say("Hello!\n")
        t.until("Hello!\r\n")
        t.more()  # the response has begun
        t.send("\x03")
        t.say("/help\n")
        t.until("Ctrl-C stops a response.")
        t.say("\x04")
        equal(t.wait(), 0)


# Sequences that a terminal obeys: clipboard (OSC 52), title, C1 control, carriage return, bell,
# delete, text direction; with a tab and a newline, which are passed.
HOSTILE = "a\x1b]52;c;ZXZpbA==\x07b\x9b2Jc\u202ed\u2066e\x7ff\rg\x00h\ti\nj"
SHOWN = ("a\\x1b]52;c;ZXZpbA==\\x07b\\u009b2Jc\\u202ed\\u2066e\\u007ff\\x0dg\\x00h\ti\nj")
CELL = SHOWN.replace("\t", "\\x09").replace("\n", "\\x0a")


class HostileServer(http.server.BaseHTTPRequestHandler):
    """Answers each route with HOSTILE text in each member."""

    def answer(self, status, body, kind="application/json"):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        adapter = {"family": HOSTILE, "tool_format": HOSTILE, "tool_parser": HOSTILE,
            "thinking_parser": HOSTILE}
        # JSON may contain these characters without an escape, except those below U+0020.
        raw = json.dumps({"id": "\x9b\u202e\x7f"}, ensure_ascii=False).encode()
        answers = {"/readyz": {"status": HOSTILE, "role": HOSTILE, "reason": HOSTILE},
            "/v1/models": {"data": [{"id": HOSTILE, "status": HOSTILE, "family": HOSTILE}]},
            "/v1/models/x": {"id": HOSTILE, "adapter": adapter}, "/metrics": b"x 1\n",
            "/raw/v1/models": raw}
        if self.path in answers:
            self.answer(200, answers[self.path])
        else:
            self.answer(500, {"error": {"message": HOSTILE}})

    def do_DELETE(self):
        self.answer(404, b"\xff\xc3" + HOSTILE.encode())

    def do_POST(self):
        wish = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = wish.get("prompt") or wish["messages"][-1]["content"]
        if text == "fail":
            self.answer(500, {"error": {"message": HOSTILE}})
        elif wish["stream"] and text == "frame":
            self.answer(200, b'data: {"error": {"message": %s}}\n\n' % json.dumps(HOSTILE).encode(),
                "text/event-stream")
        elif wish["stream"]:
            parts = [{"delta": {"reasoning_content": HOSTILE}}, {"delta": {"content": HOSTILE}}]
            self.answer(200, b"".join(b"data: " + json.dumps({"choices": [p]}).encode() + b"\n\n"
                for p in parts), "text/event-stream")
        else:
            self.answer(200, {"choices": [{"text": HOSTILE}]})

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def hostile_server():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), HostileServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def at_terminal(*args, url):
    """Output of inferctl, both streams, on a pseudo terminal; without the terminal's CR before LF."""
    t = Terminal(program("inferctl"), "--url", url, *args, env={"HOME": "/nonexistent"})
    output = b""
    with contextlib.suppress(OSError):
        while True:
            output += os.read(t.fd, 65536)
    os.waitpid(t.pid, 0)
    os.close(t.fd)
    return output.decode().replace("\r\n", "\n")


HOSTILE_COMMANDS = [["models"], ["status"], ["probe", "x"], ["chat", "x"], ["completion", "x"],
    ["completion", "--no-stream", "x"], ["chat", "fail"], ["chat", "frame"], ["completion", "fail"],
    ["cancel", "x"], ["probe", "missing"], ["models", "--json"], ["status", "--json"],
    ["chat", "--json", "x"]]


def test_text_of_a_server_is_escaped_on_a_terminal_and_in_errors():
    obeyed = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
    with hostile_server() as s:
        for args in HOSTILE_COMMANDS:
            shown = at_terminal(*args, url=s.url)
            own = shown.replace("\x1b[2m", "").replace("\x1b[0m", "")
            assert not obeyed.search(own), (args, shown)
            assert "52;c;" in shown, (args, shown)
            _, out, err = ctl(*args, server=s)
            assert not obeyed.search(err), (args, err)
            if args[0] in ("models", "status", "probe") and "--json" not in args:
                assert not obeyed.search(out), (args, out)
        assert SHOWN in at_terminal("completion", "x", url=s.url)
        assert SHOWN.split("\\x00")[0] in at_terminal("chat", "fail", url=s.url)
        assert "\\xff\\xc3" in ctl("cancel", "x", server=s)[2]
        row = ctl("models", server=s)[1].splitlines()
        equal((len(row), row[1].split(" ")[0]), (2, CELL))
        on_terminal = at_terminal("--url", s.url + "/raw", "models", "--json", url=s.url)
        equal(json.loads(on_terminal)["id"], "\x9b\u202e\x7f")


def test_text_of_a_model_is_unchanged_in_a_pipe():
    with hostile_server() as s:
        for args in (["completion", "--no-stream", "x"], ["chat", "x"]):
            r = subprocess.run([program("inferctl"), "--url", s.url, *args], capture_output=True,
                stdin=subprocess.DEVNULL)
            equal(r.stdout, HOSTILE.encode() + b"\n", args)


if __name__ == "__main__":
    run(globals())
