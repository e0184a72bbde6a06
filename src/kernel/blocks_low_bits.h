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

/* The IQ types store groups of eight or four elements as indices of a grid (iq_grids.h), and signs
 * as a bit per element, set for minus. IQ2_XXS, IQ2_XS and IQ3_XXS store seven of eight signs; the
 * eighth makes the number of minus signs even. The scale of a sub-block with the number s is
 * 2 * s + 1. */

/* w = d / 8 * (2 * s + 1) * grid, with a scale per 32 elements. Per 32 elements: four indices, and
 * 32 bits (little endian): four times seven signs, and s in the upper four. */
struct file_iq2_xxs {
    uint16_t d;
    struct {
        uint8_t index[4], signs[4];
    } sub[8];
};

/* The block differs from IQ2_XXS in two points: s of 16 elements is a nibble of scale, low first,
 * and an element of q has, for eight elements, an index of nine bits and, above it, seven signs. */
struct file_iq2_xs {
    uint16_t d;
    uint16_t q[32];
    uint8_t scale[8];
};

/* The block differs from IQ2_XS in its indices, which have ten bits per eight elements: bits 2g and
 * 2g + 1 of high[i] are the upper bits of index 4 * i + g. */
struct file_iq2_s {
    uint16_t d;
    uint8_t index[32], sign[32], high[8], scale[8];
};

/* w = d / 4 * (2 * s + 1) * grid, with an index per four elements. Signs, scales: as in IQ2_XXS. */
struct file_iq3_xxs {
    uint16_t d;
    uint8_t index[64];
    uint8_t signs[8][4];
};

/* w = d * (2 * s + 1) * grid, with an index of nine bits per four elements: bit g of high[i] is the
 * upper bit of index 8 * i + g. s of 32 elements is a nibble of scale. */
struct file_iq3_s {
    uint16_t d;
    uint8_t index[64], high[8], sign[32], scale[4];
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

/* The IQ types stay indices, in groups of eight or four elements. All signs are stored, since the
 * eighth would have to be computed for every group (4 to 6 % more bytes). Nibbles of scale: s of
 * sub-blocks 2p and 2p + 1. high: as in the file. */
struct p16_iq2_xxs {
    uint8_t index[32][16], sign[32][16];
    uint8_t scale[4][16];
    uint16_t d[16];
};

struct p16_iq2_xs {
    uint8_t index[32][16], sign[32][16];
    uint8_t high[4][16]; /* bit g of high[i]: upper bit of index 8 * i + g */
    uint8_t scale[8][16];
    uint16_t d[16];
};

struct p16_iq2_s {
    uint8_t index[32][16], sign[32][16];
    uint8_t high[8][16];
    uint8_t scale[8][16];
    uint16_t d[16];
};

struct p16_iq3_xxs {
    uint8_t index[64][16], sign[32][16];
    uint8_t scale[4][16];
    uint16_t d[16];
};

struct p16_iq3_s {
    uint8_t index[64][16], sign[32][16];
    uint8_t high[8][16];
    uint8_t scale[4][16];
    uint16_t d[16];
};
