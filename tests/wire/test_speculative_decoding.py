#!/usr/bin/env python3
"""Speculative decoding over HTTP: equal outputs, prediction counts, timings, metrics by drafter,
a draft model in a model's configuration, and the error if it does not match."""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import Server, build_dir, equal, program, run

DEMO = os.path.join(ROOT, "models/demo.gguf")
MKMODEL = os.path.join(build_dir(), "tools/mkmodel")
CHAT = "/v1/chat/completions"
COUNTS = "spec_decode_draft_tokens_total", "spec_decode_accepted_tokens_total"


def post(server, path, **body):
    status, _, text = server.request("POST", path, json.dumps({"model": "demo", **body}))
    return status, json.loads(text)


def by_drafter(server):
    text = server.get("/metrics")[2].decode()
    found = re.findall(r'^inferflux_(spec_decode_\w+){drafter="(\w+)"} (\d+)$', text, re.M)
    return {(name, drafter): int(n) for name, drafter, n in found}


def question(**more):
    return {"messages": [{"role": "user", "content": "How do I build InferFlux?"}], "seed": 3,
        "temperature": 0.7, "max_tokens": 60, **more}


def config_with_draft(draft):
    return f"models:\n  - id: demo\n    path: {DEMO}\n    draft: {draft}\n"


def inspect(*args):
    return subprocess.run([program("inferctl"), "inspect", *args], capture_output=True, text=True)


def about_demo(pattern):
    return int(re.search(pattern, inspect(DEMO).stdout)[1])


def drop_layer(folder):
    """Writes the demo model without its last layer but one."""
    n = about_demo(r"block_count +u32 +(\d+)")
    path = os.path.join(folder, "thin.gguf")
    keep = ",".join(str(i) for i in range(n) if i != n - 2)
    subprocess.run([MKMODEL, "--from", DEMO, "--keep", keep, "-o", path], check=True)
    return path


def test_a_prediction_is_counted_and_changes_nothing():
    with Server("--draft-max", "0") as s:
        plain = post(s, CHAT, **question())[1]
        text = plain["choices"][0]["message"]["content"]
        said = post(s, CHAT, **question(prediction={"type": "content", "content": text}))[1]
        equal(said["choices"], plain["choices"])
        counts = said["usage"]["completion_tokens_details"]
        equal(by_drafter(s)[COUNTS[0], "prediction"], 0)
        assert "draft_n" not in post(s, "/completion", prompt="1, 2, 1, 2,")[1]["timings"]
    with Server("--draft-min", "4") as s:
        result = post(s, CHAT, **question(prediction={"type": "content", "content": text}))[1]
        equal(result["choices"], plain["choices"])
        # The prediction counts do not depend on drafting.
        equal(result["usage"]["completion_tokens_details"], counts)
        assert counts["accepted_prediction_tokens"] > 10, counts
        drafted, right = (by_drafter(s)[c, "prediction"] for c in COUNTS)
        assert drafted >= right > 10, (drafted, right)
        wrong = post(s, CHAT, **question(prediction={"type": "content", "content": "Not at all."}))[1]
        equal(wrong["choices"], plain["choices"])
        assert wrong["usage"]["completion_tokens_details"]["rejected_prediction_tokens"] > 0


def test_repeated_text_is_drafted_and_counted():
    loop = {"prompt": "1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2, 3,", "n_predict": 40, "temperature": 0}
    with Server("--draft-min", "4") as s:
        timings = post(s, "/completion", **loop)[1]["timings"]
        counts = by_drafter(s)
        equal(counts[COUNTS[0], "ngram"], timings["draft_n"])
        equal(counts[COUNTS[1], "ngram"], timings["draft_n_accepted"])
        assert timings["draft_n"] >= timings["draft_n_accepted"] > 0, timings
        equal(counts[COUNTS[0], "model"], 0)
        equal(json.loads(s.get("/props")[2])["speculation"],
            {"draft_max": 16, "by_history": True, "draft_model": None})


def test_a_configured_draft_model_drafts():
    with tempfile.TemporaryDirectory() as folder:
        small = drop_layer(folder)
        with Server("--draft-max", "0") as s:
            plain = post(s, CHAT, **question())[1]["choices"]
        with Server("--draft-min", "4", "--spec", "draft", config=config_with_draft(small)) as s:
            equal(post(s, CHAT, **question())[1]["choices"], plain)
            drafted, right = (by_drafter(s)[c, "model"] for c in COUNTS)
            assert drafted >= right > 10, (drafted, right)
            equal(json.loads(s.get("/props")[2])["speculation"],
                {"draft_max": 16, "by_history": False, "draft_model": os.path.basename(small)})
        result = inspect("--draft", small, DEMO)
        equal((result.returncode, result.stderr), (0, ""))
        assert "the same tokens, " in result.stdout, result.stdout


def test_a_draft_model_with_another_vocabulary_is_rejected_by_name():
    with tempfile.TemporaryDirectory() as folder:
        other = os.path.join(folder, "other.gguf")
        vocab = str(about_demo(r"vocab_size +u32 +(\d+)"))
        subprocess.run([MKMODEL, "--vocab", vocab, "-o", other], check=True)
        try:
            with Server(config=config_with_draft(other), ready=False):
                raise AssertionError("the server starts without a model that it can serve")
        except RuntimeError as why:
            assert "the vocabularies differ" in str(why) and re.search(r"token \d+ is '", str(why)), why
        result = inspect("--draft", other, DEMO)
        assert result.returncode == 1 and "the vocabularies differ" in result.stderr, result


if __name__ == "__main__":
    run(globals())
