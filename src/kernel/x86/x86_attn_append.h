/* x86_attn_append.h: writes F16 and BF16 keys and values to a page, for the AVX2 and AVX-512 sets.
 * Included only by x86_attn_block.h, which documents the definitions that it requires. */
#pragma once

#include "kernel/unroll.h"
#include "kernel/x86/x86_attn.h"

#ifdef GROUP_HEADS
enum { APPEND_DIMS = 16 };

/* Writes 16 dimensions of a key, each pair on its own line, and of a value. */
INLINE void put_whole(uint8_t *to_k, uint8_t *to_v, const uint16_t *kh, const uint16_t *vh)
{
    UNROLL for (int i = 0; i < APPEND_DIMS; i += 2) memcpy(to_k + (size_t)i * 32, kh + i, 4);
    UNROLL for (int i = 0; i < APPEND_DIMS; i++) memcpy(to_v + (size_t)i * 4, vh + i, 2);
}

/* The same for the last n dimensions of a head. */
INLINE void put_part(uint8_t *to_k, uint8_t *to_v, const uint16_t *kh, const uint16_t *vh, int n)
{
    for (int i = 0; i < n; i += 2)
        memcpy(to_k + (size_t)i * 32, kh + i, 4);
    for (int i = 0; i < n; i++)
        memcpy(to_v + (size_t)i * 4, vh + i, 2);
}

static void append_16bit(const struct kv_slot *slot, const float *k, const float *v)
{
    const struct kv_layout *l = slot->layout;
    int dim = l->head_dim, token = slot->token;
    size_t groups = (size_t)(dim + 31) / 32;
    uint8_t *to_k = slot->k + (size_t)(token / 16) * groups * 1024 + (size_t)(token % 16) * 4;
    uint8_t *to_v = slot->v + (size_t)(token / 2) * 64 + (size_t)(token % 2) * 2;
    uint16_t kh[APPEND_DIMS], vh[APPEND_DIMS];

    for (int d = 0; d < dim; d += APPEND_DIMS, to_k += 16 * 32, to_v += (size_t)V_PAIRS * 64) {
        store_narrow16(kh, l->type, load_first16(k + d, dim - d));
        store_narrow16(vh, l->type, load_first16(v + d, dim - d));
        if (dim - d >= APPEND_DIMS)
            put_whole(to_k, to_v, kh, vh);
        else
            put_part(to_k, to_v, kh, vh, dim - d);
    }
}
#endif
