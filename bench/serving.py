#!/usr/bin/env python3
"""Serving compared with llama-server: same file, threads and requests, measured alternately.

    bench/serving.py --llama-server PATH MODEL.gguf [--rows serve-8,...] [--rounds 5]
                     [--results FILE] [--threads 2] [--inferfluxd build/inferfluxd]
    bench/serving.py --show [--results FILE]

serve-N: N clients in a closed loop, --turns requests each. A prompt is 128 unique random tokens; 64
tokens are generated and streamed from POST /completion, which both servers have. Results: total output
tokens/s, time to first token (TTFT, p50) and inter-token latency (ITL, p99). If a server reports that
a prompt token came from its cache (cache_n in its timings; InferFlux also tokens_cached), the run ends
with an error. Speculative decoding is off in both, since a model with random weights repeats itself.
Both servers have as many slots as the largest number of clients.

start: time from the start of the process to the first token over HTTP, with the file in the page cache
and after a first start. rss: peak resident memory after one request, and after eight clients.

Every round is a line of JSON in the results file. Tables contain medians, and medians of the ratios.
llama-server is built from the sources in the package that bench/compare.py uses, with
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
N_PROMPT, N_OUTPUT, CTX = 128, 64, 256
CLIENTS = (1, 4, 8, 16)
GOALS = {  # ratio InferFlux / llama-server: tokens/s, TTFT, ITL
    "serve-1": (1.4, None, None), "serve-4": (2.0, None, None), "serve-8": (2.5, 0.3, 0.5),
    "serve-16": (2.5, None, None), "start": (0.5,), "rss": (1.0,),
}


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("model", nargs="?")
    p.add_argument("--llama-server")
    p.add_argument("--inferfluxd", default=os.path.join(ROOT, "build/inferfluxd"))
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
    """A server process."""

    def __init__(self, command, port, env=None, is_inferflux=False):
        self.port, self.is_inferflux, self.start_time = port, is_inferflux, time.perf_counter()
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
            s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return s.recv(64).split(b" ")[1:2] == [b"200"]
        return False

    def peak_mb(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmHWM")) / 1024


def start_inferflux(a):
    port = free_port()
    return Server([a.inferfluxd, "--model", a.model, "--port", str(port), "--threads", str(a.threads),
                   "--log-level", "error", "--store", "none", "--spec", "off", "--parallel",
                   str(max(CLIENTS))], port, is_inferflux=True)


def start_llama(a):
    port = free_port()
    slots = max(CLIENTS)
    libs = os.path.dirname(os.path.abspath(a.llama_server))
    return Server([a.llama_server, "-m", a.model, "--host", "127.0.0.1", "--port", str(port), "-t",
                   str(a.threads), "-tb", str(a.threads), "-np", str(slots), "-c", str(slots * CTX),
                   "--no-webui", "--no-cache-prompt"], port, {"LD_LIBRARY_PATH": libs})


# ---- client

def request_body(seed, n_output):
    r = random.Random(seed)
    return json.dumps({"prompt": [r.randrange(300, 30000) for _ in range(N_PROMPT)],
                       "n_predict": n_output, "ignore_eos": True, "stream": True, "cache_prompt": False,
                       "temperature": 0}).encode()


def tokens_from_cache(end, is_inferflux):
    """Number of prompt tokens that the server took from a cache; the run ends if it is not 0."""
    found = end["timings"]["cache_n"]
    if is_inferflux:
        # In llama-server tokens_cached is the number of tokens in the slot, not of cache hits.
        found = max(found, end["tokens_cached"])
    if found:
        sys.exit(f"{found} tokens of a prompt came from a cache")
    return found


def send_request(server, seed, n_output=N_OUTPUT):
    """Arrival times of the response's events (seconds after sending), and tokens from a cache."""
    body = request_body(seed, n_output)
    times, text, last = [], b"", None
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        start = time.perf_counter()
        s.sendall(b"POST /completion HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
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
        sys.exit(f"no response: {text[:300]!r}")
    end = json.loads(last)
    if not end.get("stop"):
        sys.exit(f"incomplete response: {last[:300]!r}")
    if end["tokens_predicted"] != n_output:
        sys.exit(f"{end['tokens_predicted']} tokens, not {n_output}")
    return times, tokens_from_cache(end, server.is_inferflux)


def run_clients(server, clients, turns, seed):
    """Tokens/s, TTFT (p50, ms), ITL (p99, ms)."""
    all_times, lock = [], threading.Lock()
    server.cached = 0

    def client(i):
        for t in range(turns):
            times, cached = send_request(server, f"{seed}-{i}-{t}")
            with lock:
                all_times.append(times)
                server.cached += cached

    threads = [threading.Thread(target=client, args=(i,)) for i in range(clients)]
    start = time.perf_counter()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    seconds = time.perf_counter() - start
    if len(all_times) != clients * turns:
        sys.exit("a response is missing")
    gaps = sorted(b - a for times in all_times for a, b in zip(times, times[1:-1]))
    first = statistics.median(times[0] for times in all_times)
    return clients * turns * N_OUTPUT / seconds, first * 1e3, gaps[int(0.99 * (len(gaps) - 1))] * 1e3


# ---- rows

def write_result(a, row, inferflux, llama, cached=None):
    line = {"row": row, "ours": inferflux, "theirs": llama, "cached": cached, "load": os.getloadavg()[0],
            "when": time.strftime("%F %T"), "threads": a.threads, "model": os.path.basename(a.model)}
    with open(a.results, "a", encoding="ascii") as f:
        f.write(json.dumps(line) + "\n")
    shown = "  ".join(f"{x:.1f} / {y:.1f} = {x / y:.2f}" for x, y in zip(inferflux, llama))
    cached_text = f"  cached {cached[0]} {cached[1]}" if cached else ""
    print(f"{row:9} {shown}{cached_text}  load {line['load']:.1f}", flush=True)


def serve(a, rows):
    with start_inferflux(a) as inferflux, start_llama(a) as llama:
        for server in (inferflux, llama):
            server.until_ready()
            run_clients(server, 2, 1, "warm")
        for row in rows:
            n = int(row.split("-")[1])
            for i in range(a.rounds):
                seed = f"{time.time()}-{i}"
                turns = max(a.turns, 8 // n)
                found = [run_clients(server, n, turns, seed) for server in (inferflux, llama)]
                write_result(a, row, *found, [inferflux.cached, llama.cached])


def start(a):
    for i in range(a.rounds + 1):
        found = []
        for make in (start_inferflux, start_llama):
            with make(a) as server:
                server.until_ready()
                send_request(server, f"start-{i}", 1)
                found.append([(time.perf_counter() - server.start_time) * 1e3])
        if i:  # the first start may pack the weights and fill the page cache
            write_result(a, "start", *found)


def measure_rss(a):
    found = []
    for make in (start_inferflux, start_llama):
        with make(a) as server:
            server.until_ready()
            send_request(server, "rss", 1)
            first_rss = server.peak_mb()
            run_clients(server, 8, 1, "rss")
            found.append((first_rss, server.peak_mb()))
    write_result(a, "rss", *found)


def show(a):
    with open(a.results, encoding="ascii") as f:
        lines = [json.loads(line) for line in f]
    print("| row | rounds | InferFlux / llama-server = ratio, per result | goals "
          "| cached (InferFlux, llama-server) |")
    print("|---|---|---|---|---|")
    for row, goals in GOALS.items():
        rounds = [x for x in lines if x["row"] == row]
        if not rounds:
            continue
        cells = []
        for k in range(len(rounds[0]["ours"])):
            inferflux, llama = (statistics.median(x[who][k] for x in rounds) for who in ("ours", "theirs"))
            ratio = statistics.median(x["ours"][k] / x["theirs"][k] for x in rounds)
            cells.append(f"{inferflux:.1f} / {llama:.1f} = {ratio:.2f}")
        cached = [x["cached"] for x in rounds if x.get("cached")]
        cached_text = ", ".join(str(sum(c[i] for c in cached)) for i in (0, 1)) if cached else ""
        print(f"| {row} | {len(rounds)} | {', '.join(cells)} | {', '.join(str(g or '') for g in goals)} "
              f"| {cached_text} |")


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
        measure_rss(a)


if __name__ == "__main__":
    main()
