#!/usr/bin/env python3
"""Response cache: for any requests in any order, each response equals that of a server without
the cache, byte for byte except id, time and the count of cached tokens."""
import json
import os
import random
import re
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
sys.path.insert(0, os.path.join(ROOT, "tests/wire"))
from harness import Server, equal, read_all, run
from test_disconnect import CHAT, Line, chat

ON = ("--response-cache", "64M")
SEED = int(os.environ.get("SEED", "1"))


def ask(line, path, body, fields=""):
    """Returns (was it cached, the response without the parts that may differ, its usage)."""
    line.s.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: {len(body)}\r\n\r\n"
        .encode() + body)
    if b'"stream": true' not in body:
        status, head, answer = line.answer()
    else:
        while b"\r\n\r\n" not in line.buffer:
            line.more()
        end = line.buffer.index(b"\r\n\r\n") + 4
        head, status = bytes(line.buffer[:end]), int(line.buffer.split()[1])
        while not line.buffer.endswith(b"\r\n0\r\n\r\n"):
            line.more()
        answer = b"".join(re.findall(rb"data: [^\n]*\n\n", bytes(line.buffer[end:])))
        line.buffer.clear()
    equal(status, 200, answer)
    text = re.sub(r'"id":"[^"]*"', '"id":""', answer.decode())
    text = re.sub(r'"created":\d+', '"created":0', text)
    cached = re.search(r'"cached_tokens":(\d+)', text)
    text = re.sub(r'"cached_tokens":\d+', '"cached_tokens":0', text)
    return b"x-inferflux-cache: exact" in head, text, cached and int(cached.group(1))


def random_request(rng):
    say = rng.choice(["Hello!", "What is 3 plus 4?", "What is InferFlux?"])
    body = {"max_tokens": rng.choice([1, 2, 5, 9, 14, 15, 16, 60])}
    if rng.random() < 0.5:
        body["temperature"] = 0
    else:
        body.update(temperature=0.9, seed=rng.randrange(2))
    if rng.random() < 0.3:
        body["stop"] = rng.choice([["."], ["a"], [" the", "e"]])
    if rng.random() < 0.2:
        body["logit_bias"] = {"300": -5}
    if rng.random() < 0.2:
        body["presence_penalty"] = 0.5
    if rng.random() < 0.3:
        body["ignore_eos"] = True
    if rng.random() < 0.3:
        body.update(stream=True, stream_options={"include_usage": True})
    if rng.random() < 0.3:
        path = "/v1/completions"
        body["prompt"] = say
        if rng.random() < 0.4:
            body["logprobs"] = 2
        elif rng.random() < 0.4:
            body["echo"] = True
    else:
        path = CHAT
        body["messages"] = [{"role": "user", "content": say}]
        if rng.random() < 0.3:
            body.update(logprobs=True, top_logprobs=rng.randrange(3))
    return path, json.dumps(body).encode()


def test_cached_responses_equal_computed_ones():
    rng = random.Random(SEED)
    print(f"     seed {SEED}")
    requests = [random_request(rng) for _ in range(240)]
    with Server() as s:  # the harness disables the cache by default
        line = Line(s)
        want = [ask(line, *r) for r in requests]
        assert not any(w[0] for w in want)
    with Server(*ON) as s:
        line = Line(s)
        n_remembered = 0
        for (path, body), (_, text, _) in zip(requests, want):
            was_remembered, got, cached = ask(line, path, body)
            equal(got, text, body)
            n_remembered += was_remembered
            if was_remembered and cached is not None:
                equal(cached, int(re.search(r'"prompt_tokens":(\d+)', got).group(1)))
        equal(line.metrics()["response_cache_hits_total"], float(n_remembered))
        print(f"     {n_remembered} of {len(requests)} were cached")
        assert n_remembered > 40, n_remembered
        sums = line.invariants()
        assert sums["ok"] and sums["sequences"] == 0, sums


def body_of(**more):
    return json.dumps(chat(model="demo", temperature=0, max_tokens=5, **more)).encode()


def test_only_identical_requests_are_cached():
    with Server(*ON) as s:
        line = Line(s)
        assert not ask(line, CHAT, body_of())[0]
        assert ask(line, CHAT, body_of())[0]
        assert ask(line, CHAT, body_of(stream=True))[0]
        assert ask(line, CHAT, body_of(user="x", metadata={"a": "b"}, max_completion_tokens=4))[0]
        for other in ({"messages": [{"role": "user", "content": "Ho"}]}, {"top_p": 0.5},
                {"cache_salt": "mine"}, {"frequency_penalty": 1}, {"logprobs": True},
                {"a_field_of_tomorrow": 1}, {"min_p": 0.1}):
            assert not ask(line, CHAT, body_of(**other))[0], other
            assert ask(line, CHAT, body_of(**other))[0], other
        # Not deterministic, several choices, or disabled by the request: never cached.
        for never in ({"temperature": 1}, {"n": 2, "seed": 1}, {"cache_prompt": False}):
            body = json.dumps({**json.loads(body_of()), **never}).encode()
            for _ in range(2):
                assert not ask(line, CHAT, body)[0], never
        for _ in range(2):
            assert not ask(line, CHAT, body_of(top_k=3), "Cache-Control: no-store\r\n")[0]
        assert not ask(line, CHAT, body_of(top_k=3))[0]
        assert not ask(line, CHAT, body_of(top_k=3), "Cache-Control: no-cache\r\n")[0]
        assert ask(line, CHAT, body_of(top_k=3))[0]
        # An administrator clears the cache.
        shown = json.loads(s.get("/v1/admin/cache")[2])
        assert shown["answers"] > 5 and shown["bytes"] > 0, shown
        status, _, body = s.request("DELETE", "/v1/admin/cache", None)
        equal((status, json.loads(body)), (200, {"flushed": shown["answers"]}))
        assert not ask(line, CHAT, body_of())[0]
        equal(json.loads(s.get("/v1/admin/cache")[2])["answers"], 1)


def test_cached_responses_expire():
    with Server(*ON, "--response-cache-ttl", "1") as s:
        line = Line(s)
        while True:
            began = time.monotonic()
            ask(line, CHAT, body_of())
            is_found = ask(line, CHAT, body_of())[0]
            # otherwise the request took longer than the expiry time
            if is_found or time.monotonic() - began < 1:
                break
        assert is_found
        deadline = time.monotonic() + 60
        while ask(line, CHAT, body_of())[0]:
            assert time.monotonic() < deadline
        assert line.metrics()["response_cache_evicted_total"] >= 1


def test_keys_do_not_share_cached_responses():
    env = {"INFERFLUX_API_KEYS": "alpha,beta,root:admin"}
    with Server(*ON, env=env, ready=False) as s:
        deadline = time.monotonic() + 60
        as_key = lambda k: f"Authorization: Bearer {k}\r\n"
        while "models_ready 2" not in s.get("/metrics", Authorization="Bearer alpha")[2].decode():
            assert time.monotonic() < deadline
        line = Line(s)
        assert not ask(line, CHAT, body_of(), as_key("alpha"))[0]
        assert ask(line, CHAT, body_of(), as_key("alpha"))[0]
        assert not ask(line, CHAT, body_of(), as_key("beta"))[0]
        equal(s.request("DELETE", "/v1/admin/cache", None, Authorization="Bearer alpha")[0], 403)
        equal(s.request("DELETE", "/v1/admin/cache", None, Authorization="Bearer root")[0], 200)
        assert not ask(line, CHAT, body_of(), as_key("alpha"))[0]


def test_a_slow_reader_gets_a_complete_cached_stream():
    import socket
    body = json.dumps({"model": "demo", "prompt": "Hello", "temperature": 0, "ignore_eos": True,
        "max_tokens": 480, "stream": True, "logprobs": 5}).encode()
    with Server(*ON) as s:
        line = Line(s)
        _, want, _ = ask(line, "/v1/completions", body)
        c = socket.socket()
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        c.connect(("127.0.0.1", s.port))
        c.settimeout(60)
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        data = read_all(c, 1500)
        frames = b"".join(re.findall(rb"data: [^\n]*\n\n", data)).decode()
        got = re.sub(r'"created":\d+', '"created":0', re.sub(r'"id":"[^"]*"', '"id":""', frames))
        assert b"x-inferflux-cache: exact" in data[:2000]
        equal(got, want)
        c.close()
        # A client that disconnects releases the cached response.
        for _ in range(20):
            c = socket.create_connection(("127.0.0.1", s.port))
            c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            c.recv(100)
            c.close()
        line.until(lambda m: m["requests_running"] == 0, "all have gone")


if __name__ == "__main__":
    run(globals())
