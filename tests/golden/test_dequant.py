#!/usr/bin/env python3
"""Dequantisation compared with the gguf package: a file with random blocks of every type,
including subnormal, infinite and NaN scales; unpacking our panels gives the same floats.

    tests/golden/test_dequant.py [SEED]"""
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
import iq_grids  # noqa: E402
import numpy as np  # noqa: E402

OURS = os.path.join(ROOT, "build/bench/accuracy")
TYPES = ("F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4 Q2_K Q3_K "
         "IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S IQ1_S IQ1_M TQ1_0 TQ2_0 NVFP4").split()
ROWS, COLS = 37, 1024


def random_rows(rng, name):
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    return rng.integers(0, 256, (ROWS, COLS // block * size), dtype=np.uint8)


def write(path, rows):
    w = gguf.GGUFWriter(path, "llama")
    for name, data in rows.items():
        w.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType[name])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def same(ours, theirs):
    """Equal bits, except for the payload of NaN."""
    return (ours.view(np.uint32) == theirs.view(np.uint32)) | (np.isnan(ours) & np.isnan(theirs))


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    rng = np.random.default_rng(seed)
    rows = {name: random_rows(rng, name) for name in TYPES}
    passed = failed = 0
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory() as work:
        path, whole = os.path.join(work, "m.gguf"), os.path.join(work, "f32.gguf")
        write(path, rows)
        subprocess.run([OURS, "retype", path, "F32", whole], check=True)
        ours = {t.name: np.array(t.data) for t in gguf.GGUFReader(whole).tensors}
    for name in TYPES:
        with np.errstate(all="ignore"):
            theirs = gguf.quants.dequantize(rows[name], gguf.GGMLQuantizationType[name])
        theirs = np.asarray(theirs, np.float32).reshape(ROWS, COLS)
        right = same(ours[name].reshape(ROWS, COLS), theirs)
        finite = np.isfinite(theirs).mean()
        ok = bool(right.all()) and finite > 0.5 and np.unique(theirs).size > 100
        passed, failed = passed + ok, failed + (not ok)
        print(f"{name:7} {right.mean() * 100:.2f} % of {right.size} the same, {finite * 100:.0f} % finite"
              + ("" if ok else "  FAILED"))
    with open(iq_grids.PATH) as f:
        ok = f.read() == iq_grids.text()
    passed, failed = passed + ok, failed + (not ok)
    print("iq_grids.def " + ("is that of the package" if ok else "differs from the package  FAILED"))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
