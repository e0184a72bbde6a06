#!/usr/bin/env python3
"""The demo model is trained on the output of its chat template: chat.py, which writes the
training text, equals the template rendered by the server's engine, byte for byte. Standard
library only."""

import json
import os
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tools", "demo"))
TOOL = os.path.join(ROOT, os.environ.get("BUILD", "build"), "tools/render_template")

import chat  # noqa: E402
import generate  # noqa: E402
import measure  # noqa: E402

N = 400


class Engine:
    def __init__(self, path):
        self.process = subprocess.Popen([TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with open(path, encoding="utf-8") as f:
            self.ask({"source": f.read()})

    def ask(self, job):
        self.process.stdin.write(json.dumps(job, ensure_ascii=False).encode() + b"\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if not answer["ok"]:
            raise SystemExit(f"{answer['error']}: {job}\n0 passed, 1 failed, 0 skipped")
        return answer.get("text")

    def render(self, messages, tools, think, prompt):
        job = {"messages": measure.as_sent(messages), "add_generation_prompt": prompt, "now": 0}
        if tools:
            job["tools"] = tools
        if think:
            job["chat_template_kwargs"] = {"enable_thinking": True}
        return self.ask(job)


def texts_of(dialogue):
    """Yields every prompt of a turn, and the complete text: (messages, is it a prompt, text)."""
    tools, think = dialogue["tools"], dialogue["think"]
    for i in range(len(dialogue["turns"])):
        messages = chat.messages_of(dialogue, i + 1, close=False)
        yield messages, True, chat.prompt(messages, tools, think)
    messages = chat.messages_of(dialogue)
    yield messages, False, "".join(text for text, _ in chat.pieces(messages, tools, think))


ODD_TOOLS = [
    {"name": "bare"},
    {"name": "null", "description": None, "parameters": None},
    {"name": "empty", "description": "Nothing to say.", "parameters": {"type": "object"}},
    {"name": "odd", "description": "Odd.", "parameters": {"type": "object", "required": ["items"],
        "properties": {
            "items": {"type": "array", "items": {"type": "string"}, "description": "Many."},
            "values": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "n": {"type": ["integer", "null"]}, "x": {"type": "number", "enum": [1, 2.5]},
            "who": {"type": "string", "enum": ["\u00e4 \"b\"", "c"], "default": "c"},
            "any": {}, "keys": {"type": "object", "properties": {"a": {"type": "string"}}}}}},
]  # fmt: skip


def odd_dialogue():
    turn = {"role": "user", "content": "Go."}
    offered = [{"type": "function", "function": t} for t in ODD_TOOLS]
    return [turn], offered, chat.prompt([turn], offered)


def main():
    if not os.path.exists(TOOL):
        print(f"skipped: {TOOL} is not built\n0 passed, 0 failed, 1 skipped")
        return 0
    engine = Engine(os.path.join(ROOT, "tools/demo/template.jinja"))
    passed = failed = 0
    for d in generate.dialogues("template", N):
        for messages, prompt, want in texts_of(d):
            got = engine.render(messages, d["tools"], d["think"], prompt)
            passed += got == want
            failed += got != want
            if got != want and failed < 5:
                print(f"FAILED\n  want: {want!r}\n  got:  {got!r}")
    messages, offered, want = odd_dialogue()
    got = engine.render(messages, offered, False, True)
    passed, failed = passed + (got == want), failed + (got != want)
    if got != want:
        print(f"FAILED\n  want: {want!r}\n  got:  {got!r}")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
