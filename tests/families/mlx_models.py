"""Models of GGUF files in the model classes of mlx-lm: the second reference of check.py.

Configurations and names of tensors are translated here and not by src/format/hf, so both readings of
a GGUF file are independent of each other. Models of the other families are read by mlx-lm from the
directories that build/tools/mkmodel writes (mlx_directories.py)."""
import importlib
import re

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from gguf import GGUFReader
from mlx_lm.models import cache as mlx_cache


class Source:
    """Keys and tensors of a GGUF file; the shape of a tensor has the longest stride first."""

    def __init__(self, path):
        reader = GGUFReader(path)
        self.reader = reader
        self.arch = reader.get_field("general.architecture").contents()
        self.tensors = {t.name: np.array(t.data, dtype=np.float32) for t in reader.tensors}
        if self.arch != "gemma4":  # whose tensors of this name are parameters of its layers
            self.apply_factors()
        self.n_layers = self.key("block_count")
        self.n_vocab, self.d_model = self.tensors["token_embd.weight"].shape
        self.is_tied = "output.weight" not in self.tensors

    def apply_factors(self):
        """Multiplies matrices by their factors NAME.scale, one or one for each expert."""
        for name in [n for n in self.tensors if n.endswith(".scale")]:
            factors = self.tensors.pop(name)
            weight = name.removesuffix("scale") + "weight"
            n_dims = self.tensors[weight].ndim
            self.tensors[weight] *= factors.reshape(-1, *[1] * (n_dims - 1))

    def key(self, tail, default=None):
        field = self.reader.get_field(f"{self.arch}.{tail}")
        return default if field is None else field.contents()

    def first(self, tail):
        """The tensor of the first layer that has it, or None."""
        names = [f"blk.{i}.{tail}" for i in range(self.n_layers)]
        return next((self.tensors[n] for n in names if n in self.tensors), None)

    def base_config(self):
        kv, heads = self.key("attention.head_count_kv"), self.key("attention.head_count")
        heads = max(heads) if isinstance(heads, list) else heads
        gate, experts = self.first("ffn_gate.weight"), self.first("ffn_gate_exps.weight")
        return dict(model_type=self.arch, vocab_size=self.n_vocab, hidden_size=self.d_model,
            num_hidden_layers=self.n_layers, num_attention_heads=heads,
            num_key_value_heads=max(kv) if isinstance(kv, list) else kv,
            head_dim=self.key("attention.key_length", self.d_model // heads),
            rms_norm_eps=self.key("attention.layer_norm_rms_epsilon"),
            norm_eps=self.key("attention.layer_norm_rms_epsilon"), rope_theta=self.key("rope.freq_base"),
            max_position_embeddings=self.key("context_length"), tie_word_embeddings=self.is_tied,
            intermediate_size=self.key("feed_forward_length") if gate is None else gate.shape[0],
            moe_intermediate_size=0 if experts is None else experts.shape[1],
            num_experts=self.key("expert_count", 0), n_routed_experts=self.key("expert_count"),
            num_experts_per_tok=self.key("expert_used_count", 0), n_group=self.key("expert_group_count", 1),
            topk_group=self.key("expert_group_used_count", 1), n_shared_experts=self.key("expert_shared_count"),
            first_k_dense_replace=self.key("leading_dense_block_count", 0),
            num_dense_layers=self.key("leading_dense_block_count", 0), norm_topk_prob=True,
            routed_scaling_factor=self.key("expert_weights_scale", 1.0), attention_bias=False)


# GGUF names -> names in mlx-lm, as most of its models have them; a family may have others.
TOP = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight"}
LAYER = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate", "ffn_gate_exps": "mlp.switch_mlp.gate_proj",
    "ffn_up_exps": "mlp.switch_mlp.up_proj", "ffn_down_exps": "mlp.switch_mlp.down_proj"}
SHARED = {"ffn_gate_shexp": "mlp.shared_experts.gate_proj", "ffn_up_shexp": "mlp.shared_experts.up_proj",
    "ffn_down_shexp": "mlp.shared_experts.down_proj", "exp_probs_b.bias": "mlp.gate.e_score_correction_bias"}


def layers_of(source):
    """[{tail of the name: array}] of each layer."""
    out = [{} for _ in range(source.n_layers)]
    for name, data in source.tensors.items():
        m = re.fullmatch(r"blk\.(\d+)\.(.*)", name)
        if m:
            out[int(m[1])][m[2]] = data
    return out


def named(source, names, layers, top=TOP, prefix="model.layers"):
    """Pairs for load_weights. A tail whose complete name is not in `names` keeps .weight or .bias."""
    out = [(top[n], d) for n, d in source.tensors.items() if n in top]
    for i, layer in enumerate(layers):
        for tail, data in layer.items():
            stem, _, kind = tail.rpartition(".")
            name = names[tail] if tail in names else f"{names[stem]}.{kind}"
            out.append((f"{prefix}.{i}.{name}", data))
    return [(n, mx.array(d)) for n, d in out]


def build(module, config, weights):
    m = importlib.import_module("mlx_lm.models." + module)
    model = m.Model(m.ModelArgs.from_dict(config))
    return model, weights


# ---- gated DeltaNet

DELTA_NET = {"ssm_dt.bias": "linear_attn.dt_bias", "ssm_a": "linear_attn.A_log", "ssm_norm": "linear_attn.norm",
    "ssm_conv1d": "linear_attn.conv1d", "ssm_out": "linear_attn.out_proj",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj", "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj", "ffn_gate_inp_shexp": "mlp.shared_expert_gate"}


def delta_net_config(s):
    n_v, interval = s.key("ssm.time_step_rank"), s.key("full_attention_interval", 4)
    pattern = s.key("attention.recurrent_layers")
    if pattern:
        interval = [bool(x) for x in pattern].index(False) + 1
        assert all(bool(x) == ((i + 1) % interval != 0) for i, x in enumerate(pattern))
    partial = s.key("rope.dimension_count") / s.key("attention.key_length")
    shared = s.first("ffn_gate_shexp.weight")
    return dict(s.base_config(), linear_num_value_heads=n_v, linear_num_key_heads=s.key("ssm.group_count"),
        linear_key_head_dim=s.key("ssm.state_size"), linear_value_head_dim=s.key("ssm.inner_size") // n_v,
        linear_conv_kernel_dim=s.key("ssm.conv_kernel"), full_attention_interval=interval, decoder_sparse_step=1,
        mlp_only_layers=[], shared_expert_intermediate_size=0 if shared is None else shared.shape[0],
        partial_rotary_factor=partial, rope_parameters={"type": "default", "partial_rotary_factor": partial,
            "rope_theta": s.key("rope.freq_base")})


def delta_net_layer(layer):
    if "ssm_a" in layer:
        layer["ssm_a"] = np.log(-layer["ssm_a"])
        layer["ssm_conv1d.weight"] = layer["ssm_conv1d.weight"][..., None]
    if "ffn_gate_inp_shexp.weight" in layer:
        layer["ffn_gate_inp_shexp.weight"] = layer["ffn_gate_inp_shexp.weight"].reshape(1, -1)


def qwen35(s):
    """Files hold the value heads so that head h uses the key head h mod n_k, mlx-lm in groups."""
    config, layers = delta_net_config(s), layers_of(s)
    n_k, n_v, d_k = (config["linear_num_key_heads"], config["linear_num_value_heads"],
        config["linear_key_head_dim"])

    def grouped(x, axis=0):
        shape = x.shape
        x = x.reshape(*shape[:axis], n_v // n_k, n_k, -1, *shape[axis + 1:])
        return np.ascontiguousarray(np.swapaxes(x, axis, axis + 1)).reshape(shape)

    for layer in layers:
        delta_net_layer(layer)
        if "ssm_a" not in layer:
            continue
        for tail in ("attn_qkv.weight", "ssm_conv1d.weight"):
            x = layer[tail]
            layer[tail] = np.concatenate([x[:2 * n_k * d_k], grouped(x[2 * n_k * d_k:])])
        for tail in ("attn_gate.weight", "ssm_alpha.weight", "ssm_beta.weight", "ssm_dt.bias", "ssm_a"):
            layer[tail] = grouped(layer[tail])
        layer["ssm_out.weight"] = grouped(layer["ssm_out.weight"], 1)
    names = {**LAYER, **DELTA_NET, "attn_qkv": "linear_attn.in_proj_qkv", "attn_gate": "linear_attn.in_proj_z",
        "ssm_alpha": "linear_attn.in_proj_a", "ssm_beta": "linear_attn.in_proj_b"}
    weights = named(s, names, layers)
    return build("qwen3_5", config, [("language_model." + n, w) for n, w in weights])


def qwen3next(s):
    """mlx-lm has one matrix with the rows of q, k, v, z of each key head, and one with those of b, a."""
    config, layers = delta_net_config(s), layers_of(s)
    n_k = config["linear_num_key_heads"]
    d_k = config["linear_key_head_dim"]

    def by_key_head(*parts):
        return np.concatenate([p.reshape(n_k, -1, s.d_model) for p in parts], 1).reshape(-1, s.d_model)

    for layer in layers:
        delta_net_layer(layer)
        if "attn_gate.weight" in layer:
            qkv, z = layer.pop("attn_qkv.weight"), layer.pop("attn_gate.weight")
            q, k, v = np.split(qkv, [n_k * d_k, 2 * n_k * d_k])
            layer["ssm_in.weight"] = by_key_head(q, k, v, z)
        if "ssm_alpha.weight" in layer:
            layer["ssm_ba.weight"] = by_key_head(layer.pop("ssm_beta.weight"), layer.pop("ssm_alpha.weight"))
    names = {**LAYER, **DELTA_NET, "ssm_in": "linear_attn.in_proj_qkvz", "ssm_ba": "linear_attn.in_proj_ba"}
    return build("qwen3_next", config, named(s, names, layers))


# ---- short convolutions

LFM2 = {**LAYER, "attn_norm": "operator_norm", "ffn_norm": "ffn_norm", "attn_output": "self_attn.out_proj",
    "attn_q_norm": "self_attn.q_layernorm", "attn_k_norm": "self_attn.k_layernorm",
    "shortconv.in_proj": "conv.in_proj", "shortconv.conv": "conv.conv", "shortconv.out_proj": "conv.out_proj",
    "exp_probs_b.bias": "feed_forward.expert_bias", "ffn_gate_inp": "feed_forward.gate"}


def lfm2(s):
    kv, layers = s.key("attention.head_count_kv"), layers_of(s)
    is_moe = s.arch == "lfm2moe"
    dense = ("gate_proj", "up_proj", "down_proj") if is_moe else ("w1", "w3", "w2")
    names = dict(LFM2)
    for part, name in zip(("gate", "up", "down"), dense):
        names[f"ffn_{part}"] = f"feed_forward.{name}"
        names[f"ffn_{part}_exps"] = f"feed_forward.switch_mlp.{part}_proj"
    for layer in layers:
        if "shortconv.conv.weight" in layer:
            layer["shortconv.conv.weight"] = layer["shortconv.conv.weight"][..., None]
    config = dict(s.base_config(), full_attn_idxs=[i for i, n in enumerate(kv) if n], conv_bias=False,
        conv_L_cache=s.key("shortconv.l_cache"), use_expert_bias=True, block_dim=s.d_model,
        block_multiple_of=1, block_ffn_dim_multiplier=1.0, block_auto_adjust_ff_dim=False)
    top = {**TOP, "token_embd_norm.weight": "model.embedding_norm.weight"}
    model, weights = build("lfm2_moe" if is_moe else "lfm2", config, named(s, names, layers, top))
    for layer, n in zip(model.layers, kv):  # mlx-lm has one number of key heads for all layers
        if n:
            rows = n * layer.self_attn.head_dim
            layer.self_attn.n_kv_heads = n
            layer.self_attn.k_proj = nn.Linear(s.d_model, rows, bias=False)
            layer.self_attn.v_proj = nn.Linear(s.d_model, rows, bias=False)
    return model, weights


# ---- latent attention

LATENT = {**LAYER, **SHARED, "attn_q_a": "self_attn.q_a_proj", "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj", "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm", "attn_k_b": "self_attn.embed_q",
    "attn_v_b": "self_attn.unembed_out", "attn_kv_b": "self_attn.kv_b_proj"}


def yarn(s):
    if s.key("rope.scaling.type") != "yarn":
        return None
    # Files of latent attention contain a tenth of mscale_all_dim.
    share = s.key("rope.scaling.yarn_log_multiplier") * (10 if s.key("attention.kv_lora_rank") else 1)
    return {"type": "yarn", "factor": s.key("rope.scaling.factor"), "mscale_all_dim": share,
        "mscale": share if s.arch == "deepseek2" else 1.0,
        "original_max_position_embeddings": s.key("rope.scaling.original_context_length"),
        "beta_fast": s.key("rope.scaling.yarn_beta_fast", 32.0),
        "beta_slow": s.key("rope.scaling.yarn_beta_slow", 1.0), "rope_theta": s.key("rope.freq_base"),
        "llama_4_scaling_beta": s.key("attention.temperature_scale")}


def latent_config(s):
    head, rotated = s.key("attention.key_length_mla", s.key("attention.key_length")), s.key("rope.dimension_count")
    return dict(s.base_config(), q_lora_rank=s.key("attention.q_lora_rank") or None,
        kv_lora_rank=s.key("attention.kv_lora_rank"), qk_rope_head_dim=rotated, qk_nope_head_dim=head - rotated,
        v_head_dim=s.key("attention.value_length_mla", s.key("attention.value_length")), rope_scaling=yarn(s),
        rope_parameters=yarn(s), norm_topk_prob=s.key("expert_weights_norm", False))


def set_latent_eps(model, eps):
    """mlx-lm has a constant for the norms of the compressed queries and keys."""
    for layer in model.layers:
        layer.self_attn.kv_a_layernorm.eps = eps
        if layer.self_attn.q_lora_rank:
            layer.self_attn.q_a_layernorm.eps = eps


class RoundedKeys(nn.Module):
    """A rotation, and for keys (one head) a rounding to f16, as in the KV cache."""

    def __init__(self, rope):
        super().__init__()
        self.rope = rope

    def __call__(self, x, offset=0):
        x = self.rope(x, offset)
        return rounded(x) if x.shape[1] == 1 else x


class RoundedNorm(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def __call__(self, x):
        return rounded(self.norm(x))


def round_latent_keys(model):
    """mlx-lm stores the keys and values of all heads in DeepSeek V2, which follow from [c, k_pe]; those are
    rounded."""
    for layer in model.layers:
        layer.self_attn.rope = RoundedKeys(layer.self_attn.rope)
        layer.self_attn.kv_a_layernorm = RoundedNorm(layer.self_attn.kv_a_layernorm)


def deepseek_v2(s, config, layers):
    for layer in layers:
        if "attn_k_b.weight" in layer:
            k, v = layer.pop("attn_k_b.weight"), layer.pop("attn_v_b.weight")
            both = np.concatenate([k.swapaxes(1, 2), v], 1)
            layer["attn_kv_b.weight"] = both.reshape(-1, both.shape[2])
    config["rope_scaling"] = config["rope_scaling"] or {"factor": 1.0}
    config["topk_method"] = "group_limited_greedy" if config["n_group"] > 1 else "greedy"
    model, weights = build("deepseek_v2", config, named(s, LATENT, layers))
    set_latent_eps(model, config["rms_norm_eps"])
    model.load_weights(weights, strict=True)
    if KvRounding.is_on:
        round_latent_keys(model)
    model.rounds_itself = True
    return model, None


def latent(s):
    config, layers = latent_config(s), layers_of(s)
    if s.arch == "deepseek2" and s.key("expert_gating_func", 1) == 1:
        return deepseek_v2(s, config, layers)
    module = "mistral4" if s.arch == "mistral4" else "deepseek_v3"
    model, weights = build(module, config, named(s, LATENT, layers))
    set_latent_eps(model, config["rms_norm_eps"])
    return model, weights


# ---- attention

def halves(s, layers):
    """Files have the pairs of a rotation next to each other, mlx-lm has them in two halves."""
    heads = s.base_config()
    for layer in layers:
        for stem, n in (("attn_q", heads["num_attention_heads"]), ("attn_k", heads["num_key_value_heads"])):
            for tail in (f"{stem}.weight", f"{stem}.bias"):
                if tail in layer:
                    x = layer[tail]
                    layer[tail] = x.reshape(n, -1, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)
    return layers


def mistral3(s):
    config = dict(s.base_config(), rope_parameters=yarn(s))
    return build("ministral3", config, named(s, LAYER, halves(s, layers_of(s))))


def glm4moe(s):
    config = dict(s.base_config(), rope_scaling=None, use_qk_norm=s.first("attn_q_norm.weight") is not None,
        attention_bias=s.first("attn_q.bias") is not None,
        partial_rotary_factor=s.key("rope.dimension_count") / s.key("attention.key_length"),
        norm_topk_prob=s.key("expert_weights_norm", False))
    return build("glm4_moe", config, named(s, {**LAYER, **SHARED}, layers_of(s)))


# ---- Mamba2

MAMBA = {"ssm_in": "in_proj", "ssm_conv1d": "conv1d", "ssm_dt.bias": "dt_bias", "ssm_a": "A_log", "ssm_d": "D",
    "ssm_norm": "norm", "ssm_out": "out_proj"}


def mamba_config(s):
    """Sizes by the names of nemotron_h and of granitemoehybrid."""
    heads = s.key("ssm.time_step_rank")
    head_dim = s.key("ssm.inner_size") // heads
    has_bias = s.first("ssm_conv1d.bias") is not None
    base = s.base_config() | {"attention_bias": s.first("attn_q.bias") is not None}
    return dict(base, mamba_num_heads=heads, mamba_n_heads=heads, mamba_head_dim=head_dim,
        mamba_d_head=head_dim, ssm_state_size=s.key("ssm.state_size"), mamba_d_state=s.key("ssm.state_size"),
        conv_kernel=s.key("ssm.conv_kernel"), mamba_d_conv=s.key("ssm.conv_kernel"),
        n_groups=s.key("ssm.group_count"), mamba_n_groups=s.key("ssm.group_count"), use_conv_bias=has_bias,
        mamba_conv_bias=has_bias, mamba_proj_bias=False, mlp_bias=False, use_bias=False,
        layer_norm_epsilon=s.key("attention.layer_norm_rms_epsilon"), time_step_limit=(0.0, float("inf")))


def mamba_layer(layer):
    if "ssm_a" in layer:
        layer["ssm_a"] = np.log(-layer["ssm_a"]).ravel()
        layer["ssm_conv1d.weight"] = layer["ssm_conv1d.weight"][..., None]
        for tail in ("ssm_d", "ssm_norm.weight"):
            layer[tail] = layer[tail].ravel()


def nemotron(s):
    layers = layers_of(s)
    names = {"attn_norm": "norm", "attn_q": "mixer.q_proj", "attn_k": "mixer.k_proj", "attn_v": "mixer.v_proj",
        "attn_output": "mixer.o_proj", "ffn_up": "mixer.up_proj", "ffn_down": "mixer.down_proj",
        "ffn_gate_inp": "mixer.gate", "exp_probs_b.bias": "mixer.gate.e_score_correction_bias",
        "ffn_up_exps": "mixer.switch_mlp.fc1", "ffn_down_exps": "mixer.switch_mlp.fc2",
        "ffn_up_shexp": "mixer.shared_experts.up_proj", "ffn_down_shexp": "mixer.shared_experts.down_proj",
        "ffn_latent_down": "mixer.fc1_latent_proj", "ffn_latent_up": "mixer.fc2_latent_proj"}
    names.update((k, "mixer." + v) for k, v in MAMBA.items())
    kinds = [next(c for tail, c in (("ssm_in.weight", "M"), ("attn_q.weight", "*"), ("ffn_up_exps.weight", "E"),
        ("ffn_up.weight", "-")) if tail in layer) for layer in layers]
    for layer in layers:
        mamba_layer(layer)
    up, experts, shared = (s.first(f"ffn_up{x}.weight") for x in ("", "_exps", "_shexp"))
    latent_rows = s.first("ffn_latent_down.weight")
    config = dict(mamba_config(s), hybrid_override_pattern=kinds,
        intermediate_size=1 if up is None else up.shape[0],
        moe_intermediate_size=0 if experts is None else experts.shape[1],
        moe_latent_size=None if latent_rows is None else latent_rows.shape[0],
        moe_shared_expert_intermediate_size=0 if shared is None else shared.shape[0],
        norm_topk_prob=s.key("expert_weights_norm", False), n_shared_experts=1 if shared is not None else None)
    top = {"token_embd.weight": "backbone.embeddings.weight", "output_norm.weight": "backbone.norm_f.weight",
        "output.weight": "lm_head.weight"}
    return build("nemotron_h", config, named(s, names, layers, top, "backbone.layers"))


def granite_config(s, layers):
    shared, experts = s.first("ffn_gate_shexp.weight"), s.first("ffn_gate_exps.weight")
    ff = s.first("ffn_gate.weight") if experts is None else experts[0]
    return dict(mamba_config(s) if s.key("ssm.inner_size") else s.base_config(), intermediate_size=ff.shape[0],
        num_local_experts=s.key("expert_count"), shared_intermediate_size=0 if shared is None else shared.shape[0],
        layer_types=["mamba" if "ssm_a" in layer else "attention" for layer in layers],
        attention_multiplier=s.key("attention.scale"), embedding_multiplier=s.key("embedding_scale", 1.0),
        residual_multiplier=s.key("residual_scale", 1.0), logits_scaling=s.key("logit_scale", 1.0),
        position_embedding_type="rope" if s.key("rope.scaling.finetuned", True) else "nope")


def granite_experts(s):
    """granitemoe, and granitehybrid with experts or a dense network."""
    layers = layers_of(s)
    config = granite_config(s, layers)
    names = {**LAYER, "shared_in": "shared_mlp.input_linear", "ffn_down_shexp": "shared_mlp.output_linear",
        "ffn_gate_inp": "block_sparse_moe.router.layer"}
    names.update((k, "mamba." + v) for k, v in MAMBA.items())
    for part in ("gate", "up", "down"):
        names[f"ffn_{part}_exps"] = f"block_sparse_moe.switch_mlp.{part}_proj"
    if config["position_embedding_type"] == "rope":
        halves(s, [layer for layer in layers if "attn_q.weight" in layer])
    for layer in layers:
        mamba_layer(layer)
        if "ffn_gate_shexp.weight" in layer:
            parts = layer.pop("ffn_gate_shexp.weight"), layer.pop("ffn_up_shexp.weight")
            layer["shared_in.weight"] = np.concatenate(parts)
    return build("granitemoehybrid", config, named(s, names, layers))


# ---- Gemma 4

GEMMA4_TOP = {**TOP, "per_layer_token_embd.weight": "model.embed_tokens_per_layer.weight",
    "per_layer_model_proj.weight": "model.per_layer_model_projection.weight",
    "per_layer_proj_norm.weight": "model.per_layer_projection_norm.weight"}
GEMMA4 = {**LAYER, "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
    "inp_gate": "per_layer_input_gate", "proj": "per_layer_projection", "post_norm": "post_per_layer_input_norm",
    "ffn_gate_inp": "router.proj", "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
    "post_ffw_norm_1": "post_feedforward_layernorm_1", "post_ffw_norm_2": "post_feedforward_layernorm_2",
    "ffn_down_exps": "experts.switch_glu.down_proj", "ffn_gate_exps": "experts.switch_glu.gate_proj",
    "ffn_up_exps": "experts.switch_glu.up_proj", "layer_output_scale.weight": "layer_scalar",
    "ffn_gate_inp.scale": "router.scale", "ffn_down_exps.scale": "router.per_expert_scale"}


class Rope(nn.Module):
    """Rotation with the divisors of the tensor rope_freqs."""

    def __init__(self, dims, base, factors):
        super().__init__()
        self.dims = dims
        self._freqs = mx.array(base ** (np.arange(0, dims, 2) / dims) * factors, dtype=mx.float32)

    def __call__(self, x, offset=0):
        return mx.fast.rope(x, self.dims, traditional=False, base=None, scale=1.0, offset=offset, freqs=self._freqs)


def gemma4(s):
    is_window, layers = s.key("attention.sliding_window_pattern"), layers_of(s)
    full = is_window.index(False)
    kv = s.key("attention.head_count_kv")
    kv = kv if isinstance(kv, list) else [kv] * s.n_layers
    ff = s.key("feed_forward_length")
    config = dict(s.base_config(), intermediate_size=ff[0] if isinstance(ff, list) else ff,
        head_dim=s.key("attention.key_length_swa"), global_head_dim=s.key("attention.key_length"),
        vocab_size_per_layer_input=s.n_vocab, num_key_value_heads=kv[is_window.index(True)],
        num_global_key_value_heads=kv[full], num_kv_shared_layers=s.key("attention.shared_kv_layers", 0),
        hidden_size_per_layer_input=s.key("embedding_length_per_layer_input"),
        sliding_window=s.key("attention.sliding_window"), attention_k_eq_v="attn_v.weight" not in layers[full],
        final_logit_softcapping=s.key("final_logit_softcapping"), use_double_wide_mlp=isinstance(ff, list),
        enable_moe_block=bool(s.key("expert_count", 0)), num_experts=s.key("expert_count"),
        top_k_experts=s.key("expert_used_count"), moe_intermediate_size=s.key("expert_feed_forward_length"),
        layer_types=["sliding_attention" if w else "full_attention" for w in is_window])
    for layer in layers:
        both = layer.pop("ffn_gate_up_exps.weight", None)
        if both is not None:
            layer["ffn_gate_exps.weight"], layer["ffn_up_exps.weight"] = np.split(both, 2, axis=1)
    model, weights = build("gemma4_text", config, named(s, GEMMA4, layers, GEMMA4_TOP))
    for layer, window in zip(model.layers, is_window):
        if not window:
            layer.self_attn.rope = Rope(s.key("attention.key_length"), s.key("rope.freq_base"),
                s.tensors["rope_freqs.weight"])
    return model, weights


FAMILIES = {"qwen35": qwen35, "qwen35moe": qwen35, "qwen3next": qwen3next, "lfm2": lfm2, "lfm2moe": lfm2,
    "deepseek2": latent, "mistral4": latent, "mistral3": mistral3, "glm4moe": glm4moe,
    "granitemoe": granite_experts, "granitehybrid": granite_experts, "nemotron_h": nemotron, "nemotron_h_moe": nemotron,
    "gemma4": gemma4}


# ---- keys and values

def rounded(x):
    return x.astype(mx.float16).astype(x.dtype)


class KvRounding:
    """`with KvRounding(on):` the caches of mlx-lm round keys and values to f16, as InferFlux does."""

    is_on = False

    def __init__(self, on):
        self.on = on
        self.classes = (mlx_cache.KVCache, mlx_cache.RotatingKVCache)

    def __enter__(self):
        KvRounding.is_on = self.on
        self.saved = [c.update_and_fetch for c in self.classes]
        if self.on:
            for c, f in zip(self.classes, self.saved):
                c.update_and_fetch = lambda self, k, v, f=f: f(self, rounded(k), rounded(v))

    def __exit__(self, *args):
        KvRounding.is_on = False
        for c, f in zip(self.classes, self.saved):
            c.update_and_fetch = f


def has_family(arch):
    return arch in FAMILIES


def logits(path, tokens, has_f16_kv):
    """[len(tokens)][n_vocab] of a GGUF file in F32."""
    source = Source(path)
    with KvRounding(has_f16_kv):
        model, weights = FAMILIES[source.arch](source)
        rounds_itself = hasattr(model, "rounds_itself")
        if weights is not None:
            model.load_weights(weights, strict=True)
    with KvRounding(has_f16_kv and not rounds_itself):
        y = model(mx.array([tokens]), cache=mlx_cache.make_prompt_cache(model)).astype(mx.float32)
        return np.array(y[0])
