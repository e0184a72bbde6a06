#!/usr/bin/env python3
"""Logits of InferFlux, llama.cpp and mlx-lm for the tiny model of each family.

    tests/families/check.py [PRESET...]

Makes each model with build/tools/mkmodel in F32 and computes the logits of 300 tokens with
build/bench/accuracy and both references. Compared are all logits of all positions; a difference is
given as a share of the range of the logits. llama.cpp has keys and values in F32. In the caches of
mlx-lm they are rounded to f16, as InferFlux stores them, so this comparison has a smaller bound, which
applies to 99 % of the positions: a number between two f16 numbers may be rounded to either, and a
relative change of 3e-7 before the rounding changes single logits by 1.4e-4. The references are compared
with each other too, and llama.cpp with the recorded logits that tests/golden/test_family_logits reads.

The last line is `N passed, N failed`."""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import mlx.core as mx
import mlx_directories
import mlx_lm.utils
import mlx_models
import numpy as np
import reference
from gguf import GGUFReader
from mlx_lm.models import cache as mlx_cache

ROOT = reference.ROOT
N_TOKENS = reference.N_TOKENS
ACCURACY = os.path.join(ROOT, os.environ.get("BUILD", "build"), "bench/accuracy")
RECORDED, KV_F16, SAME_KV, REFERENCES = 1e-5, 5e-4, 1e-4, 1e-5

# llama.cpp reads GELU from a table of f16 numbers: its results have the bound RECORDED_GELU, since the
# index of the table may differ between builds, and the bound KV_F16 compared with mlx-lm.
RECORDED_GELU = 1e-4
GELU_TABLE = {"tiny-gemma2", "tiny-gemma3", "tiny-gemma4", "tiny-gemma4-e", "tiny-gemma4-moe"}
# mlx-lm has no window in Gemma 2, so only the positions within the window (30) are compared.
ROWS = {"tiny-gemma2": 30}


def arch_of(path):
    return GGUFReader(path).get_field("general.architecture").contents()


def inferflux_logits(path, tokens, work):
    ids, out = os.path.join(work, "ids"), os.path.join(work, "logits")
    np.array(tokens, dtype=np.int32).tofile(ids)
    subprocess.run([ACCURACY, "logits", path, ids, out, str(len(tokens)), "f16"], check=True)
    return np.fromfile(out, np.float32).reshape(len(tokens), -1)


# ---- directories in mlx-lm, where it differs from the definition of a family

def set_longrope(model, config):
    """mlx-lm ignores attention_factor, and the factors for short contexts."""
    scaling = config["rope_scaling"]
    original = config["original_max_position_embeddings"]
    for layer in model.layers:
        rope = layer.self_attn.rope
        rope._scale = scaling["attention_factor"]
        if config["max_position_embeddings"] <= original:
            powers = mx.arange(0, rope.dim, 2, dtype=mx.float32) / rope.dim
            rope._freqs = mx.array(scaling["short_factor"], dtype=mx.float32) * config["rope_theta"] ** powers


def gemma3_inputs(model, tokens):
    """mlx-lm rounds the factor of the embedding to bf16."""
    factor = math.sqrt(model.args.hidden_size)
    used = mx.array(factor, mx.bfloat16).astype(mx.float32).item()
    return {"input_embeddings": model.model.embed_tokens(tokens) * (factor / used)}


def directory_logits(preset, tokens, has_f16_kv):
    with tempfile.TemporaryDirectory() as d, mlx_models.KvRounding(has_f16_kv):
        folder = mlx_directories.make_directory(preset, d)
        model, _ = mlx_lm.utils.load_model(pathlib.Path(folder))
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
            config = json.load(f)
        x = mx.array([tokens])
        if config["model_type"] == "phi3":
            set_longrope(model, config)
        more = gemma3_inputs(model, x) if config["model_type"] == "gemma3_text" else {}
        y = model(x, cache=mlx_cache.make_prompt_cache(model), **more).astype(mx.float32)
        return np.array(y[0])


def mlx_logits(preset, path, tokens, has_f16_kv):
    """None: mlx-lm does not have the family."""
    if mlx_models.has_family(arch_of(path)):
        return mlx_models.logits(path, tokens, has_f16_kv)
    if preset in mlx_directories.PRESETS or preset == "tiny-phi3-short":
        return directory_logits(preset, tokens, has_f16_kv)
    return None


# ---- comparison

def difference(a, b, rows=None, share=1.0):
    """The largest difference of a position, for this share of the positions."""
    a, b = a[:rows], b[:rows]
    return float(np.quantile(np.abs(a - b).max(1), share, method="lower") / (a.max() - a.min()))


def compare(preset, work):
    """[(name of the comparison, difference, bound)]"""
    path = os.path.join(work, "model.gguf")
    subprocess.run([os.path.join(ROOT, "build/tools/mkmodel"), "--preset", preset, "--type", "F32", "--name", "model",
        "-o", path], check=True)
    llama = reference.reference_logits(preset, path)
    tokens = [reference.token(i, llama.shape[1]) for i in range(N_TOKENS)]
    recorded = reference.selected(llama)
    file = np.fromfile(os.path.join(reference.HERE, preset + ".f32"), dtype="<f4").reshape(recorded.shape)
    ours = inferflux_logits(path, tokens, work)
    has_table = preset in GELU_TABLE
    out = [("recorded", difference(file, recorded), RECORDED_GELU if has_table else RECORDED)]
    is_in_llama = preset not in reference.NOT_IN_LLAMA
    if is_in_llama:
        out.append(("llama.cpp", difference(llama, ours), KV_F16))
    exact = mlx_logits(preset, path, tokens, False)
    if exact is not None:
        rows = ROWS.get(preset)
        same_kv = mlx_logits(preset, path, tokens, True)
        out.append(("mlx-lm, 99 %", difference(same_kv, ours, rows, 0.99), SAME_KV))
        out.append(("mlx-lm", difference(same_kv, ours, rows), KV_F16))
        if is_in_llama:
            out.append(("mlx-lm, llama.cpp", difference(exact, llama, rows),
                KV_F16 if has_table else REFERENCES))
    return out


def main():
    mx.set_default_device(mx.cpu)
    columns = ["llama.cpp", "mlx-lm", "mlx-lm, 99 %", "mlx-lm, llama.cpp", "recorded"]
    passed = failed = 0
    print("| model | " + " | ".join(columns) + " |\n" + "|---" * (len(columns) + 1) + "|")
    for preset in sys.argv[1:] or reference.presets():
        with tempfile.TemporaryDirectory() as work:
            rows = compare(preset, work)
        cells = {name: f"{value:.1e}" + ("" if value < bound else " FAILED") for name, value, bound in rows}
        bad = sum(not value < bound for _, value, bound in rows)
        passed, failed = passed + len(rows) - bad, failed + bad
        print(f"| {preset} | " + " | ".join(cells.get(c, "") for c in columns) + " |", flush=True)
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
