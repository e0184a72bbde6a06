#!/usr/bin/env python3
"""Values of quantised tensors of Hugging Face and MLX directories, computed by mlx (PyPI: mlx[cpu]).

    tests/families/hf_quantised.py [--write]

Computes matrices in every quantisation that docs/models.md lists besides the affine ones, and their
values in F32, and compares them with tests/families/hf_quantised.safetensors, which
tests/unit/format/test_hf_values.c reads. --write replaces that file. Values of FP8 are the numbers of
mx.from_fp8 times the scale; those of the other types are from mx.dequantize."""
import argparse
import os
import sys

import mlx.core as mx
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS, COLS = 6, 192
FP8_MAX = 448


def matrix(rng, rows=ROWS, cols=COLS):
    return rng.normal(size=(rows, cols)).astype("f4")


def fp8(rng, block, scale_type, cols=COLS, rows=ROWS):
    """Codes, scales of blocks of (rows, columns), and values."""
    w = matrix(rng, rows, cols)
    grid = [-(-n // b) for n, b in zip(w.shape, block)]
    scales = mx.array(np.abs(rng.normal(size=grid)) / FP8_MAX * 3 + 1e-4).astype(scale_type)
    scale = np.array(scales.astype(mx.float32))
    wide = np.kron(scale, np.ones(block, dtype="f4"))[:rows, :cols]
    codes = mx.to_fp8(mx.array(w / wide))
    values = np.array(mx.from_fp8(codes, mx.float32)) * wide
    return codes, scales, mx.array(values)


def cases(rng):
    out = {}
    for name, block, kind, cols in (("fp8-block", (4, 64), mx.float32, COLS),
            ("fp8-block128", (4, 128), mx.bfloat16, 256), ("fp8-row", (1, COLS), mx.bfloat16, COLS),
            ("fp8-tensor", (ROWS, 256), mx.float32, 256)):
        codes, scales, values = fp8(rng, block, kind, cols)
        if name == "fp8-tensor":
            scales = scales.reshape(())
        out.update({f"{name}.weight": codes, f"{name}.scales": scales, f"{name}.values": values})
    for mode in ("mxfp4", "mxfp8", "nvfp4"):
        group = 16 if mode == "nvfp4" else 32
        bits = 8 if mode == "mxfp8" else 4
        codes, scales = mx.quantize(mx.array(matrix(rng)), mode=mode, group_size=group, bits=bits)
        if mode == "nvfp4":  # signs, zero and subnormal scales
            scales = mx.array(np.array(scales) ^ np.array([[0x80], [0], [0x80], [0], [0], [0]], "u1"))
            some = np.array(scales)
            some[1, :4] = (0, 1, 7, 0x7e)
            scales = mx.array(some)
        if mode == "mxfp8":  # the smallest and the largest scale
            some = np.array(scales)
            some[1, :3] = (0, 1, 0xfe)
            some_codes = np.array(codes).view("u1").reshape(ROWS, COLS)
            some_codes[2, :128] = np.arange(128)
            some_codes[3, :128] = np.arange(128) + 128
            some_codes[2, 127] = some_codes[3, 127] = 0  # NaN
            codes, scales = mx.array(some_codes.view("u4").reshape(ROWS, -1)), mx.array(some)
        values = mx.dequantize(codes, scales, mode=mode, group_size=group, bits=bits,
            dtype=mx.float32)
        out.update({f"{mode}.weight": codes, f"{mode}.scales": scales, f"{mode}.values": values})
        out[f"{mode}.bytes"] = mx.array(np.array(codes).view("u1").reshape(ROWS, -1))
    return out


def same(a, b):
    return a.keys() == b.keys() and all(
        np.array_equal(np.array(a[k].view(mx.uint8)), np.array(b[k].view(mx.uint8))) for k in a)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--write", action="store_true")
    args = p.parse_args()
    mx.set_default_device(mx.cpu)
    path, got = os.path.join(HERE, "hf_quantised.safetensors"), cases(np.random.default_rng(5))
    if args.write:
        mx.save_safetensors(path, got)
    ok = same({k: v.reshape(-1) for k, v in got.items()},
        {k: v.reshape(-1) for k, v in mx.load(path).items()})
    print(f"hf_quantised.safetensors: {len(got)} tensors, {'the same' if ok else 'other values'}")
    print(f"{int(ok)} passed, {int(not ok)} failed")
    sys.exit(not ok)


if __name__ == "__main__":
    main()
