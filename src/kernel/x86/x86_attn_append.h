/* x86_attn_append.h: writes F16 and BF16 keys and values to a page, for the AVX2 and AVX-512 sets.
 * Included only by x86_attn_block.h, which documents the definitions that it requires. */
#pragma once

#include "kernel/unroll.h"
#include "kernel/x86/x86_attn.h"

#ifdef GROUP_HEADS
enum { APPEND_DIMS = 16 };

/* Writes 16 dimensions of a key, each pair on its own line, or the last n of them. */
INLINE void put_key(uint8_t *to, const uint16_t *h, int n)
{
    if (n >= APPEND_DIMS) {
        UNROLL for (int i = 0; i < APPEND_DIMS; i += 2) memcpy(to + (size_t)i * 32, h + i, 4);
        return;
    }
    for (int i = 0; i < n; i += 2)
        memcpy(to + (size_t)i * 32, h + i, 4);
}

/* The same for a value. */
INLINE void put_value(uint8_t *to, const uint16_t *h, int n)
{
    if (n >= APPEND_DIMS) {
        UNROLL for (int i = 0; i < APPEND_DIMS; i++) memcpy(to + (size_t)i * 4, h + i, 2);
        return;
    }
    for (int i = 0; i < n; i++)
        memcpy(to + (size_t)i * 4, h + i, 2);
}

static void append_latent_16bit(const struct kv_slot *slot, const float *k)
{
    const struct kv_layout *l = slot->layout;
    uint8_t *to = slot->k + (size_t)slot->token * (size_t)l->head_dim * sizeof(uint16_t);
    uint16_t h[APPEND_DIMS];

    for (int d = 0; d < l->head_dim; d += APPEND_DIMS, to += sizeof(h)) {
        store_narrow16(h, l->type, load16(k + d));
        memcpy(to, h, sizeof(h));
    }
}

static void append_16bit(const struct kv_slot *slot, const float *k, const float *v)
{
    const struct kv_layout *l = slot->layout;
    const int dim = l->head_dim, value_dim = l->value_dim, token = slot->token;
    size_t groups = (size_t)(dim + 31) / 32;
    uint8_t *to_k = slot->k + (size_t)(token / 16) * groups * 1024 + (size_t)(token % 16) * 4;
    uint8_t *to_v = slot->v + (size_t)(token / 2) * 64 + (size_t)(token % 2) * 2;
    uint16_t h[APPEND_DIMS];

    if (l->is_latent) {
        append_latent_16bit(slot, k);
        return;
    }
    for (int d = 0; d < dim; d += APPEND_DIMS, to_k += 16 * 32) {
        store_narrow16(h, l->type, load_first16(k + d, dim - d));
        put_key(to_k, h, dim - d);
    }
    for (int d = 0; d < value_dim; d += APPEND_DIMS, to_v += (size_t)V_PAIRS * 64) {
        store_narrow16(h, l->type, load_first16(v + d, value_dim - d));
        put_value(to_v, h, value_dim - d);
    }
}
#endif
