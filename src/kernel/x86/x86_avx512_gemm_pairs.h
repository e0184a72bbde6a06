/* x86_avx512_gemm_pairs.h: GEMM microkernels for two panels and GROUP_ROWS activation rows.
 *
 * Four bytes of activations are loaded once for two dot products: processors that execute two
 * 64-byte multiplications per cycle load at most two operands per cycle. Only for types that are
 * faster this way (Zen 5: Q4_0 and Q8_0 1.15 times, Q6_K 1.14, Q5_0 1.06; the other types need more
 * instructions besides the dot products). Included by x86_avx512_gemm.c. */
#pragma once

#include "kernel/x86/x86_avx512_gemm.h"

#ifdef __AVX512VNNI__

enum { GROUP_ROWS = 8 };

struct panel_pair {
    const uint8_t *panel[2], *next[2]; /* next: panels to prefetch */
};

/* Multiplies all n blocks of both panels with those of the rows at x[0 .. GROUP_ROWS). */
typedef void (*panel_pair_fn)(
    const struct panel_pair *pair, const uint8_t *const *x, int n, __m512 out[2][GROUP_ROWS]);

void avx512_pair_q4_0(
    const struct panel_pair *pair, const uint8_t *const *x, int n, __m512 out[2][GROUP_ROWS]);
void avx512_pair_q8_0(
    const struct panel_pair *pair, const uint8_t *const *x, int n, __m512 out[2][GROUP_ROWS]);
void avx512_pair_q5_0(
    const struct panel_pair *pair, const uint8_t *const *x, int n, __m512 out[2][GROUP_ROWS]);
void avx512_pair_q6_k(
    const struct panel_pair *pair, const uint8_t *const *x, int n, __m512 out[2][GROUP_ROWS]);
#endif
