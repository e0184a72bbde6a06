#!/usr/bin/env python3
"""Rate limits with the official clients of OpenAI and Anthropic for Python: their errors, and their
retries after the time that the server states."""
import os
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TESTS, "support"))
sys.path.insert(0, os.path.join(TESTS, "wire"))

import sdk  # noqa: F401 (runs this script in the environment of the clients)
import anthropic
import openai
from harness import equal, run
from test_api_keys import Keys


def test_official_clients_wait_and_retry():
    with Keys(ready=True, more=("--limits-window", "3")) as s:
        user = [{"role": "user", "content": "x"}]
        key = s.create(limits={"requests_per_minute": 20})
        client = openai.OpenAI(base_url=s.url + "/v1", api_key=key["key"], max_retries=2)
        once = client.with_options(max_retries=0)
        r = once.chat.completions.with_raw_response.create(model="demo", max_tokens=2, messages=user)
        equal(r.headers["x-ratelimit-remaining-requests"], "0")
        try:
            once.chat.completions.create(model="demo", max_tokens=2, messages=user)
            raise AssertionError("not refused")
        except openai.RateLimitError as e:
            equal(e.code, "rate_limit_exceeded")
        client.chat.completions.create(model="demo", max_tokens=2, messages=user)
        key = s.create(limits={"requests_per_minute": 20})
        client = anthropic.Anthropic(base_url=s.url, api_key=key["key"], max_retries=2)
        client.messages.create(model="demo", max_tokens=2, messages=user)
        try:
            client.with_options(max_retries=0).messages.create(
                model="demo", max_tokens=2, messages=user)
            raise AssertionError("not refused")
        except anthropic.RateLimitError as e:
            equal(e.body["error"]["type"], "rate_limit_error")


if __name__ == "__main__":
    run(globals())
