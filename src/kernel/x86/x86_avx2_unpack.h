/* x86_avx2_unpack.h: unpacking of the types of blocks_low_bits.h to bytes. The functions need AVX2
 * only; all x86 sets call them. Pure; any thread. */
#pragma once

#include "kernel/x86/x86_unpacked_kblock.h"

#ifdef __AVX2__
struct gemm_args;

/* GEMMs of the AVX2 set that the AVX-512 set uses too. */
void avx2_gemm_q1_0(const struct gemm_args *g);
void avx2_gemm_q2_0(const struct gemm_args *g);
void avx2_gemm_nvfp4(const struct gemm_args *g);

/* Each unpacks one block of 256: quad rows of unsigned weights, d[0], per sub-block of 16 its scale
 * (scale[]), and pair[]: factors of the sums of activations over 16 elements. The dot product is
 * sum of scale x dot - offset x (pair . sums), or, for types with minimums (d[1]), pair[] has them.
 * The offset is in x86_low_bits.def. Unpacking prefetches the next blocks of the panel. */
#define LOW_BITS(entry, name, ...)                                                                 \
    void avx2_unpack_##name(struct unpacked_kblock *u, const uint8_t *w, int n_blocks);
#include "kernel/x86/x86_low_bits.def"
#undef LOW_BITS
#endif
