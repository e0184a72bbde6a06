/* ref_attn.c: the definition of attention over pages; attn.h has the layout.
 *
 * Positions are absolute. A score is one fma chain over d from 0, then times the scale. Keys are
 * taken in blocks of KV_BLOCK: the running maximum moves, what was summed so far is scaled by
 * exp(old - new), weights exp(score - max) add to 16 lanes by position, which fold 8, 4, 2, 1 and
 * add to l; each output is one fma chain over positions. Every KV_SPLIT keys that state starts
 * afresh, and the splits are merged in order. No step knows where a page ends. */
#include "kernel/half.h"
#include "kernel/mandate.h"
#include "kernel/ref.h"

#include <math.h>

/* Where element d of one token lies, counted in 16-bit elements. */
static size_t k_index(const struct kv_layout *l, int token, int d)
{
    size_t groups = (size_t)(l->head_dim + 31) / 32;

    return ((size_t)(token / 16) * groups + (size_t)(d / 32)) * 512 +
           (size_t)(d % 32 / 2 * 32 + token % 16 * 2 + d % 2);
}

static size_t v_index(int token, int d)
{
    size_t pairs = (PAGE_TOKENS + KV_GROUP - 1) / KV_GROUP * KV_GROUP / 2;

    return ((size_t)(d / 16) * pairs + (size_t)(token / 2)) * 32 + (size_t)(d % 16 * 2 + token % 2);
}

static uint16_t narrow(enum kv_type type, float v)
{
    return type == KV_F16 ? f16_of_f32(v) : bf16_of_f32(v);
}

static float widen(enum kv_type type, uint16_t h)
{
    return type == KV_F16 ? f16_to_f32(h) : bf16_to_f32(h);
}

void ref_kv_append(const struct kv_slot *slot, const float *k, const float *v)
{
    const struct kv_layout *l = slot->layout;
    uint16_t *kp = (uint16_t *)(void *)slot->k, *vp = (uint16_t *)(void *)slot->v;

    for (int d = 0; d < l->head_dim; d++) {
        kp[k_index(l, slot->token, d)] = narrow(l->type, k[d]);
        vp[v_index(slot->token, d)] = narrow(l->type, v[d]);
    }
}

/* One query head's softmax so far: everything is relative to exp(max). */
struct state {
    float max, sum;
    float *out; /* [head_dim] */
};

static const uint16_t *k_of(const struct attn_args *a, int pos)
{
    const struct kv_layout *l = a->layout;
    size_t block = (size_t)a->layer * (size_t)l->n_kv_heads + (size_t)a->kv_head;
    const uint8_t *page = a->arena + a->pages[pos / PAGE_TOKENS].i * l->page_bytes;

    return (const uint16_t *)(const void *)(page + block * (l->k_bytes + l->v_bytes));
}

static const uint16_t *v_of(const struct attn_args *a, int pos)
{
    return k_of(a, pos) + a->layout->k_bytes / sizeof(uint16_t);
}

static float score(const struct attn_args *a, const float *q, int pos)
{
    const uint16_t *k = k_of(a, pos);
    float dot = 0;

    for (int d = 0; d < a->layout->head_dim; d++)
        dot = fmaf(q[d], widen(a->layout->type, k[k_index(a->layout, pos % PAGE_TOKENS, d)]), dot);
    return dot * a->scale;
}

static float sum_by_position(const float *w, int from, int to)
{
    float lane[LANES] = { 0 };

    for (int pos = from; pos < to; pos++)
        lane[pos % LANES] += w[pos - from];
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

static void attend_block(
    const struct attn_args *a, const float *q, int from, int to, struct state *s)
{
    const struct kv_layout *l = a->layout;
    float *w = a->scratch, max = s->max;

    for (int pos = from; pos < to; pos++) {
        w[pos - from] = score(a, q, pos);
        max = w[pos - from] > max ? w[pos - from] : max;
    }
    for (int pos = from; pos < to; pos++)
        w[pos - from] = ref_exp(w[pos - from] - max);

    float sum = sum_by_position(w, from, to);
    if (from % KV_SPLIT == 0) {
        s->sum = sum;
        memset(s->out, 0, (size_t)l->head_dim * sizeof(float));
    } else {
        float shrink = ref_exp(s->max - max);
        s->sum = fmaf(s->sum, shrink, sum);
        for (int d = 0; d < l->head_dim; d++)
            s->out[d] *= shrink;
    }
    s->max = max;
    for (int pos = from; pos < to; pos++)
        for (int d = 0; d < l->head_dim; d++)
            s->out[d] = fmaf(w[pos - from],
                widen(l->type, v_of(a, pos)[v_index(pos % PAGE_TOKENS, d)]), s->out[d]);
}

static void merge(struct state *total, const struct state *split, int head_dim)
{
    float max = split->max > total->max ? split->max : total->max;
    float mine = ref_exp(total->max - max), theirs = ref_exp(split->max - max);

    total->max = max;
    total->sum = fmaf(split->sum, theirs, total->sum * mine);
    for (int d = 0; d < head_dim; d++)
        total->out[d] = fmaf(split->out[d], theirs, total->out[d] * mine);
}

static void attend_row(const struct attn_args *a)
{
    int dim = a->layout->head_dim;
    struct state total = { .out = a->scratch + KV_BLOCK };
    struct state split = { .out = total.out + dim };

    for (int h = 0; h < a->n_q; h++) {
        const float *q = a->q + (size_t)h * (size_t)dim;
        float *out = a->out + (size_t)h * (size_t)dim;

        for (int from = 0; from < a->n_keys; from += KV_SPLIT) {
            struct state *s = from ? &split : &total;
            s->max = -INFINITY;
            for (int b = from; b < MIN(from + KV_SPLIT, a->n_keys); b += KV_BLOCK)
                attend_block(a, q, b, MIN(b + KV_BLOCK, a->n_keys), s);
            if (from)
                merge(&total, &split, dim);
        }
        float inverse = 1.0f / total.sum;
        for (int d = 0; d < dim; d++)
            out[d] = a->n_keys > 0 ? total.out[d] * inverse : 0.0f;
    }
}

void ref_attend(const struct attn_args *a)
{
    struct attn_args row = *a;

    for (int i = 0; i < a->n_rows; i++) {
        attend_row(&row);
        row.n_keys++;
        row.q += a->q_stride;
        row.out += a->out_stride;
    }
}
