#!/usr/bin/env python3
"""API keys that /v1/admin/api_keys changes while the server runs: backends ini and sqlite, effect
on other requests, revocation of running requests, and the rights of every kind of key on every
route."""
import contextlib
import hashlib
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import Server, equal, program, read_until, run

KEYS, CHAT = "/v1/admin/api_keys", "/v1/chat/completions"
SCRIPT = {"text": "word " * 3000, "delay_ms": 20}


def flags(directory, backend, *more):
    return ["--policy-backend", backend, "--policy-path", os.path.join(directory, "policy." + backend),
        *more]


def environment(**more):
    return {"INFERFLUX_POLICY_PASSPHRASE": "correct horse", "INFERFLUX_API_KEYS": "boss:admin,user",
        **more}


class Killed(Exception):
    """The server was ended with SIGKILL."""


class Keys(Server):
    """A server with a policy backend and the static keys boss (admin) and user."""

    def __init__(self, backend="ini", directory=None, more=(), env=None, **options):
        self.own = None if directory else tempfile.TemporaryDirectory()
        self.policy_dir = directory or self.own.name
        super().__init__(*flags(self.policy_dir, backend, *more), env=environment(**(env or {})),
            **{"key": "boss", "ready": False, **options})

    def call(self, method, path, body=None, **fields):
        status, head, data = self.request(
            method, path, None if body is None else json.dumps(body), **fields)
        return status, head, json.loads(data) if data else None

    def create(self, **attributes):
        status, _, key = self.call("POST", KEYS, attributes)
        equal(status, 201, key)
        return key


def as_key(key):
    return {"Authorization": "Bearer " + key}


def both_backends(test):
    for backend in "ini", "sqlite":
        test(backend)


def test_a_created_key_works_and_is_shown_once():
    def check(backend):
        with Keys(backend) as s:
            status, head, key = s.call("POST", KEYS, {"name": "reports"})
            equal(status, 201)
            equal(head["etag"], '"%d"' % key["version"])
            assert re.fullmatch("ifx_[0-9a-f]{64}", key["key"]), key
            equal(key["id"], hashlib.sha256(key["key"].encode()).hexdigest()[:16])
            equal(key["scopes"], ["generate", "read"])
            equal(s.get("/v1/models", **as_key(key["key"]))[0], 200)
            equal(s.get("/v1/models", Authorization="", x_api_key=key["key"])[0], 200)
            equal(s.get(KEYS, **as_key(key["key"]))[0], 403)
            status, _, shown = s.call("GET", f"{KEYS}/{key['id']}")
            equal(status, 200)
            assert "key" not in shown, shown
            equal({**shown, "key": key["key"]}, key)
            assert key["key"].encode() not in s.get(KEYS)[2]
            assert key["key"] not in s.errors()
    both_backends(check)


def test_keys_survive_a_restart_with_all_attributes():
    def check(backend):
        with tempfile.TemporaryDirectory() as d:
            with Keys(backend, d) as s:
                key = s.create(name="n\u00e4me; # = x", scopes=["read"], expires_at=4102444800,
                    models=["demo", "a b=c"], tenant="acme", cache_group="g.1", weight=2.5,
                    priority=7, networks=["127.0.0.0/8", "2001:db8::/32"],
                    limits={"requests_per_minute": 60, "tokens_per_minute": 9000})
                other = s.create()
                equal(s.call("DELETE", f"{KEYS}/{other['id']}")[0], 200)
                _, _, before = s.call("GET", KEYS)
            with Keys(backend, d) as s:
                _, _, after = s.call("GET", KEYS)
                equal(after, before)
                found = [k for k in after["data"] if k["id"] == key["id"]]
                equal({**found[0], "key": key["key"]}, key)
                equal(found[0]["limits"], {"requests_per_minute": 60, "tokens_per_minute": 9000})
                equal(found[0]["weight"], 2.5)
                equal(found[0]["tenant"], "acme")
                equal(s.get("/v1/models", **as_key(key["key"]))[0], 200)
                equal(s.get("/v1/models", **as_key(other["key"]))[0], 401)
    both_backends(check)


def test_nothing_in_the_encrypted_file_is_readable():
    with Keys() as s:
        key = s.create(name="a name to look for", tenant="acme")
        for name in os.listdir(s.policy_dir):
            path = os.path.join(s.policy_dir, name)
            equal(os.stat(path).st_mode & 0o77, 0, path)
            with open(path, "rb") as f:
                data = f.read()
            for text in "a name to look for", "acme", key["id"], key["key"], "api_key":
                assert text.encode() not in data, (name, text)


def test_a_wrong_passphrase_and_a_changed_byte_are_one_clear_error():
    with tempfile.TemporaryDirectory() as d:
        with Keys("ini", d) as s:
            s.create()
        path = os.path.join(d, "policy.ini")

        def refused(text, **env):
            try:
                with Keys("ini", d, env=env):
                    raise AssertionError("the server started")
            except RuntimeError as e:
                assert text in str(e), e

        refused("the passphrase is wrong, or the file was changed",
            INFERFLUX_POLICY_PASSPHRASE="wrong horse")
        refused("INFERFLUX_POLICY_PASSPHRASE", INFERFLUX_POLICY_PASSPHRASE="")
        with open(path, "r+b") as f:
            f.seek(70)
            byte = f.read(1)
            f.seek(70)
            f.write(bytes([byte[0] ^ 1]))
        refused("the passphrase is wrong, or the file was changed")


def test_the_passphrase_is_read_from_a_file():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "passphrase")
        with open(path, "w") as f:
            f.write("correct horse\n")
        with Keys("ini", d, env={"INFERFLUX_POLICY_PASSPHRASE": "",
                                 "INFERFLUX_POLICY_PASSPHRASE_FILE": path}) as s:
            key = s.create()
        with Keys("ini", d) as s:
            equal(s.get("/v1/models", **as_key(key["key"]))[0], 200)


def test_bad_settings_of_the_policy_are_refused():
    for text, *options in (
            ("needs policy.url", "--policy-backend", "postgres"),
            ("needs policy.path", "--policy-backend", "ini"),
            ("policy.backend is none", "--policy-path", "/tmp/x"),
            ("policy.backend is not postgres", "--policy-url", "postgres://x"),
            ("policy.url is not a URL", "--policy-backend", "postgres", "--policy-url", "postgres:x"),
            ("not a regular file", "--policy-backend", "sqlite", "--policy-path", "/tmp")):
        try:
            with Server(*options, env=environment(), ready=False):
                raise AssertionError(f"the server started with {options}")
        except RuntimeError as e:
            assert text in str(e), e


def test_two_servers_do_not_write_one_encrypted_file():
    with Keys() as s:
        try:
            with Keys("ini", s.policy_dir):
                raise AssertionError("the second server started")
        except RuntimeError as e:
            assert "another server uses this file" in str(e), e


def test_two_servers_share_one_database():
    with Keys("sqlite") as a, Keys("sqlite", a.policy_dir) as b:
        keys = [s.create() for s in (a, b, a, b)]
        deadline = time.monotonic() + 5
        for s in a, b:
            for key in keys:
                while s.get("/v1/models", **as_key(key["key"]))[0] != 200:
                    assert time.monotonic() < deadline, "the change did not arrive"
                    time.sleep(0.02)
        equal(a.call("DELETE", f"{KEYS}/{keys[1]['id']}")[0], 200)
        while b.get("/v1/models", **as_key(keys[1]["key"]))[0] == 200:
            assert time.monotonic() < deadline + 5, "the revocation did not arrive"
            time.sleep(0.02)


def test_bad_attributes_are_400_and_name_the_field():
    with Keys() as s:
        for field, value in (
                ("scopes", []), ("scopes", ["root"]), ("scopes", "read"), ("scopes", None),
                ("scopes", [1]), ("name", 5), ("name", "x" * 101), ("name", "a\nb"), ("name", "a "),
                ("expires_at", "tomorrow"), ("expires_at", -1), ("expires_at", 0),
                ("expires_at", 1e300), ("expires_at", "2026-11-24T08:00:00"),
                ("models", "demo"), ("models", [""]), ("models", ["a\tb"]), ("models", ["m"] * 65),
                ("tenant", "a b"), ("tenant", "x" * 33), ("cache_group", "\u00e4"),
                ("weight", 0), ("weight", 1e9), ("weight", "2"), ("priority", -1),
                ("priority", 1.5), ("priority", 2**63), ("networks", ["10.0.0.1/8"]),
                ("networks", ["10.0.0.0/33"]), ("networks", ["host"]), ("networks", ["::1/129"]),
                ("limits", []), ("limits", {"requests": 1}), ("limits", {"tokens_per_minute": 0}),
                ("limits", {"tokens_per_minute": "x"}), ("limits", {"tokens_per_minute": 2**63}),
                ("version", 5), ("created_at", 5), ("id", "x"), ("key", "x"), ("unknown", 1)):
            status, head, problem = s.call("POST", KEYS, {field: value})
            equal(status, 400, (field, value, problem))
            equal(head["content-type"], "application/problem+json")
            equal(problem["param"], field, (field, value))
        equal(s.call("POST", KEYS, [])[0], 400)
        equal(s.request("POST", KEYS, "{")[0], 400)
        equal(s.call("GET", KEYS)[2]["version"], 0)


def test_times_are_unix_times_or_rfc_3339():
    with Keys() as s:
        for text in "2100-01-01T00:00:00Z", "2100-01-01T02:00:00+02:00", "2099-12-31T23:30:00-00:30":
            equal(s.create(expires_at=text)["expires_at"], 4102444800, text)


def test_an_expired_key_is_401():
    with Keys() as s:
        old = s.create(expires_at=int(time.time()) - 1)
        soon = s.create(expires_at=int(time.time()) + 2)
        status, _, body = s.call("GET", "/v1/models", **as_key(old["key"]))
        equal(status, 401)
        equal(body["error"]["message"], "This API key has expired.")
        equal(s.get("/v1/models", **as_key(soon["key"]))[0], 200)
        time.sleep(2.1)
        equal(s.get("/v1/models", **as_key(soon["key"]))[0], 401)


def test_a_key_is_bound_to_its_networks():
    with Keys() as s:
        good = s.create(networks=["127.0.0.0/8"])
        bad = s.create(networks=["10.0.0.0/8", "::1"])
        equal(s.get("/v1/models", **as_key(good["key"]))[0], 200)
        status, _, body = s.call("GET", "/v1/models", **as_key(bad["key"]))
        equal(status, 403)
        assert "127.0.0.1" in body["error"]["message"], body


def test_a_key_is_bound_to_its_models():
    chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    with Keys() as s:
        s.until_ready()
        key = as_key(s.create(models=["echo"])["key"])
        echo = {**chat, "model": "echo", "script": {"text": "x"}}
        equal(s.call("POST", CHAT, echo, **key)[0], 200)
        demo = {**chat, "model": "demo"}
        for path, body in (
                (CHAT, demo), ("/v1/messages", demo), ("/api/chat", demo),
                ("/v1/responses", {"model": "demo", "input": "x"}),
                ("/v1/completions", {"model": "demo", "prompt": "x"}),
                ("/infill", {"model": "demo", "input_prefix": "x", "input_suffix": "y"}),
                ("/tokenize", {"model": "demo", "content": "x"}),
                ("/apply-template", demo), ("/api/show", {"model": "demo"}),
                ("/v1/messages/count_tokens", demo)):
            status, _, answer = s.call("POST", path, body, **key)
            equal(status, 403, (path, answer))
        equal(s.get("/props?model=demo", **key)[0], 403)
        equal([m["id"] for m in s.call("GET", "/v1/models", **key)[2]["data"]], ["echo"])
        equal([m["name"] for m in s.call("GET", "/api/tags", **key)[2]["models"]], ["echo"])
        equal(s.get("/v1/models/demo", **key)[0], 404)
        equal(s.get("/v1/models/echo", **key)[0], 200)


def test_priority_is_limited_by_the_key():
    body = {"messages": [{"role": "user", "content": "hi"}], "model": "echo", "priority": 9,
        "script": {"text": "x"}}
    with Keys() as s:
        s.until_ready()
        key = s.create(priority=4)
        status, head, _ = s.call("POST", CHAT, body, **as_key(key["key"]))
        equal((status, head["x-inferflux-priority"]), (200, "4"))


def test_put_replaces_attributes_and_if_match_protects():
    def check(backend):
        with Keys(backend) as s:
            key = s.create(name="a", models=["demo"], weight=3)
            path = f"{KEYS}/{key['id']}"
            tag = '"%d"' % key["version"]
            status, head, changed = s.call("PUT", path, {"scopes": ["read"]}, If_Match=tag)
            equal(status, 200, changed)
            equal((changed["name"], changed["models"], changed["weight"]), ("", [], 1))
            equal(changed["created_at"], key["created_at"])
            assert "key" not in changed and changed["version"] > key["version"]
            equal(head["etag"], '"%d"' % changed["version"])
            status, _, problem = s.call("PUT", path, {}, If_Match=tag)
            equal((status, problem["param"]), (412, "If-Match"))
            equal(s.call("DELETE", path, If_Match=tag)[0], 412)
            equal(s.call("DELETE", path, If_Match="x")[0], 400)
            equal(s.get("/v1/models", **as_key(key["key"]))[0], 200)
            equal(s.call("POST", "/v1/completions", {"prompt": "x"}, **as_key(key["key"]))[0], 403)
            equal(s.call("DELETE", path, If_Match=head["etag"])[0], 200)
            equal(s.call("DELETE", path)[0], 404)
            equal(s.call("PUT", path, {})[0], 404)
            equal(s.get(path)[0], 404)
            equal(s.get("/v1/models", **as_key(key["key"]))[0], 401)
    both_backends(check)


def test_static_keys_are_listed_and_cannot_be_changed():
    boss = hashlib.sha256(b"boss").hexdigest()[:16]
    with Keys() as s:
        listed = {k["id"]: k for k in s.call("GET", KEYS)[2]["data"]}
        equal((listed[boss]["is_static"], listed[boss]["scopes"]),
            (True, ["generate", "read", "admin"]))
        for method, body in ("PUT", {}), ("DELETE", None):
            status, _, problem = s.call(method, f"{KEYS}/{boss}", body)
            equal(status, 400)
            assert "configuration" in problem["detail"], problem
    with Server(env={"INFERFLUX_API_KEYS": "boss:admin"}, ready=False, key="boss") as s:
        equal(s.get(KEYS)[0], 200)
        status, _, body = s.request("POST", KEYS, "{}")
        equal(status, 501)
        assert b"policy.backend" in body, body


def test_lists_have_pages():
    with Keys("sqlite") as s:
        ids = {s.create()["id"] for _ in range(12)}
        seen, after = [], ""
        while True:
            _, _, page = s.call("GET", f"{KEYS}?limit=5&after={after}")
            assert len(page["data"]) <= 5
            seen += [k["id"] for k in page["data"]]
            if not page["has_more"]:
                break
            after = page["last_id"]
        equal(seen, sorted(seen))
        equal(len(seen), 14)
        assert ids < set(seen)
        for limit in "0", "501", "x", "-1":
            status, _, problem = s.call("GET", f"{KEYS}?limit={limit}")
            equal((status, problem["param"]), (400, "limit"))
        equal(s.get(KEYS + "?limit=500")[0], 200)


def stream(server, key, **more):
    """Sends a slow streaming request; returns its connection after the first event."""
    body = json.dumps({"model": "echo", "stream": True, "script": SCRIPT, "max_tokens": 3000,
        "messages": [{"role": "user", "content": "hi"}], **more}).encode()
    c = server.connect()
    c.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
              b"Content-Length: %d\r\n\r\n" % (CHAT.encode(), key.encode(), len(body)) + body)
    read_until(c, lambda data: b"word" in data)
    return c


def test_revocation_ends_running_requests_on_every_thread():
    with Keys("sqlite", more=["--threads-http", "4"]) as s:
        s.until_ready()
        key, other = s.create(), s.create()
        revoked = [stream(s, key["key"]) for _ in range(8)]
        kept = stream(s, other["key"])
        began = time.monotonic()
        equal(s.call("DELETE", f"{KEYS}/{key['id']}")[0], 200)
        for c in revoked:
            data = b""
            while b"was revoked" not in data:
                part = c.recv(65536)
                assert part, data[-300:]
                data += part
            c.close()
        took = time.monotonic() - began
        assert took < 5, f"{took:.2f} s"
        read_until(kept, lambda data: b"word" in data)
        kept.close()
        equal(s.get("/v1/models", **as_key(key["key"]))[0], 401)
        equal(s.get("/v1/models", **as_key(other["key"]))[0], 200)


def test_a_smaller_key_ends_what_it_does_not_allow_any_more():
    with Keys() as s:
        s.until_ready()
        for attributes, text in (({"scopes": ["read"]}, b"any more"), ({"models": ["demo"]}, b"may not"),
                                 ({"expires_at": 1000}, b"has expired")):
            key = s.create()
            c = stream(s, key["key"])
            equal(s.call("PUT", f"{KEYS}/{key['id']}", attributes)[0], 200)
            read_until(c, lambda data: text in data)
            c.close()
        key = s.create()
        c = stream(s, key["key"])
        equal(s.call("PUT", f"{KEYS}/{key['id']}", {"name": "renamed"})[0], 200)
        read_until(c, lambda data: b"word" in data)
        c.close()


def test_keys_of_one_tenant_share_stored_responses():
    with Keys() as s:
        s.until_ready()
        a, b = s.create(tenant="acme"), s.create(tenant="acme")
        other, none = s.create(tenant="evil"), s.create()
        status, _, response = s.call("POST", "/v1/responses",
            {"model": "echo", "input": "x", "script": {"text": "y"}}, **as_key(a["key"]))
        equal(status, 200, response)
        path = "/v1/responses/" + response["id"]
        equal([s.get(path, **as_key(k["key"]))[0] for k in (a, b, other, none)],
            [200, 200, 404, 404])


def test_the_first_key_of_an_open_server_must_be_an_administrator():
    with tempfile.TemporaryDirectory() as d:
        with Keys("ini", d, env={"INFERFLUX_API_KEYS": ""}, key=None) as s:
            equal(s.get(KEYS)[0], 200)
            status, _, problem = s.call("POST", KEYS, {})
            equal((status, problem["param"]), (400, "scopes"))
            key = s.create(scopes=["admin", "read"])
            equal(s.get(KEYS)[0], 401)
            s.key = key["key"]
            equal(s.call("DELETE", f"{KEYS}/{key['id']}")[0], 200)
            equal(s.get(KEYS)[0], 401)


def test_changes_are_in_the_audit_log():
    with tempfile.TemporaryDirectory() as d:
        log = os.path.join(d, "audit")
        with Keys("ini", d, more=["--audit-log", log]) as s:
            key = s.create()
            s.call("PUT", f"{KEYS}/{key['id']}", {})
            s.call("DELETE", f"{KEYS}/{key['id']}")
            s.call("DELETE", f"{KEYS}/{key['id']}")
        with open(log) as f:
            text = f.read()
        assert key["key"] not in text
        lines = [line for line in map(json.loads, text.splitlines())
            if KEYS in json.dumps(line)]
        for name, line in zip(("created", "replaced", "deleted"), lines):
            assert name in json.dumps(line) and key["id"] in json.dumps(line), line
        assert len(lines) == 4 and "404" in json.dumps(lines[3]), lines
        equal([line["event"] for line in lines], ["change", "change", "change", "refused"])
        created, replaced, deleted = lines[:3]
        equal((created["before"], deleted["after"]), (None, None))
        equal(replaced["before"], created["after"])
        equal(deleted["before"], replaced["after"])
        assert replaced["before"]["version"] < replaced["after"]["version"], replaced
        equal(subprocess.run([program("inferctl"), "admin", "audit", "verify", log], capture_output=True).returncode, 0)


def test_acknowledged_changes_survive_kill_9():
    def check(backend):
        with tempfile.TemporaryDirectory() as d:
            live, gone = {}, set()
            for round_number in range(4):
                with contextlib.suppress(Killed), Keys(backend, d) as s:
                    _, _, page = s.call("GET", KEYS + "?limit=500")
                    stored = {k["id"] for k in page["data"] if not k["is_static"]}
                    assert set(live) <= stored, "an acknowledged key is lost"
                    assert not gone & stored, "a deleted key is back"
                    stop = threading.Timer(0.15 + 0.07 * round_number, s.process.kill)
                    stop.start()
                    try:
                        while True:
                            key = s.create()
                            live[key["id"]] = key["key"]
                            if len(live) % 3 == 0:
                                victim = next(iter(live))
                                del live[victim]
                                s.call("DELETE", f"{KEYS}/{victim}")
                                gone.add(victim)
                    except (OSError, ValueError, http.client.HTTPException):
                        s.process.wait()
                        raise Killed from None
    both_backends(check)


def test_inferctl_manages_keys():
    with Keys() as s:
        def ctl(*arguments, status=0):
            done = subprocess.run([program("inferctl"), "--url", s.url, "admin", "api-keys", *arguments],
                env={"INFERFLUX_API_KEY": "boss"}, capture_output=True, text=True)
            equal(done.returncode, status, (arguments, done.stderr))
            return done.stdout if status == 0 else done.stderr

        secret = ctl("create", "--name", "reports", "--scopes", "read,generate", "--weight", "2.5",
            "--expires-at", "2100-01-01T00:00:00Z", "--models", "demo,echo", "--priority", "3",
            "--tenant", "acme", "--limits", "requests_per_minute=60,tokens_per_day=5").strip()
        equal(s.get("/v1/models", **as_key(secret))[0], 200)
        key = hashlib.sha256(secret.encode()).hexdigest()[:16]
        shown = json.loads(ctl("show", key))
        equal((shown["name"], shown["scopes"], shown["weight"], shown["expires_at"], shown["models"],
                shown["priority"], shown["tenant"], shown["limits"]),
            ("reports", ["generate", "read"], 2.5, 4102444800, ["demo", "echo"], 3, "acme",
                {"requests_per_minute": 60, "tokens_per_day": 5}))
        lines = ctl("list").splitlines()
        equal(len(lines), 3)
        assert any(key in line and "reports" in line for line in lines), lines
        equal(len([json.loads(line) for line in ctl("list", "--json").splitlines()]), 3)
        equal(json.loads(ctl("create", "--json"))["scopes"], ["generate", "read"])
        equal(json.loads(ctl("replace", key, "--name", "x"))["name"], "x")
        assert "weight" in ctl("create", "--weight", "heavy", status=1)
        ctl("delete", key)
        assert "404" in ctl("delete", key, status=1)
        equal(s.get("/v1/models", **as_key(secret))[0], 401)
        for arguments in ("delete",), ("create", "x"), ("unknown",), ("list", "x"), ("show", key, key):
            ctl(*arguments, status=2)
        ctl("show", "../cache", status=1)


def routes():
    """(method, path, scope) of each route of src/serve/routes.c."""
    with open(os.path.join(ROOT, "src/serve/routes.c")) as f:
        rows = re.findall(r'\{ "([A-Z]+)", "([^"]+)",\s*SCOPE_([A-Z]+),', f.read())
    assert len(rows) > 60, len(rows)
    return rows


SESSION = "/v1/session"


def log_in(s, key):
    """The fields of a request with the session cookie of a key."""
    status, fields, _ = s.request("POST", SESSION, "", **as_key(key))
    equal(status, 200)
    return {"Cookie": fields["set-cookie"].split(";")[0]}


FORMS = {"bearer": as_key, "x-api-key": lambda k: {"x_api_key": k},
    "lower case": lambda k: {"Authorization": "bearer " + k}}
FOREIGN = ({"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
    {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"})


def test_every_route_requires_its_scope_of_every_kind_of_key():
    """Route x method x caller x form. A caller that is allowed gets any status but 401 and 403."""
    with Keys("sqlite") as s:
        all_scopes = ["generate", "read", "admin"]
        keys = {(scope,): s.create(scopes=[scope])["key"] for scope in all_scopes}
        keys[tuple(all_scopes)] = s.create(scopes=all_scopes)["key"]
        revoked, expired, elsewhere = (s.create(scopes=all_scopes) for _ in range(3))
        bad = {"revoked": revoked["key"], "expired": expired["key"], "elsewhere": elsewhere["key"]}
        forms = {name: ({c: form(k) for c, k in keys.items()}, {c: form(k) for c, k in bad.items()})
            for name, form in FORMS.items()}
        admin = s.key
        s.key = None
        forms["cookie"] = tuple({c: log_in(s, k) for c, k in group.items()} for group in (keys, bad))
        s.key = admin
        s.call("DELETE", f"{KEYS}/{revoked['id']}")
        s.call("PUT", f"{KEYS}/{expired['id']}", {"scopes": all_scopes, "expires_at": int(time.time()) - 10})
        s.call("PUT", f"{KEYS}/{elsewhere['id']}", {"scopes": all_scopes, "networks": ["192.0.2.0/24"]})
        s.key = None
        n = 0
        for method, pattern, scope in routes():
            path = pattern.replace("*", "nothing")
            body = "{" if method in ("POST", "PUT") else None
            is_open = scope == "NONE"
            for fields in {}, as_key("ifx_0"), {"Cookie": "inferflux=" + "0" * 64}:
                equal(s.request(method, path, body, **fields)[0] == 401, not is_open, (method, path, fields))
            for form, (good, refused) in forms.items():
                if form == "cookie" and path == SESSION:
                    continue  # tests/wire/test_login.py
                for name, fields in refused.items():
                    status = s.request(method, path, body, **fields)[0]
                    equal(status == (403 if name == "elsewhere" else 401), not is_open,
                        (method, path, form, name, status))
                for scopes, fields in good.items():
                    allowed = is_open or scope == "ANY" or scope.lower() in scopes
                    status = s.request(method, path, body, **fields)[0]
                    equal(status in (401, 403), not allowed, (method, path, form, scopes, status))
                    n += 1
                for foreign in FOREIGN:
                    status, got, _ = s.request(method, path, body, **foreign, **good[tuple(all_scopes)])
                    # Safe methods of inference routes are readable only by the key that a page has.
                    is_refused = scope in ("ADMIN", "ANY") or path.startswith(SESSION) or \
                        method not in ("GET", "HEAD") or "Origin" in foreign or form == "cookie"
                    if not is_open or path.startswith(SESSION):
                        equal(status in (401, 403), is_refused, (method, path, form, foreign, status))
                    assert "access-control-allow-origin" not in got, (method, path, foreign)
        assert n > 1000, n


def test_no_route_shows_objects_of_another_tenant():
    """Stored responses and running requests, by every form of key and with the cookie."""
    with Keys("sqlite") as s:
        s.until_ready()
        scopes = ["generate", "read", "admin"]
        mine, same = (s.create(tenant="mine", scopes=scopes)["key"] for _ in range(2))
        other = s.create(tenant="other", scopes=scopes)["key"]
        s.key = None
        ask = {"model": "echo", "input": "x"}
        status, _, body = s.request("POST", "/v1/responses", json.dumps(ask), **as_key(mine))
        equal(status, 200)
        response = json.loads(body)["id"]
        forms = {**FORMS, "cookie": lambda k: log_in(s, k)}
        tried = set()
        for form, fields_of in forms.items():
            fields = fields_of(other)
            for method, pattern, scope in routes():
                if pattern not in ("/v1/responses/*", "/v1/requests/*"):
                    continue
                for tail in "", "/cancel", "/input_items":
                    path = pattern.replace("*", response + tail)
                    status, _, body = s.request(method, path, "{}" if method == "POST" else None, **fields)
                    assert status in (404, 405), (form, method, path, status, body)
                    tried.add((method, pattern))
            status = s.request("POST", "/v1/responses",
                json.dumps({**ask, "previous_response_id": response}), **fields)[0]
            assert status in (400, 404), (form, status)
            equal(s.get("/v1/responses/" + response, **fields_of(same))[0], 200, form)
        equal(len(tried), 4)


if __name__ == "__main__":
    run(globals())
