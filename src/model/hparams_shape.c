/* hparams_shape.c: the tensors of a layer and their dimensions as functions of the
 * hyper-parameters, which hparams.c reads. */
#include "model/hparams.h"

bool hparams_has_experts(const struct hparams *h, int layer)
{
    return h->n_experts > 0 && layer >= h->n_dense_layers && h->layers[layer].has_ffn;
}

/* Whether a file with latent attention has the tensor. */
static bool latent_attn_has(const struct latent_params *p, enum tensor t)
{
    switch ((int)t) {
    case TENSOR_Q:
        return p->q_rank == 0;
    case TENSOR_Q_A:
    case TENSOR_Q_A_NORM:
    case TENSOR_Q_B:
        return p->q_rank > 0;
    case TENSOR_K_B:
    case TENSOR_V_B:
        return !p->has_kv_b;
    case TENSOR_KV_B:
        return p->has_kv_b;
    default:
        return true;
    }
}

bool hparams_has_kv(const struct hparams *h, int layer)
{
    return h->layers[layer].kv_layer == layer;
}

static bool is_gate(enum tensor t)
{
    return t == TENSOR_GATE || t == TENSOR_GATE_EXPERTS || t == TENSOR_GATE_UP_EXPERTS ||
           t == TENSOR_SHARED_GATE;
}

/* Whether a layer of this kind of network, dense or with experts, has the tensor. */
static bool network_has(const struct hparams *h, enum tensor t, int layer)
{
    const bool has_experts = hparams_has_experts(h, layer);

    if (t >= TENSOR_GATE && !h->layers[layer].has_ffn)
        return false;
    if (is_gate(t) && !family_has_gate(h->family))
        return false;
    if (t == TENSOR_LATENT_DOWN || t == TENSOR_LATENT_UP)
        return has_experts && h->d_latent > 0;
    if (t >= TENSOR_SHARED_GATE)
        return has_experts && h->d_ff_shared > 0 && !h->family->has_dense_with_experts;
    if (t >= TENSOR_ROUTER)
        return has_experts;
    if (t == TENSOR_GATE && h->family->fuses_gate_up)
        return false;
    return t < TENSOR_GATE || !has_experts || h->family->has_dense_with_experts;
}

static bool is_layer_input(enum tensor t)
{
    return (t >= TENSOR_INPUT_GATE && t <= TENSOR_INPUT_NORM) ||
           (t >= TENSOR_INPUT_TABLE && t <= TENSOR_INPUT_MODEL_NORM);
}

static bool mixer_has(const struct hparams *h, enum tensor t, int layer)
{
    const enum mixer mixer = h->layers[layer].mixer;

    if (t >= TENSOR_FIRST_OF_LAYER && tensor_rows[t].mixers &&
        !(tensor_rows[t].mixers >> mixer & 1))
        return false;
    if (h->family->has_latent_attn && !latent_attn_has(&h->latent, t))
        return false;
    /* in other families it has the rows of Q, K and V of an attention layer */
    return t != TENSOR_QKV || h->family->recurrent == mixer;
}

enum need hparams_need(const struct hparams *h, enum tensor t, int layer)
{
    enum need need = h->family->needs[t] ? h->family->needs[t] : tensor_rows[t].need;
    const bool is_kv = t == TENSOR_K || t == TENSOR_V || t == TENSOR_K_BIAS || t == TENSOR_V_BIAS ||
                       t == TENSOR_K_NORM;

    if (is_kv && need != NEED_NO && !hparams_has_kv(h, layer))
        return NEED_UNUSED;
    if ((is_layer_input(t) && h->d_input == 0) || !network_has(h, t, layer) ||
        !mixer_has(h, t, layer))
        return NEED_NO;
    return need;
}

static int recurrent_dim(const struct hparams *h, enum dim d)
{
    const struct recurrent_params *p = &h->recurrent;
    const bool is_mamba2 = h->family->recurrent == MIXER_MAMBA2;
    const int keys = p->n_key_heads * p->key_dim, values = p->n_value_heads * p->value_dim;

    switch ((int)d) {
    case DIM_CONV:
        return p->n_channels;
    case DIM_3_CONV:
        return 3 * p->n_channels;
    case DIM_CONV_TAPS:
        return p->n_taps;
    case DIM_STATE_VALUES:
        return values;
    case DIM_STATE_NORM:
        return is_mamba2 ? values / p->n_key_heads : p->value_dim;
    case DIM_STATE_NORMS:
        return is_mamba2 ? p->n_key_heads : 1;
    case DIM_VALUE_HEADS:
        return p->n_value_heads;
    case DIM_DECAY:
        return is_mamba2 ? 1 : p->n_value_heads;
    case DIM_DECAYS:
        return is_mamba2 ? p->n_value_heads : 1;
    case DIM_BETA_ALPHA:
        return 2 * p->n_value_heads;
    case DIM_SSM_IN:
        return 2 * keys + 2 * values + (is_mamba2 ? p->n_value_heads : 0);
    default:
        CHECK(!"dim");
        return 0;
    }
}

/* Dimensions of latent attention with n_heads query heads. */
static int latent_dim(const struct hparams *h, enum dim d, int n_heads)
{
    const struct latent_params *p = &h->latent;
    const int dims[N_DIMS] = { [DIM_Q_RANK] = p->q_rank,
        [DIM_KV_RANK] = p->kv_rank,
        [DIM_LATENT_Q] = n_heads * (p->nope_dim + h->rope.n_rot),
        [DIM_LATENT_KEY] = p->kv_rank + h->rope.n_rot,
        [DIM_NOPE] = p->nope_dim,
        [DIM_VALUE] = p->value_dim,
        [DIM_KV_B] = n_heads * (p->nope_dim + p->value_dim) };

    return dims[d];
}

/* Rows of attn_q. */
static int q_rows(const struct hparams *h, const struct layer_params *p)
{
    if (p->mixer == MIXER_LATENT)
        return latent_dim(h, DIM_LATENT_Q, p->n_heads);
    return (h->family->gates_attention ? 2 : 1) * p->n_heads * p->head_dim;
}

/* Output of a layer's mixer, before Wo. */
static int mix_dim(const struct hparams *h, const struct layer_params *p)
{
    switch (p->mixer) {
    case MIXER_LATENT:
        return p->n_heads * h->latent.value_dim;
    case MIXER_DELTA_NET:
    case MIXER_MAMBA2:
        return recurrent_dim(h, DIM_STATE_VALUES);
    case MIXER_SHORT_CONV:
        return h->recurrent.n_channels;
    default:
        return p->n_heads * p->head_dim;
    }
}

/* Dimensions of the attention of a layer. */
static int attn_dim(const struct hparams *h, enum dim d, const struct layer_params *p)
{
    const int q = p->n_heads * p->head_dim, kv = p->n_kv_heads * p->head_dim;

    switch ((int)d) {
    case DIM_Q:
        return q;
    case DIM_Q_ROWS:
        return q_rows(h, p);
    case DIM_KV:
        return kv;
    case DIM_HEADS:
        return p->n_heads;
    case DIM_QKV:
        return p->mixer == MIXER_ATTENTION ? q + 2 * kv : recurrent_dim(h, DIM_CONV);
    case DIM_Q_NORM:
        return h->family->norms_whole_qk ? q : p->head_dim;
    case DIM_K_NORM:
        return h->family->norms_whole_qk ? kv : p->head_dim;
    default:
        return recurrent_dim(h, d);
    }
}

int hparams_dim(const struct hparams *h, enum dim d, int layer)
{
    const struct layer_params *p = &h->layers[layer];

    if (d >= DIM_Q_RANK)
        return latent_dim(h, d, p->n_heads);
    switch (d) {
    case DIM_ONE:
    case DIM_SINGLE:
        return 1;
    case DIM_MODEL:
        return h->d_model;
    case DIM_MIX:
        return mix_dim(h, p);
    case DIM_FF:
        return p->d_ff;
    case DIM_FF_UP:
        return h->family->fuses_gate_up ? 2 * p->d_ff : p->d_ff;
    case DIM_FF_EXPERT:
        return h->d_ff_expert;
    case DIM_FF_EXPERT_UP:
        return 2 * h->d_ff_expert;
    case DIM_INPUT:
        return h->d_input;
    case DIM_INPUTS:
        return h->d_input * h->n_layers;
    case DIM_EXPERT:
        return h->d_latent ? h->d_latent : h->d_model;
    case DIM_FF_SHARED:
        return h->d_ff_shared;
    case DIM_VOCAB:
        return h->n_vocab;
    case DIM_PAIRS:
        return h->rope.n_rot / 2;
    case DIM_EXPERTS:
        return h->n_experts;
    default:
        return attn_dim(h, d, p);
    }
}

int hparams_max_dim(const struct hparams *h, enum dim d)
{
    int most = 0;

    for (int i = 0; i < h->n_layers; i++)
        most = MAX(most, hparams_dim(h, d, i));
    return most;
}
