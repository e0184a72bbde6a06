#!/usr/bin/env python3
"""Roles: the admin routes, keys and tokens that have roles, and the effect of changes on every event
loop and on running requests."""
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
sys.path.insert(0, os.path.join(ROOT, "tests/wire"))
from harness import equal, program, read_until, run
from test_api_keys import CHAT, KEYS, SCRIPT, Keys, as_key, environment, flags
from test_oidc import Gateway, Issuer

ROLES = "/v1/admin/roles"


def chat(s, key, model="echo", **more):
    body = json.dumps({"model": model, "max_tokens": 2, "script": {"text": "a b"}, "messages":
        [{"role": "user", "content": "x"}], **more})
    return s.request("POST", CHAT, body, **as_key(key["key"]))


def test_roles_are_stored_and_grant_scopes_models_and_limits():
    for backend in "ini", "sqlite":
        with tempfile.TemporaryDirectory() as d:
            with Keys(backend, d, ready=True) as s:
                equal(s.call("GET", ROLES)[2]["data"], [])
                status, head, role = s.call("PUT", f"{ROLES}/reader", {"scopes": ["read"],
                    "description": "reads \u00e4 \"x\"", "claims": ["groups=a b"]})
                equal((status, head["etag"]), (200, '"%d"' % role["version"]))
                equal(role, {"object": "role", "name": "reader", "version": role["version"],
                    "description": "reads \u00e4 \"x\"", "scopes": ["read"], "models": [],
                    "limits": {}, "claims": ["groups=a b"]})
                s.call("PUT", f"{ROLES}/writer", {"scopes": ["generate"], "models": ["echo"],
                    "limits": {"requests_per_minute": 3, "tokens_per_day": 1000}})
                s.call("PUT", f"{ROLES}/slow", {"limits": {"requests_per_minute": 2}})
                reader = s.create(roles=["reader"])
                equal((reader["scopes"], reader["roles"]), ([], ["reader"]))
                equal(s.get("/v1/models", **as_key(reader["key"]))[0], 200)
                equal(chat(s, reader)[0], 403)
                writer = s.create(roles=["writer", "slow"], scopes=["read"])
                equal([chat(s, writer)[0] for _ in range(3)], [200, 200, 429])
                equal(chat(s, writer, "demo")[0], 403)
                models = json.loads(s.get("/v1/models", **as_key(writer["key"]))[2])["data"]
                equal([m["id"] for m in models], ["echo"])
                # both the list of the key and that of a role must allow the model
                other = s.create(roles=["writer"], models=["demo"])
                equal([chat(s, other, m)[0] for m in ("echo", "demo")], [403, 403])
                own = s.create(roles=["writer"], limits={"requests_per_minute": 1})
                equal([chat(s, own)[0] for _ in range(2)], [200, 429])
                before = s.call("GET", ROLES)[2]
                keys = s.call("GET", KEYS)[2]["data"]
            with Keys(backend, d, ready=True) as s:
                equal(s.call("GET", ROLES)[2], before)
                equal(s.call("GET", KEYS)[2]["data"], keys)
                equal(s.get("/v1/models", **as_key(reader["key"]))[0], 200)
                equal(chat(s, reader)[0], 403)
                equal([chat(s, writer)[0] for _ in range(3)], [200, 200, 429])


def test_bad_roles_are_400_and_name_the_field():
    cases = [({"scopes": "read"}, "scopes"), ({"scopes": ["write"]}, "scopes"),
        ({"scopes": [1]}, "scopes"), ({"models": [""]}, "models"), ({"models": ["a\tb"]}, "models"),
        ({"models": ["m"] * 65}, "models"), ({"limits": []}, "limits"),
        ({"limits": {"exempt": 1}}, "limits"), ({"limits": {"tokens_per_day": 0}}, "limits"),
        ({"limits": {"x": 1}}, "limits"), ({"claims": ["a"]}, "claims"),
        ({"claims": ["=a"]}, "claims"), ({"claims": ["a=b"] * 65}, "claims"),
        ({"description": 1}, "description"), ({"description": "x" * 201}, "description"),
        ({"scope": []}, "scope")]
    with Keys() as s:
        for body, name in cases:
            status, head, error = s.call("PUT", f"{ROLES}/r", body)
            equal((status, head["content-type"]), (400, "application/problem+json"), body)
            assert name in json.dumps(error), (body, error)
        for name in "a%20b", "a/b", "x" * 65:
            equal(s.call("PUT", f"{ROLES}/{name}", {})[0], 400, name)
            equal(s.call("GET", f"{ROLES}/{name}")[0], 400, name)
        for body in "[]", "{", "1":
            equal(s.request("PUT", f"{ROLES}/r", body)[0], 400, body)
        equal(s.call("GET", f"{ROLES}/r")[0], 404)
        equal(s.call("DELETE", f"{ROLES}/r")[0], 404)
        equal(s.get(ROLES, **as_key("user"))[0], 403)
        status, _, error = s.call("POST", KEYS, {"roles": ["nobody"]})
        equal(status, 400, error)
        assert "nobody" in json.dumps(error), error
        for body in {"scopes": []}, {"roles": []}, {"roles": [], "scopes": ["none"]}, \
                {"roles": ["a b"]}, {"roles": "a"}:
            equal(s.call("POST", KEYS, body)[0], 201 if body == {"roles": []} else 400, body)


def test_if_match_and_pages():
    with Keys("sqlite") as s:
        v1 = s.call("PUT", f"{ROLES}/r", {"scopes": ["read"]})[2]["version"]
        equal(s.call("PUT", f"{ROLES}/r", {}, If_Match='"%d"' % (v1 + 1))[0], 412)
        equal(s.call("PUT", f"{ROLES}/new", {}, If_Match='"5"')[0], 412)
        v2 = s.call("PUT", f"{ROLES}/r", {}, If_Match='"%d"' % v1)[2]["version"]
        equal(s.call("DELETE", f"{ROLES}/r", None, If_Match='"%d"' % v1)[0], 412)
        equal(s.call("DELETE", f"{ROLES}/r", None, If_Match='"%d"' % v2)[0], 200)
        names = [f"role{i:03}" for i in range(7)]
        for name in names:
            equal(s.call("PUT", f"{ROLES}/{name}", {})[0], 200)
        got, after, n = [], "", 0
        while True:
            page = s.call("GET", f"{ROLES}?limit=3&after={after}")[2]
            got += [r["name"] for r in page["data"]]
            n += 1
            after = page["last_id"]
            if not page["has_more"]:
                break
        equal((got, n), (names, 3))
        for query in "limit=0", "limit=501", "limit=x", "after=a%20b", "more=1":
            equal(s.call("GET", f"{ROLES}?{query}")[0], 400, query)


def test_a_change_takes_effect_on_every_event_loop_and_ends_running_requests():
    with Keys(more=("--threads-http", "4"), ready=True) as s:
        role = {"scopes": ["read", "generate"]}
        s.call("PUT", f"{ROLES}/staff", role)
        key = s.create(roles=["staff"])
        body = json.dumps({"model": "echo", "stream": True, "script": SCRIPT, "messages":
            [{"role": "user", "content": "x"}]})
        running = [s.connect() for _ in range(8)]
        for c in running:
            c.sendall((f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
                f"{key['key']}\r\nContent-Length: {len(body)}\r\n\r\n{body}").encode())
            read_until(c, lambda data: b"word" in data)
        equal(s.call("PUT", f"{ROLES}/staff", {"scopes": ["read"]})[0], 200)
        changed = time.monotonic()
        for c in running:
            text = read_until(c, lambda data: b"error" in data)
            assert b"any more" in text, text
            c.close()
        seconds = time.monotonic() - changed
        assert seconds < 5, seconds
        equal([chat(s, key)[0] for _ in range(8)], [403] * 8)
        equal([s.get("/v1/models", **as_key(key["key"]))[0] for _ in range(8)], [200] * 8)
        s.call("PUT", f"{ROLES}/staff", role)
        equal([chat(s, key)[0] for _ in range(8)], [200] * 8)
        # a role that does not exist any more grants nothing
        s.call("DELETE", f"{ROLES}/staff")
        equal([s.get("/v1/models", **as_key(key["key"]))[0] for _ in range(8)], [403] * 8)
        own = s.create(scopes=["read"])
        equal(s.get("/v1/models", **as_key(own["key"]))[0], 200)


def test_changes_are_in_the_audit_log():
    with tempfile.TemporaryDirectory() as d:
        log = os.path.join(d, "audit.jsonl")
        with Keys(more=("--audit-log", log)) as s:
            s.call("PUT", f"{ROLES}/r", {"scopes": ["read"]})
            s.call("PUT", f"{ROLES}/r", {"scopes": ["admin"]})
            s.call("DELETE", f"{ROLES}/r")
            s.call("DELETE", f"{ROLES}/r")
        with open(log) as f:
            lines = [json.loads(line) for line in f]
        changes = [line for line in lines if line.get("event") == "change"]
        equal([c["action"] for c in changes], ["role.created", "role.replaced", "role.deleted"])
        equal([c["route"] for c in changes], [f"{ROLES}/r"] * 3)
        scopes = [[c[k] and c[k]["scopes"] for k in ("before", "after")] for c in changes]
        equal(scopes, [[None, ["read"]], [["read"], ["admin"]], [["admin"], None]])


def test_tokens_have_the_roles_of_their_claims():
    with Issuer() as issuer, tempfile.TemporaryDirectory() as d:
        with Gateway(issuer, *flags(d, "sqlite"), env=environment(), key="boss", ready=True) as s:
            def put(name, **role):
                equal(s.request("PUT", f"{ROLES}/{name}", json.dumps(role))[0], 200)

            put("staff", scopes=["read"], claims=["groups=staff", "realm.roles=viewer"])
            put("chief", scopes=["admin"], claims=["groups=chief=1"])
            put("nobody", scopes=["admin"])
            token = issuer.token(scope=None, groups=["x", "staff"])
            equal(s.status(token), 200)
            equal(s.status(token, KEYS), 403)
            equal(s.status(issuer.token(scope=None, realm={"roles": "viewer"})), 200)
            equal(s.status(issuer.token(scope=None, groups="chief=1"), KEYS), 200)
            for groups in None, "staff2", ["Staff"], {"staff": 1}, 7, [["staff"]]:
                equal(s.status(issuer.token(scope=None, groups=groups)), 403, groups)
            # a change applies to tokens that are known
            put("staff", scopes=["read"], claims=["groups=other"])
            equal(s.status(token), 403)
            put("staff", scopes=["read", "generate"], models=["demo"], claims=["groups=staff"])
            body = json.dumps({"model": "echo", "messages": [{"role": "user", "content": "x"}]})
            equal(s.status(token, CHAT, "POST", body), 403)


def test_inferctl_administers_roles():
    with Keys() as s:
        def ctl(*arguments):
            r = subprocess.run([program("inferctl"), "--url", s.url, "--api-key", "boss", "admin",
                "roles", *arguments], capture_output=True, text=True)
            return r.returncode, r.stdout and json.loads(r.stdout), r.stderr

        equal(ctl("put", "staff", "--scopes", "read,generate", "--limits",
            "requests_per_minute=5,tokens_per_day=9", "--claims", "groups=staff", "--models",
            "a,b", "--description", "of the house")[0], 0)
        role = ctl("show", "staff")[1]
        equal([role[k] for k in ("scopes", "limits", "claims", "models", "description")],
            [["generate", "read"], {"requests_per_minute": 5, "tokens_per_day": 9},
            ["groups=staff"], ["a", "b"], "of the house"])
        equal([r["name"] for r in ctl("list")[1]["data"]], ["staff"])
        key = s.create(roles=["staff"])
        equal(s.get("/v1/models", **as_key(key["key"]))[0], 200)
        equal(ctl("delete", "staff")[0], 0)
        equal(ctl("show", "staff")[0], 1)
        equal(ctl("put")[0], 2)
        equal(ctl("put", "x", "--scopes", "none-such")[0], 1)


if __name__ == "__main__":
    run(globals())
