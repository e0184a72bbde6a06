#!/usr/bin/env python3
"""The counts in docs/security-testing.md, from the tests themselves. `--write` updates the document;
tests/unit/test_docs.py compares it."""
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/hostile"))
DOCUMENT = os.path.join(ROOT, "docs/security-testing.md")
BEGIN, END = "<!-- counts: tests/hostile/counts.py --write -->\n", "<!-- end of counts -->\n"


def n_files(pattern):
    return len(glob.glob(os.path.join(ROOT, pattern)))


def n_cases(pattern):
    """Counts the cases of wire tests, each of which begins with a line `== name`."""
    total = 0
    for path in glob.glob(os.path.join(ROOT, pattern)):
        with open(path) as f:
            total += len(re.findall(r"^== ", f.read(), re.M))
    return total


def replayed_mutations():
    with open(os.path.join(ROOT, "tests/all")) as f:
        return int(re.search(r"FUZZ_MUTATIONS:-(\d+)", f.read())[1])


def table():
    """Returns the table as text."""
    import bodies
    import gguf_file
    import kit
    import test_differential
    import test_gguf_files
    import test_json_bodies
    import test_raw_http
    import test_settings
    import test_tls_records

    kinds = [effect for effect, _ in test_raw_http.OPERATORS.values()]
    rows = (
        ("fuzz targets", n_files("tests/fuzz/fuzz_*.c")),
        ("files in their corpora", n_files("tests/fuzz/corpus/*/*")),
        ("mutations per target in `make test`", replayed_mutations()),
        ("HTTP cases with exact bytes, most also cut at every byte", n_cases("tests/wire/http_*.txt")),
        ("routes with mutated bodies / all routes", f"{len(bodies.BASES)} / {len(kit.routes())}"),
        ("field names that are exchanged between dialects", len(bodies.NAMES)),
        ("JSON bodies in `make test`", test_json_bodies.SLICE_CASES),
        ("kinds of HTTP mutations: rejected / served / either",
            " / ".join(str(kinds.count(k)) for k in ("reject", "serve", "any"))),
        ("HTTP exchanges in `make test`", test_raw_http.SLICE_CASES),
        ("kinds of changed TLS records", len(test_tls_records.OPERATORS)),
        ("TLS connections in `make test`", test_tls_records.SLICE_CASES),
        ("kinds of GGUF mutations, besides bytes and cuts", len(gguf_file.OPERATORS)),
        ("GGUF files in `make test`", test_gguf_files.SLICE_CASES),
        ("options with hostile values, each in the file, as flag and in the environment", len(test_settings.OPTIONS)),
        ("starts with hostile settings in `make test`", test_settings.SLICE_CASES),
        ("requests of the differential test in `make test`", test_differential.SLICE_CASES),
    )
    return "| what | count |\n|---|---|\n" + "".join(f"| {name} | {n} |\n" for name, n in rows)


def in_document():
    """Returns the document before the table, the table, and the rest."""
    with open(DOCUMENT) as f:
        before, _, rest = f.read().partition(BEGIN)
    old, _, after = rest.partition(END)
    return before, old, after


if __name__ == "__main__":
    made = table()
    if "--write" in sys.argv:
        before, _, after = in_document()
        with open(DOCUMENT, "w") as f:
            f.write(before + BEGIN + made + END + after)
    else:
        print(made, end="")
