#!/usr/bin/env python3
"""Constrained decoding compared with llguidance and xgrammar on MaskBench files.

    bench/constrain.py [--files 150] [--seed 1] [--rounds 3] [--engines inferflux,llguidance,xgrammar]
                       [--maskbench DIR] [--tekken FILE] [--size 131072] [--limit 20] [--results FILE]
                       [--sets] [--failures]

Each engine is one process with one thread. Each file is run by one engine after the other, so that
other load on the machine affects all; only one of them computes at a time. --files is a random sample
(0: all 1,105), --seed selects it. All engines get the same tokens: the longest token at each place of
the compact JSON text of the instance, in the vocabulary of --tekken (by default that of the Python
package mistral-common, 131,072 tokens).

A sample of the mask time is one mask and the commit of the token after it, along the valid instances up
to a token that is refused. llguidance and xgrammar write a bit set; InferFlux returns its form of the
mask: bit set, list of ids, or all. A schema is compiled once per round, without a cache. Their calls are
timed in Python, which adds less than a microsecond. A file that an engine does not finish within --limit
seconds is a schema that is not compiled, and the engine is started again.

The tables contain medians over the rounds of each percentile. `tests` are schemas of which every test
has the expected result. --sets adds them by set of files. --failures prints them for InferFlux.
--results writes the samples as lines of JSON.

Preparation, from the root of the repository:

    make build/bench/constrain_engine
    python3 -m venv build/constrain-venv
    build/constrain-venv/bin/pip install llguidance==1.9.1 mistral-common numpy
    build/constrain-venv/bin/pip install xgrammar==0.2.8         # optional; needs PyTorch
    sudo nice -n -20 bench/constrain.py

An engine whose package is absent is left out, and a line on standard error names it."""
import argparse
import base64
import glob
import json
import os
import random
import select
import statistics
import struct
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PYTHON = os.path.join(ROOT, "build/constrain-venv/bin/python")
OTHER = os.path.join(ROOT, "bench/constrain_other.py")
TEKKEN = "build/constrain-venv/lib/python*/site-packages/mistral_common/data/tekken_240911.json"
SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1}
MASK_COLUMNS = ["p50", "avg", "p99", "p99.9", "max"]
END = 2  # id of </s> in tekken


# ---- vocabulary


def read_tekken(path, size):
    """Bytes of each token; the first ids are control tokens without bytes."""
    with open(path, encoding="utf-8") as f:
        file = json.load(f)
    n_special = file["config"]["default_num_special_tokens"]
    words = [base64.b64decode(t["token_bytes"]) for t in file["vocab"][:size - n_special]]
    return [b""] * n_special + words


def write_vocabulary(tokens, path):
    with open(path, "wb") as f:
        f.write(struct.pack("<II", len(tokens), END))
        for token in tokens:
            f.write(struct.pack("<I", len(token)) + token)


class Tokenizer:
    """The longest token at each place."""

    def __init__(self, tokens):
        self.ids = {token: k for k, token in enumerate(tokens) if token}
        self.longest = max(map(len, self.ids))

    def encode(self, text):
        out, at = [], 0
        while at < len(text):
            n = min(self.longest, len(text) - at)
            while text[at:at + n] not in self.ids:
                n -= 1
            out.append(self.ids[text[at:at + n]])
            at += n
        return out


# ---- files


def set_of(name):
    return name.split("_")[0] if name.startswith(("BFCL_", "JME_")) else name.split("---")[0]


def read_request(path, tokenizer):
    with open(path, encoding="utf-8") as f:
        case = json.load(f)
    tests = []
    for test in case.get("tests", []):
        text = json.dumps(test["data"], ensure_ascii=False, separators=(",", ":"))
        ids = tokenizer.encode(text.encode("utf-8", "replace"))
        tests.append({"valid": bool(test["valid"]), "ids": ids})
    return {"schema": case["schema"], "tests": tests}


def read_requests(arguments, tokenizer):
    paths = sorted(glob.glob(os.path.join(arguments.maskbench, "*.json")))
    if not paths:
        sys.exit(f"bench/constrain.py: no files *.json in {arguments.maskbench}")
    if 0 < arguments.files < len(paths):
        paths = sorted(random.Random(arguments.seed).sample(paths, arguments.files))
    return {os.path.basename(p): read_request(p, tokenizer) for p in paths}


# ---- engines


class Engine:
    def __init__(self, name, vocabulary, limit):
        self.name, self.limit, self.process = name, limit, None
        self.command = [PYTHON, OTHER, name, vocabulary]
        if name == "inferflux":
            self.command = [os.path.join(ROOT, "build/bench/constrain_engine"), vocabulary]

    def is_available(self):
        if self.name == "inferflux":
            return os.path.exists(self.command[0])
        check = subprocess.run([PYTHON, "-c", f"import {self.name}"], capture_output=True, check=False)
        return check.returncode == 0

    def start(self):
        single = {key: "1" for key in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "MKL_NUM_THREADS")}
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env={**os.environ, **single})
        # The tables of the vocabulary are built outside the measurement.
        if self.exchange({"schema": {"type": "null"}, "tests": []}, 300) is None:
            sys.exit(f"bench/constrain.py: {self.name} did not start")

    def exchange(self, request, limit):
        """The result, or None after a crash or the time limit."""
        try:
            self.process.stdin.write(json.dumps(request, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
            self.process.stdin.flush()
            if select.select([self.process.stdout], [], [], limit)[0]:
                line = self.process.stdout.readline()
                return json.loads(line) if line else None
        except BrokenPipeError:
            pass
        return None

    def run(self, request):
        if self.process is None:
            self.start()
        result = self.exchange(request, self.limit)
        if result is None:
            self.stop()
            result = {"error": "crash or time limit", "accepted": [], "mask_us": [],
                      "compile_us": self.limit * 1e6}
        return result

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None


# ---- report


def percentiles(values):
    values = sorted(values) or [0.0]
    out = {name: values[int(share * (len(values) - 1))] for name, share in SHARES.items()}
    out["avg"] = sum(values) / len(values)
    return out


def median_percentiles(rounds, key):
    """Medians over the rounds of the percentiles of all samples."""
    samples = []
    for results in rounds:
        one = [r[key] for r in results.values() if key == "mask_us" or not r["error"]]
        samples.append(percentiles([v for m in one for v in (m if key == "mask_us" else [m])]))
    return {name: statistics.median(s[name] for s in samples) for name in samples[0]}


def has_passed(request, result):
    return not result["error"] and result["accepted"] == [t["valid"] for t in request["tests"]]


def count(requests, results):
    """Compiled, passed, invalid accepted, valid refused."""
    compiled = sum(not r["error"] for r in results.values())
    passed = sum(has_passed(requests[name], r) for name, r in results.items())
    pairs = [(t["valid"], accepted) for name, r in results.items()
             for t, accepted in zip(requests[name]["tests"], r["accepted"])]
    return compiled, passed, sum(not v and a for v, a in pairs), sum(v and not a for v, a in pairs)


def report(requests, recorded):
    n_tests = [t["valid"] for r in requests.values() for t in r["tests"]]
    print(f"{len(requests)} files, {sum(n_tests)} valid and {len(n_tests) - sum(n_tests)} invalid instances")
    print("| engine | compiled | tests | invalid accepted | valid refused | compile p50 / p99 / max, us "
          "| mask " + " / ".join(MASK_COLUMNS) + ", us |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for name, rounds in recorded.items():
        c, m = median_percentiles(rounds, "compile_us"), median_percentiles(rounds, "mask_us")
        cells = [str(v) for v in count(requests, rounds[0])]
        cells.append(" / ".join(f"{c[k]:,.0f}" for k in ("p50", "p99", "max")))
        cells.append(" / ".join(f"{m[k]:,.1f}" for k in MASK_COLUMNS))
        print(f"| {name} | " + " | ".join(cells) + " |")


def report_sets(requests, recorded):
    sets = sorted({set_of(name) for name in requests})
    print("\n| set | files | " + " | ".join(f"{name}: compiled, tests" for name in recorded) + " |")
    print("|---" * (len(recorded) + 2) + "|")
    for one in sets:
        names = [name for name in requests if set_of(name) == one]
        cells = []
        for rounds in recorded.values():
            cells.append("{}, {}".format(*count(requests, {k: rounds[0][k] for k in names})[:2]))
        print(f"| {one} | {len(names)} | " + " | ".join(cells) + " |")


def report_failures(requests, results):
    for name, result in results.items():
        if not has_passed(requests[name], result):
            expected = [t["valid"] for t in requests[name]["tests"]]
            difference = f"accepted {result['accepted']}, expected {expected}"
            print(f"{name}: {result['error'] or difference}")


# ---- main


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = os.environ.get("SHARED_DATA", os.path.join(ROOT, "../shared/data"))
    p.add_argument("--files", type=int, default=150)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--engines", default="inferflux,llguidance,xgrammar")
    p.add_argument("--maskbench", default=os.path.join(data, "maskbench"))
    p.add_argument("--tekken", default=next(iter(glob.glob(os.path.join(ROOT, TEKKEN))), None))
    p.add_argument("--size", type=int, default=131072)
    p.add_argument("--limit", type=float, default=20)
    p.add_argument("--results")
    p.add_argument("--sets", action="store_true")
    p.add_argument("--failures", action="store_true")
    return p.parse_args()


def measure(engines, requests, rounds, results_path):
    recorded = {engine.name: [] for engine in engines}
    for number in range(rounds):
        for engine in engines:
            recorded[engine.name].append({})
        for name, request in requests.items():
            for engine in engines:
                result = engine.run(request)
                recorded[engine.name][-1][name] = result
                if results_path:
                    with open(results_path, "a", encoding="utf-8") as f:
                        f.write(json.dumps({"engine": engine.name, "round": number, "file": name, **result}) + "\n")
    return recorded


def main():
    arguments = parse_arguments()
    if not arguments.tekken:
        sys.exit("bench/constrain.py: --tekken: the package mistral-common is not installed")
    tokens = read_tekken(arguments.tekken, arguments.size)
    vocabulary = os.path.join(ROOT, "build/constrain-vocabulary.bin")
    write_vocabulary(tokens, vocabulary)
    engines = [Engine(name, vocabulary, arguments.limit) for name in arguments.engines.split(",")]
    for engine in engines:
        if not engine.is_available():
            print(f"bench/constrain.py: {engine.name} is not available", file=sys.stderr)
    engines = [engine for engine in engines if engine.is_available()]
    requests = read_requests(arguments, Tokenizer(tokens))
    try:
        recorded = measure(engines, requests, arguments.rounds, arguments.results)
    finally:
        for engine in engines:
            engine.stop()
    report(requests, recorded)
    if arguments.sets:
        report_sets(requests, recorded)
    if arguments.failures and "inferflux" in recorded:
        report_failures(requests, recorded["inferflux"][0])


if __name__ == "__main__":
    main()
