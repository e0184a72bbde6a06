#!/usr/bin/env python3
"""Prints src/kernel/iq_grids.def: the grids of the IQ types, from the gguf package. test_dequant.py
compares the file with this output.

    tests/golden/iq_grids.py > src/kernel/iq_grids.def"""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, "build", "venv", "bin", "python")
if __name__ == "__main__" and os.path.exists(VENV) and "INFERFLUX_VENV" not in os.environ:
    os.environ["INFERFLUX_VENV"] = "1"
    os.execv(VENV, [VENV, *sys.argv])

import gguf  # noqa: E402
import numpy as np  # noqa: E402

PATH = os.path.join(ROOT, "src/kernel/iq_grids.def")
HEAD = """/* iq_grids.def: grids of the IQ types of GGUF, written by tests/golden/iq_grids.py. An entry contains
 * the level of each element, the first one in the lowest bits: three bits for IQ3, two for the others.
 * iq_grids.c has the levels. The entries are in the order of their indices. Data only. */
"""
PER_LINE = 8


def lines():
    for name in "IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S IQ1_S".split():
        quant = getattr(gguf.quants, name)
        quant.init_grid()
        levels = np.array(quant.grid_map, np.float32)
        codes = np.argmax(quant.grid.reshape(quant.grid_shape)[..., None] == levels, axis=-1)
        bits = 3 if len(levels) > 4 else 2
        entries = (codes << (bits * np.arange(quant.grid_shape[1]))).sum(axis=1)
        for at in range(0, len(entries), PER_LINE):
            yield f"{name}({', '.join(f'0x{e:04x}' for e in entries[at : at + PER_LINE])})"


def text():
    return HEAD + "".join(line + "\n" for line in lines())


if __name__ == "__main__":
    sys.stdout.write(text())
