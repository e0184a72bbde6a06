#!/usr/bin/env python3
"""The demo model in a tool loop through the official clients of three dialects: in each of three
turns the user sends a request, the model calls a tool that is new to it, the client executes the tool,
and the model answers with the result."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))

from sdk import Served

import anthropic
import ollama
import openai
from harness import equal

SERVER = Served()
TOOLS = {
    "get_weather": ("Get the current weather in a city.", {"city": "The city."}),
    "send_message": ("Send a message to a person.", {"to": "Who gets it.", "text": "What it says."}),
    "track_parcel": ("Track a parcel by its number.", {"number": "The number."}),
}
# user message, expected call, tool result, and text that the answer must contain
LOOP = (
    ("What is the weather in Rome?", ("get_weather", {"city": "Rome"}), "sunny", "sunny"),
    ("And in Oslo?", ("get_weather", {"city": "Oslo"}), '{"weather": "rainy"}', "rainy"),
    ("Send a message to Anna saying: see you tomorrow",
     ("send_message", {"to": "Anna", "text": "see you tomorrow"}), '{"status": "sent"}', "sent"),
    ("Where is my parcel 48213?", ("track_parcel", {"number": "48213"}), "on the way", "on the way"),
)


def schema(about):
    properties = {name: {"type": "string", "description": text} for name, text in about.items()}
    return {"type": "object", "properties": properties, "required": list(about)}


class OpenAI:
    def __init__(self, stream):
        self.stream, self.messages = stream, []
        self.client = openai.OpenAI(base_url=SERVER.url + "/v1", api_key="none", max_retries=0)
        self.tools = [{"type": "function", "function":
            {"name": name, "description": about, "parameters": schema(parameters)}}
            for name, (about, parameters) in TOOLS.items()]

    def ask(self, text):
        self.messages.append({"role": "user", "content": text})

    def turn(self):
        """Returns the next message of the model: (text, [(name, arguments)])."""
        body = dict(model="demo", messages=self.messages, tools=self.tools, temperature=0)
        if self.stream:
            with self.client.chat.completions.stream(**body) as s:
                m = s.get_final_completion().choices[0].message
        else:
            m = self.client.chat.completions.create(**body).choices[0].message
        self.messages.append(m.model_dump(exclude_none=True, exclude={"parsed"}))
        self.asked = m.tool_calls or []
        return m.content or "", [(c.function.name, json.loads(c.function.arguments)) for c in self.asked]

    def returned(self, result):
        self.messages.append({"role": "tool", "tool_call_id": self.asked[0].id, "content": result})


class Anthropic:
    def __init__(self, stream):
        self.stream, self.messages = stream, []
        self.client = anthropic.Anthropic(base_url=SERVER.url, api_key="none", max_retries=0)
        self.tools = [{"name": name, "description": about, "input_schema": schema(parameters)}
            for name, (about, parameters) in TOOLS.items()]

    def ask(self, text):
        self.messages.append({"role": "user", "content": text})

    def turn(self):
        body = dict(model="demo", messages=self.messages, tools=self.tools, max_tokens=200,
            extra_body={"temperature": 0})
        if self.stream:
            with self.client.messages.stream(**body) as s:
                m = s.get_final_message()
        else:
            m = self.client.messages.create(**body)
        self.messages.append({"role": "assistant", "content": m.content})
        self.asked = [b for b in m.content if b.type == "tool_use"]
        equal(m.stop_reason, "tool_use" if self.asked else "end_turn")
        return ("".join(b.text for b in m.content if b.type == "text"),
            [(b.name, b.input) for b in self.asked])

    def returned(self, result):
        self.messages.append({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": self.asked[0].id, "content": result}]})


class Ollama:
    def __init__(self, stream):
        self.stream, self.messages = stream, []
        self.client = ollama.Client(host=SERVER.url)
        self.tools = [{"type": "function", "function":
            {"name": name, "description": about, "parameters": schema(parameters)}}
            for name, (about, parameters) in TOOLS.items()]

    def ask(self, text):
        self.messages.append({"role": "user", "content": text})

    def turn(self):
        got = self.client.chat(model="demo", messages=self.messages, tools=self.tools,
            stream=self.stream, options={"temperature": 0})
        parts = [p.message for p in (got if self.stream else [got])]
        text = "".join(p.content or "" for p in parts)
        calls = [c for p in parts for c in p.tool_calls or []]
        self.messages.append({"role": "assistant", "content": text, "tool_calls": calls})
        return text, [(c.function.name, dict(c.function.arguments)) for c in calls]

    def returned(self, result):
        name = self.messages[-1]["tool_calls"][0].function.name
        self.messages.append({"role": "tool", "tool_name": name, "content": result})


def ends_right(wire):
    for text, wanted, result, said in LOOP:
        wire.ask(text)
        equal(wire.turn(), ("", [wanted]), text)
        wire.returned(result)
        answer, calls = wire.turn()
        equal(calls, [], text)
        assert said in answer, (text, answer)


def test_openai():
    for stream in (False, True):
        ends_right(OpenAI(stream))


def test_anthropic():
    for stream in (False, True):
        ends_right(Anthropic(stream))


def test_ollama():
    for stream in (False, True):
        ends_right(Ollama(stream))


if __name__ == "__main__":
    SERVER.main(globals())
