#!/usr/bin/env python3
"""Sessions of browsers: with an API key, and with the authorization code flow of the certified
`oidc-provider`. Attributes of the cookies, cross-site requests, logout, revocation, restarts."""
import http.cookiejar
import json
import os
import re
import socket
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
sys.path.insert(0, os.path.join(ROOT, "tests/wire"))
from harness import Server, equal, run
from test_oidc import Issuer, MODELS, CHAT, KEYS

SESSION = "/v1/session"
BOSS = {"INFERFLUX_API_KEYS": "boss:admin"}
CHAT_BODY = json.dumps({"model": "echo", "messages": [{"role": "user", "content": "x"}]})


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def cookie_of(fields, name="inferflux"):
    """The value of a cookie of a response, and its attributes."""
    parts = [p.strip() for p in fields["set-cookie"].split(";")]
    got, value = parts[0].split("=", 1)
    equal(got, name)
    return value, parts[1:]


def log_in(s, key="boss", name="inferflux"):
    status, fields, body = s.request("POST", SESSION, "", Authorization="Bearer " + key)
    equal(status, 200, body)
    return name + "=" + cookie_of(fields, name)[0]


class KeyServer(Server):
    def __init__(self, d, *flags, **more):
        super().__init__("--policy-backend", "sqlite", "--policy-path", d + "/policy.db", *flags,
            **{"env": BOSS, "ready": False, **more})

    def until_ready(self, seconds=120):
        self.key = "boss"
        super().until_ready(seconds)
        self.key = None

    def make_key(self, **attributes):
        status, _, body = self.request("POST", KEYS, json.dumps(attributes), Authorization="Bearer boss")
        equal(status, 201, body)
        key = json.loads(body)
        return key["key"], key["id"]

    def state(self, cookie, **fields):
        status, _, body = self.get(SESSION, Cookie=cookie, **fields)
        equal(status, 200)
        return json.loads(body)


def test_a_cookie_stands_for_its_key_on_every_route():
    with tempfile.TemporaryDirectory() as d, KeyServer(d, ready=True) as s:
        status, fields, body = s.request("POST", SESSION, "", Authorization="Bearer boss")
        equal(status, 200)
        value, attributes = cookie_of(fields)
        assert re.fullmatch("[0-9a-f]{64}", value), value
        equal(attributes, ["Path=/", "Max-Age=43200", "HttpOnly", "SameSite=Strict"])
        equal(fields["cache-control"], "no-store")
        assert abs(json.loads(body)["expires_at"] - time.time() - 43200) < 30, body
        cookie = "a=b; inferflux=" + value
        for path in MODELS, KEYS, "/api/tags", "/props":
            equal(s.get(path)[0], 401, path)
            equal(s.get(path, Cookie=cookie)[0], 200, path)
        equal(s.request("POST", CHAT, CHAT_BODY, Cookie=cookie)[0], 200)
        key, _ = s.make_key(name="reader", scopes=["read"])
        reader = log_in(s, key)
        equal(s.get(MODELS, Cookie=reader)[0], 200)
        equal(s.get(KEYS, Cookie=reader)[0], 403)
        equal(s.request("POST", CHAT, CHAT_BODY, Cookie=reader)[0], 403)
        equal(s.state(reader)["scopes"], ["read"])
        equal(s.state(reader)["name"], "reader")
        # A key in a field precedes the cookie, whatever it is.
        equal(s.get(KEYS, Cookie=cookie, Authorization="Bearer " + key)[0], 403)
        equal(s.get(MODELS, Cookie=cookie, Authorization="Bearer wrong")[0], 401)
        for bad in "inferflux=", "inferflux=" + "0" * 64, cookie + "; inferflux=" + value, \
                "__Host-inferflux=" + value, "xinferflux=" + value, "inferflux=" + value[:-1]:
            equal(s.get(MODELS, Cookie=bad)[0], 401, bad)
            equal(s.state(bad)["authenticated"], False)


def test_pages_of_other_origins_cannot_use_the_cookie():
    with tempfile.TemporaryDirectory() as d, KeyServer(d, ready=True) as s:
        cookie = log_in(s)
        own, other = {"Origin": s.url}, {"Origin": "http://localhost:3000"}
        site = lambda v, **more: {"Sec-Fetch-Site": v, **more}
        for fields in {}, own, site("same-origin"), site("none"), site("same-origin", **own):
            equal(s.get(MODELS, Cookie=cookie, **fields)[0], 200, fields)
            equal(s.request("POST", CHAT, CHAT_BODY, Cookie=cookie, **fields)[0], 200, fields)
        # A loopback origin may use inference routes with a key, but never with the cookie.
        equal(s.get(MODELS, Authorization="Bearer boss", **other)[0], 200)
        for fields in other, site("same-site", **other), site("cross-site"), site("same-site"), \
                {"Origin": "http://evil.test"}, {"Origin": "null"}, site("cross-site", **own):
            status, got, _ = s.get(MODELS, Cookie=cookie, **fields)
            assert status in (401, 403), (status, fields)
            assert "access-control-allow-credentials" not in got, got
            assert s.request("POST", CHAT, CHAT_BODY, Cookie=cookie, **fields)[0] in (401, 403), fields
            equal(s.get(KEYS, Cookie=cookie, **fields)[0], 403, fields)
            equal(s.request("DELETE", SESSION, None, Cookie=cookie, **fields)[0], 403, fields)
            equal(s.request("POST", SESSION, "", Authorization="Bearer boss", **fields)[0], 403, fields)
        equal(s.get(MODELS, Cookie=cookie, Host="evil.test")[0], 421)
        equal(s.state(cookie)["authenticated"], True)


def test_logout_and_revocation():
    with tempfile.TemporaryDirectory() as d, KeyServer(d, "--threads-http", "3") as s:
        first, second = log_in(s), log_in(s)
        status, fields, body = s.request("DELETE", SESSION, None, Cookie=first)
        equal((status, json.loads(body)["deleted"]), (200, True))
        equal(cookie_of(fields)[1][1], "Max-Age=0")
        equal([s.get(MODELS, Cookie=c)[0] for c in (first, second)], [401, 200])
        equal(json.loads(s.request("DELETE", SESSION, None, Cookie=first)[2])["deleted"], False)
        equal(s.request("DELETE", SESSION, None)[0], 200)
        key, key_id = s.make_key(name="x")
        cookie = log_in(s, key)
        equal(s.request("DELETE", KEYS + "/" + key_id, None, Authorization="Bearer boss")[0], 200)
        deadline = time.monotonic() + 5
        while s.get(MODELS, Cookie=cookie)[0] != 401:
            assert time.monotonic() < deadline
        # A session neither begins nor prolongs another one.
        equal(s.request("POST", SESSION, "", Cookie=second)[0], 403)
        equal(s.request("POST", SESSION, "", Authorization="Bearer wrong")[0], 401)
        equal(s.request("POST", SESSION, "")[0], 401)
        # The number of sessions of a key is bounded: the oldest ends.
        more = [log_in(s) for _ in range(64)]
        equal([s.get(MODELS, Cookie=c)[0] for c in (second, more[0], more[-1])], [401, 200, 200])


def test_sessions_survive_a_restart_and_end_in_time():
    with tempfile.TemporaryDirectory() as d:
        with KeyServer(d, "--login-idle", "2") as s:
            cookie, idle = log_in(s), log_in(s)
            ended = log_in(s)
            s.request("DELETE", SESSION, None, Cookie=ended)
            deadline = time.monotonic() + 10
            while s.get(MODELS, Cookie=idle)[0] == 200:
                equal(s.get(MODELS, Cookie=cookie)[0], 200)
                assert time.monotonic() < deadline
                time.sleep(2.2)
                equal(s.get(MODELS, Cookie=idle)[0], 401)
        with open(d + "/policy.db.logins", "rb") as f:
            assert cookie.encode()[10:] not in f.read()
        equal(os.stat(d + "/policy.db.logins").st_mode & 0o777, 0o600)
    with tempfile.TemporaryDirectory() as d:
        with KeyServer(d) as s:
            cookie, ended = log_in(s), log_in(s)
            s.request("DELETE", SESSION, None, Cookie=ended)
            s.process.kill()  # the cookie was returned: it is on the disk
            s.process.wait()
            s.process.returncode = 0
        with KeyServer(d) as s:
            equal([s.get(MODELS, Cookie=c)[0] for c in (cookie, ended)], [200, 401])


def test_without_keys_there_are_no_sessions():
    with Server(ready=False) as s:
        equal(s.request("POST", SESSION, "")[0], 501)
        state = json.loads(s.get(SESSION)[2])
        equal((state["needs_key"], state["scopes"]), (False, ["read", "generate", "admin"]))
        equal(s.get(SESSION, Sec_Fetch_Site="cross-site")[0], 403)
        equal(s.get(SESSION + "/login")[0], 501)


# ---- code flow


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


class Browser:
    """Follows redirects one by one, and keeps cookies by host, as browsers do."""

    def __init__(self):
        self.jar = http.cookiejar.CookieJar()
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.jar), NoRedirect)
        self.visited = []

    def get(self, url, **fields):
        self.visited.append(url)
        q = urllib.request.Request(url, headers={k.replace("_", "-"): v for k, v in fields.items()})
        try:
            r = self.opener.open(q, timeout=30)
        except urllib.error.HTTPError as e:
            r = e
        with r:
            return r.status, r.headers, r.read().decode()

    def follow(self, url, until="\0"):
        """Returns the last response, or the URL that contains `until`, which is not fetched."""
        for _ in range(12):
            status, fields, body = self.get(url)
            if status not in (302, 303):
                return status, fields, body
            url = urllib.parse.urljoin(url, fields["Location"])
            if until in url:
                return url
        raise AssertionError("too many redirects")

    def cookies(self):
        return {c.name: c.value for c in self.jar}


NAVIGATION = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}


class LoginServer(Server):
    def __init__(self, issuer, d, *flags, public=False, scopes="openid read generate", **more):
        self.own_port = free_port()
        self.callback = "http://127.0.0.1:%d/v1/session/callback" % self.own_port
        issuer(client=self.callback, public=public)
        secret = []
        if not public:
            with open(d + "/secret", "w") as f:
                f.write("s3cret+/ %\n")
            secret = ["--login-client-secret-file", d + "/secret"]
        super().__init__("--port", str(self.own_port), "--oidc-issuer", issuer.url, "--oidc-audience",
            "inferflux", "--login-client-id", "browser", "--login-redirect-url", self.callback,
            "--login-scopes", scopes, *secret, *flags, **{"ready": False, "env": BOSS, **more})

    def begin(self, browser):
        """The URL with which the issuer returns the browser."""
        return browser.follow(self.url + SESSION + "/login", until="/v1/session/callback")

    def log_in(self):
        browser = Browser()
        status, fields, body = browser.get(self.begin(browser), **NAVIGATION)
        equal(status, 200, body)
        return browser

    def status(self, browser, path=MODELS):
        return self.get(path, Cookie="inferflux=" + browser.cookies().get("inferflux", ""))[0]


def test_code_flow():
    with Issuer() as issuer, tempfile.TemporaryDirectory() as d:
        for public in False, True:
            with LoginServer(issuer, d, "--oidc-tenant-claim", "tenant", public=public, ready=True,
                    key="boss") as s:
                b = Browser()
                status, fields, _ = b.get(s.url + SESSION + "/login")
                equal(status, 302)
                parameters = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(fields["Location"]).query))
                equal((parameters["response_type"], parameters["code_challenge_method"],
                    parameters["redirect_uri"]), ("code", "S256", s.callback))
                assert len(parameters["state"]) >= 32 and len(parameters["nonce"]) >= 32
                secret, attributes = cookie_of({"set-cookie": fields["Set-Cookie"]}, "inferflux-login")
                equal(attributes, ["Path=/", "Max-Age=600", "HttpOnly", "SameSite=Lax"])
                assert secret not in fields["Location"]
                status, fields, body = b.get(s.begin(b), **NAVIGATION)
                equal(status, 200, body)
                set_cookies = fields.get_all("Set-Cookie")
                assert any("inferflux=" in c and "SameSite=Strict" in c and "HttpOnly" in c
                    for c in set_cookies), set_cookies
                assert "eyJ" not in body and "eyJ" not in str(fields), "no token in the browser"
                assert 'content="0; url=/"' in body and "default-src 'none'" in fields[
                    "Content-Security-Policy"]
                cookie = "inferflux=" + b.cookies()["inferflux"]
                assert "inferflux-login" not in b.cookies()
                state = json.loads(s.get(SESSION, Cookie=cookie, Authorization="")[2])
                equal((state["authenticated"], state["tenant"], state["scopes"], state["login_url"]),
                    (True, "acme", ["read", "generate"], "/v1/session/login"), state)
                s.key = None
                equal(s.status(b), 200)
                equal(s.request("POST", CHAT, CHAT_BODY, Cookie=cookie)[0], 200)
                equal(s.status(b, KEYS), 403)
                equal(s.get(MODELS, Cookie=cookie, Sec_Fetch_Site="cross-site")[0], 401)
                status, _, body = s.request("DELETE", SESSION, None, Cookie=cookie)
                assert json.loads(body)["logout_url"].startswith(issuer.url + "/session/end?"), body
                equal(s.status(b), 401)


def test_responses_of_other_logins_are_refused():
    with Issuer() as issuer, tempfile.TemporaryDirectory() as d, LoginServer(issuer, d, "--audit-log",
            d + "/audit", "--audit-keys", d + "/audit.keys") as s:
        mine, other = Browser(), Browser()
        url = s.begin(mine)
        foreign = s.begin(other)
        fresh = lambda: s.begin(mine)
        equal(mine.get(foreign, **NAVIGATION)[0], 401, "the code of another browser")
        equal(mine.get(url, **NAVIGATION)[0], 401, "the refusal has ended the login")
        equal(Browser().get(fresh(), **NAVIGATION)[0], 401, "without the cookie")
        url = fresh()
        for change in ("state=", "state=0"), ("iss=", "iss=http%3A%2F%2Fevil.test&x="), ("code=", "code=0"), \
                ("code=", "x="), ("iss=", "x="), ("code=", "error=access_denied&code="), \
                ("code=", "error=%3Cscript%3E&code="):
            url = fresh()
            assert change[0] in url, url
            status, _, body = mine.get(url.replace(*change), **NAVIGATION)
            equal(status, 401, (change, body))
            assert "<script" not in body
        url = fresh()
        equal(mine.get(url, **NAVIGATION)[0], 200)
        equal(mine.get(url, **NAVIGATION)[0], 401, "a second time")
        # Only a navigation of the top-level page reaches the route from another site.
        for fields in {**NAVIGATION, "Sec_Fetch_Dest": "iframe"}, {**NAVIGATION, "Sec_Fetch_Mode": "no-cors"}, \
                {**NAVIGATION, "Origin": "http://evil.test"}, {"Sec_Fetch_Site": "cross-site"}:
            equal(mine.get(fresh(), **fields)[0], 403, fields)
        for path in SESSION, SESSION + "/login":
            equal(s.get(path, **NAVIGATION)[0], 403, path)
        issuer(user=None)
        refused = Browser()
        status, _, body = refused.get(s.begin(refused), **NAVIGATION)
        equal(status, 401)
        assert "access_denied" in body, body
        time.sleep(0.2)
        with open(d + "/audit") as f:
            lines = f.read()
        assert '"session.created"' in lines and lines.count("/v1/session/callback") >= 10, lines[-2000:]


def test_tokens_of_the_response_are_checked():
    with Issuer() as issuer, tempfile.TemporaryDirectory() as d, LoginServer(issuer, d) as s:
        def reply(nonce=None, id_claims=None, access_claims=None, drop=(), status=200, key="first"):
            b = Browser()
            location = b.get(s.url + SESSION + "/login")[1]["Location"]
            asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(location).query))
            base = {"sub": "ann", "exp": time.time() + 600}
            body = {"token_type": "Bearer", "expires_in": 600,
                "id_token": issuer.token(key=key, aud="browser", nonce=nonce or asked["nonce"],
                    **(id_claims or {})),
                "access_token": issuer.token(**(access_claims or {}))}
            for name in drop:
                del body[name]
            issuer(path="/token", status=status, body=json.dumps(body))
            return b.get(s.callback + "?" + urllib.parse.urlencode({"code": "c", "state": asked["state"],
                "iss": issuer.url}), **NAVIGATION)
        equal(reply()[0], 200)
        now = time.time()
        for case in {"nonce": "0" * 64}, {"id_claims": {"azp": "other"}}, {"id_claims": {"exp": now - 600}}, \
                {"id_claims": {"iss": "http://evil.test"}}, {"id_claims": {"sub": "bob"}}, \
                {"access_claims": {"aud": "browser"}}, {"access_claims": {"exp": now - 600}}, \
                {"drop": ["id_token"]}, {"drop": ["access_token"]}, {"key": "strange"}, {"status": 400}:
            status, _, body = reply(**case)
            equal(status, 401, (case, body))
        equal(reply(status=500)[0], 503)
        issuer(path="/token", status=200, body="x" * 300000)
        b = Browser()
        state = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(
            b.get(s.url + SESSION + "/login")[1]["Location"]).query))["state"]
        equal(b.get(s.callback + "?code=c&state=%s&iss=%s" % (state, issuer.url), **NAVIGATION)[0], 503)


def test_roles_of_claims_apply_to_sessions_at_once():
    with Issuer() as issuer, tempfile.TemporaryDirectory() as d, LoginServer(issuer, d, "--policy-backend",
            "sqlite", "--policy-path", d + "/policy.db", scopes="openid read") as s:
        b = s.log_in()
        cookie = "inferflux=" + b.cookies()["inferflux"]
        equal(s.status(b, KEYS), 403)
        equal(s.request("PUT", "/v1/admin/roles/ops", json.dumps({"scopes": ["admin"],
            "claims": ["tenant=acme"]}), Authorization="Bearer boss")[0], 200)
        deadline = time.monotonic() + 5
        while s.status(b, KEYS) != 200:
            assert time.monotonic() < deadline, s.get(SESSION, Cookie=cookie)
        equal(s.request("DELETE", "/v1/admin/roles/ops", None, Authorization="Bearer boss")[0], 200)
        while s.status(b, KEYS) != 403:
            assert time.monotonic() < deadline


def test_a_user_session_survives_a_restart():
    with Issuer() as issuer, tempfile.TemporaryDirectory() as d:
        with LoginServer(issuer, d, "--login-path", d + "/logins") as s:
            b = s.log_in()
        with LoginServer(issuer, d, "--login-path", d + "/logins") as s:
            equal(s.status(b), 200)
            equal(s.status(b, KEYS), 403)
        # The session is that of a user of this issuer.
        with Issuer() as other, LoginServer(other, d, "--login-path", d + "/logins") as s:
            equal(s.status(b), 401)


def test_the_issuer_ends_sessions():
    with Issuer() as issuer, tempfile.TemporaryDirectory() as d, LoginServer(issuer, d) as s:
        b, bob = s.log_in(), None
        issuer(user="bob")
        bob = s.log_in()
        event = {"http://schemas.openid.net/event/backchannel-logout": {}}
        send = lambda token: s.request("POST", SESSION + "/logout_token", "logout_token=" + token,
            Content_Type="application/x-www-form-urlencoded")[0]
        for bad in {"aud": "inferflux", "events": event}, {"events": {}}, {"events": event, "nonce": "1"}, \
                {"events": event, "iss": "x"}:
            equal(send(issuer.token(**{"aud": "browser", **bad})), 400, bad)
        equal(send(""), 400)
        equal((s.status(b), s.status(bob)), (200, 200))
        equal(send(issuer.token(aud="browser", events=event)), 200)
        equal((s.status(b), s.status(bob)), (401, 200))


def test_tokens_are_refreshed_until_the_user_is_blocked():
    with Issuer() as issuer, tempfile.TemporaryDirectory() as d:
        issuer(ttl=1)
        with LoginServer(issuer, d, "--login-path", d + "/logins") as s:
            b = s.log_in()
            before = issuer.count("/token")
            deadline = time.monotonic() + 30
            while issuer.count("/token") < before + 1:
                equal(s.status(b), 200)
                assert time.monotonic() < deadline, "no refresh"
                time.sleep(0.3)
            equal(s.status(b), 200)
            issuer(user=None)
            while s.status(b) == 200:
                assert time.monotonic() < deadline, "the session did not end"
                time.sleep(0.3)
            equal(s.status(b), 401)
            with open(d + "/logins", "rb") as f:
                equal(b"eyJ" in f.read(), False)


def test_login_with_claims_of_the_id_token_and_rotated_keys():
    with Issuer() as issuer, tempfile.TemporaryDirectory() as d, LoginServer(issuer, d, "--login-claims",
            "id_token", "--oidc-refetch", "60000", scopes="openid") as s:
        b = s.log_in()
        equal(json.loads(s.get(SESSION, Cookie="inferflux=" + b.cookies()["inferflux"])[2])["scopes"],
            ["read"])
        issuer(keys=["second", "first"], alg="ES256")
        equal(s.status(s.log_in()), 200)


def test_secure_cookies_behind_a_proxy():
    with tempfile.TemporaryDirectory() as d, KeyServer(d, "--login-secure", "always") as s:
        status, fields, _ = s.request("POST", SESSION, "", Authorization="Bearer boss")
        value, attributes = cookie_of(fields, "__Host-inferflux")
        equal(attributes, ["Path=/", "Max-Age=43200", "HttpOnly", "SameSite=Strict", "Secure"])
        equal(s.get(MODELS, Cookie="__Host-inferflux=" + value)[0], 200)
        equal(s.get(MODELS, Cookie="inferflux=" + value)[0], 401)


if __name__ == "__main__":
    run(globals())
