#!/usr/bin/env python3
"""Logits of model directories, computed by mlx-lm (PyPI: mlx[cpu], mlx-lm).

    tests/families/mlx_directories.py [--write] [PRESET...]

Writes the tiny model of each family as a Hugging Face directory (build/tools/mkmodel), lets mlx-lm
compute the logits of N_TOKENS tokens, and compares them with tests/families/PRESET.f32, which
llama.cpp has computed from the GGUF file: a directory means the same for three implementations.

Then it quantises random matrices in every way of MLX that is supported, and compares codes, scales,
offsets and values with tests/families/mlx.safetensors, which tests/unit/format/test_hf_values reads.
--write replaces that file."""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import mlx.core as mx
import mlx_lm
import mlx_lm.utils
import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.join(ROOT, "tests/families")
N_TOKENS, STEP, N_IDS = 300, 3, 12
PRESETS = ("tiny-llama tiny-qwen2 tiny-qwen3 tiny-qwen3moe tiny-qwen2moe tiny-smollm3 "
           "tiny-phi3 tiny-granite tiny-mistral3 tiny-mistral4 tiny-olmo2 tiny-olmo3 "
           "tiny-gemma2 tiny-gemma3 tiny-gemma4 tiny-gemma4-e tiny-gemma4-moe tiny-gpt-oss "
           "tiny-glm4 tiny-glm4moe tiny-lfm2 tiny-granitehybrid tiny-granitehybrid-moe "
           "tiny-nemotron-h tiny-nemotron-h-moe tiny-nemotron-h-latent tiny-qwen35 "
           "tiny-qwen35moe tiny-qwen3next-fused").split()


# mlx-lm has no window in Gemma 2 (of 30 tokens here), rounds the factor of the embedding of Gemma 3 to
# bf16, and of Phi 3 ignores attention_factor (1.19 here, it uses 1.13) and the short factors, so
# tiny-phi3-short is not compared. The norms of latent attention have an epsilon of 1e-6 in mlx-lm,
# whereas the preset has 1e-5. llama.cpp has a table of f16 numbers for GELU.
ROWS = {"tiny-gemma2": 30 // STEP}
TOLERANCE = {"tiny-phi3": 6e-2, "tiny-gemma2": 2e-4, "tiny-gemma3": 2e-3, "tiny-gemma4": 3e-4,
             "tiny-mistral4": 3e-5, "tiny-gemma4-e": 3e-4, "tiny-gemma4-moe": 3e-4}


def token(pos, n_vocab):
    """The same function as in test_family_logits.c."""
    return (pos * 7919 + pos * pos * 31 + 17) % n_vocab


def ids(pos, n_vocab):
    return [(pos * 13 + i * 41) % n_vocab for i in range(N_IDS)]


def make_directory(preset, folder):
    tool, gguf = os.path.join(ROOT, "build/tools/mkmodel"), os.path.join(folder, "m.gguf")
    out = os.path.join(folder, "hf")
    os.mkdir(out)
    subprocess.run([tool, "--preset", preset, "--type", "F32", "-o", gguf], check=True)
    subprocess.run([tool, "--from", gguf, "--directory", "hf", "-o", out], check=True)
    return out


def logits(folder):
    model, _ = mlx_lm.utils.load_model(pathlib.Path(folder))
    args = getattr(model, "language_model", model).args
    n_vocab = args.vocab_size
    x = mx.array([[token(i, n_vocab) for i in range(N_TOKENS)]])
    y = model(x, cache=mlx_lm.models.cache.make_prompt_cache(model)).astype(mx.float32)
    return np.array(y[0])


def selected(y):
    n_vocab = y.shape[1]
    return np.array([y[p][ids(p, n_vocab)] for p in range(0, N_TOKENS, STEP)], dtype="<f4")


def quantised():
    """{name: array}: codes, scales, offsets and values of matrices, by quantisation."""
    rng, out = np.random.default_rng(7), {}
    cases = [("affine", bits, group) for bits in (2, 3, 4, 5, 6, 8) for group in (32, 64, 128)]
    types = [mx.float16, mx.bfloat16, mx.float32]
    for i, (mode, bits, group) in enumerate(cases + [("mxfp4", 4, 32)]):
        w = mx.array(rng.normal(size=(3, 128)).astype("f4")).astype(types[i % 3])
        parts = mx.quantize(w, group_size=group, bits=bits, mode=mode)
        scales = parts[1:] if mode == "mxfp4" else [x.astype(mx.float32) for x in parts[1:]]
        values = mx.dequantize(parts[0], *scales, group_size=group, bits=bits, mode=mode)
        name = f"{mode}-{bits}-{group}"
        for part, x in zip(("weight", "scales", "biases"), parts):
            out[f"{name}.{part}"] = x
        out[f"{name}.values"] = values.astype(mx.float32)
    return out


def check_quantised(write):
    path, got = os.path.join(HERE, "mlx.safetensors"), quantised()
    if write:
        mx.save_safetensors(path, got)
    want = mx.load(path)
    same = want.keys() == got.keys() and all(mx.array_equal(want[k], got[k]) for k in want)
    print(f"mlx.safetensors: {len(got)} tensors, {'the same' if same else 'other values'}")
    return 0 if same else 1


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--write", action="store_true")
    p.add_argument("presets", nargs="*")
    args = p.parse_args()
    mx.set_default_device(mx.cpu)
    failed = check_quantised(args.write)
    presets = args.presets or PRESETS
    for preset in presets:
        with tempfile.TemporaryDirectory() as d:
            got = selected(logits(make_directory(preset, d)))
        want = np.fromfile(os.path.join(HERE, preset + ".f32"), dtype="<f4").reshape(got.shape)
        rows = ROWS.get(preset, len(want))
        error = np.abs(got - want)[:rows].max() / (want.max() - want.min())
        failed += not error < TOLERANCE.get(preset, 1e-5)
        print(f"{preset}: largest difference {error:.1e} of the range")
    print(f"{len(presets) + 1 - failed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
