#!/usr/bin/env python3
"""Compares the languages of numbers and string formats with Python's exact decimals and with the JSON
Schema Test Suite (skipped if the shared data is absent)."""
import glob
import json
import os
import random
import re
import subprocess
import sys
from collections import defaultdict
from decimal import Decimal, getcontext

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import SHARED, build_dir, run

COUNT = int(os.environ.get("RANGES", 400))
SEED = int(os.environ.get("SEED", 1))
SYNTAX = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d{1,3})?")
getcontext().prec = 3000


def as_hex(text):
    return text.encode().hex() or "-"


def automata(requests):
    program = os.path.join(build_dir(), "tools/match_pattern")
    made = subprocess.run([program], input="".join(line + "\n" for line in requests), text=True,
        capture_output=True)
    assert made.returncode == 0, made.stderr[-2000:]
    return made.stdout.splitlines()


def random_decimal(r):
    """A short text of a number, often near others."""
    text = r.choice(["", "", "-"]) + str(r.choice([0, 1, 5, 7, 10, 99, 100, 123, 1000, r.randrange(10000)]))
    if r.random() < 0.3:
        text += "." + r.choice(["0", "5", "25", "001", str(r.randrange(1000))])
    if r.random() < 0.1:
        text += r.choice(["e2", "e-3", "E+10", "e-300", "e300"])
    return text


def random_options(r):
    """Options of one range, and the same as a predicate on (text, value)."""
    options, checks = [], []
    for key, check in (("min", lambda v, b: v >= b), ("max", lambda v, b: v <= b),
            ("xmin", lambda v, b: v > b), ("xmax", lambda v, b: v < b)):
        if r.random() < 0.35 and not (key[0] == "x" and any(o.startswith(key[1:]) for o in options)):
            bound = random_decimal(r)
            options.append(f"{key}={bound}")
            checks.append((check, Decimal(bound)))
    has_fraction, has_exponent = r.random() < 0.6, r.random() < 0.4
    multiple = None
    if r.random() < 0.3:
        multiple = r.choice(["1", "2", "3", "7", "10", "0.5", "0.01", "2.5", "0.003", "25", "128", "1e3", "1e-8"])
        options.append(f"mult={multiple}")
    options += ["frac"] * has_fraction + ["exp"] * has_exponent

    def is_inside(text):
        if not SYNTAX.fullmatch(text) or ("." in text and not has_fraction):
            return False
        if re.search("[eE]", text) and (not has_exponent or multiple):
            return False
        if sum(c.isdigit() for c in re.split("[eE]", text)[0]) > 40:
            return False
        value = Decimal(text)
        return all(check(value, bound) for check, bound in checks) and (
            not multiple or value % Decimal(multiple) == 0)

    return ",".join(options), is_inside


def near(r, options):
    """Texts of numbers near the bounds of the options, and variants of them."""
    texts = [random_decimal(r) for _ in range(15)] + ["0", "-0", "0.0", "-0.0", "1e", "01", "", "-", ".5", "1."]
    for bound in re.findall(r"=([^,]+)", options):
        value = Decimal(bound)
        for delta in ("0", "1", "-1", "0.001", "-0.001", "0.1"):
            texts.append(format(value + Decimal(delta), "f")[:50])
        texts += [format(value, "f")[:45] + "0", bound, bound + "e0", bound + "e1", "1" + bound]
        texts += [str(int(value * k)) for k in range(2, 5)]
    return texts


def test_numbers_are_compared_exactly():
    r = random.Random(SEED)
    cases = []
    for _ in range(COUNT):
        options, is_inside = random_options(r)
        cases.append((options, is_inside, near(r, options)))
    lines = automata([" ".join(["number", as_hex(o), *map(as_hex, t)]) for o, _, t in cases])
    n_inside = 0
    for (options, is_inside, texts), line in zip(cases, lines):
        want = "".join("01"[is_inside(t)] for t in texts)
        n_inside += want.count("1")
        differ = [t for t, a, b in zip(texts, want, line) if a != b]
        assert line == want, f"{options}: {line[:80]} {differ[:5]}"
    assert n_inside > COUNT * 3


def test_every_walk_ends_in_a_number_of_the_range():
    """The program aborts at a dead end: each prefix that it allows can be completed."""
    r = random.Random(SEED + 1)
    cases = [random_options(r) for _ in range(COUNT // 4)]
    lines = automata([f"sample-number {as_hex(o)} {k}" for o, _ in cases for k in range(4)])
    n_texts = 0
    for k, line in enumerate(lines):
        options, is_inside = cases[k // 4]
        text, _, end = line.partition(" ")
        if end == "accepted":
            n_texts += 1
            assert is_inside(bytes.fromhex(text).decode()), (options, bytes.fromhex(text))
        else:
            assert end == "unfinished" and text == "", (options, line)
    assert n_texts > COUNT // 2


def suite():
    """(format, text, is valid) of the JSON Schema Test Suite."""
    for path in sorted(glob.glob(f"{SHARED}/json-schema-draft7/tests/**/format/*.json", recursive=True)):
        with open(path, encoding="utf-8") as f:
            groups = json.load(f)
        for group in groups:
            for case in group["tests"]:
                text = case["data"]
                if isinstance(text, str) and text == text.encode(errors="replace").decode():
                    yield group["schema"]["format"], text, case["valid"]


def test_formats_agree_with_the_json_schema_test_suite():
    cases = [c for c in suite() if c[0] != "unknown"]
    if not cases:
        print("skipped: no shared data")
        return
    by_format = defaultdict(list)
    for case in cases:
        by_format[case[0]].append(case)
    cases = [case for group in by_format.values() for case in group]
    lines = "".join(automata([" ".join(["format", as_hex(name), *(as_hex(t) for _, t, _ in group)])
        for name, group in by_format.items()]))
    assert len(lines) == len(cases), lines
    wrongly = [c for c, line in zip(cases, lines) if line == "1" and not c[2]]
    refused = [c for c, line in zip(cases, lines) if line != "1" and c[2]]
    assert not wrongly, wrongly
    # Narrower by design: Punycode, scripts of idn-hostname, constructs of regex.
    assert {c[0] for c in refused} <= {"hostname", "idn-hostname", "idn-email", "regex"}, refused
    assert len(refused) * 100 < len(cases) * 5, refused


def test_leap_seconds_are_those_of_utc():
    r = random.Random(SEED + 2)
    texts = []
    for _ in range(600):
        h, m, oh, om = r.randrange(24), r.randrange(60), r.randrange(24), r.randrange(60)
        sign = r.choice("+-")
        if r.random() < 0.7:
            local = (23 * 60 + 59 + (oh * 60 + om) * (1 if sign == "+" else -1)) % 1440
            h, m = divmod(local, 60)
        texts.append((f"{h:02}:{m:02}:60{r.choice(['', '.5'])}{sign}{oh:02}:{om:02}",
            (h * 60 + m - (oh * 60 + om) * (1 if sign == "+" else -1)) % 1440 == 1439))
    line, = automata(["format " + " ".join([as_hex("time")] + [as_hex(t) for t, _ in texts])])
    assert line == "".join("01"[ok] for _, ok in texts)


def test_samples_of_the_format_regex_are_patterns():
    lines = automata([f"sample-format {as_hex('regex')} {k}" for k in range(60)])
    patterns = [bytes.fromhex(line.split(" ")[0]) for line in lines if line.endswith("accepted")]
    assert len(patterns) > 30
    results = automata([f"full {p.hex() or '-'} -" for p in patterns])
    assert not [(p, x) for p, x in zip(patterns, results) if x not in "01"]


if __name__ == "__main__":
    run(globals())
