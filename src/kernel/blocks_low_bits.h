/* blocks_low_bits.h: bytes of the weight types with up to four bits and many sub-blocks, in GGUF
 * and packed. Data only; included by blocks.h, which documents the terms. row_codes.c defines the
 * meaning of the packed blocks. */
#pragma once

#include "base/base.h"

/* ---- file */

/* w = d * (scale & 15) * q - dmin * (scale >> 4), with a scale per 16 elements. q: 32 bytes per 128
 * elements; element 32 * g + l is in bits 2g, 2g + 1 of byte l. */
struct file_q2_k {
    uint8_t scale[16];
    uint8_t q[64];
    uint16_t d, dmin;
};

/* w = d * (scale - 32) * (q - 4), with a 6-bit scale per 16 elements. The low bits of q are those
 * of Q2_K; bit e / 32 of high[e % 32] is the third bit of element e. Scale s has its low four bits
 * in scale[s % 8] (high nibble if s >= 8) and its high bits from bit 2 * (s / 4) on in
 * scale[8 + s % 4]. */
struct file_q3_k {
    uint8_t high[32];
    uint8_t q[64];
    uint8_t scale[12];
    uint16_t d;
};

/* ---- packed */

struct p16_q2_k {
    /* per 16 elements: bits 2j, 2j + 1 of [row][i] belong to element 4 * j + i */
    uint8_t q[16][16][4];
    uint8_t scale[8][16][2]; /* low nibble: scale, high: minimum; sub-blocks 2p and 2p + 1 */
    uint16_t d[16], dmin[16];
};

struct p16_q3_k {
    /* Per 32 elements: bits 0-2 of q[j] are quad 2j, bits 3-5 quad 2j + 1. Quad 6 has its low bits
     * in bits 6 and 7 of q[0], quad 7 in those of q[1]; their third bits are bits 6 and 7 of
     * q[2]. */
    uint8_t q[8][3][16][4];
    int8_t scale[8][16][2]; /* -32 .. 31; sub-blocks 2p and 2p + 1 */
    uint16_t d[16];
};
