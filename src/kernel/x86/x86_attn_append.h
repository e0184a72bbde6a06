/* x86_attn_append.h: writes F16 and BF16 keys and values to a page, for the AVX2 and AVX-512 sets.
 * Included only by x86_attn_block.h, which documents the definitions that it requires. */
#pragma once

#include "kernel/unroll.h"
#include "kernel/x86/x86_attn.h"

#ifdef GROUP_HEADS
/* Writes n dimensions of a key: each pair has its own line. */
INLINE void put_key(uint8_t *to, const uint16_t *h, int n)
{
    UNROLL for (int i = 0; i < n; i += 2) memcpy(to + (size_t)i * 32, h + i, 4);
}

INLINE void put_value(uint8_t *to, const uint16_t *h, int n)
{
    UNROLL for (int i = 0; i < n; i++) memcpy(to + (size_t)i * 4, h + i, 2);
}

static void append_16bit(const struct kv_slot *slot, const float *k, const float *v)
{
    const struct kv_layout *l = slot->layout;
    int dim = l->head_dim, token = slot->token;
    size_t groups = (size_t)(dim + 31) / 32;
    uint8_t *to_k = slot->k + (size_t)(token / 16) * groups * 1024 + (size_t)(token % 16) * 4;
    uint8_t *to_v = slot->v + (size_t)(token / 2) * 64 + (size_t)(token % 2) * 2;
    uint16_t kh[16], vh[16];

    for (int d = 0; d < dim; d += 16, to_k += 16 * 32, to_v += (size_t)V_PAIRS * 64) {
        store_narrow16(kh, l->type, load_first16(k + d, dim - d));
        store_narrow16(vh, l->type, load_first16(v + d, dim - d));
        if (dim - d >= 16) {
            put_key(to_k, kh, 16);
            put_value(to_v, vh, 16);
        } else {
            put_key(to_k, kh, dim - d);
            put_value(to_v, vh, dim - d);
        }
    }
}
#endif
