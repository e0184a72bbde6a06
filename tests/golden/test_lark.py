#!/usr/bin/env python3
"""Compares grammars in Lark with the Earley parser of the Python package `lark` and its lexer
`dynamic_complete`, on random grammars and texts.

    GRAMMARS=1000 SEED=7 tests/golden/test_lark.py     number of random grammars, their seed

Texts of up to five letters are compared: a text is a prefix of an accepted one if the parser accepts
one of the texts that continue it, as far as these are compared."""
import itertools
import os
import random
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, "build", "venv", "bin", "python")
if os.path.exists(VENV) and "INFERFLUX_VENV" not in os.environ:
    os.environ["INFERFLUX_VENV"] = "1"
    os.execv(VENV, [VENV, *sys.argv])

sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import build_dir, run  # noqa: E402

import lark  # noqa: E402

COUNT = int(os.environ.get("GRAMMARS", 100))
SEED = int(os.environ.get("SEED", 1))
TERMINALS = ['"a"', '"b"', '"c"', '"ab"', '"B"i', '"a".."b"', "/[bc]/", "/a+/", "/ab?/", "/B|ca/i",
    "A", "B"]
SUFFIXES = ["", "", "", "", "?", "*", "+", "~2", "~1..2"]
TEXTS = ["".join(t) for n in range(6) for t in itertools.product("abc", repeat=n)]


def random_element(r, rules, depth):
    kind = r.random()
    if kind < 0.3:
        return r.choice(rules) + r.choice(SUFFIXES)
    if kind < 0.5 and depth:
        brackets = r.choice(["(%s)", "(%s)", "[%s]"])
        inner = random_alternatives(r, rules, depth - 1)
        return brackets % inner + (r.choice(SUFFIXES) if brackets[0] == "(" else "")
    return r.choice(TERMINALS) + r.choice(SUFFIXES)


def random_alternatives(r, rules, depth):
    return " | ".join(" ".join(random_element(r, rules, depth) for _ in range(r.choice([1, 1, 2, 3])))
        for _ in range(r.choice([1, 1, 2, 3])))


def random_grammar(r):
    rules = ["start"] + ["r%d" % k for k in range(r.randrange(3))]
    lines = ["%s: %s" % (name, random_alternatives(r, rules, 1)) for name in rules]
    lines += ['A: "a" B?', "B: /b|cc/"]
    if r.random() < 0.4:
        lines.append(r.choice(['%ignore "c"', "%ignore /b+/", '%ignore "ab"']))
    return "\n".join(lines) + "\n"


def hexed(text):
    return text.encode().hex() or "-"


def automata(pairs):
    program = os.path.join(build_dir(), "tools/match_grammar")
    lines = "".join(" ".join(["lark", hexed(g), *map(hexed, texts)]) + "\n" for g, texts in pairs)
    made = subprocess.run([program], input=lines, text=True, capture_output=True)
    assert made.returncode == 0, made.stderr[-2000:]
    return made.stdout.splitlines()


def parser_of(grammar):
    try:
        return lark.Lark(grammar, parser="earley", lexer="dynamic_complete", ambiguity="forest")
    except Exception:  # the generator also writes grammars that Lark refuses
        return None


def accepts(parser, text):
    try:
        parser.parse(text)
        return True
    except lark.exceptions.LarkError:
        return False
    except RuntimeError as e:  # two ways to accept the text, which Lark does not expect
        assert "multiple start symbol items" in str(e)
        return True


def test_random_grammars_accept_the_texts_of_lark():
    r = random.Random(SEED)
    pairs, parsers = [], []
    while len(pairs) < COUNT:
        grammar = random_grammar(r)
        parser = parser_of(grammar)
        if parser:
            short = [t for t in TEXTS if len(t) < 4]
            pairs.append((grammar, short + r.sample(TEXTS, 20)))
            parsers.append(parser)
    wrong, n_accepted = [], 0
    for (grammar, texts), parser, got in zip(pairs, parsers, automata(pairs)):
        want = [accepts(parser, t) for t in texts]
        n_accepted += sum(want)
        if got.startswith("error"):
            if any(want) or "no text satisfies" not in got:
                wrong.append((grammar, got, ""))
            continue
        is_accepted = {t: w for t, w in zip(texts, want)}
        for text, w, g in zip(texts, want, got):
            if (g == "a") != w:
                wrong.append((grammar, text, "accepted" if w else "rejected"))
            elif g == "-" and any(t.startswith(text) for t, ok in is_accepted.items() if ok):
                wrong.append((grammar, text, "viable"))
    for grammar, text, what in wrong[:5]:
        print(f"{grammar}  {text!r}: lark: {what}")
    assert not wrong, f"{len(wrong)} differences"
    assert n_accepted > COUNT, "few texts are accepted"


if __name__ == "__main__":
    run(globals())
