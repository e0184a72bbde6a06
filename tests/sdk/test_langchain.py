#!/usr/bin/env python3
"""LangChain's chat models against a running server: those of OpenAI (Chat Completions and
Responses) and of Anthropic, with tools, streams and a loop of three turns."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from sdk import Served, equal

import typing

import openai
import pydantic
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

SERVER = Served()
CALL = '<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "{}"}}}}\n</tool_call>'


@tool
def get_weather(city: str) -> str:
    """Weather of a place."""
    return f"21 degrees in {city}"


def models(name):
    openai = {"model": name, "base_url": SERVER.url + "/v1", "api_key": "none", "max_retries": 0,
        "temperature": 0, "max_tokens": 400, "stream_usage": True}
    yield "chat", ChatOpenAI(**openai, use_responses_api=False)
    yield "responses", ChatOpenAI(**openai, use_responses_api=True)
    yield "responses, by id", ChatOpenAI(**openai, use_responses_api=True,
        use_previous_response_id=True)
    yield "anthropic", ChatAnthropic(model=name, base_url=SERVER.url, api_key="none",
        max_retries=0, temperature=0, max_tokens=400)


def script_args(text):
    return {"extra_body": {"script": {"text": text, "chunk": "char"}}}


def test_all_models_get_the_same_output():
    messages = [SystemMessage("Answer briefly."), HumanMessage("What is InferFlux?")]
    answers = {name: m.invoke(messages).text for name, m in models("demo")}
    assert all(a.strip() for a in answers.values())
    equal(len(set(answers.values())), 1, answers)


def test_stream_has_the_same_content():
    for name, m in models("demo"):
        whole = m.invoke("What is InferFlux?")
        pieces = list(m.stream("What is InferFlux?"))
        assert len(pieces) > 3, name
        equal("".join(p.text for p in pieces), whole.text, name)
        usage = [p.usage_metadata for p in pieces if p.usage_metadata]
        equal(sum(u["output_tokens"] for u in usage), whole.usage_metadata["output_tokens"], name)


def test_a_loop_of_three_turns_calls_tools():
    for name, m in models("echo"):
        bound = m.bind_tools([get_weather])
        history = [HumanMessage("Weather in Paris and Rome?")]
        for city in ("Paris", "Rome"):
            r = bound.invoke(history, **script_args(CALL.format(city)))
            equal([(c["name"], c["args"]) for c in r.tool_calls],
                [("get_weather", {"city": city})], name)
            call = r.tool_calls[0]
            history += [r, get_weather.invoke(call)]
            assert isinstance(history[-1], ToolMessage) and history[-1].tool_call_id == call["id"]
        r = bound.invoke(history, **script_args("21 in both."))
        equal((r.text, r.tool_calls), ("21 in both.", []), name)


def test_parallel_calls_are_streamed():
    for name, m in models("echo"):
        whole = None
        for piece in m.bind_tools([get_weather]).stream("x",
                **script_args("Both: " + CALL.format("Paris") + "\n" + CALL.format("Rome"))):
            whole = piece if whole is None else whole + piece
        equal([c["args"]["city"] for c in whole.tool_calls], ["Paris", "Rome"], name)
        equal(len({c["id"] for c in whole.tool_calls}), 2, name)
        equal(whole.text.strip(), "Both:", name)
        equal(whole.invalid_tool_calls, [], name)


BROKEN = ['Try. <tool_call>\n{"name": "get_weather", "arguments": {"city": ',
    'Try. <tool_call>\n{"name": "get_weather", "arguments": {"city": oops}} and on.']
LENGTH = {"chat": ("finish_reason", "length"), "anthropic": ("stop_reason", "max_tokens"),
    "responses": ("status", "incomplete"), "responses, by id": ("status", "incomplete")}


def stream_message(model, text):
    """Returns the sum of the chunks, or None if the stream ended with an error."""
    whole = None
    try:
        for piece in model.stream("x", **script_args(text)):
            whole = piece if whole is None else whole + piece
    except (openai.APIError, ValueError) as e:
        assert "tool call" in str(e), e
        return None
    return whole


def test_broken_call_is_not_executed():
    """LangChain completes the arguments of a half call, and executes it after any finish reason.
    A stream that has sent the start of a call therefore ends with an error; Anthropic's has not
    sent it."""
    for name, m in models("echo"):
        bound = m.bind_tools([get_weather])
        for text in BROKEN:
            r = bound.invoke("x", **script_args(text))
            equal((r.tool_calls, r.invalid_tool_calls), ([], []), name)
            assert text[5:] in r.text, r.text
            key, value = LENGTH[name]
            equal(r.response_metadata[key] == value, text is BROKEN[0], name)
            streamed = stream_message(bound, text)
            equal(streamed is None, name != "anthropic", name)
            if streamed:
                equal((streamed.tool_calls, streamed.invalid_tool_calls), ([], []), name)
                equal(streamed.response_metadata[key], r.response_metadata[key], name)
    legacy = ChatOpenAI(model="echo", base_url=SERVER.url + "/v1", api_key="none", max_retries=0)
    legacy = legacy.bind(functions=[{"name": "get_weather", "parameters": {"type": "object"}}])
    equal(stream_message(legacy, BROKEN[0]), None)


def test_tool_choice_is_enforced():
    for name, m in models("echo"):
        bound = m.bind_tools([get_weather], tool_choice="get_weather")
        r = bound.invoke("x", **script_args('{"city": "Oslo"}}\n</tool_call>'))
        equal([c["args"] for c in r.tool_calls], [{"city": "Oslo"}], name)


class Review(pydantic.BaseModel):
    """An opinion about a product."""
    sentiment: typing.Literal["good", "bad"]
    stars: typing.Literal[1, 2, 3]
    is_public: bool


def test_structured_output_is_a_pydantic_object():
    """Without the constraint the model writes no JSON."""
    for name, m in models("demo"):
        r = m.with_structured_output(Review, method="json_schema").invoke("How was it?")
        assert isinstance(r, Review), (name, r)


def test_nothing_leaks():
    SERVER.until_idle()


if __name__ == "__main__":
    SERVER.main(globals())
