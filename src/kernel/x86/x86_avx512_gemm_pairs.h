/* x86_avx512_gemm_pairs.h: two panels times GROUP rows of activations, for many rows. A word of
 * activations is then read once for two products: processors that multiply two vectors of 64 bytes
 * in a cycle read no more than two words. Of the types that gain by it (Zen 5: Q4_0 and Q8_0 1.15
 * times, Q6_K 1.14, Q5_0 1.06; the others have more to do than products). For x86_avx512_gemm.c. */
#pragma once

#include "kernel/x86/x86_avx512_gemm.h"

#ifdef __AVX512VNNI__

enum { GROUP = 8 };

struct pair {
    const uint8_t *panel[2], *next[2]; /* next: what is fetched meanwhile */
};

/* All n blocks of both panels times those of the rows at x[0 .. GROUP). */
typedef void (*pair_fn)(
    const struct pair *pair, const uint8_t *const *x, int n, __m512 out[2][GROUP]);

void avx512_pair_q4_0(
    const struct pair *pair, const uint8_t *const *x, int n, __m512 out[2][GROUP]);
void avx512_pair_q8_0(
    const struct pair *pair, const uint8_t *const *x, int n, __m512 out[2][GROUP]);
void avx512_pair_q5_0(
    const struct pair *pair, const uint8_t *const *x, int n, __m512 out[2][GROUP]);
void avx512_pair_q6_k(
    const struct pair *pair, const uint8_t *const *x, int n, __m512 out[2][GROUP]);
#endif
