"""A conversation as the text that the model sees: what template.jinja renders, in Python.

Training needs to know which part of the text the model has to write, so this says it piece by
piece; that both render the same bytes is tested (tests/golden/test_demo_data.py).
"""

import json

CALL, END_CALL = "<tool_call>", "</tool_call>"
THINK, END_THINK = "<think>", "</think>"
START, END = "<|im_start|>", "<|im_end|>"


def as_json(value):
    return json.dumps(value, ensure_ascii=False)


def slot_text(schema, optional):
    """What stands for the value of a parameter: '"string"', '"low|high"?', 'integer (How many.)'.
    Anything but such plain types is written out."""
    kind, choices = schema.get("type"), schema.get("enum")
    if kind in ("string", "integer", "number", "boolean"):
        text = "|".join(map(str, choices)) if choices else kind
        text = f'"{text}"' if kind == "string" else text
        text += f" ({schema['description']})" if schema.get("description") else ""
    else:
        text = as_json(schema)
    return text + "?" * optional


def tool_text(function):
    """A tool as the call of it with slots for values, after its description."""
    schema = function.get("parameters") or {}
    required, slots = schema.get("required") or (), []
    for name, value in (schema.get("properties") or {}).items():
        slots.append(f'"{name}": {slot_text(value, name not in required)}')
    about = f"\n{function['description']}" if function.get("description") else ""
    return f'{about}\n{{"name": "{function["name"]}", "arguments": {{{", ".join(slots)}}}}}'


def calls_text(calls):
    return "\n".join(
        f'{CALL}\n{{"name": "{c["name"]}", "arguments": {as_json(c["arguments"])}}}\n{END_CALL}'
        for c in calls
    )


def parse_calls(text):
    """The calls of an answer that consists of nothing else; None for any other answer."""
    calls, rest = [], text.strip()
    while rest:
        body, end, after = rest.removeprefix(CALL).partition(END_CALL)
        if not rest.startswith(CALL) or not end:
            return None
        try:
            call = json.loads(body)
        except ValueError:
            return None
        if not isinstance(call, dict) or set(call) != {"name", "arguments"}:
            return None
        calls.append(call)
        rest = after.strip()
    return calls


def split_thought(text):
    """(thought or None, answer) of what the model wrote; an open thought has no answer."""
    if not text.startswith(THINK):
        return None, text
    thought, _, answer = text.removeprefix(THINK).partition(END_THINK)
    return thought.strip("\n"), answer.lstrip("\n")


def messages_of(dialogue, n_turns=None, close=True):
    """The first n_turns as chat messages; not close: without the last answer."""
    messages = []
    if dialogue["system"]:
        messages.append({"role": "system", "content": dialogue["system"]})
    turns = dialogue["turns"][:n_turns]
    for i, turn in enumerate(turns):
        if turn.results:
            messages += [{"role": "tool", "content": result} for result in turn.results]
        else:
            messages.append({"role": "user", "content": turn.user})
        if i == len(turns) - 1 and not close:
            break
        answer = {"role": "assistant", "content": turn.answer}
        if turn.calls:
            answer["tool_calls"] = [{"type": "function", "function": c} for c in turn.calls]
        if dialogue.get("think"):
            answer["reasoning_content"] = turn.thought
        messages.append(answer)
    return messages


def _system_text(first, tools, think):
    has_system = first.get("role") == "system"
    parts = []
    if tools:
        lines = "".join(tool_text(t["function"]) for t in tools)
        parts.append(f"{chr(10) if has_system else ''}<tools>{lines}\n</tools>")
    if think:
        parts.append("/think")
    if has_system:
        parts.insert(0, first["content"])
    return "\n".join(parts) if parts else None


def _answer_text(message, with_thought):
    thought, calls = message.get("reasoning_content"), message.get("tool_calls")
    text = f"{THINK}\n{thought}\n{END_THINK}\n\n" if thought and with_thought else ""
    text += message["content"]
    if calls:
        text += "\n" if message["content"] else ""
        text += calls_text([c["function"] for c in calls])
    return text


def pieces(messages, tools=None, think=False):
    """[(text, whether the model must write it)]; a thinking model's older answers, whose thoughts
    are gone from the prompt, are nothing to learn from."""
    system = _system_text(messages[0] if messages else {}, tools, think)
    out = [] if system is None else [(f"{START}system\n{system}{END}\n", False)]
    asked = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=-1)
    roles = [m["role"] for m in messages] + [None]
    for i, message in enumerate(messages):
        role = message["role"]
        if role == "assistant":
            out.append((f"{START}assistant\n", False))
            out.append((_answer_text(message, i > asked) + END, i > asked or not think))
            out.append(("\n", False))
        elif role == "tool":
            head = f"{START}user" if i == 0 or roles[i - 1] != "tool" else ""
            tail = f"{END}\n" if roles[i + 1] != "tool" else ""
            text = f"\n<tool_response>\n{message['content']}\n</tool_response>"
            out.append((head + text + tail, False))
        elif role == "user":
            out.append((f"{START}user\n{message['content']}{END}\n", False))
    return out


def prompt(messages, tools=None, think=False):
    """What the model is given to go on from."""
    return "".join(t for t, _ in pieces(messages, tools, think)) + f"{START}assistant\n"
