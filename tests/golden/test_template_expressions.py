#!/usr/bin/env python3
"""Random template expressions compared with jinja2: the same text, or an exception on both
sides.

test_template_expressions.py [SEED [COUNT]]

Prints the seed; ends with `N passed, N failed, N skipped`. Skipped are expressions whose text
in Python contains an address or a Python type, and those that are rejected by design:
integers beyond 64 bits and unsupported methods."""
import json
import random
import re
import sys

from test_templates import NOW, TOOL, Renderer, reference, show, skip
from template_cases import CONTEXT

VALUES = ["i", "f", "s", "e", "n", "t", "u", "l", "m", "d", "nl", "sp", "words", "html", "nested",
          "floats", "missing", "m[0]", "d.b", "l[1]", "s[2:]", "u[1:]"]
CONSTANTS = ["1", "0", "-1", "2.5", '"a"', '""', '"o"', "none", "true", "false", "[]", "{}",
             "[1, 2]", '"\u00e9"', "3", '" "', "10", '"l"', "'a,b'"]
TESTS = ["defined", "undefined", "none", "boolean", "true", "false", "integer", "float", "number",
         "string", "mapping", "iterable", "sequence", "callable", "odd", "even", "lower", "upper"]
FILTERS = ["abs", "capitalize", "count", "d", "default", "dictsort", "first", "float",
           "indent", "int", "items|list", "join", "last", "length", "list", "lower", "max", "min",
           "reverse", "round", "sort", "string", "sum", "title", "tojson", "trim",
           "unique|list", "upper", "list|tojson", "map('string')|list", "select|list",
           "reject|list", "tojson(indent=2)", "dictsort(true)", "string|length", "batch(2)|list",
           "tojson(ensure_ascii=true)", "tojson(sort_keys=true)", "truncate(5)"]
FILTERS_OF = ["default({})", "default({}, true)", "join({})", "replace({}, 'Q')", "indent({})",
              "round({})", "trim({})", "map('default', {})|list", "select('eq', {})|list",
              "reject('in', {})|list", "sort(reverse={})", "format({})", "center({})",
              "map(attribute={})|list", "attr({})"]
METHODS = ["upper()", "lower()", "title()", "strip()", "split()", "splitlines()", "items()|list",
           "keys()|list", "values()|list", "capitalize()", "isdigit()", "isalpha()", "isupper()",
           "islower()", "isspace()", "swapcase()", "lstrip()", "rstrip()", "copy()", "rsplit()"]
METHODS_OF = ["split({})", "strip({})", "startswith({})", "endswith({})", "find({})", "rfind({})",
              "count({})", "index({})", "get({})", "join({})", "replace({}, 'Z')",
              "partition({})", "rpartition({})", "ljust({})", "rjust({})", "center({})",
              "zfill({})", "rsplit({})", "lstrip({})", "rstrip({})", "removeprefix({})",
              "removesuffix({})", "format({})", "pop({})", "split(none, {})", "rsplit(none, {})",
              "find({}, 2)", "count({}, 1, -1)", "get({}, 9)", "insert(0, {})", "append({})"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in",
             "not in", "and", "or"]
PYTHON_ONLY = re.compile(r"<generator|<built-in|0x[0-9a-f]{6}|dict_|<filter|reversed object|"
                         r"Undefined|range\(|list_rev")
NOT_SERVED = ("64 bits", "not served", "cannot be printed")


class Writer:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, rows):
        return self.random.choice(rows)

    def expression(self, depth):
        kinds = [self.leaf] * 4 + [self.binary] * 4 + [self.filtered] * 5 + [self.method] * 4 + [
            self.slice, self.item, self.test, self.conditional, self.sign, self.literal]
        return self.leaf(0) if depth <= 0 else self.pick(kinds)(depth - 1)

    def closed(self, depth):
        return f"({self.expression(depth)})"

    def leaf(self, depth):
        return self.pick(VALUES if self.random.random() < 0.65 else CONSTANTS)

    def binary(self, depth):
        return f"({self.expression(depth)} {self.pick(OPERATORS)} {self.expression(depth)})"

    def filtered(self, depth):
        row = self.pick(FILTERS + FILTERS_OF)
        return f"{self.closed(depth)}|{row.format(self.expression(depth - 1))}"

    def method(self, depth):
        row = self.pick(METHODS + METHODS_OF)
        return f"{self.closed(depth)}.{row.format(self.expression(depth - 1))}"

    def slice(self, depth):
        return "{}[{}:{}{}]".format(self.pick(VALUES), self.pick(["", "1", "-2", "n", "0", "9"]),
                                    self.pick(["", "2", "-1", "100"]),
                                    self.pick(["", "", ":-1", ":2", ":-3"]))

    def item(self, depth):
        return f"{self.closed(depth)}[{self.expression(depth - 1)}]"

    def test(self, depth):
        return f"({self.expression(depth)} is {self.pick(['', 'not '])}{self.pick(TESTS)})"

    def conditional(self, depth):
        a, b, c = (self.expression(depth) for _ in range(3))
        return f"({a} if {b} else {c})"

    def sign(self, depth):
        return f"({self.pick(['not ', '-', '+'])}{self.closed(depth)})"

    def literal(self, depth):
        form = self.pick(["[{}, {}]", "({}, {})", "{{'k': {}, 'j': {}}}"])
        return form.format(self.expression(depth), self.expression(depth))


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 4000
    if not TOOL.exists():
        skip(f"{TOOL} is not built")
    print(f"seed {seed}")
    writer, renderer = Writer(seed), Renderer()
    passed = failed = skipped = 0
    for _ in range(count):
        source = "{{ " + writer.expression(4) + " }}"
        got = renderer.ask({"source": source})
        if got[1] is None:
            got = renderer.ask({"messages": [], "exact": True, "now": NOW,
                                "chat_template_kwargs": CONTEXT})
        variables = {"messages": [], "tools": None, "documents": None,
                     "add_generation_prompt": False, **json.loads(json.dumps(CONTEXT))}
        want = reference(source, variables)
        if want[0] == got[0] and (want[1] is None) == (got[1] is None):
            passed += 1
        elif (want[0] and PYTHON_ONLY.search(want[0])) or (
                got[1] and any(words in got[1] for words in NOT_SERVED)):
            skipped += 1
        else:
            failed += 1
            print(f"FAILED {source}\n  want: {show(want)}\n  got:  {show(got)}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
