#include "model/family.h"

#include <stdio.h>

#define ATTENTION  (1u << MIXER_ATTENTION)
#define DELTA_NET  (1u << MIXER_DELTA_NET)
#define LATENT     (1u << MIXER_LATENT)
#define SHORT_CONV (1u << MIXER_SHORT_CONV)

const struct tensor_row tensor_rows[N_TENSORS] = {
    [TENSOR_EMBD] = { "token_embd.weight", DIM_MODEL, DIM_VOCAB, NEED_YES },
    [TENSOR_OUT_NORM] = { "output_norm.weight", DIM_MODEL, 0, NEED_YES },
    [TENSOR_EMBD_NORM] = { "token_embd_norm.weight", DIM_MODEL, 0, NEED_NO },
    /* without it, the head is tied to the embedding */
    [TENSOR_HEAD] = { "output.weight", DIM_MODEL, DIM_VOCAB, NEED_MAYBE },
    [TENSOR_ROPE_FREQS] = { "rope_freqs.weight", DIM_PAIRS, 0, NEED_MAYBE },
    [TENSOR_ROPE_LONG] = { "rope_factors_long.weight", DIM_PAIRS, 0, NEED_NO },
    [TENSOR_ROPE_SHORT] = { "rope_factors_short.weight", DIM_PAIRS, 0, NEED_NO },
    [TENSOR_INPUT_TABLE] = { "per_layer_token_embd.weight", DIM_INPUTS, DIM_VOCAB, NEED_NO },
    [TENSOR_INPUT_MODEL_PROJ] = { "per_layer_model_proj.weight", DIM_MODEL, DIM_INPUTS, NEED_NO },
    [TENSOR_INPUT_MODEL_NORM] = { "per_layer_proj_norm.weight", DIM_INPUT, 0, NEED_NO },
    [TENSOR_ATTN_NORM] = { "blk.%d.attn_norm.weight", DIM_MODEL, 0, NEED_YES },
    [TENSOR_QKV] = { "blk.%d.attn_qkv.weight", DIM_MODEL, DIM_QKV, NEED_NO },
    [TENSOR_Q] = { "blk.%d.attn_q.weight", DIM_MODEL, DIM_Q_ROWS, NEED_YES,
        .mixers = ATTENTION | LATENT },
    [TENSOR_K] = { "blk.%d.attn_k.weight", DIM_MODEL, DIM_KV, NEED_YES, .mixers = ATTENTION },
    [TENSOR_V] = { "blk.%d.attn_v.weight", DIM_MODEL, DIM_KV, NEED_YES, .mixers = ATTENTION },
    [TENSOR_Q_BIAS] = { "blk.%d.attn_q.bias", DIM_Q, 0, NEED_NO, .mixers = ATTENTION },
    [TENSOR_K_BIAS] = { "blk.%d.attn_k.bias", DIM_KV, 0, NEED_NO, .mixers = ATTENTION },
    [TENSOR_V_BIAS] = { "blk.%d.attn_v.bias", DIM_KV, 0, NEED_NO, .mixers = ATTENTION },
    [TENSOR_Q_NORM] = { "blk.%d.attn_q_norm.weight", DIM_Q_NORM, 0, NEED_NO, .mixers = ATTENTION },
    [TENSOR_K_NORM] = { "blk.%d.attn_k_norm.weight", DIM_K_NORM, 0, NEED_NO, .mixers = ATTENTION },
    [TENSOR_SINKS] = { "blk.%d.attn_sinks.weight", DIM_HEADS, 0, NEED_NO, .mixers = ATTENTION },
    [TENSOR_O_BIAS] = { "blk.%d.attn_output.bias", DIM_MODEL, 0, NEED_NO, .mixers = ATTENTION },
    [TENSOR_Q_A] = { "blk.%d.attn_q_a.weight", DIM_MODEL, DIM_Q_RANK, NEED_YES, .mixers = LATENT },
    [TENSOR_Q_A_NORM] = { "blk.%d.attn_q_a_norm.weight", DIM_Q_RANK, 0, NEED_YES,
        .mixers = LATENT },
    [TENSOR_Q_B] = { "blk.%d.attn_q_b.weight", DIM_Q_RANK, DIM_LATENT_Q, NEED_YES,
        .mixers = LATENT },
    [TENSOR_KV_A] = { "blk.%d.attn_kv_a_mqa.weight", DIM_MODEL, DIM_LATENT_KEY, NEED_YES,
        .mixers = LATENT },
    [TENSOR_KV_A_NORM] = { "blk.%d.attn_kv_a_norm.weight", DIM_KV_RANK, 0, NEED_YES,
        .mixers = LATENT },
    [TENSOR_K_B] = { "blk.%d.attn_k_b.weight", DIM_NOPE, DIM_KV_RANK, NEED_YES, .is_per_head = true,
        .mixers = LATENT },
    [TENSOR_V_B] = { "blk.%d.attn_v_b.weight", DIM_KV_RANK, DIM_VALUE, NEED_YES,
        .is_per_head = true, .mixers = LATENT },
    [TENSOR_KV_B] = { "blk.%d.attn_kv_b.weight", DIM_KV_RANK, DIM_KV_B, NEED_YES,
        .mixers = LATENT },
    [TENSOR_O] = { "blk.%d.attn_output.weight", DIM_MIX, DIM_MODEL, NEED_YES,
        .mixers = ATTENTION | LATENT },
    [TENSOR_MIX_GATE] = { "blk.%d.attn_gate.weight", DIM_MODEL, DIM_STATE_VALUES, NEED_YES,
        .mixers = DELTA_NET },
    [TENSOR_SSM_IN] = { "blk.%d.ssm_in.weight", DIM_MODEL, DIM_SSM_IN, NEED_NO,
        .mixers = DELTA_NET },
    [TENSOR_SSM_ALPHA] = { "blk.%d.ssm_alpha.weight", DIM_MODEL, DIM_VALUE_HEADS, NEED_YES,
        .mixers = DELTA_NET },
    [TENSOR_SSM_BETA] = { "blk.%d.ssm_beta.weight", DIM_MODEL, DIM_VALUE_HEADS, NEED_YES,
        .mixers = DELTA_NET },
    [TENSOR_SSM_BETA_ALPHA] = { "blk.%d.ssm_ba.weight", DIM_MODEL, DIM_BETA_ALPHA, NEED_NO,
        .mixers = DELTA_NET },
    [TENSOR_SSM_CONV] = { "blk.%d.ssm_conv1d.weight", DIM_CONV_TAPS, DIM_CONV, NEED_YES,
        .is_table = true, .is_transposed = true, .mixers = DELTA_NET },
    [TENSOR_SSM_DT_BIAS] = { "blk.%d.ssm_dt.bias", DIM_VALUE_HEADS, 0, NEED_YES,
        .mixers = DELTA_NET },
    [TENSOR_SSM_A] = { "blk.%d.ssm_a", DIM_VALUE_HEADS, 0, NEED_YES, .mixers = DELTA_NET },
    [TENSOR_SSM_NORM] = { "blk.%d.ssm_norm.weight", DIM_STATE_VALUE, 0, NEED_YES,
        .mixers = DELTA_NET },
    [TENSOR_SSM_OUT] = { "blk.%d.ssm_out.weight", DIM_STATE_VALUES, DIM_MODEL, NEED_YES,
        .mixers = DELTA_NET },
    [TENSOR_SHORT_CONV_IN] = { "blk.%d.shortconv.in_proj.weight", DIM_MODEL, DIM_3_CONV, NEED_YES,
        .mixers = SHORT_CONV },
    [TENSOR_SHORT_CONV] = { "blk.%d.shortconv.conv.weight", DIM_CONV_TAPS, DIM_CONV, NEED_YES,
        .is_table = true, .is_transposed = true, .mixers = SHORT_CONV },
    [TENSOR_SHORT_CONV_OUT] = { "blk.%d.shortconv.out_proj.weight", DIM_CONV, DIM_MODEL, NEED_YES,
        .mixers = SHORT_CONV },
    [TENSOR_POST_ATTN_NORM] = { "blk.%d.post_attention_norm.weight", DIM_MODEL, 0, NEED_NO },
    [TENSOR_FFN_NORM] = { "blk.%d.ffn_norm.weight", DIM_MODEL, 0, NEED_YES },
    [TENSOR_POST_FFN_NORM] = { "blk.%d.post_ffw_norm.weight", DIM_MODEL, 0, NEED_NO },
    [TENSOR_INPUT_GATE] = { "blk.%d.inp_gate.weight", DIM_MODEL, DIM_INPUT, NEED_NO },
    [TENSOR_INPUT_PROJ] = { "blk.%d.proj.weight", DIM_INPUT, DIM_MODEL, NEED_NO },
    [TENSOR_INPUT_NORM] = { "blk.%d.post_norm.weight", DIM_MODEL, 0, NEED_NO },
    [TENSOR_OUT_SCALE] = { "blk.%d.layer_output_scale.weight", DIM_SINGLE, 0, NEED_NO },
    [TENSOR_GATE] = { "blk.%d.ffn_gate.weight", DIM_MODEL, DIM_FF, NEED_YES },
    [TENSOR_UP] = { "blk.%d.ffn_up.weight", DIM_MODEL, DIM_FF_UP, NEED_YES },
    [TENSOR_DOWN] = { "blk.%d.ffn_down.weight", DIM_FF, DIM_MODEL, NEED_YES },
    [TENSOR_ROUTER] = { "blk.%d.ffn_gate_inp.weight", DIM_MODEL, DIM_EXPERTS, NEED_YES },
    [TENSOR_ROUTER_SCORE_BIAS] = { "blk.%d.ffn_gate_inp.bias", DIM_EXPERTS, 0, NEED_NO },
    [TENSOR_ROUTER_BIAS] = { "blk.%d.exp_probs_b.bias", DIM_EXPERTS, 0, NEED_NO },
    /* instead of the next two */
    [TENSOR_GATE_UP_EXPERTS] = { "blk.%d.ffn_gate_up_exps.weight", DIM_MODEL, DIM_FF_EXPERT_UP,
        NEED_MAYBE, true },
    [TENSOR_GATE_EXPERTS] = { "blk.%d.ffn_gate_exps.weight", DIM_MODEL, DIM_FF_EXPERT, NEED_YES,
        true },
    [TENSOR_UP_EXPERTS] = { "blk.%d.ffn_up_exps.weight", DIM_MODEL, DIM_FF_EXPERT, NEED_YES, true },
    [TENSOR_DOWN_EXPERTS] = { "blk.%d.ffn_down_exps.weight", DIM_FF_EXPERT, DIM_MODEL, NEED_YES,
        true },
    [TENSOR_GATE_EXPERTS_BIAS] = { "blk.%d.ffn_gate_exps.bias", DIM_FF_EXPERT, DIM_EXPERTS, NEED_NO,
        .is_table = true },
    [TENSOR_UP_EXPERTS_BIAS] = { "blk.%d.ffn_up_exps.bias", DIM_FF_EXPERT, DIM_EXPERTS, NEED_NO,
        .is_table = true },
    [TENSOR_DOWN_EXPERTS_BIAS] = { "blk.%d.ffn_down_exps.bias", DIM_MODEL, DIM_EXPERTS, NEED_NO,
        .is_table = true },
    [TENSOR_DOWN_EXPERTS_SCALE] = { "blk.%d.ffn_down_exps.scale", DIM_EXPERTS, 0, NEED_NO },
    [TENSOR_ROUTER_NORM] = { "blk.%d.ffn_gate_inp.scale", DIM_MODEL, 0, NEED_NO },
    [TENSOR_EXPERT_NORM] = { "blk.%d.pre_ffw_norm_2.weight", DIM_MODEL, 0, NEED_NO },
    [TENSOR_POST_EXPERT_NORM] = { "blk.%d.post_ffw_norm_2.weight", DIM_MODEL, 0, NEED_NO },
    [TENSOR_POST_DENSE_NORM] = { "blk.%d.post_ffw_norm_1.weight", DIM_MODEL, 0, NEED_NO },
    [TENSOR_SHARED_GATE] = { "blk.%d.ffn_gate_shexp.weight", DIM_MODEL, DIM_FF_SHARED, NEED_YES },
    [TENSOR_SHARED_UP] = { "blk.%d.ffn_up_shexp.weight", DIM_MODEL, DIM_FF_SHARED, NEED_YES },
    [TENSOR_SHARED_DOWN] = { "blk.%d.ffn_down_shexp.weight", DIM_FF_SHARED, DIM_MODEL, NEED_YES },
    [TENSOR_SHARED_ROUTER] = { "blk.%d.ffn_gate_inp_shexp.weight", DIM_MODEL, DIM_SINGLE, NEED_NO },
};

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

/* "blk.17.attn_q.weight" -> 17 and ".attn_q.weight"; no sign, no leading zero, at most 4 digits. */
static bool split_layer(struct str *name, int *layer)
{
    struct str s = *name;
    if (!str_starts(s, STR("blk.")))
        return false;
    s = str_skip(s, 4);

    size_t n = 0;
    int v = 0;
    while (n < s.n && n < 4 && s.p[n] >= '0' && s.p[n] <= '9')
        v = v * 10 + (s.p[n++] - '0');
    if (n == 0 || (n > 1 && s.p[0] == '0'))
        return false;
    *layer = v;
    *name = str_skip(s, n);
    return true;
}

int tensor_layer(struct str name)
{
    int layer;

    return split_layer(&name, &layer) ? layer : -1;
}

bool tensor_parse(struct str name, enum tensor *id, int *layer)
{
    int found = 0;
    bool is_layer = split_layer(&name, &found);

    for (int t = 0; t < N_TENSORS; t++) {
        const char *want = tensor_rows[t].name;
        if (is_layer != (t >= TENSOR_FIRST_OF_LAYER))
            continue;
        if (is_layer)
            want += sizeof("blk.%d") - 1;
        if (!str_is(name, want))
            continue;
        *id = (enum tensor)t;
        *layer = found;
        return true;
    }
    return false;
}
