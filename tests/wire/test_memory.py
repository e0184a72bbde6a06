#!/usr/bin/env python3
"""Memory of requests in flight: one client cannot take it from the others. The server checks at its
end that every byte was given back, so each test also covers the paths that its requests end on."""
import contextlib
import json
import os
import socket
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import Server, equal, run

MB = 1 << 20
KEYS = {"INFERFLUX_API_KEYS": "ka,kb"}
COMPLETIONS = "/v1/completions"


def metrics(server, key=None):
    fields = {"Authorization": f"Bearer {key}"} if key else {}
    found = {}
    for line in server.get("/metrics", **fields)[2].decode().splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            found[name.removeprefix("inferflux_")] = float(value)
    return found


def until(done, what):
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def send(server, path, body, key=None, n=None):
    """Sends a request, or only the first n bytes of its body; returns the connection. It has a small
    receive buffer: what the client does not read stays in the server."""
    c = socket.socket()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    c.settimeout(60)
    c.connect(("127.0.0.1", server.port))
    authorization = f"Authorization: Bearer {key}\r\n" if key else ""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{authorization}"
    c.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:n])
    return c


def read(c):
    """Reads to the end; returns status, fields and body."""
    data = b""
    while piece := c.recv(1 << 20):
        data += piece
    c.close()
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head[9:12]), head.decode().lower(), body


def ask(server, path, body, key=None):
    return read(send(server, path, body, key))


def completion(**more):
    return json.dumps({"model": "echo", "prompt": "hi", "max_tokens": 4, **more}).encode()


def with_values(n, **more):
    """A completion with n small values in a field that is not used; 105 bytes of tree each."""
    return completion(**more)[:-1] + b',"x":[' + b"[]," * (n - 1) + b"[]]}"


def test_a_parsed_body_is_freed_before_generation():
    with Server("--request-memory", "24M") as s:
        script = {"script": {"text": "a b c d e f g h", "delay_ms": 60000}, "stream": True}
        with contextlib.ExitStack() as stack:
            for i in range(6):  # each has a tree of 10 MB, and 18 MB are for all
                c = stack.enter_context(contextlib.closing(
                    send(s, COMPLETIONS, with_values(100000, max_tokens=99, **script))))
                equal(c.recv(12), b"HTTP/1.1 200", i)
            now = metrics(s)
            equal(now["requests_running"], 6.0)
            assert 0 < now["request_memory_bytes"] < MB, now["request_memory_bytes"]
            equal(now["request_body_bytes"], 0.0)
        until(lambda: metrics(s)["requests_running"] == 0, "the clients have disconnected")
        until(lambda: metrics(s)["request_memory_bytes"] == 0, "the worker thread frees")


def test_a_request_that_can_never_fit_is_told_so_while_it_is_parsed():
    with Server("--request-memory", "24M") as s:
        status, _, body = ask(s, COMPLETIONS, with_values(400000))
        equal((status, json.loads(body)["error"]["code"]), (413, "request_too_large"))
        status, _, body = ask(s, "/v1/messages/count_tokens", with_values(400000,
            messages=[{"role": "user", "content": "hi"}]))
        equal((status, json.loads(body)["error"]["type"]), (413, "request_too_large"))
        equal(metrics(s)['request_memory_refusals_total{reason="never"}'], 2.0)
        until(lambda: metrics(s)["request_memory_bytes"] == 0, "the worker thread frees")
        equal(ask(s, COMPLETIONS, completion())[0], 200)


def pieces(n):
    """A response of 26 bytes per digit, which is formatted as a whole."""
    return json.dumps({"content": "1" * n, "with_pieces": True, "model": "echo"}).encode()


def test_responses_that_are_not_read_count_against_the_key():
    with Server("--request-memory", "32M", env=KEYS, key="kb") as s:
        slow = send(s, "/tokenize", pieces(250000), "ka")  # the share of a key is 12 MB
        until(lambda: metrics(s, "kb")["request_memory_bytes"] > 6 * MB, "a response waits")
        for path, kind in (("/tokenize", "rate_limit_error"), ("/v1/messages/count_tokens",
                "rate_limit_error")):
            body = pieces(250000) if path == "/tokenize" else with_values(60000,
                messages=[{"role": "user", "content": "hi"}])
            status, head, body = ask(s, path, body, "ka")
            equal((status, json.loads(body)["error"]["type"]), (429, kind), path)
            assert "retry-after: 1" in head, head
        equal(ask(s, COMPLETIONS, completion(), "ka")[0], 200)  # small: from the reserve
        status, _, body = ask(s, "/tokenize", pieces(250000), "kb")
        equal((status, len(json.loads(body)["tokens"]) >= 250000), (200, True))
        status, _, body = read(slow)
        equal((status, len(json.loads(body)["tokens"]) >= 250000), (200, True))
        until(lambda: metrics(s, "kb")["request_memory_bytes"] == 0, "the worker thread frees")


def test_without_keys_the_sum_is_bounded():
    with Server("--request-memory", "16M") as s:
        slow = send(s, "/tokenize", pieces(250000))
        until(lambda: metrics(s)["request_memory_bytes"] > 6 * MB, "a response waits")
        status, head, body = ask(s, "/tokenize", pieces(250000))
        equal((status, json.loads(body)["error"]["code"]), (503, "queue_full"))
        assert "retry-after: 1" in head, head
        slow.close()
        until(lambda: metrics(s)["request_memory_bytes"] == 0, "the client has disconnected")
        equal(ask(s, "/tokenize", pieces(250000))[0], 200)


def test_uploads_of_one_key_leave_room_for_the_others():
    large = completion() + b" " * 300000
    with Server("--max-bodies", "4M", env=KEYS, key="kb") as s:  # the share of a key is 1.5 MB
        silent = send(s, COMPLETIONS, b" " * 1500000, "ka", n=1400000)
        until(lambda: metrics(s, "kb")["request_body_bytes"] == 1400000, "the upload has stopped")
        status, head, body = ask(s, COMPLETIONS, large, "ka")
        equal((status, json.loads(body)["error"]["code"]), (429, "rate_limit_exceeded"))
        assert "retry-after: 1" in head, head
        equal(ask(s, COMPLETIONS, large, "kb")[0], 200)
        equal(ask(s, COMPLETIONS, completion(), "ka")[0], 200)  # small: from the reserve
        equal(ask(s, COMPLETIONS, b" " * 2000000, "kb")[0], 413)  # can never fit
        silent.close()
        until(lambda: metrics(s, "kb")["request_body_bytes"] == 0, "the upload has ended")
        equal(ask(s, COMPLETIONS, large, "ka")[0], 200)
        equal(metrics(s, "kb")['request_body_refusals_total{reason="share"}'], 1.0)


def test_silence_ends_an_upload_however_much_came_before():
    with Server("--body-timeout", "400") as s:
        c = send(s, COMPLETIONS, b" " * 9000000, n=8000000)
        began = time.monotonic()
        equal(read(c)[0], 408)
        assert time.monotonic() - began < 20, "8 MB paid for 1,000 seconds of silence"


if __name__ == "__main__":
    run(globals())
