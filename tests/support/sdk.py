"""Shared parts of the client tests. Importing this module restarts the program in the
environment that `tests/env` made, which contains the clients; therefore it must be imported
before them."""
import os
import subprocess
import sys
import time

from harness import ROOT, Server, equal, run

VENV = os.path.join(ROOT, "build/venv/bin/python")
# The latest clients need a newer Node than Debian's; npm installs it with them.
NODE = os.path.join(ROOT, "build/node/node_modules/.bin/node")
if os.path.exists(VENV) and sys.executable != VENV and not os.environ.get("IN_VENV"):
    os.environ["IN_VENV"] = "1"
    os.execv(VENV, [VENV, *sys.argv])


class Served(Server):
    """A server for all tests of a file: SERVER = Served(); it runs until main() ends."""

    def __init__(self, *flags, **more):
        super().__init__(*flags, **more)
        self.__enter__()

    def running(self):
        """Returns the number of requests that have not ended."""
        text = self.get("/metrics")[2].decode()
        return int(next(line.split()[1] for line in text.splitlines()
            if line.startswith("inferflux_requests_running ")))

    def until_idle(self):
        """Waits until no request runs, and checks that nothing leaks."""
        until(lambda: self.running() == 0, "a request still runs")
        audit = self.get("/debug/invariants")
        assert b'"ok":true' in audit[2] and b'"sequences":0' in audit[2], audit

    def main(self, namespace):
        """Runs the tests of a module like harness.run, and stops the server."""
        try:
            run(namespace)
        finally:
            self.__exit__(None, None, None)


def until(condition, what, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def script_model_config(name, tool_parser, thinking_parser="null"):
    """Returns the configuration of a script model with these parsers."""
    return f"""models:
  - id: {name}
    path: {ROOT}/models/demo.gguf
    backend: script
    tool_parser: {tool_parser}
    thinking_parser: {thinking_parser}
"""


def node(script, *flags, **more):
    """Runs a test of a client for Node (see node_kit.mjs) against a server; then exits."""
    with Server(*flags, **more) as server:
        status = subprocess.call([NODE, os.path.join(ROOT, "tests/sdk", script), server.url,
            os.path.join(ROOT, "build/node")])
    sys.exit(status)
