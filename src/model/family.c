#include "model/family.h"

#include <stdio.h>

const struct tensor_row tensor_rows[N_TENSORS] = {
    [TENSOR_EMBD] = { "token_embd.weight", DIM_MODEL, DIM_VOCAB },
    [TENSOR_OUT_NORM] = { "output_norm.weight", DIM_MODEL },
    [TENSOR_HEAD] = { "output.weight", DIM_MODEL, DIM_VOCAB },
    [TENSOR_ROPE_FREQS] = { "rope_freqs.weight", DIM_PAIRS },
    [TENSOR_ATTN_NORM] = { "blk.%d.attn_norm.weight", DIM_MODEL },
    [TENSOR_Q] = { "blk.%d.attn_q.weight", DIM_MODEL, DIM_Q },
    [TENSOR_K] = { "blk.%d.attn_k.weight", DIM_MODEL, DIM_KV },
    [TENSOR_V] = { "blk.%d.attn_v.weight", DIM_MODEL, DIM_KV },
    [TENSOR_Q_BIAS] = { "blk.%d.attn_q.bias", DIM_Q },
    [TENSOR_K_BIAS] = { "blk.%d.attn_k.bias", DIM_KV },
    [TENSOR_V_BIAS] = { "blk.%d.attn_v.bias", DIM_KV },
    [TENSOR_Q_NORM] = { "blk.%d.attn_q_norm.weight", DIM_HEAD },
    [TENSOR_K_NORM] = { "blk.%d.attn_k_norm.weight", DIM_HEAD },
    [TENSOR_O] = { "blk.%d.attn_output.weight", DIM_Q, DIM_MODEL },
    [TENSOR_FFN_NORM] = { "blk.%d.ffn_norm.weight", DIM_MODEL },
    [TENSOR_GATE] = { "blk.%d.ffn_gate.weight", DIM_MODEL, DIM_FF },
    [TENSOR_UP] = { "blk.%d.ffn_up.weight", DIM_MODEL, DIM_FF },
    [TENSOR_DOWN] = { "blk.%d.ffn_down.weight", DIM_FF, DIM_MODEL },
    [TENSOR_ROUTER] = { "blk.%d.ffn_gate_inp.weight", DIM_MODEL, DIM_EXPERTS },
    [TENSOR_GATE_EXPERTS] = { "blk.%d.ffn_gate_exps.weight", DIM_MODEL, DIM_FF, true },
    [TENSOR_UP_EXPERTS] = { "blk.%d.ffn_up_exps.weight", DIM_MODEL, DIM_FF, true },
    [TENSOR_DOWN_EXPERTS] = { "blk.%d.ffn_down_exps.weight", DIM_FF, DIM_MODEL, true },
};

/* A tensor that a row does not list is required (NEED_YES is zero), except for the feed-forward
 * tensors, where either the dense or the expert tensors are required. Without a head tensor, the
 * head is tied to the embedding. */
#define BIAS(need)    [TENSOR_Q_BIAS] = need, [TENSOR_K_BIAS] = need, [TENSOR_V_BIAS] = need
#define QK_NORM(need) [TENSOR_Q_NORM] = need, [TENSOR_K_NORM] = need
#define COMMON        [TENSOR_HEAD] = NEED_MAYBE, [TENSOR_ROPE_FREQS] = NEED_MAYBE

static const struct family families[] = {
    { "llama", false, NEED_MAYBE, { COMMON, BIAS(NEED_MAYBE), QK_NORM(NEED_NO) } },
    { "qwen2", true, NEED_NO, { COMMON, BIAS(NEED_YES), QK_NORM(NEED_NO) } },
    { "qwen3", true, NEED_NO, { COMMON, BIAS(NEED_MAYBE), QK_NORM(NEED_YES) } },
    { "qwen3moe", true, NEED_YES, { COMMON, BIAS(NEED_MAYBE), QK_NORM(NEED_YES) } },
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
