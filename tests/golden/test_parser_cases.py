#!/usr/bin/env python3
"""tests/golden/parser.txt equals the output of parser_cases.py."""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
from harness import run


def test_the_cases_equal_the_output_of_their_script():
    script = os.path.join(HERE, "parser_cases.py")
    want = subprocess.run([sys.executable, script], capture_output=True, check=True).stdout
    with open(os.path.join(HERE, "parser.txt"), "rb") as f:
        assert f.read() == want, "run tests/golden/parser_cases.py > tests/golden/parser.txt"


if __name__ == "__main__":
    run(globals())
