/* x86_attn_q8_latent.h: values of q8_0 pages in latent attention, for the AVX2 and AVX-512 sets.
 * They are part of the keys. A copy of 32 dimensions of a key block has the order of other values.
 *
 * Included only by x86_attn_block.h, which documents the definitions that it requires. */
#pragma once

#include "kernel/x86/x86_attn_q8.h"

#ifdef GROUP_HEADS
/* Values of 32 dimensions of a key block, in the order of a V block of 16 tokens. */
struct latent_values {
    uint8_t v[KV_BLOCK / KV_GROUP][2][KV_GROUP / 2][16][2];
};

/* Copies 16 keys. The bytes of each key are those of four consecutive dimensions at a time. */
static void copy_16_values(const struct p16_q8_0 *k, uint8_t to[2][KV_GROUP / 2][16][2])
{
    const __m256i top = _mm256_set1_epi8((char)0x80);
    const __m256i pairs = _mm256_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15, 0,
        4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    __m256i x[4];

    for (int i = 0; i < 4; i++) {
        const int half = i / 2,
                  tokens = i % 2 * 8; /* half of the 32 dimensions, and of the 16 tokens */
        __m256i *at = (__m256i *)(void *)to[half][tokens / 2];
        UNROLL for (int j = 0; j < 4; j++)
        {
            const void *q = k->q[half * 4 + j][tokens];
            x[j] = _mm256_shuffle_epi8(_mm256_xor_si256(_mm256_loadu_si256(q), top), pairs);
        }
        /* a lane: a pair of tokens and 8 dimensions; pairs 0 and 2, then 1 and 3 */
        __m256i a = _mm256_unpacklo_epi64(x[0], x[1]), b = _mm256_unpacklo_epi64(x[2], x[3]);
        __m256i c = _mm256_unpackhi_epi64(x[0], x[1]), d = _mm256_unpackhi_epi64(x[2], x[3]);
        _mm256_storeu_si256(at, _mm256_permute2x128_si256(a, b, 0x20));
        _mm256_storeu_si256(at + 1, _mm256_permute2x128_si256(c, d, 0x20));
        _mm256_storeu_si256(at + 2, _mm256_permute2x128_si256(a, b, 0x31));
        _mm256_storeu_si256(at + 3, _mm256_permute2x128_si256(c, d, 0x31));
    }
}

/* Copies the values of keys [from, to) and, in the last 16 tokens, anything after them. */
static void copy_latent_values(
    const struct head_group *g, int block, int from, int to, struct latent_values *out)
{
    for (int pos = from; pos < to; pos += UNIT_KEYS) {
        const struct p16_q8_0 *k = q8_keys_of(g, pos) + block;
        const int group = (pos - from) / KV_GROUP;
        if ((int)UNIT_KEYS == (int)KV_GROUP) {
            copy_16_values(k, out->v[group]);
            continue;
        }
        for (int t = 0; t < UNIT_KEYS; t++) /* pages of fewer tokens (SMALL builds) */
            for (int d = 0; d < Q8_0_BLOCK; d++)
                out->v[group][d / 16][(pos + t) % KV_GROUP / 2][d % 16][t % 2] =
                    k->q[d / 4][t + pos % PAGE_TOKENS][d % 4] ^ 0x80;
    }
}
#endif
