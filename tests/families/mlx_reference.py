#!/usr/bin/env python3
"""Compares the committed logits of tiny models with those of mlx-lm, a second implementation.

    tests/families/mlx_reference.py [PRESET...]

Makes each model with build/tools/mkmodel, loads its tensors into the model class of mlx-lm, and compares
the logits with tests/families/PRESET.f32, which `reference.py` has written with llama.cpp."""
import os
import subprocess
import sys
import tempfile

import mlx.core as mx
import numpy as np
from gguf import GGUFReader
from mlx_lm.models import gemma4_text

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
N_TOKENS, STEP, N_IDS = 300, 3, 12  # as in reference.py
LIMIT = 5e-4  # of the range of the logits; llama.cpp reads GELU from a table of f16
PRESETS = ["tiny-gemma4", "tiny-gemma4-e", "tiny-gemma4-moe"]

# GGUF names without ".weight" -> names in mlx-lm
TOP = {"token_embd": "embed_tokens", "output_norm": "norm", "per_layer_token_embd": "embed_tokens_per_layer",
    "per_layer_model_proj": "per_layer_model_projection", "per_layer_proj_norm": "per_layer_projection_norm"}
LAYER = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "inp_gate": "per_layer_input_gate", "proj": "per_layer_projection", "post_norm": "post_per_layer_input_norm",
    "ffn_gate_inp": "router.proj", "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
    "post_ffw_norm_1": "post_feedforward_layernorm_1", "post_ffw_norm_2": "post_feedforward_layernorm_2",
    "ffn_down_exps": "experts.switch_glu.down_proj"}
SCALES = {"layer_output_scale.weight": "layer_scalar", "ffn_gate_inp.scale": "router.scale",
    "ffn_down_exps.scale": "router.per_expert_scale"}


class Rope:
    """Rotation with the divisors of the tensor rope_freqs."""

    def __init__(self, dims, base, factors):
        self.dims = dims
        self.freqs = mx.array(base ** (np.arange(0, dims, 2) / dims) * factors, dtype=mx.float32)

    def __call__(self, x, offset=0):
        return mx.fast.rope(x, self.dims, traditional=False, base=None, scale=1.0, offset=offset, freqs=self.freqs)


def key(reader, tail, default=None):
    field = reader.get_field("gemma4." + tail)
    return default if field is None else field.contents()


def model_args(reader):
    n = key(reader, "block_count")
    is_window = key(reader, "attention.sliding_window_pattern")
    kv = key(reader, "attention.head_count_kv")
    kv = kv if isinstance(kv, list) else [kv] * n
    ff = key(reader, "feed_forward_length")
    has_v = {t.name for t in reader.tensors if ".attn_v." in t.name}
    full = is_window.index(False)
    return gemma4_text.ModelArgs(hidden_size=key(reader, "embedding_length"), num_hidden_layers=n,
        intermediate_size=ff[0] if isinstance(ff, list) else ff, num_attention_heads=key(reader, "attention.head_count"),
        head_dim=key(reader, "attention.key_length_swa"), global_head_dim=key(reader, "attention.key_length"),
        rms_norm_eps=key(reader, "attention.layer_norm_rms_epsilon"), vocab_size=key(reader, "vocab_size"),
        vocab_size_per_layer_input=key(reader, "vocab_size"), num_key_value_heads=kv[is_window.index(True)],
        num_global_key_value_heads=kv[full], num_kv_shared_layers=key(reader, "attention.shared_kv_layers", 0),
        hidden_size_per_layer_input=key(reader, "embedding_length_per_layer_input"),
        sliding_window=key(reader, "attention.sliding_window"), attention_k_eq_v=f"blk.{full}.attn_v.weight" not in has_v,
        final_logit_softcapping=key(reader, "final_logit_softcapping"), use_double_wide_mlp=isinstance(ff, list),
        enable_moe_block=bool(key(reader, "expert_count", 0)), num_experts=key(reader, "expert_count"),
        top_k_experts=key(reader, "expert_used_count"), moe_intermediate_size=key(reader, "expert_feed_forward_length"),
        layer_types=["sliding_attention" if w else "full_attention" for w in is_window])


def weights(reader):
    out = {}
    for t in reader.tensors:
        data = mx.array(np.array(t.data, dtype=np.float32))
        name, is_layer = t.name, t.name.startswith("blk.")
        prefix = "model."
        if is_layer:
            _, layer, name = name.split(".", 2)
            prefix += f"layers.{layer}."
        stem = name.removesuffix(".weight")
        if name in SCALES:
            out[prefix + SCALES[name]] = data
        elif stem == "ffn_gate_up_exps":
            half = data.shape[1] // 2
            out[prefix + "experts.switch_glu.gate_proj.weight"] = data[:, :half]
            out[prefix + "experts.switch_glu.up_proj.weight"] = data[:, half:]
        elif stem != "rope_freqs":
            out[prefix + (LAYER if is_layer else TOP)[stem] + ".weight"] = data
    return out


def logits(path):
    reader = GGUFReader(path)
    args = model_args(reader)
    model = gemma4_text.Model(args)
    model.load_weights(list(weights(reader).items()), strict=True)
    factors = next(np.array(t.data) for t in reader.tensors if t.name == "rope_freqs.weight")
    for layer, kind in zip(model.layers, args.layer_types):
        if kind == "full_attention":
            layer.self_attn.rope = Rope(args.global_head_dim, key(reader, "rope.freq_base"), factors)
    tokens = [(i * 7919 + i * i * 31 + 17) % args.vocab_size for i in range(N_TOKENS)]
    return np.array(model(mx.array([tokens]))[0])


def main():
    failed = 0
    names = sys.argv[1:] or PRESETS
    for name in names:
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "model.gguf")
            subprocess.run([os.path.join(ROOT, "build/tools/mkmodel"), "--preset", name, "--type", "F32", "--name", "model",
                "-o", path], check=True)
            all_logits = logits(path)
        n_vocab = all_logits.shape[1]
        got = np.array([[all_logits[p][(p * 13 + i * 41) % n_vocab] for i in range(N_IDS)] for p in range(0, N_TOKENS, STEP)])
        want = np.fromfile(os.path.join(ROOT, "tests/families", name + ".f32"), dtype="<f4").reshape(got.shape)
        error = np.abs(got - want).max() / (want.max() - want.min())
        failed += not error < LIMIT
        print(f"{name}: largest difference {error:.1e} of the range")
    print(f"{len(names) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


main()
