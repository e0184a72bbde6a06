#!/usr/bin/env python3
"""`make install`: files are installed at their places, and a program can be built with them."""
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import equal, run


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


def test_manuals_are_well_formed():
    for name in ("inferfluxd.8", "inferctl.1"):
        r = subprocess.run(["mandoc", "-Tlint", "-Wwarning", os.path.join(ROOT, "docs/man", name)],
            capture_output=True, text=True)
        equal(r.stdout, "", name)


if __name__ == "__main__":
    run(globals())
