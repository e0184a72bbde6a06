#!/usr/bin/env python3
"""Serving beside llama-server: the same file, threads and requests, in turns in the same minutes.

    bench/serving.py --llama-server PATH MODEL.gguf [--rows serve-8,...] [--rounds 5]
                     [--results FILE] [--threads 2] [--ours build/inferfluxd]
    bench/serving.py --show [--results FILE]

serve-N: N clients, each asking again as soon as it was answered, --turns times; a prompt is 128
random tokens of its own, an answer 64 tokens, streamed from POST /completion, which both have. Tokens
a second over all, the time to the first token (p50) and the gap between two tokens of a stream (p99).
No token of a prompt may come from a cache, as each server says itself (cache_n of its timings; ours
also tokens_cached), or the run ends.
Guesses are off on both sides: random weights repeat themselves. Both compute as many sequences
together as there are clients at most.

start: from the start of the process to the first token over HTTP, the file in the page cache and not
the first start; the most memory that was resident after that, and after eight clients (rss).

Every round is a line in the results (JSON); what counts are medians, and the medians of the ratios.
llama-server is built from the sources in the package that bench/compare.py names, with
-DLLAMA_BUILD_SERVER=ON and the same flags."""
import argparse
import contextlib
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROMPT, ANSWER, CTX = 128, 64, 256
CLIENTS = (1, 4, 8, 16)
GOALS = {  # tokens a second, first token, gap: ours / theirs
    "serve-1": (1.4, None, None), "serve-4": (2.0, None, None), "serve-8": (2.5, 0.3, 0.5),
    "serve-16": (2.5, None, None), "start": (0.5,), "rss": (1.0,),
}


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("model", nargs="?")
    p.add_argument("--llama-server")
    p.add_argument("--ours", default=os.path.join(ROOT, "build/inferfluxd"))
    p.add_argument("--rows", default=",".join(GOALS))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--results", default=os.path.join(ROOT, "build/compare/serving.jsonl"))
    p.add_argument("--show", action="store_true")
    a = p.parse_args()
    for name in a.rows.split(","):
        if name not in GOALS:
            p.error(f"no row {name}; there are {', '.join(GOALS)}")
    if not a.show and not (a.model and a.llama_server):
        p.error("needs a model and --llama-server")
    return a


# ---- servers

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """One of the two, from its start on."""

    def __init__(self, command, port, env=None, is_ours=False):
        self.port, self.is_ours, self.began = port, is_ours, time.perf_counter()
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env={**os.environ, **(env or {})})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def until_ready(self):
        while not self.is_ready():
            if self.process.poll() is not None:
                sys.exit(f"{self.process.args[0]} ended with {self.process.returncode}")
            time.sleep(0.002)

    def is_ready(self):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)) as s:
            s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return s.recv(64).split(b" ")[1:2] == [b"200"]
        return False

    def peak_mb(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmHWM")) / 1024


def ours(a):
    port = free_port()
    return Server([a.ours, "--model", a.model, "--port", str(port), "--threads", str(a.threads),
                   "--log-level", "error", "--store", "none", "--spec", "off", "--parallel",
                   str(max(CLIENTS))], port, is_ours=True)


def theirs(a):
    port = free_port()
    slots = max(CLIENTS)
    libs = os.path.dirname(os.path.abspath(a.llama_server))
    return Server([a.llama_server, "-m", a.model, "--host", "127.0.0.1", "--port", str(port), "-t",
                   str(a.threads), "-tb", str(a.threads), "-np", str(slots), "-c", str(slots * CTX),
                   "--no-webui", "--no-cache-prompt"], port, {"LD_LIBRARY_PATH": libs})


# ---- a client

def body_of(seed, answer):
    r = random.Random(seed)
    return json.dumps({"prompt": [r.randrange(300, 30000) for _ in range(PROMPT)],
                       "n_predict": answer, "ignore_eos": True, "stream": True, "cache_prompt": False,
                       "temperature": 0}).encode()


def tokens_from_cache(end, is_ours):
    """Of the prompt, as the server says itself; nothing may be found there."""
    found = end["timings"]["cache_n"]
    if is_ours:
        found = max(found, end["tokens_cached"])  # theirs counts what it keeps, not what it found
    if found:
        sys.exit(f"{found} tokens of a prompt came from a cache")
    return found


def ask(server, seed, answer=ANSWER):
    """When each event of the answer came, after the send, and how many tokens came from a cache."""
    body = body_of(seed, answer)
    times, text, last = [], b"", None
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        start = time.perf_counter()
        s.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                  b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        while more := s.recv(65536):
            now = time.perf_counter() - start
            text += more
            *lines, text = text.split(b"\n")
            for line in lines:
                if line.startswith(b"data: {"):
                    last = line[6:]
                    times.append(now)
    if not last:
        sys.exit(f"no answer: {text[:300]!r}")
    end = json.loads(last)
    if not end.get("stop"):
        sys.exit(f"an answer without its end: {last[:300]!r}")
    if end["tokens_predicted"] != answer:
        sys.exit(f"{end['tokens_predicted']} tokens, not {answer}")
    return times, tokens_from_cache(end, server.is_ours)


def crowd(server, clients, turns, seed):
    """Tokens a second, first token (p50, ms), gap (p99, ms)."""
    all_times, lock = [], threading.Lock()
    server.cached = 0

    def client(i):
        for t in range(turns):
            times, cached = ask(server, f"{seed}-{i}-{t}")
            with lock:
                all_times.append(times)
                server.cached += cached

    threads = [threading.Thread(target=client, args=(i,)) for i in range(clients)]
    start = time.perf_counter()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    took = time.perf_counter() - start
    if len(all_times) != clients * turns:
        sys.exit("a client's answer is missing")
    gaps = sorted(b - a for times in all_times for a, b in zip(times, times[1:-1]))
    first = statistics.median(times[0] for times in all_times)
    return clients * turns * ANSWER / took, first * 1e3, gaps[int(0.99 * (len(gaps) - 1))] * 1e3


# ---- rows

def put(a, row, mine, other, cached=None):
    line = {"row": row, "ours": mine, "theirs": other, "cached": cached, "load": os.getloadavg()[0],
            "when": time.strftime("%F %T"), "threads": a.threads, "model": os.path.basename(a.model)}
    with open(a.results, "a", encoding="ascii") as f:
        f.write(json.dumps(line) + "\n")
    shown = "  ".join(f"{x:.1f} / {y:.1f} = {x / y:.2f}" for x, y in zip(mine, other))
    said = f"  cached {cached[0]} {cached[1]}" if cached else ""
    print(f"{row:9} {shown}{said}  load {line['load']:.1f}", flush=True)


def serve(a, rows):
    with ours(a) as mine, theirs(a) as other:
        for server in (mine, other):
            server.until_ready()
            crowd(server, 2, 1, "warm")
        for row in rows:
            n = int(row.split("-")[1])
            for i in range(a.rounds):
                seed = f"{time.time()}-{i}"
                turns = max(a.turns, 8 // n)
                found = [crowd(server, n, turns, seed) for server in (mine, other)]
                put(a, row, *found, [mine.cached, other.cached])


def start(a):
    for i in range(a.rounds + 1):
        found = []
        for make in (ours, theirs):
            with make(a) as server:
                server.until_ready()
                ask(server, f"start-{i}", 1)
                found.append([(time.perf_counter() - server.began) * 1e3])
        if i:  # the first start may pack the weights and fill the page cache
            put(a, "start", *found)


def rss(a):
    found = []
    for make in (ours, theirs):
        with make(a) as server:
            server.until_ready()
            ask(server, "rss", 1)
            small = server.peak_mb()
            crowd(server, 8, 1, "rss")
            found.append((small, server.peak_mb()))
    put(a, "rss", *found)


def show(a):
    with open(a.results, encoding="ascii") as f:
        lines = [json.loads(line) for line in f]
    print("| row | rounds | ours / llama-server, each measure | goals | cached, ours and theirs |")
    print("|---|---|---|---|---|")
    for row, goals in GOALS.items():
        rounds = [x for x in lines if x["row"] == row]
        if not rounds:
            continue
        cells = []
        for k in range(len(rounds[0]["ours"])):
            mine, other = (statistics.median(x[who][k] for x in rounds) for who in ("ours", "theirs"))
            ratio = statistics.median(x["ours"][k] / x["theirs"][k] for x in rounds)
            cells.append(f"{mine:.1f} / {other:.1f} = {ratio:.2f}")
        cached = [x["cached"] for x in rounds if x.get("cached")]
        said = ", ".join(str(sum(c[i] for c in cached)) for i in (0, 1)) if cached else ""
        print(f"| {row} | {len(rounds)} | {', '.join(cells)} | {', '.join(str(g or '') for g in goals)} "
              f"| {said} |")


def main():
    a = arguments()
    if a.show:
        show(a)
        return
    os.makedirs(os.path.dirname(a.results), exist_ok=True)
    rows = a.rows.split(",")
    serving = [row for row in rows if row.startswith("serve-")]
    if serving:
        serve(a, serving)
    if "start" in rows:
        start(a)
    if "rss" in rows:
        rss(a)


if __name__ == "__main__":
    main()
