#!/usr/bin/env python3
"""Directories that mlx-lm has saved, read by InferFlux.

    tests/families/mlx_saved.py [PRESET...]

Writes the tiny model of each family as a Hugging Face directory, lets mlx-lm load it and save it in its
own names, as it is and with affine codes of 4 bits where rows are multiples of 32, and compares the
logits of InferFlux for the saved directory with those of mlx-lm. A difference is given as a share of
the range of the logits. With codes InferFlux rounds the inputs of the products to 8 bits, which can
change the choice of an expert, so the bound is wider and is that of half of the positions.

The last line is `N passed, N failed`."""
import json
import os
import pathlib
import shutil
import sys
import tempfile

import check
import mlx.core as mx
import mlx_directories
import mlx_lm.utils
import mlx_models
import numpy as np
from mlx_lm.models import cache as mlx_cache

PRESETS = mlx_directories.PRESETS + ["tiny-deepseek2", "tiny-deepseek2-lite", "tiny-deepseek2-groups"]
KV_F16, CODES = 5e-4, 5e-2


def codes_of(path, module):
    """Routers have codes of 8 bits, as in the directories that are published. Heads of DeltaNet have 72
    columns here, which are no whole number of groups (128 in published models)."""
    if path.endswith("linear_attn.out_proj"):
        return False
    return {"group_size": 32, "bits": 8} if path.endswith((".gate", ".router")) else True


def save(source, target, bits):
    """The model of the directory `source` as mlx-lm saves it; returns the model that was saved, and its
    configuration."""
    with open(os.path.join(source, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    # mlx-lm requires an object in DeepSeek V2
    change = {"rope_scaling": {"factor": 1.0}} if config["model_type"] == "deepseek_v2" else None
    model, _ = mlx_lm.utils.load_model(pathlib.Path(source), model_config=change)
    if bits:
        model, config = mlx_lm.utils.quantize_model(model, config, 32, bits, quant_predicate=codes_of)
    mlx_lm.utils.save_model(target, model)
    with open(os.path.join(target, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    for name in os.listdir(source):
        if name.startswith("tokenizer"):
            shutil.copy(os.path.join(source, name), target)
    return model, config


def mlx_logits(model, config, tokens):
    """Logits of the definition of the family, where mlx-lm differs from it (check.py)."""
    x = mx.array([tokens])
    if config["model_type"] == "phi3":
        check.set_longrope(model, config)
    more = check.gemma3_inputs(model, x) if config["model_type"] == "gemma3_text" else {}
    is_v2 = model.model_type == "deepseek_v2"
    if is_v2:
        mlx_models.round_latent_keys(model)
    with mlx_models.KvRounding(not is_v2):
        y = model(x, cache=mlx_cache.make_prompt_cache(model), **more).astype(mx.float32)
    return np.array(y[0])


def compare(preset, bits):
    with tempfile.TemporaryDirectory() as work:
        target = os.path.join(work, "mlx")
        model, config = save(mlx_directories.make_directory(preset, work), target, bits)
        n_vocab = getattr(model, "language_model", model).args.vocab_size
        tokens = [mlx_directories.token(i, n_vocab) for i in range(mlx_directories.N_TOKENS)]
        ours = check.inferflux_logits(target, tokens, work)
        share = 0.5 if bits else 1.0
        return check.difference(mlx_logits(model, config, tokens), ours, check.ROWS.get(preset), share)


def main():
    mx.set_default_device(mx.cpu)
    passed = failed = 0
    for preset in sys.argv[1:] or PRESETS:
        for bits in (0, 4):
            bound = CODES if bits else KV_F16
            error = compare(preset, bits)
            mark = "" if error < bound else " FAILED"
            print(f"{preset}, {bits or 32} bits: difference {error:.1e} of the range{mark}", flush=True)
            failed += not error < bound
            passed += error < bound
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
