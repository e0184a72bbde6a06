#!/usr/bin/env python3
"""Reads the instances of MaskBench with the acceptor of their schemas: valid ones are accepted, invalid
ones are not, and the texts of random walks satisfy the schema, also by jsonschema-rs. Skipped if the
shared data is absent. MASKBENCH selects files by a part of their names, WALKS is the number of walks
per schema. The walks of a schema end after WALK_SECONDS; those files are counted."""
import glob
import json
import math
import os
import select
import subprocess
import sys
from collections import Counter, defaultdict

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, "build", "venv", "bin", "python")
if os.path.exists(VENV) and "INFERFLUX_VENV" not in os.environ:
    os.environ["INFERFLUX_VENV"] = "1"
    os.execv(VENV, [VENV, *sys.argv])

sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import SHARED, build_dir, run  # noqa: E402

WALKS = int(os.environ.get("WALKS", 0))
WALK_SECONDS = float(os.environ.get("WALK_SECONDS", 30))
DEAD_ENDS_MAX = 1e-5  # share of the walks
LEAST_SHARE, LEAST_SET_SHARE = 0.985, 0.95


def set_of(name):
    if name.startswith(("BFCL_", "JME_")):
        return name.split("_")[0]
    return name.split("---")[0]


def requests():
    for path in sorted(glob.glob(os.path.join(SHARED, "maskbench/*.json"))):
        name = os.path.basename(path)
        if name.endswith(".json") and os.environ.get("MASKBENCH", "") in name:
            with open(path) as f:
                case = json.load(f)
            if "tests" in case:
                yield name, case


def answer(program, case, walks):
    """The words of the answer; an error of the program is a crash. None: the time limit is exceeded."""
    request = {"schema": case["schema"], "tests": [t["data"] for t in case["tests"]], "walks": walks,
        "texts": walks > 0}
    line = json.dumps(request, ensure_ascii=False, separators=(",", ":")) + "\n"
    program.stdin.write(line.encode())
    program.stdin.flush()
    if walks and not select.select([program.stdout], [], [], WALK_SECONDS)[0]:
        return None
    return program.stdout.readline().decode().split()


def has_infinity(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return any(map(has_infinity, value))
    return isinstance(value, float) and math.isinf(value)


def refused_by_other(schema, texts):
    """The values that jsonschema-rs refuses. It cannot read numbers beyond those of type double."""
    import jsonschema_rs
    validator = jsonschema_rs.validator_for(schema, validate_formats=True, offline=True)
    return [json.dumps(t) for t in texts if not has_infinity(t) and not validator.is_valid(t)]


def start():
    program = os.path.join(build_dir(), "tools/check_json_values")
    return subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def percentile(values, share):
    return sorted(values)[int(share * (len(values) - 1))] if values else 0


def report(total, passed, compile_ns, steps):
    for name in sorted(total):
        print(f"  {name:28} {passed[name]:4} of {total[name]:4}  {100 * passed[name] / total[name]:5.1f} %")
    shown = " / ".join(f"{percentile(compile_ns, p) / 1000:.0f}" for p in (0.5, 0.9, 0.99, 1))
    print(f"  compile time p50 / p90 / p99 / max: {shown} us")
    print(f"  {sum(s[0] for s in steps) / max(1, sum(s[1] for s in steps)):.0f} ns per byte")


def test_maskbench():
    total, passed, wrong = Counter(), Counter(), defaultdict(list)
    compile_ns, steps, walks = [], [], [0, 0, 0, 0]
    program = start()
    for name, case in requests():
        words = answer(program, case, WALKS)
        if words is None:
            wrong["walks not finished"].append(name)
            program.kill()
            program = start()
            words = answer(program, case, 0)
        elif WALKS and words[:1] == ["ok"]:
            found = refused_by_other(case["schema"], json.loads(program.stdout.readline()))
            if found:
                wrong["walks, refused by jsonschema-rs"].append(f"{name}: {found[0]}")
        group = set_of(name)
        total[group] += 1
        if not words or words[0] != "ok":
            wrong["crashed" if not words else "refused"].append(f"{name}: {' '.join(words)}")
            if not words:
                program = start()
            continue
        digits = "" if words[1] == "-" else words[1]
        compile_ns.append(int(words[2]))
        steps.append((int(words[3]), int(words[4])))
        walks = [a + int(b) for a, b in zip(walks, words[6:10])]
        verdicts = [t["valid"] for t in case["tests"]]
        missed = [k for k, (v, d) in enumerate(zip(verdicts, digits)) if v and d == "0"]
        accepted = [k for k, (v, d) in enumerate(zip(verdicts, digits)) if not v and d == "1"]
        for kind, found in (("valid, rejected", missed), ("invalid, accepted", accepted)):
            if found:
                wrong[kind].append(f"{name}: {found}")
        if int(words[7]) or int(words[8]) or int(words[9]):
            wrong["walks"].append(f"{name}: {words[6:10]}")
        passed[group] += not missed and not accepted
    program.stdin.close()
    program.wait()
    for kind in sorted(wrong):
        print(f"  {kind}: {len(wrong[kind])}")
        for line in wrong[kind][:int(os.environ.get("SHOWN", 12))]:
            print("    " + line[:300])
    if not total:
        return
    report(total, passed, compile_ns, steps)
    share = sum(passed.values()) / sum(total.values())
    print(f"  {sum(passed.values())} of {sum(total.values())} schemas, {100 * share:.2f} %; "
          f"{walks[0]} walks, {walks[1]} invalid, {walks[2]} dead ends, {walks[3]} errors")
    assert not wrong["invalid, accepted"] and not wrong["crashed"]
    assert not walks[1] and walks[2] <= DEAD_ENDS_MAX * walks[0], walks
    assert not wrong["walks, refused by jsonschema-rs"]
    if not os.environ.get("MASKBENCH"):
        assert share >= LEAST_SHARE
        assert all(passed[name] >= LEAST_SET_SHARE * total[name] for name in total)


if __name__ == "__main__":
    run(globals())
