#!/usr/bin/env python3
"""Kernel sets for processors without AVX-512 contain no instruction in EVEX encoding (AVX-512)."""
import glob
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
from harness import build_dir, run


def instructions(path):
    """Returns (bytes, text) of each instruction."""
    text = subprocess.run(["objdump", "-dw", path], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^ *[0-9a-f]+:\t((?:[0-9a-f]{2} )+)\s*\t(.*)$", text, re.M)
    assert len(found) > 100, f"{path}: {len(found)} instructions"
    return found


def evex(path):
    """In 64-bit code a first byte of 62 is always the EVEX prefix."""
    return [text for code, text in instructions(path) if code.startswith("62 ")]


def objects(pattern):
    paths = glob.glob(os.path.join(build_dir(), pattern))
    assert paths, pattern
    return paths


def test_avx2_and_avxvnni_are_vex():
    for path in objects("src/kernel/x86/x86_avx2*.o") + objects("src/kernel/x86/x86_avxvnni*.o"):
        wrong = evex(path)
        assert not wrong, f"{path}: {wrong[:3]}"


def test_avxvnni_is_vex_and_its_emulation_is_evex():
    for path in objects("src/kernel/x86/x86_avxvnni*.o"):
        assert any("vpdpbusd" in text for _, text in instructions(path)), path
    for path in objects("tests/kernel/x86_avxvnni_evex*.o"):
        wrong = evex(path)
        assert wrong and all("vpdpbusd" in text for text in wrong), f"{path}: {wrong[:3]}"


if __name__ == "__main__":
    run(globals())
