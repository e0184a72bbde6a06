/* blocks_ternary.h: bytes of the weight types with one to two bits and few scales, in GGUF and
 * packed. Data only; included by blocks.h, which documents the terms. row_codes.c defines the
 * meaning of the packed blocks of 256. */
#pragma once

#include "base/base.h"

enum { QK_Q1_0 = 128, QK_Q2_0 = 64 };

/* ---- file */

/* w = d / 8 * (2 * s + 1) * (8 * grid + delta), with a grid of -1, 0, 1 (iq_grids.h) and an index
 * of 11 bits per eight elements. Per 32 elements, high has four times three upper bits of an index,
 * three bits s, and a bit for delta: 1, or -1 if set. */
struct file_iq1_s {
    uint16_t d;
    uint8_t index[32];
    uint16_t high[8];
};

/* The block differs from IQ1_S in having delta per 8 elements and s per 16. A nibble of high, low
 * first, has the upper bits of an index and delta; an element of scale has four times s, and four
 * bits of d above them, the lowest first. */
struct file_iq1_m {
    uint8_t index[32], high[16];
    uint16_t scale[4];
};

/* w = d * (q - 1). A byte has five digits of base 3 as a fraction of 256: times 3, the next digit
 * is above the eight bits. Digit n of q[i] is element 32 * n + i for i < 32 and, for the next 16
 * bytes, 160 + 16 * n + i - 32; digit n of last[i] is element 240 + 4 * n + i. */
struct file_tq1_0 {
    uint8_t q[48], last[4];
    uint16_t d;
};

struct file_tq2_0 { /* w = d * (q - 1); two bits in the order of Q2_K */
    uint8_t q[64];
    uint16_t d;
};

struct file_q1_0 { /* w = d if bit i % 8 of q[i / 8] is set, otherwise -d */
    uint16_t d;
    uint8_t q[QK_Q1_0 / 8];
};

struct file_q2_0 { /* w = d * (q - 1); q: bits 2 * (i % 4) and the next of q[i / 4] */
    uint16_t d;
    uint8_t q[QK_Q2_0 / 4];
};

/* ---- packed */

struct p16_iq1_s {
    uint8_t index[32][16];
    uint16_t high[8][16]; /* packed like in the file */
    uint16_t d[16];
};

struct p16_iq1_m {
    uint8_t index[32][16], high[16][16]; /* packed like in the file */
    uint16_t scale[4][16];               /* without the bits of d */
    uint16_t d[16];
};

/* Per 16 elements as in p16_q2_k. TQ1_0 has the same packed block (1.22 times the bytes of the
 * file): digits of base 3 would have to be computed for each use. */
struct p16_tq2_0 {
    uint8_t q[16][16][4];
    uint16_t d[16];
};

struct p16_tq1_0 {
    uint8_t q[16][16][4];
    uint16_t d[16];
};

struct p16_q1_0 {
    uint8_t q[4][16][4]; /* per 32 elements: bit j of [row][i] belongs to element 4 * j + i */
    uint16_t d[16];
};

struct p16_q2_0 {
    uint8_t q[4][16][4]; /* per 16 elements as in p16_q2_k */
    uint16_t d[16];
};
