#!/usr/bin/env python3
"""Logits of the tiny model of each family, computed by llama.cpp (llama-cpp-python), or by mlx-lm where
llama.cpp differs from the implementation of the model's authors.

    tests/families/reference.py [--write] [PRESET...]

Makes each model with build/tools/mkmodel, lets the reference compute the logits of N_TOKENS tokens with
F32 KV, and compares them with tests/families/PRESET.f32, which `tests/golden/test_family_logits` reads.
--write replaces these files. Layout of a file: little-endian floats [N_TOKENS / STEP][N_IDS]."""
import argparse
import ctypes
import os
import subprocess
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.join(ROOT, "tests/families")
N_TOKENS, STEP, N_IDS = 300, 3, 12
# llama.cpp ranks the groups of experts of DeepSeek V2 by the sum of their two best ones, and has no
# factors of the matrices of latent attention and of short convolutions.
NOT_IN_LLAMA = {"tiny-deepseek2-groups", "tiny-deepseek2-scales", "tiny-deepseek2-old-scales",
    "tiny-lfm2-scales"}


def token(pos, n_vocab):
    """The same function as in test_family_logits.c."""
    return (pos * 7919 + pos * pos * 31 + 17) % n_vocab


def ids(pos, n_vocab):
    return [(pos * 13 + i * 41) % n_vocab for i in range(N_IDS)]


def presets():
    text = subprocess.run([os.path.join(ROOT, "build/tools/mkmodel"), "--help"], check=True,
        capture_output=True, text=True).stdout
    words = text.replace(",", " ").split()
    return sorted({w for w in words if w.startswith("tiny-")})


def reference_logits(preset, path):
    if preset not in NOT_IN_LLAMA:
        return llama_logits(path)
    import mlx_models
    n_vocab = mlx_models.Source(path).n_vocab
    return mlx_models.logits(path, [token(i, n_vocab) for i in range(N_TOKENS)], False)


def llama_logits(path):
    import llama_cpp as lc
    lc.llama_backend_init()
    log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *a: None)
    if "VERBOSE" not in os.environ:
        lc.llama_log_set(ctypes.cast(log, lc.llama_log_callback), None)
    mp = lc.llama_model_default_params()
    mp.n_gpu_layers = 0
    model = lc.llama_model_load_from_file(path.encode(), mp)
    if not model:
        raise SystemExit(f"llama.cpp does not load {path}")
    cp = lc.llama_context_default_params()
    cp.n_ctx, cp.n_batch, cp.n_ubatch = 512, 512, 512
    cp.type_k = cp.type_v = 0
    cp.flash_attn_type = 0
    cp.n_threads = cp.n_threads_batch = 2
    ctx = lc.llama_init_from_model(model, cp)
    n_vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
    batch = lc.llama_batch_init(N_TOKENS, 0, 1)
    batch.n_tokens = N_TOKENS
    for i in range(N_TOKENS):
        batch.token[i], batch.pos[i], batch.n_seq_id[i] = token(i, n_vocab), i, 1
        batch.seq_id[i][0], batch.logits[i] = 0, 1
    if lc.llama_decode(ctx, batch):
        raise SystemExit("llama.cpp: llama_decode failed")
    out = np.array([np.ctypeslib.as_array(lc.llama_get_logits_ith(ctx, i), (n_vocab,)).copy()
        for i in range(N_TOKENS)])
    lc.llama_batch_free(batch)
    lc.llama_free(ctx)
    lc.llama_model_free(model)
    return out


def selected(logits):
    n_vocab = logits.shape[1]
    return np.array([logits[p][ids(p, n_vocab)] for p in range(0, N_TOKENS, STEP)], dtype="<f4")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--write", action="store_true")
    p.add_argument("presets", nargs="*")
    args = p.parse_args()
    failed = 0
    names = args.presets or presets()
    for name in names:
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "model.gguf")
            subprocess.run([os.path.join(ROOT, "build/tools/mkmodel"), "--preset", name, "--type", "F32", "--name", "model",
                "-o", path], check=True)
            got = selected(reference_logits(name, path))
        file = os.path.join(HERE, name + ".f32")
        if args.write:
            got.tofile(file)
        want = np.fromfile(file, dtype="<f4").reshape(got.shape)
        error = np.abs(got - want).max() / (want.max() - want.min())
        failed += not error < 1e-5
        print(f"{name}: range {want.min():.2f} to {want.max():.2f}, largest difference {error:.1e} of it")
    print(f"{len(names) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
