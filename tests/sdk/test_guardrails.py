#!/usr/bin/env python3
"""Guardrails with the official clients of OpenAI and Anthropic for Python: the finish reasons of
blocked output, and the errors of blocked prompts."""
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

SCRIPT = {"script": {"text": "this is forbidden text", "unit": "chars", "per_chunk": 1}}


def user(text):
    return [{"role": "user", "content": text}]


def test_official_clients_see_content_filter_and_refusal():
    with Keys(ready=True) as s:
        s.call("PUT", "/v1/admin/guardrails", {"action": "block", "blocklist": ["forbidden"]})
        client = openai.OpenAI(base_url=s.url + "/v1", api_key="user", max_retries=0)
        common = {"model": "echo", "max_tokens": 64, "extra_body": SCRIPT}
        choice = client.chat.completions.create(messages=user("x"), **common).choices[0]
        equal((choice.message.content, choice.finish_reason), ("this is ", "content_filter"))
        chunks = [c.choices[0] for c in client.chat.completions.create(
            messages=user("x"), stream=True, **common)]
        equal("".join(c.delta.content or "" for c in chunks), "this is ")
        equal(chunks[-1].finish_reason, "content_filter")
        try:
            client.chat.completions.create(messages=user("forbidden"), **common)
            raise AssertionError("not refused")
        except openai.BadRequestError as e:
            equal(e.code, "content_filter")
        r = client.responses.create(model="echo", input="x", extra_body=SCRIPT)
        equal((r.status, r.incomplete_details.reason), ("incomplete", "content_filter"))
        client = anthropic.Anthropic(base_url=s.url, api_key="user", max_retries=0)
        m = client.messages.create(messages=user("x"), **common)
        equal((m.content[0].text, m.stop_reason), ("this is ", "refusal"))
        with client.messages.stream(messages=user("x"), **common) as stream:
            equal("".join(stream.text_stream), "this is ")
            equal(stream.get_final_message().stop_reason, "refusal")
        try:
            client.messages.create(messages=user("forbidden"), **common)
            raise AssertionError("not refused")
        except anthropic.BadRequestError as e:
            equal(e.body["error"]["type"], "invalid_request_error")


if __name__ == "__main__":
    run(globals())
