"""Conversations and template snippets for test_templates.py: data, no logic."""

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Get the weather\nin a city, \"now\".",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": " The city, e.g. Zürich "},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
            "days": {"type": "integer", "description": "How many", "minimum": 1, "default": 3},
            "tags": {"type": "array", "items": {"type": "string"}, "description": "tags"}},
            "required": ["city"]}}},
    {"type": "function", "function": {
        "name": "search", "description": "Search <b>&amp;</b> the web 日本",
        "parameters": {"type": "object", "properties": {
            "query": {"type": "string", "description": "What"},
            "filter": {"type": "object", "description": "f", "properties": {
                "max": {"type": "number", "description": "m"},
                "nested": {"type": "array", "items": {"type": "object", "properties": {}}}}},
            "either": {"oneOf": [{"type": "string", "description": "s", "default": "x"},
                                 {"type": "integer"}], "description": "o", "default": "a"},
            "any": {"type": ["string", "null"], "description": "n", "nullable": True},
            "flag": {"type": "boolean", "description": "b", "default": False}},
            "required": ["query", "filter"], "additionalProperties": False},
        "strict": True, "return": {"type": "string", "description": "text"}}},
]
SIMPLE_TOOL = [{"type": "function", "function": {
    "name": "now", "description": "The time.",
    "parameters": {"type": "object", "properties": {}, "required": []}}}]
BIG_NUMBERS = [{"type": "function", "function": {
    "name": "n", "description": "d", "parameters": {"type": "object", "properties": {
        "x": {"type": "integer", "description": "x", "maximum": 18446744073709551615,
              "minimum": -9223372036854775808, "multipleOf": 0.1, "const": 1e22},
        "y": {"type": "number", "description": "y", "maximum": 1.0, "minimum": -1.5e-7,
              "default": 100000000000000000.0}}}}}]


def user(text, **more):
    return {"role": "user", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(name, arguments, id="abc123def"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(text, id="abc123def", **more):
    return {"role": "tool", "content": text, "tool_call_id": id, **more}


def text_part(text):
    return {"type": "text", "text": text}


UNICODE = "Grüße, 世界! 🦙\u00a0\u2028 ñ \u200b'\"\\ \t<|im_end|> [INST] </s>"

CONVERSATIONS = {
    "hello": [user("Hello")],
    "system": [system("You are terse."), user("Hello")],
    "system with blanks": [system("  You are terse. \n"), user("\n Hello \t\n")],
    "turns": [user("Hi"), assistant("Hello!"), user("How are you?")],
    "system and turns": [system("Be kind."), user("a"), assistant("b"), user("c"), assistant("d"),
                         user("e")],
    "ends with assistant": [user("Hi"), assistant("Hello!")],
    "ends with system": [user("Hi"), system("Stop.")],
    "unicode": [system(UNICODE), user(UNICODE), assistant(UNICODE), user(UNICODE)],
    "empty content": [user("")],
    "empty everything": [system(""), user(""), assistant(""), user("")],
    "null content": [user("x"), assistant(None), user("y")],
    "two users": [user("a"), user("b")],
    "two systems": [system("a"), system("b"), user("c")],
    "assistant first": [assistant("a"), user("b")],
    "developer": [{"role": "developer", "content": "Be brief."}, user("Hi")],
    "parts": [user([text_part("one"), text_part("two")])],
    "parts everywhere": [system([text_part("sys")]), user([text_part("u")]),
                         assistant([text_part("a")]), user([text_part("v")])],
    "image": [user([text_part("what is this"),
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}])],
    "no parts": [user([])],
    "thinking in content": [user("q"), assistant("<think>\nI think\n</think>\n\nanswer"), user("r")],
    "thinking twice": [user("q"), assistant("<think>a</think>b</think>c"), user("r"),
                       assistant("<think>d</think>\n\ne")],
    "reasoning": [user("q"), assistant("answer", reasoning_content="\nI think \n"), user("r")],
    "reasoning last": [user("q"), assistant("answer", reasoning_content="I think")],
    "thinking member": [user("q"), assistant("answer", thinking="I think")],
    "names": [user("hi", name="bob"), assistant("hello", name="alice"), user("bye", name="bob")],
    "call": [user("w?"), assistant(None, tool_calls=[call("get_weather", {"city": "Bern"})]),
             tool("sunny, 21°C")],
    "call and text": [user("w?"), assistant("Let me see.", tool_calls=[
        call("get_weather", {"city": "Zürich", "days": 2, "tags": ["a", "b"]})]),
        tool('{"t": 21.5, "sky": "clear"}'), assistant("It is 21.5."), user("Thanks")],
    "call with empty text": [user("w?"), assistant("", tool_calls=[call("search", {
        "query": "a \"b\" <c>", "filter": {"max": 1.0, "nested": [None, True, 1e-7]}})]),
        tool("none", name="search"), assistant("Nothing.")],
    "call without content": [user("w?"), {"role": "assistant", "tool_calls": [
        call("get_weather", {"city": "Bern"})]}, tool("ok")],
    "parallel calls": [system("s"), user("w?"), assistant("", tool_calls=[
        call("get_weather", {"city": "Bern"}, "aaaaaaaa1"),
        call("get_weather", {"city": "Rom", "days": 0}, "aaaaaaaa2")]),
        tool("sun", "aaaaaaaa1", name="get_weather"), tool("rain", "aaaaaaaa2", name="get_weather"),
        assistant("Sun, rain.")],
    "calls in a row": [user("w?"), assistant("", tool_calls=[call("search", {"query": "x"}, "111111111")]),
                       tool("1", "111111111"),
                       assistant("", tool_calls=[call("search", {"query": "y"}, "222222222")]),
                       tool("2", "222222222"), user("and?")],
    "call without arguments": [user("t?"), assistant("", tool_calls=[call("now", {})]), tool("12:00")],
    "call with text arguments": [user("t?"), assistant("", tool_calls=[call("now", "not JSON")]),
                                 tool("12:00")],
    "call and reasoning": [user("w?"), assistant("", reasoning_content="Look it up.", tool_calls=[
        call("get_weather", {"city": "Bern"})]), tool("sun"),
        assistant("Sunny", reasoning_content="Done.")],
    "long id": [user("w?"), assistant("", tool_calls=[
        call("get_weather", {"city": "Bern"}, "call_0123456789")]), tool("sun", "call_0123456789")],
    "no calls": [user("w?"), assistant("x", tool_calls=[]), user("y")],
    "tool parts": [user("w?"), assistant("", tool_calls=[call("get_weather", {"city": "Bern"})]),
                   tool([text_part("sun"), text_part("rain")])],
    "tool without call": [user("w?"), tool("sun")],
    "function role": [user("w?"), {"role": "function", "name": "f", "content": "r"}],
    "long": [system("S")] + [m for i in range(12) for m in
                            (user(f"question {i}"), assistant(f"answer {i}"))] + [user("last")],
    "newlines": [user("a\r\nb\rc\n\n"), assistant("\n\nx\n"), user(" ")],
    "braces": [user("{{ 7 * 7 }} {% raw %} {# no #}"), assistant("{%- endif %}"), user("}}")],
    "nothink": [user("hi /no_think"), assistant("<think>\n\n</think>\n\nhello"), user("bye /nothink")],
    "harmony tags": [user("hi"), assistant("<|channel|>final<|message|>x"), user("y")],
    "tool response as user": [user("q"), assistant("a"),
                              user("<tool_response>r</tool_response>")],
}

# name, tools, keyword arguments, add_generation_prompt
SETTINGS = [
    ("plain", None, {}, True),
    ("no prompt", None, {}, False),
    ("tools", TOOLS, {}, True),
    ("one tool", SIMPLE_TOOL, {"enable_thinking": False}, True),
    ("thinking", None, {"enable_thinking": True, "thinking": True, "clear_thinking": False}, True),
    ("effort", BIG_NUMBERS, {"reasoning_effort": "high", "model_identity": "You are X.",
                             "builtin_tools": ["browser", "python", "code_interpreter"],
                             "date_string": "1 Jan 2020", "tools_in_user_message": False}, False),
    ("documents", SIMPLE_TOOL, {"documents": [{"doc_id": 1, "text": "t", "title": "T"},
                                             {"doc_id": "b", "text": "ü"}],
                                "controls": {"citations": True, "length": "long"},
                                "enable_citations": True}, True),
]

CONTEXT = {
    "i": 7, "f": 2.5, "s": "Hello World", "e": "", "n": None, "t": True, "u": "Straße ÉTÉ ΑΣ",
    "l": [3, 1, 2], "m": [{"a": 1, "b": "x"}, {"a": 2}, {"a": 1, "b": None}],
    "d": {"k": "v", "b": [1, {"c": None}], "A": 1.5, "items": "shadow"}, "nl": "a\nb\n\nc  ",
    "sp": "  x  y ", "words": ["b", "A", "c", "B"], "html": "<a href=\"x\">'&'</a>",
    "nested": {"x": {"y": [10, 20, {"z": "deep"}]}}, "big": 12345678901234567890,
    "floats": [0.1, 1e16, 1e-5, 123456789.125, 1e22, 3.0, -0.0, 0.0001, 1.5e300],
}

SNIPPETS = r"""
{{ i }}|{{ f }}|{{ s }}|{{ n }}|{{ t }}|{{ l }}|{{ d }}|{{ missing }}|{{ big }}
{{ floats }} {{ floats|tojson }} {{ floats|join(' ') }}
{{ i + 1 }} {{ i - 10 }} {{ i * f }} {{ i / 2 }} {{ i // 2 }} {{ -i // 2 }} {{ i % 3 }} {{ -i % 3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}
{{ 1 + 2 * 3 - 4 / 2 }} {{ (1 + 2) * 3 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ +i }} {{ 10 - 3 - 2 }}
{{ 'a' ~ 1 ~ none ~ true ~ 2.0 ~ [1] }} {{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ [1] * 2 }} {{ [1] + [2, 'x'] }} {{ (1,) + (2,) }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 'a' + 1 }}
{{ s + n }}
{{ missing + 'x' }}
{{ 'x' + missing }}
{{ missing.x }}
{{ missing[0] }}
{{ missing() }}
{{ missing[1:] }}
{{ d.nothing }}|{{ d['nothing'] }}|{{ n.x }}|{{ i.x }}|{{ s.x }}|{{ l.x }}|{{ l[10] }}|{{ l['a'] }}|{{ s[100] }}|{{ l[1.0] }}
{{ d.nothing.x }}
{{ d.k }} {{ d['k'] }} {{ d.b[1].c }} {{ nested.x.y[2].z }} {{ nested['x']['y'][-1]['z'] }} {{ d.items is defined }} {{ d['items'] }} {{ m.0.a }}
{{ d['values'] is defined }} {{ d['zzz'] is defined }} {{ {}['items'] is defined }} {{ {}['items']['type'] is defined }}
{{ l[0] }} {{ l[-1] }} {{ l[1:] }} {{ l[:-1] }} {{ l[::-1] }} {{ l[::2] }} {{ l[5:] }} {{ l[-100:2] }} {{ l[2:0:-1] }} {{ l[:] }} {{ s[0] }} {{ s[-1] }} {{ s[1:4] }} {{ s[::-1] }} {{ s[::3] }} {{ s[-3:] }} {{ u[4:6] }} {{ u[::-1] }} {{ (1,2,3)[1:] }}
{{ l[::0] }}
{{ l[n:n] }}
{{ l['a':] is defined }}
{{ i[1:] is defined }}
{{ d[1:] }}
{{ n[1:] }}
{{ 1 < 2 }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ 1 == 1.0 }} {{ true == 1 }} {{ none == false }} {{ [1, 2] == [1, 2] }} {{ {'a': 1} == {'a': 1.0} }} {{ (1, 2) == [1, 2] }} {{ 'a' != 'b' }} {{ [1, 2] < [1, 3] }}
{{ 1 < 'a' }}
{{ n < 1 }}
{{ missing < 1 }}
{{ missing == missing2 }} {{ missing == none }} {{ missing != 1 }}
{{ 1 in l }} {{ 9 not in l }} {{ 'W' in s }} {{ 'k' in d }} {{ 'v' in d }} {{ 'x' in missing }} {{ '' in s }} {{ 1 in (1, 2) }} {{ 'a' in ['a'] }}
{{ 1 in s }}
{{ 1 in i }}
{{ 'a' in n }}
{{ [1] in d }}
{{ t and 'x' }} {{ n or 'y' }} {{ e or n or 'z' }} {{ not t }} {{ not e }} {{ t and n }} {{ not not i }} {{ missing or 'd' }} {{ 1 and 2 and 3 }}
{{ 'yes' if t else 'no' }} {{ 'yes' if e else 'no' }} {{ 'yes' if e }} {{ 1 if t else 2 if n else 3 }} {{ 1 if n else 2 if n else 3 }} {{ ('a' if e) is defined }}
{{ [1, 'a', none, true, 2.0, [], {}, (), (1,), {'a': 'b'}] }}
{{ {'a': 1, 'b': [2], 1: 2, none: 3, true: 4, (1, 2): 5} }}
{{ ['it\'s', "say \"hi\"", 'both \' and "', 'back\\slash', 'new\nline', 'tab\t', 'é', '\x01', '\u200b', '🦙', '\x7f', '\u00a0'] }}
{{ [missing] }}
{{ d|tojson }} {{ d|tojson(indent=2) }} {{ [1, 'é', '<&>', none, true, 1.5, "q\"\\\n\x01"]|tojson }} {{ 'é🦙'|tojson(ensure_ascii=true) }} {{ {}|tojson(indent=4) }} {{ []|tojson(indent=4) }} {{ [[], {}]|tojson(indent=1) }}
{{ d|tojson(separators=(',', ':')) }} {{ {'b': 1, 'a': {'d': 1, 'c': 2}}|tojson(sort_keys=true) }} {{ d|tojson(indent='--') }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }} {{ (1, 2)|tojson }} {{ d|tojson(false, 2) }} {{ [1]|tojson(indent=0) }}
{{ missing|tojson }}
{{ range(3)|tojson }}
{{ {(1, 2): 3}|tojson }}
{{ s|upper }} {{ s|lower }} {{ u|upper }} {{ u|lower }} {{ u|title }} {{ 'hello wORLD-foo (bar)'|title }} {{ 'hELLO'|capitalize }} {{ 'ǆ ŉ ﬁ İ'|upper }} {{ 'ǆ ŉ ﬁ İ'|capitalize }} {{ 'İΣ'|lower }}
{{ u.upper() }} {{ u.lower() }} {{ "they're bill's 3rd".title() }} {{ u.swapcase() }} {{ u.capitalize() }}
{{ 'ΑΣ ΑΣΑ Σ'.lower() }} {{ 'ΑΣ.'.lower() }}
[{{ sp|trim }}] [{{ sp.strip() }}] [{{ sp.lstrip() }}] [{{ sp.rstrip() }}] [{{ 'xxaxx'.strip('x') }}] [{{ 'xyaxy'|trim('xy') }}] [{{ n|trim }}] [{{ i|trim }}] [{{ missing|trim }}] [{{ '\u00a0\u2003a\x1c'.strip() }}] [{{ 'ééaé'.strip('é') }}]
{{ s.split() }} {{ s.split('o') }} {{ s.split('o', 1) }} {{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ ' a  b c '.split(none, 1) }} {{ 'a b c'.rsplit(' ', 1) }} {{ ' a b  c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ ' a b '.split(none, 5) }} {{ ' a b '.split(none, 0) }} {{ ' a b '.rsplit(none, 0) }} {{ ' a b '.rsplit(none, 2) }} {{ 'abc'.split(sep='b', maxsplit=1) }} {{ 'abcbd'.rsplit('b') }}
{{ 'a'.split('') }}
{{ nl.splitlines() }} {{ 'a\r\nb\rc\x0bd\u2028e'.splitlines() }} {{ 'a\nb\n'.splitlines(true) }} {{ ''.splitlines() }}
{{ s.startswith('He') }} {{ s.endswith('ld') }} {{ s.startswith(('x', 'He')) }} {{ s.startswith('l', 2) }} {{ s.endswith('l', 0, 4) }} {{ s.startswith('') }} {{ 'abc'.startswith('', 4) }}
{{ s.startswith(1) }}
{{ s.replace('o', '0') }} {{ s.replace('o', '0', 1) }} {{ 'abc'.replace('', '-') }} {{ 'abc'.replace('', '-', 2) }} {{ s|replace('l', 'L') }} {{ 123|replace('2', 'x') }} {{ 'aaa'|replace('a', 'b', 2) }} {{ 'aaa'.replace('aa', 'b') }}
{{ s.find('o') }} {{ s.find('zz') }} {{ s.rfind('o') }} {{ s.index('W') }} {{ s.count('l') }} {{ 'aaaa'.count('aa') }} {{ 'abc'.count('') }} {{ u.find('É') }} {{ s.find('o', 5) }} {{ s.find('o', 5, 6) }} {{ 'é'.find('') }}
{{ s.index('zz') }}
{{ ', '.join(['a', 'b']) }} {{ '-'.join('abc') }}
{{ ', '.join([1]) }}
{{ 'abc'.center(9, '*') }} {{ 'abc'.ljust(5) }}| {{ 'abc'.rjust(5, '.') }} {{ '42'.zfill(5) }} {{ '-42'.zfill(5) }} {{ 'abc'.center(6) }}| {{ 'abcd'.center(7, '*') }} {{ 'ab'|center(6) }}|
{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('=') }} {{ 'abc'.rpartition('=') }} {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }}
{{ '12'.isdigit() }} {{ 'ab'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ ''.isspace() }} {{ 'AB'.isupper() }} {{ 'ab1'.islower() }} {{ '1'.isupper() }} {{ 'é'.isascii() }} {{ '½'.isnumeric() }} {{ '²'.isdigit() }} {{ '²'.isdecimal() }}
{{ '%s is %d years, %.2f%% %5s|%-5s|%05d %x %r' % ('Bob', 42, 1.5, 'a', 'b', 42, 255, 'q') }} {{ '%s' % 'x' }} {{ '%s' % [1] }} {{ '%(a)s' % {'a': 1} }} {{ '%s, %s!'|format('Hi', 'Bob') }} {{ '%(x)s'|format(x=5) }} {{ '%+d' % 5 }} {{ '%5.1f|' % 3.14159 }} {{ '%e' % 12345.678 }} {{ '%g' % 0.0001 }} {{ '%s' % none }}
{{ '%d' % 'x' }}
{{ '%s %s' % ('a',) }}
{{ '%s' % ('a', 'b') }}
{{ '{} {}'.format('a', 1) }} {{ '{1} {0}'.format('a', 'b') }} {{ '{x} {y.k}'.format(x=1, y=d) }} {{ '{{}} {:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd') }} {{ '{:.2f} {:05d} {:,} {:x} {:+d} {:.1%}'.format(3.14159, 42, 1234567, 255, 5, 0.25) }} {{ '{!r}'.format('a') }} {{ '{0[1]}'.format(l) }} {{ '{:.3}'.format('abcdef') }} {{ '{:d}'.format(3) }} {{ '{:>8.2f}|'.format(2.5) }}
{{ '{}'.format() }}
{{ '{x}'.format() }}
{{ '{'.format() }}
{{ l|length }} {{ s|length }} {{ u|length }} {{ d|length }} {{ missing|length }} {{ l|count }} {{ ()|length }}
{{ i|length }}
{{ n|length }}
{{ l|sort }} {{ l|sort(reverse=true) }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ m|sort(attribute='a') }} {{ l|sort|first }} {{ 'hello'|sort|join }} {{ l }}
{{ [1, 'a']|sort }}
{{ l|first }} {{ l|last }} {{ ''|first }} {{ []|last }} {{ s|first }} {{ s|last }} {{ d|first }}
{{ l|join(', ') }} {{ l|join }} {{ m|join('-', attribute='a') }} {{ s|join('.') }} {{ d|join(',') }} {{ [none, true, 1.5]|join('|') }} {{ [missing, 1]|join(',') }}
{{ i|join }}
{{ l|max }} {{ l|min }} {{ words|max }} {{ words|min }} {{ []|max }} {{ m|max(attribute='a') }} {{ l|sum }} {{ m|sum(attribute='a') }} {{ l|sum(start=10) }} {{ words|min(case_sensitive=true) }}
{{ ['a']|sum }}
{{ [1, 1.0, 2, 'a', 'A', true]|unique|list }} {{ words|unique|list }} {{ ['a', 'A']|unique(case_sensitive=true)|list }} {{ m|unique(attribute='a')|list }}
{{ l|reverse|list }} {{ s|reverse }} {{ l|list }} {{ s|list }} {{ d|list }} {{ u|list }} {{ (1, 2)|list }} {{ missing|list }}
{{ m|map(attribute='a')|list }} {{ m|map(attribute='b')|list }} {{ m|map(attribute='b', default='?')|list }} {{ words|map('upper')|list }} {{ words|map('replace', 'b', 'x')|join(',') }} {{ []|map('upper')|list }} {{ [nested]|map(attribute='x.y.2.z')|list }} {{ n|map('upper')|list }}
{{ l|select('odd')|list }} {{ l|reject('odd')|list }} {{ l|select('gt', 1)|list }} {{ [0, 1, none, 'a']|select|list }} {{ m|selectattr('b')|list }} {{ m|selectattr('a', 'equalto', 1)|list }} {{ m|rejectattr('b', 'none')|list }} {{ m|selectattr('b', 'defined')|list|length }} {{ m|selectattr('a', '==', 2)|map(attribute='a')|first }} {{ l|select('in', [1, 2])|list }} {{ m|rejectattr('b')|list }} {{ words|select('string')|list }}
{{ d|items|list }} {{ d|dictsort }} {{ {'b': 1, 'A': 2}|dictsort(true) }} {{ {'b': 1, 'a': 2}|dictsort(false, 'value') }} {{ {'b': 1, 'a': 2}|dictsort(reverse=true) }} {{ missing|items|list }}
{{ l|items|list }}
{{ l|batch(2)|list }} {{ l|batch(2, '-')|list }}
{{ missing|default('d') }} {{ e|default('d') }} {{ e|default('d', true) }} {{ n|d('x') }} {{ n|default('x', boolean=true) }} [{{ missing|default }}] {{ d.zz|default([])|length }}
{{ '42'|int }} {{ ' 42 '|int }} {{ '4x'|int }} {{ '4x'|int(-1) }} {{ '42.7'|int }} {{ 3.9|int }} {{ -3.9|int }} {{ true|int }} {{ none|int }} {{ '0x1f'|int(base=16) }} {{ '1_000'|int }} {{ '1f'|int(0, 16) }} {{ ''|int }} {{ '1e3'|int }} {{ [1]|int }} {{ '-5'|int }} {{ '+5'|int }} {{ '- 5'|int }}
{{ missing|int }}
{{ '1.5'|float }} {{ 'x'|float }} {{ 'x'|float(2.5) }} {{ 3|float }} {{ '1e3'|float }} {{ none|float }} {{ ' 1.5 '|float }}
{{ 2.5|round }} {{ 3.5|round }} {{ 2.567|round(2) }} {{ 2.1|round(0, 'ceil') }} {{ 2.19|round(1, 'floor') }} {{ 5|round }} {{ 42.55|round|int }} {{ -1.5|abs }} {{ -3|abs }}
{{ 'a\nb'|indent }} {{ 'a\nb'|indent(2, true) }} {{ 'a\n\nb'|indent(2, blank=true) }} {{ 'a\n\nb\n'|indent(1) }}| {{ 'a\nb'|indent('> ') }} {{ ''|indent }}|
{{ n|indent }}
{{ html|e }} {{ 5|string + 'x' }} {{ n|string }} {{ [1]|string }} {{ s|safe }} {{ missing|string }}|
{{ 'hello big world'|truncate(9) }} {{ 'hello big world'|truncate(9, true) }} {{ 'hello'|truncate(3) }} {{ 'hello big world'|truncate(10, false, '..', 0) }}
{{ i is defined }} {{ missing is defined }} {{ missing is undefined }} {{ n is none }} {{ t is true }} {{ t is boolean }} {{ 1 is true }} {{ false is false }} {{ i is integer }} {{ t is integer }} {{ f is float }} {{ i is number }} {{ t is number }} {{ s is string }} {{ d is mapping }} {{ l is mapping }} {{ l is iterable }} {{ s is iterable }} {{ i is iterable }} {{ missing is iterable }} {{ n is iterable }} {{ l is sequence }} {{ d is sequence }} {{ i is sequence }} {{ missing is sequence }} {{ d.items() is sequence }} {{ range is callable }} {{ l is callable }} {{ (l|map('string')) is iterable }} {{ (l|map('string')) is sequence }} {{ big is integer }} {{ big is number }}
{{ i is odd }} {{ i is even }} {{ i is divisibleby 7 }} {{ i is divisibleby(2) }} {{ 'a' is in ['a'] }} {{ i is eq 7 }} {{ i is ne 7 }} {{ i is gt 3 }} {{ i is lt(3) }} {{ i is ge 7 }} {{ 'abc' is lower }} {{ 'ABC' is upper }} {{ n is sameas none }} {{ i is not odd }} {{ missing is not defined }} {{ n is not none and t }} {{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ i is equalto 7 }} {{ not i is odd }} {{ l is not string }}
{{ n is odd }}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ x }}{{ loop.depth }};{% endfor %}
{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}{{ loop.previtem is defined }} {% endfor %}{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% endfor %}
{% for x in [] %}x{% else %}none{% endfor %}{% for x in missing %}x{% else %}undefined{% endfor %}{% for x in l if x > 1 %}{{ loop.index }}{{ x }}{{ loop.last }}{% else %}no{% endfor %}{% for x in l if x > 9 %}x{% else %}no{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for c in 'añ🦙' %}[{{ c }}]{% endfor %}{% for k, v in d|dictsort %}{{ k }}{% endfor %}
{% for a, b in [1, 2] %}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% for x in i %}{% endfor %}
{% for x in n %}{% endfor %}
{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %} {% for x in range(2, 8, 2) %}{{ x }}{% endfor %}{% for x in range(5, 0, -2) %}{{ x }}{% endfor %}{{ range(5)[2] }}{{ range(5)|length }}{{ range(3)|list }}{{ range(0)|list }}{{ 3 in range(5) }}{{ range(10)[2:4]|list }}
{{ range(1000000) }}
{{ range('a') }}
{% for x in l %}{% for y in l %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}{% for x in l %}{% set outer = loop %}{% for y in 'ab' %}{{ outer.index }}{% endfor %}{% endfor %}
{% set a = 1 %}{% for x in l %}{{ a }}{% set a = a + x %}{{ a }} {% endfor %}{{ a }}{% if t %}{% set a = 9 %}{% endif %}{{ a }}{% set b, c = 1, 'two' %}{{ b }}{{ c }}{% set q = 1, 2 %}{{ q }}{% set (v, w) = (5, 6) %}{{ v + w }}
{% set ns = namespace(a=1, b=[]) %}{% for x in l %}{% set ns.a = ns.a + x %}{% set ns.b = ns.b + [x] %}{% endfor %}{{ ns.a }} {{ ns.b }} {{ ns.c is defined }} {{ ns['a'] }} {% set ns.items = 5 %}{{ ns.items }} {{ namespace({'z': 1}, y=2).z }}
{% set d2 = {} %}{% set d2.x = 1 %}
{% set missing3.x = 1 %}
{% set x %}block {{ i }}{% endset %}[{{ x }}]{% set y | upper | trim %} abc {{ s }} {% endset %}[{{ y }}]{% set z %}{% set inner = 5 %}{{ inner }}{% endset %}{{ z }}{{ inner is defined }}
{% macro m1(a, b='x', c=none) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m1(1) }}{{ m1(1, 2) }}{{ m1(1, c=3) }}{{ m1(b=5, a=6) }}{{ m1() }}{{ m1('q') | upper }}{{ m1(1) ~ m1(2) }}
{% macro m1(a) %}{% endmacro %}{{ m1(1, 2) }}
{% macro m1(a) %}{% endmacro %}{{ m1(z=2) }}
{% macro m1(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m1(1) }}{{ m1(1, 2) }}
{% macro m1() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m1(1, 2, x=3) }}
{% macro rec(n) %}{{ n }}{% if n > 0 %}{{ rec(n - 1) }}{% endif %}{% endmacro %}{{ rec(5) }}
{% set g = 1 %}{% macro m1() %}{{ g }}{% set g = 2 %}{{ g }}{% endmacro %}{{ m1() }}{{ g }}{% set g = 3 %}{{ m1() }}
{% macro wrap(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call wrap('b') %}x{{ i }}{% endcall %}{% macro each(l) %}{% for x in l %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(x) each(l) %}({{ x }}){% endcall %}
{% for x in l %}{% macro im() %}{{ x }}{% endmacro %}{{ im() }}{% endfor %}
{% filter upper %}abc {{ s }}{% endfilter %}{% filter replace('a', 'b') | trim %} aaa {% endfilter %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}
{% raw %}{{ x }} {% if %}{# c #}{% endraw %}{# comment {{ x }} #}{% generation %}gen {{ i }}{% endgeneration %}{%- raw -%}  a  {%- endraw -%}  b
{% if i == 7 %}a{% elif i == 8 %}b{% else %}c{% endif %}{% if e %}a{% elif n %}b{% else %}c{% endif %}{% if not t %}x{% endif %}{% if i > 5 and f < 3 or e %}y{% endif %}{% if missing %}z{% endif %}
{{ joiner is defined }}{% set j = joiner(', ') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }} {{ dict(a=1, b='x') }} {{ dict({'q': 1}, r=2) }}
{{ d.get('k') }} {{ d.get('zz') }} {{ d.get('zz', 5) }} {{ d.keys()|list }} {{ d.values()|list|length }} {{ d.items()|list|first }} {{ d.items()|length }} {{ 'k' in d.keys() }} {{ d.copy() == d }}
{{ d.get() }}
{{ d.get('a', default=1) }}
{% set l2 = [1] %}{% set _ = l2.append(2) %}{{ l2 }}{{ l2.pop() }}{{ l2.pop(0) }}{{ l2 }}{% set _ = l2.extend([5, 6]) %}{{ l2.insert(0, 4) }}{{ l2 }}{{ l2.index(5) }}{{ l2.count(6) }}
{% set d2 = {'a': 1} %}{% set _ = d2.update({'b': 2}) %}{{ d2 }}{{ d2.pop('a') }}{{ d2 }}{{ d2.pop('zz', 'none') }}{{ d2.setdefault('q', 7) }}{{ d2 }}
{{ [].pop() }}
{{ raise_exception('boom') }}
{{ strftime_now('%Y-%m-%d %H:%M %d %b %Y %B %A %j %%') }}
{{ 'a' 'b' "c" }} {{ "\u00e9\x41\101\n\t\\\'\"" }} {{ 'a\qb' }} {{ '\
' }}| {{ 1_000 }} {{ 0x1f }} {{ 1e3 }} {{ 1.5e-3 }} {{ 0b11 }} {{ 0o17 }}
{{ true }}{{ True }}{{ false }}{{ False }}{{ none }}{{ None }}
{{ {'a': {'b': 1}}.a.b }}{{ [1, 2, 3,] }}{{ (1) }}{{ (1,) }}{{ () }}{{ {} }}{{ [] }}{{ {'a': 1,} }}
{{ i|string|length + 1 }} {{ -i|abs }} {{ (-i)|abs }} {{ 1 + i|string|int }} {{ 'a' ~ i|string }} {{ not i is none }} {{ [1, 2]|first + 3 }} {{ s|upper|lower|title }} {{ i if i is odd else 'e' }} {{ 'a' in 'abc' and 'b' not in 'xyz' }} {{ l|length > 2 }} {{ l|length == 3 and l[0] == 3 }}
{{ [x for x in l] }}
{{ foo bar }}
{% if %}{% endif %}
{% endfor %}
{% for x in l %}
{{ 'unclosed }}
{% unknown %}
{{ x | }}
{{ (1 }}
{{ i is }}
{% set 5 = 1 %}
  {% if t %}  
    a
  {%- if t %} b {% endif -%}
    c
  {% endif %}  
d
{%- for x in l %}
  {{ x }}
{%- endfor %}

x   {#- c -#}   y   {# d #}
z  {{- i -}}  w  {%+ if t +%} v {% endif %}
   {%+ if t %}kept{% endif %}
{% if t %}

two newlines{% endif %}
end

	{% if t %}tab{% endif %}
   {{ i }}   
{%- set a = 1 -%}

   text   {% set b = 2 %}   more
{% for x in l -%}
   {{ x }}
{% endfor -%}
   tail  
{{ u|upper|lower|capitalize }} {{ 'ﬀ'|title }} {{ 'ß'.upper() }} {{ 'ŉ'.title() }}
{{ '' }}{{ "" }}|{{ ''|upper }}|{{ ''.join([]) }}|{{ ''.strip() }}|{{ []|join }}|{{ ''|reverse }}|{{ ''[::-1] }}|{{ ''[0] is defined }}
{{ [[1, 2], [3]]|sum(start=[]) }} {{ [1, [2, [3]]]|string }} {{ {'a': [1, {'b': (1, 2)}]}|string }} {{ {'x': 'it\'s'} }}
{{ 1.0 }} {{ 1.10 }} {{ 1e100 }} {{ 123456789012345678 }} {{ 1e15 }} {{ 1e16 }} {{ 0.1 + 0.2 }} {{ 1/3 }} {{ 100.0 * 3 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }} {{ 2.0 ** 0.5 }} {{ 7 / 7 }}
{% set x = namespace(v='') %}{% for c in 'abc' %}{% set x.v = x.v ~ c %}{% set x.v = x.v + '-' %}{% endfor %}{{ x.v }} {{ x.v[:-1] }} {{ x.v.split('-') }}
{{ nested|tojson(indent=2)|indent(4) }}
{{ '{"a": [1, 2.50, null, "x"]}' }} {{ d == d }} {{ d != {} }} {{ m[0] == {'b': 'x', 'a': 1} }} {{ m[0] in m }}
{{ loop is defined }}{{ caller is defined }}
{{ [1,2,3] is sequence }} {{ d|length is odd }} {{ d is not mapping or t }}
{{ s if s else n }}{{ s if not s }}{{ (s if not s) == missing }}
"""
