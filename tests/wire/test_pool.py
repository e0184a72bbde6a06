#!/usr/bin/env python3
"""Models that are loaded on demand: waiting requests, eviction, idle time, refused and failed loads,
and a model that is unloaded while requests use it."""
import json
import os
import shutil
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import Server, equal, run

DEMO = os.path.join(ROOT, "models/demo.gguf")


def config(*models, **pool):
    """models: (id, further keys); pool: keys of the section `pool`."""
    text = "models:\n"
    for name, more in models:
        text += f"  - id: {name}\n    path: {more.pop('path', DEMO)}\n    load: demand\n"
        text += "".join(f"    {k}: {v}\n" for k, v in more.items())
    return text + ("pool:\n" + "".join(f"  {k}: {v}\n" for k, v in pool.items()) if pool else "")


SCRIPT = {"backend": "script"}


def complete(s, model, text="hello", **more):
    body = {"model": model, "prompt": "x", "script": text, **more}
    status, _, out = s.request("POST", "/v1/completions", json.dumps(body))
    return status, json.loads(out)


def states(s):
    """Status of each model in /v1/models."""
    return {m["id"]: m["status"]["value"] if isinstance(m["status"], dict) else m["status"]
            for m in json.loads(s.get("/v1/models")[2])["data"]}


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.02)


def test_a_burst_for_a_cold_model_causes_one_load():
    n, got = 100, []
    with Server(config=config(("a", dict(SCRIPT)), ("b", dict(SCRIPT))), ready=False) as s:
        equal(states(s), {"a": "unloaded", "b": "unloaded"})
        equal(s.get("/readyz")[0], 503)
        threads = [threading.Thread(target=lambda: got.append(complete(s, "a"))) for _ in range(n)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        equal([status for status, _ in got], [200] * n, [o for status, o in got if status != 200][:1])
        equal({o["choices"][0]["text"] for _, o in got}, {"hello"})
        equal(states(s), {"a": "loaded", "b": "unloaded"})
        with open(s.log_path) as f:
            equal(f.read().count("registry loaded    model=a"), 1)
        equal(s.get("/readyz")[0], 200)


def test_models_are_evicted_when_idle():
    with Server(config=config(*((m, dict(SCRIPT)) for m in "abc"), max_models=2), ready=False) as s:
        for model in "abac":
            equal(complete(s, model)[0], 200)
        equal(states(s), {"a": "loaded", "b": "unloaded", "c": "loaded"})
        # the same answer from a model that was unloaded in between
        equal(complete(s, "b")[1]["choices"][0]["text"], "hello")
        equal(states(s)["a"], "unloaded")


def test_an_unloaded_model_computes_the_same_output():
    models = (("a", {"kv_bytes": 8000000}), ("b", {"kv_bytes": 8000000}))
    with Server(config=config(*models, max_models=1), ready=False) as s:
        body = {"prompt": "InferFlux is", "max_tokens": 12, "temperature": 0, "logprobs": 1}
        first = complete(s, "a", **body)[1]["choices"]
        equal(complete(s, "b", **body)[1]["choices"], first)
        equal(complete(s, "a", **body)[1]["choices"], first)


def test_an_idle_model_is_unloaded():
    with Server(config=config(("a", dict(SCRIPT)), ("b", {**SCRIPT, "idle_ttl_s": 1}),
                              ("c", {**SCRIPT, "idle_ttl_s": 1, "pin": "true"})), ready=False) as s:
        for model in "abc":
            equal(complete(s, model)[0], 200)
        until(lambda: states(s) == {"a": "loaded", "b": "unloaded", "c": "loaded"})


def test_a_pool_without_room_refuses_with_the_missing_bytes():
    with Server(config=config(("a", {}), memory_bytes=1000000), ready=False) as s:
        status, out = complete(s, "a")
        equal(status, 503)
        assert "MB are missing" in out["error"]["message"], out
        status, out = complete(s, "a")  # and again, without waiting
        equal(status, 503)


def test_without_waiting_the_answer_is_503():
    with Server("--pool-wait", "0", config=config(("a", dict(SCRIPT))), ready=False) as s:
        status, out = complete(s, "a")
        equal(status, 503)
        assert "not loaded" in out["error"]["message"], out


def test_a_damaged_model_fails_alone_and_recovers():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "m.gguf")
        with open(path, "wb") as f:
            f.write(b"GGUF, but nothing else")
        with Server(config=config(("a", dict(SCRIPT)), ("m", {**SCRIPT, "path": path})), ready=False) as s:
            status, out = complete(s, "m")
            equal(status, 503)
            assert "could not be loaded" in out["error"]["message"], out
            equal(complete(s, "a")[0], 200)
            equal(states(s), {"a": "loaded", "m": "failed"})
            shutil.copy(DEMO, path + ".part")
            os.rename(path + ".part", path)
            until(lambda: states(s)["m"] == "loaded")
            equal(complete(s, "m")[0], 200)


if __name__ == "__main__":
    run(globals())
