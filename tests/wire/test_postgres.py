#!/usr/bin/env python3
"""Two servers with one PostgreSQL database: propagation of changes, conflicts, a database that is
killed, stopped or full, stale keys, and secrecy of the password of policy.url."""
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
sys.path.insert(0, os.path.join(ROOT, "tests/wire"))
from harness import Server, equal, run
from test_api_keys import KEYS, as_key

PASSWORD = "s3cret-word"


class Postgres:
    """A PostgreSQL server in a temporary directory."""

    def __init__(self):
        self.dir = tempfile.TemporaryDirectory()
        os.chmod(self.dir.name, 0o755)
        self.url = f"postgresql://flux:{PASSWORD}@/postgres?host={self.dir.name}"
        self.start()

    def start(self):
        self.process = subprocess.Popen([os.path.join(ROOT, "tests/support/postgres"), self.dir.name],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while subprocess.run(["psql", self.url, "-c", "SELECT 1"], capture_output=True).returncode:
            assert time.monotonic() < deadline, "PostgreSQL did not start"
            time.sleep(0.05)

    def sql(self, text):
        subprocess.run(["psql", "-q", "-v", "ON_ERROR_STOP=1", self.url, "-c", text], check=True,
            stdout=subprocess.DEVNULL)

    def end(self, number):
        self.process.send_signal(number)
        self.process.wait(30)

    def processes(self):
        """The server and its children."""
        pid = self.process.pid
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [pid, *map(int, f.read().split())]

    def signal_all(self, number):
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


class Replica(Server):
    def __init__(self, postgres, *more):
        super().__init__("--policy-backend", "postgres", *more, key="boss", ready=False,
            env={"INFERFLUX_API_KEYS": "boss:admin,user", "INFERFLUX_POLICY_URL": postgres.url})

    def call(self, method, path, body=None, **fields):
        status, head, data = self.request(
            method, path, None if body is None else json.dumps(body), **fields)
        return status, head, json.loads(data) if data else None

    def create(self, **attributes):
        status, _, key = self.call("POST", KEYS, attributes)
        equal(status, 201, key)
        return key

    def status_of(self, key):
        return self.get("/v1/models", **as_key(key["key"]))[0]


def until(what, seconds, condition):
    """Returns the time until the condition was true."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + seconds, f"{what}: not within {seconds} s"
        time.sleep(0.01)
    return time.monotonic() - began


def test_changes_reach_the_other_server_in_a_second():
    with Replica(DATABASE) as a, Replica(DATABASE) as b:
        for _ in range(3):
            key = a.create(name="x")
            until("creation", 1, lambda: b.status_of(key) == 200)
            equal(b.call("DELETE", f"{KEYS}/{key['id']}")[0], 200)
            until("revocation", 1, lambda: a.status_of(key) == 401)
        # without notifications, the version is read
        key = a.create(name="x")
        DATABASE.sql("BEGIN; DELETE FROM api_keys; UPDATE policy SET version = version + 1; COMMIT")
        until("polling", 1, lambda: a.status_of(key) == 401 and b.status_of(key) == 401)


def test_concurrent_changes_of_two_servers_are_all_stored():
    with Replica(DATABASE) as a, Replica(DATABASE) as b:
        done = []

        def create(server, n):
            for i in range(n):
                status, _, key = server.call("POST", KEYS, {"name": f"k{i}"})
                if status == 201:
                    done.append(key["id"])
                else:
                    equal(status, 503, key)
        threads = [threading.Thread(target=create, args=(s, 12)) for s in (a, b, a)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert len(done) >= 30, len(done)

        def ids(server):
            return {k["id"] for k in server.call("GET", KEYS)[2]["data"]}
        until("convergence", 2, lambda: ids(a) == ids(b) and ids(a) >= set(done))
        key = a.call("GET", f"{KEYS}/{done[0]}")
        match = key[1]["etag"]
        replies = [s.call("PUT", f"{KEYS}/{done[0]}", {"name": "new"}, If_Match=match)[0]
            for s in (a, b)]
        equal(replies, [200, 412])


def test_known_keys_outlive_a_killed_database_until_they_are_stale():
    with Replica(DATABASE, "--policy-stale", "3000") as s:
        key = s.create(name="x")
        DATABASE.end(signal.SIGKILL)
        killed = time.monotonic()
        try:
            equal(s.status_of(key), 200)
            status, _, body = s.call("POST", KEYS, {"name": "y"})
            equal(status, 503, body)
            assert PASSWORD not in json.dumps(body), body
            equal(s.status_of(key), 200)
            until("stale", 5, lambda: s.status_of(key) == 503)
            assert time.monotonic() - killed > 2.4
            body = json.dumps({"model": "demo", "max_tokens": 1,
                "messages": [{"role": "user", "content": "x"}]})
            for path, kind in ("/v1/chat/completions", "server_error"), ("/v1/messages", None):
                status, head, data = s.request("POST", path, body, **as_key(key["key"]))
                equal(status, 503, data)
                error = json.loads(data)["error"]
                assert "API keys does not respond" in error["message"], error
                assert error["type"], error
            equal(s.get("/v1/models")[0], 200)  # a key of the configuration
            equal(s.get("/v1/models", **as_key("unknown"))[0], 503)
            equal(s.get("/livez", Authorization="")[0], 200)
        finally:
            DATABASE.start()
        until("recovery", 5, lambda: s.status_of(key) == 200)
        s.create(name="z")
        assert PASSWORD not in s.errors(), s.errors()


def test_a_stopped_database_blocks_no_request():
    with Replica(DATABASE) as s:
        key = s.create(name="x")
        DATABASE.signal_all(signal.SIGSTOP)
        try:
            replies = []
            change = threading.Thread(
                target=lambda: replies.append(s.call("POST", KEYS, {"name": "y"})[0]))
            change.start()
            longest = 0
            while change.is_alive():
                began = time.monotonic()
                equal(s.status_of(key), 200)
                longest = max(longest, time.monotonic() - began)
            change.join()
            equal(replies, [503])
            assert longest < 0.5, longest
        finally:
            DATABASE.signal_all(signal.SIGCONT)
        until("recovery", 6, lambda: s.call("POST", KEYS, {"name": "z"})[0] == 201)


@contextlib.contextmanager
def full_disk():
    """The keys are in a tablespace without free space. Where a tmpfs cannot be mounted, a trigger
    raises the same SQLSTATE."""
    with tempfile.TemporaryDirectory(dir=DATABASE.dir.name) as d:
        is_mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=777", "tmpfs", d],
            capture_output=True).returncode == 0
        try:
            if is_mounted:
                os.mkdir(d + "/space")
                os.system(f"chown nobody {d}/space")
                DATABASE.sql(f"CREATE TABLESPACE small LOCATION '{d}/space'")
                DATABASE.sql("ALTER TABLE api_keys SET TABLESPACE small")
                with contextlib.suppress(OSError), open(d + "/fill", "wb", buffering=0) as f:
                    while True:
                        f.write(b"x" * 4096)
                yield lambda: os.truncate(d + "/fill", 0)
                DATABASE.sql("ALTER TABLE api_keys SET TABLESPACE pg_default")
                DATABASE.sql("DROP TABLESPACE small")
            else:
                print("no tmpfs: the full disk is simulated by a trigger")
                DATABASE.sql("CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
                    "'BEGIN RAISE SQLSTATE ''53100'' USING MESSAGE = ''No space left''; END';"
                    "CREATE TRIGGER full_disk BEFORE INSERT ON api_keys EXECUTE FUNCTION full_disk()")
                yield lambda: DATABASE.sql("DROP FUNCTION full_disk CASCADE")
        finally:
            if is_mounted:
                subprocess.run(["umount", "-l", d], check=True)


def test_a_full_disk_loses_nothing():
    models = [f"{i:03}" + os.urandom(90).hex() for i in range(60)]
    with Replica(DATABASE) as s, Replica(DATABASE) as other:
        first = s.create(name="x")
        with full_disk() as release:
            created = []
            for _ in range(30):
                status, _, body = s.call("POST", KEYS, {"models": models})
                if status != 201:
                    break
                created.append(body)
            equal(status, 503, body)
            assert "No space left" in body["detail"], body
            equal(s.status_of(first), 200)
            for key in created:
                equal(s.call("GET", f"{KEYS}/{key['id']}")[0], 200)
            release()
            last = s.create(name="z")
            until("propagation", 1, lambda: other.status_of(last) == 200)
            equal(s.call("GET", KEYS + "?limit=500")[2]["data"],
                other.call("GET", KEYS + "?limit=500")[2]["data"])


def test_hostile_values_keep_the_last_policy_and_are_logged_once():
    with Replica(DATABASE) as s:
        key = s.create(name="x")
        DATABASE.sql("UPDATE api_keys SET scopes = 'root' WHERE id = '%s';"
            "UPDATE policy SET version = version + 1" % key["id"])
        until("error", 2, lambda: "load_failed" in s.errors())
        equal(s.status_of(key), 200)
        time.sleep(1.2)
        lines = [line for line in s.errors().splitlines() if "load_failed" in line]
        equal(len(lines), 1, lines)
        assert key["id"] in lines[0] and "'root' is none of" in lines[0], lines
        DATABASE.sql("UPDATE api_keys SET scopes = 'read' WHERE id = '%s'" % key["id"])
        until("recovery", 2, lambda: "available" in s.errors())


def test_the_password_is_shown_nowhere():
    flag = ("--policy-url", DATABASE.url)
    with Replica(DATABASE, *flag, "--log-level", "debug") as s:
        s.create(name="x")
        for path in "/props", "/metrics", "/v1/models", KEYS, "/health":
            assert PASSWORD.encode() not in s.get(path)[2], path
        with open(f"/proc/{s.process.pid}/cmdline", "rb") as f:
            assert PASSWORD.encode() not in f.read()
        assert PASSWORD not in s.errors()
    for url in (DATABASE.url + "&none=1", DATABASE.url.replace("/postgres", "/absent"),
            DATABASE.url.replace("flux", "nobody"), "postgresql://u:" + PASSWORD + "%zz@/"):
        try:
            with Server("--policy-backend", "postgres", "--policy-url", url, ready=False):
                raise AssertionError("the server started")
        except RuntimeError as e:
            assert PASSWORD not in str(e) and "policy" in str(e), e


if __name__ == "__main__":
    DATABASE = Postgres()
    try:
        run(globals())
    finally:
        DATABASE.end(signal.SIGINT)
        DATABASE.dir.cleanup()
