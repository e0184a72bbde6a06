/* ref_attn.c: definition of attention over KV pages; attn.h documents the layout.
 *
 * Positions are absolute. A score is one fma chain over d from 0, multiplied by the scale. Keys are
 * processed in blocks of KV_BLOCK with an online softmax: if the running maximum changes, the
 * previous sums are multiplied by exp(old - new). The weights exp(score - max) are added to 16
 * lanes by position; the lanes are reduced 8, 4, 2, 1, and the result is added to the running sum.
 * Each output is one fma chain over positions. Every KV_SPLIT keys a new state starts, and the
 * splits are merged in order. No step depends on page boundaries. A soft cap c changes a score s to
 * 2c / -(exp(2s / c) + 1) + c. A sink is merged like a last split with the maximum sink and the sum
 * 1. With a window, the first block is the one in which the window begins; the scores before the
 * window are -inf.
 *
 * Latent attention (kv_layout.is_latent): the value of a token is the beginning of its key. A
 * 16-bit score is 16 fma chains, element d in lane d % 16; the lanes are reduced 8, 4, 2, 1, and
 * the sum is multiplied by the scale.
 *
 * q8_0: the query is quantised like activations, and a score is the GEMM result for a Q8_0 weight
 * row (an exact dot product per 32 elements), multiplied by the scale. The weights of a key block,
 * multiplied by the scales of the values, are converted to integers up to KV_Q8_MAX_WEIGHT with one
 * factor per 32 dimensions. The exact integer sum over the block is added to an output with one
 * fma. */
#include "kernel/acts.h"
#include "kernel/blocks.h"
#include "base/half.h"
#include "kernel/numerics.h"
#include "kernel/ref/ref.h"

#include <math.h>

/* tokens in the layout of a page */
enum { LAYOUT_TOKENS = ((int)PAGE_TOKENS + KV_GROUP - 1) / KV_GROUP * KV_GROUP };

/* Position of element d of a token, in elements. */
static size_t k_index(const struct kv_layout *l, int token, int d)
{
    size_t groups = (size_t)(l->head_dim + 31) / 32;

    if (l->is_latent)
        return (size_t)token * (size_t)l->head_dim + (size_t)d;
    return ((size_t)(token / 16) * groups + (size_t)(d / 32)) * 512 +
           (size_t)(d % 32 / 2 * 32 + token % 16 * 2 + d % 2);
}

static size_t v_index(int token, int d)
{
    size_t pairs = LAYOUT_TOKENS / 2;

    return ((size_t)(d / 16) * pairs + (size_t)(token / 2)) * 32 + (size_t)(d % 16 * 2 + token % 2);
}

static uint16_t narrow(enum kv_type type, float v)
{
    return type == KV_F16 ? f32_to_f16(v) : f32_to_bf16(v);
}

static float widen(enum kv_type type, uint16_t h)
{
    return type == KV_F16 ? f16_to_f32(h) : bf16_to_f32(h);
}

static int n_blocks(int dim)
{
    return (dim + Q8_0_BLOCK - 1) / Q8_0_BLOCK;
}

/* Quantises one head to q8_0; the last block is padded with zeros. */
static void quantise_head(const float *x, int dim, struct act_q8_0 *out)
{
    float block[Q8_0_BLOCK];

    for (int d = 0; d < dim; d += Q8_0_BLOCK) {
        memset(block, 0, sizeof(block));
        memcpy(block, x + d, (size_t)MIN(Q8_0_BLOCK, dim - d) * sizeof(float));
        kernels_ref.q8_0(block, Q8_0_BLOCK, out++);
    }
}

static void append_q8_0(const struct kv_slot *slot, const float *k, const float *v)
{
    const struct kv_layout *l = slot->layout;
    int n = n_blocks(l->head_dim), token = slot->token;
    struct p16_q8_0 *kp = (struct p16_q8_0 *)(void *)slot->k + token / KV_GROUP * n;
    int8_t *vp = (int8_t *)slot->v;
    uint16_t *scales = (uint16_t *)(void *)(slot->v + l->v_scales);
    struct act_q8_0 key[KV_MAX_DIM / Q8_0_BLOCK], value[KV_MAX_DIM / Q8_0_BLOCK];

    quantise_head(k, l->head_dim, key);
    for (int b = 0; b < n; b++) {
        kp[b].d[token % KV_GROUP] = f32_to_f16(key[b].d);
        for (int j = 0; j < Q8_0_BLOCK; j++)
            kp[b].q[j / 4][token % KV_GROUP][j % 4] = (uint8_t)(key[b].q[j] + 128);
    }
    if (l->is_latent)
        return;
    quantise_head(v, l->value_dim, value);
    for (int b = 0; b < n_blocks(l->value_dim); b++)
        scales[b * LAYOUT_TOKENS + token] = f32_to_f16(value[b].d);
    for (int d = 0; d < l->value_dim; d++)
        vp[v_index(token, d)] = value[d / Q8_0_BLOCK].q[d % Q8_0_BLOCK];
}

void ref_kv_append(const struct kv_slot *slot, const float *k, const float *v)
{
    const struct kv_layout *l = slot->layout;
    if (l->type == KV_Q8_0) {
        append_q8_0(slot, k, v);
        return;
    }
    uint16_t *kp = (uint16_t *)(void *)slot->k, *vp = (uint16_t *)(void *)slot->v;

    for (int d = 0; d < l->head_dim; d++)
        kp[k_index(l, slot->token, d)] = narrow(l->type, k[d]);
    for (int d = 0; !l->is_latent && d < l->value_dim; d++)
        vp[v_index(slot->token, d)] = narrow(l->type, v[d]);
}

static const uint8_t *kv_block_of(const struct attn_args *a, int pos)
{
    const struct kv_layout *l = a->layout;
    const uint8_t *page = a->arena + a->pages[pos / PAGE_TOKENS].i * l->page_bytes;

    return page + l->offset + (size_t)a->kv_head * (l->k_bytes + l->v_bytes);
}

static const uint16_t *k_of(const struct attn_args *a, int pos)
{
    return (const uint16_t *)(const void *)kv_block_of(a, pos);
}

static const uint8_t *v_of(const struct attn_args *a, int pos)
{
    return kv_block_of(a, pos) + a->layout->k_bytes;
}

/* The blocks of the 16 keys with the key of a position. */
static const struct p16_q8_0 *q8_keys_of(const struct attn_args *a, int pos)
{
    return (const struct p16_q8_0 *)(const void *)kv_block_of(a, pos) +
           pos % PAGE_TOKENS / KV_GROUP * n_blocks(a->layout->head_dim);
}

static float score_q8_0(const struct attn_args *a, const struct act_q8_0 *q, int pos)
{
    int n = n_blocks(a->layout->head_dim), row = pos % PAGE_TOKENS % KV_GROUP;
    const struct p16_q8_0 *k = q8_keys_of(a, pos);
    float acc = 0;

    for (int b = 0; b < n; b++) {
        int32_t sum = 0;
        for (int j = 0; j < Q8_0_BLOCK; j++)
            sum += (k[b].q[j / 4][row][j % 4] - 128) * q[b].q[j];
        acc = fmaf(f16_to_f32(k[b].d[row]) * q[b].d, (float)sum, acc);
    }
    return acc * a->scale;
}

static float sum_lanes(float lane[LANES])
{
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

static float score_16bit(const struct attn_args *a, const float *q, int pos)
{
    const struct kv_layout *l = a->layout;
    const uint16_t *k = k_of(a, pos);
    float lane[LANES] = { 0 };

    for (int d = 0; d < l->head_dim; d++) {
        float *dot = &lane[l->is_latent ? d % LANES : 0];
        *dot = fmaf(q[d], widen(l->type, k[k_index(l, pos % PAGE_TOKENS, d)]), *dot);
    }
    return (l->is_latent ? sum_lanes(lane) : lane[0]) * a->scale;
}

static float sum_by_position(const float *w, int from, int to)
{
    float lane[LANES] = { 0 };

    for (int pos = from; pos < to; pos++)
        lane[pos % LANES] += w[pos - from];
    return sum_lanes(lane);
}

/* Element d of the 16-bit value of a position. */
static float value_16bit(const struct attn_args *a, int pos, int d)
{
    const struct kv_layout *l = a->layout;
    const uint16_t *v = (const uint16_t *)(const void *)v_of(a, pos);

    if (l->is_latent)
        return widen(l->type, k_of(a, pos)[k_index(l, pos % PAGE_TOKENS, d)]);
    return widen(l->type, v[v_index(pos % PAGE_TOKENS, d)]);
}

/* Adds the weighted values of keys [from, to) to out, in one chain over positions. */
static void add_values_16bit(
    const struct attn_args *a, const float *w, int from, int to, float *out)
{
    for (int pos = from; pos < to; pos++)
        for (int d = 0; d < a->layout->value_dim; d++)
            out[d] = fmaf(w[pos - from], value_16bit(a, pos, d), out[d]);
}

/* Rounds and clamps like acts.h, but to 16 bits. */
static int32_t to_int16(float v)
{
    v = v > -KV_Q8_MAX_WEIGHT ? v : -KV_Q8_MAX_WEIGHT; /* a NaN, too, becomes -KV_Q8_MAX_WEIGHT */
    v = v < KV_Q8_MAX_WEIGHT ? v : KV_Q8_MAX_WEIGHT;
    return (int32_t)rintf(v);
}

static float scale_of_value(const struct attn_args *a, int b, int pos)
{
    const uint16_t *scales = (const uint16_t *)(const void *)(v_of(a, pos) + a->layout->v_scales);

    if (a->layout->is_latent)
        return f16_to_f32(q8_keys_of(a, pos)[b].d[pos % PAGE_TOKENS % KV_GROUP]);
    return f16_to_f32(scales[b * LAYOUT_TOKENS + pos % PAGE_TOKENS]);
}

/* Element d of the value of a position, without its scale. */
static int32_t value_q8_0(const struct attn_args *a, int pos, int d)
{
    const int token = pos % PAGE_TOKENS, i = d % Q8_0_BLOCK;

    if (a->layout->is_latent)
        return q8_keys_of(a, pos)[d / Q8_0_BLOCK].q[i / 4][token % KV_GROUP][i % 4] - 128;
    return (int8_t)v_of(a, pos)[v_index(token, d)];
}

/* add_values_16bit for q8_0: 32 dimensions at a time, exact sums over the key block. */
static void add_values_q8_0(const struct attn_args *a, const float *w, int from, int to, float *out)
{
    const int dim = a->layout->value_dim;
    float p[KV_BLOCK];
    int32_t u[KV_BLOCK];

    for (int b = 0; b < n_blocks(dim); b++) {
        for (int pos = from; pos < to; pos++)
            p[pos - from] = w[pos - from] * scale_of_value(a, b, pos);
        float factor = ref_max_magnitude(p, to - from) / (float)KV_Q8_MAX_WEIGHT;
        float inverse = factor != 0.0f ? 1.0f / factor : 0.0f;
        for (int i = 0; i < to - from; i++)
            u[i] = to_int16(p[i] * inverse);
        for (int d = b * Q8_0_BLOCK; d < MIN((b + 1) * Q8_0_BLOCK, dim); d++) {
            int32_t sum = 0;
            for (int pos = from; pos < to; pos++)
                sum += u[pos - from] * value_q8_0(a, pos, d);
            out[d] = fmaf(factor, (float)sum, out[d]);
        }
    }
}

struct query {
    const float *q; /* [head_dim] */
    int first_key;
    struct act_q8_0 q8[KV_MAX_DIM / Q8_0_BLOCK];
};

static float cap_score(float score, float cap)
{
    return cap - 2.0f * cap / (ref_exp(score * (2.0f / cap)) + 1.0f);
}

/* is_first: no earlier block of the split contains keys of the row. */
static void attend_block(const struct attn_args *a, const struct query *q, int from, int to,
    bool is_first, struct attn_state s)
{
    const struct kv_layout *l = a->layout;
    const bool is_q8 = l->type == KV_Q8_0;
    float *w = a->scratch, max = *s.max;

    for (int pos = from; pos < to; pos++) {
        w[pos - from] = is_q8 ? score_q8_0(a, q->q8, pos) : score_16bit(a, q->q, pos);
        if (a->soft_cap > 0)
            w[pos - from] = cap_score(w[pos - from], a->soft_cap);
        if (pos < q->first_key)
            w[pos - from] = -INFINITY;
        max = w[pos - from] > max ? w[pos - from] : max;
    }
    for (int pos = from; pos < to; pos++)
        w[pos - from] = ref_exp(w[pos - from] - max);

    float sum = sum_by_position(w, from, to);
    if (is_first) {
        *s.sum = sum;
        memset(s.out, 0, (size_t)l->value_dim * sizeof(float));
    } else {
        float shrink = ref_exp(*s.max - max);
        *s.sum = fmaf(*s.sum, shrink, sum);
        for (int d = 0; d < l->value_dim; d++)
            s.out[d] *= shrink;
    }
    *s.max = max;
    (is_q8 ? add_values_q8_0 : add_values_16bit)(a, w, from, to, s.out);
}

static void attend_split(
    const struct attn_args *a, const struct query *q, int split, struct attn_state s)
{
    const int to = MIN((split + 1) * KV_SPLIT, a->n_keys);
    const int from = MAX(split * KV_SPLIT, attn_first_block(a, a->n_keys));

    *s.max = -INFINITY;
    for (int b = from; b < to; b += KV_BLOCK)
        attend_block(a, q, b, MIN(b + KV_BLOCK, to), b == from, s);
}

static void merge_states(struct attn_state total, struct attn_state split, int value_dim)
{
    float max = *split.max > *total.max ? *split.max : *total.max;
    float total_factor = ref_exp(*total.max - max), split_factor = ref_exp(*split.max - max);

    *total.max = max;
    *total.sum = fmaf(*split.sum, split_factor, *total.sum * total_factor);
    for (int d = 0; d < value_dim; d++)
        total.out[d] = fmaf(split.out[d], split_factor, total.out[d] * total_factor);
}

static void write_output(struct attn_state total, float *out, int value_dim)
{
    float inverse = 1.0f / *total.sum;

    for (int d = 0; d < value_dim; d++)
        out[d] = total.out[d] * inverse;
}

static void attend_all(const struct attn_args *a, const struct query *q, int head, float *out)
{
    const int dim = a->layout->value_dim, first = q->first_key / KV_SPLIT;
    float max[2], sum[2], *outs = a->scratch + KV_BLOCK;
    struct attn_state total = { &max[0], &sum[0], outs };
    struct attn_state split = { &max[1], &sum[1], outs + dim };

    attend_split(a, q, first, total);
    for (int i = first + 1; i < attn_n_splits(a->n_keys); i++) {
        attend_split(a, q, i, split);
        merge_states(total, split, dim);
    }
    if (a->sinks)
        merge_states(total, attn_sink_state(a, head, &max[1], &sum[1]), dim);
    write_output(total, out, dim);
}

static void attend_row(const struct attn_args *a)
{
    const size_t dim = (size_t)a->layout->head_dim, value_dim = (size_t)a->layout->value_dim;

    if (a->n_keys <= 0)
        memset(a->out, 0, (size_t)a->n_q * value_dim * sizeof(float));
    for (int h = 0; h < a->n_q && a->n_keys > 0; h++) {
        struct query q = { .q = a->q + (size_t)h * dim, .first_key = attn_first_key(a, a->n_keys) };
        if (a->layout->type == KV_Q8_0)
            quantise_head(q.q, (int)dim, q.q8);
        for (int i = a->split_from; i < a->split_to; i++) /* no iterations without a->states */
            attend_split(a, &q, i, attn_state_at(a, i, h));
        if (!a->states)
            attend_all(a, &q, h, a->out + (size_t)h * value_dim);
    }
}

void ref_attend(const struct attn_args *a)
{
    for (int i = 0; i < a->n_rows; i++) {
        struct attn_args row = attn_args_of_row(a, i);
        attend_row(&row);
    }
}

void ref_attend_merge(const struct attn_args *a)
{
    attn_merge_splits(a, merge_states, write_output);
}
