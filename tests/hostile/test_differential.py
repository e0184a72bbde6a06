#!/usr/bin/env python3
"""The same requests to a busy server, with every cache, drafter and preemption, and one at a time to a
bare server without them. The responses are byte-identical, except for members that name, date or count
(kit.VARYING).

Requests of all dialects share prefixes, belong to several keys and are sent several times. Meanwhile
other clients disconnect and cancel. `make test-differential` runs it for DIFFERENTIAL_SECONDS."""
import json
import os
import random
import subprocess
import tempfile

import bodies
import kit
from harness import program

# The release build by default: bytes are compared, not memory.
if os.path.exists(os.path.join(kit.ROOT, "build/inferfluxd")):
    os.environ.setdefault("BUILD", "build")
SLICE_CASES = 40
ROUND = 40  # requests that are sent together
REPEATS = 2
MORE_ROUNDS, MORE_AT = 6, 1 << 20  # rounds beyond the plan, and the index of the first one
CLIENTS, CANCELLERS = 6, 2
KEYS = ("alpha", "beta", "gamma")
# The keys may use their priorities against other keys, so that requests are preempted.
COMMON = ("--api-key", ",".join(key + ":priority=9" for key in KEYS) + ",root:admin",
    "--ctx-size", "512", "--log-level", "error", "--sse-ping-interval", "3600000", "--max-queue", "1000", "--response-cache-ttl", "3600")
BUSY = ("--parallel", "4", "--max-sequences", "8", "--kv-bytes", "2M", "--draft-min", "2", "--response-cache", "16M",
    "--responses-store", "1M", "--ubatch-size", "48", "--fairness-preempt", "--fairness-timeslice", "8",
    "--threads-http", "2", "--threads", "2")
BARE = ("--parallel", "1", "--max-sequences", "1", "--prefix-cache", "off", "--spec", "off", "--response-cache", "0",
    "--threads", "1", "--mixed-step-percent", "0")
TOPICS = ("What is InferFlux?", "How do I build InferFlux?", "Which port does the server use?", "1, 2, 1, 2, 1, 2,",
    "Name a file. Name a key. Name a file.", "What can you do? " * 12)
TOOLS = bodies.TOOLS
CALL = ("I look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}\n"
    "</tool_call>\nDone.")
# Constraints that force long texts, and choices between them.
CONSTRAINTS = ({"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object",
    "properties": {"kind": {"const": "answer of the server"}, "question_number": {"type": "integer"}},
    "required": ["kind", "question_number"]}}}},
    {"regex": "(The answer to this question is|Nobody knows) [a-z]{1,9}\\."},
    {"guided_choice": ["left and then right", "right and then left"]})
# Metrics that show that the busy server used what the bare server lacks.
USED = ("prefix_matched_tokens_total", "response_cache_hits_total", "kv_disk_written_pages_total",
    "kv_disk_fetched_pages_total", "requests_cancelled_total", "fairness_yields_total", "fairness_preemptions_total",
    *(f'spec_decode_accepted_tokens_total{{drafter="{d}"}}' for d in ("prediction", "ngram", "model", "forced")))


def turns(rng):
    """Returns a conversation; many begin with the same turns."""
    found = [{"role": "user", "content": rng.choice(TOPICS)}]
    for _ in range(rng.choice((0, 0, 1, 2))):
        found += [{"role": "assistant", "content": rng.choice(("InferFlux is a server.", "I do not know."))},
            {"role": "user", "content": rng.choice(TOPICS)}]
    return found


def sampling(rng, most):
    s = {"temperature": rng.choice((0, 0, 0.7, 1)), "seed": rng.randrange(5)}
    if rng.random() < 0.3:
        s["top_k"] = 20
    return s, rng.choice((1, 7, most // 2, most))


def make_chat(rng, stream):
    s, n = sampling(rng, 48)
    body = {"messages": [{"role": "system", "content": "You are brief."}] * rng.randrange(2) + turns(rng), **s,
        "max_tokens": n, "stream": stream}
    kind = rng.randrange(6)
    if kind == 0:
        body.update(logprobs=True, top_logprobs=3)
    elif kind == 1:
        body.update(n=rng.choice((2, 3)), **rng.choice((*CONSTRAINTS, {})))
    elif kind == 2:
        body.update(tools=TOOLS, model="echo", script=CALL[:rng.choice((len(CALL), 60))], max_tokens=400)
    elif kind == 3:
        body.update(tools=TOOLS, tool_choice=rng.choice(("auto", "required")))
    elif kind == 4:
        body.update(stop=rng.choice((["."], ["e", "zz"], " ")))
    else:
        body["prediction"] = {"type": "content", "content": "InferFlux is an inference server. I do not know."}
    if rng.random() < 0.4:
        body["priority"] = rng.choice((-3, 9))
    if stream and rng.random() < 0.5:
        body["stream_options"] = {"include_usage": True}
    return "/v1/chat/completions", body


def make_completion(rng, stream):
    s, n = sampling(rng, 48)
    body = {"prompt": rng.choice(TOPICS + (list(TOPICS[:2]),)), **s, "max_tokens": n, "stream": stream,
        "ignore_eos": rng.random() < 0.3, "frequency_penalty": rng.choice((0, 0.5))}
    if rng.random() < 0.5:
        body.update(logprobs=2, echo=rng.random() < 0.5)
    return "/v1/completions", body


def make_messages(rng, stream):
    s, n = sampling(rng, 48)
    body = {"messages": turns(rng), **s, "max_tokens": n, "stream": stream, "system": "You are brief."}
    if rng.random() < 0.3:
        body.update(model="echo", script=CALL, max_tokens=400, tools=[{"name": "get_weather",
            "input_schema": bodies.SCHEMA, "eager_input_streaming": rng.random() < 0.5}])
    elif rng.random() < 0.3:
        body["stop_sequences"] = ["."]
    return "/v1/messages", body


def make_responses(rng, stream):
    s, n = sampling(rng, 48)
    body = {"input": turns(rng), **s, "max_output_tokens": n, "stream": stream, "store": rng.random() < 0.5}
    if rng.random() < 0.3:
        body.update(model="echo", script=CALL, max_output_tokens=400, tools=[{"type": "function",
            "name": "get_weather", "parameters": bodies.SCHEMA}])
    return "/v1/responses", body


def make_ollama(rng, stream):
    s, n = sampling(rng, 48)
    body = {"stream": stream, "options": {**s, "num_predict": n}}
    if rng.random() < 0.5:
        return "/api/generate", {**body, "prompt": rng.choice(TOPICS), "raw": rng.random() < 0.3}
    if rng.random() < 0.3:
        body.update(model="echo", script=CALL, tools=TOOLS, options={"num_predict": 400, "seed": 1})
    return "/api/chat", {**body, "messages": turns(rng)}


def make_native(rng, stream):
    s, n = sampling(rng, 48)
    return "/completion", {"prompt": rng.choice(TOPICS), **s, "n_predict": n, "stream": stream,
        "n_probs": rng.choice((0, 0, 2)), "return_tokens": rng.random() < 0.5, "cache_prompt": rng.random() < 0.8}


def make_tokens(rng, stream):
    path = rng.choice(("/tokenize", "/apply-template", "/v1/messages/count_tokens"))
    return path, {"content": rng.choice(TOPICS), "with_pieces": True} if path == "/tokenize" else \
        {"messages": turns(rng), "max_tokens": 1}


MAKERS = (make_chat, make_chat, make_chat, make_completion, make_messages, make_responses, make_ollama, make_native,
    make_tokens)


def make(rng):
    """Returns (path, body, key)."""
    path, body = rng.choice(MAKERS)(rng, rng.random() < 0.5)
    return path, json.dumps({"model": rng.choice(("demo", "demo", "thin")), **body}), rng.choice(KEYS)


def send(server, request):
    path, body, key = request
    status, fields, text = server.request("POST", path, body, Authorization="Bearer " + key)
    return status, fields.get("content-type"), text


def by_choice(text):
    """Orders the frames of a stream with several choices by choice: their frames may alternate."""
    def choice(frame):
        hit = kit.re.search(rb'"choices":\[\{"index":(\d+)', frame)
        return int(hit[1]) if hit else 1 << 30

    return b"\n\n".join(sorted(text.split(b"\n\n"), key=choice))


def comparable(answer):
    status, kind, text = answer
    text = kit.comparable(text)
    return status, kind, by_choice(text) if kind == "text/event-stream" else text


def cancel_some(server, requests, rng, is_over):
    """Sends requests and disconnects, or cancels them by their id, until the round is over."""
    while not is_over.is_set():
        path, body, key = rng.choice(requests)
        name = f"cancel-{rng.randrange(1 << 40)}"
        body = body.replace('"max_tokens": ', '"ignore_eos": true, "max_tokens": 40')
        c = server.connect()
        c.sendall((f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nx-request-id: {name}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}").encode())
        c.settimeout(rng.choice((0.001, 0.01, 0.05)))
        try:
            c.recv(rng.choice((1, 300, 3000)))
        except OSError:
            pass
        if rng.random() < 0.3:
            server.request("DELETE", "/v1/requests/" + name, None, Authorization="Bearer " + key)
        c.close()


def run_round(plan, busy, bare, indices):
    """Compares the responses to one group of requests."""
    requests = [make(plan.rng(i)) for i in indices]
    rng = random.Random(f"{plan.seed} {indices[0]}")
    order = list(range(len(requests))) * REPEATS
    rng.shuffle(order)
    answers, want, lock, is_over = [[] for _ in requests], [], kit.threading.Lock(), kit.threading.Event()

    def client():
        while True:
            with lock:
                if not order:
                    return
                i = order.pop()
            try:
                answer = comparable(send(busy, requests[i]))
            except Exception as e:
                answer = repr(e)
            answers[i].append(answer)

    clients = [kit.threading.Thread(target=client) for _ in range(CLIENTS)]
    others = [kit.threading.Thread(target=cancel_some, args=(busy, requests, random.Random(k), is_over))
        for k in range(CANCELLERS)]
    for t in (*clients, *others):
        t.start()
    for request in requests:
        want.append(comparable(send(bare, request)))
    for t in clients:
        t.join()
    is_over.set()
    for t in others:
        t.join()
    for index, request, found, expected in zip(indices, requests, answers, want):
        bad = [a for a in found if a != expected]
        if bad or expected[0] >= 500:
            plan.fail(index, json.dumps([request, repr(expected), repr(bad)]).encode(),
                f"{request}\n  bare: {expected}\n  busy: {bad[:1]}")
        else:
            plan.done(request[0], f"status {expected[0]}")


def make_thin(folder):
    """Writes the demo model without one layer."""
    path = os.path.join(folder, "thin.gguf")
    subprocess.run([program("tools/mkmodel"), "--from", f"{kit.ROOT}/models/demo.gguf", "--keep", "0,1,2,3,5", "-o",
        path], check=True, stdout=subprocess.DEVNULL)
    return path


def config(thin, has_draft):
    """Serves two models, of which one may have the other as draft model, and the script back end."""
    demo = f"{kit.ROOT}/models/demo.gguf"
    return (f"models:\n  - id: demo\n    path: {demo}\n" + (f"    draft: {thin}\n" if has_draft else "") +
        f"  - id: thin\n    path: {thin}\n  - id: echo\n    path: {demo}\n    backend: script\n")


def was_used(metrics):
    """Returns the names of USED whose counter is not zero."""
    values = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if line.startswith("inferflux_"))
    return {name for name in USED if float(values.get("inferflux_" + name, 0)) > 0}


def main():
    plan = kit.Plan("differential", SLICE_CASES)
    with tempfile.TemporaryDirectory() as folder:
        thin = make_thin(folder)
        busy = kit.Target(*COMMON, *BUSY, "--kv-disk", os.path.join(folder, "disk"), config=config(thin, True),
            key="root")
        bare = kit.Target(*COMMON, *BARE, config=config(thin, False), key="root")
        with busy, bare:
            while indices := [i for _ in range(ROUND) if (i := plan.take()) is not None]:
                run_round(plan, busy, bare, indices)
            # The schedule decides what a round uses: further rounds follow until all was used.
            for more in range(MORE_ROUNDS):
                left, metrics = busy.until_idle()
                missing = set(USED) - was_used(metrics)
                if not missing or plan.failures:
                    break
                run_round(plan, busy, bare, [MORE_AT + more * ROUND + i for i in range(ROUND)])
            print(f"resident {busy.rss_mb():.0f} and {bare.rss_mb():.0f} MB, {left}; not used: {missing or 'nothing'}")
            plan.finish({
                "the invariants of the busy server hold": left["ok"] and left["sequences"] == 0,
                "the busy server used every cache": not missing,
            })


if __name__ == "__main__":
    main()
