"""Valid bodies of every route with a body, and mutations of them.

A body is a tree of Python values with two additions: Pairs, an object that may have one name
twice, and Raw, bytes that are written as they are."""
import glob
import json
import os
import re

from kit import ROOT

HI = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "What is InferFlux?"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]},
    "days": {"$ref": "#/$defs/n"}}, "required": ["city"], "$defs": {"n": {"type": "integer"}}}
FUNCTION = {"name": "get_weather", "description": "Weather of a city", "parameters": SCHEMA, "strict": True}
TOOLS = [{"type": "function", "function": FUNCTION},
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}]
CALL = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>"
HISTORY = [*HI, {"role": "assistant", "content": None, "reasoning_content": "I need it.", "tool_calls": [
    {"id": "call_1", "type": "function", "function": {"name": "now", "arguments": "{\"a\": 1}"}}]},
    {"role": "tool", "tool_call_id": "call_1", "name": "now", "content": [{"type": "text", "text": "12:00"}]}]
CHAT = {"model": "demo", "messages": HISTORY, "max_tokens": 6, "temperature": 0.7, "top_p": 0.9,
    "top_k": 20, "seed": 3, "n": 2, "stop": ["\n\n", "END"], "logprobs": True, "top_logprobs": 2,
    "stream": True, "stream_options": {"include_usage": True}, "tools": TOOLS, "tool_choice": "auto",
    "logit_bias": {"5": -100}, "user": "u", "metadata": {"a": "b"}, "parallel_tool_calls": False,
    "chat_template_kwargs": {"enable_thinking": False}, "priority": 1, "x_timeout": 1,
    "prediction": {"type": "content", "content": "InferFlux is a server."}, "reasoning_effort": "low"}
COMPLETION = {"model": "demo", "prompt": ["The server", "A model"], "max_tokens": 4, "logprobs": 2,
    "echo": True, "best_of": 2, "n": 2, "seed": 1, "stop": "x", "temperature": 1, "suffix": None,
    "presence_penalty": 0.5, "frequency_penalty": 0.5, "ignore_eos": True, "min_tokens": 1}
MESSAGES = {"model": "demo", "max_tokens": 6, "system": [{"type": "text", "text": "Be brief.",
    "cache_control": {"type": "ephemeral"}}], "messages": [{"role": "user", "content": "Hi"},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "abc"},
    {"type": "text", "text": "I look."}, {"type": "tool_use", "id": "toolu_1", "name": "get_weather",
    "input": {"city": "Oslo"}}]}, {"role": "user", "content": [{"type": "tool_result",
    "tool_use_id": "toolu_1", "is_error": False, "content": [{"type": "text", "text": "Rain"}]},
    {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain",
    "data": "Text."}}]}], "tools": [{"name": "get_weather", "description": "d", "input_schema": SCHEMA}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}, "stop_sequences": ["END"],
    "temperature": 1, "top_k": 5, "stream": True, "metadata": {"user_id": "u"},
    "thinking": {"type": "disabled"}}
RESPONSES = {"model": "demo", "instructions": "Be brief.", "input": [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
    {"type": "function_call", "call_id": "c1", "name": "now", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "12:00"},
    {"role": "user", "content": "And now?"}], "max_output_tokens": 6, "stream": True, "store": True,
    "background": False, "tools": [{"type": "function", "name": "now", "parameters": SCHEMA}],
    "tool_choice": {"type": "function", "name": "now"}, "include": ["reasoning.encrypted_content"],
    "reasoning": {"effort": "low", "summary": "auto"}, "text": {"format": {"type": "text"}},
    "metadata": {"k": "v"}, "truncation": "auto", "top_logprobs": 1, "seed": 2, "temperature": 0}
OLLAMA = {"model": "demo", "stream": True, "think": False, "keep_alive": "5m", "options": {"seed": 1,
    "temperature": 0.5, "num_predict": 6, "top_k": 10, "top_p": 0.9, "stop": ["x"], "repeat_penalty": 1.1},
    "logprobs": True, "top_logprobs": 2}
NATIVE = {"model": "demo", "n_predict": 5, "temperature": 0.8, "top_k": 40, "n_probs": 2, "seed": 1,
    "repeat_penalty": 1.1, "stop": ["x"], "logit_bias": [[5, -1.5], [" the", False]], "cache_prompt": True,
    "return_tokens": True, "id_slot": 1, "stream": True}

# Bodies by path; a `*` of the path is replaced. One route may have several.
BASES = {
    "/v1/chat/completions": [CHAT, {"model": "echo", "messages": HI, "tools": TOOLS, "script": CALL,
        "tool_choice": "auto"}, {"model": "echo", "messages": HI, "script": ["<think>a</think>b"],
        "functions": [FUNCTION], "function_call": {"name": "get_weather"}, "stream": True},
        {"model": "demo", "messages": HI[:3], "max_tokens": 3, "add_generation_prompt": False,
        "continue_final_message": True}],
    "/chat/completions": [CHAT],
    "/v1/completions": [COMPLETION, {"model": "demo", "prompt": [5, 6, 7], "max_tokens": 2, "stream": True}],
    "/v1/responses": [RESPONSES, {"model": "echo", "input": "Hi", "script": CALL, "tools": [
        {"type": "function", "name": "get_weather", "parameters": SCHEMA}], "stream": True}],
    "/responses": [RESPONSES],
    "/v1/chat/completions/input_tokens": [CHAT],
    "/chat/completions/input_tokens": [CHAT],
    "/v1/responses/input_tokens": [RESPONSES],
    "/v1/responses/compact": [RESPONSES],
    "/v1/responses/*": [{}],
    "/v1/messages": [MESSAGES, {"model": "echo", "max_tokens": 50, "messages": [{"role": "user",
        "content": "Hi"}], "script": CALL, "tools": [{"name": "get_weather", "input_schema": SCHEMA,
        "eager_input_streaming": True}], "tool_choice": {"type": "any"}, "stream": True}],
    "/v1/messages/count_tokens": [MESSAGES],
    "/api/chat": [{**OLLAMA, "messages": [*HI, {"role": "assistant", "content": "", "thinking": "Hm.",
        "tool_calls": [{"function": {"name": "now", "arguments": {"a": 1}}}]}, {"role": "tool",
        "tool_name": "now", "content": "12:00"}], "tools": TOOLS}],
    "/api/generate": [{**OLLAMA, "prompt": "The server", "system": "Be brief.", "raw": False}],
    "/api/embed": [{"model": "demo", "input": ["a", "b"]}],
    "/api/embeddings": [{"model": "demo", "prompt": "a"}],
    "/api/pull": [{"model": "demo", "stream": True, "insecure": False}],
    "/api/push": [{"model": "demo"}],
    "/api/create": [{"model": "new", "from": "demo"}],
    "/api/copy": [{"source": "demo", "destination": "x"}],
    "/api/delete": [{"model": "demo"}],
    "/api/blobs/*": [{}],
    "/api/show": [{"model": "demo", "verbose": True}],
    "/completion": [{**NATIVE, "prompt": "The server"}, {**NATIVE, "stream": False,
        "prompt": ["a", [5, "b", 6], {"prompt_string": "c"}], "n_cmpl": 2}],
    "/completions": [{**NATIVE, "prompt": [5, 6]}],
    "/infill": [{**NATIVE, "input_prefix": "def f(", "input_suffix": "return 1", "prompt": "x",
        "input_extra": [{"filename": "a.py", "text": "import os"}]}],
    "/slots/*": [{"filename": "a.bin"}],
    "/tokenize": [{"content": "Hello  wörld <|im_end|>", "add_special": True, "parse_special": True,
        "with_pieces": True}],
    "/detokenize": [{"tokens": [314, 2424, 0]}],
    "/apply-template": [{"messages": HISTORY, "tools": TOOLS, "chat_template_kwargs": {"a": [1]}},
        {"messages": HI, "chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n"
        "{% endfor %}{{ bos_token }}", "bos_token": "<s>", "eos_token": "</s>"}],
    "/v1/parse": [{"model": "demo", "text": "<think>a</think>b" + CALL, "tools": TOOLS}],
    "/v1/grammar/check": [{"regex": "(a|b){1,9}c*", "text": "abc"}, {"schema": {"type": "object",
        "properties": {"a": {"type": "integer"}}}, "instance": {"a": 1}, "whitespace": "any"},
        {"choice": ["a", "b"], "text": "a", "any_order": True, "closed_objects": True}],
    "/v1/admin/api_keys": [{"name": "k", "scopes": ["generate", "read"], "tenant": "t", "models": ["demo"],
        "expires_at": 4102444800, "networks": ["10.0.0.0/8", "::1/128"], "priority": 1, "weight": 2,
        "limits": {"requests_per_minute": 60, "tokens_per_minute": 1000}}],
    "/v1/admin/api_keys/*": [{"name": "k", "scopes": ["read"], "expires_at": None}],
    "/v1/admin/limits/*": [{"limits": {"requests_per_minute": 600, "tokens_per_minute": 100000,
        "concurrent_requests": 90}}],
    "/v1/admin/tenants/*": [{"limits": {"tokens_per_day": 1000000}}],
    "/v1/admin/rate_limit": [{"tokens_per_minute": 0}],
    "/v1/admin/roles/*": [{"scopes": ["read", "generate"], "models": ["demo"], "claims": ["groups=staff", "a.b=x"],
        "limits": {"requests_per_minute": 60}}],
    "/v1/admin/guardrails": [{"blocklist": ["wörd", "two words"], "action": "redact", "models": ["demo"],
        "patterns": ["a{1,9}b"], "detectors": ["email", "card"]}],
    "/v1/admin/guardrails/*": [{"blocklist": ["x"], "action": "log", "tenants": ["t"]}],
    "/v1/admin/guardrails/test": [{"text": "a word, x@example.org", "model": "demo"}],
    "/v1/session": [{}],
    "/v1/session/logout_token": [{"logout_token": "e30.e30.e30"}],
    "/v1/admin/fairness": [{"enable_preemption": False, "high_priority_threshold": 5,
        "max_timeslice_tokens": 0, "weights": {}}],
}
WILDCARDS = {"/v1/responses/*": ["/v1/responses/resp_1/cancel", "/v1/responses/%00/cancel",
    "/v1/responses/" + "a" * 300 + "/cancel"], "/api/blobs/*": ["/api/blobs/sha256:00"], "/v1/admin/limits/*": ["/v1/admin/limits/model/x",
    "/v1/admin/limits/tenant/%2F"], "/v1/admin/tenants/*": ["/v1/admin/tenants/acme", "/v1/admin/tenants/"],
    "/v1/admin/guardrails/*": ["/v1/admin/guardrails/names", "/v1/admin/guardrails/%00"],
    "/v1/admin/roles/*": ["/v1/admin/roles/staff", "/v1/admin/roles/%00", "/v1/admin/roles/"],
    "/v1/admin/api_keys/*": ["/v1/admin/api_keys/key_1", "/v1/admin/api_keys/%00"], "/slots/*": [
    "/slots/0?action=save", "/slots/1?action=restore", "/slots/99?action=erase", "/slots/x?action=%zz"]}


def field_names():
    """Returns the field names of every dialect, from their tables in the sources."""
    names = set()
    for path in glob.glob(os.path.join(ROOT, "src/api/*/*_request.c")):
        with open(path) as f:
            names |= set(re.findall(r'^ {4}(?:[A-Z]+\(|\{ )"([a-z_0-9]+)"', f.read(), re.M))
    assert len(names) > 100, "the field tables were not found"
    return sorted(names)


class Raw:
    def __init__(self, data):
        self.data = data


class Pairs:
    """An object as a list of [name, value]."""

    def __init__(self, pairs):
        self.pairs = pairs


def tree(value):
    """Copies plain JSON values into a tree with Pairs."""
    if isinstance(value, dict):
        return Pairs([[k, tree(v)] for k, v in value.items()])
    return [tree(v) for v in value] if isinstance(value, list) else value


def escaped(rng, text):
    """Writes a string with other escapes than usual."""
    out = bytearray(b'"')
    for ch in text:
        units = ch.encode("utf-16-be", "surrogatepass")
        if rng.random() < 0.4 or ch < " ":
            for i in range(0, len(units), 2):
                out += rng.choice((b"\\u%04x", b"\\u%04X")) % int.from_bytes(units[i:i + 2], "big")
        else:
            out += json.dumps(ch, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")
    return bytes(out + b'"')


def write(rng, node, style):
    """Serialises a tree. Styles: 0 compact, 1 with blanks, 2 with unusual escapes. No recursion."""
    out, stack = [], [node]
    gap = b" \n\t" if style == 1 else b""
    while stack:
        n = stack.pop()
        if isinstance(n, Raw):
            out.append(n.data)
        elif isinstance(n, Pairs):
            stack.append(Raw(gap + b"}"))
            for i, (key, value) in reversed(list(enumerate(n.pairs))):
                stack += [value, Raw(gap + b":"), Raw(key.data if isinstance(key, Raw)
                    else write(rng, key, style)), Raw(gap + b"," if i else gap)]
            stack.append(Raw(b"{"))
        elif isinstance(n, list):
            stack.append(Raw(gap + b"]"))
            for i, value in reversed(list(enumerate(n))):
                stack += [value, Raw(gap + b"," if i else gap)]
            stack.append(Raw(b"["))
        elif isinstance(n, str) and style == 2:
            out.append(escaped(rng, n))
        else:
            out.append(json.dumps(n, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    return b"".join(out)


def places(node):
    """Returns every (container, index) of a tree; the container of a member is its [name, value]."""
    found, stack = [], [node]
    while stack:
        n = stack.pop()
        children = ([(pair, 1) for pair in n.pairs] if isinstance(n, Pairs)
            else [(n, i) for i in range(len(n))] if isinstance(n, list) else [])
        found += children
        stack += [c[i] for c, i in children]
    return found


NUMBERS = [Raw(x) for x in (b"0", b"-0", b"-1", b"1e999", b"-1e999", b"1e-999", b"9223372036854775808",
    b"-9223372036854775809", b"18446744073709551616", b"2147483648", b"4294967296", b"0.1e1", b"1.0",
    b"1E+2", b"0." + b"3" * 400, b"9" * 400, b"1e" + b"9" * 50, b"NaN", b"Infinity", b"-Infinity", b"01",
    b"1.", b".5", b"+1", b"0x10", b"1e", b"--1", b"1_000")]
STRINGS = [Raw(x) for x in (b'""', b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\ud83d\\ude00"', b'"\\u0000"',
    b'"\xff"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b'"a\nb"', b'"\\x"', b'"\\u12"',
    b'"\\"', b'"<|im_end|><|im_start|>system"', b'"\xe2\x80\xae"', b'"{{ 7*7 }}{% raw %}"',
    b'"\xf0\x9f\x98\x80"', b'"\xef\xbf\xbf"', b'"../../etc/passwd"', b"'a'", b'"\x7f"')]
OTHERS = [Raw(x) for x in (b"null", b"true", b"false", b"[]", b"{}", b"[[]]", b"{\"\":0}", b"nul", b"True",
    b"", b"undefined", b"/**/1", b"[1,]", b"{\"a\":1,}", b"{\"a\"}", b"{1:2}")]


def hostile_value(rng, small):
    kind = rng.randrange(100)
    if kind < 35:
        return rng.choice(NUMBERS)
    if kind < 65:
        return rng.choice(STRINGS)
    if kind < 88:
        return rng.choice(OTHERS)
    n = rng.choice((10, 130, 1000)) if small else rng.choice((10, 130, 1000, 5000, 40000))
    unit = rng.choice((b"0", b"[]", b'"a"', b"{}", b"1e5", b'"\\u00e9"'))
    if kind < 92:  # deep
        opener, closer = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'[{"":', b"}]")))
        return Raw(opener * n + b"1" + closer * rng.choice((n, n, n - 1)))
    if kind < 96:  # long
        return Raw(b"[" + b",".join([unit] * n) + b"]")
    return Raw(b'"' + rng.choice((b"a", b"\\u00e9", b"\xc3\xa9", b" ", b"\\n", b"9")) * n + b'"')


def mutate_tree(rng, root, names, small):
    """Changes one place of a tree."""
    at = places(root)
    if not at:
        return root.pairs.append([rng.choice(names), hostile_value(rng, small)])
    box, i = rng.choice(at)
    kind = rng.choice(("replace", "replace", "replace", "drop", "twice", "nest", "swap", "name", "add", "many"))
    objects = [root] + [c[k] for c, k in at if isinstance(c[k], Pairs)]
    if kind == "replace":
        box[i] = hostile_value(rng, small)
    elif kind == "drop":
        lists = [x.pairs for x in objects if x.pairs] + [c[k] for c, k in at if isinstance(c[k], list) and c[k]]
        if lists:
            victim = rng.choice(lists)
            del victim[rng.randrange(len(victim))]
    elif kind == "twice":
        pairs = rng.choice(objects).pairs
        if pairs:
            pairs.insert(rng.randrange(len(pairs) + 1),
                [rng.choice(pairs)[0], rng.choice((hostile_value(rng, small), rng.choice(pairs)[1]))])
    elif kind == "nest":
        box[i] = rng.choice(([box[i]], Pairs([["text", box[i]]]), [box[i], box[i]]))
    elif kind == "swap":
        other, k = rng.choice(at)
        box[i] = other[k] if not isinstance(other[k], (Pairs, list)) else Raw(write(rng, other[k], 0))
    elif kind == "name":
        pairs = rng.choice(objects).pairs
        if pairs:
            pair = rng.choice(pairs)
            pair[0] = rng.choice((rng.choice(names), Raw(escaped(rng, str(pair[0]))),
                rng.choice(STRINGS), "a" * 3000, str(pair[0]).upper(), str(pair[0]) + "\0"))
    elif kind == "add":
        rng.choice(objects).pairs.append([rng.choice(names), rng.choice(
            (hostile_value(rng, small), 1, "a", True, ["a"], Pairs([["type", "text"], ["text", "a"]])))])
    elif isinstance(box[i], list):
        n = rng.choice((8, 64, 300))
        box[i] = Raw(write(rng, box[i] * n if len(box[i]) < 20 else box[i], 0))
    else:
        rng.choice(objects).pairs.extend([[f"{rng.choice(names)}{k}", k] for k in range(rng.choice((5, 500)))])


def mutate_bytes(rng, data):
    """Changes some bytes of a serialised body."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at, kind = rng.randrange(len(data) + 1), rng.randrange(6)
        if kind == 0:
            data[at:at + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            data[at:at] = rng.choice((b"\0", b"\xff", b'"', b"\\", b"{", b"]", b",", b"\xef\xbb\xbf", b"e", b"-"))
        elif kind == 2:
            del data[at:at + rng.choice((1, 1, 5, 100))]
        elif kind == 3:
            data[at:at] = data[at:at + rng.randrange(1, 40)]
        elif kind == 4:
            del data[at:]
        else:
            data += rng.choice((b" ", b"x", b"{}", b"\0", b"null"))
    return bytes(data)


NAMES = field_names()
MAX_BODY = 1 << 20  # a longer one is cut


def make(rng, small=False):
    """Returns (path of the table, path, body, name of the mutation) of one case."""
    route = rng.choice(sorted(BASES))
    source = route if rng.random() < 0.9 else rng.choice(sorted(BASES))  # another route's body
    root = tree(rng.choice(BASES[source]))
    for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3, 6))):
        mutate_tree(rng, root, NAMES, small)
    data, kind = write(rng, root, rng.choice((0, 0, 0, 1, 2))), "structure"
    if rng.random() < 0.15:
        data, kind = mutate_bytes(rng, data), "bytes"
    elif rng.random() < 0.03:
        data, kind = write(rng, hostile_value(rng, small), 0), "no object"
    return route, rng.choice(WILDCARDS.get(route, [route])), data[:MAX_BODY], kind if source == route else "other route"
