#!/usr/bin/env python3
"""`make install`: files are installed at their places, a program can be built with them, and the
systemd unit starts a server with few privileges."""
import ctypes
import json
import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import Server, equal, run


def sh(*args, **more):
    r = subprocess.run(args, capture_output=True, text=True, cwd=ROOT, **more)
    assert r.returncode == 0, f"{args}: {r.stdout[-2000:]}{r.stderr[-2000:]}"
    return r.stdout


def test_installation_builds_the_example_and_generates():
    with tempfile.TemporaryDirectory() as top:
        sh("make", "install", f"PREFIX={top}/usr")
        for path in ("bin/inferfluxd", "bin/inferctl", "lib/libinferflux.a", "lib/libinferflux.so",
                "include/inferflux.h", "share/man/man8/inferfluxd.8", "share/man/man1/inferctl.1",
                "share/inferflux/models/demo.gguf", "lib/systemd/system/inferfluxd.service",
                "lib/pkgconfig/inferflux.pc", "etc/inferflux/server.yaml"):
            assert os.path.exists(f"{top}/usr/{path}"), path
        env = {**os.environ, "PKG_CONFIG_PATH": f"{top}/usr/lib/pkgconfig"}
        flags = sh("pkg-config", "--cflags", "--libs", "inferflux", env=env).split()
        example = os.path.join(ROOT, "docs/examples/embed.c")
        with open(example) as f:
            assert sum(1 for _ in f) <= 65
        sh("gcc", "-Wall", "-Wextra", "-Werror", "-std=c11", example, "-o", f"{top}/embed", *flags,
            f"-Wl,-rpath,{top}/usr/lib")
        answer = sh(f"{top}/embed", f"{top}/usr/share/inferflux/models/demo.gguf", "Hello!")
        assert answer.strip(), answer
        bad = subprocess.run([f"{top}/embed", "/nonexistent.gguf", "x"], capture_output=True, text=True)
        equal(bad.returncode, 1)
        assert "/nonexistent.gguf" in bad.stderr, bad.stderr


def test_destdir_is_respected():
    with tempfile.TemporaryDirectory() as top:
        sh("make", "install", f"DESTDIR={top}", "PREFIX=/usr")
        assert os.path.exists(f"{top}/etc/inferflux/server.yaml")
        with open(f"{top}/usr/lib/systemd/system/inferfluxd.service") as f:
            unit = f.read()
        assert "/usr/bin/inferfluxd --config /etc/inferflux/server.yaml" in unit and top not in unit


def settings(unit):
    """Settings of a unit file as {name: [values]}."""
    found = {}
    for line in unit.splitlines():
        if "=" in line and line[0] != "#":
            found.setdefault(line.split("=", 1)[0], []).append(line.split("=", 1)[1])
    return found


def system_calls(names):
    """Names of system calls; a name with @ is a group of systemd, which may contain groups."""
    calls = set()
    for name in names:
        if name.startswith("@"):
            text = sh("systemd-analyze", "syscall-filter", name)
            calls |= system_calls(re.findall(r"^ +(@?[\w-]+)$", text, re.M))
        else:
            calls.add(name)
    return calls


LD, AND, JEQ, JSET, RET = 0x20, 0x54, 0x15, 0x45, 0x06
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER, ARCH = 0, 4
WRITE, EXEC, SHM_EXEC = 2, 4, 0o100000


def argument(i):
    return 16 + 8 * i


def filter_of(unit):
    """The seccomp program of a unit's SystemCallFilter, MemoryDenyWriteExecute and
    RestrictAddressFamilies. A system call that the unit rejects with an error kills the process
    here, so that the test finds it."""
    s = settings(unit)
    equal(s["MemoryDenyWriteExecute"], ["yes"])
    equal(s["SystemCallFilter"][0][0], "@")
    allowed = system_calls(s["SystemCallFilter"][0].split())
    for line in s["SystemCallFilter"][1:]:
        equal(line[0], "~")
        allowed -= system_calls(line[1:].split())
    with open("/usr/include/x86_64-linux-gnu/asm/unistd_64.h") as f:
        numbers = {n: int(i) for n, i in re.findall(r"__NR_(\w+) (\d+)", f.read())}
    program = [(LD, 0, 0, ARCH), (JEQ, 1, 0, 0xC000003E), (RET, 0, 0, KILL), (LD, 0, 0, NUMBER)]

    def rule(name, body):
        program.append((JEQ, 0, len(body), numbers[name]))
        program.extend(body)

    rule("mmap", [(LD, 0, 0, argument(2)), (AND, 0, 0, WRITE | EXEC),
        (JEQ, 0, 1, WRITE | EXEC), (RET, 0, 0, KILL), (RET, 0, 0, ALLOW)])
    for name, bit in (("mprotect", EXEC), ("pkey_mprotect", EXEC), ("shmat", SHM_EXEC)):
        rule(name, [(LD, 0, 0, argument(2)), (JSET, 0, 1, bit), (RET, 0, 0, KILL), (RET, 0, 0, ALLOW)])
    families = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10}
    body = [(LD, 0, 0, argument(0))]
    for name in s["RestrictAddressFamilies"][0].split():
        body += [(JEQ, 0, 1, families[name]), (RET, 0, 0, ALLOW)]
    rule("socket", body + [(RET, 0, 0, ERRNO | 97)])  # EAFNOSUPPORT
    rule("clone3", [(RET, 0, 0, ERRNO | 38)])  # ENOSYS, by RestrictNamespaces
    for name in sorted(allowed & set(numbers)):
        rule(name, [(RET, 0, 0, ALLOW)])
    program.append((RET, 0, 0, KILL))
    return b"".join(struct.pack("HBBI", *line) for line in program)


def restricted(unit):
    """A function for preexec_fn that applies the filter of the unit to the process."""
    libc, code = ctypes.CDLL(None, use_errno=True), filter_of(unit)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))

    def apply():
        if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program):  # no_new_privs, seccomp
            os._exit(99)
        assert buffer

    return apply


def as_nobody():
    """Arguments of subprocess that start a process without privileges."""
    more = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    return {"close_fds": False, **more}  # Python closes files after preexec_fn, with close_range


def credential_environment(s, directory):
    """The variables of the unit that refer to its credentials; checks that each is loaded, with an
    empty default for an absent file."""
    found = {}
    for name, value in (line.split("=", 1) for line in s["Environment"]):
        if value.startswith("%d/"):
            credential = value[3:]
            assert any(v.startswith(credential + ":/") for v in s["LoadCredential"]), credential
            assert credential + ":" in s["SetCredential"], credential
            found[name] = f"{directory}/{credential}"
    equal(list(found), ["INFERFLUX_API_KEYS_FILE"])
    return found


def test_the_unit_starts_the_server_without_privileges():
    with tempfile.TemporaryDirectory() as top:
        os.chmod(top, 0o755)
        sh("make", "install", f"DESTDIR={top}", "PREFIX=/usr")
        with open(f"{top}/usr/lib/systemd/system/inferfluxd.service") as f:
            unit = f.read()
        s = settings(unit)
        state = f"{top}/state"
        os.mkdir(state)
        if os.geteuid() == 0:
            os.chown(state, 65534, 65534)
        command = [top + w if w[0] == "/" else w for w in shlex.split(s["ExecStart"][0])]
        keys = f"{top}/credentials/api-keys"
        os.mkdir(f"{top}/credentials")
        with open(keys, "w") as f:
            f.write("# keys\n" "alpha:admin\n")
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        manager.settimeout(60)
        manager.bind(f"{top}/notify")
        os.chmod(f"{top}/notify", 0o777)
        env = {"PATH": os.environ["PATH"], "INFERFLUX_PORT": "0", "INFERFLUX_HOST": "localhost",
            "NOTIFY_SOCKET": f"{top}/notify", **credential_environment(s, f"{top}/credentials"),
            "INFERFLUX_STORE": f"{state}/inferflux.db", "INFERFLUX_PROBE": "auto",
            "INFERFLUX_KV_DISK": f"{state}/kv", "INFERFLUX_AUDIT_LOG": f"{state}/audit",
            "INFERFLUX_SLOT_SAVE_PATH": state, "INFERFLUX_THREADS_HTTP": "2"}
        apply = restricted(unit) if os.uname().machine == "x86_64" else None
        if apply:  # the filter rejects what it should
            for bad in (["/usr/sbin/chroot", "/", "true"],
                    [sys.executable, "-c", "import mmap; mmap.mmap(-1, 4096, prot=7)"]):
                status = subprocess.run(bad, preexec_fn=apply, close_fds=False).returncode
                equal(status, -signal.SIGSYS, bad)
        p = subprocess.Popen(command, env=env, cwd=top + s["WorkingDirectory"][0], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=apply, **as_nobody())
        line = p.stdout.readline()
        found = re.search(r"http://localhost:(\d+)", line)
        assert found, (line, p.communicate(), p.returncode)
        client = Server(key="alpha")
        client.port = int(found.group(1))
        equal(manager.recv(4096), b"READY=1\nSTATUS=models ready: 2")
        equal(client.get("/readyz")[0], 200)
        equal(client.request("GET", "/v1/models", None, Authorization="Bearer beta")[0], 401)
        for text in ("Hello", "Hello " * 100):
            body = json.dumps({"model": "demo", "prompt": text, "max_tokens": 8})
            equal(client.request("POST", "/v1/completions", body)[0], 200)
        body = json.dumps({"filename": "saved"})
        equal(client.request("POST", "/slots/0?action=save&model=demo", body)[0], 200)
        p.send_signal(signal.SIGTERM)
        equal(manager.recv(4096), b"STOPPING=1")
        manager.close()
        equal((p.wait(60), p.stderr.read().count(" error ")), (0, 0))


def test_ready_is_reported_only_when_a_model_is_loaded():
    with tempfile.TemporaryDirectory() as top, \
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"{top}/notify")
        manager.settimeout(60)
        env = {"NOTIFY_SOCKET": f"{top}/notify"}
        config = f"models: [{{id: gone, path: /nope}}, {{id: d, path: {ROOT}/models/demo.gguf}}]\n"
        with Server(config=config, env=env, ready=False) as s:
            equal(manager.recv(4096), b"READY=1\nSTATUS=models ready: 1")
            equal(s.get("/readyz")[0], 200)
        equal(manager.recv(4096), b"STOPPING=1")
        manager.setblocking(False)
        try:
            with Server("--model", "/nope", config=None, env=env):
                raise AssertionError("a server without a model started")
        except RuntimeError:
            pass
        try:
            raise AssertionError(manager.recv(4096))
        except BlockingIOError:
            pass


def test_the_unit_is_hardened():
    analyze = shutil.which("systemd-analyze")
    assert analyze, "tools/deps test installs systemd-analyze"
    with tempfile.TemporaryDirectory() as top:
        sh("make", "install", f"DESTDIR={top}", "PREFIX=/usr")
        unit = f"{top}/usr/lib/systemd/system/inferfluxd.service"
        text = sh(analyze, "security", "--offline=true", "--no-pager", unit)
        score = re.search(r"Overall exposure level for inferfluxd.service: (\S+)", text)
        assert float(score.group(1)) <= 1.5, text
        equal(os.stat(f"{top}/etc/inferflux/server.yaml").st_mode & 0o777, 0o644)


def test_manuals_are_well_formed():
    for name in ("inferfluxd.8", "inferctl.1"):
        r = subprocess.run(["mandoc", "-Tlint", "-Wwarning", os.path.join(ROOT, "docs/man", name)],
            capture_output=True, text=True)
        equal(r.stdout, "", name)


if __name__ == "__main__":
    run(globals())
