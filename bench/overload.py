#!/usr/bin/env python3
"""Goodput of a live server under overload (up to three times its capacity), with a deadline for each
request, and the latency of load shedding. `bench/run overload` starts the server.

    bench/overload.py URL [--model NAME] [--seconds S] [--deadline S]

Each load lasts --seconds seconds. Arrivals are random with a fixed seed. The capacity is the goodput if
all requests arrive at once and have no deadline. The last column is the goodput that the simulator
(testing/replay.h) predicts for the same arrivals from the step costs in the server's metrics."""
import argparse
import json
import os
import random
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOADS = (0.5, 0.8, 1, 1.5, 2, 3)


def write_trace(path, rate, n):
    r, at = random.Random(7), 0.0
    with open(path, "w") as f:
        for _ in range(n):
            at += r.expovariate(rate)
            f.write(f"{at:.4f},{r.randint(30, 200)},{r.randint(10, 80)}\n")


def replay(a, path, deadline):
    out = subprocess.run([os.path.join(ROOT, "build/inferctl"), "--url", a.url, "--json",
        *(["--model", a.model] if a.model else []), "replay", "--live", "--no-prefix-cache",
        "--deadline", str(deadline), path], check=True, capture_output=True, text=True).stdout
    return json.loads(out)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("url")
    p.add_argument("--model", default="")
    p.add_argument("--seconds", type=float, default=8)
    p.add_argument("--deadline", type=float, default=1)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "trace.csv")
        write_trace(path, 1e6, 300)
        replay(a, path, 0)  # warm-up: the server measures its step times
        capacity = replay(a, path, 0)["server"]["goodput_requests_s"]
        print(f"capacity {capacity:.1f} requests/s; deadline {a.deadline} s")
        print("load  goodput/s  done refused dropped late  refusal latency p50, p99 ms"
            "  TTFT p50, p99 s   simulated goodput/s")
        best = last = 0
        for load in LOADS:
            write_trace(path, capacity * load, int(capacity * load * a.seconds))
            j = replay(a, path, a.deadline)
            s, ttft, refused = j["server"], j["server"]["ttft_s"], j["server"]["refused_s"]
            last = s["goodput_requests_s"]
            best = max(best, last)
            print(f"{load:4} {last:10.1f} {s['done']:5} {s['refused']:7} {s['dropped']:7}"
                f" {s['late'] + s['failed']:4}  {refused['p50'] * 1e3:11.2f} {refused['p99'] * 1e3:9.2f}"
                f" {ttft['p50']:16.3f} {ttft['p99']:6.3f} {j['simulator']['goodput_requests_s']:14.1f}",
                flush=True)
        print(f"goodput at {LOADS[-1]} times the capacity: {last / best:.0%} of the maximum")


if __name__ == "__main__":
    main()
