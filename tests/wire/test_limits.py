#!/usr/bin/env python3
"""Rate limits and budgets: refusals in every dialect, paced responses, and the admin routes."""
import contextlib
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
from harness import equal, program, run
from test_api_keys import Keys, Killed, as_key

ADMIN, CHAT = "/v1/admin", "/v1/chat/completions"
WINDOW = ("--limits-window", "1")  # limits per minute are divided by 60


class Limits(Keys):
    def __init__(self, **options):
        super().__init__(**{"ready": True, **options})


def chat(s, key, n_tokens, **more):
    """A response of n_tokens of a script model. Returns (status, fields, body, seconds)."""
    began = time.monotonic()
    status, head, body = s.request("POST", CHAT, json.dumps({"model": "echo", "max_tokens": n_tokens,
        "script": {"text": "word " * n_tokens}, "messages": [{"role": "user", "content": "x"}], **more}),
        **as_key(key["key"]))
    return status, head, json.loads(body), time.monotonic() - began


def usage_of(s, key, n=1):
    status, _, body, _ = chat(s, key, n)
    equal(status, 200, body)
    return body["usage"]


def test_a_full_window_is_a_429_in_the_form_of_each_dialect():
    user = [{"role": "user", "content": "x"}]
    requests = {
        CHAT: ({"messages": user}, lambda b: b["error"]["type"]),
        "/v1/completions": ({"prompt": "x"}, lambda b: b["error"]["type"]),
        "/v1/responses": ({"input": "x"}, lambda b: b["error"]["type"]),
        "/v1/messages": ({"messages": user}, lambda b: b["error"]["type"]),
        "/api/chat": ({"messages": user}, lambda b: type(b["error"]).__name__),
        "/completion": ({"prompt": "x"}, lambda b: b["error"]["code"]),
    }
    types = {"/api/chat": "str", "/completion": 429}
    with Limits() as s:
        for path, (body, type_of) in requests.items():
            key = s.create(limits={"requests_per_minute": 1})
            body = {"model": "echo", "max_tokens": 2, "script": {"text": "a b"}, **body}
            status, head, data = s.request("POST", path, json.dumps(body), **as_key(key["key"]))
            equal(status, 200, data)
            own = "anthropic-ratelimit-requests-" if "messages" in path else "x-ratelimit-"
            names = {k for k in head if "ratelimit" in k}
            equal(len(names), 3, head)
            assert all(k.startswith(own) for k in names), names
            status, head, data = s.request("POST", path, json.dumps(body), **as_key(key["key"]))
            equal(status, 429, data)
            equal(type_of(json.loads(data)), types.get(path, "rate_limit_error"), data)
            assert 1 <= int(head["retry-after"]) <= 61, head
            assert "requests_per_minute is 1" in data.decode(), data


def test_tokens_are_reserved_settled_and_refunded():
    with Limits() as s:
        key = s.create(limits={"tokens_per_minute": 1000})
        used = usage_of(s, key)["total_tokens"]
        _, head, _, _ = chat(s, key, 100)
        equal(int(head["x-ratelimit-limit-tokens"]), 1000)
        n_prompt = used - 1
        # the prompt and max_tokens of this request are reserved when the fields are written
        equal(int(head["x-ratelimit-remaining-tokens"]), 1000 - used - n_prompt - 100)
        assert head["x-ratelimit-reset-tokens"].endswith("s")
        # more than what is left, then more than the limit permits at all
        status, head, body, _ = chat(s, key, 900)
        equal(status, 429, body)
        assert "retry-after" in head, head
        status, head, body, _ = chat(s, key, 1001)
        equal((status, head.get("x-should-retry")), (429, "false"), body)
        # a response that ends early refunds the rest
        for _ in range(5):
            status, _, body, _ = chat(s, key, 700, script={"text": "a"})
            equal(status, 200, body)
        # without max_tokens the response has what the limit permits
        status, _, body, _ = chat(s, s.create(limits={"tokens_per_minute": 50}), 100,
            max_tokens=None)
        equal((status, body["choices"][0]["finish_reason"]), (200, "length"), body)
        equal(body["usage"]["total_tokens"], 50)


def test_a_cancelled_request_refunds_its_tokens():
    with Limits() as s:
        key = s.create(limits={"output_tokens_per_minute": 1500, "concurrent_requests": 1})
        body = json.dumps({"model": "echo", "stream": True, "max_tokens": 1000, "messages":
            [{"role": "user", "content": "x"}], "script": {"text": "w " * 1000, "delay_ms": 20}})
        c = s.connect()
        c.sendall((f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
            f"{key['key']}\r\nContent-Length: {len(body)}\r\n\r\n{body}").encode())
        c.recv(100)
        status, _, data, _ = chat(s, key, 1)
        equal(status, 429, data)
        assert "concurrent_requests is 1" in data["error"]["message"], data
        c.close()
        end = time.monotonic() + 20
        while chat(s, key, 800)[0] != 200:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_a_paced_response_is_slower_and_has_the_same_bytes():
    with Limits(more=(*WINDOW, "--limits-when-full", "pace")) as s:
        free = s.create()
        n_prompt = usage_of(s, free)["prompt_tokens"]
        for model in "echo", "demo":
            # 150 tokens per second in addition to the prompts
            key = s.create(limits={"tokens_per_minute": 60 * (150 + 4 * n_prompt)})
            more = {"model": model, "temperature": 0, "ignore_eos": True, "n": 2}
            _, _, want, _ = chat(s, free, 120, **more)
            status, _, got, seconds = chat(s, key, 120, **more)
            equal(status, 200, got)
            equal(got["choices"], want["choices"])
            equal(got["usage"]["completion_tokens"], 240 if model == "demo" else
                want["usage"]["completion_tokens"])
            assert seconds > 1, seconds


def test_paced_streams_of_one_key_are_never_over_the_limit():
    limit, n_streams, n = 120, 8, 45
    times = []
    with Limits(more=(*WINDOW, "--limits-when-full", "pace", "--threads-http", "3")) as s:
        key = s.create(limits={"output_tokens_per_minute": 60 * limit})

        def stream():
            body = json.dumps({"model": "demo", "stream": True, "max_tokens": n, "ignore_eos": True,
                "temperature": 0, "messages": [{"role": "user", "content": "x"}]})
            c = s.connect()
            c.sendall((f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
                f"{key['key']}\r\nContent-Length: {len(body)}\r\n\r\n{body}").encode())
            data = b""
            while b"[DONE]" not in data and b"error" not in data:
                more = c.recv(65536)
                assert more, data
                data += more
            assert b"error" not in data, data
            times.append((time.monotonic(), data))
            c.close()

        began = time.monotonic()
        threads = [threading.Thread(target=stream) for _ in range(n_streams)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        seconds = time.monotonic() - began
    equal(len(times), n_streams)
    # 360 tokens in windows of 120: the third window begins after two seconds
    assert seconds > 1.9, seconds
    assert seconds < 20, seconds


def test_a_budget_refuses_with_the_time_to_the_next_day():
    with Limits(more=("--limits-when-full", "pace")) as s:
        key = s.create(limits={"tokens_per_day": 100})
        n_prompt = usage_of(s, key)["prompt_tokens"]
        status, head, body, _ = chat(s, key, 100 - n_prompt)
        equal(status, 429, body)
        assert 1 <= int(head["retry-after"]) <= 86400, head
        assert "tokens_per_day is 100" in body["error"]["message"], body


def test_a_waiting_request_ends_with_its_deadline_and_with_its_client():
    with Limits(more=("--limits-when-full", "pace")) as s:
        key = s.create(limits={"requests_per_minute": 1})
        usage_of(s, key)
        status, _, body = s.request("POST", CHAT, json.dumps({"model": "echo", "max_tokens": 1,
            "script": {"text": "a"}, "messages": [{"role": "user", "content": "x"}]}),
            x_request_timeout_ms="300", **as_key(key["key"]))
        equal(status, 504, body)
        c = s.connect()
        c.sendall((f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
            f"{key['key']}\r\nContent-Length: 2\r\n\r\n{{}}").encode())
        c.close()


def test_limits_are_read_replaced_and_deleted():
    for backend in "ini", "sqlite":
        with tempfile.TemporaryDirectory() as d:
            with Limits(backend=backend, directory=d) as s:
                call = s.call
                equal(call("GET", f"{ADMIN}/limits")[2]["data"], [])
                equal(call("GET", f"{ADMIN}/limits/default")[0], 404)
                status, head, l = call("PUT", f"{ADMIN}/limits/tenant/acme",
                    {"limits": {"tokens_per_day": 1000, "requests_per_minute": 5}})
                equal((status, head["etag"], l["version"]), (200, '"1"', 1), l)
                equal(l["limits"], {"requests_per_minute": 5, "tokens_per_day": 1000})
                equal(call("PUT", f"{ADMIN}/tenants/acme", {"limits": {}}, If_Match='"7"')[0], 412)
                status, _, l = call("PUT", f"{ADMIN}/tenants/acme",
                    {"limits": {"tokens_per_day": 50}}, If_Match='"1"')
                equal((status, l["version"]), (200, 2), l)
                equal(call("PUT", f"{ADMIN}/limits/model/a%2Fb%20c",
                    {"limits": {"prompt_price": 3}})[2]["name"], "a/b c")
                equal(call("GET", f"{ADMIN}/limits/model/a/b%20c")[2]["limits"], {"prompt_price": 3})
                equal(call("PUT", f"{ADMIN}/limits/default", {"limits": {"tokens_per_day": 9}})[0],
                    200)
                # pages
                names, after = [], ""
                while after is not None:
                    page = call("GET", f"{ADMIN}/limits?limit=1&after={after}")[2]
                    names += [(e["kind"], e["name"]) for e in page["data"]]
                    after = page["has_more"] and page["last_id"].replace(" ", "%20") or None
                equal(names, [("default", ""), ("tenant", "acme"), ("model", "a/b c")])
                s.create(tenant="beta"), s.create(tenant="beta"), s.create(tenant="alpha")
                page = call("GET", f"{ADMIN}/tenants?limit=2")[2]
                equal([t["name"] for t in page["data"]], ["acme", "alpha"])
                equal((page["has_more"], page["last_id"]), (True, "alpha"))
                page = call("GET", f"{ADMIN}/tenants?limit=2&after=alpha")[2]
                equal([t["name"] for t in page["data"]], ["beta"])
                equal(page["has_more"], False)
                equal(call("DELETE", f"{ADMIN}/limits/default")[0], 200)
                equal(call("DELETE", f"{ADMIN}/limits/default")[0], 404)
            with Limits(backend=backend, directory=d) as s:
                equal(s.call("GET", f"{ADMIN}/tenants/acme")[2]["limits"], {"tokens_per_day": 50})


def test_bad_limits_name_the_field():
    cases = [({"limits": {"requests": 1}}, "limits.requests"),
        ({"limits": {"tokens_per_day": 0}}, "limits.tokens_per_day"),
        ({"limits": {"tokens_per_day": 1 << 62}}, "limits.tokens_per_day"),
        ({"limits": {"tokens_per_day": "5"}}, "limits.tokens_per_day"),
        ({"limits": {"prompt_price": 1}}, "limits.prompt_price"),
        ({"limits": {"exempt": 1}}, "limits.exempt"), ({"limits": 5}, "limits"), ({}, "limits"),
        ({"limits": {}, "x": 1}, "limits")]
    with Keys() as s:
        for body, name in cases:
            status, head, error = s.call("PUT", f"{ADMIN}/tenants/a", body)
            equal((status, head["content-type"]), (400, "application/problem+json"), body)
            assert name in json.dumps(error), (body, error)
        for path in "limits/key/x", "limits/x", "tenants/" + "a" * 33, "limits/model/" + "a" * 400:
            equal(s.call("PUT", f"{ADMIN}/{path}", {"limits": {}})[0], 404, path)
        equal(s.call("GET", f"{ADMIN}/limits?limit=501")[0], 400)
        equal(s.call("GET", f"{ADMIN}/limits?after=x")[0], 400)
        equal(s.get(f"{ADMIN}/limits", **as_key("user"))[0], 403)


def test_default_tenant_and_model_limits_apply():
    with Limits() as s:
        equal(s.call("PUT", f"{ADMIN}/rate_limit", {"tokens_per_minute": 2})[2]["unit"], "requests")
        equal(s.call("GET", f"{ADMIN}/limits/default")[2]["limits"], {"requests_per_minute": 2})
        plain, exempt, own = s.create(), s.create(limits={"exempt": 1}), s.create(
            limits={"requests_per_minute": 3})
        for key, n in (plain, 2), (exempt, 5), (own, 3):
            equal([chat(s, key, 1)[0] for _ in range(n)], [200] * n)
        equal([chat(s, key, 1)[0] for key in (plain, exempt, own)], [429, 200, 429])
        # 0 removes it
        equal(s.call("PUT", f"{ADMIN}/rate_limit", {"tokens_per_minute": 0})[0], 200)
        equal(chat(s, plain, 1)[0], 200)
        # two keys of one tenant share its limit
        s.call("PUT", f"{ADMIN}/tenants/acme", {"limits": {"concurrent_requests": 9,
            "requests_per_minute": 2}})
        a, b, c = s.create(tenant="acme"), s.create(tenant="acme"), s.create(tenant="other")
        equal([chat(s, key, 1)[0] for key in (a, b, a, b, c)], [200, 200, 429, 429, 200])
        equal(s.call("GET", f"{ADMIN}/tenants/acme")[2]["used"],
            {"requests_per_minute": 2, "concurrent_requests": 0})
        # money: 1 token costs as many millionths as the price has millions
        s.call("PUT", f"{ADMIN}/limits/model/echo", {"limits": {"cost_per_day": 10000,
            "prompt_price": 1000000, "output_price": 100000000}})
        usage = usage_of(s, c, 20)
        cost = usage["prompt_tokens"] + 100 * usage["completion_tokens"]
        equal(s.call("GET", f"{ADMIN}/limits/model/echo")[2]["used"], {"cost_per_day": cost})
        status, _, body, _ = chat(s, c, 90)
        equal(status, 429, body)
        assert "the model echo: cost_per_day is 10000" in body["error"]["message"], body


def test_usage_is_summed_and_budgets_survive_kill_9():
    for backend in "ini", "sqlite":
        with tempfile.TemporaryDirectory() as d:
            with contextlib.suppress(Killed), Limits(backend=backend, directory=d) as s:
                key = s.create(tenant="acme", limits={"tokens_per_day": 300})
                s.call("PUT", f"{ADMIN}/limits/model/echo", {"limits": {"output_price": 2000000}})
                usages = [usage_of(s, key, n) for n in (3, 40)]
                usage_of(s, s.create(), 5)
                path = f"{ADMIN}/usage?key={key['id']}&limit=1"
                page = s.call("GET", path)[2]
                row = page["data"][0]
                equal([row[k] for k in ("key", "tenant", "model", "requests")],
                    [key["id"], "acme", "echo", 2])
                equal(row["prompt_tokens"], sum(u["prompt_tokens"] for u in usages))
                equal((row["output_tokens"], row["cost"]), (43, 86))
                equal((row["hour"] % 3600, page["has_more"]), (0, False))
                equal(len(s.call("GET", f"{ADMIN}/usage")[2]["data"]), 2)
                equal(s.call("GET", f"{ADMIN}/usage?to={row['hour']}")[2]["data"], [])
                equal(s.call("GET", f"{ADMIN}/usage?from=x")[0], 400)
                s.process.kill()
                s.process.wait()
                raise Killed
            with Limits(backend=backend, directory=d) as s:
                equal(s.call("GET", path)[2]["data"], [row])
                left = 300 - sum(u["total_tokens"] for u in usages) - usages[0]["prompt_tokens"]
                equal(chat(s, key, left + 1)[0], 429)
                equal(chat(s, key, left)[0], 200)


def test_inferctl_administers_limits():
    with Keys() as s:
        def ctl(*arguments):
            r = subprocess.run([program("inferctl"), "--url", s.url, "--api-key", "boss", "admin",
                *arguments], capture_output=True, text=True)
            return r.returncode, r.stdout and json.loads(r.stdout), r.stderr

        equal(ctl("rate-limit", "set", "12")[0], 0)
        equal(ctl("rate-limit", "get")[1]["tokens_per_minute"], 12)
        equal(ctl("tenants", "put", "acme", "tokens_per_day=100,cost_per_month=7")[0], 0)
        equal(ctl("tenants", "show", "acme")[1]["limits"],
            {"tokens_per_day": 100, "cost_per_month": 7})
        equal(ctl("limits", "put", "model/a b", "output_price=5")[0], 0)
        equal([e["name"] for e in ctl("limits", "list")[1]["data"]], ["", "acme", "a b"])
        equal(ctl("limits", "delete", "model/a b")[0], 0)
        equal(ctl("limits", "show", "model/a b")[0], 1)
        equal(ctl("limits", "put", "default", "tokens_per_day=x")[0], 1)
        equal(ctl("limits", "put", "default")[0], 2)
        equal(ctl("usage", "list")[1]["data"], [])
        equal(len(ctl("tenants", "list")[1]["data"]), 1)


if __name__ == "__main__":
    run(globals())
