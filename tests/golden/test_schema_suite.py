#!/usr/bin/env python3
"""Reads the JSON Schema Test Suite and the MaskBench schemas, and validates their instances over the
graph of the schema (skipped if the shared data or the suite is absent)."""
import glob
import io
import json
import os
import subprocess
import sys
import tarfile
from collections import Counter, defaultdict

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import SHARED, build_dir, run

SHOW = bool(os.environ.get("SHOW"))  # prints each difference
ARCHIVE = glob.glob(os.path.join(ROOT, "build/json-schema-suite/jsonschema-*.tar.gz"))
DRAFTS = {  # URI of the metaschema, least percentage of correct cases
    "draft4": ("http://json-schema.org/draft-04/schema#", 99),
    "draft6": ("http://json-schema.org/draft-06/schema#", 99),
    "draft7": ("http://json-schema.org/draft-07/schema#", 99),
    "draft2019-09": ("https://json-schema.org/draft/2019-09/schema", 97),
    "draft2020-12": ("https://json-schema.org/draft/2020-12/schema", 97),
}


def check(requests):
    program = os.path.join(build_dir(), "tools/check_schema")
    lines = "".join(json.dumps(r) + "\n" for r in requests)
    made = subprocess.run([program], input=lines, text=True, capture_output=True)
    assert made.returncode == 0, made.stderr[-2000:]
    results = made.stdout.splitlines()
    assert len(results) == len(requests), (len(results), len(requests))
    return results


def archive_files():
    """{path below the suite: parsed JSON} of the source archive of jsonschema."""
    files = {}
    with tarfile.open(ARCHIVE[0]) as tar:
        for member in tar:
            _, _, path = member.name.partition("/json/")
            if path.startswith(("tests/", "remotes/")) and path.endswith(".json"):
                files[path] = json.load(io.TextIOWrapper(tar.extractfile(member), "utf-8"))
    return files


def folder_files(root):
    files = {}
    for path in glob.glob(f"{root}/**/*.json", recursive=True):
        with open(path, encoding="utf-8") as f:
            files[os.path.relpath(path, root)] = json.load(f)
    return files


def outcome(digit, is_valid):
    if (digit == "1") == is_valid:
        return "correct"
    return "wrongly accepted" if digit == "1" else "wrongly rejected"


def with_draft(schema, uri):
    return {"$schema": uri, **schema} if isinstance(schema, dict) and "$schema" not in schema else schema


def run_suite(files, draft, folder=""):
    """Counts the cases of the required tests of a draft, or of the tests in a folder, by result."""
    uri, _ = DRAFTS[draft]
    remotes = {"http://localhost:1234/" + path[len("remotes/"):]: schema
        for path, schema in files.items() if path.startswith("remotes/")}
    groups = [(os.path.basename(path), group) for path, groups in sorted(files.items())
        if os.path.dirname(path) == os.path.join("tests", draft, folder).rstrip("/") for group in groups]
    requests = [{"schema": with_draft(group["schema"], uri),
        "tests": [t["data"] for t in group["tests"]],
        "documents": remotes if "localhost:1234" in json.dumps(group["schema"]) else {}}
        for _, group in groups]
    counts, reasons, files_of = Counter(), Counter(), defaultdict(set)
    for (name, group), result in zip(groups, check(requests)):
        kind, _, rest = result.partition(" ")
        for k, test in enumerate(group["tests"]):
            result = "refused" if kind == "error" else outcome(rest[k], test["valid"])
            counts[result] += 1
            reasons[rest] += kind == "error"
            files_of[result].add(name)
            if SHOW and result != "correct":
                print(f"{draft} {name}: {group['description']}: {test['description']}: {result} {rest}")
    return counts, +reasons, files_of


def compare_suite(files, draft):
    counts, reasons, _ = run_suite(files, draft)
    percent = 100 * counts["correct"] / sum(counts.values())
    print(f"{draft}: {percent:.2f} % of {sum(counts.values())} {dict(counts)} {dict(reasons)}")
    assert counts["wrongly accepted"] == 0
    assert percent >= DRAFTS[draft][1], percent


def test_draft7_of_the_shared_data():
    files = folder_files(f"{SHARED}/json-schema-draft7")
    if not files:
        print("skipped: no shared data")
        return
    compare_suite(files, "draft7")


def test_all_drafts_of_the_source_archive_of_jsonschema():
    if not ARCHIVE:
        print("skipped: no build/json-schema-suite; tests/env fetches it")
        return
    files = archive_files()
    for draft in DRAFTS:
        compare_suite(files, draft)


def test_optional_cases():
    """Except formats, which test_languages.py compares. Annotations of content are not enforced, and
    1.0 is an integer in every draft; the output policy writes integers without fraction."""
    if not ARCHIVE:
        print("skipped: no build/json-schema-suite; tests/env fetches it")
        return
    files = archive_files()
    for draft in DRAFTS:
        counts, reasons, files_of = run_suite(files, draft, "optional")
        print(f"{draft}, optional: {dict(counts)}")
        assert counts["correct"] >= 99 and not reasons, reasons
        assert not files_of["wrongly rejected"]
        assert files_of["wrongly accepted"] <= {"content.json", "zeroTerminatedFloats.json"}, files_of


def maskbench_set(path):
    name = os.path.basename(path)
    return name.split("---")[0] if "---" in name else name.split("_")[0]


# Narrower by design: constructs of patterns that are refused, formats that validators ignore.
MASKBENCH_REFUSED = {"Github_hard---o75605.json": "#/definitions/icon/pattern: backreferences are not supported"}
MASKBENCH_REJECTED = {"Kubernetes---kb_105_Normalized.json"}  # format: byte


def test_maskbench():
    paths = sorted(glob.glob(f"{SHARED}/maskbench/*.json"))
    if not paths:
        print("skipped: no shared data")
        return
    files = []
    for path in paths:
        with open(path, encoding="utf-8") as f:
            files.append(json.load(f))
    results = check([{"schema": f["schema"], "tests": [t["data"] for t in f["tests"]]} for f in files])
    counts, sets, refused, rejected = Counter(), defaultdict(Counter), {}, set()
    for path, file, result in zip(paths, files, results):
        name = os.path.basename(path)
        kind, _, rest = result.partition(" ")
        sets[maskbench_set(path)][kind] += 1
        if kind == "error":
            refused[name] = rest
            continue
        for test, digit in zip(file["tests"], rest.split(" ")[0]):
            counts[outcome(digit, test["valid"])] += 1
            if SHOW and outcome(digit, test["valid"]) != "correct":
                print(f"{name}: {json.dumps(test)[:300]}")
            if outcome(digit, test["valid"]) == "wrongly rejected":
                rejected.add(name)
    print(f"{len(paths)} schemas, {len(refused)} refused, instances {dict(counts)}, {refused}")
    print({name: dict(kinds) for name, kinds in sorted(sets.items())})
    assert refused.keys() == MASKBENCH_REFUSED.keys(), refused
    assert all(refused[name].startswith(why) for name, why in MASKBENCH_REFUSED.items()), refused
    assert rejected == MASKBENCH_REJECTED
    assert counts["wrongly accepted"] == 0


if __name__ == "__main__":
    run(globals())
