#!/usr/bin/env python3
"""Mutated JSON bodies of every route of every dialect. The response is well-formed HTTP in the error
format of the route, a body that is not JSON is a 4xx, and the server is the same afterwards."""
import tempfile

import bodies
import kit

SLICE_CASES = 700
THREADS = 8
MOST_MB = 700
# `/v1/responses/*/cancel` does not read its body, and these routes reject every body.
IGNORE_BODY = ("/v1/responses/*", "/v1/responses/compact", "/v1/session", "/v1/session/logout_token")
FORM = {path: form for method, path, form in kit.routes() if method in ("POST", "PUT")}
METHOD = {path: method for method, path, _ in kit.routes() if method in ("POST", "PUT")}
FORM["/api/delete"], METHOD["/api/delete"] = "OLLAMA", "DELETE"
CONFIG = f"""
server: {{chat_timeout_ms: 3000, completion_timeout_ms: 3000, tokenize_timeout_ms: 3000}}
runtime: {{ctx_size: 256, kv_bytes: 2M}}
models:
  - id: demo
    path: {kit.ROOT}/models/demo.gguf
  - id: echo
    path: {kit.ROOT}/models/demo.gguf
    backend: script
"""
FLAGS = ("--parallel", "4", "--response-cache", "1M", "--responses-store", "1M", "--log-level", "error",
    "--slot-save-bytes", "4M", "--policy-backend", "sqlite")
KEY = "operator"


def is_json(data):
    """Whether a body is a JSON text; None if Python does not decide that (nesting)."""
    try:
        kit.strict_json(data)
        return True
    except RecursionError:
        return None
    except ValueError:
        return False


class Client:
    """Sends bodies on kept connections, one per thread."""

    def __init__(self, server):
        self.server, self.readers = server, {}

    def send(self, method, path, data):
        """Returns the response; a fresh connection is used if the last one was closed."""
        me = kit.threading.get_ident()
        head = (f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {KEY}\r\nContent-Length: {len(data)}\r\n\r\n").encode()
        reader = self.readers.pop(me, None) or kit.Reader(self.server.connect())
        reader.c.sendall(head + data)
        r = reader.response()
        if r.closes():
            kit.require(reader.ended(), "bytes after the last response")
            reader.c.close()
        else:
            kit.require(not reader.data, "bytes after a response:", reader.data[:200])
            self.readers[me] = reader
        return r


def run_one(client, route, path, data):
    r = client.send(METHOD[route], path, data)
    kit.check_response(FORM[route], r, may_repeat=route.endswith("/responses"))
    if route not in IGNORE_BODY and is_json(data) is False:
        kit.require(400 <= r.status < 500, "a body that is not JSON got", r.status, r.body[:300])
    return r


def main():
    plan = kit.Plan("json_bodies", SLICE_CASES)
    with tempfile.TemporaryDirectory() as files, kit.Target(*FLAGS, "--policy-path", f"{files}/policy",
            "--slot-save-path", files, config=CONFIG, key=KEY,
            env={"INFERFLUX_API_KEYS": f"{KEY}:admin"}) as server:
        first, client = server.reference(), Client(server)
        recent = {}  # the input of each thread, for a crash

        def run_case(index):
            route, path, data, kind = bodies.make(plan.rng(index))
            if plan.input:
                path, _, data = open(plan.input, "rb").read().partition(b"\n")
                route, path = path.decode().split(" ")
            text = f"{route} {path}\n".encode() + data
            recent[kit.threading.get_ident()] = index, text
            try:
                r = run_one(client, route, path, data)
                plan.done(kind, f"status {r.status // 100}xx")
            except (kit.Failure, kit.Ended, OSError) as e:
                plan.fail(index, text, f"{METHOD[route]} {path}: {e!r}")

        kit.campaign(plan, run_case, THREADS)
        if server.process.poll() is not None:
            for index, text in recent.values():
                plan.fail(index, text, f"the server ended: {server.errors()}")
            plan.finish({})
        missing = {p for m, p, _ in kit.routes() if m in ("POST", "PUT")} - set(bodies.BASES)
        plan.finish({**server.checks_after(first, MOST_MB), "every route has a body": not missing})


if __name__ == "__main__":
    main()
