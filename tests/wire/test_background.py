#!/usr/bin/env python3
"""/v1/responses with `background`: the response is generated independently of its client, can be
retrieved at any time, streamed from any event to any number of readers on any thread,
cancelled, deleted, limited and drained."""
import http.client
import json
import os
import signal
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import Server, equal, run

SLOW = {"text": "word " * 4000, "chunk": "char", "delay_ms": 20}  # takes minutes
OPEN = ("queued", "in_progress")
KEYS = "aaaa,bbbb:group=g"


def ask(text="one two three", **more):
    return {"model": "echo", "input": "hi", "script": text, "background": True, **more}


def call(s, method, path, body=None, want=200, **fields):
    status, _, text = s.request(method, path, None if body is None else json.dumps(body), **fields)
    equal(status, want, f"{method} {path} {text[:300]}")
    return json.loads(text)


def post(s, body, want=200, **fields):
    return call(s, "POST", "/v1/responses", body, want, **fields)


def show(s, name, want=200, **fields):
    return call(s, "GET", "/v1/responses/" + name, None, want, **fields)


def cancel(s, name, want=200, **fields):
    return call(s, "POST", f"/v1/responses/{name}/cancel", {}, want, **fields)


def until(condition, what, seconds=60):
    deadline = time.monotonic() + seconds
    while not (got := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.005)
    return got


def ended(s, name, **fields):
    def look():
        r = show(s, name, **fields)
        return r if r["status"] not in OPEN else None
    return until(look, f"{name} does not end")


def idle(s):
    until(lambda: b'"sequences":0' in s.get("/debug/invariants")[2], "a sequence is left")
    assert b'"ok":true' in s.get("/debug/invariants")[2]


def stream(s, name, after=None):
    more = "" if after is None else f"&starting_after={after}"
    status, head, text = s.get(f"/v1/responses/{name}?stream=true{more}")
    equal((status, head["content-type"]), (200, "text/event-stream"), text[:300])
    return text


def events(text):
    frames = [f for f in text.decode().split("\n\n") if f and not f.startswith(":")]
    got = [json.loads(f.split("data: ", 1)[1]) for f in frames]
    for f, e in zip(frames, got):
        equal(f.split("\n")[0], "event: " + e["type"])
    return got


class Reader:
    """A stream that is read incrementally."""

    def __init__(self, s, method, path, body=None, **fields):
        self.c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=30)
        self.c.request(method, path, None if body is None else json.dumps(body), fields)
        self.r = self.c.getresponse()
        equal(self.r.status, 200)
        self.lines = []

    @property
    def text(self):
        return b"".join(self.lines)

    def next(self):
        """Returns the next event; None at the end."""
        lines = []
        while True:
            line = self.r.readline()
            self.lines.append(line)
            if not line:
                assert not lines, lines
                return None
            if line == b"\n":
                if lines[0].startswith(b"data: ") or len(lines) > 1:
                    return json.loads(lines[-1][6:])
                lines = []
            else:
                lines.append(line.rstrip(b"\n"))

    def until(self, kind):
        while (e := self.next())["type"] != kind:
            pass
        return e

    def rest(self):
        """Reads the rest and returns the whole text."""
        self.lines.append(self.r.read())
        return self.text

    def close(self):
        self.c.close()
        self.r.close()


def comparable(r):
    """Returns a response without ids, times, and request parameters."""
    text = json.dumps({k: v for k, v in r.items() if k not in ("created_at", "completed_at",
        "background", "previous_response_id")})
    for i in [i["call_id"] for i in r["output"] if i["type"] == "function_call"]:
        text = text.replace(i, "CALL")
    return json.loads(text.replace(r["id"][5:], "ID"))


def test_the_same_bytes_in_the_background_and_not():
    for body in ({"model": "demo", "input": "What is InferFlux?", "temperature": 0,
            "max_output_tokens": 40}, {"model": "demo", "input": "Hello!", "temperature": 1,
            "seed": 7, "max_output_tokens": 30, "include": ["message.output_text.logprobs"],
            "top_logprobs": 2}, {"model": "echo", "input": "x", "reasoning": {"summary": "auto"},
            "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
            "script": '<think>hm</think>Well. <tool_call>\n{"name": "f", "arguments": {}}\n'
            '</tool_call>'}):
        for cached in ("0", "1M"):
            with Server(env={"INFERFLUX_RESPONSE_CACHE_BYTES": cached}) as s:
                plain = post(s, body)
                first = post(s, {**body, "background": True})
                assert first["status"] == "queued" and first["background"] is True
                equal((first["output"], first["usage"], first["completed_at"]), ([], None, None))
                last = ended(s, first["id"])
                equal(last["background"], True)
                want, got = comparable(plain), comparable(last)
                for r in (want, got):  # the second request finds the prefix cached by the first
                    del r["usage"]["input_tokens_details"]
                equal(got, want)
                if cached == "1M" and body["model"] == "demo":
                    hit = s.request("POST", "/v1/responses", json.dumps({**body,
                        "background": True}))[1]
                    equal(hit["x-inferflux-cache"], "exact")
                streamed = post_stream(s, {**body, "stream": True})
                again = post_stream(s, {**body, "stream": True, "background": True})
                kinds = [e["type"] for e in streamed]
                equal([e["type"] for e in again], kinds[:1] + ["response.queued"] + kinds[1:])
                equal([e["sequence_number"] for e in again], list(range(len(again))))
                equal(deltas(again), deltas(streamed))


def post_stream(s, body):
    status, head, text = s.request("POST", "/v1/responses", json.dumps(body))
    equal((status, head["content-type"]), (200, "text/event-stream"), text[:300])
    return events(text)


def deltas(all_events):
    return [(e["type"], e["delta"], e.get("logprobs")) for e in all_events if "delta" in e]


def test_the_request_returns_at_once():
    with Server() as s:
        began = time.monotonic()
        r = post(s, ask(SLOW))
        assert time.monotonic() - began < 5 and r["status"] == "queued", r["status"]
        until(lambda: show(s, r["id"])["status"] == "in_progress", "it does not begin")
        now = show(s, r["id"])
        equal({k: v for k, v in now.items() if k != "status"},
            {k: v for k, v in r.items() if k != "status"})
        equal([i["content"][0]["text"] for i in call(s, "GET",
            f"/v1/responses/{r['id']}/input_items")["data"]], ["hi"])
        equal(cancel(s, r["id"])["status"], "cancelled")
        idle(s)


def test_a_waiting_response_is_queued():
    long = {"model": "demo", "input": "Hello!", "ignore_eos": True, "background": True}
    with Server("--parallel", "1", "--max-sequences", "1") as s:
        first = post(s, {**long, "max_output_tokens": 4000})
        second = post(s, {**long, "max_output_tokens": 5})
        third = post(s, long)
        until(lambda: show(s, first["id"])["status"] == "in_progress", "it does not begin")
        equal(show(s, second["id"])["status"], "queued")
        equal(cancel(s, third["id"])["status"], "cancelled")  # never started
        equal(cancel(s, first["id"])["status"], "cancelled")
        last = ended(s, second["id"])
        equal((last["status"], last["usage"]["output_tokens"]), ("incomplete", 5))
        idle(s)


def test_a_cancel_frees_resources_and_may_be_repeated():
    with Server("--threads-http", "3") as s:
        for i in range(12):
            r = post(s, ask(SLOW, stream=False))
            if i % 2:
                until(lambda: show(s, r["id"])["status"] == "in_progress", "it does not begin")
            gone = cancel(s, r["id"])
            equal((gone["status"], gone["error"], gone["usage"]), ("cancelled", None, None))
            equal(cancel(s, r["id"]), gone)
            equal(show(s, r["id"]), gone)
        idle(s)
        done = ended(s, post(s, ask())["id"])
        e = cancel(s, done["id"], 400)["error"]
        equal((e["message"], e["type"]), ("Cannot cancel a completed response.",
            "invalid_request_error"))
        plain = post(s, {**ask(), "background": False})
        e = cancel(s, plain["id"], 400)["error"]
        equal(e["message"], "Cannot cancel a synchronous response.")
        equal(cancel(s, "resp_none", 404)["error"]["code"], "response_not_found")


def test_a_response_is_cancelled_by_its_request_id_too():
    with Server("--threads-http", "2") as s:
        r = post(s, ask(SLOW), x_request_id="mine")
        equal(s.request("DELETE", "/v1/requests/mine", None)[0], 200)
        equal(ended(s, r["id"])["status"], "cancelled")
        idle(s)


def test_a_delete_ends_and_removes_the_response():
    with Server("--threads-http", "3") as s:
        for _ in range(6):
            r = post(s, ask(SLOW, stream=True) | {"stream": False})
            equal(call(s, "DELETE", "/v1/responses/" + r["id"])["deleted"], True)
            show(s, r["id"], 404)
            cancel(s, r["id"], 404)
        idle(s)
        equal(n_stored(s), 0)


def n_stored(s):
    text = s.get("/metrics")[2].decode()
    return int(next(x.split()[1] for x in text.splitlines()
        if x.startswith("inferflux_responses_kept ")))


def test_all_readers_receive_the_same_events():
    text = {"text": "héllo \"wörld\" 🙂\n" * 40, "chunk": "char", "delay_ms": 2}
    with Server("--threads-http", "3") as s:
        first = Reader(s, "POST", "/v1/responses", ask(text, stream=True))
        name = first.next()["response"]["id"]
        first.until("response.output_text.delta")
        live = [Reader(s, "GET", f"/v1/responses/{name}?stream=true") for _ in range(6)]
        first.close()  # the creating client disconnects: nothing ends
        live[0].until("response.output_text.delta")
        live.pop(0).close()
        late = Reader(s, "GET", f"/v1/responses/{name}?stream=true&starting_after=5")
        for r in [*live, late]:
            while r.next():
                pass
        whole = stream(s, name)
        all_events = events(whole)
        equal([e["sequence_number"] for e in all_events], list(range(len(all_events))))
        equal([e["type"] for e in all_events[:3]],
            ["response.created", "response.queued", "response.in_progress"])
        equal(all_events[-1]["type"], "response.completed")
        equal(all_events[-1]["response"], show(s, name))
        equal("".join(e["delta"] for e in all_events if "delta" in e), text["text"])
        for r in live:
            equal(r.text, whole)
        assert whole.endswith(late.text) and events(late.text) == all_events[6:]
        assert whole.startswith(first.text)
        for n in (0, 1, len(all_events) // 2, len(all_events) - 2):
            equal(events(stream(s, name, n)), all_events[n + 1:])
        equal(stream(s, name, len(all_events) - 1), b"")
        equal(stream(s, name, 1 << 40), b"")


def test_a_reader_may_wait_for_a_later_event():
    with Server("--threads-http", "2") as s:
        r = Reader(s, "POST", "/v1/responses", ask({"text": "abcdefgh", "chunk": "char",
            "delay_ms": 60}, stream=True))
        name = r.next()["response"]["id"]
        later = Reader(s, "GET", f"/v1/responses/{name}?stream=true&starting_after=9")
        equal(later.next()["sequence_number"], 10)
        while r.next() or later.next():
            pass


def test_a_reader_sees_the_end_of_a_cancelled_response():
    with Server("--threads-http", "2") as s:
        readers = [Reader(s, "POST", "/v1/responses", ask(SLOW, stream=True))]
        name = readers[0].next()["response"]["id"]
        readers += [Reader(s, "GET", f"/v1/responses/{name}?stream=true") for _ in range(3)]
        for r in readers:
            r.until("response.output_text.delta")
        gone = cancel(s, name)
        for r in readers:
            e = r.until("response.failed")
            equal((e["response"]["status"], r.next()), ("cancelled", None))
            equal(e["response"], gone)
        idle(s)


def test_a_stalled_reader_blocks_no_other():
    big = {"text": "word " * 8000, "chunk": "char"}
    with Server("--threads-http", "2") as s:
        first = Reader(s, "POST", "/v1/responses", ask(big, stream=True))
        name = first.next()["response"]["id"]
        equal(ended(s, name)["status"], "completed")  # although no client reads
        whole = stream(s, name)
        assert len(whole) > 5000000, len(whole)
        equal(first.rest() == whole, True)


def test_keep_alives_are_between_events():
    with Server("--sse-ping-interval", "20") as s:
        slow = {"text": "abcdef", "chunk": "char", "delay_ms": 120}
        r = Reader(s, "POST", "/v1/responses", ask(slow, stream=True))
        while r.next():
            pass
        assert r.text.count(b": keep-alive\n\n") > 5
        equal(events(r.text)[-1]["type"], "response.completed")


def test_a_completed_response_can_be_continued():
    with Server("--threads-http", "3") as s:
        for _ in range(20):  # soon after the last event is read
            r = Reader(s, "POST", "/v1/responses", ask("one", stream=True))
            name = r.until("response.completed")["response"]["id"]
            post(s, {**ask("two"), "background": False, "previous_response_id": name})
            r.close()
        second = post(s, ask("two", previous_response_id=name))
        done = ended(s, second["id"])
        equal(done["previous_response_id"], name)
        assert done["usage"]["input_tokens"] > 3
        slow = post(s, ask(SLOW))
        e = post(s, ask("x", previous_response_id=slow["id"]), 400)["error"]
        equal((e["param"], "has not ended yet" in e["message"]), ("previous_response_id", True))
        cancel(s, slow["id"])
        e = post(s, ask("x", previous_response_id=slow["id"]), 400)["error"]
        assert "was cancelled" in e["message"], e
        item = done["output"][0]["id"]
        post(s, {**ask("x"), "input": [{"type": "item_reference", "id": item}]})


def test_invalid_requests_are_rejected():
    with Server() as s:
        e = post(s, ask(store=False), 400)["error"]
        equal(e["param"], "background")
        equal(post(s, ask(temperature=9), 400)["error"]["param"], "temperature")
        equal(post(s, {**ask(), "model": "nobody"}, 404)["error"]["code"], "model_not_found")
        long = post(s, {**ask(), "model": "demo", "input": "word " * 9000}, 400)["error"]
        equal(long["code"], "context_length_exceeded")
        silent = ended(s, post(s, ask())["id"])["id"]
        plain = post(s, {**ask(), "background": False})["id"]
        streamed = post_stream(s, ask(stream=True))[0]["response"]["id"]
        for name, query, param in ((silent, "stream=true", "stream"),
                (plain, "stream=true", "stream"), (streamed, "stream=maybe", "stream"),
                (streamed, "starting_after=3", "starting_after"),
                (streamed, "stream=true&starting_after=-1", "starting_after"),
                (streamed, "stream=true&starting_after=x", "starting_after"),
                (streamed, "stream=true&starting_after=18446744073709551615", "starting_after")):
            status, _, text = s.get(f"/v1/responses/{name}?{query}")
            equal((status, json.loads(text)["error"]["param"]), (400, param), query)
        equal(show(s, streamed + "?stream=false")["status"], "completed")
        e = call(s, "POST", "/v1/responses/compact", {"model": "demo", "input": "x"}, 400)["error"]
        equal(e["code"], "unsupported_endpoint")
    with Server("--responses-store", "0") as s:
        e = post(s, ask(), 400)["error"]
        equal((e["param"], e["code"]), ("background", "unsupported_parameter"))


def test_responses_of_another_key_are_not_found():
    other = {"Authorization": "Bearer bbbb"}
    with Server("--api-key", KEYS, "--threads-http", "2", key="aaaa") as s:
        r = post(s, ask(SLOW))
        show(s, r["id"], 404, **other)
        cancel(s, r["id"], 404, **other)
        call(s, "DELETE", "/v1/responses/" + r["id"], None, 404, **other)
        call(s, "GET", f"/v1/responses/{r['id']}?stream=true", None, 404, **other)
        e = post(s, ask("x", previous_response_id=r["id"]), 404, **other)["error"]
        equal(e["code"], "previous_response_not_found")
        equal(cancel(s, r["id"])["status"], "cancelled")


def test_a_deadline_ends_the_response():
    with Server() as s:
        r = post(s, ask(SLOW), x_request_timeout_ms="1000")
        last = ended(s, r["id"])
        equal((last["status"], last["error"]["code"]), ("failed", "server_error"))
        assert "deadline" in last["error"]["message"]
        name = post_stream(s, ask(SLOW, stream=True, x_timeout=0.3))[-1]
        equal((name["type"], name["response"]["status"]), ("response.failed", "failed"))
        idle(s)


def test_background_and_foreground_share_the_queue():
    with Server("--parallel", "1", "--max-sequences", "1", "--max-queue", "2") as s:
        names = []
        while len(names) < 20:
            status, head, text = s.request("POST", "/v1/responses", json.dumps(ask(SLOW)))
            if status != 200:
                break
            names.append(json.loads(text)["id"])
        equal((status, json.loads(text)["error"]["code"]), (503, "queue_full"))
        assert "retry-after" in head and len(names) <= 4
        equal(n_stored(s), len(names))  # a rejected request is not stored
        for name in names:
            cancel(s, name)
        idle(s)


def test_the_store_is_bounded_and_running_responses_stay():
    fat = {"text": "word " * 6000, "chunk": "char"}
    with Server("--responses-store", "400K", "--responses-key-share", "50", "--api-key", KEYS,
            key="aaaa") as s:
        slow = post(s, ask(SLOW))
        reader = Reader(s, "POST", "/v1/responses", ask(fat, stream=True),
            Authorization="Bearer aaaa")
        name = reader.next()["response"]["id"]
        streamed = events(b"event: response.created\ndata: {\"type\":\"response.created\","
            b"\"sequence_number\":0}\n\n" + reader.r.read())
        equal([e["sequence_number"] for e in streamed], list(range(len(streamed))))
        r = ended(s, name)
        equal((streamed[-1]["type"], streamed[-1]["response"]), ("response.failed", r))
        equal((r["status"], r["output"]), ("failed", []))
        assert "no room" in r["error"]["message"], r["error"]
        for _ in range(30):
            ended(s, post(s, ask("some words"))["id"])
        assert show(s, slow["id"])["status"] in OPEN
        cancel(s, slow["id"])
        big = post(s, ask("x", input="word " * 60000), 503)["error"]
        equal((big["param"], big["code"]), ("background", "queue_full"))
        metrics = s.get("/metrics")[2].decode()
        n = int(next(x.split()[1] for x in metrics.splitlines()
            if x.startswith("inferflux_responses_kept_bytes ")))
        assert n <= 200 * 1024, n
        assert "inferflux_responses_background_running 0" in metrics


def drain(s):
    s.process.send_signal(signal.SIGTERM)
    s.process.wait(60)


def test_a_drain_lets_a_response_finish():
    with Server("--drain-timeout", "20000", "--threads-http", "2") as s:
        quick = {"text": "x" * 60, "chunk": "char", "delay_ms": 20}
        post(s, ask(quick))
        r = Reader(s, "POST", "/v1/responses", ask(quick, stream=True))
        name = r.next()["response"]["id"]
        other = Reader(s, "GET", f"/v1/responses/{name}?stream=true")
        r.until("response.output_text.delta")
        r.close()
        s.process.send_signal(signal.SIGTERM)
        equal(other.until("response.completed")["response"]["status"], "completed")
        equal(other.next(), None)
        began = time.monotonic()
        s.process.wait(60)
        assert time.monotonic() - began < 15


def test_a_drain_waits_without_readers_too():
    with Server("--drain-timeout", "20000") as s:
        began = time.monotonic()
        post(s, ask({"text": "x" * 40, "chunk": "char", "delay_ms": 25}))
        drain(s)
        assert 39 * 0.025 < time.monotonic() - began < 19  # the response was sent to its end
        assert "finish=done" in s.errors(), s.errors()


def test_the_drain_deadline_ends_the_rest():
    with Server("--drain-timeout", "300", "--threads-http", "2") as s:
        post(s, ask(SLOW))
        r = Reader(s, "POST", "/v1/responses", ask(SLOW, stream=True))
        r.until("response.output_text.delta")
        threading.Timer(0.1, s.process.send_signal, [signal.SIGTERM]).start()
        last = r.until("response.failed")["response"]
        equal((last["status"], last["error"]["message"]), ("failed",
            "The server is shutting down."))
        s.process.wait(60)


if __name__ == "__main__":
    run(globals())
