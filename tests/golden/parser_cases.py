#!/usr/bin/env python3
"""Writes tests/golden/parser.txt: model output in every format, and its expected parse.

Each format of the parser's tables is rendered here a second time, as its model would write
it, so that the expectation does not come from the parser. A case is

    case TOOL THINKING: name
    start thinking | content          (optional)
    tools none                        (optional; else the tools below)
    in: text                          \\n and \\\\ are escapes
    content: text                     expected; absent = empty
    reasoning: text
    call: name {json}                 arguments are compared as values
    broken: n                         calls that were begun and taken back"""
import json
import re

BAR, LOW = "\uff5c", "\u2581"
DS = lambda name: f"<{BAR}{name.replace(' ', LOW)}{BAR}>"
DSML = f"{BAR}DSML{BAR}"
compact = lambda v: json.dumps(v, ensure_ascii=False)


def python(v, quote=None):
    if isinstance(v, dict):
        return "{" + ", ".join(f"{python(k)}: {python(x)}" for k, x in v.items()) + "}"
    if isinstance(v, list):
        return "[" + ", ".join(python(x) for x in v) + "]"
    return repr(v)


def gemma(v, quote):
    if isinstance(v, dict):
        return "{" + ",".join(f"{k}:{gemma(x, quote)}" for k, x in v.items()) + "}"
    if isinstance(v, list):
        return "[" + ",".join(gemma(x, quote) for x in v) + "]"
    return f"{quote}{v}{quote}" if isinstance(v, str) else compact(v)


plain = lambda v: v if isinstance(v, str) else compact(v)
pycall = lambda n, a: f"{n}({', '.join(f'{k}={python(v)}' for k, v in a.items())})"


def qwen(name, args):
    params = "".join(f"<parameter={k}>\n{plain(v)}\n</parameter>\n" for k, v in args.items())
    return f"<function={name}>\n{params}</function>"


def glm(sep):
    return lambda n, a: f"<tool_call>{n}{sep}" + "".join(
        f"<arg_key>{k}</arg_key>{sep}<arg_value>{plain(v)}</arg_value>{sep}"
        for k, v in a.items()) + "</tool_call>"


def invoke(open_, param, value, end, close):
    return lambda n, a: open_ % n + "".join(
        (param(k, v) + plain(v) + value) for k, v in a.items()) + end + close


def dsml(tag, section):
    """(one call, before all, after all) of DeepSeek V3.2 and the formats that derive from it."""
    param = lambda k, v: f'<{tag}parameter name="{k}" string="{compact(isinstance(v, str))}">'
    return (invoke(f'<{tag}invoke name="%s">\n', param, f"</{tag}parameter>\n", f"</{tag}invoke>", ""),
        f"<{tag}{section}>\n", f"\n</{tag}{section}>")


def hunyuan(suffix, sep, gap):
    close = lambda tag, text: f"<{tag}{suffix}>{text}</{tag}{suffix}>{gap}"
    return lambda n, a: f"<tool_call{suffix}>{n}{sep}{gap}" + "".join(
        close("arg_key", k) + close("arg_value", plain(v)) for k, v in a.items()) + \
        f"</tool_call{suffix}>"


def xtml(tag, text, **attributes):
    words = "".join(f' {k}="{v}"' for k, v in attributes.items())
    return f"<|open|>{tag}{words}<|sep|>{text}<|close|>{tag}<|sep|>"


def kimi_k3(n, a):
    kinds = {str: "string", bool: "boolean", type(None): "null", dict: "object", list: "array"}
    return xtml("call", "".join(xtml("argument", plain(v), key=k,
        type=kinds.get(type(v), "number")) for k, v in a.items()), tool=n, index=1)


M3 = "]<]minimax[>["


def m3_element(k, v):
    children = [("item", x) for x in v] if isinstance(v, list) else list(v.items()) if isinstance(v,
        dict) else []
    text = "" if isinstance(v, (dict, list)) else plain(v)
    return f"{M3}<{k}>{text}{''.join(m3_element(*c) for c in children)}{M3}</{k}>"


def m3(n, a):
    elements = "".join(m3_element(k, v) + "\n" for k, v in a.items())
    return f'{M3}<invoke name="{n}">\n{elements}{M3}</invoke>'


def command_plus(n, a):
    args = json.dumps(a, ensure_ascii=False, indent=4).replace("\n", "\n        ")
    return f'    {{\n        "tool_name": "{n}",\n        "parameters": {args}\n    }}'


def obj(n, a, key="arguments", name="name"):
    return compact({name: n, key: a})


V41, GCML = f"{DSML} ", f"{BAR}GCML{BAR}"
V41_CALL, V41_OPEN, V41_CLOSE = dsml(V41, "calls")
GCML_CALL, GCML_OPEN, GCML_CLOSE = dsml(GCML, "tool_calls")

# id: (one call, before all, between, after all, removed markers, markers kept as text, text after)
class Row:
    def __init__(self, call, before="", between="\n", after="", marks=(), trailing=True,
            leading=True, lead="", bare=False):
        self.call, self.before, self.between, self.after = call, before, between, after
        self.marks, self.trailing, self.leading, self.lead = marks, trailing, leading, lead
        self.bare = bare

    def text(self, calls):
        return self.lead + self.before + self.between.join(
            self.call(n, a) for n, a in calls) + self.after


HERMES = ("<tool_call>", "</tool_call>")
DEEP = tuple(DS(x) for x in ("tool calls begin", "tool calls end", "tool call begin", "tool sep",
    "tool call end"))
KIMI = tuple(f"<|tool_{x}|>" for x in ("calls_section_begin", "calls_section_end", "call_begin",
    "call_argument_begin", "call_end"))
ROWS = {
    "hermes_json": Row(lambda n, a: f"<tool_call>\n{obj(n, a)}\n</tool_call>", marks=HERMES),
    "glm4_native": Row(glm(""), between="", marks=HERMES),
    "glm45": Row(glm("\n"), marks=HERMES),
    "glm4_xml": Row(lambda n, a: f"<tool_call><name>{n}</name><arguments>{compact(a)}</arguments>"
        "</tool_call>", marks=HERMES + ("</arguments>",)),
    "llama_xml": Row(lambda n, a: f"<function={n}>{compact(a)}</function>",
        marks=("<function=", "</function>")),
    "llama_python": Row(pycall, before="<|python_tag|>", after="<|eom_id|>",
        marks=("<|python_tag|>", "<|eom_id|>")),
    "llama3_json": Row(lambda n, a: obj(n, a, "parameters"), between="; ", bare=True,
        leading=False),
    "json": Row(obj, before="[", between=", ", after="]", bare=True, leading=False),
    "pythonic": Row(pycall, before="[", between=", ", after="]", bare=True, leading=False),
    "qwen3_coder": Row(lambda n, a: f"<tool_call>\n{qwen(n, a)}\n</tool_call>",
        marks=HERMES + ("<function=", "</function>")),
    "mistral": Row(lambda n, a: compact({"name": n, "arguments": a, "id": "abcdefghi"}),
        before="[TOOL_CALLS][", between=", ", after="]", marks=("[TOOL_CALLS]",)),
    "mistral_v11": Row(lambda n, a: f"[TOOL_CALLS]{n}[ARGS]{compact(a)}", between="",
        marks=("[TOOL_CALLS]",)),
    "deepseek_v3": Row(lambda n, a: f"{DS('tool call begin')}function{DS('tool sep')}{n}\n```json\n"
        f"{compact(a)}\n```{DS('tool call end')}", before=DS("tool calls begin"),
        after=DS("tool calls end"), marks=("```" + DS("tool call end"),) + DEEP),
    "deepseek_v31": Row(lambda n, a: f"{DS('tool call begin')}{n}{DS('tool sep')}{compact(a)}"
        f"{DS('tool call end')}", before=DS("tool calls begin"), between="",
        after=DS("tool calls end"), marks=DEEP),
    "deepseek_v32": Row(invoke(f"<{DSML}invoke name=\"%s\">\n",
        lambda k, v: f"<{DSML}parameter name=\"{k}\" string=\"{compact(isinstance(v, str))}\">",
        f"</{DSML}parameter>\n", f"</{DSML}invoke>", ""), before=f"<{DSML}function_calls>\n",
        after=f"\n</{DSML}function_calls>", marks=(f"<{DSML}function_calls>",
        f"</{DSML}function_calls>", f"<{DSML}invoke name=\"", f"</{DSML}invoke>",
        f"</{DSML}parameter>")),
    "kimi_k2": Row(lambda n, a: f"<|tool_call_begin|>functions.{n}:0<|tool_call_argument_begin|>"
        f"{compact(a)}<|tool_call_end|>", before=KIMI[0], between="", after=KIMI[1], marks=KIMI),
    "harmony": Row(lambda n, a: f"<|channel|>commentary to=functions.{n} <|constrain|>json"
        f"<|message|>{compact(a)}<|call|>", between="<|start|>assistant", marks=("<|channel|>",
        "<|start|>", "<|message|>", "<|call|>", "<|constrain|>"), leading=False, trailing=False),
    "minimax_m2": Row(invoke("<invoke name=\"%s\">\n", lambda k, v: f"<parameter name=\"{k}\">",
        "</parameter>\n", "</invoke>", ""), before="<minimax:tool_call>\n",
        after="\n</minimax:tool_call>", marks=("<minimax:tool_call>", "</minimax:tool_call>")),
    "granite": Row(obj, before="<|tool_call|>[", between=", ", after="]",
        marks=("<|tool_call|>",)),
    "phi4": Row(obj, before="functools[", between=", ", after="]", marks=()),
    "jamba": Row(obj, before="<tool_calls>[\n    ", between=",\n    ", after="\n]</tool_calls>",
        marks=("<tool_calls>", "</tool_calls>")),
    "command_r": Row(lambda n, a: compact({"tool_call_id": "0", "tool_name": n, "parameters": a}),
        before="<|START_ACTION|>[\n    ", between=",\n    ", after="\n]<|END_ACTION|>",
        marks=("<|START_ACTION|>", "<|END_ACTION|>")),
    "nemotron": Row(obj, before="<TOOLCALL>[", between=", ", after="]</TOOLCALL>",
        marks=("<TOOLCALL>", "</TOOLCALL>")),
    "internlm": Row(lambda n, a: "<|action_start|><|plugin|>\n" + obj(n, a, "parameters") +
        "<|action_end|>", between="\n", marks=("<|action_start|>", "<|plugin|>", "<|action_end|>")),
    "longcat": Row(lambda n, a: f"<longcat_tool_call>{obj(n, a)}</longcat_tool_call>",
        marks=("<longcat_tool_call>", "</longcat_tool_call>")),
    "apertus": Row(lambda n, a: compact({n: a}), before="<|tools_prefix|>[", between=", ",
        after="]<|tools_suffix|>", marks=("<|tools_prefix|>", "<|tools_suffix|>")),
    "functionary": Row(lambda n, a: f"{n}\n{compact(a)}", between="\n>>>", leading=False,
        bare=True),
    "seed_oss": Row(lambda n, a: f"<seed:tool_call>\n{qwen(n, a)}\n</seed:tool_call>",
        marks=("<seed:tool_call>", "</seed:tool_call>", "<function=", "</function>")),
    "step3": Row(invoke(f"{DS('tool_call_begin')}function{DS('tool_sep')}"
        "<steptml:invoke name=\"%s\">\n", lambda k, v: f"<steptml:parameter name=\"{k}\">",
        "</steptml:parameter>\n", "</steptml:invoke>", DS("tool_call_end")),
        before=DS("tool_calls_begin"), after=DS("tool_calls_end"),
        marks=tuple(DS(x) for x in ("tool_calls_begin", "tool_calls_end", "tool_call_begin",
        "tool_sep", "tool_call_end"))),
    "lfm2": Row(pycall, before="<|tool_call_start|>[", between=", ", after="]<|tool_call_end|>",
        marks=("<|tool_call_start|>", "<|tool_call_end|>")),
    "olmo3": Row(pycall, before="<function_calls>\n", after="\n</function_calls>",
        marks=("<function_calls>", "</function_calls>")),
    "gemma": Row(pycall, before="```tool_code\n", after="\n```", marks=("```tool_code\n",)),
    "gemma4": Row(lambda n, a: f"<|tool_call>call:{n}{gemma(a, '<|' + chr(34) + '|>')}<tool_call|>",
        between="", marks=("<|tool_call>", "<tool_call|>")),
    "function_gemma": Row(lambda n, a: f"<start_function_call>call:{n}{gemma(a, '<escape>')}"
        "<end_function_call>", between="", marks=("<start_function_call>", "<end_function_call>")),
    "deepseek_v41": Row(V41_CALL, before=V41_OPEN, after=V41_CLOSE),
    "gigachat3": Row(lambda n, a: f"function call<|role_sep|>\n{obj(n, a)}",
        between="<|message_sep|>\n\n", after="<|message_sep|>"),
    "gigachat35": Row(GCML_CALL, before=GCML_OPEN, after=GCML_CLOSE),
    "kimi_k3": Row(kimi_k3, before="<|open|>tools<|sep|>", between="", after="<|close|>tools<|sep|>"),
    "command_r_plus": Row(command_plus, before="Action:\n```json\n[\n", between=",\n",
        after="\n]```\n"),
    "xlam": Row(obj, before="[", between=", ", after="]", bare=True, leading=False),
    "hunyuan_v3": Row(hunyuan("", "<tool_sep>", "\n"), before="<tool_calls>\n",
        after="\n</tool_calls>"),
    "hunyuan_v4": Row(hunyuan(":opensource", "", ""), before="<tool_calls:opensource>", between="",
        after="</tool_calls:opensource>"),
    "minimax_m3": Row(m3, before=f"{M3}<tool_call>\n", after=f"\n{M3}</tool_call>"),
    "minicpm5": Row(invoke('<function name="%s">', lambda k, v: f'<param name="{k}">', "</param>",
        "</function>", "")),
    "muse": Row(lambda n, a: f" to={n}<|message|><atem:function_calls>\n" + invoke(
        '<atem:invoke name="%s">\n', lambda k, v: f'<atem:parameter name="{k}">',
        "</atem:parameter>\n", "</atem:invoke>\n</atem:function_calls>", "")(n, a),
        between="<|eom|><|start|>assistant", after="<|eot|>", leading=False, trailing=False),
}

# Formats without markers: only the tools of the request are calls.
BARE = ("llama3_json", "json", "pythonic", "xlam")

PARIS = ("get_weather", {"city": "Paris"})
ROME = ("get_weather", {"city": "Rome", "days": 3})
NESTED = ("plan", {"where": {"a": [1, 2.5, True, None], "b": {}}, "list": ["x", "y"], "on": False})
UNICODE = ("note", {"text": "é \"quoted\" 'single' \\ tab\t日本 😀 {[(<b>&"})
ESCAPED = ("note", {"text": "line one\nline two\n\nend"})
MARKED = "I say <think>, </think>, <tool_call>, [TOOL_CALLS] and } ] )"

out = []


def escape(s):
    return s.replace("\\", "\\\\").replace("\n", "\\n")


def case(tool, thinking, name, text, content="", reasoning="", calls=(), broken=0, start=None,
        tools=True):
    out.append(f"case {tool} {thinking}: {name}")
    if start:
        out.append(f"start {start}")
    if not tools:
        out.append("tools none")
    out.append("in: " + escape(text))
    if content:
        out.append("content: " + escape(content))
    if reasoning:
        out.append("reasoning: " + escape(reasoning))
    for n, a in calls:
        out.append(f"call: {n} {json.dumps(a)}")
    if broken:
        out.append(f"broken: {broken}")
    out.append("")


for id_, row in ROWS.items():
    one = row.text([PARIS])
    case(id_, "null", "one call", one, calls=[PARIS])
    case(id_, "null", "one call without tools", one, calls=[PARIS], tools=False)
    case(id_, "null", "two calls", row.text([PARIS, ROME]), calls=[PARIS, ROME])
    case(id_, "null", "no arguments", row.text([("now", {})]), calls=[("now", {})])
    # An empty element without a type in the schema is text.
    nested = (NESTED[0], {**NESTED[1], "where": {**NESTED[1]["where"], "b": ""}})
    case(id_, "null", "nested arguments", row.text([NESTED]),
        calls=[nested if id_ == "minimax_m3" else NESTED])
    case(id_, "null", "unicode and quotes", row.text([UNICODE]), calls=[UNICODE])
    case(id_, "null", "newlines in an argument", row.text([ESCAPED]), calls=[ESCAPED])
    unknown = row.text([("un.known-tool", {"a": "b"})])
    if id_ in BARE:
        case(id_, "null", "a tool that is not in the request", unknown, content=unknown)
    else:
        case(id_, "null", "a tool that is not in the request", unknown,
            calls=[("un.known-tool", {"a": "b"})])
    if row.leading:
        case(id_, "null", "text before", "Let me look.\n\n" + one, content="Let me look.",
            calls=[PARIS])
    if row.trailing and id_ not in ("functionary", "gemma"):
        case(id_, "null", "text after", one + "\n\nThere it is.", content="There it is.",
            calls=[PARIS])
    if row.leading and row.trailing and id_ != "gemma":
        case(id_, "null", "text before and after", "Before\n" + one + "\nafter",
            content="Before\nafter", calls=[PARIS])
    if id_ not in ("harmony",):
        case(id_, "null", "text only", " Hello, <b>world</b>! {\"a\": [1]} <|x|> </y>\n",
            content=" Hello, <b>world</b>! {\"a\": [1]} <|x|> </y>\n")
    if "Rome" in one.replace("Paris", "Rome"):
        at = one.index("Paris") + 3
        # Calls whose name precedes the arguments and whose arguments have begun were emitted.
        shown = {"harmony": '{"city": "Par', "muse": one[one.find("<atem"):at]}.get(id_, one[:at])
        case(id_, "null", "cut off inside an argument", one[:at], content=shown, broken=1)
        at = one.index("get_weather") + 5
        if id_ != "harmony":
            case(id_, "null", "cut off inside the name", one[:at], content=one[:at])

# ---- cases of one format

T, E = HERMES
case("hermes_json", "null", "broken: a comma too many", f'{T}{{"name": "f",, "arguments": {{}}}}{E}',
    content=f'{T}{{"name": "f",, "arguments": {{}}}}{E}')
case("hermes_json", "null", "broken behind the beginning of arguments",
    f'{T}{{"name": "f", "arguments": {{"a" 1}}}}{E} then {T}{{"name": "g", "arguments": {{}}}}{E}',
    content=f'{T}{{"name": "f", "arguments": {{"a" 1}}}}{E} then', calls=[("g", {})], broken=1)
case("hermes_json", "null", "no name", f'{T}{{"arguments": {{"a": 1}}}}{E}',
    content=f'{T}{{"arguments": {{"a": 1}}}}{E}')
case("hermes_json", "null", "an empty name", f'{T}{{"name": "", "arguments": {{}}}}{E}',
    content=f'{T}{{"name": "", "arguments": {{}}}}{E}')
case("hermes_json", "null", "arguments are a list", f'{T}{{"name": "f", "arguments": [1]}}{E}',
    content=f'{T}{{"name": "f", "arguments": [1]}}{E}')
case("hermes_json", "null", "the name comes last", f'{T}{{"arguments": {{"a": 1}}, "name": "f"}}{E}',
    calls=[("f", {"a": 1})])
case("hermes_json", "null", "arguments as a string", T + json.dumps({"name": "f",
    "arguments": json.dumps({"a": "é\n\"\\", "b": [1]})}) + E, calls=[("f", {"a": "é\n\"\\", "b": [1]})])
case("hermes_json", "null", "arguments as an empty string", T + '{"name": "f", "arguments": ""}' + E,
    calls=[("f", {})])
case("hermes_json", "null", "a string of arguments that is none",
    T + '{"name": "f", "arguments": "a=1"}' + E,
    content=T + '{"name": "f", "arguments": "a=1"}' + E)
case("hermes_json", "null", "arguments are null", T + '{"name": "f", "arguments": null}' + E,
    calls=[("f", {})])
case("hermes_json", "null", "arguments are absent", T + '{"name": "f"}' + E, calls=[("f", {})])
case("hermes_json", "null", "wrapped as in the interface", T + '{"type": "function", "function": '
    '{"name": "f", "arguments": "{\\"a\\": 1}"}, "id": [1, {"x": "}"}]}' + E, calls=[("f", {"a": 1})])
case("hermes_json", "null", "markers inside a string", T + compact({"name": "f",
    "arguments": {"a": MARKED}}) + E, calls=[("f", {"a": MARKED})])
case("hermes_json", "null", "escapes of every kind", T + '{"name": "f", "arguments": {"a": '
    '"\\u00e9\\ud83d\\ude00\\n\\t\\/\\\\\\""}}' + E, calls=[("f", {"a": "é😀\n\t/\\\""})])
case("hermes_json", "null", "half a surrogate pair", T + '{"name": "f", "arguments": {"a": '
    '"\\ud83dx\\udc00"}}' + E, calls=[("f", {"a": "\ufffdx\ufffd"})])
case("hermes_json", "null", "raw newlines in a string", T + '{"name": "f", "arguments": {"a": '
    '"x\ny\tz"}}' + E, calls=[("f", {"a": "x\ny\tz"})])
case("hermes_json", "null", "no end marker", T + '{"name": "f", "arguments": {}}', calls=[("f", {})])
case("hermes_json", "null", "no end marker, another call", T + '{"name": "f", "arguments": {}}\n' + T
    + '{"name": "g"}' + E, calls=[("f", {}), ("g", {})])
case("hermes_json", "null", "one brace too many", T + '{"name": "f", "arguments": {}}}' + E,
    content="}" + E, calls=[("f", {})])
case("hermes_json", "null", "a stray end marker", "a" + E + "b", content="a" + E + "b")
case("hermes_json", "null", "a marker in a marker", f"<tool_{E}call>x", content=f"<tool_{E}call>x")
case("hermes_json", "null", "a call in a broken call", T + '{"name": ' + T + '{"name": "g"}' + E,
    content=T + '{"name":', calls=[("g", {})])
case("hermes_json", "null", "an empty call", T + "\n" + E + "x", content=T + "\n" + E + "x")
case("hermes_json", "null", "markers in prose", f"Wrap it in {T} and {E} tags.",
    content=f"Wrap it in {T} and {E} tags.")
case("hermes_json", "null", "markers in code", f"```\n{T}\nname\n{E}\n```\n",
    content=f"```\n{T}\nname\n{E}\n```\n")
case("hermes_json", "null", "prose with a marker, then a call", f"I use {T}.\n" +
    ROWS["hermes_json"].text([PARIS]), content=f"I use {T}.", calls=[PARIS])
case("kimi_k2", "null", "a section without a call", f"a {KIMI[0]} {KIMI[1]} b",
    content=f"a {KIMI[0]} {KIMI[1]} b")
case("hermes_json", "null", "unterminated string swallows the marker",
    T + '{"name": "f", "arguments": {"a": "b}}' + E + " tail",
    content=T + '{"name": "f", "arguments": {"a": "b}}' + E + " tail", broken=1)
case("hermes_json", "null", "almost a marker", "a <tool_cal> <tool_call b", content="a <tool_cal> <tool_call b")
case("hermes_json", "null", "cut off inside a marker", "a <tool_cal", content="a <tool_cal")
case("hermes_json", "null", "a list in the tags", T + '[{"name": "f"}, {"name": "g"}]' + E,
    calls=[("f", {}), ("g", {})])
case("llama3_json", "null", "an answer that is JSON", '{"answer": 42, "name": "x"}',
    content='{"answer": 42, "name": "x"}')
case("llama3_json", "null", "behind the tag", '<|python_tag|>{"name": "f", "parameters": {"a": 1}}',
    calls=[("f", {"a": 1})])
NOW = ("now", {"a": 1})
NOW_TEXT = '{"name": "now", "parameters": {"a": 1}}'
llama = lambda name, text, **more: case("llama3_json", "null", name, text, **more)
llama("inside a sentence", f"See {NOW_TEXT} there.", content=f"See {NOW_TEXT} there.")
llama("after a sentence", f"I will check.\n\n{NOW_TEXT}", content="I will check.", calls=[NOW])
llama("after a sentence, on its line", f"I will check. {NOW_TEXT}", content="I will check.",
    calls=[NOW])
llama("after a colon", f"This is it: {NOW_TEXT}\nDone.", content="This is it: Done.", calls=[NOW])
llama("in a fence after a sentence", f"I will check.\n```json\n{NOW_TEXT}\n```",
    content="I will check.", calls=[NOW])
llama("in a fence, then a sentence", f"```\n{NOW_TEXT}\n```\nDone.", content="Done.", calls=[NOW])
llama("as a value of other JSON", '{"call": ' + NOW_TEXT + "}", content='{"call": ' + NOW_TEXT + "}")
llama("a list", f"[{NOW_TEXT}, {NOW_TEXT}]", calls=[NOW, NOW])
llama("without arguments", '{"name": "now"}', content='{"name": "now"}')
llama("a name that is no tool", '{"name": "Alice", "age": 3}', content='{"name": "Alice", "age": 3}')
llama("a name that is no tool, with parameters", '{"name": "Alice", "parameters": {}}',
    content='{"name": "Alice", "parameters": {}}')
llama("code after a sentence", "Like this:\n```python\nx = {1}\n```\n",
    content="Like this:\n```python\nx = {1}\n```\n")
llama("inline code", "Use `x`. `y` too.", content="Use `x`. `y` too.")
llama("two calls in lines", f"{NOW_TEXT}\n{NOW_TEXT}", calls=[NOW, NOW])
llama("blanks before", f"\n {NOW_TEXT}", calls=[NOW])
case("json", "null", "a list of numbers", "[1, 2]", content="[1, 2]")
FENCED = '```json\n[{"name": "now", "arguments": {"a": 1}}]\n```'
case("json", "null", "in a fence", FENCED, calls=[NOW])
case("json", "null", "in a fence, then text", FENCED + "\nDone.", content="Done.", calls=[NOW])
case("json", "null", "in a plain fence", '```\n{"name": "now", "arguments": null}\n```',
    calls=[("now", {})])
case("json", "null", "other things in fences", '```json\n{"x": 1}\n```', content='```json\n{"x": 1}\n```')
case("json", "null", "code in a fence", "```js\n[]\n```", content="```js\n[]\n```")
case("json", "null", "one object", '{"name": "now", "arguments": {"a": 1}}', calls=[NOW])
case("pythonic", "null", "a link", "[link](http://x)", content="[link](http://x)")
case("pythonic", "null", "after a sentence", "I look. [now(a=1)]", content="I look.", calls=[NOW])
case("pythonic", "null", "literals", "[now(a=None, b=[True, False,], c=(1, -2.5e3), d={'k': \"v\", 1: 2}, "
    "e='it\\'s \\x41\\u00e9\\n', g=\"\"\"t\"q\"\"\", h='', i=1_000, j=.5)]", calls=[("now", {"a": None,
    "b": [True, False], "c": [1, -2500.0], "d": {"k": "v", "1": 2}, "e": "it's Aé\n", "g": 't"q',
    "h": "", "i": 1000, "j": 0.5})])
case("pythonic", "null", "by position", "[get_weather('Paris', 3)]",
    calls=[("get_weather", {"city": "Paris", "days": 3})])
case("pythonic", "null", "code in an argument", "[now(a=open('x'))]",
    content="[now(a=open('x'))]", broken=1)
case("llama_python", "null", "call is no name", '<|python_tag|>brave_search.call(query="x")<|eom_id|>',
    calls=[("brave_search", {"query": "x"})])
case("llama_python", "null", "code", "<|python_tag|>x = 5\nprint(x)<|eom_id|>",
    content="<|python_tag|>x = 5\nprint(x)")
case("qwen3_coder", "null", "types of the schema", "<tool_call>\n" + qwen("typed", {"s": "5", "n": 5,
    "b": True, "o": {"a": 1}, "l": [1], "m": "null"}).replace("true", "True") + "\n</tool_call>",
    calls=[("typed", {"s": "5", "n": 5, "b": True, "o": {"a": 1}, "l": [1], "m": None})])
case("qwen3_coder", "null", "values that do not fit", qwen("typed", {"n": "five", "o": "{'a': 1}",
    "u": "5", "e": "7"}), calls=[("typed", {"n": "five", "o": {"a": 1}, "u": 5, "e": "7"})])
case("qwen3_coder", "null", "without the outer tag", qwen(*PARIS), calls=[PARIS])
case("qwen3_coder", "null", "without the inner end", "<tool_call>\n<function=now>\n</tool_call>",
    calls=[("now", {})])
case("qwen3_coder", "null", "newlines of the value itself", "<function=note><parameter=text>\n\n a\n\n"
    "</parameter></function>", calls=[("note", {"text": "\n a\n"})])
case("qwen3_coder", "null", "tags in a value", qwen("note", {"text": "<a></para></function>\n</p"}),
    calls=[("note", {"text": "<a></para></function>\n</p"})])
case("qwen3_coder", "null", "a newline of the value", "<function=note><parameter=text>line 1\n"
    "</parameter></function>", calls=[("note", {"text": "line 1\n"})])
UNCLOSED = "<tool_call>\n<function=get_weather>\n<parameter=city>\nDallas\n%s\n</tool_call>"
case("qwen3_coder", "null", "a value without end before the next", UNCLOSED %
    "<parameter=days>\n3\n</parameter>\n</function>", calls=[("get_weather", {"city": "Dallas",
    "days": 3})])
case("qwen3_coder", "null", "a value without end before the end", UNCLOSED % "</function>",
    calls=[("get_weather", {"city": "Dallas"})])
case("qwen3_coder", "null", "a value without end at the end", (UNCLOSED % "</function>")[:-13],
    calls=[("get_weather", {"city": "Dallas"})])
case("qwen3_coder", "null", "two calls, the first without end", UNCLOSED % "</function>" + "\n" +
    ROWS["qwen3_coder"].text([ROME]), calls=[("get_weather", {"city": "Dallas"}), ROME])
case("qwen3_coder", "null", "two calls without the outer tag", (UNCLOSED % "</function>")[12:-13] +
    "\n" + qwen(*ROME), calls=[("get_weather", {"city": "Dallas"}), ROME])
case("qwen3_coder", "null", "the tag of a parameter in a value", qwen("note", {"text":
    "a <parameter=other>\nb</parameter"}) , calls=[("note", {"text":
    "a <parameter=other>\nb</parameter"})])
case("qwen3_coder", "null", "both tags in a value", qwen("note", {"text":
    "a <parameter=x<parameter=y z></function> </function></"}), calls=[("note", {"text":
    "a <parameter=x<parameter=y z></function> </function></"})])
case("minimax_m2", "null", "a value without end", '<minimax:tool_call>\n<invoke name="get_weather">\n'
    '<parameter name="city">Dallas\n<parameter name="days">3\n</invoke>\n</minimax:tool_call>',
    calls=[("get_weather", {"city": "Dallas\n", "days": 3})])
case("seed_oss", "null", "a value without end", "<seed:tool_call>\n<function=get_weather>\n"
    "<parameter=city>\nDallas\n</function>\n</seed:tool_call>", calls=[("get_weather",
    {"city": "Dallas"})])
case("glm45", "null", "a value without end", "<tool_call>get_weather\n<arg_key>city</arg_key>\n"
    "<arg_value>Dallas<arg_key>days</arg_key><arg_value>3</tool_call>", calls=[("get_weather",
    {"city": "Dallas", "days": 3})])
case("glm45", "null", "a newline of the value", "<tool_call>note\n<arg_key>text</arg_key>\n"
    "<arg_value>line 1\n</arg_value>\n</tool_call>", calls=[("note", {"text": "line 1\n"})])
case("minimax_m2", "null", "a newline of the value", '<minimax:tool_call><invoke name="note">'
    '<parameter name="text">line 1\n</parameter></invoke></minimax:tool_call>',
    calls=[("note", {"text": "line 1\n"})])
case("seed_oss", "null", "a newline of the value", "<seed:tool_call><function=note><parameter=text>"
    "line 1\n</parameter></function></seed:tool_call>", calls=[("note", {"text": "line 1\n"})])
case("kimi_k2", "null", "blanks before the separators", "<|tool_calls_section_begin|>\n"
    "<|tool_call_begin|> functions.now:0 \n <|tool_call_argument_begin|> {\"a\": 1} <|tool_call_end|>"
    " <|tool_calls_section_end|>", calls=[NOW])
case("kimi_k2", "null", "blanks inside a name", "<|tool_call_begin|>functions.a b:0"
    "<|tool_call_argument_begin|>{}<|tool_call_end|>", content="<|tool_call_begin|>functions.a b:0"
    "<|tool_call_argument_begin|>{}<|tool_call_end|>")
case("glm45", "null", "two types", glm("\n")("typed", {"s": "1", "n": 1, "u": [1]}),
    calls=[("typed", {"s": "1", "n": 1, "u": [1]})])
case("glm4_xml", "null", "no arguments at all", "<tool_call><name>now</name></tool_call>",
    calls=[("now", {})])
case("mistral_v11", "null", "with an id", '[TOOL_CALLS]f[CALL_ID]abc[ARGS]{"a": 1}',
    calls=[("f", {"a": 1})])
case("mistral_v11", "null", "without ARGS", '[TOOL_CALLS]f{"a": 1}[TOOL_CALLS]g{}',
    calls=[("f", {"a": 1}), ("g", {})])
case("deepseek_v32", "null", "strings say so", f'<{DSML}tool_calls><{DSML}invoke name="f">'
    f'<{DSML}parameter name="a" string="true">5</{DSML}parameter><{DSML}parameter name="b" '
    f'string="false">5</{DSML}parameter></{DSML}invoke></{DSML}tool_calls>',
    calls=[("f", {"a": "5", "b": 5})])
case("minimax_m2", "null", "outside of a section", 'Write <invoke name="f"> here.',
    content='Write <invoke name="f"> here.')
case("granite", "null", "the older tag", '<function_call>{"name": "f", "arguments": {}}',
    calls=[("f", {})])
case("granite", "null", "the older tag in text", "a <function_call> tag",
    content="a <function_call> tag")
case("phi4", "null", "in text", "import functools\nfunctools.reduce(f)",
    content="import functools\nfunctools.reduce(f)")
case("phi4", "null", "as its prompt says", '<|tool_call|>[{"name": "f", "arguments": {}}]<|/tool_call|>',
    calls=[("f", {})])
case("functionary", "null", "text", "all\nHello >>> there\n", content="Hello >>> there\n")
case("functionary", "null", "text, then a call", 'all\nI look.\n>>>get_weather\n{"city": "Paris"}',
    content="I look.", calls=[PARIS])
case("gemma", "null", "fences of others", "```python\nx\n```", content="```python\nx\n```")
case("gemma4", "null", "quotes inside", '<|tool_call>call:f{a:<|"|>x "y" <|z<|"|>}<tool_call|>',
    calls=[("f", {"a": 'x "y" <|z'})])

case("lfm2", "null", "an object as JSON", "<|tool_call_start|>[plan(where={\"a\": true, \"b\": null}, "
    "name='x', on=False)]<|tool_call_end|>", calls=[("plan", {"where": {"a": True, "b": None},
    "name": "x", "on": False})])
case("gigachat3", "null", "after an answer", "I look.<|message_sep|>\n\n" +
    ROWS["gigachat3"].text([PARIS]), content="I look.", calls=[PARIS])
case("gigachat3", "null", "the older marker", "I look.<|function_call|>" + obj(*PARIS),
    content="I look.", calls=[PARIS])
case("gigachat3", "null", "its words in text", "A function call is this.",
    content="A function call is this.")
case("command_r_plus", "null", "its word in text", "Action: go.\nAction:\n- stop\n",
    content="Action: go.\nAction:\n- stop\n")
case("command_r_plus", "null", "after a plan", "I search.\n" + ROWS["command_r_plus"].text([PARIS]),
    content="I search.", calls=[PARIS])
case("command_r_plus", "null", "without a fence", 'Action: [{"tool_name": "now", "parameters": {"a": 1}}]',
    calls=[NOW])
case("xlam", "null", "after a sentence, in a fence", "I look.\n" + FENCED, content="I look.",
    calls=[NOW])
case("xlam", "null", "after a tag", '[TOOL_CALLS][{"name": "now", "arguments": {"a": 1}}]', calls=[NOW])
case("xlam", "null", "between tags", f'I look. {T}[{{"name": "now", "arguments": {{"a": 1}}}}]{E}',
    content="I look.", calls=[NOW])
case("hunyuan_v3", "null", "without the separator", "<tool_calls><tool_call>get_weather<arg_key>city"
    "</arg_key><arg_value>Paris</arg_value></tool_call></tool_calls>", calls=[PARIS])
case("hunyuan_v3", "null", "a value without end", "<tool_calls>\n<tool_call>get_weather<tool_sep>\n"
    "<arg_key>city</arg_key>\n<arg_value>Dallas</tool_call>\n</tool_calls>",
    calls=[("get_weather", {"city": "Dallas"})])
case("hunyuan_v4", "hunyuan", "thinking and a call", "<think:opensource>Hm.</think:opensource>" +
    ROWS["hunyuan_v4"].text([PARIS, ROME]), reasoning="Hm.", calls=[PARIS, ROME])
MINI = '<function name="note"><param name="text">%s</param></function>'
mini = lambda name, text, value: case("minicpm5", "null", name, MINI % text,
    calls=[("note", {"text": value})])
mini("a character section", "<![CDATA[\nif a < b: </param>\n]]>", "\nif a < b: </param>\n")
mini("a character section inside a value", "see <![CDATA[ here ]]>", "see <![CDATA[ here ]]>")
mini("the end of a character section in a value", "a[b[0]]>c", "a[b[0]]>c")
mini("an empty character section", "<![CDATA[]]>", "")
case("minicpm5", "null", "a number in a character section", '<function name="typed"><param name="n">'
    "<![CDATA[5]]></param><param name=\"s\"><![CDATA[5]]></param></function>",
    calls=[("typed", {"n": 5, "s": "5"})])
m3_case = lambda name, n, elements, **more: case("minimax_m3", "null", name, f'{M3}<tool_call>'
    f'{M3}<invoke name="{n}">{elements}{M3}</invoke>{M3}</tool_call>', **more)
m3_case("types of the schema", "typed", "".join(m3_element(k, v) for k, v in {"s": "5", "n": 5, "b": True,
    "l": [1, "a"], "e": "7"}.items()), calls=[("typed", {"s": "5", "n": 5, "b": True, "l": [1, "a"],
    "e": "7"})])
m3_case("empty containers", "typed", m3_element("o", {}) + m3_element("l", []) + m3_element("s", ""),
    calls=[("typed", {"o": {}, "l": [], "s": ""})])
m3_case("an array of the schema whose items have names", "typed", m3_element("l", {"entry": "a", "other":
    "b"}), calls=[("typed", {"l": ["a", "b"]})])
m3_case("an object of the schema with a member named item", "typed", m3_element("o", {"item": 1}),
    calls=[("typed", {"o": {"item": 1}})])
m3_case("containers without a schema", "f", m3_element("a", {"b": [{"c": "x"}, {"c": "y"}], "d": "z"}),
    calls=[("f", {"a": {"b": [{"c": "x"}, {"c": "y"}], "d": "z"}})])
m3_case("tags in a value", "note", m3_element("text", "<b>]<]</b> ]<]minimax[> x</text>"),
    calls=[("note", {"text": "<b>]<]</b> ]<]minimax[> x</text>"})])
m3_broken = lambda name, elements, **more: m3_case(name, "f", elements, broken=more.pop("broken", 1),
    content=f'{M3}<tool_call>{M3}<invoke name="f">{elements}{M3}</invoke>{M3}</tool_call>', **more)
m3_broken("text between elements", f"{m3_element('a', 1)} and {m3_element('b', 2)}")
m3_broken("text beside an element", f"{M3}<a>x{m3_element('b', 2)}{M3}</a>")
m3_broken("another end tag", f"{M3}<a>x{M3}</b>")
m3_broken("an element too deep", f"{M3}<a>" * 32 + f"{M3}</a>" * 32)
K3 = "<|open|>tools<|sep|>%s<|close|>tools<|sep|>"
case("kimi_k3", "null", "arguments as JSON", K3 % xtml("call", xtml("json", '{"a": 1}', type="object"),
    tool="now", index=1), calls=[NOW])
case("kimi_k3", "null", "types say so", K3 % xtml("call", xtml("argument", "5", key="a", type="string") +
    xtml("argument", "5", key="b", type="number"), tool="f", index=1), calls=[("f", {"a": "5", "b": 5})])
case("kimi_k3", "null", "no type, no index", K3 % xtml("call", xtml("argument", "5", key="s"),
    tool="typed"), calls=[("typed", {"s": "5"})])
case("kimi_k3", "kimi_k3", "thinking, an answer and a call", "Hm.<|close|>think<|sep|>" +
    xtml("response", "I look.") + ROWS["kimi_k3"].text([PARIS, ROME]) + "<|close|>message<|sep|>",
    start="thinking", content="I look.", reasoning="Hm.", calls=[PARIS, ROME])
case("kimi_k3", "kimi_k3", "an answer", xtml("response", "Yes.") + "<|close|>message<|sep|>",
    content="Yes.")
case("kimi_k3", "kimi_k3", "a call ends the thinking", "Hm." + ROWS["kimi_k3"].text([PARIS]),
    start="thinking", reasoning="Hm.", calls=[PARIS])
MUSE = "<|eom|><|start|>assistant"
MUSE_END = "<|message|>Yes.<|eot|>"
case("muse", "muse", "thinking and a call", " to=self<|message|>Hm." + MUSE +
    ROWS["muse"].text([PARIS, ROME]), reasoning="Hm.", calls=[PARIS, ROME])
case("muse", "muse", "thinking and an answer", " to=self<|message|>Hm." + MUSE + " to=user" + MUSE_END,
    content="Yes.", reasoning="Hm.")
case("muse", "muse", "only an answer", " to=user" + MUSE_END, content="Yes.")
case("muse", "muse", "no recipient", MUSE_END, content="Yes.")
case("muse", "muse", "a call after thinking without end", " to=self<|message|>Hm.<|start|>assistant" +
    ROWS["muse"].text([PARIS]), reasoning="Hm.", calls=[PARIS])
case("muse", "muse", "no header", "to be or not to be", content="to be or not to be")
case("null", "muse", "thinking and an answer", " to=self<|message|>Hm." + MUSE + " to=user" + MUSE_END,
    content="Yes.", reasoning="Hm.")
case("null", "muse", "only an answer", " to=user" + MUSE_END, content="Yes.")

H = "<|start|>assistant"
case("harmony", "harmony", "thinking and an answer",
    f"<|channel|>analysis<|message|>I think.<|end|>{H}<|channel|>final<|message|>Hello.<|return|>",
    content="Hello.", reasoning="I think.")
case("harmony", "harmony", "thinking and a call", "<|channel|>analysis<|message|>I think.<|end|>" + H +
    ROWS["harmony"].text([PARIS]), reasoning="I think.", calls=[PARIS])
case("harmony", "harmony", "the recipient in front", " to=functions.get_weather<|channel|>commentary json"
    '<|message|>{"city": "Paris"}<|call|>', calls=[PARIS])
case("harmony", "harmony", "a preamble", f"<|channel|>commentary<|message|>I will look.<|end|>{H}" +
    ROWS["harmony"].text([PARIS]), content="I will look.", calls=[PARIS])
case("harmony", "harmony", "two thoughts", f"<|channel|>analysis<|message|>One.<|end|>{H}<|channel|>"
    f"analysis<|message|>Two.<|end|>{H}<|channel|>final<|message|>Done.", content="Done.",
    reasoning="One.\nTwo.")
case("harmony", "harmony", "no channels", "to be or not to be", content="to be or not to be")
case("harmony", "harmony", "cut off in a header", "<|channel|>analysis<|message|>Hm.<|end|>" + H +
    "<|channel|>fin", reasoning="Hm.")
case("harmony", "harmony", "code for a tool of its own",
    "<|channel|>commentary to=python<|message|>print(1)<|call|>", content="print(1)")
case("harmony", "null", "thinking that nobody wants apart",
    f"<|channel|>analysis<|message|>Hm.<|end|>{H}<|channel|>final<|message|>Yes.", content="Hm.\nYes.")
case("null", "harmony", "no calls are wanted", "<|channel|>analysis<|message|>Hm.<|end|>" + H +
    '<|channel|>commentary to=functions.f<|message|>{"a":1}<|call|>', content='{"a":1}',
    reasoning="Hm.")
case("null", "null", "nothing is looked for", f"<think>a</think> {T}{{}}{E}\n",
    content=f"<think>a</think> {T}{{}}{E}\n")
case("null", "null", "nothing at all", "")

# ---- reasoning

THINK = {
    "think_tag": ("<think>", "</think>"), "deepseek_r1": ("<think>", "</think>"),
    "deepseek_v3": ("<think>", "</think>"), "mistral": ("[THINK]", "[/THINK]"),
    "granite": ("<think>", "</think>"), "seed_oss": ("<seed:think>", "</seed:think>"),
    "minimax_m2": ("<think>", "</think>"), "gemma4": ("<|channel>thought\n", "<channel|>"),
    "nemotron": ("<think>", "</think>"), "command_r": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "kimi_k2": ("\u25c1think\u25b7", "\u25c1/think\u25b7"), "hunyuan": ("<think>", "</think>"),
    "exaone": ("<thought>", "</thought>"), "apertus": ("<|inner_prefix|>", "<|inner_suffix|>"),
    "kimi_k3": ("<|open|>think<|sep|>", "<|close|>think<|sep|>"), "ernie45": ("<think>", "</think>"),
    "apriel": ("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
}
for id_, (a, b) in THINK.items():
    t = lambda name, *args, **more: case("null", id_, name, *args, start=more.pop("start", "content"),
        **more)
    t("thinking, then an answer", f"{a}\nHm, 2 < 3.\n{b}\n\nYes.", content="Yes.", reasoning="Hm, 2 < 3.")
    t("nothing thought", f"{a}\n\n{b}\n\nYes.", content="Yes.")
    t("the prompt began it", f"Hm.\n{b}\n\nYes.", content="Yes.", reasoning="Hm.", start="thinking")
    t("never ends", f"{a}Hm. é", reasoning="Hm. é")
    t("twice", f"{a}One.{b}\n{a}Two.{b}\nB", content="B", reasoning="One.\nTwo.")
    t("after text", f"{a}One.{b}A\n{a}Two.{b}\nB", content=f"A\n{a}Two.{b}\nB", reasoning="One.")
    t("text before", f"Well. {a}Hm.{b} Yes.", content=f"Well. {a}Hm.{b} Yes.")
    t("the marker in prose", f"Use `{a}` and `{b}`.", content=f"Use `{a}` and `{b}`.")
    t("nested", f"{a}x{a}y{b}z", content="z", reasoning=f"x{a}y")
    t("begun twice", f"{a}\n{a}x{b}y", content="y", reasoning="x")
    t("a stray end", f"x{b}y", content=f"x{b}y")
    t("cut off in the end marker", f"{a}x{b[:-1]}", reasoning="x" + b[:-1])
    t("no thinking", " Just <b>text</b>.\n", content=" Just <b>text</b>.\n")
    t("a marker in a marker", f"{a[:3]}{b}{a[3:]}x", content=f"{a[:3]}{b}{a[3:]}x")

t = lambda name, text, **more: case("hermes_json", more.pop("thinking", "think_tag"), name, text, **more)
t("thinking, then a call", f'<think>\nHm.\n</think>\n\n{T}\n{{"name": "f"}}\n{E}', reasoning="Hm.",
    calls=[("f", {})])
t("a call that is only thought of", f'<think>I could {T}{{"name": "f"}}{E}</think>No.',
    content="No.", reasoning=f'I could {T}{{"name": "f"}}{E}')
t("thinking inside an argument", f'{T}{{"name": "f", "arguments": {{"a": "<think>"}}}}{E}',
    calls=[("f", {"a": "<think>"})])
t("text between", f'<think>a</think>B{T}{{"name": "f"}}{E}C<think>d</think>E',
    content="BC<think>d</think>E", reasoning="a", calls=[("f", {})])
t("thinking after a call", f'<think>a</think>{T}{{"name": "f"}}{E}<think>d</think>E', content="E",
    reasoning="a\nd", calls=[("f", {})])
for id_, (a, b) in THINK.items():
    if id_ == "granite" or id_ == "exaone":
        continue # models without tools in this form
    t("a call at the end of open thinking", f'{a}I look.\n{T}\n{{"name": "now", "arguments": {{}}}}\n{E}',
        thinking=id_, reasoning="I look.", calls=[("now", {})])
t("two calls at the end of open thinking", f'<think>I look.{T}{{"name": "now"}}{E}\n{T}{{"name": "now"}}',
    reasoning="I look.", calls=[("now", {}), ("now", {})])
t("a call in open thinking, then more", f'<think>Like {T}{{"name": "now"}}{E} or so.',
    reasoning=f'Like {T}{{"name": "now"}}{E} or so.')
t("a call of an unknown tool in open thinking", f'<think>Hm.{T}{{"name": "f"}}{E}',
    reasoning=f'Hm.{T}{{"name": "f"}}{E}')
t("a cut call in open thinking", f'<think>Hm.{T}{{"name": "now", "arguments": {{"a": "',
    reasoning=f'Hm.{T}{{"name": "now", "arguments": {{"a": "')
t("an open string in thinking", f'<think>Hm.{T}{{"name": "now</think>Yes. {T}{{"name": "now"}}{E}',
    reasoning=f'Hm.{T}{{"name": "now', content="Yes.", calls=[("now", {})])
t("an argument with the end marker in open thinking",
    f'<think>Hm.{T}{{"name": "now", "arguments": {{"a": "</think>"}}}}{E}', reasoning="Hm.",
    calls=[("now", {"a": "</think>"})])
case("qwen3_coder", "think_tag", "a call at the end of open thinking", "<think>Hm.\n" +
    ROWS["qwen3_coder"].text([PARIS]), reasoning="Hm.", calls=[PARIS])
t("a call ends the thinking", f'Hm.{T}{{"name": "f"}}{E}', thinking="deepseek_v3", start="thinking",
    reasoning="Hm.", calls=[("f", {})])
case("minimax_m2", "minimax_m2", "a call ends the thinking", "Hm.\n" + ROWS["minimax_m2"].text([PARIS]),
    reasoning="Hm.", calls=[PARIS])
case("null", "deepseek_r1", "begins inside", "Hm.</think>Yes.", content="Yes.", reasoning="Hm.")
case("null", "minimax_m2", "the newer tag", "Hm.</mm:think>Yes.", content="Yes.", reasoning="Hm.")
case("null", "granite", "in words", "Here is my thought process: Hm. Here is my response: Yes.",
    content="Yes.", reasoning="Hm.")
case("null", "granite", "response tags", "<think>Hm.</think><response>Yes.</response>", content="Yes.",
    reasoning="Hm.")
case("null", "hunyuan", "tags with a suffix", "<think:opensource>Hm.</think:opensource>Yes.",
    content="Yes.", reasoning="Hm.")
case("null", "ernie45", "a response", "Hm.\n</think>\n\n<response>\nYes.\n</response>\n",
    content="Yes.", reasoning="Hm.")
case("hermes_json", "ernie45", "thinking and a call", "Hm.\n</think>\n\n" +
    ROWS["hermes_json"].text([PARIS]), reasoning="Hm.", calls=[PARIS])
case("null", "apriel", "begins inside", "First, a step.\n[BEGIN FINAL RESPONSE]\nYes.\n[END FINAL RESPONSE]",
    content="Yes.", reasoning="First, a step.")
case("jamba", "apriel", "thinking and a call", "A step.\n[BEGIN FINAL RESPONSE]\n" +
    ROWS["jamba"].text([PARIS]), reasoning="A step.", calls=[PARIS])
case("null", "hunyuan", "answer tags", "<think>\nHm.\n</think>\n<answer>\nYes.\n</answer>",
    content="Yes.", reasoning="Hm.")
case("command_r", "command_r", "thinking and a call", "<|START_THINKING|>Hm.<|END_THINKING|>" +
    ROWS["command_r"].text([PARIS]), reasoning="Hm.", calls=[PARIS])
case("command_r", "command_r", "a response", "<|START_RESPONSE|>Hi.<|END_RESPONSE|>", content="Hi.")
case("kimi_k2", "kimi_k2", "thinking and a call", "<think>Hm." + ROWS["kimi_k2"].text([PARIS]),
    reasoning="Hm.", calls=[PARIS])
case("gemma4", "gemma4", "thinking and a call", "<|channel>thought\nHm.\n<channel|>" +
    ROWS["gemma4"].text([PARIS]), reasoning="Hm.", calls=[PARIS])

print("# Written by tests/golden/parser_cases.py, which describes the format of a case.\n")
print("\n".join(out))
