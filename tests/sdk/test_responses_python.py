#!/usr/bin/env python3
"""The official OpenAI client for Python: /v1/responses against a running server."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from sdk import Served, equal

import json
import time
import typing

import openai
import pydantic

SERVER = Served()
client = openai.OpenAI(base_url=SERVER.url + "/v1", api_key="none", max_retries=0)
TOOL = {"type": "function", "name": "get_weather", "description": "Weather of a place.",
    "strict": False, "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
        "required": ["city"]}}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


def ask(**more):
    return client.responses.create(**{"model": "demo", "input": "What is InferFlux?",
        "temperature": 0, "max_output_tokens": 40, **more})


def script(text, **more):
    return client.responses.create(**{"model": "echo", "input": "x",
        "extra_body": {"script": text}, **more})


def test_a_response_has_text_and_usage():
    r = ask()
    assert r.output_text.strip() and r.id.startswith("resp_")
    assert r.status in ("completed", "incomplete")
    equal(r.usage.total_tokens, r.usage.input_tokens + r.usage.output_tokens)
    equal(r.temperature, 0)
    assert r._request_id


def test_stream_and_body_have_the_same_content():
    body = ask()
    events = list(ask(stream=True))
    equal([e.sequence_number for e in events], list(range(len(events))))
    equal(events[0].type, "response.created")
    equal(events[-1].type, "response." + body.status)
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    equal(text, body.output_text)
    equal(events[-1].response.output_text, body.output_text)


def test_the_stream_helper_accepts_all_events():
    with client.responses.stream(model="echo", input="x",
            extra_body={"script": {"text": "<think>well</think>one two " + CALL, "chunk": "char"}},
            tools=[TOOL]) as stream:
        kinds = [e.type for e in stream]
        final = stream.get_final_response()
    equal([o.type for o in final.output], ["reasoning", "message", "function_call"])
    assert "response.reasoning_text.delta" in kinds
    assert "response.function_call_arguments.delta" in kinds
    equal(final.output_text.strip(), "one two")
    equal(json.loads(final.output[2].arguments), {"city": "Paris"})


def test_a_tool_is_called_and_its_result_used():
    """Three turns; the client sends the history."""
    history = [{"role": "user", "content": "Weather in Paris?"}]
    for turn in range(2):
        r = script(CALL, input=history, tools=[TOOL])
        call = r.output[0]
        equal((call.type, call.name, call.arguments), ("function_call", "get_weather",
            '{"city": "Paris"}'))
        assert call.call_id.startswith("call_") and call.id.startswith("fc_")
        assert call.call_id != call.id
        history += r.output
        history.append({"type": "function_call_output", "call_id": call.call_id,
            "output": "21 degrees"})
    r = script("It is 21 degrees.", input=history, tools=[TOOL])
    equal(r.output_text, "It is 21 degrees.")


def test_a_tool_loop_continues_by_id():
    """Three turns; the server stores the history."""
    r = script(CALL, input="Weather in Paris?", tools=[TOOL])
    for turn in range(2):
        results = [{"type": "function_call_output", "call_id": c.call_id, "output": "21"}
            for c in r.output if c.type == "function_call"]
        equal(len(results), 1)
        r = script(CALL if turn == 0 else "21 degrees.", input=results, tools=[TOOL],
            previous_response_id=r.id)
    equal(r.output_text, "21 degrees.")
    counted = client.responses.input_tokens.count(model="echo", input="again",
        previous_response_id=r.id, tools=[TOOL])
    assert counted.input_tokens > r.usage.input_tokens


def test_history_by_id_and_in_full_give_the_same_response():
    """A conversation by previous_response_id gets the same response as one sent in full."""
    first = ask(input="Hello!")
    by_id = ask(input="What is 2 plus 3?", previous_response_id=first.id)
    in_full = ask(input=[{"role": "user", "content": "Hello!"}, *first.output,
        {"role": "user", "content": "What is 2 plus 3?"}])
    by_reference = ask(input=[{"role": "user", "content": "Hello!"},
        *({"type": "item_reference", "id": o.id} for o in first.output),
        {"role": "user", "content": "What is 2 plus 3?"}])
    equal(by_id.output_text, in_full.output_text)
    equal(by_reference.output_text, in_full.output_text)
    equal(by_id.usage.input_tokens, in_full.usage.input_tokens)
    equal(by_id.usage.input_tokens, by_reference.usage.input_tokens)


def test_stored_response_is_retrieved_and_deleted():
    r = ask(metadata={"a": "b"})
    again = client.responses.retrieve(r.id)
    equal(again.to_dict(), r.to_dict())
    items = client.responses.input_items.list(r.id)
    equal([i.content[0].text for i in items], ["What is InferFlux?"])
    client.responses.delete(r.id)
    for gone in (lambda: client.responses.retrieve(r.id), lambda: client.responses.delete(r.id),
            lambda: client.responses.input_items.list(r.id)):
        refused(openai.NotFoundError, "id", gone)
    e = refused(openai.NotFoundError, "previous_response_id",
        lambda: ask(previous_response_id=r.id))
    equal(e.code, "previous_response_not_found")


def test_input_items_are_listed_in_pages():
    r = ask(input=[{"role": "user", "content": str(i)} for i in range(7)], store=True)
    page = client.responses.input_items.list(r.id, limit=3, order="asc")
    equal([i.content[0].text for i in page.data], ["0", "1", "2"])
    # the client requests further pages
    equal([i.content[0].text for i in page], [str(i) for i in range(7)])
    equal([i.content[0].text for i in client.responses.input_items.list(r.id, limit=2).data],
        ["6", "5"])


def test_unstored_response_is_not_found():
    r = ask(store=False)
    equal(r.store, False)
    refused(openai.NotFoundError, "id", lambda: client.responses.retrieve(r.id))


def test_reasoning_items_are_accepted_as_history():
    r = script("<think>hm</think>yes", include=["reasoning.encrypted_content"])
    equal([o.type for o in r.output], ["reasoning", "message"])
    equal(r.output[0].content[0].text, "hm")
    assert r.usage.output_tokens_details.reasoning_tokens > 0
    sealed = {"type": "reasoning", "id": r.output[0].id, "summary": [],
        "encrypted_content": r.output[0].encrypted_content}
    full = [{"role": "user", "content": "x"}, *r.output]
    count = lambda items: client.responses.input_tokens.count(model="echo",
        input=items).input_tokens
    equal(count([full[0], sealed, r.output[1]]), count(full))
    r = script("<think>hm</think>yes", reasoning={"summary": "auto"})
    equal(r.output[0].summary[0].text, "hm")


def test_tool_choice_is_enforced():
    r = script("no call here", tools=[TOOL], tool_choice="none")
    equal(r.output_text, "no call here")
    r = script(CALL, tools=[TOOL], tool_choice="none")
    equal(r.output_text, CALL)
    refused(openai.BadRequestError, "tool_choice", lambda: script(CALL, tool_choice="required"))
    named = {"type": "function", "name": "get_weather"}
    r = script('{"city": "Rome"}}\n</tool_call>', tools=[TOOL], tool_choice=named)
    equal((r.output[0].type, r.output[0].arguments), ("function_call", '{"city": "Rome"}'))
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [named, {"type": "web_search"}]}
    equal(script(CALL, tools=[TOOL], tool_choice=allowed).output[0].type, "function_call")
    refused(openai.BadRequestError, "tool_choice", lambda: script(CALL, tools=[TOOL],
        tool_choice={"type": "function", "name": "nobody"}))


def test_tools_of_agents_are_tolerated():
    r = script("fine", tools=[TOOL, {"type": "web_search"}, {"type": "local_shell"},
        {"type": "custom", "name": "apply_patch", "format": {"type": "grammar",
            "syntax": "lark", "definition": "start: /.*/"}}])
    equal(r.output_text, "fine")
    refused(openai.BadRequestError, "tools[0].type", lambda: script("x", tools=[{"type": "web_search"}]))
    probe = client.responses.create(model="demo", input=[], max_output_tokens=1)
    assert probe.status in ("completed", "incomplete")


def test_a_broken_call_is_text():
    """The object of a stream equals that of a body, and an error precedes it. The helper has no
    final response for the status `incomplete`."""
    text = '<tool_call>\n{"name": "get_weather", "arguments": {"city": '
    for said, end in ((text + '"Pa', "incomplete"), (text + "oops}} and on", "completed")):
        r = script(said, tools=[TOOL])
        equal([o.type for o in r.output], ["message"])
        equal((r.status, r.output_text), (end, said))
        equal(r.incomplete_details and r.incomplete_details.reason,
            "max_output_tokens" if end == "incomplete" else None)
        with client.responses.stream(model="echo", input="x", tools=[TOOL],
                extra_body={"script": {"text": said, "chunk": "char"}}) as stream:
            seen = list(stream)
        equal([e.type for e in seen[-2:]], ["error", "response." + end])
        equal(seen[-2].code, "incomplete_tool_call")
        equal((seen[-1].response.status, seen[-1].response.output_text), (end, said))
        equal([e.item.status for e in seen if e.type == "response.output_item.done" and
            e.item.type == "function_call"], ["incomplete"])
    # The response can be continued.
    r = script(text, tools=[TOOL])
    equal(script("done", previous_response_id=r.id).output_text, "done")


def test_a_truncated_response_is_incomplete():
    r = ask(max_output_tokens=3)
    equal((r.status, r.incomplete_details.reason), ("incomplete", "max_output_tokens"))
    equal(r.usage.output_tokens, 3)


def test_logprobs_have_bytes_and_alternatives():
    r = ask(include=["message.output_text.logprobs"], top_logprobs=3, max_output_tokens=8)
    tokens = r.output[0].content[0].logprobs
    equal(bytes(b for t in tokens for b in t.bytes).decode(), r.output_text)
    equal({len(t.top_logprobs) for t in tokens}, {3})
    events = list(ask(include=["message.output_text.logprobs"], top_logprobs=3,
        max_output_tokens=8, stream=True))
    deltas = [t.token for e in events if e.type == "response.output_text.delta" for t in e.logprobs]
    equal(deltas, [t.token for t in tokens])


def until_done(r):
    """Polls, like the example in the guide, until the status is neither queued nor in_progress."""
    deadline = time.monotonic() + 60
    while r.status in ("queued", "in_progress"):
        assert time.monotonic() < deadline, r
        time.sleep(0.01)
        r = client.responses.retrieve(r.id)
    return r


def test_a_background_response_is_polled():
    plain = ask()
    r = ask(background=True)
    equal((r.status, r.background, r.output, r.usage), ("queued", True, [], None))
    done = until_done(r)
    equal((done.status, done.output_text), (plain.status, plain.output_text))
    equal(done.usage.output_tokens, plain.usage.output_tokens)
    more = ask(input="Hello!", previous_response_id=done.id)
    equal(until_done(ask(input="Hello!", previous_response_id=done.id,
        background=True)).output_text, more.output_text)


def test_an_interrupted_stream_is_resumed():
    text = {"text": "one two three four five six seven", "chunk": "char", "delay_ms": 5}
    seen = []
    stream = script(text, background=True, stream=True)
    for e in stream:
        seen.append(e)
        if e.type == "response.output_text.delta" and len(seen) > 12:
            break
    stream.close()
    name = seen[0].response.id
    equal([e.type for e in seen[:3]],
        ["response.created", "response.queued", "response.in_progress"])
    rest = list(client.responses.retrieve(name, stream=True,
        starting_after=seen[-1].sequence_number))
    whole = list(client.responses.retrieve(name, stream=True))
    equal([e.to_json() for e in seen + rest], [e.to_json() for e in whole])
    equal([e.sequence_number for e in whole], list(range(len(whole))))
    equal("".join(e.delta for e in whole if e.type == "response.output_text.delta"), text["text"])
    with client.responses.stream(response_id=name, starting_after=4) as again:
        kinds = [e.sequence_number for e in again]
        equal(again.get_final_response().output_text, text["text"])
    equal(kinds, [e.sequence_number for e in whole[5:]])
    equal(client.responses.retrieve(name).to_dict(), whole[-1].response.to_dict())


def test_a_background_response_is_cancelled():
    r = script({"text": "word " * 2000, "delay_ms": 20, "chunk": "char"}, background=True)
    gone = client.responses.cancel(r.id)
    equal((gone.id, gone.status), (r.id, "cancelled"))
    equal(client.responses.cancel(r.id).to_dict(), gone.to_dict())
    equal(client.responses.retrieve(r.id).status, "cancelled")
    SERVER.until_idle()
    refused(openai.BadRequestError, "id",
        lambda: client.responses.cancel(until_done(ask(background=True)).id))
    refused(openai.BadRequestError, None,
        lambda: client.responses.compact(model="demo", input="x"))
    r = script({"text": "word " * 2000, "delay_ms": 20, "chunk": "char"}, background=True)
    client.responses.delete(r.id)
    refused(openai.NotFoundError, "id", lambda: client.responses.retrieve(r.id))
    SERVER.until_idle()


def test_a_response_is_parsed_into_a_pydantic_model():
    class Answer(pydantic.BaseModel):
        sentiment: typing.Literal["good", "bad"]
        stars: int = pydantic.Field(ge=1, le=5)

    r = client.responses.parse(model="demo", input="How was it?", text_format=Answer, temperature=0)
    assert isinstance(r.output_parsed, Answer), r
    with client.responses.stream(model="demo", input="How was it?", text_format=Answer) as stream:
        stream.until_done()
        assert isinstance(stream.get_final_response().output_parsed, Answer)


def test_errors_name_the_parameter():
    bad = openai.BadRequestError
    refused(bad, "temperature", lambda: ask(temperature=3))
    refused(bad, "text.format.schema", lambda: ask(text={"format": {"type": "json_schema",
        "name": "x", "schema": {"type": "text"}}}))
    refused(bad, "background", lambda: ask(background=True, store=False))
    refused(bad, "input[0].role", lambda: ask(input=[{"role": "boss", "content": "x"}]))
    refused(openai.NotFoundError, "model", lambda: ask(model="nobody"))
    refused(openai.NotFoundError, "input[0].id",
        lambda: ask(input=[{"type": "item_reference", "id": "msg_1_0"}]))
    r = ask()
    refused(bad, "id", lambda: client.responses.cancel(r.id))


def refused(kind, param, fn):
    try:
        fn()
    except kind as e:
        equal(e.param, param)
        assert e.body["message"]
        return e
    raise AssertionError(f"no {kind.__name__}")


def test_disconnect_during_the_stream_ends_the_request():
    stream = script({"text": "word " * 2000, "delay_ms": 20}, stream=True)
    for _, _ in zip(range(6), stream):
        pass
    stream.close()
    SERVER.until_idle()


if __name__ == "__main__":
    SERVER.main(globals())
