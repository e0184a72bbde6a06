#!/usr/bin/env python3
"""Speed beside llama.cpp: the same file, the same threads, in the same minutes.

    bench/compare.py [--rows decode-q4_0,...] [--rounds 5] [--files DIR] [--results FILE]
                     [--seconds S] [--threads 2]
    bench/compare.py --show [--results FILE]        # the table of all rounds kept

Both engines load the model, come to the context that the row asks for and then do the row's work in
turns, round by round, so that a noisy minute hits both. Every round is a line in the results (JSON),
so a table may be measured in pieces; what counts are the medians of tokens per second, and their
ratio, ours over theirs. --seconds ends a piece early.

Models are made by tools/mkmodel where they are not in --files (random weights; some GB).

llama.cpp comes from the package llama-cpp-python. Build it from source with clang, since gcc 12
miscompiles its AMX tile setup:

    python3 -m venv .venv
    CC=clang CXX=clang++ CMAKE_ARGS=-DGGML_NATIVE=ON \\
        .venv/bin/pip install --no-binary llama-cpp-python llama-cpp-python
    .venv/bin/python bench/compare.py

Our side is build/bench/decode (`make build/bench/decode build/tools/mkmodel`)."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
THEIRS = os.path.join(ROOT, "bench/compare_llama.py")

SHAPES = {
    "0.5b-Q4_0": ["--preset", "qwen2.5-0.5b", "--type", "Q4_0"],
    "1b-Q4_0": ["--preset", "llama-3.2-1b", "--type", "Q4_0"],
    "1b-Q8_0": ["--preset", "llama-3.2-1b", "--type", "Q8_0"],
    "1b-Q4_K": ["--preset", "llama-3.2-1b", "--type", "Q4_K"],
    "1b-Q6_K": ["--preset", "llama-3.2-1b", "--type", "Q6_K"],
    "1b-BF16": ["--preset", "llama-3.2-1b", "--type", "BF16"],
    "moe-Q4_0": ["--preset", "qwen3-moe-1b", "--type", "Q4_0"],
}


def row(file, what, goal, **work):
    return {"file": file, "what": what, "goal": goal, "ctx": 0, "batch": 1, "rows": 1, "steps": 16,
            "shared": False, "busy": False, **work}


def table():
    t = {}
    for kind, prompt, decode in (("Q4_0", 4.0, 1.4), ("Q8_0", 4.0, 1.2), ("Q4_K", 4.0, 1.7),
                                 ("Q6_K", 6.0, 2.0), ("BF16", 2.0, 1.3)):
        name = kind.lower()
        t[f"prompt-{name}"] = row(f"1b-{kind}", "prompt of 512", prompt, rows=512, steps=1)
        t[f"decode-{name}"] = row(f"1b-{kind}", "decode", decode, steps=24)
    t["prompt-0.5b"] = row("0.5b-Q4_0", "prompt of 512", 4.0, rows=512, steps=1)
    t["decode-0.5b"] = row("0.5b-Q4_0", "decode", 1.4, steps=24)
    t["prompt-2048"] = row("1b-Q4_0", "prompt of 2,048 behind 2,048", 5.0, rows=512, steps=4, ctx=2048)
    t["decode-4096"] = row("1b-Q4_0", "decode behind 4,096", 2.5, ctx=4096)
    for n, goal in ((8, 1.8), (16, 2.0), (32, 3.0)):
        t[f"decode-x{n}"] = row("1b-Q4_0", f"decode, {n} sequences", goal, batch=n, steps=8)
    t["decode-shared"] = row("1b-Q4_0", "decode, 16 sequences behind the same 2,000", 4.0, ctx=2000,
                             batch=16, steps=8, shared=True)
    t["prompt-moe"] = row("moe-Q4_0", "prompt of 512", 4.0, rows=512, steps=1)
    t["decode-moe"] = row("moe-Q4_0", "decode", None, steps=24)
    t["decode-busy"] = row("1b-Q4_0", "decode beside a busy loop", None, steps=24, busy=True)
    return t


TABLE = table()


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--rows", default=",".join(TABLE), help="of the table; all by default")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=1e9)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--files", default=os.path.join(ROOT, "build/compare"))
    p.add_argument("--results", default=os.path.join(ROOT, "build/compare/results.jsonl"))
    p.add_argument("--ours", default=os.path.join(ROOT, "build/bench/decode"))
    p.add_argument("--kernels", default="auto", help="of our side")
    p.add_argument("--kv-type", default="f16", help="of our side")
    p.add_argument("--show", action="store_true")
    a = p.parse_args()
    for name in a.rows.split(","):
        if name not in TABLE:
            p.error(f"no row {name}; there are {', '.join(TABLE)}")
    return a


def model(a, name):
    path = os.path.join(a.files, name + ".gguf")
    if not os.path.exists(path):
        os.makedirs(a.files, exist_ok=True)
        subprocess.run([os.path.join(ROOT, "build/tools/mkmodel"), *SHAPES[name], "-o", path], check=True)
    return path


def load_average():
    return os.getloadavg()[0]


class Engine:
    """A process that measures once for every line it is sent."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def line(self):
        text = self.process.stdout.readline()
        if not text:
            sys.exit(f"{self.process.args[0]} ended")
        return text.strip()

    def again(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.line()


def work_of(r):
    flags = ["--ctx", r["ctx"], "--batch", r["batch"], "--rows", r["rows"], "--steps", r["steps"]]
    return [str(f) for f in flags] + (["--shared"] if r["shared"] else [])


class Ours(Engine):
    def __init__(self, a, r, path):
        super().__init__([a.ours, path, "--csv", "--turns", "--threads", str(a.threads), "--kernels",
                          a.kernels, "--kv-type", a.kv_type, *work_of(r)])
        self.names = self.line().split(",")
        self.line()  # warm

    def measure(self):
        f = dict(zip(self.names, self.again().split(",")))
        return {"ms": float(f["step_ms"]), "read": float(f["read_percent"]),
                "compute": float(f["compute_percent"])}


class Theirs(Engine):
    def __init__(self, a, r, path):
        super().__init__([sys.executable, THEIRS, path, "--threads", str(a.threads), *work_of(r)])
        self.line()

    def measure(self):
        return {"ms": float(self.again())}


class Busy:
    """Something else that would like to have one of the processors."""

    def __init__(self, is_wanted):
        self.is_wanted = is_wanted

    def __enter__(self):
        if self.is_wanted:
            self.process = subprocess.Popen(["taskset", "-c", "0", sys.executable, "-c",
                                             "while True: pass"])

    def __exit__(self, *_):
        if self.is_wanted:
            self.process.kill()
            self.process.wait()


def measure(engine, r):
    """Tokens a second; beside a busy loop the share of what it was just before."""
    m = engine.measure()
    quiet = r["rows"] * r["batch"] * 1e3 / m["ms"]
    if not r["busy"]:
        return quiet, m
    with Busy(True):
        time.sleep(0.2)  # until it has its processor
        m = engine.measure()
    return r["rows"] * r["batch"] * 1e5 / m["ms"] / quiet, m


def run_row(a, name, until):
    r = TABLE[name]
    path = model(a, r["file"])
    with Theirs(a, r, path) as theirs, Ours(a, r, path) as ours:
        for _ in range(a.rounds):
            if time.monotonic() > until:
                return
            mine, m = measure(ours, r)
            other, _ = measure(theirs, r)
            line = {"row": name, "ours": mine, "theirs": other, "read": m["read"], "load": load_average(),
                    "compute": m["compute"], "commit": commit(), "when": time.strftime("%F %T"),
                    "kernels": a.kernels, "kv": a.kv_type, "threads": a.threads}
            with open(a.results, "a", encoding="ascii") as f:
                f.write(json.dumps(line) + "\n")
            print(f"{name:14} {mine:9.2f} {other:9.2f} {mine / other:6.2f}  load {line['load']:.1f}",
                  flush=True)


def commit():
    out = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True,
        text=True)
    return out.stdout.strip() or "none"


def figure(x):
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}"


def show(a):
    with open(a.results, encoding="ascii") as f:
        lines = [json.loads(line) for line in f]
    print("| file | work | rounds | ours | llama.cpp | ratio | goal | % of the roof | load |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, r in TABLE.items():
        rounds = [x for x in lines if x["row"] == name and x["kernels"] == a.kernels
                  and x["kv"] == a.kv_type]
        if not rounds:
            continue
        ours, theirs = (statistics.median(x[k] for x in rounds) for k in ("ours", "theirs"))
        ratio = statistics.median(x["ours"] / x["theirs"] for x in rounds)
        roof, of = max((statistics.median(x[k] for x in rounds), k) for k in ("read", "compute"))
        loads = sorted(x["load"] for x in rounds)
        print(f"| {r['file']} | {r['what']} | {len(rounds)} | {figure(ours)} | {figure(theirs)} | "
              f"{ratio:.2f} | {r['goal'] or ''} | {roof:.0f} {of} | {loads[0]:.0f} to {loads[-1]:.0f} |")


def main():
    a = arguments()
    if a.show:
        show(a)
        return
    until = time.monotonic() + a.seconds
    for name in a.rows.split(","):
        run_row(a, name, until)


if __name__ == "__main__":
    main()
