"""Chat template of the demo model in Python: renders conversations to the same bytes as template.jinja.

The text is rendered in pieces, which are marked as written by the model or not, since training
computes the loss only for the former. tests/golden/test_demo_data.py compares both renderers.
"""

import json

CALL, END_CALL = "<tool_call>", "</tool_call>"
THINK, END_THINK = "<think>", "</think>"
START, END = "<|im_start|>", "<|im_end|>"


def as_json(value):
    return json.dumps(value, ensure_ascii=False)


def slot_text(schema, optional):
    """Placeholder for the value of a parameter: '"string"', '"low|high"?', 'integer (How many.)'. Schemas
    other than these simple types are rendered as JSON."""
    kind, choices = schema.get("type"), schema.get("enum")
    if kind in ("string", "integer", "number", "boolean"):
        text = "|".join(map(str, choices)) if choices else kind
        text = f'"{text}"' if kind == "string" else text
        text += f" ({schema['description']})" if schema.get("description") else ""
    else:
        text = as_json(schema)
    return text + "?" * optional


def tool_text(function):
    """Renders a tool as its description and an example call with placeholders for the values."""
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
    """Tool calls of a response that contains only tool calls; None for any other response."""
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
    """Splits generated text into (reasoning or None, answer). If the reasoning is not closed the answer
    is empty."""
    if not text.startswith(THINK):
        return None, text
    thought, _, answer = text.removeprefix(THINK).partition(END_THINK)
    return thought.strip("\n"), answer.lstrip("\n")


def messages_of(dialogue, n_turns=None, close=True):
    """Chat messages of the first n_turns; if not `close`, without the last response."""
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
    """[(text, whether it is trained)]. If reasoning is enabled, responses before the last user message
    are not trained, since the template removes their reasoning."""
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
    """Prompt for the next response."""
    return "".join(t for t, _ in pieces(messages, tools, think)) + f"{START}assistant\n"
