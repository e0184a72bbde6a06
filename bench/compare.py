#!/usr/bin/env python3
"""Speed beside llama.cpp: the same file, the same threads, in the same minutes.

    bench/compare.py [--rows decode-q4_0,...] [--rounds 5] [--files DIR] [--results FILE]
                     [--seconds S] [--threads 2] [--kernels auto] [--kv-type f16]
    bench/compare.py --show [--results FILE]        # the tables of all rounds kept

Both engines load the model, come to the context that the row asks for and then do the row's work in
turns, round by round, so that a noisy minute hits both. Each round has a seed of its own: both get
the same random tokens, that neither has seen. The roofs of memory and of products (of tiles, on a
processor that has them, whichever kernels run) are measured before and after our work of each round,
and the round's percent are of the higher. Every round is a line in the results (JSON), so a table may
be measured in pieces; what counts are medians of tokens per second, of the ratios ours / theirs, and
of the percents. --seconds ends a piece early. --show has a table for each commit of our sources,
kernels, keys and values, number of threads and build of theirs, the newest first.

Models are made by tools/mkmodel where they are not in --files (random weights; some GB).

llama.cpp comes from the package llama-cpp-python, built from source with clang, since gcc 12
miscompiles its AMX tile setup. On a processor with AMX the fastest configuration is not native, whose
AVX512-FP16 slows attention, but what llama.cpp calls its Sapphire Rapids variant:

    python3 -m venv .venv
    V="-DGGML_SSE42=ON -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON"
    V="$V -DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON -DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON"
    V="$V -DGGML_AMX_TILE=ON -DGGML_AMX_INT8=ON"
    CC=clang CXX=clang++ CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_OPENMP=OFF $V" \\
        .venv/bin/pip install --no-binary llama-cpp-python llama-cpp-python
    .venv/bin/python bench/compare.py

Without AMX, CMAKE_ARGS="-DGGML_NATIVE=ON -DGGML_OPENMP=OFF". The rows with --kernels avx2 want theirs
limited to the same: a second build of the package's vendor/llama.cpp, found by its folder:

    V="-DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON"
    CC=clang CXX=clang++ cmake -G Ninja -B avx2 -DGGML_NATIVE=OFF $V -DBUILD_SHARED_LIBS=ON \\
        -DCMAKE_BUILD_TYPE=Release -DGGML_OPENMP=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF \\
        -DLLAMA_BUILD_EXAMPLES=OFF vendor/llama.cpp
    ninja -C avx2 llama
    LLAMA_CPP_LIB_PATH=avx2/bin .venv/bin/python bench/compare.py --kernels avx2 \\
        --rows prompt-q4_0,decode-q4_0

Our side is build/bench/decode (`make build/bench/decode build/tools/mkmodel`)."""
import argparse
import json
import os
import random
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
    "1b-Q4_K_M": ["--preset", "llama-3.2-1b", "--type", "Q4_K_M"],
    "1b-Q6_K": ["--preset", "llama-3.2-1b", "--type", "Q6_K"],
    "1b-BF16": ["--preset", "llama-3.2-1b", "--type", "BF16"],
    "1b-F16": ["--preset", "llama-3.2-1b", "--type", "F16"],
    "moe-Q4_0": ["--preset", "qwen3-moe-1b", "--type", "Q4_0"],
}


def row(file, what, **work):
    return {"file": file, "what": what, "ctx": 0, "batch": 1, "rows": 1, "steps": 16,
            "shared": False, "busy": False, **work}


def table():
    t = {}
    for kind in ("Q4_0", "Q8_0", "Q4_K_M", "Q4_K", "Q6_K", "BF16", "F16"):
        t[f"prompt-{kind.lower()}"] = row(f"1b-{kind}", "prompt of 512", rows=512, steps=1)
        t[f"decode-{kind.lower()}"] = row(f"1b-{kind}", "decode", steps=24)
    t["prompt-0.5b"] = row("0.5b-Q4_0", "prompt of 512", rows=512, steps=1)
    t["decode-0.5b"] = row("0.5b-Q4_0", "decode", steps=24)
    t["prompt-2048"] = row("1b-Q4_0", "prompt of 2,048 behind 2,048", rows=512, steps=4, ctx=2048)
    t["decode-4096"] = row("1b-Q4_0", "decode behind 4,096", ctx=4096)
    for n in (8, 16, 32):
        t[f"decode-x{n}"] = row("1b-Q4_0", f"decode, {n} sequences", batch=n, steps=8)
    t["decode-shared"] = row("1b-Q4_0", "decode, 16 sequences behind the same 2,000", ctx=2000,
                             batch=16, steps=8, shared=True)
    t["prompt-moe"] = row("moe-Q4_0", "prompt of 512", rows=512, steps=1)
    t["decode-moe"] = row("moe-Q4_0", "decode", steps=24)
    t["decode-busy"] = row("1b-Q4_0", "decode beside a busy loop, % of the quiet speed", steps=24,
                           busy=True)
    return t


TABLE = table()

# Ours over theirs, at least. Those of "auto" are for a processor with AMX.
GOALS = {
    "auto": {"prompt-q4_0": 4.0, "prompt-q8_0": 4.0, "prompt-q4_k_m": 4.0, "prompt-q6_k": 6.0,
             "prompt-bf16": 2.0, "prompt-f16": 2.0, "prompt-2048": 5.0, "decode-q4_0": 1.4,
             "decode-q4_k_m": 1.7, "decode-q6_k": 2.0, "decode-q8_0": 1.2, "decode-bf16": 1.3,
             "decode-4096": 2.5, "decode-x8": 1.8, "decode-x16": 2.0, "decode-x32": 3.0,
             "prompt-moe": 4.0, "decode-shared": 4.0, "prompt-0.5b": 4.0, "decode-0.5b": 1.4},
    "avx512": {"prompt-q4_0": 1.3, "decode-q4_0": 1.3},
    "avx2": {"prompt-q4_0": 1.0, "decode-q4_0": 1.1},
}
# Or this percent of what reading memory gets: decoding one sequence without a context.
READ_ENOUGH = 85
READ_ROWS = {f"decode-{kind}" for kind in ("q4_0", "q4_k_m", "q6_k", "q8_0", "bf16", "0.5b")}
BUSY_ENOUGH = 45  # percent of the quiet speed that ours keeps


def arguments():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
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

    def again(self, seed):
        self.process.stdin.write(f"{seed}\n")
        self.process.stdin.flush()
        return self.line()


def work_of(r):
    flags = ["--ctx", r["ctx"], "--batch", r["batch"], "--rows", r["rows"], "--steps", r["steps"]]
    return [str(f) for f in flags] + (["--shared"] if r["shared"] else [])


class Ours(Engine):
    def __init__(self, a, r, path):
        super().__init__([a.ours, path, "--csv", "--turns", "--threads", str(a.threads),
                          "--kernels", a.kernels, "--kv-type", a.kv_type, *work_of(r)])
        self.names = self.line().split(",")
        self.line()  # warm

    def measure(self, seed):
        f = dict(zip(self.names, map(float, self.again(seed).split(","))))
        return {"ms": f["step_ms"], "read": f["read_percent"], "compute": f["compute_percent"],
                "read_roof": f["read_roof_gb_s"], "compute_roof": f["compute_roof_gmac_s"],
                "cached": f["cached"]}


class Theirs(Engine):
    def __init__(self, a, r, path):
        super().__init__([sys.executable, THEIRS, path, "--threads", str(a.threads), *work_of(r)])
        self.build = build_of(json.loads(self.line()))

    def measure(self, seed):
        return json.loads(self.again(seed))


def build_of(info):
    """Of the instructions that llama.cpp says it was built for, those that tell builds apart."""
    on = {part.split("=")[0].split(":")[-1].strip() for part in info.split("|") if part.strip().endswith("= 1")}
    order = ("AMX_INT8", "AVX512_FP16", "AVX512_BF16", "AVX512_VNNI", "AVX512", "AVX_VNNI", "AVX2", "NEON")
    return " ".join(name for name in order if name in on)


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


def measure(engine, r, seed):
    """Tokens a second; beside a busy loop the share of what it was just before."""
    m = engine.measure(seed)
    quiet = r["rows"] * r["batch"] * 1e3 / m["ms"]
    if not r["busy"]:
        return quiet, m
    with Busy(True):
        time.sleep(0.2)  # until it has its processor
        n = engine.measure(seed + 1)
    n["cached"] += m["cached"]
    return r["rows"] * r["batch"] * 1e5 / n["ms"] / quiet, n


def run_row(a, name, until):
    r = TABLE[name]
    path = model(a, r["file"])
    with Theirs(a, r, path) as theirs, Ours(a, r, path) as ours:
        for _ in range(a.rounds):
            if time.monotonic() > until:
                return
            seed = random.randrange(1 << 60)
            mine, m = measure(ours, r, seed)
            other, t = measure(theirs, r, seed)
            if m["cached"] or t["cached"]:
                sys.exit(f"{name}: tokens from a cache: {m['cached']:.0f} of ours, {t['cached']} of theirs")
            line = {"row": name, "ours": mine, "theirs": other, "cached": [m["cached"], t["cached"]],
                    **{k: m[k] for k in ("read", "compute", "read_roof", "compute_roof")},
                    "load": load_average(), "commit": commit(), "build": theirs.build, "seed": seed,
                    "when": time.strftime("%F %T"), "kernels": a.kernels, "kv": a.kv_type,
                    "threads": a.threads}
            with open(a.results, "a", encoding="ascii") as f:
                f.write(json.dumps(line) + "\n")
            print(f"{name:14} {mine:9.2f} {other:9.2f} {mine / other:6.2f}  "
                  f"{m['read']:5.1f} % of {m['read_roof']:.1f} GB/s  "
                  f"{m['compute']:5.1f} % of {m['compute_roof']:.0f} GMAC/s  "
                  f"cached {m['cached']:.0f} {t['cached']}  load {line['load']:.1f}", flush=True)


def commit():
    """The last one that changed what our side is made of."""
    out = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%h", "--", "src", "Makefile",
                          "bench/decode.c"], capture_output=True, text=True)
    return out.stdout.strip() or "none"


def figure(x):
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}"


def verdict(name, kernels, build, ratio, ours, read):
    """The goal of a row, and whether it is met."""
    if name == "decode-busy":
        return f"ours at least {BUSY_ENOUGH}: {'met' if ours >= BUSY_ENOUGH else 'not met'}"
    goal = GOALS.get(kernels, {}).get(name)
    if not goal:
        return ""
    if kernels == "avx2" and "AVX512" in build:
        return f"{goal}: theirs is not limited to AVX2"
    said = f"{goal}: {'met' if ratio >= goal else 'not met'}"
    if name in READ_ROWS and kernels == "auto":
        said += f"; {READ_ENOUGH} % of reading: {'met' if read >= READ_ENOUGH else 'not met'}"
    return said


def summary(name, rounds):
    """A line of the table, of the rounds of one row in one group."""
    r, first = TABLE[name], rounds[0]
    mid = {k: statistics.median(x[k] for x in rounds) for k in ("ours", "theirs", "read", "compute")}
    ratio = statistics.median(x["ours"] / x["theirs"] for x in rounds)
    loads = sorted(x["load"] for x in rounds)
    cached = [f"{sum(x['cached'][i] for x in rounds):.0f}" for i in (0, 1)]
    said = verdict(name, first["kernels"], first["build"], ratio, mid["ours"], mid["read"])
    cells = (r["file"], r["what"], len(rounds), figure(mid["ours"]), figure(mid["theirs"]),
             f"{ratio:.2f}", said, f"{mid['read']:.0f}", f"{mid['compute']:.0f}", ", ".join(cached),
             f"{loads[0]:.0f} to {loads[-1]:.0f}")
    return f"| {' | '.join(map(str, cells))} |"


def groups_of(lines):
    """Rounds that may be taken together, the newest first."""
    groups = {}
    for x in lines:
        groups.setdefault((x["commit"], x["kernels"], x["kv"], x["threads"], x["build"]), []).append(x)
    return sorted(groups.items(), key=lambda g: max(x["when"] for x in g[1]), reverse=True)


def show(a):
    with open(a.results, encoding="ascii") as f:
        lines = [json.loads(line) for line in f]
    old = [x for x in lines if "build" not in x]
    if old:
        print(f"{len(old)} rounds left out that were kept by an older form of this script\n")
    for (at, kernels, kv, threads, build), rounds in groups_of(x for x in lines if "build" in x):
        print(f"kernels {kernels}, keys and values {kv}, {threads} threads, ours of {at}, "
              f"llama.cpp for {build}:\n")
        print("| file | work | rounds | ours | llama.cpp | ratio | goal | % of reading | % of products "
              "| cached, ours and theirs | load |")
        print("|---|---|---|---|---|---|---|---|---|---|---|")
        for name in TABLE:
            of_row = [x for x in rounds if x["row"] == name]
            if of_row:
                print(summary(name, of_row))
        print()


def main():
    a = arguments()
    if a.show:
        show(a)
        return
    os.makedirs(os.path.dirname(os.path.abspath(a.results)), exist_ok=True)
    until = time.monotonic() + a.seconds
    for name in a.rows.split(","):
        run_row(a, name, until)


if __name__ == "__main__":
    main()
