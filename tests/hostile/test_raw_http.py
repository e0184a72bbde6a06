#!/usr/bin/env python3
"""Mutated HTTP/1.1 requests, pipelined, sent whole and in pieces. A request with an error that makes
its framing ambiguous is rejected and ends the connection, a valid one is served, and the responses do
not depend on the pieces."""
import json
import time

import kit

SLICE_CASES = 400
THREADS = 12
MOST_MB = 500
DEADLINE_MS = 1000
FLAGS = ("--parallel", "4", "--log-level", "error", "--head-timeout", str(DEADLINE_MS), "--body-timeout",
    str(DEADLINE_MS), "--idle-timeout", str(DEADLINE_MS), "--max-body", "100000")
REJECTED = (400, 408, 413, 414, 417, 431, 501, 505)
SCRIPT = {"model": "echo", "messages": [{"role": "user", "content": "x"}], "script": "six seven " * 9,
    "temperature": 0, "seed": 1}  # deterministic also if a changed byte selects another model
TOKENIZE = json.dumps({"model": "demo", "content": "Hello world " * 3}).encode()

# Method, target, body, expected status
GOOD = [
    ("GET", "/livez", None, 200),
    ("HEAD", "/livez", None, 200),
    ("GET", "/v1/models", None, 200),
    ("GET", "/nothing?a=b&c", None, 404),
    ("PUT", "/v1/messages", b"{}", 405),
    ("DELETE", "/v1/requests/none", None, 404),
    ("POST", "/tokenize", TOKENIZE, 200),
    ("POST", "/tokenize", b"{", 400),
    ("POST", "/v1/chat/completions", json.dumps({**SCRIPT, "stream": True}).encode(), 200),
    ("POST", "/v1/chat/completions", json.dumps(SCRIPT).encode(), 200),
]


class Request:
    """A request in parts; `line` and `fields` are written as they are."""

    def __init__(self, rng):
        self.rng = rng
        self.method, self.target, self.body, self.status = rng.choice(GOOD)
        self.version, self.before, self.effect, self.name = "HTTP/1.1", b"", "serve", "valid"
        self.fields = [(b"Host", b"localhost"), (b"Content-Type", b"application/json")]
        self.chunks, self.trailers, self.end = None, b"", b"\r\n"
        self.is_chunked = self.body is not None and rng.random() < 0.5

    def with_body(self):
        """Makes this a request whose body is read to its end."""
        self.method, self.target, self.body, self.status = GOOD[6]
        return self

    def with_chunks(self):
        self.with_body().is_chunked = True
        if not self.chunks:
            self.chunks = self.split()
        return self

    def split(self):
        """Splits the body into chunks of (size, extension, data, end)."""
        found, rest = [], self.body
        while rest:
            n = self.rng.choice((1, 3, 10, len(rest)))
            size = self.rng.choice((b"%x", b"%X", b"0%x")) % len(rest[:n])
            found.append([size, b"", rest[:n], b"\r\n"])
            rest = rest[n:]
        return found

    def framing(self):
        if self.body is None:
            return []
        if self.is_chunked:
            return [(b"Transfer-Encoding", b"chunked")]
        return [(b"Content-Length", b"%d" % len(self.body))]

    def data(self):
        line = f"{self.method} {self.target} {self.version}".encode("latin-1")
        head = b"".join(n + b": " + v + b"\r\n" for n, v in self.fields + self.framing())
        out = self.before + line + b"\r\n" + head + b"\r\n"
        if self.body is None:
            return out
        if not self.is_chunked:
            return out + self.body
        for size, extension, data, end in self.chunks or self.split():
            out += size + extension + b"\r\n" + data + end
        return out + b"0\r\n" + self.trailers + self.end


def field(*values, name=b"X-A"):
    """Returns an operator that adds one field of these values."""
    return lambda r: r.fields.insert(r.rng.randrange(len(r.fields) + 1), (name, r.rng.choice(values)))


def replace(member, *values):
    return lambda r: setattr(r, member, r.rng.choice(values))


def line_break(r):
    """Replaces one CRLF of the head by an invalid line end."""
    i = r.rng.randrange(len(r.fields))
    r.fields[i] = r.fields[i][0], r.fields[i][1] + r.rng.choice((b"\nX-B: c", b"\rX-B: c", b"\n b", b"\r\n b",
        b"\r\n\tb", b"\0", b"\x01", b"\x7f"))


def bad_name(r):
    r.fields.append((r.rng.choice((b"X-A ", b"", b"X\tA", b"X A", b"X\0", b"X\xe9", b"(x)", b"@")), b"v"))


def no_colon(r):
    r.fields.append((b"X-A", b"1\r\nno colon here"))


def host(r):
    kind = r.rng.randrange(3)
    if kind == 0:
        del r.fields[0]
    elif kind == 1:
        r.fields.append((b"host", b"localhost"))
    else:
        r.fields[0] = b"Host", r.rng.choice((b"a/b", b"a b", b"u@localhost", b"localhost:x", b"[", b"[::1", b"a]", b"::1", b"a:1:2"))


def two_framings(r):
    r.with_body()
    n = b"%d" % len(r.body)
    r.fields.append(r.rng.choice(((b"Transfer-Encoding", b"chunked"), (b"Content-Length", n),
        (b"Content-Length", b"%d" % (len(r.body) + 1)), (b"content-length", b"0"))))
    r.is_chunked = r.fields[-1][0] != b"Transfer-Encoding" and r.rng.random() < 0.5


def bad_length(r):
    r.with_body().is_chunked = False
    n = b"%d" % len(r.body)
    r.framing = lambda: [(b"Content-Length", r.rng_length)]
    r.rng_length = r.rng.choice((b"+" + n, b"-" + n, b"", b"0x10", n + b"," + n, n + b" " + n, n + b"a",
        b"9" * 30, b"18446744073709551616", n + b".0", b"99999999", b"1e3", b"\xb2"))


def bad_coding(r):
    r.with_chunks()
    coding = r.rng.choice((b"xchunked", b"identity", b"", b"gzip", b"gzip, chunked", b"chunked, chunked",
        b"chunked, gzip", b"chunked;q=1", b"\x0bchunked", b"chunked\r\nTransfer-Encoding: chunked", b"\"chunked\""))
    r.framing = lambda: [(b"Transfer-Encoding", coding)]


def bad_chunk(r):
    chunk = r.rng.choice(r.with_chunks().chunks)
    kind = r.rng.randrange(4)
    if kind == 0:
        chunk[0] = r.rng.choice((b"+1", b"0x1", b"", b" 1", b"1 ", b"f" * 16, b"g", b"-1",
            b"1_0", b"1\n", b"\0"))
    elif kind == 1:
        chunk[3] = r.rng.choice((b"", b"\n", b"\r", b"x\r\n", b"\r\r\n"))
        chunk[3] += b"zz" if chunk[3] in (b"", b"\r") else b""
    elif kind == 2:
        chunk[1] = r.rng.choice((b";a=\x01", b";a\nb", b";" + b"x" * 40000, b" \x7f"))
    else:
        r.trailers = r.rng.choice((b"no colon\r\n", b": v\r\n", b"A: b\r\n c\r\n", b"A: \0\r\n", b"A: b\n",
            b"".join(b"T%d: v\r\n" % i for i in range(200)), b"A: " + b"x" * 40000 + b"\r\n"))


def too_large(r):
    kind = r.rng.randrange(4)
    if kind == 0:
        r.fields += [(b"X-%d" % i, b"v") for i in range(r.rng.choice((101, 1000)))]
    elif kind == 1:
        r.fields.append((b"X" * r.rng.choice((1, 33000)), b"v" * 33000))
    elif kind == 2:
        r.target = "/" + "a" * r.rng.choice((33000, 100000))
    else:
        r.with_body().body = b" " * 100001


def good_chunks(r):
    for chunk in r.with_chunks().chunks:
        chunk[0] = r.rng.choice((b"", b"0", b"00")) + chunk[0]
        chunk[1] = r.rng.choice((b"", b";a", b";a=b", b';a="b c";d'))
    r.trailers = r.rng.choice((b"", b"X-T: v\r\n", b"A: b\r\nC: d\r\n"))


def good_fields(r):
    r.fields = [(n.swapcase() if r.rng.random() < 0.5 else n, r.rng.choice((b"%s", b" %s", b"%s \t")) % v)
        for n, v in r.fields]
    r.fields += [(b"X-%d" % i, bytes([r.rng.randrange(0x80, 0x100)]) * 5) for i in range(r.rng.randrange(90))]


def absolute(r):
    r.target = r.rng.choice(("http://localhost", "HTTP://LOCALHOST")) + r.target


# Name -> (effect, operator). `reject`: 4xx or 5xx, then the end of the connection.
OPERATORS = {
    "line break": ("reject", line_break),
    "field name": ("reject", bad_name),
    "no colon": ("reject", no_colon),
    "host": ("reject", host),
    "two framings": ("reject", two_framings),
    "length": ("reject", bad_length),
    "coding": ("reject", bad_coding),
    "chunk": ("reject", bad_chunk),
    "too large": ("reject", too_large),
    "version": ("reject", replace("version", "HTTP/0.9", "HTTP/1.10", "http/1.1", "HTTP/2.0", "HTTP/1.1 ", "",
        " HTTP/1.1", "HTTP/1", "HTTP/1.1\t", "HTTP/1.1x", "ICY")),
    "method": ("reject", replace("method", "", "G(T", "GET\0", "G\x80T", "A" * 33, "A" * 40000, "\x16\x03\x01",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nGET", " GET")),
    "target": ("reject", replace("target", "", "livez", "/livez#a", "http://u@localhost/livez", "/%zz", "/%0",
        "/%00", "/\xe9", "/a\tb", "/a\x01", "*", "/livez /livez", "http://", "/livez\x7f")),
    "expectation": ("reject", field(b"200-ok", b"100-continue, x", name=b"Expect")),
    "two keys": ("reject", lambda r: r.fields.extend([(b"Authorization", b"Bearer a")] * 2)),
    "good chunks": ("serve", good_chunks),
    "good fields": ("serve", good_fields),
    "absolute form": ("serve", absolute),
    "empty lines": ("serve", replace("before", b"\r\n")),
    "expect 100": ("serve", field(b"100-continue", name=b"Expect")),
    "keep-alive": ("serve", field(b"keep-alive", b"Keep-Alive, x", name=b"Connection")),
    "HTTP/1.0": ("any", replace("version", "HTTP/1.0")),
    "other version": ("any", replace("version", "HTTP/1.2", "HTTP/1.9")),
    "other method": ("any", replace("method", "PATCH", "TRACE", "FOO", "get", "CONNECT", "OPTIONS")),
    "other target": ("any", replace("target", "/../livez", "/./", "/%2e%2e/%2f", "/?" + "a=b&" * 2000,
        "/v1/models/%F0%9F%98%80", "/v1/responses/%80", "/%0d%0aX: y", "///", "//[", "/livez/", "/v1/models/a%20b")),
    "close": ("any", field(b"close", b"Close, x", b"close, keep-alive", name=b"Connection")),
    "upgrade": ("any", lambda r: r.fields.extend([(b"Connection", b"Upgrade, HTTP2-Settings"),
        (b"Upgrade", b"h2c"), (b"HTTP2-Settings", b"AAMAAABkAARAAAAAAAIAAAAA")])),
}


def mutate_bytes(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(data) + 1)
        data[at:at + rng.choice((0, 1, 1, 4))] = rng.choice((bytes([rng.randrange(256)]), b"\r\n", b"\n", b" ",
            b"", b":", b"0", bytes(data[at:at + 20])))
    return bytes(data)


def make(rng):
    """Returns (data, expectations, name): each expectation is (status or effect, is_head)."""
    requests = [Request(rng) for _ in range(rng.choice((1, 1, 2, 3, 5)))]
    name = rng.choice(sorted(OPERATORS) + ["bytes", "bytes", "cut", "cut"])
    at = rng.randrange(len(requests))
    if name in OPERATORS:
        effect, operator = OPERATORS[name]
        requests[at].effect = effect
        operator(requests[at])
        if effect == "any":
            for r in requests:
                r.method = "GET" if r.method == "HEAD" else r.method
    elif name == "bytes":
        for r in requests:
            r.method = "GET" if r.method == "HEAD" else r.method
        requests[0].effect = "any"
    data = [r.data() for r in requests]
    last = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    whole = b"".join(data) + last
    if name == "bytes":
        whole = mutate_bytes(rng, whole)
    if name == "cut":
        whole = whole[:rng.randrange(len(whole))]
        requests[0].effect = "any"
        if any(r.method == "HEAD" for r in requests):
            return make(rng)
    expected = [(r.status if r.effect == "serve" else r.effect, r.method == "HEAD") for r in requests]
    return whole, [*expected, (200, False)], name


def pieces(rng, data):
    """Splits data into pieces for separate writes."""
    if rng.random() < 0.2 and len(data) < 600:
        return [data[i:i + 1] for i in range(len(data))]
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice((1, 1, 3, 10))))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)]) if a < b]


def comparable(r):
    """Returns what must be equal for a request in pieces."""
    return r.status, kit.comparable(r.body)


def exchange(server, parts, expected, pause):
    """Sends the parts, reads all responses and checks them; returns them."""
    found, form = [], iter(expected)
    with server.connect() as c:
        c.settimeout(20)
        reader = kit.Reader(c)
        try:
            for part in parts:
                c.sendall(part)
                if pause:
                    time.sleep(pause)
        except (BrokenPipeError, ConnectionResetError):
            pass  # a rejected request; what the server has sent is read
        is_open = True
        while is_open:
            want, is_head = next(form, ("any", False))
            try:
                r = reader.response(is_head)
            except kit.Ended:
                kit.require(want == "any" or "any" in (w for w, _ in expected), "no response; expected", want,
                    "after", [x.status for x in found])
                break
            found.append(r)
            if r.body and r.status >= 400:
                kit.read_json(r.body)
            if want == "reject":
                kit.require(r.status in REJECTED and r.closes(), "not rejected:", r.status, r.raw, r.body[:200])
            elif want != "any":
                # After an invalid request the expectations of later ones mean nothing.
                is_sure = "any" not in (w for w, _ in expected[:len(found)])
                kit.require(not is_sure or r.status == want, "status", r.status, "instead of", want, r.body[:200])
            is_open = not r.closes()
        if not is_open:
            kit.require(reader.ended(), "bytes after the last response:", reader.data[:200])
    return found


def run_one(server, rng, data, expected):
    whole = exchange(server, [data], expected, 0)
    for attempt in range(3):
        parts = exchange(server, pieces(rng, data), expected, rng.choice((0, 0, 0.001)))
        equal = [comparable(r) for r in whole] == [comparable(r) for r in parts]
        # A deadline may pass on a busy machine before the last piece is sent.
        if equal or not any(r.status == 408 for r in (*whole, *parts)):
            break
    kit.require(equal, "sent whole:", [(r.status, r.body[:100]) for r in whole], "; in pieces:",
        [(r.status, r.body[:100]) for r in parts])
    return whole


def main():
    plan = kit.Plan("raw_http", SLICE_CASES)
    with kit.Target(*FLAGS) as server:
        first = server.reference()

        def run_case(index):
            rng = plan.rng(index)
            data, expected, name = make(rng)
            if plan.input:
                data, expected = open(plan.input, "rb").read(), [("any", False)]
            try:
                found = run_one(server, rng, data, expected)
                plan.done(name, *("served" if r.status == 200 else "rejected" for r in found[:1]))
            except (kit.Failure, OSError) as e:
                plan.fail(index, data, f"{name}: {e!r}")
                if server.process.poll() is not None:
                    plan.fail(index, data, f"the server ended: {server.errors()}")

        kit.campaign(plan, run_case, THREADS)
        plan.finish(server.checks_after(first, MOST_MB) if server.process.poll() is None else {})


if __name__ == "__main__":
    main()
