/* x86_attn_softmax.h: softmax weights of one key block for the AVX2 and AVX-512 sets. Included only
 * by the parts of x86_attn_block.h, which documents the definitions that it requires. */
#pragma once

#include "kernel/x86/x86_attn.h"

#include <math.h>

#ifdef GROUP_HEADS
/* head_group.work of these sets */
struct block_work {
    float w[GROUP_HEADS][KV_BLOCK];   /* scores, then weights */
    int16_t u[GROUP_HEADS][KV_BLOCK]; /* q8_0: weights as integers */
};

/* Soft cap of the first n scores of a head, and -inf for the first n_masked ones, which are before
 * the window. */
static void cap_and_mask(const struct attn_args *a, float *w, int n, int n_masked)
{
    const vec16 cap = all16(a->soft_cap), twice = all16(2.0f * a->soft_cap);
    const vec16 factor = all16(2.0f / a->soft_cap);

    for (int i = 0; a->soft_cap > 0 && i < n; i += 16) {
        vec16 e = add16(exp16(mul16(load_first16(w + i, n - i), factor)), all16(1));
        store_first16(w + i, n - i, sub16(cap, div16(twice, e)));
    }
    for (int i = 0; i < n_masked; i++)
        w[i] = -INFINITY;
}

/* Replaces the first n scores of head h by softmax weights, and scales the previous sums to the new
 * maximum. */
static void softmax_block(const struct head_group *g, int h, int n, bool is_first)
{
    float *w = ((struct block_work *)g->work)->w[h],
          *out = g->out + (size_t)h * (size_t)g->value_dim16;
    float old = is_first ? -INFINITY : g->max[h];
    vec16 top = all16(old), lanes = all16(0);

    for (int i = 0; i < n; i += 16)
        top = max_first16(top, w + i, n - i);
    float max = top16(top);
    for (int i = 0; i < n; i += 16) {
        vec16 v = sub16(load_first16(w + i, n - i), all16(max));
        v = keep_first16(exp16(v), n - i);
        store_first16(w + i, n - i, v);
        lanes = add16(lanes, v);
    }
    g->max[h] = max;
    if (is_first) {
        g->sum[h] = sum16(lanes);
        memset(out, 0, (size_t)g->value_dim16 * sizeof(float));
        return;
    }
    float shrink = exp1(old - max);
    g->sum[h] = fmaf(g->sum[h], shrink, sum16(lanes));
    for (int d = 0; d < g->value_dim16; d += 16)
        store16(out + d, mul16(load16(out + d), all16(shrink)));
}

static void softmax_heads(const struct head_group *g, int from, int to)
{
    const struct attn_args *a = g->a;

    for (int h = 0; h < g->n; h++) {
        const int n = MIN(to, g->n_keys[h]) - from;
        if (a->window || a->soft_cap > 0)
            cap_and_mask(
                a, ((struct block_work *)g->work)->w[h], n, attn_first_key(a, g->n_keys[h]) - from);
        softmax_block(g, h, n, attn_begins_split(g, from));
    }
}
#endif
