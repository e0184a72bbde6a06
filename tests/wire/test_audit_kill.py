#!/usr/bin/env python3
"""The audit log after kill -9 at random times under load, with rotation: every start succeeds, and
the log is intact. AUDIT_KILL_ROUNDS sets the number of kills."""
import contextlib
import glob
import http.client
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import Server, equal, program, run

ROUNDS = int(os.environ.get("AUDIT_KILL_ROUNDS", "10"))
CHAT = "/v1/chat/completions"


class Killed(Exception):
    """The server was killed, so its exit status is not 0."""


BODY = json.dumps({"model": "echo", "script": "x", "messages": [{"role": "user", "content": "hi"}]})


def send_until_killed(s):
    try:
        while True:
            s.request("POST", CHAT, BODY)
    except (OSError, http.client.HTTPException):
        pass  # the server was killed


def send_and_wait(s, request_id):
    """Sends a request and waits until the server counts its line as written."""
    s.request("POST", CHAT, BODY, X_Request_Id=request_id)
    while not re.search(rb"^inferflux_audit_lines_total [1-9]", s.get("/metrics")[2], re.M):
        time.sleep(0.001)


def files_of(path):
    return sorted(glob.glob(glob.escape(path) + ".0*")) + [path]


def verify(path):
    done = subprocess.run([program("inferctl"), "admin", "audit", "verify", *files_of(path)],
        capture_output=True, text=True)
    return done.returncode, done.stderr


def test_the_log_is_intact_after_kill_9_at_random_times():
    rng = random.Random(5)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "audit.log")
        for i in range(ROUNDS):
            with contextlib.suppress(Killed), Server(
                    "--audit-log", path, "--audit-rotate-bytes", "20000") as s:
                send_and_wait(s, f"round-{i}")
                clients = [threading.Thread(target=send_until_killed, args=(s,)) for _ in range(4)]
                for c in clients:
                    c.start()
                time.sleep(rng.random() * 0.3)  # the time of the kill is part of the input
                s.process.kill()
                s.process.wait()
                for c in clients:
                    c.join()
                raise Killed
            with open(path, "ab") as f:  # a write that the kill interrupted
                f.write(b'{"prev":"' * rng.randrange(2))
        with Server("--audit-log", path):
            pass
        equal(verify(path), (0, ""))
        lines = [json.loads(line) for p in files_of(path) for line in open(p)]
        equal([line for line in lines if line.get("reason") == "missing"], [])
        equal([line["seq"] for line in lines], list(range(len(lines))))
        ids = {line.get("request_id") for line in lines}
        equal([i for i in range(ROUNDS) if f"round-{i}" not in ids], [])
        assert len(files_of(path)) > 1, "the log was never rotated"


if __name__ == "__main__":
    run(dict(globals()))
