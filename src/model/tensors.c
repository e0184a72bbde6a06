#include "model/tensors.h"

#include <stdio.h>

#define ATTENTION  (1u << MIXER_ATTENTION)
#define DELTA_NET  (1u << MIXER_DELTA_NET)
#define LATENT     (1u << MIXER_LATENT)
#define MAMBA2     (1u << MIXER_MAMBA2)
#define SHORT_CONV (1u << MIXER_SHORT_CONV)

const struct tensor_row tensor_rows[N_TENSORS] = {
    [TENSOR_EMBD] = { "token_embd.weight", DIM_MODEL, DIM_VOCAB, NEED_YES },
    [TENSOR_OUT_NORM] = { "output_norm.weight", DIM_MODEL, 0, NEED_YES },
    [TENSOR_EMBD_NORM] = { "token_embd_norm.weight", DIM_MODEL, 0, NEED_NO },
    /* without it, the head is tied to the embedding */
    [TENSOR_HEAD] = { "output.weight", DIM_MODEL, DIM_VOCAB, NEED_MAYBE, .has_scale = true },
    [TENSOR_ROPE_FREQS] = { "rope_freqs.weight", DIM_PAIRS, 0, NEED_MAYBE },
    [TENSOR_ROPE_LONG] = { "rope_factors_long.weight", DIM_PAIRS, 0, NEED_NO },
    [TENSOR_ROPE_SHORT] = { "rope_factors_short.weight", DIM_PAIRS, 0, NEED_NO },
    [TENSOR_INPUT_TABLE] = { "per_layer_token_embd.weight", DIM_INPUTS, DIM_VOCAB, NEED_NO },
    [TENSOR_INPUT_MODEL_PROJ] = { "per_layer_model_proj.weight", DIM_MODEL, DIM_INPUTS, NEED_NO,
        .has_scale = true },
    [TENSOR_INPUT_MODEL_NORM] = { "per_layer_proj_norm.weight", DIM_INPUT, 0, NEED_NO },
    [TENSOR_ATTN_NORM] = { "blk.%d.attn_norm.weight", DIM_MODEL, 0, NEED_YES },
    [TENSOR_QKV] = { "blk.%d.attn_qkv.weight", DIM_MODEL, DIM_QKV, NEED_NO, .has_scale = true },
    [TENSOR_Q] = { "blk.%d.attn_q.weight", DIM_MODEL, DIM_Q_ROWS, NEED_YES,
        .mixers = ATTENTION | LATENT, .has_scale = true },
    [TENSOR_K] = { "blk.%d.attn_k.weight", DIM_MODEL, DIM_KV, NEED_YES, .mixers = ATTENTION,
        .has_scale = true },
    [TENSOR_V] = { "blk.%d.attn_v.weight", DIM_MODEL, DIM_KV, NEED_YES, .mixers = ATTENTION,
        .has_scale = true },
    [TENSOR_Q_BIAS] = { "blk.%d.attn_q.bias", DIM_Q, 0, NEED_NO, .mixers = ATTENTION },
    [TENSOR_K_BIAS] = { "blk.%d.attn_k.bias", DIM_KV, 0, NEED_NO, .mixers = ATTENTION },
    [TENSOR_V_BIAS] = { "blk.%d.attn_v.bias", DIM_KV, 0, NEED_NO, .mixers = ATTENTION },
    [TENSOR_Q_NORM] = { "blk.%d.attn_q_norm.weight", DIM_Q_NORM, 0, NEED_NO, .mixers = ATTENTION },
    [TENSOR_K_NORM] = { "blk.%d.attn_k_norm.weight", DIM_K_NORM, 0, NEED_NO, .mixers = ATTENTION },
    [TENSOR_SINKS] = { "blk.%d.attn_sinks.weight", DIM_HEADS, 0, NEED_NO, .mixers = ATTENTION },
    [TENSOR_O_BIAS] = { "blk.%d.attn_output.bias", DIM_MODEL, 0, NEED_NO, .mixers = ATTENTION },
    [TENSOR_Q_A] = { "blk.%d.attn_q_a.weight", DIM_MODEL, DIM_Q_RANK, NEED_YES, .mixers = LATENT,
        .has_scale = true },
    [TENSOR_Q_A_NORM] = { "blk.%d.attn_q_a_norm.weight", DIM_Q_RANK, 0, NEED_YES,
        .mixers = LATENT },
    [TENSOR_Q_B] = { "blk.%d.attn_q_b.weight", DIM_Q_RANK, DIM_LATENT_Q, NEED_YES, .mixers = LATENT,
        .has_scale = true },
    [TENSOR_KV_A] = { "blk.%d.attn_kv_a_mqa.weight", DIM_MODEL, DIM_LATENT_KEY, NEED_YES,
        .mixers = LATENT, .has_scale = true },
    [TENSOR_KV_A_NORM] = { "blk.%d.attn_kv_a_norm.weight", DIM_KV_RANK, 0, NEED_YES,
        .mixers = LATENT },
    [TENSOR_K_B] = { "blk.%d.attn_k_b.weight", DIM_NOPE, DIM_KV_RANK, NEED_YES, .is_per_head = true,
        .mixers = LATENT, .has_scale = true },
    [TENSOR_V_B] = { "blk.%d.attn_v_b.weight", DIM_KV_RANK, DIM_VALUE, NEED_YES,
        .is_per_head = true, .mixers = LATENT, .has_scale = true },
    [TENSOR_KV_B] = { "blk.%d.attn_kv_b.weight", DIM_KV_RANK, DIM_KV_B, NEED_YES, .mixers = LATENT,
        .has_scale = true },
    [TENSOR_O] = { "blk.%d.attn_output.weight", DIM_MIX, DIM_MODEL, NEED_YES,
        .mixers = ATTENTION | LATENT, .has_scale = true },
    [TENSOR_MIX_GATE] = { "blk.%d.attn_gate.weight", DIM_MODEL, DIM_STATE_VALUES, NEED_YES,
        .mixers = DELTA_NET, .has_scale = true },
    [TENSOR_SSM_IN] = { "blk.%d.ssm_in.weight", DIM_MODEL, DIM_SSM_IN, NEED_NO,
        .mixers = DELTA_NET | MAMBA2, .has_scale = true },
    [TENSOR_SSM_ALPHA] = { "blk.%d.ssm_alpha.weight", DIM_MODEL, DIM_VALUE_HEADS, NEED_YES,
        .mixers = DELTA_NET, .has_scale = true },
    [TENSOR_SSM_BETA] = { "blk.%d.ssm_beta.weight", DIM_MODEL, DIM_VALUE_HEADS, NEED_YES,
        .mixers = DELTA_NET, .has_scale = true },
    [TENSOR_SSM_BETA_ALPHA] = { "blk.%d.ssm_ba.weight", DIM_MODEL, DIM_BETA_ALPHA, NEED_NO,
        .mixers = DELTA_NET, .has_scale = true },
    [TENSOR_SSM_CONV] = { "blk.%d.ssm_conv1d.weight", DIM_CONV_TAPS, DIM_CONV, NEED_YES,
        .is_table = true, .is_transposed = true, .mixers = DELTA_NET | MAMBA2 },
    [TENSOR_SSM_CONV_BIAS] = { "blk.%d.ssm_conv1d.bias", DIM_CONV, 0, NEED_MAYBE,
        .mixers = MAMBA2 },
    [TENSOR_SSM_DT_BIAS] = { "blk.%d.ssm_dt.bias", DIM_VALUE_HEADS, 0, NEED_YES,
        .mixers = DELTA_NET | MAMBA2 },
    [TENSOR_SSM_A] = { "blk.%d.ssm_a", DIM_DECAY, DIM_DECAYS, NEED_YES, .is_table = true,
        .mixers = DELTA_NET | MAMBA2 },
    [TENSOR_SSM_D] = { "blk.%d.ssm_d", DIM_SINGLE, DIM_VALUE_HEADS, NEED_YES, .is_table = true,
        .mixers = MAMBA2 },
    [TENSOR_SSM_NORM] = { "blk.%d.ssm_norm.weight", DIM_STATE_NORM, DIM_STATE_NORMS, NEED_YES,
        .is_table = true, .mixers = DELTA_NET | MAMBA2 },
    [TENSOR_SSM_OUT] = { "blk.%d.ssm_out.weight", DIM_STATE_VALUES, DIM_MODEL, NEED_YES,
        .mixers = DELTA_NET | MAMBA2, .has_scale = true },
    [TENSOR_SHORT_CONV_IN] = { "blk.%d.shortconv.in_proj.weight", DIM_MODEL, DIM_3_CONV, NEED_YES,
        .mixers = SHORT_CONV, .has_scale = true },
    [TENSOR_SHORT_CONV] = { "blk.%d.shortconv.conv.weight", DIM_CONV_TAPS, DIM_CONV, NEED_YES,
        .is_table = true, .is_transposed = true, .mixers = SHORT_CONV },
    [TENSOR_SHORT_CONV_OUT] = { "blk.%d.shortconv.out_proj.weight", DIM_CONV, DIM_MODEL, NEED_YES,
        .mixers = SHORT_CONV, .has_scale = true },
    [TENSOR_POST_ATTN_NORM] = { "blk.%d.post_attention_norm.weight", DIM_MODEL, 0, NEED_NO },
    [TENSOR_FFN_NORM] = { "blk.%d.ffn_norm.weight", DIM_MODEL, 0, NEED_YES },
    [TENSOR_POST_FFN_NORM] = { "blk.%d.post_ffw_norm.weight", DIM_MODEL, 0, NEED_NO },
    [TENSOR_INPUT_GATE] = { "blk.%d.inp_gate.weight", DIM_MODEL, DIM_INPUT, NEED_NO,
        .has_scale = true },
    [TENSOR_INPUT_PROJ] = { "blk.%d.proj.weight", DIM_INPUT, DIM_MODEL, NEED_NO,
        .has_scale = true },
    [TENSOR_INPUT_NORM] = { "blk.%d.post_norm.weight", DIM_MODEL, 0, NEED_NO },
    [TENSOR_OUT_SCALE] = { "blk.%d.layer_output_scale.weight", DIM_SINGLE, 0, NEED_NO },
    [TENSOR_GATE] = { "blk.%d.ffn_gate.weight", DIM_MODEL, DIM_FF, NEED_YES, .has_scale = true },
    [TENSOR_UP] = { "blk.%d.ffn_up.weight", DIM_MODEL, DIM_FF_UP, NEED_YES, .has_scale = true },
    [TENSOR_DOWN] = { "blk.%d.ffn_down.weight", DIM_FF, DIM_MODEL, NEED_YES, .has_scale = true },
    [TENSOR_ROUTER] = { "blk.%d.ffn_gate_inp.weight", DIM_MODEL, DIM_EXPERTS, NEED_YES },
    [TENSOR_ROUTER_SCORE_BIAS] = { "blk.%d.ffn_gate_inp.bias", DIM_EXPERTS, 0, NEED_NO },
    [TENSOR_ROUTER_BIAS] = { "blk.%d.exp_probs_b.bias", DIM_EXPERTS, 0, NEED_NO },
    /* instead of the next two */
    [TENSOR_GATE_UP_EXPERTS] = { "blk.%d.ffn_gate_up_exps.weight", DIM_EXPERT, DIM_FF_EXPERT_UP,
        NEED_MAYBE, true, .has_scale = true },
    [TENSOR_GATE_EXPERTS] = { "blk.%d.ffn_gate_exps.weight", DIM_EXPERT, DIM_FF_EXPERT, NEED_YES,
        true, .has_scale = true },
    [TENSOR_UP_EXPERTS] = { "blk.%d.ffn_up_exps.weight", DIM_EXPERT, DIM_FF_EXPERT, NEED_YES, true,
        .has_scale = true },
    [TENSOR_DOWN_EXPERTS] = { "blk.%d.ffn_down_exps.weight", DIM_FF_EXPERT, DIM_EXPERT, NEED_YES,
        true, .has_scale = true },
    [TENSOR_GATE_EXPERTS_BIAS] = { "blk.%d.ffn_gate_exps.bias", DIM_FF_EXPERT, DIM_EXPERTS, NEED_NO,
        .is_table = true },
    [TENSOR_UP_EXPERTS_BIAS] = { "blk.%d.ffn_up_exps.bias", DIM_FF_EXPERT, DIM_EXPERTS, NEED_NO,
        .is_table = true },
    [TENSOR_DOWN_EXPERTS_BIAS] = { "blk.%d.ffn_down_exps.bias", DIM_EXPERT, DIM_EXPERTS, NEED_NO,
        .is_table = true },
    [TENSOR_DOWN_EXPERTS_SCALE] = { "blk.%d.ffn_down_exps.scale", DIM_EXPERTS, 0, NEED_NO },
    [TENSOR_ROUTER_NORM] = { "blk.%d.ffn_gate_inp.scale", DIM_MODEL, 0, NEED_NO },
    [TENSOR_EXPERT_NORM] = { "blk.%d.pre_ffw_norm_2.weight", DIM_MODEL, 0, NEED_NO },
    [TENSOR_POST_EXPERT_NORM] = { "blk.%d.post_ffw_norm_2.weight", DIM_MODEL, 0, NEED_NO },
    [TENSOR_POST_DENSE_NORM] = { "blk.%d.post_ffw_norm_1.weight", DIM_MODEL, 0, NEED_NO },
    [TENSOR_LATENT_DOWN] = { "blk.%d.ffn_latent_down.weight", DIM_MODEL, DIM_EXPERT, NEED_NO,
        .has_scale = true },
    [TENSOR_LATENT_UP] = { "blk.%d.ffn_latent_up.weight", DIM_EXPERT, DIM_MODEL, NEED_NO,
        .has_scale = true },
    [TENSOR_SHARED_GATE] = { "blk.%d.ffn_gate_shexp.weight", DIM_MODEL, DIM_FF_SHARED, NEED_YES,
        .has_scale = true },
    [TENSOR_SHARED_UP] = { "blk.%d.ffn_up_shexp.weight", DIM_MODEL, DIM_FF_SHARED, NEED_YES,
        .has_scale = true },
    [TENSOR_SHARED_DOWN] = { "blk.%d.ffn_down_shexp.weight", DIM_FF_SHARED, DIM_MODEL, NEED_YES,
        .has_scale = true },
    [TENSOR_SHARED_ROUTER] = { "blk.%d.ffn_gate_inp_shexp.weight", DIM_MODEL, DIM_SINGLE, NEED_NO },
};

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

bool tensor_parse_scale(struct str name, enum tensor *id, int *layer, bool *is_of_input)
{
    static const struct str ends[] = { { ".scale", 6 }, { ".input_scale", 12 } };
    char weight[64];

    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        if (!str_ends(name, ends[i]) || name.n > sizeof(weight) - sizeof(".weight"))
            continue;
        int n = snprintf(weight, sizeof(weight), "%.*s.weight", (int)(name.n - ends[i].n), name.p);
        *is_of_input = i > 0;
        if (tensor_parse((struct str){ weight, (size_t)n }, id, layer))
            return tensor_rows[*id].has_scale;
    }
    return false;
}
