#!/usr/bin/env python3
"""Disconnects at any moment and of any kind are detected at once and end their request; a prompt
of many megabytes delays no other request. The tests measure times and use the best of several
tries, because other programs run on the machine: a real delay by a tokenizer call, a step or
a timer occurs in every try."""
import json
import os
import re
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import Server, build_dir, equal, read_until, run

CHAT = "/v1/chat/completions"
NOTICED, TRIES = 0.050, 5
PAUSE = 20  # scales times on machines with other load
HELD_UP = 0.020 if build_dir().endswith("build") else 0.060  # sanitizers take three times as long


class Line:
    """A persistent connection for many requests with little overhead."""

    def __init__(self, server):
        self.s = server.connect()
        self.buffer = bytearray()

    def ask(self, path, method="GET", body=b"", fields=""):
        self.s.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{fields}"
            f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return self.answer()

    def more(self):
        got = self.s.recv(1 << 20)
        assert got, "the server hung up"
        self.buffer += got

    def answer(self):
        while b"\r\n\r\n" not in self.buffer:
            self.more()
        end = self.buffer.index(b"\r\n\r\n") + 4
        head = bytes(self.buffer[:end])
        length = int(re.search(rb"(?i)content-length: (\d+)", head).group(1))
        while len(self.buffer) < end + length:
            self.more()
        body = bytes(self.buffer[end:end + length])
        del self.buffer[:end + length]
        return int(head.split()[1]), head, body

    def metrics(self):
        text = self.ask("/metrics")[2].decode()
        return {k: float(v) for k, v in re.findall(r"^inferflux_(\w+) (\S+)$", text, re.M)}

    def invariants(self):
        return json.loads(self.ask("/debug/invariants")[2])

    def until(self, condition, what, seconds=60):
        deadline = time.monotonic() + seconds
        while not condition(m := self.metrics()):
            assert time.monotonic() < deadline, (what, m)
        return time.monotonic()


def send(server, path, body):
    c = server.connect()
    data = json.dumps(body).encode()
    c.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        + data)
    return c


def chat(**more):
    return {"messages": [{"role": "user", "content": "Hi"}], **more}


def by_close(c):
    c.close()


def by_shutdown(c):
    c.shutdown(socket.SHUT_WR)


def by_reset(c):
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    c.close()


WAYS = (by_close, by_shutdown, by_reset)


def measure_disconnect(server, line, begin, is_there, way, what):
    """Returns the seconds until the server has detected the disconnect, and until the request
    has ended."""
    before = line.metrics()
    c = begin()
    line.until(is_there, what)
    left = time.monotonic()
    way(c)
    noticed = line.until(lambda m: m["http_gone_total"] > before["http_gone_total"], what)
    gone = line.until(lambda m: m["requests_running"] == 0, what)
    sums = line.invariants()
    assert sums["ok"] and sums["sequences"] == 0, (what, sums)
    pages = sums["pages"]
    equal(pages["free"] + pages["cached"], pages["total"], what)
    equal(sums["requests"], {"running": 0, "waiting": 0}, what)
    equal(line.metrics()["requests_cancelled_total"], before["requests_cancelled_total"] + 1, what)
    c.close()
    return noticed - left, gone - noticed


def check(server, line, what, begin, is_there, step=0.0):
    for way in WAYS:
        times = [measure_disconnect(server, line, begin, is_there, way, what) for _ in range(TRIES)]
        noticed, gone = zip(*times)
        print(f"     {what}, {way.__name__}: detected after {statistics.median(noticed) * 1e3:.1f} ms,"
            f" gone {statistics.median(gone) * 1e3:.1f} ms later")
        for t, limit in ((noticed, NOTICED), (gone, step + NOTICED)):
            assert min(t) <= limit, (what, way.__name__, times)
            assert statistics.median(t) <= PAUSE * limit, (what, way.__name__, times)


def test_a_disconnect_is_detected_before_and_in_the_stream():
    slow = {"text": "word " * 3000, "delay_ms": 2}
    with Server("--parallel", "1") as s:
        line = Line(s)
        running = lambda m: m["scheduler_steps_total"] >= begin.at + 3

        for stream in (False, True):
            def begin():
                begin.at = line.metrics()["scheduler_steps_total"]
                c = send(s, CHAT, chat(model="echo", script=slow, stream=stream, max_tokens=100000))
                if stream:
                    read_until(c, lambda data: data.count(b"data:") >= 3)
                return c
            check(s, line, "in the stream" if stream else "before the answer", begin, running)

        for stream in (False, True):
            others, at_once = [], set()

            def queued():
                begin.at = line.metrics()["scheduler_steps_total"]
                others.append(send(s, CHAT, chat(model="echo", script=slow, max_tokens=100000)))
                line.until(running, "the first runs")
                return send(s, CHAT, chat(model="echo", script=slow, stream=stream))

            for way in WAYS * TRIES:
                if way in at_once:
                    continue
                before = line.metrics()
                c = queued()
                line.until(lambda m: m["requests_running"] == 2, "queued")
                left = time.monotonic()
                way(c)
                noticed = line.until(
                    lambda m: m["http_gone_total"] > before["http_gone_total"], "queued") - left
                line.until(lambda m: m["requests_running"] == 1, "queued")
                equal(line.invariants()["requests"], {"running": 1, "waiting": 0})
                others.pop().close()
                line.until(lambda m: m["requests_running"] == 0, "the first is gone")
                c.close()
                print(f"     queued, {way.__name__}: detected after {noticed * 1e3:.1f} ms")
                if noticed <= NOTICED:
                    at_once.add(way)
            equal(at_once, set(WAYS))


def tiny_model(folder):
    """A model slow enough that a long prompt takes many steps."""
    path = os.path.join(folder, "tiny.gguf")
    subprocess.run([os.path.join(build_dir(), "tools/mkmodel"), "--layers", "4", "--embd", "256",
        "--vocab-from", os.path.join(ROOT, "models/demo.gguf"), "--ctx", "8192", "--type", "Q8_0",
        "-o", path], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return path


def test_a_disconnect_during_prefill_takes_one_step():
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model(folder)
        with Server("--model", model, "--ubatch-size", "16", config=None) as s:
            line = Line(s)
            body = {"prompt": [5 + i % 97 for i in range(6000)], "max_tokens": 4,
                "cache_prompt": False}
            before = line.metrics()
            Line(s).ask("/v1/completions", "POST", json.dumps(
                {**body, "prompt": body["prompt"][:1024]}).encode())
            after = line.metrics()
            steps = after["scheduler_steps_total"] - before["scheduler_steps_total"]
            taken = after["prefill_microseconds_total"] - before["prefill_microseconds_total"]
            step = taken / 1e6 / steps * 6  # the last of 6,000 tokens attends to six times as many
            print(f"     a step takes about {step * 1e3:.1f} ms")
            for stream in (False, True):
                at = lambda: line.metrics()["scheduler_steps_total"]

                def begin():
                    begin.at = at()
                    return send(s, "/v1/completions", {**body, "stream": stream})

                # Disconnects in the middle of 375 steps, of which none is the last.
                check(s, line, f"prefill, {'stream' if stream else 'whole'}", begin,
                    lambda m: m["scheduler_steps_total"] >= begin.at + 3, step)
            equal(line.metrics()["generated_tokens_total"], after["generated_tokens_total"])


def big_prompt(n_bytes):
    words = ["alpha ", "beta, ", "gamma-7 ", "Δelta\n", "(epsilon) "]
    text = "".join(words[i % 5] for i in range(n_bytes // 7))
    return text[:n_bytes]


def pings(line, until):
    """Returns the longest of many response times on the same io thread, until a call returns
    true."""
    worst, n = 0.0, 0
    while not until():
        began = time.monotonic()
        equal(line.ask("/livez")[0], 200)
        worst, n = max(worst, time.monotonic() - began), n + 1
        time.sleep(0.001)
    return worst, n


def expect_no_delay(server, line, path, data, want):
    """Other requests of the io thread get responses during this one; the best of several tries
    counts."""
    tries = []
    for _ in range(8):
        began = time.monotonic()
        pid = os.fork()  # a process, since threads of one interpreter delay each other
        if not pid:
            os._exit(Line(server).ask(path, "POST", data)[0] != want)
        ended = []

        def has_ended():
            found, status = (0, 0) if ended else os.waitpid(pid, os.WNOHANG)
            if found:
                equal(status, 0, path)
                ended.append(time.monotonic())
            return ended

        worst, n = pings(line, has_ended)
        taken = ended[0] - began
        is_good = worst <= HELD_UP and n >= 10 * taken
        tries.append((not is_good, worst, n, taken))
        if is_good:
            break
    is_bad, worst, n, taken = min(tries)
    print(f"     {path}: {taken:.2f} s; {n} other requests completed, the slowest in"
        f" {worst * 1e3:.1f} ms")
    assert not is_bad, (path, tries)


def test_a_prompt_of_16_megabytes_delays_no_other_request():
    text = big_prompt(15 << 20)
    bodies = {
        "/tokenize": {"content": text},
        "/v1/completions": {"prompt": text, "model": "demo"},
        "/apply-template": chat(messages=[{"role": "user", "content": text[:7 << 20]}]),
        "/detokenize": {"tokens": [300 + i % 97 for i in range(3 << 20)]},
    }
    with Server() as s:
        line = Line(s)
        for path, body in bodies.items():
            data = json.dumps(body, ensure_ascii=False).encode()
            # The context is not that long.
            expect_no_delay(s, line, path, data, 400 if path == "/v1/completions" else 200)


def test_a_long_stored_history_delays_no_other_request():
    """Twenty turns of 300 kB, of which the first are truncated each time."""
    path, more = "/v1/responses", {"model": "echo", "input": "more", "script": "on",
        "truncation": "auto"}
    with Server() as s:
        line = Line(s)
        for i in range(20):
            status, _, body = line.ask(path, "POST",
                json.dumps({**more, "input": "word and other things " * 14000}).encode())
            equal(status, 200, body[:300])
            more["previous_response_id"] = json.loads(body)["id"]
        data = json.dumps(more).encode()
        for path in ("/v1/responses", "/v1/responses/input_tokens"):
            expect_no_delay(s, line, path, data, 200)


def test_a_disconnect_during_tokenization_ends_the_request():
    data = json.dumps({"model": "demo", "prompt": big_prompt(15 << 20)}, ensure_ascii=False).encode()
    head = (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n").encode()
    with Server() as s:
        line = Line(s)

        def begin():
            c = s.connect()
            c.sendall(head + data)
            return c

        check(s, line, "tokenising", begin, lambda m: m["requests_running"] == 1,
            2.0)  # JSON is parsed to its end; limit includes other load on the machine
        # The drain deadline does not wait for it.
        c = begin()
        line.until(lambda m: m["requests_running"] == 1, "it is read")
        began = time.monotonic()
        equal(s.stop(), 0)
        assert time.monotonic() - began < 60
        c.close()


def test_invariants_do_not_wait_for_a_step():
    """Only the requests that need the engine's state wait for the engine."""
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model(folder)
        with Server("--model", model, "--ubatch-size", "4096", "--batch-size", "4096",
                config=None) as s:
            line, other, third = Line(s), Line(s), Line(s)
            c = send(s, "/v1/completions", {"prompt": [5 + i % 97 for i in range(4000)],
                "max_tokens": 1})
            line.until(lambda m: m["requests_running"] == 1, "it runs")
            asked = threading.Thread(target=other.invariants)
            asked.start()
            worst, n = pings(third, lambda: not asked.is_alive())
            asked.join()
            print(f"     {n} other requests completed meanwhile, the slowest in {worst * 1e3:.1f} ms")
            c.close()
            assert line.invariants()["ok"]


if __name__ == "__main__":
    run(globals())
