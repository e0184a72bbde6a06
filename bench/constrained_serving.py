#!/usr/bin/env python3
"""Output speed of a live server under a JSON Schema, compared with the same request without it.

    bench/constrained_serving.py URL [--model NAME] [--tokens N] [--rounds N] [--clients 1,16]

Both requests have the same prompt and generate N tokens; the schema permits texts of any length. They
alternate, so that the load of the machine affects both, and the table has medians over all rounds of
the speed of a round (tokens of all clients per second) and of the ratio within a round. The forced
schema has long constant texts, so its output depends on draft tokens of the constraint."""
import argparse
import json
import statistics
import threading
import time
import urllib.request

OPEN = {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"},
    "count": {"type": "integer"}}, "required": ["name", "count"]}, "minItems": 1000}
FORCED = {"type": "array", "items": {"type": "object", "properties": {
    "function_name": {"const": "get_current_weather"}, "temperature_unit": {"enum": ["celsius", "kelvin"]},
    "number_of_days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["function_name", "temperature_unit", "number_of_days"]}, "minItems": 1000}
KINDS = {"none": None, "schema": OPEN, "forced": FORCED}


def request(a, kind, seed):
    limits = {"ignore_eos": True} if kind == "none" else {"x_constraint": {"whitespace": "compact"},
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": KINDS[kind]}}}
    body = {"prompt": "The data as JSON:", "max_tokens": a.tokens, "temperature": 1, "seed": seed, **limits}
    data = json.dumps({**({"model": a.model} if a.model else {}), **body}).encode()
    call = urllib.request.Request(a.url + "/v1/completions", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(call, timeout=600) as r:
        return json.load(r)["usage"]["completion_tokens"]


def speed(a, kind, n_clients, seed):
    counts = []
    threads = [threading.Thread(target=lambda k=k: counts.append(request(a, kind, seed + k)))
        for k in range(n_clients)]
    start = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(counts) == n_clients, "a request failed"
    return sum(counts) / (time.monotonic() - start)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("url")
    p.add_argument("--model", default="")
    p.add_argument("--tokens", type=int, default=64)
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--clients", default="1,16")
    a = p.parse_args()
    print("clients  kind    tokens/s  ratio to none")
    for n_clients in map(int, a.clients.split(",")):
        rounds = []
        for kind in KINDS:
            speed(a, kind, n_clients, 0)  # compiles the schema, fills the prefix cache
        for seed in range(a.rounds):
            rounds.append({kind: speed(a, kind, n_clients, 1000 * seed) for kind in KINDS})
        for kind in KINDS:
            ratio = statistics.median(r[kind] / r["none"] for r in rounds)
            print(f"{n_clients:7}  {kind:6}  {statistics.median(r[kind] for r in rounds):8.1f}  {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
