#!/usr/bin/env python3
"""The official OpenAI client for Python against a running server."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))

import typing

from sdk import Served

import openai
import pydantic
from harness import equal

SERVER = Served()
client = openai.OpenAI(base_url=SERVER.url + "/v1", api_key="none", max_retries=0)
QUESTION = [{"role": "user", "content": "What is InferFlux?"}]


def chat(**more):
    return client.chat.completions.create(**{"model": "demo", "messages": QUESTION,
        "temperature": 0, "max_tokens": 40, **more})


def test_a_chat_has_a_response_and_usage():
    r = chat()
    assert r.choices[0].message.content.strip()
    assert r.choices[0].finish_reason in ("stop", "length")
    equal(r.usage.total_tokens, r.usage.prompt_tokens + r.usage.completion_tokens)
    assert r.id.startswith("chatcmpl-") and r.object == "chat.completion"
    assert r._request_id


def test_stream_and_body_have_the_same_content():
    body = chat().choices[0].message.content
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    equal(chunks[0].choices[0].delta.role, "assistant")
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    equal(text, body)
    equal(chunks[-1].choices, [])
    assert chunks[-1].usage.completion_tokens > 0
    equal(len({c.id for c in chunks}), 1)


def test_the_model_uses_earlier_turns():
    messages = [{"role": "user", "content": "Hello!"}]
    for turn in ("What is 2 plus 3?", "And plus 4?"):
        answer = "".join(c.choices[0].delta.content or "" for c in chat(
            messages=messages, stream=True))
        assert answer
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": turn}]
    assert chat(messages=messages).choices[0].message.content


def test_a_seed_makes_the_output_repeatable():
    texts = {chat(temperature=1.3, seed=17).choices[0].message.content for _ in range(3)}
    equal(len(texts), 1)
    texts = {chat(temperature=1.5, seed=s).choices[0].message.content for s in range(8)}
    assert len(texts) > 1


def test_n_choices_have_their_indices():
    r = chat(n=3, temperature=1.2, seed=5)
    equal([c.index for c in r.choices], [0, 1, 2])
    parts = {}
    for c in chat(n=3, temperature=1.2, seed=5, stream=True):
        for choice in c.choices:
            parts[choice.index] = parts.get(choice.index, "") + (choice.delta.content or "")
    equal([parts[i] for i in range(3)], [c.message.content for c in r.choices])


def test_logprobs_have_bytes_and_alternatives():
    r = chat(logprobs=True, top_logprobs=5, max_tokens=8)
    content = r.choices[0].logprobs.content
    equal(bytes(b for t in content for b in t.bytes).decode(), r.choices[0].message.content)
    for t in content:
        equal(len(t.top_logprobs), 5)
        assert t.logprob <= 0 and t.top_logprobs[0].logprob >= t.top_logprobs[4].logprob
        equal(t.top_logprobs[0].token, t.token)  # greedy


def script(text, **more):
    return client.chat.completions.create(**{"model": "echo", "messages": QUESTION,
        "extra_body": {"script": text}, **more})


def test_a_stop_string_is_not_part_of_the_output():
    r = script("one two three four", stop=["three"])
    equal(r.choices[0].message.content, "one two ")
    equal(r.choices[0].finish_reason, "stop")
    chunks = script({"text": "one two three four", "chunk": "char"}, stop=["three"], stream=True)
    equal("".join(c.choices[0].delta.content or "" for c in chunks), "one two ")


def test_script_text_is_returned_unchanged():
    for text in ("héllo wörld", "日本語 🙂👩‍👩‍👧 ok", "a\nb\tc  d", "<|im_end|> stays text", "{\"a\": 1}"):
        for chunk in ("token", "char", "all", 3):
            got = script({"text": text, "chunk": chunk}, stream=True)
            equal("".join(c.choices[0].delta.content or "" for c in got), text, f"chunk {chunk}")
        equal(script(text).choices[0].message.content, text)


def test_max_tokens_ends_a_long_response():
    r = chat(max_completion_tokens=3)
    equal(r.choices[0].finish_reason, "length")
    equal(r.usage.completion_tokens, 3)


def raises(kind, status, param, fn):
    try:
        fn()
    except kind as e:
        equal(e.status_code, status)
        equal(e.param, param)
        assert e.body["message"]
        return e
    raise AssertionError(f"no {kind.__name__}")


def test_a_completion_is_parsed_into_a_pydantic_model():
    class Answer(pydantic.BaseModel):
        sentiment: typing.Literal["good", "bad"]
        stars: int

    r = client.chat.completions.parse(model="demo", temperature=0, response_format=Answer,
        messages=[{"role": "user", "content": "How was it?"}])
    assert isinstance(r.choices[0].message.parsed, Answer), r


def test_errors_name_the_parameter():
    bad = openai.BadRequestError
    raises(bad, 400, "temperature", lambda: chat(temperature=3))
    raises(bad, 400, "top_logprobs", lambda: chat(top_logprobs=3))
    raises(bad, 400, "messages", lambda: chat(messages=[]))
    raises(bad, 400, "response_format.regex",
        lambda: chat(response_format={"type": "regex", "regex": "("}))
    raises(bad, 400, "tools[0].function.name", lambda: chat(tools=[{"type": "function", "function": {}}]))
    raises(openai.NotFoundError, 404, "model", lambda: chat(model="nobody"))
    e = raises(openai.NotFoundError, 404, None, lambda: client.embeddings.create(model="demo", input="x"))
    equal((e.code, e.type), ("not_found", "invalid_request_error"))


def test_too_long_a_prompt_is_an_error():
    e = raises(openai.BadRequestError, 400, "messages", lambda: chat(
        messages=[{"role": "user", "content": "word " * 100000}]))
    equal(e.code, "context_length_exceeded")
    assert "exceeds the available context size" in e.body["message"]


def test_completions_and_echo():
    r = client.completions.create(model="demo", prompt="Hello", max_tokens=5, temperature=0,
        logprobs=2, echo=True)
    assert r.choices[0].text.startswith("Hello")
    lp = r.choices[0].logprobs
    equal(lp.token_logprobs[0], None)
    equal("".join(lp.tokens), r.choices[0].text)
    r = client.completions.create(model="demo", prompt=["Hello", "Bye"], max_tokens=4, n=2)
    equal([c.index for c in r.choices], [0, 1, 2, 3])


def test_models_are_listed():
    equal([m.id for m in client.models.list()], ["demo", "echo"])
    equal(client.models.retrieve("demo").id, "demo")


def test_disconnect_during_the_stream_ends_the_request():
    stream = script({"text": "word " * 2000, "delay_ms": 20}, stream=True)
    for _, _ in zip(range(3), stream):
        pass
    equal(SERVER.running(), 1)
    stream.close()
    SERVER.until_idle()


if __name__ == "__main__":
    SERVER.main(globals())
