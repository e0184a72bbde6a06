#!/usr/bin/env python3
"""Compares the patterns of constrained decoding with RegExp of Node.js on random patterns and texts.

    PATTERNS=20000 SEED=7 tests/golden/test_patterns.py     number of random patterns, their seed

The patterns contain every construct that src/constrain/regular/pattern.h lists. Texts are random, and
samples of the automaton: every walk over bytes that it allows must end in a text that matches."""
import json
import os
import random
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import build_dir, run

COUNT = int(os.environ.get("PATTERNS", 1000))
SEED = int(os.environ.get("SEED", 1))
# Debian's Node has an older Unicode version; npm installs this one (tests/package.json).
NODE_PROGRAM = os.path.join(ROOT, "build/node/node_modules/.bin/node")
# Each start is tried by itself: a search of V8 also tries starts inside of a surrogate pair, so that
# /(?!.)/u matches at index 1 of "\u{1f600}" (ECMA-262, AdvanceStringIndex, forbids it).
NODE = """
function matches(re, text) {
    for (let i = 0; i <= text.length; i += text.codePointAt(i) > 0xffff ? 2 : 1) {
        re.lastIndex = i;
        if (re.test(text))
            return true;
    }
    return false;
}
const lines = require('fs').readFileSync(0, 'utf8').split('\\n').filter(Boolean);
for (const line of lines) {
    const [source, texts, flags] = JSON.parse(line);
    try {
        const re = new RegExp(source, 'uy' + (flags || ''));
        console.log(texts.map((t) => matches(re, t) ? '1' : '0').join(''));
    } catch (e) {
        console.log('error ' + e.message);
    }
}"""
ALPHABET = "ab1_ -\nBé日\U0001f600"
ATOMS = ["a", "b", "1", "_", " ", "-", ".", "\\d", "\\D", "\\w", "\\W", "\\s", "\\S", "\\n", "é",
    "日", "\\u{1f600}", "\\ud83d\\ude00", "\\xe9", "\\p{L}", "\\P{Lu}", "\\p{Script=Han}",
    "\\p{Emoji}", "[ab]", "[^a]", "[a-z]", "[^\\d\\s]", "[\\w-]", "[é-日]", "[^\\p{L}]", "[]", "[^]",
    "[\\b1]", "\\x61", "\\cJ", "\\0"]
ASSERTIONS = ["^", "$", "\\b", "\\B"]
QUANTIFIERS = ["*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,3}?", "{2,}", "{0}", "{1,4}"]


def random_pattern(r, depth):
    """A disjunction of sequences."""
    return "|".join("".join(random_term(r, depth) for _ in range(r.choice([0, 1, 1, 2, 2, 3])))
        for _ in range(r.choice([1, 1, 1, 2, 3])))


def random_term(r, depth):
    kind = r.random()
    if kind < 0.15:
        return r.choice(ASSERTIONS)
    if kind < 0.3 and depth > 0:
        return r.choice(["(?=%s)", "(?!%s)"]) % random_pattern(r, depth - 1)
    if kind < 0.55 and depth > 0:
        group = r.choice(["(%s)", "(?:%s)", "(?:%s)"]) % random_pattern(r, depth - 1)
        return group + (r.choice(QUANTIFIERS) if r.random() < 0.6 else "")
    return r.choice(ATOMS) + (r.choice(QUANTIFIERS) if r.random() < 0.35 else "")


def random_text(r):
    return "".join(r.choice(ALPHABET) for _ in range(r.randrange(8)))


def as_hex(text):
    return text.encode().hex() or "-"


def automata(requests):
    """Results of the program for lines of input."""
    program = os.path.join(build_dir(), "tools/match_pattern")
    made = subprocess.run([program], input="".join(line + "\n" for line in requests), text=True,
        capture_output=True)
    assert made.returncode == 0, made.stderr[-2000:]
    return made.stdout.splitlines()


def node(pairs):
    """Results of RegExp for pairs of a pattern and texts."""
    made = subprocess.run([NODE_PROGRAM, "-e", NODE], input="".join(json.dumps(p) + "\n" for p in pairs),
        capture_output=True, text=True, check=True)
    return made.stdout.splitlines()


def compare(kind, pairs, encode=as_hex, flags=""):
    """Texts of the pairs as RegExp sees them; `encode` makes those of the automaton."""
    got = automata([" ".join([kind, as_hex(p), *map(encode, texts)]) for p, texts in pairs])
    want = node([(p, texts, flags) for p, texts in pairs])
    assert len(got) == len(want) == len(pairs)
    # Errors agree. A few random patterns may exceed the work budget.
    n_over = sum("steps of work" in g or "completion" in g for g in got)
    assert n_over <= len(pairs) // 200, f"{n_over} patterns exceed a budget"
    wrong = [(p, texts, w, g) for (p, texts), w, g in zip(pairs, want, got)
        if w != g and "steps of work" not in g and "completion" not in g
        and not (w.startswith("error") and g.startswith("error"))]
    for pattern, texts, w, g in wrong[:10]:
        differ = [t for t, x, y in zip(texts, w, g) if x != y] if len(w) == len(g) else texts
        print(f"  {pattern!r}: node {w}, automaton {g}, {differ[:3]}")
    assert not wrong, f"{len(wrong)} of {len(pairs)} patterns differ"


def random_pairs(seed, count):
    r = random.Random(seed)
    return [(random_pattern(r, 3), [random_text(r) for _ in range(20)]) for _ in range(count)]


def test_patterns_match_like_those_of_node():
    compare("search", random_pairs(SEED, COUNT))


def test_flags_are_those_of_node():
    r = random.Random(SEED + 4)
    # \\W, \\P and complements of classes fold differently with `i` (ECMA-262 22.2.2.7.3).
    odd = ["\\W", "\\P", "[^"]
    for flags in ("i", "m", "s", "ms", "ims"):
        pairs = [(p, [random_text(r) + r.choice(["", "A", "É", "K", "\nb"]) for _ in range(20)])
            for p, _ in random_pairs(SEED + 5, COUNT // 4)
            if "i" not in flags or not any(part in p for part in odd)]
        compare("flags-" + flags, pairs, flags=flags)


def json_contents(text):
    return json.dumps(text, ensure_ascii=False)[1:-1].encode().hex() or "-"


def test_patterns_of_json_strings_match_their_values():
    compare("json", random_pairs(SEED + 1, COUNT // 2), json_contents)


def test_every_walk_ends_in_a_match():
    r = random.Random(SEED + 2)
    patterns = [random_pattern(r, 2) for _ in range(COUNT // 3)]
    lines = automata([f"sample-full {as_hex(p)} {k}" for p in patterns for k in range(3)])
    texts = [[] for _ in patterns]
    for k, line in enumerate(lines):
        if line.endswith("accepted"):
            texts[k // 3].append(bytes.fromhex(line.split(" ")[0]).decode())
    assert sum(map(len, texts)) > COUNT // 4, "few walks end"
    pairs = [("^(?:%s)$" % p, t) for p, t in zip(patterns, texts) if t]
    wrong = [(p, t, w) for (p, t), w in zip(pairs, node(pairs)) if set(w) != {"1"}]
    assert not wrong, wrong[:5]


FIXED = [
    ("^(?=.*[A-Z])(?=.*\\d).{8,}$", ["Abcdefg1", "abcdefg1", "Ab1", "ABCDEFGH1"]),
    ("^(?:(?!END).)*$", ["abc", "abENDc", "EN", "END", ""]),
    ("^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$",
        ["a.b@c.de", ".a@c.de", "a..b@c.de", "a@c", "a'b+c@d-e.fgh"]),
    ("(?<year>\\d{4})-(?<month>\\d\\d)", ["2024-05", "x2024-05y", "2024-5"]),
    ("^\\p{Lu}\\p{Ll}*$", ["Éa", "éa", "A", ""]),
    ("^\\p{Script=Greek}+$", ["αβγ", "abc"]),
    ("^[\\u{10000}-\\u{10ffff}]$", ["\U0001f600", "a", "\uffff"]),
    ("^.$", ["\n", "\u2028", "\U0001f600", "a"]),
    ("(?:^|,)x(?:,|$)", ["x", "a,x", "x,a", "a,x,b", "ax"]),
    ("(?=(?!a)b|c$)[^d]{1,2}", ["b", "a", "c", "cd", "bd"]),
    ("(?:a|(?=b)|$){2,3}b", ["aab", "ab", "b", "aaab"]),
    ("^(?:\\ba\\b ?)+$", ["a a", "aa", "a a "]),
    ("\\Ba", ["a", "ba", " a", "_a"]),
]


def test_fixed_patterns_match_like_those_of_node():
    compare("search", FIXED)


def test_every_property_equals_that_of_node():
    with open(os.path.join(ROOT, "src/constrain/regular/unicode_sets.def"), encoding="utf-8") as f:
        rows = [line.split('"') for line in f if line.startswith("UNICODE_SET(")]
    key = {"GENERAL_CATEGORY": "gc=", "BINARY": "", "SCRIPT": "sc="}
    r = random.Random(SEED + 3)
    points = [chr(r.choice([r.randrange(0xd800), r.randrange(0xe000, 0x20000)])) for _ in range(300)]
    points += [chr(c) for c in range(0x180)]
    pairs = [(f"^\\p{{{key[kind.split('(')[1].split(',')[0]]}{row[1]}}}$", points) for kind, *row in rows]
    assert len(pairs) > 200
    compare("search", [(p, t) for p, t in pairs])


if __name__ == "__main__":
    run(globals())
