"""Shared parts of the script tests: a server for one test, and a runner that ends with `N
passed, N failed`."""
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHARED = os.environ.get("SHARED_DATA", os.path.join(ROOT, "../shared/data"))


def build_dir():
    """Returns the sanitizer build if there is one, so that every script test also checks memory."""
    chosen = os.environ.get("BUILD")
    if chosen:
        return os.path.join(ROOT, chosen)
    asan = os.path.join(ROOT, "build/asan")
    return asan if os.path.exists(os.path.join(asan, "inferfluxd")) else os.path.join(ROOT, "build")


def program(name):
    return os.path.join(build_dir(), name)


CONFIG = f"""
models:
  - id: demo
    path: {ROOT}/models/demo.gguf
  - id: echo
    path: {ROOT}/models/demo.gguf
    backend: script
"""


class Server:
    """inferfluxd on a free loopback port; `with Server() as s: s.url`."""

    scheme = "http"

    def __init__(self, *flags, config=CONFIG, env=None, ready=True, key=None, log=None):
        self.flags, self.config, self.wait_ready, self.key = list(flags), config, ready, key
        self.stderr = log  # a descriptor; None: a file that errors() reads
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("INFERFLUX_")}
        # No response cache by default: a test that sends a request twice expects two computations.
        self.env["INFERFLUX_RESPONSE_CACHE_BYTES"] = "0"
        self.env["INFERFLUX_STORE"] = "none"  # ignores capabilities stored on this machine
        self.env.update(env or {})

    def __enter__(self):
        self.dir = tempfile.TemporaryDirectory()
        args = [program("inferfluxd"), "--port", "0", *self.flags]
        if self.config is not None:
            path = os.path.join(self.dir.name, "server.yaml")
            with open(path, "w") as f:
                f.write(self.config)
            args += ["--config", path]
        self.log_path = os.path.join(self.dir.name, "log")
        self.log = open(self.log_path, "w+")
        self.process = subprocess.Popen(
            args, env=self.env, stdout=subprocess.PIPE, stderr=self.stderr or self.log, text=True,
            cwd=ROOT)
        line = self.process.stdout.readline()
        found = re.search(r"(https?)://\S+:(\d+)", line)
        if not found:
            self.process.wait(60)
            raise RuntimeError(f"the server did not start: {self.errors()}")
        self.port = int(found.group(2))
        self.scheme = found.group(1)
        self.url = f"{self.scheme}://127.0.0.1:{self.port}"
        if self.wait_ready:
            self.until_ready()
        return self

    def until_ready(self, seconds=120):
        """Waits for all models, not only the first, like /readyz."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            text = self.get("/metrics")[2].decode()
            ready = re.search(r"^inferflux_models_ready (\d+)$", text, re.M)
            if ready and int(ready.group(1)) == max((self.config or "x").count("- id:"), 1):
                return
            time.sleep(0.02)
        raise RuntimeError(f"the server did not become ready: {self.errors()}")

    def errors(self):
        self.log.flush()
        with open(self.log_path) as f:
            return f.read()[-4000:]

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def get(self, path, **fields):
        return self.request("GET", path, None, **fields)

    def request(self, method, path, body, **fields):
        """Sends one request on its own connection; returns (status, fields in lower case, body)."""
        import http.client
        import ssl

        if self.scheme == "https":
            c = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60,
                context=ssl._create_unverified_context())
        else:
            c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            head = {k.replace("_", "-"): v for k, v in fields.items()}
            if self.key:
                head.setdefault("Authorization", "Bearer " + self.key)
            if body is not None:
                head.setdefault("Content-Type", "application/json")
            c.request(method, path, body, head)
            r = c.getresponse()
            return r.status, {k.lower(): v for k, v in r.getheaders()}, r.read()
        finally:
            c.close()

    def stop(self):
        """Drains the server; returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        return self.process.poll()

    def __exit__(self, kind, *_):
        status = self.stop()
        if status is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        text = self.errors()
        self.log.close()
        self.dir.cleanup()
        if kind is None and status != 0:
            raise AssertionError(f"the server ended with {status}:\n{text}")


def read_until(c, done, size=65536):
    """Reads from a connection until done(data); fails if the connection ends before."""
    data = b""
    while not done(data):
        more = c.recv(size)
        if not more:
            raise AssertionError(f"the connection ended early: {data[-400:]!r}")
        data += more
    return data


def read_all(c, size=65536):
    """Reads from a connection until it ends."""
    return b"".join(iter(lambda: c.recv(size), b""))


def equal(got, want, what=""):
    if got != want:
        raise AssertionError(f"{what}: got {got!r}, want {want!r}")


def run(namespace):
    """Runs every test_* function of a module, in order; an argument selects those whose name
    contains it."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    tests = [(n, f) for n, f in namespace.items() if n.startswith("test_") and wanted in n]
    failed = 0
    for name, fn in tests:
        began = time.monotonic()
        try:
            fn()
            print(f"ok   {name} ({time.monotonic() - began:.2f} s)")
        except Exception:
            failed += 1
            print(f"FAIL {name}\n{traceback.format_exc()}")
    print(f"{len(tests) - failed} passed, {failed} failed")
    sys.exit(failed > 0)
