/* x86_unpacked_kblock.h: a K block of a panel, unpacked to bytes, for GEMM that unpacks once for
 * many rows. Included by files of the AVX2, AVX-VNNI and AVX-512 sets. Plain data. */
#pragma once

#include "base/base.h"

#ifdef __AVX2__
#include <immintrin.h>

enum { KBLOCK = 256 }; /* k per K block */

/* K block of a panel: up to eight blocks of 32, or one of 256. */
struct unpacked_kblock {
    ALIGNED(64) uint8_t q[KBLOCK / 4][64]; /* quad rows, unsigned */
    /* scales per block and half; for blocks of 256: d, dmin */
    __m256 d[KBLOCK / 32][2];
    __m256 m[KBLOCK / 32][2]; /* minimums of blocks of 32 */
    __m256i scale[16][2];     /* sub-block scales: int16, duplicated in each lane */
    __m256i pair[8][2];       /* scales or minimums of two sub-blocks per lane */
};

/* Unpacks n_blocks blocks at w. */
typedef void (*unpack_fn)(struct unpacked_kblock *u, const uint8_t *w, int n_blocks);
#endif
