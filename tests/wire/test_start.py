#!/usr/bin/env python3
"""Starts that must fail: each ends with one line that names the cause, a status other than 0, and
without listening; and starts that must not fail although a part is missing."""
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import Server, equal, program, run

DEMO = os.path.join(ROOT, "models/demo.gguf")
SECONDS = 5 * (3 if "asan" in program("") else 1)


def start(*args, env=None, config=None, cwd=ROOT):
    """Runs the server until it ends; returns its status and standard error. A server that listens
    prints its address, which is a failure here."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("INFERFLUX_")}
    clean.update({"INFERFLUX_STORE": "none", **(env or {})})
    with tempfile.TemporaryDirectory() as d:
        if config is not None:
            with open(f"{d}/server.yaml", "w") as f:
                f.write(config)
            args = (*args, "--config", f"{d}/server.yaml")
        p = subprocess.Popen([program("inferfluxd"), "--port", "0", *args], env=clean, cwd=cwd,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            out, err = p.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            p.kill()
            raise AssertionError(f"{args}: did not end: {p.communicate()}")
    assert "listens" not in out, (args, out, err)
    return p.returncode, err


def expect(says, *args, status=1, **more):
    """The start fails with one line that contains all of `says`."""
    got, err = start(*args, **more)
    equal(got, status, (args, err))
    assert err.count("\n") == 1 and err.startswith("inferfluxd: "), (args, err)
    for text in [says] if isinstance(says, str) else says:
        assert text in err, (args, text, err)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", err), err


def files(d):
    """Creates one file of each unusable kind; returns their paths."""
    made = {name: os.path.join(d, name) for name in
        ("fifo", "socket", "dir", "empty", "garbage", "short", "flipped", "file", "text.jinja")}
    os.mkfifo(made["fifo"])
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(made["socket"])
    os.mkdir(made["dir"])
    with open(DEMO, "rb") as f:
        whole = f.read()
    for name, data in (("empty", b""), ("garbage", b"not a model" * 99), ("short", whole[:-50000]),
            ("flipped", whole[:8] + b"\xff" * 16 + whole[24:]), ("file", b"x"),
            ("text.jinja", b"{% if %}")):
        with open(made[name], "wb") as f:
            f.write(data)
    return made


def test_a_model_that_cannot_be_served_ends_the_start():
    with tempfile.TemporaryDirectory() as d:
        f = files(d)
        for path, says in (("/nope.gguf", "No such file"), (f["dir"], "config.json is m"),
                (f["fifo"], "not a regular file"), (f["socket"], "not a regular file"),
                ("/dev/zero", "not a regular file"), (f["empty"], "empty"), (f["garbage"], "GGUF"),
                (f["short"], ""), (f["flipped"], "")):
            expect((path, says), "--model", path)
        for path in ("/nope.gguf", f["fifo"], f["garbage"]):
            expect((path, "draft model"), "--model", DEMO, "--model-draft", path)
        expect("KV cache", "--model", DEMO, "--kv-bytes", "1")
        expect("KV cache", "--model", DEMO, "--kv-bytes", "65536", "--ctx-size", "1000000")
        for path in (f["fifo"], f["dir"], "/nope.jinja", f["text.jinja"]):
            expect("demo", config=f"models: [{{id: demo, path: {DEMO}, template_path: {path}}}]\n")
        if os.geteuid():
            os.chmod(f["garbage"], 0)
            expect("Permission denied", "--model", f["garbage"])
        both = f"models: [{{id: a, path: {f['empty']}}}, {{id: b, path: {f['fifo']}}}]\n"
        expect(("model 'a'", "empty", "model 'b'", "not a regular file"), config=both)


def test_an_invalid_configuration_ends_the_start_although_a_model_could_be_served():
    def one(more):
        return f"models: [{{id: ok, path: {DEMO}}}, {{id: x, path: {DEMO}, {more}}}]\n"

    for args, says in ((["--tool-call-parser", "nope"], ("tool_parser", "nope", "hermes_json")),
            (["--reasoning-parser", "nope"], ("thinking_parser", "nope", "think_tag")),
            (["--alias", "a\n\x1b[31m"], "U+000A"), (["--alias", "a\u202eb"], "U+202E"),
            (["--model-aliases", "gpt*=nobody"], ("gpt*", "nobody")),
            (["--model-aliases", "a\x1b"], "U+001B"), (["--batch", "0"], "scheduler.batch"),
            (["--mixed-step-percent", "1"], ("mixed_step_percent = 1", "0 or 100")),
            (["--mixed-step-percent-short", "99"], ("mixed_step_percent_short = 99", "0 or 100")),
            (["--host", "0.0.0.0"], "API key"), (["--host", "host.invalid"], "host.invalid"),
            (["--host", "192.0.2.1", "--auth", "never"], "192.0.2.1"),
            (["--ssl-cert-file", DEMO], "certificate and a key"),
            (["--ssl-cert-file", DEMO, "--ssl-key-file", DEMO], ("TLS", DEMO))):
        expect(says, "--model", DEMO, *args)
    for more, says in (("tool_parser: nope", ("'x'", "nope")),
            ("thinking_parser: nope", ("'x'", "nope")), ("family: nope", ("'x'", "nope"))):
        expect(says, config=one(more))
    expect("'x'", "--model", DEMO, "--alias", "x", config=one("draft: ''"))
    expect("no model")
    with tempfile.TemporaryDirectory() as d:
        f = files(d)
        for path in (f["fifo"], f["dir"], "/dev/zero", "/nope.yaml"):
            expect(path, "--config", path, status=2)
        expect((f["fifo"], "regular"), "--model", DEMO, "--ssl-cert-file", f["fifo"],
            "--ssl-key-file", f["fifo"])


def test_an_unusable_directory_or_log_ends_the_start():
    with tempfile.TemporaryDirectory() as d:
        f = files(d)
        for flag in ("--slot-save-path", "--kv-disk"):
            for path in (f["file"], f["fifo"], f"{d}/no/parent", "/proc/nope"):
                expect((flag, path), "--model", DEMO, flag, path)
        expect("/nope", "--model", DEMO, "--slot-save-path", "/nope")
        for path in (f["fifo"], f["socket"], f["dir"], "/dev/null", f"{d}/no/parent"):
            expect(("audit", path), "--model", DEMO, "--audit-log", path)


def test_a_file_that_is_no_database_is_refused_as_a_store_and_stays():
    with tempfile.TemporaryDirectory() as d:
        f = files(d)
        before = {name: os.lstat(path) for name, path in f.items()}
        for name, says in (("garbage", "not an SQLite database"), ("file", "not an SQLite database"),
                ("fifo", "not a regular file"), ("socket", "not a regular file"),
                ("dir", "not a regular file")):
            for probe in ("off", "auto"):
                expect(("capability store", f[name], says), "--model", DEMO, "--store", f[name],
                    "--probe", probe)
        expect(("capability store", f"{d}/no/x.db"), "--model", DEMO, "--store", f"{d}/no/x.db")
        with open(f"{d}/newer.db", "wb") as new, contextlib.closing(
                sqlite3.connect(f"{d}/newer.db")) as db:
            db.execute("PRAGMA user_version = 1000")
        expect(("newer.db", "schema version 1000"), "--model", DEMO, "--store", f"{d}/newer.db")
        for name, path in f.items():
            equal(os.lstat(path).st_ino, before[name].st_ino, name)
            equal(os.lstat(path).st_size, before[name].st_size, name)
        assert not [n for n in os.listdir(d) if "damaged" in n], os.listdir(d)


def listener(host, port=0):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    s = socket.socket(family)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if family == socket.AF_INET6:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    s.bind((host, port))
    s.listen()
    return s


def test_a_taken_port_ends_the_start():
    for threads in ("1", "2"):
        with Server("--threads-http", threads) as s:
            for other in ("1", "2", "3"):
                expect(("127.0.0.1", str(s.port), "Address already in use"), "--model", DEMO,
                    "--threads-http", other, "--port", str(s.port))
            equal(s.get("/livez")[0], 200)
    try:
        v6 = listener("::1")
    except OSError:
        return  # this host has no IPv6: localhost has one address
    names = {a[4][0] for a in socket.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)}
    for host in names & {"127.0.0.1", "::1"}:
        with contextlib.closing(listener(host)) as s:
            port = str(s.getsockname()[1])
            for threads in ("1", "2"):
                expect(("localhost", port, "in use"), "--model", DEMO, "--host", "localhost",
                    "--port", port, "--threads-http", threads)
    v6.close()


def test_io_threads_share_a_port():
    with Server("--threads-http", "3", "--host", "localhost") as s:
        for _ in range(20):
            equal(s.get("/livez")[0], 200)


def test_one_usable_model_is_enough():
    config = f"models: [{{id: gone, path: /nope.gguf}}, {{id: demo, path: {DEMO}}}]\n"
    with Server(config=config, ready=False) as s:
        deadline = time.monotonic() + 60
        while s.get("/readyz")[0] != 200:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        body = json.dumps({"model": "gone", "prompt": "x", "max_tokens": 1})
        status, _, text = s.request("POST", "/v1/completions", body)
        assert status == 503 and b"could not be loaded" in text, (status, text)
        body = json.dumps({"model": "demo", "prompt": "x", "max_tokens": 1})
        equal(s.request("POST", "/v1/completions", body)[0], 200)
        assert "load_failed" in s.errors()


def test_an_offload_directory_that_another_server_uses_for_the_model_ends_the_start():
    with tempfile.TemporaryDirectory() as d, Server("--kv-disk", d):
        expect((d, "another process uses it for this model"), "--model", DEMO, "--kv-disk", d)
        config = f"models: [{{id: busy, path: {DEMO}}}, {{id: echo, path: {DEMO}, backend: script}}]\n"
        with Server("--kv-disk", d, config=config, ready=False) as other:
            deadline = time.monotonic() + 60
            while other.get("/readyz")[0] != 200:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert "another process uses it for this model" in other.errors()
        with Server("--kv-disk", d, "--kv-type", "q8_0"):
            pass  # pages of another form are in another directory
    with Server("--kv-disk", d):
        pass  # the reservation ended with its process


def test_a_model_that_fails_while_it_loads_ends_the_server():
    """The name of the tier directory is known only after the digest of the model."""
    with tempfile.TemporaryDirectory() as d:
        with Server("--kv-disk", d, config=None, env={"INFERFLUX_MODEL": DEMO}):
            pass
        tier, = [name for name in os.listdir(d) if not name.startswith(".")]
        shutil.rmtree(f"{d}/{tier}")
        with open(f"{d}/{tier}", "w"):
            pass
        clean = {k: v for k, v in os.environ.items() if not k.startswith("INFERFLUX_")}
        p = subprocess.run([program("inferfluxd"), "--port", "0", "--store", "none", "--model", DEMO,
            "--kv-disk", d], env=clean, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
        equal(p.returncode, 1, p.stderr)
        assert "listens" in p.stdout, p.stdout
        last = p.stderr.splitlines()[-1]
        assert last.startswith("inferfluxd: ") and "Not a directory" in last, p.stderr
        equal(p.stderr.count("Not a directory"), 1, p.stderr)


def test_unfinished_slot_files_are_removed():
    with tempfile.TemporaryDirectory() as d:
        key = f"{d}/key-00000000000000ab"
        os.mkdir(key)
        os.mkdir(f"{d}/other")
        stale = [f"{place}/.part-0123456789abcdef" for place in (d, key)]
        kept = [f"{d}/.part-0123456789abcde", f"{d}/.part-0123456789abcdeg", f"{d}/a.part-00",
            f"{d}/other/.part-0123456789abcdef", f"{key}/saved", f"{d}/.part-00000000000000ff"]
        for path in stale + kept:
            with open(path, "w") as f:
                f.write("x")
        os.mkfifo(f"{d}/.part-aaaaaaaaaaaaaaaa")
        os.symlink(f"{key}/saved", f"{d}/.part-bbbbbbbbbbbbbbbb")
        import fcntl
        with open(kept[-1]) as busy:  # another server writes it
            fcntl.flock(busy, fcntl.LOCK_EX)
            with Server("--slot-save-path", d):
                pass
        equal([p for p in stale if os.path.exists(p)], [])
        equal([p for p in kept if not os.path.exists(p)], [])
        assert os.path.lexists(f"{d}/.part-aaaaaaaaaaaaaaaa")
        assert os.path.lexists(f"{d}/.part-bbbbbbbbbbbbbbbb")


if __name__ == "__main__":
    run(globals())
