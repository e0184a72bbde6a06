/* x86_attn_q8_values.h: values of q8_0 pages for the AVX2 and AVX-512 sets. The weights of a key
 * block are 16-bit integers, so the values of two positions and sixteen dimensions are one int16
 * dot product. The sums are exact, so positions that a row does not attend to are included with
 * weight zero.
 *
 * Included only by x86_attn_block.h, which documents the definitions that it requires. */
#pragma once

#include "kernel/x86/x86_attn_q8_latent.h"

#ifdef GROUP_HEADS
/* Reads the value scales of keys [from, to) for the 32 dimensions of a block. */
static void read_scales(const struct head_group *g, int block, int from, int to, float *out)
{
    const struct kv_layout *l = g->a->layout;

    for (int pos = from; pos < to; pos += UNIT_KEYS) {
        const uint8_t *v = attn_values_of(g->a, pos) + l->v_scales;
        const uint16_t *scales = l->is_latent ? q8_keys_of(g, pos)[block].d
                                              : (const uint16_t *)(const void *)v +
                                                    block * 2 * V_PAIRS + pos % PAGE_TOKENS;
        store_first16(out + (pos - from), MIN(UNIT_KEYS, to - pos), load_f16x16(scales));
    }
}

/* Converts n products of weights and scales to integers; the rest, to a whole vector and to `end`,
 * is zero. Returns the factor that converts them back. */
static float weights_to_int16(const float *w, const float *scales, int n, int end, int16_t *u)
{
    ivec16 most = all_int16(0);
    vec16 p[KV_BLOCK / 16];

    for (int i = 0; i < n; i += 16) {
        p[i / 16] = mul16(load_first16(w + i, n - i), load_first16(scales + i, n - i));
        most = max_magnitude16(most, p[i / 16]);
    }
    float factor = top_magnitude16(most) / (float)KV_Q8_MAX_WEIGHT;
    vec16 by = all16(factor != 0.0f ? 1.0f / factor : 0.0f);
    for (int i = 0; i < end; i += 16) {
        vec16 v = i < n ? mul16(p[i / 16], by) : all16(0);
        v = max16(v, all16(-KV_Q8_MAX_WEIGHT)); /* also if v is NaN */
        v = min16(v, all16(KV_Q8_MAX_WEIGHT));
        /* a padding lane times a NaN factor would not be zero */
        store_first_int16(u + i, MAX(n - i, 0), v);
    }
    return factor;
}

/* Adds one page's weighted values of HEAD_VECTORS x 16 dimensions to the sums. */
INLINE void add_page_values_q8(int heads, const int16_t *u, const uint8_t *v[HEAD_VECTORS], int n,
    ivec16 sums[HEAD_VECTORS][GROUP_HEADS])
{
    for (int t = 0; t < n; t += 2) {
        ivec16 x[HEAD_VECTORS];
        UNROLL for (int i = 0; i < HEAD_VECTORS; i++) x[i] =
            load_int8_as_int16(v[i] + (size_t)t * 16);
        UNROLL for (int h = 0; h < heads; h++)
        {
            int32_t two;
            memcpy(&two, u + h * KV_BLOCK + t, 4);
            UNROLL for (int i = 0; i < HEAD_VECTORS; i++) sums[i][h] =
                add_pair_dot(sums[i][h], x[i], two);
        }
    }
}

INLINE void add_scaled_sums(int heads, const struct head_group *g, const int dim[HEAD_VECTORS],
    const float *factor, ivec16 sums[HEAD_VECTORS][GROUP_HEADS])
{
    UNROLL for (int h = 0; h < heads; h++)
    {
        float *out = g->out + (size_t)h * (size_t)g->value_dim16;
        vec16 v[HEAD_VECTORS];
        UNROLL for (int i = 0; i < HEAD_VECTORS; i++) v[i] =
            fma16(all16(factor[h]), to_float16(sums[i][h]), load16(out + dim[i]));
        /* after all loads, since two dim[i] may be equal */
        UNROLL for (int i = 0; i < HEAD_VECTORS; i++) store16(out + dim[i], v[i]);
    }
}

/* Adds the values of keys [from, to) to HEAD_VECTORS x 16 dimensions, which begin at dim[i]. */
INLINE void add_dims_q8(int heads, const struct head_group *g, const int dim[HEAD_VECTORS],
    int from, int to, const float *factor)
{
    enum { PAGE_BYTES = HEAD_VECTORS * V_PAIRS * 32 }; /* bytes of these dimensions in a page */
    const struct block_work *work = g->work;
    const int last = g->n_keys[g->n - 1] - 1;
    const size_t at = (size_t)dim[0] * V_PAIRS * 2;
    ivec16 sums[HEAD_VECTORS][GROUP_HEADS];

    UNROLL for (int h = 0; h < heads; h++) UNROLL for (int i = 0; i < HEAD_VECTORS; i++)
        sums[i][h] = all_int16(0);
    for (int pos = from; pos < to; pos += PAGE_TOKENS) {
        const uint8_t *page = attn_values_of(g->a, pos), *v[HEAD_VECTORS];
        const char *next = (const char *)attn_values_of(g->a, MIN(pos + PAGE_TOKENS, to - 1)) + at;
        const char *keys = (const char *)q8_keys_of(g, MIN(pos + KV_BLOCK, last)) +
                           (size_t)(dim[0] / 16) * (V_PAIRS / 8 * sizeof(struct p16_q8_0) / 2);
        UNROLL for (int i = 0; i < HEAD_VECTORS; i++) v[i] = page + (size_t)dim[i] * V_PAIRS * 2;
        for (size_t i = 0; i < PAGE_BYTES; i += 64) {
            _mm_prefetch(next + i, _MM_HINT_T0);
            _mm_prefetch(keys + i, _MM_HINT_T1);
        }
        add_page_values_q8(heads, work->u[0] + (pos - from), v, MIN(PAGE_TOKENS, to - pos), sums);
    }
    add_scaled_sums(heads, g, dim, factor, sums);
}

/* The same in latent attention. */
INLINE void add_dims_q8_latent(int heads, const struct head_group *g, const int dim[HEAD_VECTORS],
    int n_keys, const struct latent_values *values, const float *factor)
{
    const struct block_work *work = g->work;
    ivec16 sums[HEAD_VECTORS][GROUP_HEADS];

    UNROLL for (int h = 0; h < heads; h++) UNROLL for (int i = 0; i < HEAD_VECTORS; i++)
        sums[i][h] = all_int16(0);
    for (int t = 0; t < n_keys; t += KV_GROUP) {
        const uint8_t *v[HEAD_VECTORS];
        UNROLL for (int i = 0; i < HEAD_VECTORS; i++) v[i] =
            values->v[t / KV_GROUP][dim[i] % Q8_0_BLOCK / 16][0][0];
        add_page_values_q8(heads, work->u[0] + t, v, MIN(KV_GROUP, n_keys - t), sums);
    }
    add_scaled_sums(heads, g, dim, factor, sums);
}

INLINE void add_values_q8(int heads, const struct head_group *g, int from, int to)
{
    struct block_work *work = g->work;
    float scales[KV_BLOCK], factor[GROUP_HEADS];
    struct latent_values values;

    for (int block = 0; block * Q8_0_BLOCK < g->value_dim16; block++) {
        const int end = MIN((block + 1) * Q8_0_BLOCK, g->value_dim16);
        read_scales(g, block, from, to, scales);
        if (g->a->layout->is_latent)
            copy_latent_values(g, block, from, to, &values);
        for (int h = 0; h < heads; h++)
            factor[h] = weights_to_int16(
                work->w[h], scales, MIN(to, g->n_keys[h]) - from, to - from, work->u[h]);
        for (int d = block * Q8_0_BLOCK; d < end; d += 16 * HEAD_VECTORS) {
            int dim[HEAD_VECTORS];
            /* the last dimensions twice if there are no others */
            UNROLL for (int i = 0; i < HEAD_VECTORS; i++) dim[i] =
                MIN(d + 16 * i, g->value_dim16 - 16);
            if (g->a->layout->is_latent)
                add_dims_q8_latent(heads, g, dim, to - from, &values, factor);
            else
                add_dims_q8(heads, g, dim, from, to, factor);
        }
    }
}
#endif
