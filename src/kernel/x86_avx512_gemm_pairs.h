/* x86_avx512_gemm_pairs.h: two panels times GROUP rows of activations, for many rows. A word of
 * activations is then read once for two products: processors that multiply two vectors of 64 bytes
 * in a cycle read no more than two words. Of the types that gain by it (Zen 5: Q4_0 and Q8_0 1.15
 * times, Q6_K 1.14, Q5_0 1.06; the others have more to do than products). For x86_avx512_gemm.c. */
#pragma once

#include "kernel/x86_avx512_gemm.h"

#ifdef __AVX512VNNI__

enum { GROUP = 8 };

/* All n blocks of the panels at w[0] and w[1] times those of the rows at x[0 .. GROUP). The next
 * pair is fetched meanwhile. */
typedef void (*pair_fn)(
    const uint8_t *const w[2], const uint8_t *const *x, int n, __m512 out[2][GROUP]);

void avx512_pair_q4_0(
    const uint8_t *const w[2], const uint8_t *const *x, int n, __m512 out[2][GROUP]);
void avx512_pair_q8_0(
    const uint8_t *const w[2], const uint8_t *const *x, int n, __m512 out[2][GROUP]);
void avx512_pair_q5_0(
    const uint8_t *const w[2], const uint8_t *const *x, int n, __m512 out[2][GROUP]);
void avx512_pair_q6_k(
    const uint8_t *const w[2], const uint8_t *const *x, int n, __m512 out[2][GROUP]);
#endif
