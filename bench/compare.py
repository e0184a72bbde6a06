#!/usr/bin/env python3
"""Decode speed beside llama.cpp: the same file, the same threads, in the same minutes.

    bench/compare.py MODEL.gguf [--threads 2] [--ctx 0] [--steps 48] [--rounds 5] [--prompt N]

Both engines load the model and decode one sequence token by token, in turns, so that a noisy
minute hits both. Each round gives the median step of each; the answer is the median round, and
the ratio of tokens per second, ours over theirs. --prompt N compares prompts of N tokens instead.

llama.cpp comes from the package llama-cpp-python. Build it from source with clang, since gcc 12
miscompiles its AMX tile setup:

    python3 -m venv .venv
    CC=clang CXX=clang++ CMAKE_ARGS=-DGGML_NATIVE=ON \\
        .venv/bin/pip install --no-binary llama-cpp-python llama-cpp-python
    .venv/bin/python bench/compare.py MODEL.gguf

Our side is build/bench/decode (`make build/bench/decode`)."""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("model")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--ctx", type=int, default=0, help="positions before the measured ones")
    p.add_argument("--steps", type=int, default=48)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--prompt", type=int, default=0, help="measure a prompt of N tokens instead")
    p.add_argument("--ours", default=os.path.join(ROOT, "build/bench/decode"))
    p.add_argument("--theirs", action="store_true", help=argparse.SUPPRESS)
    return p.parse_args()


def theirs(a):
    """In a process of its own: loads, steps, prints the median step in milliseconds."""
    import llama_cpp as lc

    quiet = lc.llama_log_callback(lambda level, text, user: None)
    lc.llama_log_set(quiet, ctypes.c_void_p(0))
    lc.llama_backend_init()
    model = lc.llama_model_load_from_file(a.model.encode(), lc.llama_model_default_params())
    rows = a.prompt or 1
    params = lc.llama_context_default_params()
    params.n_ctx = max(512, a.ctx + rows * (a.steps + 2))
    params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = a.threads
    context = lc.llama_init_from_model(model, params)

    def feed(n):
        tokens = (lc.llama_token * n)(*[(i * 7919 + 11) % 1000 for i in range(n)])
        start = time.perf_counter()
        if lc.llama_decode(context, lc.llama_batch_get_one(tokens, n)):
            sys.exit("llama_decode failed")
        lc.llama_get_logits_ith(context, -1)  # waits for the last of it
        return (time.perf_counter() - start) * 1e3

    for at in range(0, a.ctx, 512):
        feed(min(512, a.ctx - at))
    feed(rows)
    print(json.dumps(statistics.median(feed(rows) for _ in range(a.steps))))


def ours_once(a):
    command = [a.ours, a.model, "--csv", "--threads", str(a.threads), "--ctx", str(a.ctx),
        "--rows", str(a.prompt or 1), "--steps", str(a.steps)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")
    return float(dict(zip(out[0].split(","), out[1].split(",")))["step_ms"])


def theirs_once(a):
    command = [sys.executable, os.path.abspath(__file__), "--theirs"] + sys.argv[1:]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def machine():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    return f"{names[0] if names else 'unknown processor'}, {os.cpu_count()} processors"


def version():
    import llama_cpp

    return llama_cpp.__version__


def commit():
    out = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True,
        text=True)
    return out.stdout.strip() or "none"


def main():
    a = arguments()
    if a.theirs:
        theirs(a)
        return
    rows = a.prompt or 1
    pairs = []
    print("round      ours    theirs  tokens/s")
    for i in range(a.rounds):
        pair = (rows * 1e3 / ours_once(a), rows * 1e3 / theirs_once(a))
        pairs.append(pair)
        print(f"{i + 1:5} {pair[0]:9.2f} {pair[1]:9.2f}", flush=True)
    ours, other = (statistics.median(p[i] for p in pairs) for i in (0, 1))
    print(f"median {ours:8.2f} {other:9.2f}   ours/theirs = {ours / other:.2f}")
    print("date,commit,machine,model,threads,ctx,rows,ours_tokens_s,theirs_tokens_s,ratio,theirs")
    print(f'{time.strftime("%Y-%m-%d")},{commit()},"{machine()}",{os.path.basename(a.model)},'
          f"{a.threads},{a.ctx},{rows},{ours:.2f},{other:.2f},{ours / other:.2f},"
          f"llama-cpp-python {version()}")


if __name__ == "__main__":
    main()
