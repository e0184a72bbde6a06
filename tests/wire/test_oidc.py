#!/usr/bin/env python3
"""Tokens of an OpenID Connect issuer: the certified `oidc-provider` of npm signs them. Discovery,
rotation of keys, outages, claims, and the same rights as API keys on every route."""
import concurrent.futures
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import Server, equal, program, run
from sdk import NODE

CHAT, MODELS, KEYS = "/v1/chat/completions", "/v1/models", "/v1/admin/api_keys"
JWKS, DISCOVERY = "/jwks", "/.well-known/openid-configuration"


class Issuer:
    def __enter__(self):
        self.process = subprocess.Popen([NODE, os.path.join(ROOT, "tests/support/oidc_issuer.mjs"),
            os.path.join(ROOT, "build/node")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, bufsize=1)
        while True:
            line = self.process.stdout.readline()
            assert line, "the issuer did not start"
            with contextlib.suppress(ValueError):
                self.url = json.loads(line)["issuer"]
                return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()

    def __call__(self, **command):
        self.process.stdin.write(json.dumps(command) + "\n")
        return json.loads(self.process.stdout.readline())

    def count(self, path=JWKS):
        return self(counts=True)["counts"].get(path, 0)

    def grant(self, scope="read generate"):
        """An access token of the provider, by the client credentials grant."""
        form = urllib.parse.urlencode({"grant_type": "client_credentials", "client_id": "app",
            "client_secret": "secret", "scope": scope}).encode()
        with urllib.request.urlopen(self.url + "/token", form, timeout=30) as r:
            return json.load(r)["access_token"]

    def token(self, key="first", header=None, alg="RS256", **claims):
        all_claims = {"iss": self.url, "aud": "inferflux", "sub": "ann", "exp": time.time() + 600,
            "scope": "read generate", **claims}
        return self(token={k: v for k, v in all_claims.items() if v is not None}, key=key,
            header=header or {}, alg=alg)["token"]


class Gateway(Server):
    """A server that accepts the tokens of an issuer."""

    def __init__(self, issuer, *flags, **more):
        super().__init__("--oidc-issuer", issuer if isinstance(issuer, str) else issuer.url,
            "--oidc-audience", "inferflux", *flags, **{"ready": False, **more})

    def status(self, token, path=MODELS, method="GET", body=None):
        status, _, data = self.request(method, path, body, Authorization="Bearer " + token)
        return status

    def message(self, token):
        _, _, data = self.request("GET", MODELS, None, Authorization="Bearer " + token)
        return data.decode()


def test_tokens_of_the_provider():
    with Issuer() as issuer:
        for alg in "RS256", "PS256", "ES256", "EdDSA":
            issuer(keys=[alg], alg=alg)
            token = issuer.grant()
            with Gateway(issuer) as s:
                equal(s.status(token), 200, alg)
                equal(s.request("GET", MODELS, None, x_api_key=token)[0], 200, alg)
                body = json.dumps({"model": "echo", "messages": [{"role": "user", "content": "x"}]})
                assert s.status(token, CHAT, "POST", body) in (200, 503), alg
                equal(s.status(token, KEYS), 403, alg)
                equal(s.status(token[:-8] + "AAAAAAAA"), 401, alg)
                equal(s.get(MODELS)[0], 401, "without a token")
                equal(s.status("some-key"), 401)
                equal(issuer.count(), {"RS256": 1, "PS256": 2, "ES256": 3, "EdDSA": 4}[alg])


def test_scopes_of_claims():
    with Issuer() as issuer, Gateway(issuer) as s:
        equal(s.status(issuer.grant("read")), 200)
        equal(s.status(issuer.grant("read"), CHAT, "POST", "{}"), 403)
        equal(s.status(issuer.grant("generate"), MODELS), 403)
        equal(s.status(issuer.token(scope="admin"), "/v1/admin/fairness"), 200)
        for none in None, "", "Read", "reader xread", 7, ["Read"], {"read": True}:
            equal(s.status(issuer.token(scope=none)), 403, none)
        equal(s.status(issuer.token(scope=["x", "read"])), 200)
        with Gateway(issuer, "--oidc-scopes-claim", "access.roles", "--oidc-scopes",
                "read=viewer, generate=writer,admin=https://x/admin,read=https://x/admin") as t:
            equal(t.status(issuer.token(access={"roles": ["viewer"]})), 200)
            equal(t.status(issuer.token(access={"roles": ["read"]})), 403)
            equal(t.status(issuer.token(**{"access.roles": "viewer"})), 200)
            equal(t.status(issuer.token(access={"roles": "https://x/admin"})), 200)
            equal(t.status(issuer.token(access="roles")), 403)


def test_claims_are_checked():
    with Issuer() as issuer, Gateway(issuer, "--oidc-skew", "30") as s:
        now = time.time()
        cases = [(401, {"iss": issuer.url + "/"}), (401, {"aud": "other"}), (401, {"aud": None}),
            (200, {"aud": ["x", "inferflux"]}), (401, {"exp": None}), (401, {"exp": now - 60}),
            (200, {"exp": now - 10}), (401, {"nbf": now + 60}), (200, {"nbf": now + 10}),
            (401, {"sub": None}), (401, {"sub": ""}), (401, {"exp": "9999999999"}), (200, {"iat": now + 900})]
        for want, claims in cases:
            equal(s.status(issuer.token(**claims)), want, claims)
        equal(s.status(issuer.token(header={"typ": "at+jwt"})), 200)
        equal(s.status(issuer.token(header={"alg": "PS256"}, key="ps", alg="PS256")), 401, "unknown key")
        assert "expired" in s.message(issuer.token(exp=now - 60))
        long = issuer.token(text="x" * 20000)
        equal(s.status(long), 401, "too long")
        assert "bytes" in s.message(long)


def test_a_token_expires_although_it_was_accepted():
    with Issuer() as issuer, Gateway(issuer, "--oidc-skew", "0") as s:
        token = issuer.token(exp=int(time.time()) + 2)
        equal(s.status(token), 200)
        deadline = time.monotonic() + 10
        while s.status(token) == 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        equal(s.status(token), 401)


def test_rotation_causes_one_fetch():
    with Issuer() as issuer, Gateway(issuer, "--oidc-refetch", "60000", "--threads-http", "2") as s:
        old = issuer.grant()
        equal(s.status(old), 200)
        equal(issuer.count(), 1)
        issuer(keys=["second", "first"], alg="RS256")
        new = issuer.grant()
        body = json.dumps({"model": "echo", "messages": []}) + " " * 100000
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            found = list(pool.map(lambda i: s.status(*(new,) if i % 2 else (new, CHAT, "POST", body)),
                range(32)))
        assert set(found[1::2]) == {200}, found
        assert not set(found[::2]) & {401, 403}, found
        equal(issuer.count(), 2)
        equal(s.status(old), 200)
        # Tokens with unknown keys cause no further fetch for a minute.
        for i in range(20):
            equal(s.status(issuer.token(key="strange%d" % (i % 3), sub=str(i))), 401)
        equal(issuer.count(), 2)


def test_a_removed_key_is_refused_after_the_next_fetch():
    with Issuer() as issuer, Gateway(issuer, "--oidc-refetch", "100") as s:
        old = issuer.grant()
        equal(s.status(old), 200)
        issuer(keys=["second"], alg="ES256")
        equal(s.status(old), 200, "until the set is fetched again")
        equal(s.status(issuer.grant()), 200)
        equal(s.status(old), 401)


def test_an_outage_keeps_the_last_keys():
    with Issuer() as issuer, Gateway(issuer, "--oidc-refetch", "100") as s:
        token = issuer.grant()
        equal(s.status(token), 200)
        for outage in {"down": True}, {"path": JWKS, "status": 200, "body": "{"}, \
                {"path": JWKS, "status": 200, "body": '{"keys":[]}'}, \
                {"path": JWKS, "status": 200, "body": "x" * 400000}, \
                {"path": DISCOVERY, "status": 200, "body": '{"issuer":"x","jwks_uri":"http://127.0.0.1"}'}:
            issuer(**outage)
            time.sleep(0.15)
            equal(s.status(issuer.token(key="strange")), 401, outage)
            equal(s.status(token), 200, outage)
            equal(s.status(issuer.token(sub="bob")), 200, outage)
        issuer(down=False)
        issuer(path=JWKS)
        issuer(path=DISCOVERY)
        issuer(keys=["second"], alg="RS256")
        deadline = time.monotonic() + 20
        while s.status(issuer.grant()) != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_an_issuer_that_starts_later():
    with Issuer() as issuer:
        issuer(down=True)
        token = issuer.token()
        with Gateway(issuer, "--oidc-refetch", "100") as s:
            equal(s.status(token), 503)
            assert "cannot be fetched" in s.message(token)
            issuer(down=False)
            deadline = time.monotonic() + 20
            while s.status(token) != 200:
                assert time.monotonic() < deadline
                time.sleep(0.1)


def test_an_issuer_without_discovery():
    with Issuer() as issuer:
        with urllib.request.urlopen(issuer.url + JWKS, timeout=30) as r:
            keys = r.read().decode()
        issuer(path=DISCOVERY, status=404, body="")
        issuer(path="/.well-known/jwks.json", status=200, body=keys)
        with Gateway(issuer) as s:
            equal(s.status(issuer.token()), 200)
        issuer(path="/other", status=200, body=keys)
        with Gateway(issuer, "--oidc-jwks-url", issuer.url + "/other") as s:
            equal(s.status(issuer.token()), 200)
        equal(issuer.count("/other"), 1)
        equal(issuer.count(DISCOVERY), 1)


def test_tenants_and_identity():
    with Issuer() as issuer, tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "audit.jsonl")
        with Gateway(issuer, "--oidc-tenant-claim", "tenant", "--audit-log", path, "--policy-backend",
                "sqlite", "--policy-path", d + "/policy.db", env={"INFERFLUX_API_KEYS": "boss:admin"},
                ready=True, key="boss") as s:
            equal(s.status(issuer.grant()), 200)
            equal(s.status(issuer.token(tenant=None)), 401)
            assert "tenant" in s.message(issuer.token(tenant=7))
            body = json.dumps({"model": "echo", "messages": [{"role": "user", "content": "x"}]})
            uuid = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6-long"
            for claims in {"tenant": "acme"}, {"tenant": "acme", "jti": "2"}, {"tenant": uuid}, \
                    {"tenant": "acme", "sub": "bob"}:
                equal(s.status(issuer.token(**claims), CHAT, "POST", body), 200, claims)
            # API keys work next to tokens, and a change of the policy ends no request with a token.
            equal(s.status("boss"), 200)
            equal(s.request("POST", KEYS, json.dumps({"name": "x"}))[0], 201)
        with open(path) as f:
            ids = re.findall('"([0-9a-f]{16})".*' + CHAT, f.read())
        # The audit log has one id per subject, whatever token it used.
        equal((len(ids), ids[0], ids[1]), (4, ids[2], ids[2]), ids)
        assert ids[3] != ids[0], ids


def test_a_policy_change_does_not_end_requests_with_tokens():
    config = """
models:
  - id: slow
    path: %s/models/demo.gguf
    backend: script
""" % ROOT
    script = {"text": "word " * 200, "delay_ms": 10}
    with Issuer() as issuer, tempfile.TemporaryDirectory() as d, \
            Gateway(issuer, "--policy-backend", "sqlite", "--policy-path", d + "/policy.db",
                env={"INFERFLUX_API_KEYS": "boss:admin"}, ready=True, key="boss", config=config) as s, \
            concurrent.futures.ThreadPoolExecutor(1) as pool:
        body = json.dumps({"model": "slow", "stream": True, "script": script, "max_tokens": 150,
            "messages": [{"role": "user", "content": "x"}]})
        token = issuer.grant()
        running = pool.submit(s.request, "POST", CHAT, body, Authorization="Bearer " + token)
        time.sleep(0.3)
        equal(s.request("POST", KEYS, json.dumps({"name": "x"}))[0], 201)
        status, _, data = running.result(60)
        equal(status, 200)
        assert data.rstrip().endswith(b"[DONE]") and b'"error"' not in data, data[-400:]


def test_bad_settings():
    for flags, word in (["--oidc-issuer", "http://issuer.test", "--oidc-audience", "a"], "https"), \
            (["--oidc-issuer", "https://issuer.test"], "audience"), \
            (["--oidc-issuer", "http://127.0.0.1.issuer.test/", "--oidc-audience", "a"], "https"), \
            (["--oidc-issuer", "https://a", "--oidc-audience", "a", "--oidc-algorithms", "HS256"], "HS256"), \
            (["--oidc-issuer", "https://a", "--oidc-audience", "a", "--oidc-algorithms", "none"], "none"), \
            (["--oidc-issuer", "https://a", "--oidc-audience", "a", "--oidc-scopes", "write=x"], "write=x"), \
            (["--oidc-issuer", "https://a", "--oidc-audience", "a", "--client-ca-file", "/nope"], "/nope"):
        r = subprocess.run([program("inferfluxd"), "--port", "0", "--model", ROOT + "/models/demo.gguf",
            *flags], capture_output=True, text=True, timeout=60)
        equal(r.returncode, 1, flags)
        assert word in r.stderr, (flags, r.stderr)


if __name__ == "__main__":
    run(globals())
