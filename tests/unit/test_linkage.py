#!/usr/bin/env python3
"""Test doubles, simulators and synthetic model files (src/testing) are not linked into the product."""
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import build_dir, run


def defined_symbols(name):
    """Names of the functions and objects which a program or an archive of the build defines."""
    path = os.path.join(build_dir(), name)
    out = subprocess.run(["nm", "--defined-only", path], capture_output=True, text=True, check=True)
    return {line.split()[2] for line in out.stdout.splitlines() if len(line.split()) == 3}


def external_symbols_of_testing():
    path = os.path.join(build_dir(), "libtesting.a")
    out = subprocess.run(["nm", "--defined-only", "--extern-only", path], capture_output=True, text=True,
        check=True)
    return {line.split()[2] for line in out.stdout.splitlines() if len(line.split()) == 3}


def test_server_and_library_contain_no_symbol_of_src_testing():
    testing = external_symbols_of_testing()
    assert len(testing) > 30
    for name in ("libinferflux.a", "inferfluxd"):
        assert len(defined_symbols(name)) > 500, name
        found = sorted(testing & defined_symbols(name))
        assert not found, f"{name} contains {found}"


def test_inferctl_contains_the_trace_replay_of_src_testing():
    """The symbols are comparable: a program that is linked with src/testing shows them."""
    assert external_symbols_of_testing() & defined_symbols("inferctl")


def readelf(*flags, name="inferfluxd"):
    path = os.path.join(ROOT, "build", name)
    return subprocess.run(["readelf", "-W", *flags, path], capture_output=True, text=True,
        check=True).stdout


def test_release_server_is_hardened():
    header, dynamic, segments = readelf("-h"), readelf("-d"), readelf("-l")
    assert "DYN (Position-Independent Executable file)" in header
    assert "BIND_NOW" in dynamic and "NOW PIE" in dynamic.replace("  ", " "), dynamic
    assert "GNU_RELRO" in segments
    stack = next(line for line in segments.splitlines() if "GNU_STACK" in line)
    assert "RWE" not in stack and " RW " in stack, stack
    symbols = readelf("--dyn-syms")
    assert "__stack_chk_fail" in symbols
    assert "__snprintf_chk" in symbols or "__vsnprintf_chk" in symbols
    # The start files of the system's libc have no such note, so the linked program has none.
    notes = readelf("-n", name="src/http/parse.o")
    assert "IBT" in notes and "SHSTK" in notes, notes


if __name__ == "__main__":
    run(globals())
