#!/usr/bin/env python3
"""Mutated configuration files, command lines and environments. The server starts, serves and stops, or
ends with status 1 or 2 and a reason.

Every case runs in its own folder, and no value is an absolute path, so that a mutated path cannot
reach other files."""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import kit
from harness import program

SLICE_CASES = 36
SECONDS = 120  # limit of a start and of a stop
MOST_MB = 3000
ROW = re.compile(r"^\| `([\w.]+)` \| `(--[\w-]+)` \| `(\w+)` \| (?:`([^`]*)`)? *\| (.*) \|$", re.M)
WORDS = ("", " ", "x", "0", "-1", "true", "TRUE", "on", "null", "~", "1e3", "0x10", "1K", "1k", "16M", "9G",
    "1T", "1TT", "9" * 30, "18446744073709551616", "1.5", " 1", "1 ", "+1", "a,b", "a=b", "=", ",", "a\nb",
    "a\x1b[31mb", "\xe9", "\u202e", "x" * 5000, "empty", "folder", "text", "m.gguf", "missing.gguf", "..", ".", "%s%n", "'", '"',
    "- a", "{a: 1}")
HOSTS = ("127.0.0.1", "::1", "localhost", "256.1.1.1", "127.0.0.1:80", "[::1]", "127.1")
BASE = """# A configuration
server:
  host: 127.0.0.1
  max_body_bytes: 16M
  drain_ms: 3000
  role: unified
auth:
  require: auto
  api_keys: "alpha,beta:admin:weight=2"
scheduler:
  batch: auto
  prefill_chunk: 512
  fairness: {enable_preemption: true, max_timeslice_tokens: 16}
speculation:
  mode: auto
  draft_max: 16
runtime:
  threads: 1
  kv_type: f16
  kv_bytes: 4M
  kv_disk: disk
audit:
  path: audit.log
store:
  path: none
log:
  level: info
models:
  - id: demo
    path: m.gguf
    family: qwen3
  - id: echo
    path: m.gguf
    backend: script
    tool_parser: hermes_json
    ctx_size: 64
"""


def options():
    """Returns (key, flag, environment variable, values) of every option, from its documentation."""
    with open(os.path.join(kit.ROOT, "docs/configuration.md")) as f:
        found = ROW.findall(f.read())
    kit.require(len(found) > 60, "the table of options was not found")
    rows = []
    for key, flag, env, default, meaning in found:
        values = [default]
        if hit := re.search(r"\((-?\d+)\.\.(\d+)\)$", meaning):
            low, high = int(hit[1]), int(hit[2])
            values += [str(x) for x in (low, low - 1, high, high + 1, low + 1)]
        elif hit := re.search(r"\(([\w, ]+)\)$", meaning):
            values += hit[1].split(", ")
        elif default in ("true", "false"):
            values += ["true", "false"]
        if key == "server.host":
            values = list(HOSTS)
        # A thread per unit: high values only cost time.
        rows.append((key, flag, env, [v for v in values if "threads" not in key or len(v) < 3]))
    return rows


OPTIONS = options()


def hostile_value(rng, values):
    return rng.choice(values if rng.random() < 0.6 else WORDS)


def some_options(rng):
    return [(row, hostile_value(rng, row[3])) for row in
        rng.sample(OPTIONS, rng.choice((1, 1, 2, 4)))]


def yaml_tree(rng):
    """Writes a file with mutated sections and keys."""
    lines = []
    for (key, _, _, _), value in some_options(rng):
        *sections, name = key.split(".")
        for depth, section in enumerate(sections):
            lines.append("  " * depth + section + ":")
        lines.append("  " * len(sections) + f"{name}: " + rng.choice((value, json.dumps(value))))
    text = "\n".join(lines)
    return (BASE, text) if rng.random() < 0.2 else (text, BASE.partition("models:")[1] + BASE.partition("models:")[2])


YAML = ("&a [*a]", "*a", "&a x", "!!binary AAAA", "!!int x", "!!python/object:os.system x", "|\n    a\n   b", ">-\n  x",
    "? a", "[", "{", "}", "]", "- - - a", "\t", "%YAML 9.9\n---", "---\n---", "...", "<<: *a", "'", '"', "\\x00", ": :",
    "[" * 3000, "{a: " * 3000, "a: &x [" + "y," * 3000 + "]", "#", "@", "`", "\ufeff", "\x85", "null",
    "[]", "{}", "- id: demo")


def bomb():
    """Writes aliases that multiply to 10^9 values."""
    rows = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [" + ",".join([f"*a{i - 1}"] * 10) + "]" for i in range(1, 10)]
    return "\n".join(rows) + "\n"


def yaml_text(rng):
    """Changes the base file by lines and by bytes."""
    if rng.random() < 0.05:
        return bomb() + BASE
    lines = BASE.split("\n")
    for _ in range(rng.choice((1, 1, 2, 5))):
        at, kind = rng.randrange(len(lines)), rng.randrange(7)
        if kind == 0:
            del lines[at]
        elif kind == 1:
            lines.insert(rng.randrange(len(lines)), lines[at])
        elif kind == 2:
            lines[at] = rng.choice(("  ", "\t", " ")) + lines[at]
        elif kind == 3:
            lines[at] = lines[at].partition(":")[0] + ": " + rng.choice(YAML + WORDS)
        elif kind == 4:
            lines.insert(at, rng.choice(YAML))
        elif kind == 5:
            name, colon, value = lines[at].partition(":")
            lines[at] = name + rng.choice(("x", "", " ")) + colon + value
        else:
            lines[at:] = lines[:at] if rng.random() < 0.1 else lines[at:][::-1][:3] + lines[at:]
        lines = lines or [""]
    return "\n".join(lines)


def mutate_bytes(rng, data):
    """Changes some bytes, but makes no absolute path."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 2, 6))):
        at = rng.randrange(len(data) + 1)
        new = rng.choice((bytes([rng.choice([b for b in range(256) if b != 0x2f])]), b"\n", b":", b" ", b"\t", b"", b"-",
            b"[", b"&a ", b"*a", b"\xff\xfe", bytes(data[at:at + 20])))
        data[at:at + rng.choice((0, 1, 1, 10))] = new
    return bytes(data)


def make(rng):
    """Returns {file, args, env, name} of one case: bytes or None, list, dict, mutation."""
    kind = rng.choice(("yaml tree", "yaml text", "yaml text", "yaml bytes", "flags", "flags", "environment"))
    case = {"file": BASE.encode(), "args": [], "env": {}, "name": kind}
    if kind == "yaml tree":
        case["file"] = "\n".join(yaml_tree(rng)).encode("utf-8", "surrogatepass")
    elif kind == "yaml text":
        case["file"] = yaml_text(rng).encode("utf-8", "surrogatepass")
    elif kind == "yaml bytes":
        case["file"] = mutate_bytes(rng, BASE.encode())
    elif kind == "flags":
        for (_, flag, _, _), value in some_options(rng):
            case["args"] += rng.choice(([flag, value], [f"{flag}={value}"], [flag], [flag.upper(), value]))
        if rng.random() < 0.1:
            case["args"] += rng.choice((["--"], ["-"], [""], ["--unknown"], ["x"], ["--port"],
                ["--config", "missing.yaml"]))
    else:
        case["env"] = {env: value for (_, _, env, _), value in some_options(rng)}
    return case


def start(case, folder):
    shutil.copy(os.path.join(folder, "m.gguf"), case["dir"])
    os.mkdir(os.path.join(case["dir"], "folder"))
    for name, data in (("empty", b""), ("text", b"not a database\n"), ("server.yaml", case["file"])):
        with open(os.path.join(case["dir"], name), "wb") as f:
            f.write(data)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("INFERFLUX_", "XDG_"))}
    env.update({"HOME": case["dir"], "INFERFLUX_PORT": "0", **kit.SANITIZERS, **case["env"]})
    args = [program("inferfluxd"), "--config", "server.yaml", *case["args"]]
    with open(os.path.join(case["dir"], "stderr"), "wb") as log:
        return subprocess.Popen(args, env=env, cwd=case["dir"], stdout=subprocess.PIPE, stderr=log,
            stdin=subprocess.DEVNULL)


def get(url, body=None):
    """Returns the status of a request; None without a connection."""
    fields = {"Authorization": "Bearer alpha", "Content-Type": "application/json"}
    request = urllib.request.Request(url, body, fields)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as r:
            return r.status
    except urllib.error.HTTPError as e:
        return e.code
    except OSError:
        return None


def use(process, url):
    """Waits until the server is ready, has ended or cannot become ready, and sends a request."""
    deadline = time.monotonic() + SECONDS
    while process.poll() is None:
        kit.require(time.monotonic() < deadline, "neither ready nor ended within", SECONDS, "s")
        status = get(url + "/healthz")
        ready = get(url + "/readyz")
        if process.poll() is None and None not in (status, ready):  # without a port, the server ends
            kit.require(status == 200, "/healthz:", status)
        if ready == 200 or time.monotonic() > deadline - SECONDS + 5:
            break
        time.sleep(0.02)
    if process.poll() is None:
        status = get(url + "/v1/completions", b'{"model":"demo","prompt":"a","max_tokens":2}')
        kit.require(status in (200, 400, 401, 403, 404, 413, 429, 503, 504), "a request got", status)
        with open(f"/proc/{process.pid}/status") as f:
            rss = next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024
        kit.require(rss < MOST_MB, "resident MB:", rss)


def run_one(case, folder):
    """Runs a case; returns whether the server started."""
    with tempfile.TemporaryDirectory() as case["dir"]:
        process = start(case, folder)
        try:
            line = process.stdout.readline()  # empty: the process ended
            hit = re.search(rb"http://(\[\S+\]|[^\s:]+):(\d+)\b", line)
            if hit:
                host = hit[1].decode().strip("[]")
                use(process, f"http://[{host}]:{int(hit[2])}" if ":" in host else f"http://{host}:{int(hit[2])}")
            process.send_signal(signal.SIGTERM)
            status = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            raise kit.Failure(f"not ended {SECONDS} s after SIGTERM") from None
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        with open(os.path.join(case["dir"], "stderr"), "rb") as f:
            errors = f.read()
        text = errors.decode("utf-8", "replace")
        kit.require(not kit.REPORT.search(text), text[-2000:])
        kit.require(status in (0, 1, 2) and (status or hit), "status", status, line, text[-1000:])
        kit.require(status == 0 or text.strip(), "status", status, "without a reason")
        return bool(hit)


def main():
    plan = kit.Plan("settings", SLICE_CASES)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program("tools/mkmodel"), "--arch", "qwen3", "--embd", "64", "--layers", "1", "--ff", "64",
            "--heads", "2", "--kv-heads", "1", "--head-dim", "32", "--vocab-from", f"{kit.ROOT}/models/demo.gguf", "-o",
            os.path.join(folder, "m.gguf")], check=True, stdout=subprocess.DEVNULL)

        def run_case(index):
            case = make(plan.rng(index))
            if plan.input:
                with open(plan.input, "rb") as f:
                    case.update(json.load(f))
                case["file"] = case["file"].encode("latin-1")
            try:
                is_up = run_one(case, folder)
                plan.done(case["name"], "started" if is_up else "rejected")
            except (kit.Failure, ValueError, OSError) as e:
                text = {**case, "file": case["file"].decode("latin-1"), "dir": None}
                plan.fail(index, json.dumps(text).encode(), f"{case['name']} {case['args']} {case['env']}: {e!r}")

        kit.campaign(plan, run_case, os.cpu_count() or 2)
    plan.finish({})


if __name__ == "__main__":
    main()
