#!/usr/bin/env python3
"""Mutated TLS records, between a TLS client and the HTTPS port of the server. A request is answered only
if each record before its end was authentic and in order; a connection with any other record ends; and
the pieces in which records arrive change nothing."""
import json
import os
import socket
import ssl
import subprocess
import tempfile
import time

import kit

SLICE_CASES = 1000
THREADS = 12
MOST_MB = 500
DEADLINE_MS = 1000
FLAGS = ("--parallel", "4", "--log-level", "error", "--head-timeout", str(DEADLINE_MS), "--body-timeout",
    str(DEADLINE_MS), "--idle-timeout", str(DEADLINE_MS), "--max-body", "100000")
HANDSHAKE, DATA = 22, 23
HELLO, FINISH, REQUESTS = range(3)  # flights of a client
SCRIPT = {"model": "echo", "messages": [{"role": "user", "content": "x"}], "script": "six seven " * 9}


def http(method, path, body=None):
    data = b"" if body is None else json.dumps(body).encode()
    length = b"" if body is None else b"Content-Length: %d\r\n" % len(data)
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n".encode() + length + b"\r\n" + data


GOOD = [
    http("GET", "/livez"),
    http("GET", "/nothing"),
    http("POST", "/tokenize", {"model": "demo", "content": "Hello world " * 30}),
    http("POST", "/v1/chat/completions", SCRIPT),
    http("POST", "/v1/chat/completions", {**SCRIPT, "stream": True}),
]
LAST = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def context(version, alpn=(), ciphers=None):
    """Returns a client context for one version."""
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    c.check_hostname, c.verify_mode = False, ssl.CERT_NONE
    if ciphers:
        c.set_ciphers(ciphers)
    c.minimum_version = c.maximum_version = version
    if alpn:
        c.set_alpn_protocols(list(alpn))
    return c


V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
ACCEPTED = [context(v, alpn) for v in (V12, V13) for alpn in ((), ("http/1.1",), ("h2", "http/1.1"))]
REFUSED = [context(V12, ("h2",)), context(V13, ("h2",)), context(V12, ciphers="ECDHE-ECDSA-AES128-SHA256"),
    context(V12, ciphers="AES128-SHA256:AES128-GCM-SHA256")]


# ---- records

def record(kind, payload, version=b"\x03\x03", length=None):
    n = len(payload) if length is None else length
    return bytes([kind]) + version + n.to_bytes(2, "big") + payload


def split_records(data):
    found = []
    while data:
        n = 5 + int.from_bytes(data[3:5], "big")
        found.append(data[:n])
        data = data[n:]
    return found


def parse_hello(r):
    """Returns (bytes before the extensions, [[type, data, length]]) of the record of a ClientHello."""
    at = 5 + 4 + 2 + 32
    at += 1 + r[at]
    at += 2 + int.from_bytes(r[at:at + 2], "big")
    at += 1 + r[at]
    before, rest, found = r[9:at], r[at + 2:], []
    while rest:
        n = int.from_bytes(rest[2:4], "big")
        found.append([rest[:2], rest[4:4 + n], n])
        rest = rest[4 + n:]
    return before, found


def hello_record(before, extensions, n_extensions=None, n_message=None):
    body = b"".join(t + n.to_bytes(2, "big") + data for t, data, n in extensions)
    message = before + (len(body) if n_extensions is None else n_extensions).to_bytes(2, "big") + body
    n = len(message) if n_message is None else n_message
    message = b"\x01" + n.to_bytes(3, "big") + message
    return b"".join(record(HANDSHAKE, message[i:i + 16384], b"\x03\x01") for i in range(0, len(message), 16384))


# ---- operators: change the records of a flight at index i, return the index of the first that is not
# authentic or not at its place

def flip(rng, records, i):
    at = rng.randrange(len(records[i]))
    changed = bytearray(records[i])
    changed[at] ^= 1 << rng.randrange(8)
    records[i] = bytes(changed)
    return i


def drop(rng, records, i):
    del records[i]
    return i


def repeat(rng, records, i):
    records.insert(i + 1, records[i])
    return i + 1


def swap(rng, records, i):
    j = i - 1 if i else i + 1
    if j < len(records):
        records[i], records[j] = records[j], records[i]
    else:
        del records[i]
    return min(i, j)


def cut(rng, records, i):
    records[i] = records[i][:rng.randrange(len(records[i]))]
    del records[i + 1:]
    return i


def insert(rng, records, i):
    """Inserts a record that no peer may send there: unknown types, plain text, sizes above the limits."""
    payload = rng.choice((b"", b"\0", rng.randbytes(30), b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    records.insert(i, rng.choice((
        record(rng.choice((0, 19, 24, 25, 128, 255)), payload),
        record(DATA, payload),
        record(HANDSHAKE, rng.choice((b"\0" * 4, b"\x18\0\0\x01\0", b"\x0b\0\0\0", b"\x01\xff\xff\xff" + payload))),
        record(20, rng.choice((b"\2", b"\1\1", b""))),
        record(21, rng.choice((b"\2", b"\2\50", b"\1\0\1\0", b"\3\0"))),
        record(DATA, payload, length=rng.choice((16641, 18433, 65535))),
        record(rng.choice((HANDSHAKE, DATA)), payload, version=rng.choice((b"\0\2", b"\2\0", b"\4\0", b"\xff\xff"))),
    )))
    return i


def cut_payload(rng, records, i):
    """Shortens the payload of a record together with its length: without its authentication tag."""
    kind, payload = records[i][0], records[i][5:]
    records[i] = record(kind, payload[:rng.choice((0, len(payload) // 2, max(len(payload) - 16, 0), len(payload) - 1))])
    return i


def join(rng, records, i):
    """Declares two records as one."""
    if i + 1 < len(records):
        records[i:i + 2] = [record(records[i][0], records[i][5:] + records[i + 1][5:])]
    else:
        records[i] = record(records[i][0], records[i][5:] * 2)
    return i


def plain_http(rng, records, i):
    records[i:] = [rng.choice(GOOD + [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x80\x2e\1\3\1\0\x15\0\0\0\x10" + b"a" * 37,
        b"SSH-2.0-x\r\n", b"PROXY TCP4 1.1.1.1 1.1.1.1 1 1\r\n", b"\0" * 100, rng.randbytes(rng.randrange(1, 20000))])]
    return i


def long_message(rng, records, i):
    before, extensions = parse_hello(records[i])
    records[i] = hello_record(before, extensions, n_message=rng.choice((1 << 17, (1 << 24) - 1)))
    return i


def hello_length(rng, records, i):
    """One length of a ClientHello does not fit its content."""
    before, extensions = parse_hello(records[i])
    n = sum(4 + len(data) for _, data, _ in extensions)
    if rng.random() < 0.5:
        records[i] = hello_record(before, extensions, rng.choice((0, 1, n - 1, n + 1, 65535)))
    else:
        e = rng.choice(extensions)
        e[2] = rng.choice((e[2] + 1, 65535, e[2] + 5))
        records[i] = hello_record(before, extensions)
    return i


def hello_extensions(rng, records, i):
    """Removes, repeats, reorders, fills or adds extensions."""
    before, extensions = parse_hello(records[i])
    for _ in range(rng.choice((1, 1, 3))):
        e, kind = rng.randrange(len(extensions)), rng.randrange(6)
        if kind == 0 and len(extensions) > 1:
            del extensions[e]
        elif kind == 1:
            extensions.insert(rng.randrange(len(extensions)), list(extensions[e]))
        elif kind == 2:
            rng.shuffle(extensions)
        else:
            data = rng.randbytes(rng.choice((0, 1, 2, 7, 300, 9000)))
            if kind == 3 and extensions[e][1]:
                data = bytearray(extensions[e][1])
                data[rng.randrange(len(data))] = rng.choice((0, 1, 255))
            name = extensions[e][0] if kind < 5 else rng.choice((0, 1, 5, 15, 18, 27, 41, 42, 44, 49, 57, 65281)).to_bytes(2, "big")
            if kind == 5:
                extensions.append([name, bytes(data), len(data)])
            else:
                extensions[e] = [name, bytes(data), len(data)]
    records[i] = hello_record(before, extensions)
    return i


def hello_body(rng, records, i):
    """Changes bytes of a ClientHello, the header of its record excepted."""
    changed = bytearray(records[i])
    for _ in range(rng.choice((1, 1, 4, 20))):
        changed[rng.randrange(5, len(changed))] = rng.choice((0, 1, 127, 255, rng.randrange(256)))
    records[i] = bytes(changed)
    return i


def floods(rng, records, i):
    """Many records that are permitted once, or that are empty."""
    one = rng.choice((record(21, b"\1\x5a"), record(20, b"\1"), record(HANDSHAKE, b""), record(21, b"\1\x64"), record(DATA, b"")))
    records[i:i] = [one] * rng.choice((1, 6, 40, 3000))
    return i


def fragments(rng, records, i):
    """Divides a handshake message into several records, which TLS permits."""
    payload, size = records[i][5:], rng.choice((1, 4, 60, 200))
    records[i:i + 1] = [record(HANDSHAKE, payload[k:k + size], records[i][1:3]) for k in range(0, len(payload), size)]
    return len(records)


def unchanged(rng, records, i):
    return len(records)


# Name -> (effect, flights, operator). `reject`: no request from the changed record on is answered, the
# connection ends. `serve`: every request is answered. `any`: every request, or none after the change.
OPERATORS = {
    "flipped bit": ("reject", (FINISH, REQUESTS), flip),
    "lost record": ("reject", (FINISH, REQUESTS), drop),
    "repeated record": ("reject", (FINISH, REQUESTS), repeat),
    "exchanged records": ("reject", (REQUESTS,), swap),
    "cut record": ("reject", (HELLO, FINISH, REQUESTS), cut),
    "cut payload": ("reject", (FINISH, REQUESTS), cut_payload),
    "joined records": ("reject", (REQUESTS,), join),
    "invalid record": ("reject", (REQUESTS,), insert),
    "other protocol": ("reject", (HELLO, FINISH, REQUESTS), plain_http),
    "length of hello": ("reject", (HELLO,), hello_length),
    "long message": ("reject", (HELLO,), long_message),
    "refused client": ("reject", (HELLO,), unchanged),
    "invalid handshake record": ("any", (HELLO, FINISH), insert),
    "extensions of hello": ("any", (HELLO,), hello_extensions),
    "bytes of hello": ("any", (HELLO,), hello_body),
    "many records": ("any", (HELLO, FINISH, REQUESTS), floods),
    "fragments of hello": ("serve", (HELLO,), fragments),
    "pieces": ("serve", (HELLO,), unchanged),
}


class Change:
    """The change of one case: an operator and where it applies."""

    def __init__(self, rng):
        self.rng, self.name = rng, rng.choice(sorted(OPERATORS))
        self.effect, flights, self.operator = OPERATORS[self.name]
        self.flight = rng.choice(flights)
        self.in_pieces = self.name == "pieces" or rng.random() < 0.2
        self.sent = b""

    def apply(self, flight, records):
        """Changes the records if this is their flight; returns the index of the first changed one."""
        if flight != self.flight:
            return len(records)
        # TLS 1.3 ignores the change-cipher-spec record of its clients, which nothing authenticates.
        kinds = [r[0] for r in records]
        places = [i for i, kind in enumerate(kinds) if DATA not in kinds or kind == DATA]
        return self.operator(self.rng, records, self.rng.choice(places))

    def pieces(self, data):
        if not self.in_pieces:
            return [data]
        if self.rng.random() < 0.3 and len(data) < 1500:
            return [data[i:i + 1] for i in range(len(data))]
        cuts = sorted(self.rng.randrange(len(data) + 1) for _ in range(self.rng.choice((1, 3, 10))))
        return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)]) if a < b]


class NoChange:
    """The interface of Change for a client whose records stay as they are."""

    name, sent = "none", b""

    def apply(self, flight, records):
        return len(records)

    def pieces(self, data):
        return [data]


# ---- a TLS client whose records can be changed

class Client:
    def __init__(self, server, ctx, session=None):
        self.c = server.connect()
        self.c.settimeout(20)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = ctx.wrap_bio(self.incoming, self.outgoing, session=session)
        self.plain, self.is_over = b"", False

    def send(self, records, change):
        data = b"".join(records)
        change.sent += data
        try:
            for piece in change.pieces(data):
                self.c.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server has ended the connection; what it sent is read

    def receive(self):
        """Reads from the socket; at the end of the connection sets `is_over`."""
        try:
            data = self.c.recv(65536)
        except ConnectionResetError:
            data = b""
        except socket.timeout:
            raise kit.Failure("the connection did not end") from None
        self.is_over = not data
        self.incoming.write(data)

    def handshake(self, change):
        """Returns whether the client's handshake has ended, and whether none of its records was changed."""
        flight, is_authentic = HELLO, True
        while True:
            is_done, is_failed = False, False
            try:
                self.tls.do_handshake()
                is_done = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                is_failed = True
            records = split_records(self.outgoing.read())
            if records and not is_failed:
                n = len(records)
                is_authentic &= change.apply(flight, records) >= n
                self.send(records, change)
                flight += 1
            elif is_failed:
                self.send(records, change)  # an alert of the client
                return False, is_authentic
            if is_done:
                return True, is_authentic
            if change.name == "cut record" and not is_authentic:
                self.end()
            self.receive()
            if self.is_over:
                return False, is_authentic

    def end(self):
        try:
            self.c.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def read_all(self):
        """Decrypts what the server sends until the connection ends."""
        while True:
            try:
                while piece := self.tls.read(65536):
                    self.plain += piece
                return
            except ssl.SSLWantReadError:
                if self.is_over:
                    return
                self.receive()
            except ssl.SSLZeroReturnError:
                return
            except ssl.SSLError as e:
                reason = e.reason or str(e)
                kit.require("ALERT" in reason or "EOF" in reason, "the server sent an invalid record:", reason)
                return


class Decrypted:
    """Decrypted bytes as a connection for kit.Reader."""

    def __init__(self, data):
        self.data = data

    def recv(self, n):
        piece, self.data = self.data[:n], self.data[n:]
        return piece


def split_responses(plain):
    """Returns the complete responses as (status, body)."""
    reader, found = kit.Reader(Decrypted(plain)), []
    while True:
        try:
            r = reader.response()
        except (kit.Ended, kit.Failure):
            return found
        found.append((r.status, kit.comparable(r.body)))


def write_requests(client, rng, requests):
    """Encrypts the requests; returns the records, and per request the number of records to its end."""
    records, ends = [], []
    for data in requests:
        size = rng.choice((1, 10, len(data), len(data))) if len(data) < 300 else len(data)
        for i in range(0, len(data), size):
            client.tls.write(data[i:i + size])
        records += split_records(client.outgoing.read())
        ends.append(len(records))
    return records, ends


def run_one(server, rng, change, expected, sessions):
    """Runs a case; returns (number of authentic requests, number of responses)."""
    ctx = rng.choice(REFUSED if change.name == "refused client" else ACCEPTED)
    session = sessions.get(ctx) if rng.random() < 0.3 else None
    client = Client(server, ctx, session)
    requests = [rng.choice(GOOD) for _ in range(rng.choice((1, 2, 4)))] + [LAST]
    with client.c:
        is_done, is_authentic = client.handshake(change)
        n_authentic = 0
        if is_done:
            records, ends = write_requests(client, rng, requests)
            n = len(records)
            first = change.apply(REQUESTS, records)
            first = n if first >= len(records) and len(records) >= n else first
            n_authentic = sum(end <= first for end in ends) if is_authentic or change.effect == "any" else 0
            client.send(records, change)
            if change.name == "cut record":
                client.end()
            client.read_all()
        elif not client.is_over:
            client.end()
            while not client.is_over:
                client.receive()
    found = split_responses(client.plain)
    if change.effect != "serve" and len(found) == n_authentic + 1 and found[-1][0] == 408:
        found.pop()  # the start of a request was authentic, and the server waited for the rest
    want = [expected[r] for r in requests]
    kit.require(len(found) <= n_authentic, len(found), "responses,", n_authentic, "authentic requests")
    kit.require(found == want[:len(found)], "other responses:", found, "expected", want)
    if change.effect == "serve":
        kit.require(len(found) == len(requests), "not served:", len(found), "of", len(requests))
    if change.effect == "reject" and change.flight != REQUESTS:
        kit.require(not found, "a request was answered after an invalid handshake")
    return n_authentic, len(found)


def references(server):
    """Returns the responses to the good requests, and a TLS session of each context."""
    expected, sessions = {}, {}
    nothing = NoChange()
    for ctx in ACCEPTED:
        client = Client(server, ctx)
        with client.c:
            kit.require(client.handshake(nothing)[0], "a good client is refused")
            for data in GOOD + [LAST]:
                client.tls.write(data)
            client.send([client.outgoing.read()], nothing)
            client.read_all()
            sessions[ctx] = client.tls.session
        found = split_responses(client.plain)
        kit.require(len(found) == len(GOOD) + 1, "good requests are not served:", client.plain[:500])
        expected = dict(zip(GOOD + [LAST], found))
    return expected, sessions


def n_requests(server):
    text = server.get("/metrics")[2].decode()
    return int(next(line for line in text.splitlines() if line.startswith("inferflux_http_requests_total")).split()[1])


def send_input(server, data):
    """Sends bytes as they are; the connection must end."""
    with server.connect() as c:
        c.settimeout(20)
        c.sendall(data)
        while c.recv(65536):
            pass


def main():
    plan = kit.Plan("tls_records", SLICE_CASES)
    with tempfile.TemporaryDirectory() as folder:
        cert, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-subj", "/CN=localhost", "-days", "2", "-keyout", key, "-out", cert], check=True, capture_output=True)
        with kit.Target(*FLAGS, "--ssl-cert-file", cert, "--ssl-key-file", key) as server:
            first = server.reference()
            expected, sessions = references(server)
            n_before = n_requests(server)

            def run_case(index):
                rng = plan.rng(index)
                change = Change(rng)
                try:
                    if plan.input:
                        send_input(server, open(plan.input, "rb").read())
                        return plan.done("input")
                    n_authentic, n_found = run_one(server, rng, change, expected, sessions)
                    plan.done(change.name, "complete" if n_found and n_found == n_authentic else "ended")
                    plan.add(requests=n_authentic)
                except (kit.Failure, OSError) as e:
                    plan.fail(index, change.sent, f"{change.name} in flight {change.flight}: {e!r}")
                    if server.process.poll() is not None:
                        plan.fail(index, change.sent, f"the server ended: {server.errors()}")

            kit.campaign(plan, run_case, THREADS)
            if server.process.poll() is not None:
                plan.finish({})
            n_read = n_requests(server) - n_before - 1
            most = plan.counts.get("requests", 0)
            print(f"the server read {n_read} requests, {most} were authentic")
            plan.finish({"no request was read from records that are not authentic": n_read <= most or plan.input,
                **server.checks_after(first, MOST_MB)})


if __name__ == "__main__":
    main()
