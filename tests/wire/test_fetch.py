#!/usr/bin/env python3
"""The HTTP client for requests that the server sends: redirects, limits on bytes and time, TLS, and
addresses that the URLs of clients must not reach, with a DNS server that changes its answers."""
import contextlib
import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from dns_server import DnsServer
from harness import equal, program, run

MB = 1 << 20
PUBLIC = "127.0.0.2"  # counts as public in these tests


def response(body=b"hello", status="200 OK", *fields):
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n" + "".join(f + "\r\n" for f in fields)
    return head.encode() + b"\r\n" + body


def redirect(url, status="302 Found"):
    return response(b"moved", status, "Location: " + url)


class Peer:
    """An HTTP server; `handle(path, head, body)` returns the bytes of a response or a generator."""

    def __init__(self, handle, address="127.0.0.1", tls=None, port=0):
        self.handle, self.tls, self.heads, self.n_accepted = handle, tls, [], 0
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.socket = socket.socket(family)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((address, port))
        self.socket.listen(100)
        self.port = self.socket.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.socket.close()

    def accept(self):
        while True:
            try:
                c, _ = self.socket.accept()
            except OSError:
                return
            self.n_accepted += 1
            threading.Thread(target=self.serve, args=(c,), daemon=True).start()

    def serve(self, c):
        with contextlib.suppress(OSError), c:
            c = self.tls.wrap_socket(c, server_side=True) if self.tls else c
            data = b""
            while True:
                while b"\r\n\r\n" not in data:
                    more = c.recv(65536)
                    if not more:
                        return
                    data += more
                head, data = data.split(b"\r\n\r\n", 1)
                fields = {k.lower(): v.strip() for k, v in (
                    line.split(":", 1) for line in head.decode().split("\r\n")[1:])}
                length = int(fields.get("content-length", 0))
                while len(data) < length:
                    data += c.recv(65536)
                body, data = data[:length], data[length:]
                method, path, _ = head.decode().split("\r\n")[0].split(" ")
                self.heads.append((method, path, fields, body))
                out = self.handle(path, fields, body)
                for part in [out] if isinstance(out, bytes) else out:
                    c.sendall(part)


class Client:
    """tools/fetch; `client(url)` returns the result of one fetch."""

    def __init__(self, *flags):
        self.process = subprocess.Popen([program("tools/fetch"), *flags], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, bufsize=1)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.process.stdin.close()
        status = self.process.wait(60)
        self.process.stdout.close()
        if kind is None:
            equal(status, 0)

    def post(self, url, policy="configured", limit=MB, ms=10000, redirects=5, auth="", body=None):
        line = f"{policy} {limit} {ms} {redirects} {url} {auth}"
        self.process.stdin.write(line + ("" if body is None else " " + body) + "\n")

    def results(self, n):
        self.process.stdin.write("wait\n")
        found = [json.loads(self.process.stdout.readline()) for _ in range(n)]
        return sorted(found, key=lambda r: r["number"])

    def __call__(self, url, **options):
        self.post(url, **options)
        return self.results(1)[0]


def test_responses():
    def handle(path, fields, body):
        if path == "/404":
            return response(b"none", "404 Not Found", "Content-Type: text/plain")
        if path == "/cache":
            return response(b"x", "200 OK", "Cache-Control: public, Max-Age=77, x")
        return response(json.dumps([fields.get("x-test"), fields.get("authorization"),
            body.decode()]).encode(), "200 OK", "Content-Type: application/json")
    with Peer(handle) as peer, Client() as fetch:
        r = fetch(peer.url + "/404")
        equal((r["error"], r["status"], r["body"], r["type"]), ("", 404, "none", "text/plain"))
        r = fetch(peer.url, auth="Bearer_x", body="some text")
        equal((r["status"], json.loads(r["body"])), (200, ["1", "Bearer_x", "some text"]))
        equal((r["max_age"], fetch(peer.url + "/cache")["max_age"]), (-1, 77))
        equal(peer.n_accepted, 1, "connections")
        for bad in "ftp://127.0.0.1/", "file:///etc/passwd", "http://u:p@127.0.0.1/", "http://", "x" * 3000:
            r = fetch(bad)
            equal(r["error"], "INVALID", r)
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            equal(fetch("http://127.0.0.1:%d/" % unused.getsockname()[1])["error"], "IO")


def test_redirects():
    def handle(path, fields, body):
        left = int(path.strip("/") or 0)
        return redirect(f"/{left - 1}") if left else response(
            fields.get("authorization", "none").encode())
    with Peer(handle) as peer, Client() as fetch:
        r = fetch(peer.url + "/5", auth="secret")
        equal((r["status"], r["redirects"], r["body"]), (200, 5, "secret"))
        r = fetch(peer.url + "/6", auth="secret")
        equal((r["error"], "more than 5" in r["message"]), ("FORBIDDEN", True))
        equal(fetch(peer.url + "/3", redirects=2)["error"], "FORBIDDEN")
        equal(fetch(peer.url + "/1", redirects=0)["error"], "FORBIDDEN")


def test_authorization_stays_on_its_host():
    targets = {}

    def handle(path, fields, body):
        if path in targets:
            return redirect(targets[path], "307 Temporary Redirect")
        return response((fields.get("authorization", "none") + body.decode()).encode())
    with Peer(handle) as a, Peer(handle) as b, Client() as fetch:
        targets.update({"/port": b.url, "/name": f"http://localhost:{a.port}/", "/same": a.url + "/x",
            "/there": b.url + "/back", "/back": a.url + "/x", "/file": "file:///etc/passwd",
            "/user": f"http://u:p@127.0.0.1:{b.port}/"})
        for path, want in ("/port", "none"), ("/name", "none"), ("/same", "secret"), ("/there", "none"):
            equal(fetch(a.url + path, auth="secret")["body"], want, path)
        r = fetch(a.url + "/same", auth="secret", body="text")
        equal(r["body"], "secrettext")
        n = len(b.heads)
        equal(fetch(a.url + "/port", auth="secret", body="text")["error"], "FORBIDDEN")
        equal(len(b.heads), n)
        equal(fetch(a.url + "/file")["error"], "INVALID")
        equal(fetch(a.url + "/user")["error"], "INVALID")


def gzip_of(data, times=1):
    for _ in range(times):
        c = zlib.compressobj(9, zlib.DEFLATED, 31)
        data = c.compress(data) + c.flush()
    return data


def chunks(parts):
    yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    for part in parts:
        yield b"%x\r\n%s\r\n" % (len(part), part)
    yield b"0\r\n\r\n"


def endless_empty_blocks():
    yield b"HTTP/1.1 200 OK\r\nContent-Encoding: deflate\r\n\r\n\x78\x9c"
    while True:
        yield b"\x00\x00\x00\xff\xff" * 4096


def many_fields():
    yield b"HTTP/1.1 200 OK\r\n"
    while True:
        yield b"X-Field: " + b"x" * 1000 + b"\r\n"


def many_early_responses():
    while True:
        yield b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 100


def test_limits_on_bytes():
    bomb = gzip_of(bytes(300 * MB))
    nested = gzip_of(bytes(100 * MB), 2)
    answers = {
        "/exact": lambda: response(b"x" * 1000),
        "/length": lambda: response(b"x" * 1001),
        "/chunks": lambda: chunks([b"x" * 100] * 11),
        "/endless": lambda: chunks(iter(lambda: b"x" * 65536, None)),
        "/bomb": lambda: response(bomb, "200 OK", "Content-Encoding: gzip"),
        "/nested": lambda: response(nested, "200 OK", "Content-Encoding: gzip, gzip"),
        "/small": lambda: response(gzip_of(b"y" * 1000), "200 OK", "Content-Encoding: gzip"),
        "/empty": endless_empty_blocks,
        "/fields": many_fields,
        "/early": many_early_responses,
    }
    with Peer(lambda path, *_: answers[path]()) as peer, Client() as fetch:
        for path in answers:
            r = fetch(peer.url + path, limit=1000)
            if path in ("/exact", "/small"):
                equal((r["error"], r["bytes"]), ("", 1000), path)
            else:
                equal((r["error"], r["bytes"]), ("TOO_LARGE", 0), path)
        with open(f"/proc/{fetch.process.pid}/status") as f:
            peak = [int(line.split()[1]) for line in f if line.startswith("VmHWM")][0]
        assert peak < 200 * 1024 or "asan" in program(""), f"{peak} kB"


def drip():
    yield b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
    for _ in range(1000):
        time.sleep(0.02)
        yield b"x"


def test_limits_on_time():
    def late_redirect(path):
        time.sleep(0.25)
        return redirect(path + "x")
    answers = {"/drip": lambda path: drip(), "/silent": lambda path: iter(lambda: time.sleep(1) or b"", None)}
    with Peer(lambda path, *_: answers.get(path, late_redirect)(path)) as peer, Client() as fetch:
        for path in "/drip", "/silent", "/r":
            began = time.monotonic()
            r = fetch(peer.url + path, ms=600)
            seconds = time.monotonic() - began
            equal(r["error"], "TIMEOUT", path)
            assert 0.5 < seconds < 3, f"{path}: {seconds}"


def test_close_ends_running_fetches():
    with Peer(lambda path, *_: drip()) as peer, Client() as fetch:
        fetch.post(peer.url)
        fetch.post(peer.url)
        while peer.n_accepted < 2:
            time.sleep(0.01)
        fetch.process.stdin.write("close\n")
        found = [json.loads(fetch.process.stdout.readline())["error"] for _ in range(2)]
        equal(found, ["CANCELLED"] * 2)


def test_a_stopped_client_fetches_nothing():
    with Peer(lambda path, *_: drip()) as peer, Client() as fetch:
        fetch.post(peer.url)
        fetch.process.stdin.write("stop\n")
        fetch.post(peer.url)
        fetch.post("not a URL")
        equal([r["error"] for r in fetch.results(3)], ["CANCELLED", "CANCELLED", "INVALID"])


SPELLINGS = ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.0.0.1.",
    "localhost", "LOCALHOST", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]", "0", "0.0.0.0", "[::]", "127.255.255.254", "%31%32%37.0.0.1",
    "１２７.0.0.1", "169.254.169.254", "[fe80::1%25lo]", "100.64.0.1", "224.0.0.1", "255.255.255.255",
    "[fd00:ec2::254]", "10.0.0.1", "192.168.0.1", "172.16.0.1", "[::127.0.0.1]"]


def has_ipv6():
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as s:
        s.bind(("::1", 0))
        return True
    return False


def test_no_spelling_reaches_an_address_that_is_not_public():
    with Peer(lambda *_: response(), "::" if has_ipv6() else "0.0.0.0") as peer, Client() as fetch:
        for host in SPELLINGS:
            fetch.post(f"http://{host}:{peer.port}/", policy="public", ms=5000)
        for host, r in zip(SPELLINGS, fetch.results(len(SPELLINGS))):
            # A spelling that libcurl does not know fails before a connection.
            assert r["error"] in ("FORBIDDEN", "INVALID", "IO"), (host, r)
            if host[0].isdigit() and host.isascii() and host[-1] != ".":
                equal(r["error"], "FORBIDDEN", host)
        equal(peer.n_accepted, 0)
        equal(fetch(f"http://127.0.0.1:{peer.port}/")["status"], 200)


def test_a_connection_of_the_operator_is_not_reused():
    with Peer(lambda *_: response()) as peer, Client() as fetch:
        equal(fetch(peer.url)["status"], 200)
        equal(fetch(peer.url, policy="public")["error"], "FORBIDDEN")
        equal(fetch(peer.url)["status"], 200)
        equal(len(peer.heads), 2)


def test_dns_answers_that_change():
    def answer(name, number, family):
        if name == "silent.test":
            return None
        if family == socket.AF_INET6:
            return ["::ffff:127.0.0.1"] if name == "mapped.test" else []
        return {"public.test": [PUBLIC], "private.test": ["127.0.0.1"], "both.test": ["127.0.0.1", PUBLIC],
            "rebind.test": [PUBLIC if number == 1 else "127.0.0.1"],
            "later.test": [PUBLIC if number > 2 else "10.0.0.1"]}.get(name, [])

    def handle(path, fields, body):
        place = {"/to-private": "http://private.test", "/to-rebind": "http://rebind.test"}.get(path)
        out = redirect(f"{place}:{inner.port}/") if place else response(b"public")
        return out.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)

    def close(*_):
        return response(b"private")
    with DnsServer(answer) as dns, Peer(close) as inner, \
            Peer(handle, PUBLIC, port=inner.port) as outer, \
            Client("--public", PUBLIC, "--nameserver", str(dns.port)) as fetch:
        def get(name, path="/", **options):
            return fetch(f"http://{name}:{inner.port}{path}", **{"policy": "public", **options})
        equal(get("public.test")["body"], "public")
        equal(get("private.test")["error"], "FORBIDDEN")
        equal(get("mapped.test")["error"], "FORBIDDEN")
        equal(get("both.test")["body"], "public")
        equal(get("nothing.test")["error"], "IO")
        equal(get("public.test", "/to-private")["error"], "FORBIDDEN")
        equal(get("rebind.test")["body"], "public")
        for _ in range(3):
            equal(get("rebind.test")["error"], "FORBIDDEN")
        equal(get("public.test", "/to-rebind")["error"], "FORBIDDEN")
        equal([get("later.test")["error"] for _ in range(3)], ["FORBIDDEN", "FORBIDDEN", ""])
        equal(inner.n_accepted, 0)
        equal(get("private.test", policy="configured")["body"], "private")
        # A name that gets no answer holds up no other fetch.
        began = time.monotonic()
        fetch.post(f"http://silent.test:{inner.port}/", policy="public", ms=1500)
        for _ in range(5):
            fetch.post(f"http://public.test:{inner.port}/", policy="public")
        fetch.process.stdin.write("wait\n")
        numbers = [json.loads(fetch.process.stdout.readline())["error"] for _ in range(6)]
        equal(numbers, [""] * 5 + ["TIMEOUT"])
        assert time.monotonic() - began < 10


def certificate(directory):
    key, cert = os.path.join(directory, "key.pem"), os.path.join(directory, "cert.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
        "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key,
        "-out", cert], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return cert, context


def test_tls():
    with tempfile.TemporaryDirectory() as d:
        cert, context = certificate(d)
        with Peer(lambda *_: response(b"plain")) as plain, \
                Peer(lambda path, *_: redirect(plain.url) if path == "/down" else response(b"tls"),
                    tls=context) as peer:
            with Client("--ca", cert) as fetch:
                equal(fetch(peer.url)["body"], "tls")
                r = fetch(peer.url + "/down")
                equal((r["error"], "https to http" in r["message"]), ("FORBIDDEN", True))
                equal(fetch(f"https://localhost:{peer.port}/")["error"], "IO", "another name")
            with Client() as fetch:
                equal(fetch(peer.url)["error"], "IO", "unknown authority")
                equal(plain.n_accepted, 0)
        bad = subprocess.run([program("tools/fetch"), "--ca", d + "/none"], capture_output=True, text=True)
        equal(bad.returncode, 1)
        assert d + "/none" in bad.stderr, bad.stderr


if __name__ == "__main__":
    run(globals())
