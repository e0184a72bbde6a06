#!/usr/bin/env python3
"""tools/mkmodel: --set adds metadata to that of a preset, or replaces it. Ends with `N passed, N failed`."""
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, "build", "venv", "bin", "python")
if os.path.exists(VENV) and "INFERFLUX_VENV" not in os.environ:
    os.environ["INFERFLUX_VENV"] = "1"
    os.execv(VENV, [VENV, *sys.argv])

import gguf  # noqa: E402

TOOL = os.path.join(ROOT, os.environ.get("BUILD", "build"), "tools/mkmodel")


def keys_with(*options):
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "m.gguf")
        subprocess.run([TOOL, "--preset", "tiny-mistral3", *options, "-o", path], check=True)
        reader = gguf.GGUFReader(path)
        return {name.removeprefix("mistral3."): field.contents() for name, field in reader.fields.items()}


def main():
    failed = 0
    plain, same = keys_with(), keys_with("--set", "rope.scaling.factor=8.0")
    changed = keys_with("--set", "rope.scaling.factor=2.0", "--set", "test.added=7", "--set", "test.added=8")
    for what, passed in (("the settings of a preset", plain["rope.scaling.factor"] == 8),
            ("an equal setting", same == plain), ("another setting", changed["rope.scaling.factor"] == 2),
            ("a new setting", changed["test.added"] == 8),
            ("the others", {k: changed[k] for k in plain if "factor" not in k and not k.startswith("GGUF.")} ==
                {k: v for k, v in plain.items() if "factor" not in k and not k.startswith("GGUF.")})):
        failed += not passed
        print(("ok " if passed else "FAILED ") + what)
    print(f"{5 - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
