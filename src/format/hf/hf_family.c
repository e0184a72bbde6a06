#include "format/hf/hf_family.h"

#define LAYER "model.layers.%d."

const struct hf_tensor_row hf_common_rows[] = {
    { "model.embed_tokens", "token_embd", 0, false },
    { "model.norm", "output_norm", 0, true },
    { "lm_head", "output", 0, false },
    { LAYER "input_layernorm", "blk.%d.attn_norm", 0, true },
    { LAYER "self_attn.q_proj", "blk.%d.attn_q", HF_ROWS_Q, false },
    { LAYER "self_attn.k_proj", "blk.%d.attn_k", HF_ROWS_K, false },
    { LAYER "self_attn.v_proj", "blk.%d.attn_v", 0, false },
    { LAYER "self_attn.o_proj", "blk.%d.attn_output", 0, false },
    { LAYER "self_attn.q_norm", "blk.%d.attn_q_norm", 0, true },
    { LAYER "self_attn.k_norm", "blk.%d.attn_k_norm", 0, true },
    { LAYER "post_attention_layernorm", "blk.%d.ffn_norm", 0, true },
    { LAYER "mlp.gate_proj", "blk.%d.ffn_gate", 0, false },
    { LAYER "mlp.up_proj", "blk.%d.ffn_up", 0, false },
    { LAYER "mlp.down_proj", "blk.%d.ffn_down", 0, false },
    { LAYER "mlp.gate", "blk.%d.ffn_gate_inp", 0, false },
    { LAYER "mlp.experts.%e.gate_proj", "blk.%d.ffn_gate_exps", 0, false },
    { LAYER "mlp.experts.%e.up_proj", "blk.%d.ffn_up_exps", 0, false },
    { LAYER "mlp.experts.%e.down_proj", "blk.%d.ffn_down_exps", 0, false },
    { LAYER "mlp.switch_mlp.gate_proj", "blk.%d.ffn_gate_exps", 0, false },
    { LAYER "mlp.switch_mlp.up_proj", "blk.%d.ffn_up_exps", 0, false },
    { LAYER "mlp.switch_mlp.down_proj", "blk.%d.ffn_down_exps", 0, false },
    { LAYER "mlp.shared_expert.gate_proj", "blk.%d.ffn_gate_shexp", 0, false },
    { LAYER "mlp.shared_expert.up_proj", "blk.%d.ffn_up_shexp", 0, false },
    { LAYER "mlp.shared_expert.down_proj", "blk.%d.ffn_down_shexp", 0, false },
    { LAYER "mlp.shared_expert_gate", "blk.%d.ffn_gate_inp_shexp", 0, false },
    { 0 },
};

static const struct hf_tensor_row mixtral_rows[] = {
    { LAYER "block_sparse_moe.gate", "blk.%d.ffn_gate_inp", 0, false },
    { LAYER "block_sparse_moe.experts.%e.w1", "blk.%d.ffn_gate_exps", 0, false },
    { LAYER "block_sparse_moe.experts.%e.w3", "blk.%d.ffn_up_exps", 0, false },
    { LAYER "block_sparse_moe.experts.%e.w2", "blk.%d.ffn_down_exps", 0, false },
    { LAYER "block_sparse_moe.switch_mlp.gate_proj", "blk.%d.ffn_gate_exps", 0, false },
    { LAYER "block_sparse_moe.switch_mlp.up_proj", "blk.%d.ffn_up_exps", 0, false },
    { LAYER "block_sparse_moe.switch_mlp.down_proj", "blk.%d.ffn_down_exps", 0, false },
    { 0 },
};

/* DeepSeek and GLM: a shared expert without a factor, and a bias of the router. */
#define SHARED_EXPERTS                                                                             \
    { LAYER "mlp.gate.e_score_correction", "blk.%d.exp_probs_b", 0, false },                       \
        { LAYER "mlp.shared_experts.gate_proj", "blk.%d.ffn_gate_shexp", 0, false },               \
        { LAYER "mlp.shared_experts.up_proj", "blk.%d.ffn_up_shexp", 0, false },                   \
    {                                                                                              \
        LAYER "mlp.shared_experts.down_proj", "blk.%d.ffn_down_shexp", 0, false                    \
    }

#define LATENT_ATTENTION                                                                           \
    { LAYER "self_attn.q_a_proj", "blk.%d.attn_q_a", 0, false },                                   \
        { LAYER "self_attn.q_a_layernorm", "blk.%d.attn_q_a_norm", 0, true },                      \
        { LAYER "self_attn.q_b_proj", "blk.%d.attn_q_b", 0, false },                               \
        { LAYER "self_attn.kv_a_proj_with_mqa", "blk.%d.attn_kv_a_mqa", 0, false },                \
        { LAYER "self_attn.kv_a_layernorm", "blk.%d.attn_kv_a_norm", 0, true },                    \
        { LAYER "self_attn.kv_b_proj", "blk.%d.attn_kv_b", 0, false },                             \
        { LAYER "self_attn.embed_q", "blk.%d.attn_k_b", 0, false },                                \
    {                                                                                              \
        LAYER "self_attn.unembed_out", "blk.%d.attn_v_b", 0, false                                 \
    }
#define STACKED_EXPERTS                                                                            \
    { LAYER "mlp.experts.gate_up_proj", "blk.%d.ffn_gate_exps", HF_ROWS_FIRST_HALF, false },       \
        { LAYER "mlp.experts.gate_up_proj", "blk.%d.ffn_up_exps", HF_ROWS_SECOND_HALF, false },    \
    {                                                                                              \
        LAYER "mlp.experts.down_proj", "blk.%d.ffn_down_exps", 0, false                            \
    }

static const struct hf_tensor_row deepseek_rows[] = {
    SHARED_EXPERTS,
    LATENT_ATTENTION,
    { 0 },
};

static const struct hf_tensor_row mistral4_rows[] = {
    SHARED_EXPERTS,
    LATENT_ATTENTION,
    STACKED_EXPERTS,
    { 0 },
};

static const struct hf_tensor_row glm4_moe_rows[] = {
    SHARED_EXPERTS,
    { LAYER "post_attention_layernorm", "blk.%d.post_attention_norm", 0, true },
    { 0 },
};

static const struct hf_tensor_row gemma_rows[] = {
    { LAYER "post_attention_layernorm", "blk.%d.post_attention_norm", 0, true },
    { LAYER "pre_feedforward_layernorm", "blk.%d.ffn_norm", 0, true },
    { LAYER "post_feedforward_layernorm", "blk.%d.post_ffw_norm", 0, true },
    { 0 },
};

static const struct hf_tensor_row gemma4_rows[] = {
    { "model.embed_tokens_per_layer", "per_layer_token_embd", 0, false },
    { "model.per_layer_model_projection", "per_layer_model_proj", 0, false },
    { "model.per_layer_projection_norm", "per_layer_proj_norm", 0, true },
    { LAYER "post_attention_layernorm", "blk.%d.post_attention_norm", 0, true },
    { LAYER "pre_feedforward_layernorm", "blk.%d.ffn_norm", 0, true },
    { LAYER "pre_feedforward_layernorm_2", "blk.%d.pre_ffw_norm_2", 0, true },
    { LAYER "post_feedforward_layernorm", "blk.%d.post_ffw_norm", 0, true },
    { LAYER "post_feedforward_layernorm_1", "blk.%d.post_ffw_norm_1", 0, true },
    { LAYER "post_feedforward_layernorm_2", "blk.%d.post_ffw_norm_2", 0, true },
    { LAYER "layer_scalar", "blk.%d.layer_output_scale", 0, false },
    { LAYER "per_layer_input_gate", "blk.%d.inp_gate", 0, false },
    { LAYER "per_layer_projection", "blk.%d.proj", 0, false },
    { LAYER "post_per_layer_input_norm", "blk.%d.post_norm", 0, true },
    { LAYER "router.proj", "blk.%d.ffn_gate_inp", 0, false },
    { LAYER "router.scale", "blk.%d.ffn_gate_inp.scale", 0, false, HF_FORM_VECTOR },
    { LAYER "router.per_expert_scale", "blk.%d.ffn_down_exps.scale", 0, false, HF_FORM_VECTOR },
    { LAYER "experts.gate_up_proj", "blk.%d.ffn_gate_up_exps", 0, false },
    { LAYER "experts.down_proj", "blk.%d.ffn_down_exps", 0, false },
    { LAYER "experts.switch_glu.gate_proj", "blk.%d.ffn_gate_exps", 0, false },
    { LAYER "experts.switch_glu.up_proj", "blk.%d.ffn_up_exps", 0, false },
    { LAYER "experts.switch_glu.down_proj", "blk.%d.ffn_down_exps", 0, false },
    { 0 },
};

static const struct hf_tensor_row lfm2_rows[] = {
    { "model.embedding_norm", "token_embd_norm", 0, true },
    { LAYER "operator_norm", "blk.%d.attn_norm", 0, true },
    { LAYER "ffn_norm", "blk.%d.ffn_norm", 0, true },
    { LAYER "self_attn.out_proj", "blk.%d.attn_output", 0, false },
    { LAYER "self_attn.q_layernorm", "blk.%d.attn_q_norm", 0, true },
    { LAYER "self_attn.k_layernorm", "blk.%d.attn_k_norm", 0, true },
    { LAYER "conv.conv", "blk.%d.shortconv.conv", 0, false, HF_FORM_CONV },
    { LAYER "conv.in_proj", "blk.%d.shortconv.in_proj", 0, false },
    { LAYER "conv.out_proj", "blk.%d.shortconv.out_proj", 0, false },
    { LAYER "feed_forward.w1", "blk.%d.ffn_gate", 0, false },
    { LAYER "feed_forward.w3", "blk.%d.ffn_up", 0, false },
    { LAYER "feed_forward.w2", "blk.%d.ffn_down", 0, false },
    { LAYER "feed_forward.gate_proj", "blk.%d.ffn_gate", 0, false },
    { LAYER "feed_forward.up_proj", "blk.%d.ffn_up", 0, false },
    { LAYER "feed_forward.down_proj", "blk.%d.ffn_down", 0, false },
    { LAYER "feed_forward.gate", "blk.%d.ffn_gate_inp", 0, false },
    { LAYER "feed_forward.expert", "blk.%d.exp_probs_b", 0, false },
    { LAYER "feed_forward.experts.%e.w1", "blk.%d.ffn_gate_exps", 0, false },
    { LAYER "feed_forward.experts.%e.w3", "blk.%d.ffn_up_exps", 0, false },
    { LAYER "feed_forward.experts.%e.w2", "blk.%d.ffn_down_exps", 0, false },
    { LAYER "feed_forward.switch_mlp.gate_proj", "blk.%d.ffn_gate_exps", 0, false },
    { LAYER "feed_forward.switch_mlp.up_proj", "blk.%d.ffn_up_exps", 0, false },
    { LAYER "feed_forward.switch_mlp.down_proj", "blk.%d.ffn_down_exps", 0, false },
    { 0 },
};

static const struct hf_tensor_row olmo2_rows[] = {
    { LAYER "post_attention_layernorm", "blk.%d.post_attention_norm", 0, true },
    { LAYER "post_feedforward_layernorm", "blk.%d.post_ffw_norm", 0, true },
    { 0 },
};

static const struct hf_tensor_row phi3_rows[] = {
    { LAYER "self_attn.qkv_proj", "blk.%d.attn_qkv", 0, false },
    { LAYER "mlp.gate_up_proj", "blk.%d.ffn_up", 0, false },
    { 0 },
};

static const struct hf_tensor_row glm4_rows[] = {
    { LAYER "post_self_attn_layernorm", "blk.%d.post_attention_norm", 0, true },
    { LAYER "post_mlp_layernorm", "blk.%d.post_ffw_norm", 0, true },
    { LAYER "mlp.gate_up_proj", "blk.%d.ffn_up", 0, false },
    { 0 },
};

static const struct hf_tensor_row gpt_oss_rows[] = {
    { LAYER "post_attention_layernorm", "blk.%d.post_attention_norm", 0, true },
    { LAYER "self_attn.sinks", "blk.%d.attn_sinks", 0, false },
    { LAYER "mlp.router", "blk.%d.ffn_gate_inp", 0, false },
    { LAYER "mlp.experts.gate_up_proj", "blk.%d.ffn_gate_exps", HF_ROWS_EVEN, false },
    { LAYER "mlp.experts.gate_up_proj", "blk.%d.ffn_up_exps", HF_ROWS_ODD, false },
    { LAYER "mlp.experts.gate_proj", "blk.%d.ffn_gate_exps", 0, false },
    { LAYER "mlp.experts.up_proj", "blk.%d.ffn_up_exps", 0, false },
    { LAYER "mlp.experts.down_proj", "blk.%d.ffn_down_exps", 0, false },
    { 0 },
};

#define BLOCK_MOE LAYER "block_sparse_moe."
#define MAMBA2(module)                                                                             \
    { module "in_proj", "blk.%d.ssm_in", 0, false },                                               \
        { module "conv1d", "blk.%d.ssm_conv1d", 0, false, HF_FORM_CONV },                          \
        { module "dt", "blk.%d.ssm_dt", 0, false },                                                \
        { module "A_log", "blk.%d.ssm_a", 0, false, HF_FORM_DECAY },                               \
        { module "D", "blk.%d.ssm_d", 0, false, HF_FORM_COLUMN },                                  \
        { module "norm", "blk.%d.ssm_norm", 0, false, HF_FORM_GROUPS },                            \
    {                                                                                              \
        module "out_proj", "blk.%d.ssm_out", 0, false                                              \
    }

static const struct hf_tensor_row granite_rows[] = {
    MAMBA2(LAYER "mamba."),
    { BLOCK_MOE "input_linear", "blk.%d.ffn_gate_exps", HF_ROWS_FIRST_HALF, false },
    { BLOCK_MOE "input_linear", "blk.%d.ffn_up_exps", HF_ROWS_SECOND_HALF, false },
    { BLOCK_MOE "output_linear", "blk.%d.ffn_down_exps", 0, false },
    { BLOCK_MOE "experts.gate_up_proj", "blk.%d.ffn_gate_exps", HF_ROWS_FIRST_HALF, false },
    { BLOCK_MOE "experts.gate_up_proj", "blk.%d.ffn_up_exps", HF_ROWS_SECOND_HALF, false },
    { BLOCK_MOE "experts.down_proj", "blk.%d.ffn_down_exps", 0, false },
    { BLOCK_MOE "switch_mlp.gate_proj", "blk.%d.ffn_gate_exps", 0, false },
    { BLOCK_MOE "switch_mlp.up_proj", "blk.%d.ffn_up_exps", 0, false },
    { BLOCK_MOE "switch_mlp.down_proj", "blk.%d.ffn_down_exps", 0, false },
    { BLOCK_MOE "router.layer", "blk.%d.ffn_gate_inp", 0, false },
    { BLOCK_MOE "router", "blk.%d.ffn_gate_inp", 0, false },
    { LAYER "shared_mlp.input_linear", "blk.%d.ffn_gate_shexp", HF_ROWS_FIRST_HALF, false },
    { LAYER "shared_mlp.input_linear", "blk.%d.ffn_up_shexp", HF_ROWS_SECOND_HALF, false },
    { LAYER "shared_mlp.output_linear", "blk.%d.ffn_down_shexp", 0, false },
    { 0 },
};

/* The shared expert is the only network. */
static const struct hf_tensor_row granite_dense_rows[] = {
    MAMBA2(LAYER "mamba."),
    { LAYER "shared_mlp.input_linear", "blk.%d.ffn_gate", HF_ROWS_FIRST_HALF, false },
    { LAYER "shared_mlp.input_linear", "blk.%d.ffn_up", HF_ROWS_SECOND_HALF, false },
    { LAYER "shared_mlp.output_linear", "blk.%d.ffn_down", 0, false },
    { 0 },
};

#define MIXER "backbone.layers.%d.mixer."

static const struct hf_tensor_row nemotron_h_rows[] = {
    { "backbone.embeddings", "token_embd", 0, false },
    { "backbone.norm_f", "output_norm", 0, true },
    { "backbone.layers.%d.norm", "blk.%d.attn_norm", 0, true },
    MAMBA2(MIXER),
    { MIXER "q_proj", "blk.%d.attn_q", HF_ROWS_Q, false },
    { MIXER "k_proj", "blk.%d.attn_k", HF_ROWS_K, false },
    { MIXER "v_proj", "blk.%d.attn_v", 0, false },
    { MIXER "o_proj", "blk.%d.attn_output", 0, false },
    { MIXER "up_proj", "blk.%d.ffn_up", 0, false },
    { MIXER "down_proj", "blk.%d.ffn_down", 0, false },
    { MIXER "gate", "blk.%d.ffn_gate_inp", 0, false },
    { MIXER "gate.e_score_correction", "blk.%d.exp_probs_b", 0, false },
    { MIXER "experts.%e.up_proj", "blk.%d.ffn_up_exps", 0, false },
    { MIXER "experts.%e.down_proj", "blk.%d.ffn_down_exps", 0, false },
    { MIXER "experts.up_proj", "blk.%d.ffn_up_exps", 0, false },
    { MIXER "experts.down_proj", "blk.%d.ffn_down_exps", 0, false },
    { MIXER "switch_mlp.fc1", "blk.%d.ffn_up_exps", 0, false },
    { MIXER "switch_mlp.fc2", "blk.%d.ffn_down_exps", 0, false },
    { MIXER "shared_experts.up_proj", "blk.%d.ffn_up_shexp", 0, false },
    { MIXER "shared_experts.down_proj", "blk.%d.ffn_down_shexp", 0, false },
    { MIXER "fc1_latent_proj", "blk.%d.ffn_latent_down", 0, false },
    { MIXER "fc2_latent_proj", "blk.%d.ffn_latent_up", 0, false },
    { 0 },
};

#define LINEAR LAYER "linear_attn."
#define DELTA_NET_VECTORS(order)                                                                   \
    { LINEAR "dt", "blk.%d.ssm_dt", order, false },                                                \
    {                                                                                              \
        LINEAR "norm", "blk.%d.ssm_norm", 0, false                                                 \
    }
static const struct hf_tensor_row qwen3_5_rows[] = {
    { LAYER "post_attention_layernorm", "blk.%d.post_attention_norm", 0, true },
    STACKED_EXPERTS,
    DELTA_NET_VECTORS(HF_ROWS_VALUES),
    { LINEAR "in_proj_qkv", "blk.%d.attn_qkv", HF_ROWS_QK_VALUES, false },
    { LINEAR "in_proj_z", "blk.%d.attn_gate", HF_ROWS_VALUES, false },
    { LINEAR "in_proj_b", "blk.%d.ssm_beta", HF_ROWS_VALUES, false },
    { LINEAR "in_proj_a", "blk.%d.ssm_alpha", HF_ROWS_VALUES, false },
    { LINEAR "conv1d", "blk.%d.ssm_conv1d", HF_ROWS_QK_VALUES, false, HF_FORM_CONV },
    { LINEAR "A_log", "blk.%d.ssm_a", HF_COLS_VALUES, false, HF_FORM_DECAYS },
    { LINEAR "out_proj", "blk.%d.ssm_out", HF_COLS_VALUES, false },
    { 0 },
};

static const struct hf_tensor_row qwen3_next_rows[] = {
    { LAYER "post_attention_layernorm", "blk.%d.post_attention_norm", 0, true },
    STACKED_EXPERTS,
    DELTA_NET_VECTORS(HF_ROWS_ALL),
    { LINEAR "in_proj_qkvz", "blk.%d.ssm_in", 0, false },
    { LINEAR "in_proj_ba", "blk.%d.ssm_ba", 0, false },
    { LINEAR "conv1d", "blk.%d.ssm_conv1d", 0, false, HF_FORM_CONV },
    { LINEAR "A_log", "blk.%d.ssm_a", 0, false, HF_FORM_DECAYS },
    { LINEAR "out_proj", "blk.%d.ssm_out", 0, false },
    { 0 },
};

static const struct hf_family families[] = {
    { .model_type = "llama", .arch = "llama", .activation = "silu", .swaps_halves = true },
    { .model_type = "mistral", .arch = "llama", .activation = "silu", .swaps_halves = true },
    { .model_type = "mixtral",
        .arch = "llama",
        .activation = "silu",
        .rows = mixtral_rows,
        .swaps_halves = true,
        .has_experts = true },
    { .model_type = "qwen2", .arch = "qwen2", .activation = "silu", .needs_use_window = true },
    { .model_type = "qwen2_moe",
        .arch = "qwen2moe",
        .activation = "silu",
        .has_experts = true,
        .needs_norm_topk = true,
        .needs_use_window = true },
    { .model_type = "qwen3", .arch = "qwen3", .activation = "silu", .needs_use_window = true },
    { .model_type = "qwen3_moe",
        .arch = "qwen3moe",
        .activation = "silu",
        .has_experts = true,
        .needs_norm_topk = true,
        .needs_use_window = true },
    { .model_type = "qwen3_5",
        .has_text_type = true,
        .arch = "qwen35",
        .activation = "silu",
        .rows = qwen3_5_rows,
        .adds_one = true,
        .head_dim = 256,
        .rotated = 0.25,
        .has_delta_net = true },
    { .model_type = "qwen3_5_moe",
        .has_text_type = true,
        .arch = "qwen35moe",
        .activation = "silu",
        .rows = qwen3_5_rows,
        .adds_one = true,
        .has_experts = true,
        .head_dim = 256,
        .rotated = 0.25,
        .has_delta_net = true },
    { .model_type = "qwen3_next",
        .arch = "qwen3next",
        .activation = "silu",
        .rows = qwen3_next_rows,
        .adds_one = true,
        .has_experts = true,
        .head_dim = 256,
        .rotated = 0.25,
        .has_delta_net = true },
    { .model_type = "smollm3",
        .arch = "smollm3",
        .activation = "silu",
        .swaps_halves = true,
        .needs_use_window = true,
        .rope_period = 4 },
    { .model_type = "phi3", .arch = "phi3", .activation = "silu", .rows = phi3_rows },
    { .model_type = "granite", .arch = "granite", .activation = "silu", .swaps_halves = true },
    { .model_type = "granitemoehybrid",
        .arch = "granitehybrid",
        .activation = "silu",
        .rows = granite_rows,
        .dense_rows = granite_dense_rows,
        .hybrid = HF_GRANITE_HYBRID,
        .swaps_halves = true },
    { .model_type = "nemotron_h",
        .arch = "nemotron_h",
        .moe_arch = "nemotron_h_moe",
        .activation = "relu2",
        .rows = nemotron_h_rows,
        .hybrid = HF_NEMOTRON_H,
        .swaps_halves = true,
        .head_dim = 128,
        .rope_period = 1 },
    { .model_type = "granitemoe",
        .arch = "granitemoe",
        .activation = "silu",
        .rows = granite_rows,
        .swaps_halves = true,
        .has_experts = true },
    { .model_type = "granitemoeshared",
        .arch = "granitemoe",
        .activation = "silu",
        .rows = granite_rows,
        .swaps_halves = true,
        .has_experts = true },
    { .model_type = "ministral3", .arch = "mistral3", .activation = "silu", .swaps_halves = true },
    { .model_type = "olmo2", .arch = "olmo2", .activation = "silu", .rows = olmo2_rows },
    { .model_type = "olmo3", .arch = "olmo2", .activation = "silu", .rows = olmo2_rows },
    { .model_type = "lfm2",
        .arch = "lfm2",
        .activation = "silu",
        .rows = lfm2_rows,
        .has_short_conv = true },
    { .model_type = "lfm2_moe",
        .arch = "lfm2moe",
        .activation = "silu",
        .rows = lfm2_rows,
        .has_experts = true,
        .has_short_conv = true,
        .router = "sigmoid" },
    { .model_type = "gemma2",
        .arch = "gemma2",
        .activation = "gelu_pytorch_tanh",
        .rows = gemma_rows,
        .adds_one = true },
    { .model_type = "gemma3_text",
        .arch = "gemma3",
        .activation = "gelu_pytorch_tanh",
        .rows = gemma_rows,
        .adds_one = true },
    { .model_type = "gemma4",
        .has_text_type = true,
        .arch = "gemma4",
        .activation = "gelu_pytorch_tanh",
        .rows = gemma4_rows,
        .head_dim = 256,
        .has_window_heads = true,
        .layer_input = 256 },
    /* the same without inputs of layers and experts */
    { .model_type = "gemma4_unified",
        .has_text_type = true,
        .arch = "gemma4",
        .activation = "gelu_pytorch_tanh",
        .rows = gemma4_rows,
        .head_dim = 256,
        .has_window_heads = true },
    { .model_type = "gpt_oss",
        .arch = "gpt-oss",
        .activation = "silu",
        .rows = gpt_oss_rows,
        .has_experts = true },
    { .model_type = "glm4_moe",
        .arch = "glm4moe",
        .activation = "silu",
        .rows = glm4_moe_rows,
        .rotated = 0.5,
        .has_experts = true,
        .router = "sigmoid" },
    { .model_type = "deepseek_v2",
        .arch = "deepseek2",
        .activation = "silu",
        .rows = deepseek_rows,
        .has_experts = true,
        .has_latent_attn = true,
        .router = "softmax" },
    { .model_type = "deepseek_v3",
        .arch = "deepseek2",
        .activation = "silu",
        .rows = deepseek_rows,
        .has_experts = true,
        .has_latent_attn = true,
        .router = "sigmoid" },
    { .model_type = "kimi_k2",
        .arch = "deepseek2",
        .activation = "silu",
        .rows = deepseek_rows,
        .has_experts = true,
        .has_latent_attn = true,
        .router = "sigmoid" },
    { .model_type = "mistral4",
        .arch = "mistral4",
        .activation = "silu",
        .rows = mistral4_rows,
        .has_experts = true,
        .has_latent_attn = true,
        .router = "softmax" },
    { .model_type = "glm4_moe_lite",
        .arch = "deepseek2",
        .activation = "silu",
        .rows = deepseek_rows,
        .has_experts = true,
        .has_latent_attn = true,
        .router = "sigmoid",
        .n_dense = 1 },
    { .model_type = "glm4",
        .arch = "glm4",
        .activation = "silu",
        .rows = glm4_rows,
        .rotated = 0.5 },
};

const struct hf_family *hf_family_find(struct str model_type)
{
    const struct str text = STR("_text");
    struct str base = model_type;

    if (str_ends(base, text))
        base.n -= text.n;
    for (size_t i = 0; i < ARRAY_LEN(families); i++)
        if (str_is(families[i].has_text_type ? base : model_type, families[i].model_type))
            return &families[i];
    return NULL;
}

const struct hf_family *hf_family_at(size_t i)
{
    return i < ARRAY_LEN(families) ? &families[i] : NULL;
}

bool hf_tensor_is_ignored(struct str name)
{
    static const char *const starts[] = { "vision_tower.", "vision_model.", "visual.",
        "model.visual.", "model.vision_tower.", "multi_modal_projector.",
        "model.multi_modal_projector.", "audio_tower.", "model.audio_tower.", "mtp.", "model.mtp.",
        "embed_vision.", "model.embed_vision.", "vision_embedder.", "model.vision_embedder.",
        "embed_audio.", "model.embed_audio." };

    for (size_t i = 0; i < ARRAY_LEN(starts); i++)
        if (str_starts(name, str_of(starts[i])))
            return true;
    return str_ends(name, STR("rotary_emb.inv_freq"));
}
