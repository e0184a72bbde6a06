#!/usr/bin/env python3
"""Constrained output over HTTP: every field of every dialect gives output that satisfies the
constraint; errors have the field and the place; /v1/grammar/check."""
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))

from harness import ROOT, Server, equal, run

CHECK = "/v1/grammar/check"


def post(server, path, status=200, **body):
    got, _, text = server.request("POST", path, json.dumps(body))
    equal(got, status, text)
    return json.loads(text)


def verdict(server, **body):
    got = post(server, CHECK, **body)
    assert got.pop("compile_us") >= 0 and got.pop("mask_us_max") >= 0, got
    return got


BYTE = "the byte at this offset is not permitted"
SHORT = "the text ends before it is complete"


def test_check_route():
    with Server() as s:
        yes = {"accepted": True, "at": None, "reason": None}
        equal(verdict(s, regex="[a-f]{2,3}é", text="abé"), yes)
        equal(verdict(s, regex="[a-f]{2,3}", text="abx"), {"accepted": False, "at": 2, "reason": BYTE})
        equal(verdict(s, regex="[a-f]{2,3}", text="a"), {"accepted": False, "at": 1, "reason": SHORT})
        equal(verdict(s, choice=["left", "right"], text="right"), yes)
        equal(verdict(s, regex="a*", text="a" * 100000), yes)
        error = post(s, CHECK, 400, regex="a(?<=b)", text="a")["error"]
        equal(error["param"], "regex")
        assert error["message"].startswith("regex"), error
        error = post(s, CHECK, 400, regex="a" * 20000, text="a")["error"]
        assert "16384" in error["message"], error
        post(s, CHECK, 404, regex="a", text="a", model="nobody")


if __name__ == "__main__":
    run(globals())
