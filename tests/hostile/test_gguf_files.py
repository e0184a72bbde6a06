#!/usr/bin/env python3
"""Mutated GGUF files. `inferctl inspect` ends with status 0 or 1 and a reason, and a server that loads
several of them with one good model stays alive, answers requests to each, and still serves the good one
with the same bytes."""
import json
import os
import subprocess
import tempfile

import gguf_file
import kit
from harness import program

SLICE_CASES = 32
PER_SERVER = 16
INSPECT_SECONDS = 60
MOST_MB = 2500
SHAPE = ("--embd", "64", "--layers", "2", "--ff", "64", "--heads", "2", "--kv-heads", "1", "--head-dim", "32")
BASES = (("--arch", "llama", "--type", "Q8_0"), ("--arch", "qwen3moe", "--experts", "4", "--experts-used",
    "2", "--type", "F16"), ("--arch", "qwen2", "--type", "F32"))
CHAT = {"messages": [{"role": "user", "content": "Hello <|im_end|>"}], "max_tokens": 3, "temperature": 0}


def make_bases(folder):
    """Returns the bytes of small valid files."""
    found = []
    for i, flags in enumerate(BASES):
        path = os.path.join(folder, f"base{i}.gguf")
        subprocess.run([program("tools/mkmodel"), *flags, *SHAPE, "--head-type", "Q8_0", "--vocab-from",
            f"{kit.ROOT}/models/demo.gguf", "-o", path], check=True, stdout=subprocess.DEVNULL)
        with open(path, "rb") as f:
            found.append(f.read())
        kit.require(gguf_file.File(found[-1]).write() == found[-1], "a file is not written as it was read")
    return found


def inspect(path):
    status, out, errors = kit.run_program([program("inferctl"), "inspect", path], INSPECT_SECONDS)
    kit.require(status in (0, 1), "inferctl inspect: status", status, errors[-1500:])
    kit.require(status == 0 or errors.strip(), "inferctl inspect: no reason")
    kit.require(not kit.REPORT.search(errors.decode("utf-8", "replace")), errors[-1500:])
    kit.require(all(c >= 32 or c in b"\n\t" for c in out + errors), "control characters in the output of inspect")
    return status


def serve(paths, first):
    """Loads the files and the good model into one server, and sends requests to each."""
    config = "models:\n" + "".join(f"  - id: {i}\n    path: {p}\n    ctx_size: 64\n    kv_bytes: 1000000\n"
        for i, p in [("demo", f"{kit.ROOT}/models/demo.gguf"), *((f"m{i}", p) for i, p in enumerate(paths))])
    n_loaded = 0
    with kit.Target("--threads", "1", "--log-level", "error", "--load-wait", "60000", "--chat-timeout", "20000",
            config=config, ready=False) as server:
        for i in range(len(paths)):
            r = server.request("POST", "/v1/chat/completions", json.dumps({"model": f"m{i}", **CHAT}))
            kit.read_json(r[2])
            # 500: the weights or the template are invalid; 503: the model was not loaded.
            kit.require(r[0] in (200, 500, 503) or 400 <= r[0] < 500, "status", r[0], r[2][:300])
            n_loaded += r[0] == 200
        kit.require(server.reference() == first, "the good model's output has changed")
        left, _ = server.until_idle()
        kit.require(left["ok"] and left["sequences"] == 0, "invariants:", left)
        rss = server.rss_mb()
        kit.require(rss < MOST_MB, "resident MB:", rss)
        errors = server.errors()
    kit.require(not kit.REPORT.search(errors), errors)
    return n_loaded


def run_files(plan, files, folder, first):
    """Serves a group of (index, data, path); a failed group is repeated file by file."""
    try:
        n = serve([path for _, _, path in files], first)
        plan.add(served=n)
    except Exception as e:
        reason = repr(e)
        for index, data, path in files:
            try:
                serve([path], first)
            except Exception as alone:
                return plan.fail(index, data, f"server: {alone!r}")
        plan.fail(files[0][0], files[0][1], f"server with {len(files)} files from this one on: {reason}")


def main():
    plan = kit.Plan("gguf_files", SLICE_CASES)
    with tempfile.TemporaryDirectory() as folder:
        bases = make_bases(folder)
        with kit.Target("--log-level", "error") as server:
            first = server.reference()
        group, lock = [], kit.threading.Lock()

        def run_case(index):
            data, name = gguf_file.make(plan.rng(index), bases)
            if plan.input:
                data = open(plan.input, "rb").read()
            path = os.path.join(folder, f"{index}.gguf")
            with open(path, "wb") as f:
                f.write(data)
            try:
                status = inspect(path)
                plan.done(name, "inspected" if status == 0 else "rejected")
            except kit.Failure as e:
                return plan.fail(index, data, e)
            with lock:
                group.append((index, data, path))
                files = group[:] if len(group) == PER_SERVER else []
                if files:
                    group.clear()
            if files:
                run_files(plan, files, folder, first)
            for _, _, path in files:
                os.unlink(path)

        kit.campaign(plan, run_case, os.cpu_count() or 2)
        if group:
            run_files(plan, group, folder, first)
        plan.finish({})


if __name__ == "__main__":
    main()
