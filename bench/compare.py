#!/usr/bin/env python3
"""Prefill and decode speed compared with llama.cpp: same file, same threads, measured alternately.

    bench/compare.py [--rows decode-q4_0,...] [--rounds 5] [--files DIR] [--results FILE]
                     [--seconds S] [--threads 2] [--kernels auto] [--kv-type f16] [--peer DIR]
                     [--peer-ik]
    bench/compare.py --show [--results FILE]        # prints tables of all recorded rounds

Both engines load the model and fill the KV cache to the depth of the row. Then they alternate round by
round, so that other load on the machine affects both. Each round has its own seed: both engines get
the same random tokens, which neither has in a cache. The roofs (memory bandwidth, and multiply-adds of
the widest instruction of the CPU, also if narrower kernels run) are measured before and after the
InferFlux part of each round; the higher one is the reference of the percentages. Every round is a line
of JSON in the results file, so a table can be measured in several runs. Tables contain the medians of
tokens/s, of the ratios InferFlux / llama.cpp, and of the percentages. --seconds limits the duration of
a run. --show prints one table for each combination of commit, kernel set, KV type, number of threads
and llama.cpp build, the newest first. --peer DIR measures a second build of llama.cpp, or a fork with
the same C interface, in the same rounds; DIR contains its shared libraries. --peer-ik: DIR is a build of
ik_llama.cpp, which has another interface (bench/compare_ik.py). Tests have the names of llama-bench: pp512
is prefill of 512 tokens, tg24 generation of 24 tokens, @d4096 starts at depth 4,096, c8 is a batch of 8
sequences.

Models that are not in --files are generated with tools/mkmodel (random weights; several GB).

llama.cpp comes from the package llama-cpp-python, built from source with clang, since gcc 12
miscompiles its AMX tile setup. On a CPU with AMX the fastest configuration is llama.cpp's Sapphire
Rapids variant; a native build uses AVX512-FP16, which makes attention slower:

    python3 -m venv .venv
    V="-DGGML_SSE42=ON -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON"
    V="$V -DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON -DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON"
    V="$V -DGGML_AMX_TILE=ON -DGGML_AMX_INT8=ON"
    CC=clang CXX=clang++ CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_OPENMP=OFF $V" \\
        .venv/bin/pip install --no-binary llama-cpp-python llama-cpp-python
    .venv/bin/python bench/compare.py

Without AMX, CMAKE_ARGS="-DGGML_NATIVE=ON -DGGML_OPENMP=OFF". For a comparison with --kernels avx2,
llama.cpp must be limited to AVX2 too: build the package's vendor/llama.cpp a second time and set
LLAMA_CPP_LIB_PATH:

    V="-DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON"
    CC=clang CXX=clang++ cmake -G Ninja -B avx2 -DGGML_NATIVE=OFF $V -DBUILD_SHARED_LIBS=ON \\
        -DCMAKE_BUILD_TYPE=Release -DGGML_OPENMP=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF \\
        -DLLAMA_BUILD_EXAMPLES=OFF vendor/llama.cpp
    ninja -C avx2 llama
    LLAMA_CPP_LIB_PATH=avx2/bin .venv/bin/python bench/compare.py --kernels avx2 \\
        --rows prompt-q4_0,decode-q4_0

ik_llama.cpp comes from the package ik-llama-cpp-python, whose library is limited to AVX2. Its source does not
compile for AVX-512 with clang 14.

    .venv/bin/pip install ik-llama-cpp-python
    IK=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')/ik_llama_cpp/lib
    .venv/bin/python bench/compare.py --kernels avx2 --peer $IK --peer-ik --rows decode-iq2_xxs

The InferFlux side is build/bench/decode (`make build/bench/decode build/tools/mkmodel`)."""
import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LLAMA_SCRIPT = os.path.join(ROOT, "bench/compare_llama.py")

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
    "mla-Q4_0": ["--preset", "deepseek-mla-2b", "--type", "Q4_0"],
    "deltanet-Q4_0": ["--preset", "qwen3.5-35b-a3b-4l", "--type", "Q4_0"],
    "mamba2-Q4_0": ["--preset", "granite-4-h-tiny-6l", "--type", "Q4_0"],
    "nemotron-Q4_0": ["--preset", "nemotron-3-nano-6l", "--type", "Q4_0"],
    "lfm2-Q4_0": ["--preset", "lfm2-1.2b", "--type", "Q4_0"],
    "gemma3-Q4_0": ["--preset", "gemma-3-1b", "--type", "Q4_0"],
    "gpt-oss-MXFP4": ["--preset", "gpt-oss-20b-4l", "--type", "MXFP4"],
}
# Types of 2 and 3 bits.
SMALL_TYPES = ("Q2_K", "Q3_K", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S")
SHAPES |= {f"1b-{kind}": ["--preset", "llama-3.2-1b", "--type", kind] for kind in SMALL_TYPES}
RECURRENT = ("deltanet", "mamba2", "nemotron", "lfm2")  # llama.cpp cannot go back to a filled context


def row(file, what, **work):
    return {"file": file, "what": what, "ctx": 0, "batch": 1, "rows": 1, "steps": 16,
            "shared": False, "busy": False, **work}


def table():
    t = {}
    for kind in ("Q4_0", "Q8_0", "Q4_K_M", "Q4_K", "Q6_K", "BF16", "F16", *SMALL_TYPES):
        t[f"prompt-{kind.lower()}"] = row(f"1b-{kind}", "pp512", rows=512, steps=1)
        t[f"decode-{kind.lower()}"] = row(f"1b-{kind}", "tg24", steps=24)
    t["prompt-0.5b"] = row("0.5b-Q4_0", "pp512", rows=512, steps=1)
    t["decode-0.5b"] = row("0.5b-Q4_0", "tg24", steps=24)
    t["prompt-2048"] = row("1b-Q4_0", "pp2048 @d2048", rows=512, steps=4, ctx=2048)
    t["decode-4096"] = row("1b-Q4_0", "tg16 @d4096", ctx=4096)
    for n in (8, 16, 32):
        t[f"decode-x{n}"] = row("1b-Q4_0", f"tg8 c{n}", batch=n, steps=8)
    t["decode-shared"] = row("1b-Q4_0", "tg8 @d2000 c16, shared prefix", ctx=2000, batch=16, steps=8,
                             shared=True)
    t["prompt-moe"] = row("moe-Q4_0", "pp512", rows=512, steps=1)
    t["decode-moe"] = row("moe-Q4_0", "tg24", steps=24)
    t["prompt-mla"] = row("mla-Q4_0", "pp512", rows=512, steps=1)
    t["decode-mla"] = row("mla-Q4_0", "tg16 @d4096", ctx=4096)
    for shape in RECURRENT:
        t[f"prompt-{shape}"] = row(f"{shape}-Q4_0", "pp512", rows=512, steps=1)
        t[f"decode-{shape}"] = row(f"{shape}-Q4_0", "tg24", steps=24)
    for shape in ("deltanet", "mamba2"):
        for n in (8, 32):
            t[f"decode-{shape}-x{n}"] = row(f"{shape}-Q4_0", f"tg8 c{n}", batch=n, steps=8)
    for shape, file in (("gemma3", "gemma3-Q4_0"), ("gpt-oss", "gpt-oss-MXFP4")):
        t[f"prompt-{shape}"] = row(file, "pp512", rows=512, steps=1)
        t[f"decode-{shape}"] = row(file, "tg24", steps=24)
        t[f"decode-{shape}-8192"] = row(file, "tg16 @d8192", ctx=8192)
    t["decode-busy"] = row("1b-Q4_0", "tg24, busy loop on a CPU, % of idle", steps=24, busy=True)
    return t


TABLE = table()

# Goals: minimum ratio InferFlux / llama.cpp by kernel set. Those of "auto" are for a CPU with AMX.
GOALS = {
    "auto": {"prompt-q4_0": 4.0, "prompt-q8_0": 4.0, "prompt-q4_k_m": 4.0, "prompt-q6_k": 6.0,
             "prompt-bf16": 2.0, "prompt-f16": 2.0, "prompt-2048": 5.0, "decode-q4_0": 1.4,
             "decode-q4_k_m": 1.7, "decode-q6_k": 2.0, "decode-q8_0": 1.2, "decode-bf16": 1.3,
             "decode-4096": 2.5, "decode-x8": 1.8, "decode-x16": 2.0, "decode-x32": 3.0,
             "prompt-moe": 4.0, "decode-shared": 4.0, "prompt-0.5b": 4.0, "decode-0.5b": 1.4},
    "avx512": {"prompt-q4_0": 1.3, "decode-q4_0": 1.3},
    "avx2": {"prompt-q4_0": 1.0, "decode-q4_0": 1.1},
}
GOALS["auto"] |= {f"prompt-{kind.lower()}": 4.0 if kind.startswith("IQ") else 2.0 for kind in SMALL_TYPES}
GOALS["auto"] |= {f"decode-{kind.lower()}": 1.2 for kind in SMALL_TYPES}
GOALS["auto"] |= {"prompt-deltanet": 2.5, "prompt-mamba2": 2.5, "decode-deltanet": 1.5, "decode-mamba2": 1.5,
                  "decode-deltanet-x8": 3.0, "decode-mamba2-x8": 3.0, "prompt-mla": 2.0, "decode-mla": 2.0,
                  "decode-gemma3-8192": 1.5, "decode-gpt-oss-8192": 1.5}
# Second goal of the decode rows with one sequence and no context: percent of the memory bandwidth.
READ_ENOUGH = 85
READ_ROWS = {f"decode-{kind}" for kind in ("q4_0", "q4_k_m", "q6_k", "q8_0", "bf16", "0.5b")}
BUSY_ENOUGH = 45  # goal of decode-busy: percent of the idle speed


def arguments():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rows", default=",".join(TABLE), help="rows of the table; default: all")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=1e9)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--files", default=os.path.join(ROOT, "build/compare"))
    p.add_argument("--results", default=os.path.join(ROOT, "build/compare/results.jsonl"))
    p.add_argument("--inferflux", default=os.path.join(ROOT, "build/bench/decode"))
    p.add_argument("--kernels", default="auto", help="kernel set of InferFlux")
    p.add_argument("--kv-type", default="f16", help="KV type of InferFlux")
    p.add_argument("--peer", metavar="DIR", help="libraries of a second build of llama.cpp or a fork")
    p.add_argument("--peer-ik", action="store_true", help="the second build is ik_llama.cpp")
    p.add_argument("--show", action="store_true")
    a = p.parse_args()
    for name in a.rows.split(","):
        if name not in TABLE:
            p.error(f"no row {name}; there are {', '.join(TABLE)}")
    if a.peer and not os.path.isdir(a.peer):
        p.error(f"--peer {a.peer} is not a directory")
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
    """Benchmark process: measures once for every line that it reads from stdin."""

    def __init__(self, command, env=None):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=env)

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

    def send_seed(self, seed):
        self.process.stdin.write(f"{seed}\n")
        self.process.stdin.flush()
        return self.line()


def step_flags(r):
    flags = ["--ctx", r["ctx"], "--batch", r["batch"], "--rows", r["rows"], "--steps", r["steps"]]
    return [str(f) for f in flags] + (["--shared"] if r["shared"] else [])


class InferFluxEngine(Engine):
    def __init__(self, a, r, path):
        super().__init__([a.inferflux, path, "--csv", "--turns", "--threads", str(a.threads),
                          "--kernels", a.kernels, "--kv-type", a.kv_type, *step_flags(r)])
        self.names = self.line().split(",")
        self.line()  # warm-up

    def measure(self, seed):
        f = dict(zip(self.names, map(float, self.send_seed(seed).split(","))))
        return {"ms": f["step_ms"], "read": f["read_percent"], "compute": f["compute_percent"],
                "read_roof": f["read_roof_gb_s"], "compute_roof": f["compute_roof_gmac_s"],
                "cached": f["cached"]}


class LlamaEngine(Engine):
    """llama.cpp, or with `libraries` the build in that directory. Each has its own KV cache files."""

    def __init__(self, a, r, path, libraries=None):
        command = [sys.executable, LLAMA_SCRIPT, path, "--threads", str(a.threads), *step_flags(r)]
        env = None
        if libraries:
            command += ["--state-suffix", f"{os.path.basename(os.path.abspath(libraries))}.state"]
            command += ["--ik"] if a.peer_ik else []
            env = {**os.environ, "LLAMA_CPP_LIB_PATH": os.path.abspath(libraries)}
        super().__init__(command, env)
        self.build = build_of(json.loads(self.line()))

    def measure(self, seed):
        return json.loads(self.send_seed(seed))


def build_of(info):
    """Name of a llama.cpp build: the instruction sets in its system info that distinguish builds."""
    on = {part.split("=")[0].split(":")[-1].strip() for part in info.split("|") if part.strip().endswith("= 1")}
    order = ("AMX_INT8", "AVX512_FP16", "AVX512_BF16", "AVX512_VNNI", "AVX512", "AVX_VNNI", "AVX2", "NEON")
    return " ".join(name for name in order if name in on)


class BusyLoop:
    """Busy loop pinned to CPU 0, as other load."""

    def __init__(self, is_enabled):
        self.is_enabled = is_enabled

    def __enter__(self):
        if self.is_enabled:
            self.process = subprocess.Popen(["taskset", "-c", "0", sys.executable, "-c",
                                             "while True: pass"])

    def __exit__(self, *_):
        if self.is_enabled:
            self.process.kill()
            self.process.wait()


def measure(engine, r, seed):
    """Tokens/s; for a row with a busy loop, percent of the idle speed measured directly before."""
    m = engine.measure(seed)
    idle = r["rows"] * r["batch"] * 1e3 / m["ms"]
    if not r["busy"]:
        return idle, m
    with BusyLoop(True):
        time.sleep(0.2)  # until the loop runs
        n = engine.measure(seed + 1)
    n["cached"] += m["cached"]
    return r["rows"] * r["batch"] * 1e5 / n["ms"] / idle, n


def run_row(a, name, deadline):
    r = TABLE[name]
    path = model(a, r["file"])
    with contextlib.ExitStack() as engines:
        llama = engines.enter_context(LlamaEngine(a, r, path))
        peer = engines.enter_context(LlamaEngine(a, r, path, a.peer)) if a.peer else None
        inferflux = engines.enter_context(InferFluxEngine(a, r, path))
        for _ in range(a.rounds):
            if time.monotonic() > deadline:
                return
            seed = random.randrange(1 << 60)
            inferflux_speed, m = measure(inferflux, r, seed)
            llama_speed, t = measure(llama, r, seed)
            if m["cached"] or t["cached"]:
                sys.exit(f"{name}: tokens from a cache: {m['cached']:.0f} InferFlux, {t['cached']} llama.cpp")
            line = {"row": name, "ours": inferflux_speed, "theirs": llama_speed,
                    "cached": [m["cached"], t["cached"]],
                    **{k: m[k] for k in ("read", "compute", "read_roof", "compute_roof")},
                    "load": load_average(), "commit": commit(), "build": llama.build, "seed": seed,
                    "when": time.strftime("%F %T"), "kernels": a.kernels, "kv": a.kv_type,
                    "threads": a.threads}
            if peer:
                peer_speed, p = measure(peer, r, seed)
                if p["cached"]:
                    sys.exit(f"{name}: {p['cached']} tokens from a cache of {a.peer}")
                line |= {"peer": f"{a.peer} ({peer.build})", "peer_speed": peer_speed}
            with open(a.results, "a", encoding="ascii") as f:
                f.write(json.dumps(line) + "\n")
            ratio = inferflux_speed / llama_speed
            print(f"{name:14} {inferflux_speed:9.2f} {llama_speed:9.2f} {ratio:6.2f}  "
                  f"{m['read']:5.1f} % of {m['read_roof']:.1f} GB/s  "
                  f"{m['compute']:5.1f} % of {m['compute_roof']:.0f} GMAC/s  "
                  f"cached {m['cached']:.0f} {t['cached']}  load {line['load']:.1f}"
                  + (f"  peer {peer_speed:.2f} {inferflux_speed / peer_speed:.2f}" if peer else ""), flush=True)


def commit():
    """Last commit that changed the sources of the InferFlux side."""
    out = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%h", "--", "src", "Makefile",
                          "bench/decode.c"], capture_output=True, text=True)
    return out.stdout.strip() or "none"


def format_number(x):
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}"


def verdict(name, kernels, build, ratio, inferflux, read):
    """Goal of a row, and whether it is met."""
    if name == "decode-busy":
        return f"at least {BUSY_ENOUGH} %: {'met' if inferflux >= BUSY_ENOUGH else 'not met'}"
    goal = GOALS.get(kernels, {}).get(name)
    if not goal:
        return ""
    if kernels == "avx2" and "AVX512" in build:
        return f"{goal}: llama.cpp is not limited to AVX2"
    text = f"{goal}: {'met' if ratio >= goal else 'not met'}"
    if name in READ_ROWS and kernels == "auto":
        text += f"; {READ_ENOUGH} % mem: {'met' if read >= READ_ENOUGH else 'not met'}"
    return text


def summary(name, rounds):
    """Line of the table: medians of the rounds of one row in one group."""
    r, first = TABLE[name], rounds[0]
    mid = {k: statistics.median(x[k] for x in rounds) for k in ("ours", "theirs", "read", "compute")}
    ratio = statistics.median(x["ours"] / x["theirs"] for x in rounds)
    loads = sorted(x["load"] for x in rounds)
    cached = [f"{sum(x['cached'][i] for x in rounds):.0f}" for i in (0, 1)]
    text = verdict(name, first["kernels"], first["build"], ratio, mid["ours"], mid["read"])
    cells = (r["file"], r["what"], len(rounds), format_number(mid["ours"]), format_number(mid["theirs"]),
             f"{ratio:.2f}", text, f"{mid['read']:.0f}", f"{mid['compute']:.0f}", ", ".join(cached),
             f"{loads[0]:.0f} to {loads[-1]:.0f}")
    if "peer" in first:
        cells += (format_number(statistics.median(x["peer_speed"] for x in rounds)),
                  f"{statistics.median(x['ours'] / x['peer_speed'] for x in rounds):.2f}")
    return f"| {' | '.join(map(str, cells))} |"


def group_rounds(lines):
    """Groups of comparable rounds, the newest group first."""
    groups = {}
    for x in lines:
        groups.setdefault((x["commit"], x["kernels"], x["kv"], x["threads"], x["build"],
                           x.get("peer")), []).append(x)
    return sorted(groups.items(), key=lambda g: max(x["when"] for x in g[1]), reverse=True)


def show(a):
    with open(a.results, encoding="ascii") as f:
        lines = [json.loads(line) for line in f]
    old = [x for x in lines if "build" not in x]
    if old:
        print(f"{len(old)} rounds ignored: recorded by an older version of this script\n")
    for (at, kernels, kv, threads, build, peer), rounds in group_rounds(x for x in lines if "build" in x):
        print(f"kernels {kernels}, KV type {kv}, {threads} threads, InferFlux commit {at}, "
              f"llama.cpp build {build}{f', peer {peer}' if peer else ''}:\n")
        print("| model | test | rounds | InferFlux t/s | llama.cpp t/s | ratio | goal | % mem | % compute "
              "| cached (InferFlux, llama.cpp) | load |" + (" peer t/s | ratio to peer |" if peer else ""))
        print("|---" * (13 if peer else 11) + "|")
        for name in TABLE:
            row_rounds = [x for x in rounds if x["row"] == name]
            if row_rounds:
                print(summary(name, row_rounds))
        print()


def main():
    a = arguments()
    if a.show:
        show(a)
        return
    os.makedirs(os.path.dirname(os.path.abspath(a.results)), exist_ok=True)
    deadline = time.monotonic() + a.seconds
    for name in a.rows.split(","):
        run_row(a, name, deadline)


if __name__ == "__main__":
    main()
