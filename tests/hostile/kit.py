"""Shared parts of the hostile tests: seeded cases, a strict HTTP client, error formats, a campaign.

A case is a function of the seed and its index, so one case can be repeated alone. Without arguments
a program runs its slice: a fixed seed and a fixed number of cases. With HOSTILE_SECONDS, or
--seconds, it runs for that time with a random seed. README.md lists the arguments."""
import argparse
import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import Server  # noqa: E402

OUT = os.path.join(ROOT, "build/hostile")
MAX_FAILURES = 5
SANITIZERS = {"ASAN_OPTIONS": "detect_leaks=1:quarantine_size_mb=16:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1"}
REPORT = re.compile(r"ERROR: \w+Sanitizer|runtime error:")


class Failure(Exception):
    """A property that does not hold for a case."""


def require(condition, *what):
    if not condition:
        raise Failure(" ".join(str(w) for w in what))


# ---- arguments, seeds, reports

class Plan:
    """The cases to run: `count` of them from `first`, or as many as fit into `seconds`."""

    def __init__(self, name, slice_cases):
        p = argparse.ArgumentParser(description="README.md of this folder describes the arguments.")
        p.add_argument("--seed", type=int)
        p.add_argument("--seconds", type=float, default=float(os.environ.get("HOSTILE_SECONDS", 0)))
        p.add_argument("--index", type=int, default=0, help="first case")
        p.add_argument("--count", type=int, help="number of cases")
        p.add_argument("--input", help="a file that a failure wrote: runs this input alone")
        a = p.parse_args()
        self.name, self.first, self.input = name, a.index, a.input
        self.until = time.monotonic() + a.seconds if a.seconds and a.count is None else None
        self.count = a.count if a.count is not None else slice_cases
        self.seed = a.seed if a.seed is not None else random.randrange(1 << 30) if self.until else 1
        self.lock, self.n_done, self.failures, self.counts = threading.Lock(), 0, [], {}
        self.next_index = self.first
        print(f"{name}: seed {self.seed}, " +
            (f"{a.seconds:.0f} s" if self.until else f"{self.count} cases from {self.first}"))

    def rng(self, index):
        return random.Random(f"{self.name} {self.seed} {index}")

    def take(self):
        """Returns the index of the next case, or None at the end. Any thread."""
        with self.lock:
            over = (time.monotonic() > self.until if self.until
                else self.next_index >= self.first + self.count)
            if over or len(self.failures) >= MAX_FAILURES:
                return None
            self.next_index += 1
            return self.next_index - 1

    def done(self, *kinds):
        """Counts a case that passed, under each of these names."""
        with self.lock:
            self.n_done += 1
        self.add(**{kind: 1 for kind in kinds})

    def add(self, **kinds):
        with self.lock:
            for kind, n in kinds.items():
                self.counts[kind] = self.counts.get(kind, 0) + n

    def fail(self, index, data, reason):
        """Writes the input of a failed case to a file and prints how to repeat it."""
        os.makedirs(OUT, exist_ok=True)
        path = os.path.join(OUT, f"{self.name}-{self.seed}-{index}")
        with open(path, "wb") as f:
            f.write(data)
        with self.lock:
            self.failures.append(reason)
            print(f"FAIL case {index} of seed {self.seed}: {str(reason)[:1500]}\n"
                f"     input: {os.path.relpath(path, ROOT)}; repeat: tests/hostile/test_"
                f"{self.name}.py --seed {self.seed} --index {index} --count 1", flush=True)

    def finish(self, checks):
        """Prints the checks of a campaign, a dict of name and boolean, and exits."""
        checks = {"every case": not self.failures, **checks}
        print(f"{self.n_done} cases; " + ", ".join(f"{k} {n}" for k, n in sorted(self.counts.items())))
        for name, ok in checks.items():
            print("ok  " if ok else "FAIL", name)
        bad = sum(not ok for ok in checks.values())
        print(f"{len(checks) - bad} passed, {bad} failed")
        sys.exit(bad > 0)


# ---- a strict client: reads one response and rejects what a strict client would reject

class Response:
    def __init__(self, status, fields, body, raw):
        self.status, self.fields, self.body, self.raw = status, fields, body, raw

    def closes(self):
        return self.fields.get("connection") == "close"


class Ended(Exception):
    """The connection ended before the first byte of a response."""


class Reader:
    """Reads responses from a connection; checks their syntax byte by byte."""

    def __init__(self, connection):
        self.c, self.data = connection, b""

    def more(self):
        piece = self.c.recv(65536)
        self.data += piece
        return bool(piece)

    def take(self, n):
        while len(self.data) < n:
            require(self.more(), "the connection ended inside a response:", self.data[-300:])
        piece, self.data = self.data[:n], self.data[n:]
        return piece

    def line(self):
        while b"\r\n" not in self.data:
            require(self.more(), "the connection ended inside a line:", self.data[-300:])
        line, _, self.data = self.data.partition(b"\r\n")
        return line

    def response(self, is_head=False):
        while not self.data:
            if not self.more():
                raise Ended
        start = self.line()
        hit = re.fullmatch(rb"HTTP/1\.1 ([1-5]\d\d) [ -~]*", start)
        require(hit, "malformed status line:", start[:200])
        status, fields, seen = int(hit[1]), {}, [start]
        while line := self.line():
            seen.append(line)
            hit = re.fullmatch(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?([^\x00-\x08\x0a-\x1f\x7f]*)", line)
            require(hit, "malformed response field:", line[:200])
            name = hit[1].decode().lower()
            require(name not in fields, "two response fields", name)
            fields[name] = hit[2].decode("latin-1")
        if status == 100:
            return self.response(is_head)
        return Response(status, fields, self.body(status, fields, is_head), b"\r\n".join(seen))

    def body(self, status, fields, is_head):
        is_chunked = fields.get("transfer-encoding") == "chunked"
        require(not (is_chunked and "content-length" in fields), "two kinds of framing:", fields)
        if is_head or status in (204, 304):
            return b""
        if "content-length" in fields:
            return self.take(int(fields["content-length"]))
        if not is_chunked:
            require(fields.get("connection") == "close", "a response without framing:", fields)
            while self.more():
                pass
            body, self.data = self.data, b""
            return body
        body = b""
        while True:
            size = self.line()
            require(re.fullmatch(rb"[0-9a-fA-F]+", size), "malformed chunk size:", size[:100])
            n = int(size, 16)
            body += self.take(n)
            require(self.line() == b"", "no CRLF after a chunk")
            if n == 0:
                return body

    def ended(self):
        """Whether the connection ends here without further bytes."""
        return not self.data and not self.more()


def split_stream(body):
    """Returns the data of the frames of an event stream."""
    found = []
    for frame in body.split(b"\n\n"):
        data = [line[5:].strip() for line in frame.split(b"\n") if line.startswith(b"data:")]
        require(all(re.match(rb"(data|event|id|retry)?:|$", x) for x in frame.split(b"\n")),
            "malformed event:", frame[:200])
        found += [b"\n".join(data)] if data else []
    return found


def strict_pairs(pairs):
    names = [name for name, _ in pairs]
    require(len(names) == len(set(names)), "an object of a response has one name twice:", names)
    return dict(pairs)


def reject_constant(name):
    raise ValueError(f"{name} is not JSON")


def strict_json(data):
    return json.loads(data.decode("utf-8"), parse_constant=reject_constant)


def read_json(data, may_repeat=False):
    """Parses JSON of a response: valid UTF-8, no NaN; no name twice unless `may_repeat`."""
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=reject_constant,
            object_pairs_hook=dict if may_repeat else strict_pairs)
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # fails for a lone surrogate
        return value
    except (ValueError, RecursionError) as e:
        raise Failure(f"a response that is not JSON ({e}): {data[:300]!r}") from None


# ---- error formats, as docs/dialects.md describes them

def members(value, *names):
    return isinstance(value, dict) and set(names) <= set(value)


FORMATS = {
    "OPENAI": lambda v: members(v, "error") and members(v["error"], "message", "type", "param", "code"),
    "ANTHROPIC": lambda v: members(v, "type", "error", "request_id") and v["type"] == "error" and
        members(v["error"], "type", "message"),
    "OLLAMA": lambda v: members(v, "error") and isinstance(v["error"], str),
    "LLAMA": lambda v: members(v, "error") and members(v["error"], "code", "message", "type"),
    "PROBLEM": lambda v: members(v, "type", "title", "status", "detail", "code"),
}

# Every 5xx that hostile input may cause: status, pattern that the body contains, reason.
SERVER_ERRORS = (
    (503, "queue_full|queue is full", "the clients of a test send more than the queue takes"),
    (529, "overloaded_error", "the same for Anthropic's clients"),
    (503, "deadline of the request can no longer be met|exceeds the deadline", "x_timeout, and a queue"),
    (504, "timeout|deadline|time limit", "the limit of the server or x_timeout has passed"),
    (501, "has no login of browsers at an issuer", "the configuration of the test has no issuer"),
)


def check_error(form, r):
    """Checks an error response: its format, and that a 5xx has a reason."""
    kind = r.fields.get("content-type", "")
    require(kind in ("application/json", "application/problem+json"), "an error of type", kind, r.body[:200])
    value = read_json(r.body)
    is_http = members(value, "error") and members(value["error"], "code") and \
        value["error"]["code"] == r.status and r.closes()  # HTTP itself is malformed
    require(FORMATS[form](value) or is_http, f"an error not in the format {form}:", r.body[:300])
    if r.status >= 500:
        text = r.body.decode()
        require(any(r.status == status and re.search(pattern, text) for status, pattern, _ in SERVER_ERRORS),
            "a server error without a reason:", r.status, text[:300])


def check_response(form, r, may_repeat=False):
    """Checks the status, the type and the syntax of a response of a route. `may_repeat`: it returns
    members of the request as the client sent them, which may contain one name twice."""
    require(r.status in (200, 201, 204) or 400 <= r.status < 600, "status", r.status)
    if r.status >= 400:
        return check_error(form, r)
    kind = r.fields.get("content-type", "")
    if kind == "application/json":
        read_json(r.body, may_repeat)
    elif kind == "text/event-stream":
        for data in split_stream(r.body):
            if data != b"[DONE]":
                read_json(data, may_repeat)
    elif kind == "application/x-ndjson":
        for line in r.body.split(b"\n"):
            if line.strip():
                read_json(line, may_repeat)
    else:
        require(kind.startswith("text/plain") or r.status == 204, "type", kind, r.body[:100])


def routes():
    """Returns (method, path, error format) of every route, from the table of the server."""
    with open(os.path.join(ROOT, "src/serve/routes.c")) as f:
        found = re.findall(r'\{ "([A-Z]+)", "(/[^"]*)", SCOPE_\w+, \w+, ERROR_(\w+)', f.read())
    require(len(found) > 50, "the table of routes was not found")
    return found


# ---- equal outputs: bytes of a response without the members that differ between two computations

VARYING = [
    # ids of responses, of their items, and of tool calls
    (rb'"(id|item_id|response_id|call_id|request_id|tool_call_id)":"[^"]*"', rb'"\1":"ID"'),
    # times
    (rb'"(created|created_at|completed_at)":(\d+|"[^"]*")', rb'"\1":0'),
    (rb'"((?:total|load|prompt_eval|eval)_duration)":\d+', rb'"\1":0'),
    (rb'"timings":\{[^{}]*\}', rb'"timings":{}'),
    # prompt tokens from the prefix cache, and those that were computed
    (rb'"(cached_tokens|tokens_cached|input_tokens|cache_read_input_tokens)":\d+', rb'"\1":0'),
    (rb'"id_slot":-?\d+', rb'"id_slot":0'),
    (rb'"(signature|encrypted_content)":"[^"]*"', rb'"\1":"S"'),
]


def comparable(body):
    """Returns a body with its varying members (README.md lists them) replaced by constants."""
    for pattern, by in VARYING:
        body = re.sub(pattern, by, body)
    return body


# ---- a server under test, and what must hold before and after a campaign

REFERENCES = (
    ("/v1/chat/completions", {"max_tokens": 12, "temperature": 0, "logprobs": True, "n": 2}),
    ("/v1/chat/completions", {"max_tokens": 12, "temperature": 1, "seed": 4, "stream": True}),
    ("/v1/messages", {"max_tokens": 12, "temperature": 0}),
    ("/api/chat", {"options": {"num_predict": 12, "temperature": 0}}),
)


class Target(Server):
    """A server whose outputs, memory and invariants are compared before and after."""

    def __init__(self, *flags, env=None, **more):
        super().__init__(*flags, env={**SANITIZERS, **(env or {})}, **more)

    def reference(self):
        """Returns the bytes of deterministic requests, one per dialect."""
        found = []
        for path, body in REFERENCES:
            body = {"model": "demo", "messages": [{"role": "user", "content": "What is InferFlux?"}], **body}
            status, _, text = self.request("POST", path, json.dumps(body))
            require(status == 200, "a good request got", status, text[:300])
            found.append(comparable(text))
        return found

    def rss_mb(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024

    def until_idle(self, seconds=60):
        """Waits until nothing runs; returns /debug/invariants and the metrics."""
        deadline = time.monotonic() + seconds
        while True:
            left = json.loads(self.get("/debug/invariants")[2])
            metrics = self.get("/metrics")[2].decode()
            is_idle = left["sequences"] == 0 and left["requests"]["running"] == 0 and \
                "\ninferflux_requests_running 0\n" in metrics
            if is_idle or time.monotonic() > deadline:
                return left, metrics
            time.sleep(0.05)

    def checks_after(self, first, most_mb):
        """Returns the checks of a campaign; `first`: result of reference() before it."""
        left, metrics = self.until_idle()
        pages, rss = left["pages"], self.rss_mb()
        print(f"resident {rss:.0f} MB, {left}")
        return {
            "the server is alive and ready": self.process.poll() is None and self.get("/readyz")[0] == 200,
            "the invariants hold": left["ok"],
            "no sequence, page or request is left": left["sequences"] == 0 and pages["owned"] == 0 and
                pages["free"] + pages["cached"] == pages["total"] and
                "\ninferflux_requests_running 0\n" in metrics,
            f"the resident memory is below {most_mb} MB": rss < most_mb,
            "the outputs of good requests are unchanged": self.reference() == first,
            "no sanitizer report": not REPORT.search(self.errors()),
        }


def campaign(plan, run_case, n_threads):
    """Runs cases on several threads until the plan ends. `run_case(index)` handles its failures."""
    def work():
        while (index := plan.take()) is not None:
            run_case(index)

    threads = [threading.Thread(target=work) for _ in range(n_threads)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def run_program(args, seconds, **more):
    """Runs a program that must end by itself; returns (status, output, errors)."""
    try:
        done = subprocess.run(args, capture_output=True, timeout=seconds,
            env={**os.environ, **SANITIZERS, **more.pop("env", {})}, **more)
    except subprocess.TimeoutExpired:
        raise Failure(f"the program did not end within {seconds} s") from None
    return done.returncode, done.stdout, done.stderr
