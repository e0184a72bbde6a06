#include "model/family.h"

/* Tensors of the feed-forward network are required in the layers that have that kind of network,
 * see hparams_need(). */
#define BIAS(need)    [TENSOR_Q_BIAS] = need, [TENSOR_K_BIAS] = need, [TENSOR_V_BIAS] = need
#define QK_NORM(need) [TENSOR_Q_NORM] = need, [TENSOR_K_NORM] = need
#define POST_NORMS    [TENSOR_POST_ATTN_NORM] = NEED_YES, [TENSOR_POST_FFN_NORM] = NEED_YES
#define NO_PRE_NORMS  [TENSOR_ATTN_NORM] = NEED_NO, [TENSOR_FFN_NORM] = NEED_NO
#define FUSED_QKV                                                                                  \
    [TENSOR_QKV] = NEED_YES, [TENSOR_Q] = NEED_NO, [TENSOR_K] = NEED_NO, [TENSOR_V] = NEED_NO
#define LONGROPE            [TENSOR_ROPE_LONG] = NEED_MAYBE, [TENSOR_ROPE_SHORT] = NEED_MAYBE
#define FFN_NORM_AFTER_ATTN [TENSOR_POST_ATTN_NORM] = NEED_YES, [TENSOR_FFN_NORM] = NEED_NO

#define FINAL_EMBD_NORM [TENSOR_OUT_NORM] = NEED_NO, [TENSOR_EMBD_NORM] = NEED_YES

#define EXPERT_BIAS                                                                                \
    [TENSOR_ROUTER_SCORE_BIAS] = NEED_YES, [TENSOR_GATE_EXPERTS_BIAS] = NEED_YES,                  \
    [TENSOR_UP_EXPERTS_BIAS] = NEED_YES, [TENSOR_DOWN_EXPERTS_BIAS] = NEED_YES

#define LAYER_INPUTS                                                                               \
    [TENSOR_INPUT_TABLE] = NEED_YES, [TENSOR_INPUT_MODEL_PROJ] = NEED_YES,                         \
    [TENSOR_INPUT_MODEL_NORM] = NEED_YES, [TENSOR_INPUT_GATE] = NEED_YES,                          \
    [TENSOR_INPUT_PROJ] = NEED_YES, [TENSOR_INPUT_NORM] = NEED_YES
#define DENSE_AND_EXPERTS                                                                          \
    [TENSOR_ROUTER_NORM] = NEED_YES, [TENSOR_EXPERT_NORM] = NEED_YES,                              \
    [TENSOR_POST_EXPERT_NORM] = NEED_YES, [TENSOR_POST_DENSE_NORM] = NEED_YES,                     \
    [TENSOR_DOWN_EXPERTS_SCALE] = NEED_MAYBE

static const struct family families[] = {
    { .arch = "llama", .experts = NEED_MAYBE, .needs = { BIAS(NEED_MAYBE) } },
    { .arch = "qwen2", .is_rope_neox = true, .experts = NEED_NO, .needs = { BIAS(NEED_YES) } },
    { .arch = "qwen2moe",
        .is_rope_neox = true,
        .experts = NEED_YES,
        .keeps_expert_weights = true,
        .needs = { BIAS(NEED_YES), [TENSOR_SHARED_ROUTER] = NEED_YES } },
    { .arch = "qwen3",
        .is_rope_neox = true,
        .experts = NEED_NO,
        .needs = { BIAS(NEED_MAYBE), QK_NORM(NEED_YES) } },
    { .arch = "qwen3moe",
        .is_rope_neox = true,
        .experts = NEED_YES,
        .needs = { BIAS(NEED_MAYBE), QK_NORM(NEED_YES) } },
    { .arch = "qwen35",
        .is_rope_neox = true,
        .experts = NEED_NO,
        .has_ffn_norm_after_attn = true,
        .has_mtp_layers = true,
        .recurrent = MIXER_DELTA_NET,
        .has_tiled_value_heads = true,
        .gates_attention = true,
        .needs = { QK_NORM(NEED_YES), FFN_NORM_AFTER_ATTN, [TENSOR_QKV] = NEED_YES } },
    { .arch = "qwen35moe",
        .is_rope_neox = true,
        .experts = NEED_YES,
        .has_ffn_norm_after_attn = true,
        .has_mtp_layers = true,
        .recurrent = MIXER_DELTA_NET,
        .has_tiled_value_heads = true,
        .gates_attention = true,
        .needs = { QK_NORM(NEED_YES),
            FFN_NORM_AFTER_ATTN, [TENSOR_QKV] = NEED_YES, [TENSOR_SHARED_ROUTER] = NEED_YES } },
    /* either TENSOR_QKV and TENSOR_MIX_GATE, or TENSOR_SSM_IN */
    { .arch = "qwen3next",
        .is_rope_neox = true,
        .experts = NEED_YES,
        .has_ffn_norm_after_attn = true,
        .has_mtp_layers = true,
        .recurrent = MIXER_DELTA_NET,
        .gates_attention = true,
        .needs = { QK_NORM(NEED_YES), FFN_NORM_AFTER_ATTN, [TENSOR_SHARED_ROUTER] = NEED_YES,
            [TENSOR_QKV] = NEED_MAYBE, [TENSOR_MIX_GATE] = NEED_MAYBE, [TENSOR_SSM_IN] = NEED_MAYBE,
            [TENSOR_SSM_BETA_ALPHA] = NEED_YES, [TENSOR_SSM_ALPHA] = NEED_NO,
            [TENSOR_SSM_BETA] = NEED_NO } },
    { .arch = "lfm2",
        .is_rope_neox = true,
        .experts = NEED_NO,
        .recurrent = MIXER_SHORT_CONV,
        .needs = { QK_NORM(NEED_YES), FINAL_EMBD_NORM } },
    { .arch = "lfm2moe",
        .is_rope_neox = true,
        .experts = NEED_YES,
        .router = ROUTER_SIGMOID,
        .recurrent = MIXER_SHORT_CONV,
        .needs = { QK_NORM(NEED_YES), FINAL_EMBD_NORM, [TENSOR_ROUTER_BIAS] = NEED_YES } },
    { .arch = "mistral3", .experts = NEED_MAYBE },
    { .arch = "smollm3", .experts = NEED_NO, .rope_period = 4 },
    { .arch = "phi3",
        .is_rope_neox = true,
        .experts = NEED_NO,
        .fuses_gate_up = true,
        .needs = { FUSED_QKV, LONGROPE } },
    { .arch = "granite", .experts = NEED_NO, .divides_logits = true, .may_lack_rope = true },
    { .arch = "granitemoe", .experts = NEED_YES, .divides_logits = true, .may_lack_rope = true },
    { .arch = "granitehybrid",
        .experts = NEED_MAYBE,
        .divides_logits = true,
        .may_lack_rope = true,
        .recurrent = MIXER_MAMBA2,
        .needs = { BIAS(NEED_MAYBE), [TENSOR_O_BIAS] = NEED_MAYBE, [TENSOR_SSM_IN] = NEED_YES } },
    { .arch = "nemotron_h",
        .experts = NEED_NO,
        .activation = ACTIVATION_RELU_SQR,
        .recurrent = MIXER_MAMBA2,
        .rope_period = 1,
        .splits_layers = true,
        .needs = { BIAS(NEED_MAYBE), [TENSOR_O_BIAS] = NEED_MAYBE, [TENSOR_SSM_IN] = NEED_YES,
            [TENSOR_FFN_NORM] = NEED_NO } },
    { .arch = "nemotron_h_moe",
        .experts = NEED_YES,
        .router = ROUTER_SIGMOID,
        .keeps_expert_weights = true,
        .activation = ACTIVATION_RELU_SQR,
        .has_mtp_layers = true,
        .recurrent = MIXER_MAMBA2,
        .rope_period = 1,
        .splits_layers = true,
        .needs = { BIAS(NEED_MAYBE), [TENSOR_O_BIAS] = NEED_MAYBE, [TENSOR_SSM_IN] = NEED_YES,
            [TENSOR_FFN_NORM] = NEED_NO, [TENSOR_ROUTER_BIAS] = NEED_YES,
            [TENSOR_LATENT_DOWN] = NEED_YES, [TENSOR_LATENT_UP] = NEED_YES } },
    { .arch = "olmo2",
        .is_rope_neox = true,
        .experts = NEED_NO,
        .norms_whole_qk = true,
        .window_period = 4,
        .has_plain_window_rope = true,
        .needs = { NO_PRE_NORMS, POST_NORMS, QK_NORM(NEED_YES) } },
    { .arch = "gemma2",
        .is_rope_neox = true,
        .experts = NEED_NO,
        .activation = ACTIVATION_GELU,
        .scales_embedding = true,
        .n_wide_scale_layers = 46,
        .window = 4096,
        .window_period = 2,
        .attn_soft_cap = 50,
        .logit_soft_cap = 30,
        .needs = { POST_NORMS } },
    { .arch = "gemma3",
        .is_rope_neox = true,
        .experts = NEED_NO,
        .activation = ACTIVATION_GELU,
        .scales_embedding = true,
        .n_wide_scale_layers = 62,
        .window_period = 6,
        .window_rope_base = 10000,
        .has_plain_window_rope = true,
        .needs = { POST_NORMS, QK_NORM(NEED_YES) } },
    { .arch = "gemma4",
        .is_rope_neox = true,
        .experts = NEED_MAYBE,
        .activation = ACTIVATION_GELU,
        .scales_embedding = true,
        .attn_scale = 1,
        .may_share_kv = true,
        .norms_values = true,
        .has_dense_with_experts = true,
        .window = -1,
        .window_period = -1,
        .window_rope_base = 10000,
        .has_plain_window_rope = true,
        .logit_soft_cap = 30,
        .needs = { POST_NORMS, QK_NORM(NEED_YES), LAYER_INPUTS,
            DENSE_AND_EXPERTS, [TENSOR_V] = NEED_MAYBE, [TENSOR_OUT_SCALE] = NEED_MAYBE } },
    { .arch = "gpt-oss",
        .is_rope_neox = true,
        .experts = NEED_YES,
        .router = ROUTER_SOFTMAX_CHOSEN,
        .activation = ACTIVATION_SWIGLU_OAI,
        .has_ffn_norm_after_attn = true,
        .window_period = 2,
        .needs = { BIAS(NEED_YES), FFN_NORM_AFTER_ATTN,
            EXPERT_BIAS, [TENSOR_O_BIAS] = NEED_YES, [TENSOR_SINKS] = NEED_YES } },
    { .arch = "glm4",
        .experts = NEED_NO,
        .fuses_gate_up = true,
        .needs = { BIAS(NEED_MAYBE), POST_NORMS } },
    { .arch = "glm4moe",
        .is_rope_neox = true,
        .experts = NEED_YES,
        .router = ROUTER_SIGMOID,
        .keeps_expert_weights = true,
        .has_ffn_norm_after_attn = true,
        .has_mtp_layers = true,
        .needs = { BIAS(NEED_YES), QK_NORM(NEED_MAYBE),
            FFN_NORM_AFTER_ATTN, [TENSOR_ROUTER_BIAS] = NEED_YES } },
    { .arch = "deepseek2",
        .experts = NEED_YES,
        .keeps_expert_weights = true,
        .ranks_groups_by_best = true,
        .has_mtp_layers = true,
        .has_latent_attn = true,
        .has_plain_yarn_rotation = true,
        .needs = { [TENSOR_ROUTER_BIAS] = NEED_MAYBE } },
    { .arch = "mistral4",
        .experts = NEED_YES,
        .keeps_expert_weights = true,
        .has_mtp_layers = true,
        .has_latent_attn = true,
        .needs = { [TENSOR_ROUTER_BIAS] = NEED_MAYBE } },
};

const struct family *family_find(struct str arch)
{
    for (size_t i = 0; i < ARRAY_LEN(families); i++)
        if (str_is(arch, families[i].arch))
            return &families[i];
    return NULL;
}

const struct family *family_at(size_t i)
{
    return i < ARRAY_LEN(families) ? &families[i] : NULL;
}
