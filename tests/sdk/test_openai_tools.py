#!/usr/bin/env python3
"""Tools and reasoning with the official OpenAI client for Python: bodies, streams, the streaming
and parsing helpers, and a loop of three turns. A script model generates the text of a real
model."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))

from sdk import Served, script_model_config

import openai
import pydantic
from harness import equal

SERVER = Served(config=script_model_config("qwen", "hermes_json", "think_tag"))
client = openai.OpenAI(base_url=SERVER.url + "/v1", api_key="none", max_retries=0)
QUESTION = [{"role": "user", "content": "How is the weather in Oslo and in Rome?"}]


class get_weather(pydantic.BaseModel):
    """Returns the weather of a city."""
    city: str
    days: int = 1


TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters":
    {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}}]


def call(city, name="get_weather"):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{"city": "{city}", "days": 2}}}}\n</tool_call>\n'


BOTH = "<think>\nTwo cities.\n</think>\n\nI look.\n" + call("Oslo") + call("R\u00f3m\u00e1 \U0001f600")
CITIES = ["Oslo", "R\u00f3m\u00e1 \U0001f600"]


def chat_script(text, chunk="char", create=None, **more):
    create = create or client.chat.completions.create
    return create(**{"model": "qwen", "messages": QUESTION, "tools": TOOLS,
        "extra_body": {"script": {"text": text, "chunk": chunk}}, **more})


def check(message):
    equal(message.content, "I look.")
    equal([c.function.name for c in message.tool_calls], ["get_weather"] * 2)
    equal([json.loads(c.function.arguments) for c in message.tool_calls],
        [{"city": c, "days": 2} for c in CITIES])
    equal(len({c.id for c in message.tool_calls}), 2)
    equal({c.type for c in message.tool_calls}, {"function"})


def test_body_has_calls_and_reasoning():
    r = chat_script(BOTH)
    check(r.choices[0].message)
    equal(r.choices[0].finish_reason, "tool_calls")
    equal(r.choices[0].message.reasoning_content, "Two cities.")
    assert r.usage.completion_tokens_details.reasoning_tokens > 0


def test_stream_helper_assembles_the_message():
    for chunk in ("token", "char", "all", 5):
        seen, done = {}, []
        with chat_script(BOTH, chunk, client.chat.completions.stream) as stream:
            for event in stream:
                if event.type == "tool_calls.function.arguments.delta":
                    seen[event.index] = seen.get(event.index, "") + event.arguments_delta
                if event.type == "tool_calls.function.arguments.done":
                    done.append((event.index, event.name, event.arguments))
            final = stream.get_final_completion()
        check(final.choices[0].message)
        equal(final.choices[0].finish_reason, "tool_calls")
        equal(done, [(i, "get_weather", seen[i]) for i in range(2)])


def test_arguments_are_streamed_as_generated():
    n = 0
    for c in chat_script(call("A long name of a city, which takes its time"), stream=True):
        for t in c.choices[0].delta.tool_calls or []:
            n += 1
            assert t.function.name != "" and t.index == 0
    assert n > 40, n


def test_arguments_are_parsed_into_a_type():
    tools = [openai.pydantic_function_tool(get_weather)]
    r = chat_script(BOTH, create=client.chat.completions.parse, tools=tools)
    parsed = [c.function.parsed_arguments for c in r.choices[0].message.tool_calls]
    equal(parsed, [get_weather(city=c, days=2) for c in CITIES])
    with chat_script(BOTH, create=client.chat.completions.stream, tools=tools) as stream:
        final = stream.get_final_completion()
    equal([c.function.parsed_arguments for c in final.choices[0].message.tool_calls], parsed)


def test_a_loop_of_three_turns_ends_with_text():
    turns = [call("Oslo"), call("Rome"), "Rain in Oslo, sun in Rome."]
    messages = list(QUESTION)
    for stream in (False, True):
        messages = messages[:1]
        for turn in turns:
            if stream:
                with chat_script(turn, create=client.chat.completions.stream, messages=messages) as s:
                    m = s.get_final_completion().choices[0].message
            else:
                m = chat_script(turn, messages=messages).choices[0].message
            if not m.tool_calls:
                break
            messages.append(m.model_dump(exclude_none=True, exclude={"parsed"}))
            for c in m.tool_calls:
                city = json.loads(c.function.arguments)["city"]
                messages.append({"role": "tool", "tool_call_id": c.id, "content": f"{city}: fine"})
        equal(m.content, turns[-1])
        equal(len(messages), 5)


def test_tool_choice_is_enforced():
    named = {"type": "function", "function": {"name": "get_weather"}}
    r = chat_script('{"city": "Bern"}}\n</tool_call>', tool_choice=named)
    equal(r.choices[0].message.tool_calls[0].function.arguments, '{"city": "Bern"}')
    r = chat_script(call("Bern"), tool_choice="none")
    equal(r.choices[0].message.tool_calls, None)
    assert "get_weather" in r.choices[0].message.content
    r = chat_script(BOTH, parallel_tool_calls=False)
    equal(len(r.choices[0].message.tool_calls), 1)
    try:
        chat_script("No.", tool_choice="required")
        raise AssertionError("it was not met")
    except openai.UnprocessableEntityError as e:
        equal((e.param, e.code), ("tool_choice", "constraint_not_met"))
    for more in ({"tools": []}, {"tool_choice": {"type": "function", "function": {"name": "x"}}}):
        try:
            chat_script("", **{"tool_choice": "required", **more})
            raise AssertionError("it was not refused")
        except openai.BadRequestError as e:
            equal(e.param, "tool_choice")


INSIDE = 'Try. <tool_call>\n{"name": "get_weather", "arguments": {"city": '
NOT_VALID = 'Try. <tool_call>\n{"name": "get_weather", "arguments": {"city": oops}} and on.'
LEGACY = {"tools": openai.omit, "functions": [t["function"] for t in TOOLS]}


def test_body_that_ends_inside_a_call_has_no_call():
    for more in ({}, {"max_tokens": len(INSIDE) - 2}, {"stop": ["city"]}, LEGACY):
        c, = chat_script(INSIDE, **more).choices
        equal((c.finish_reason, c.message.tool_calls, c.message.function_call), ("length", None, None), more)
        assert c.message.content.startswith(INSIDE[:50]), c
    # A call that is not valid is text, and the output goes on after it.
    c, = chat_script(NOT_VALID).choices
    equal((c.finish_reason, c.message.tool_calls, c.message.content), ("stop", None, NOT_VALID))


def until_error(stream):
    """Returns the text and the finish reasons of a stream that ends with the error, by choice."""
    text, finish = {}, {}
    try:
        for chunk in stream:
            for c in chunk.choices:
                text[c.index] = text.get(c.index, "") + (c.delta.content or "")
                finish[c.index] = c.finish_reason
    except openai.APIError as e:
        equal((type(e), e.code), (openai.APIError, "incomplete_tool_call"))
        return text, finish
    raise AssertionError("the stream ended normally")


def test_stream_with_a_broken_call_is_an_error():
    for said in (INSIDE, NOT_VALID):
        for more in ({}, {"max_tokens": len(INSIDE) - 1}, LEGACY):
            body, = chat_script(said, **more).choices
            for chunk in ("char",) if "max_tokens" in more else ("token", "char", "all"):
                stream = chat_script(said, chunk, stream=True, **more)
                equal(until_error(stream), ({0: body.message.content}, {0: None}), said)
    text, finish = until_error(chat_script(INSIDE, stream=True, n=2))
    equal((text, finish), ({0: INSIDE, 1: INSIDE}, {0: None, 1: None}))


def test_stream_helper_returns_no_half_call():
    for said in (INSIDE, NOT_VALID):
        done = []
        try:
            with chat_script(said, create=client.chat.completions.stream) as stream:
                done += [e for e in stream if e.type == "tool_calls.function.arguments.done"]
            raise AssertionError("the stream ended normally")
        except openai.APIError as e:
            equal(e.code, "incomplete_tool_call")
        equal(done, [])


def test_unsupported_response_format_is_rejected():
    for create, kind in ((client.chat.completions.parse, get_weather),
            (client.chat.completions.create, {"type": "json_object"})):
        try:
            chat_script("{}", create=create, tools=[], response_format=kind)
            raise AssertionError("it was not refused")
        except openai.BadRequestError as e:
            equal(e.param.split(".")[0], "response_format")


if __name__ == "__main__":
    SERVER.main(globals())
