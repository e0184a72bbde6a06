/* blocks.h: the bytes of weights, in the file and packed. Data only: every set includes it.
 *
 * In the file (GGUF's formats) a row is a sequence of blocks of 32 or 256 consecutive elements.
 * Packed (P16), a panel is 16 rows, and a block holds the same stretch of k of all 16. The unit
 * is the quad row: 16 rows x 4 consecutive k, [row][k], 64 bytes, as byte-dot instructions and
 * matrix tiles want it. Values are unsigned with an offset (8, 16, 128, 32), which kernels take off
 * with the sums in acts.h. Nibbles that are an index into a list of numbers stay one; the list with
 * an offset added is a byte shuffle away.
 *
 *   F32   per k: 16 floats                  F16   per k: 16 halves
 *   BF16  per pair of k: [row][2]           (an odd last k has a zero beside it)
 *   the others: arrays of the structs below
 */
#pragma once

#include "base/base.h"

enum { QK_SMALL = 32, QK_SUPER = 256 };

/* What a nibble stands for: of IQ4_NL and IQ4_XS (llama.cpp's list), and of MXFP4 twice the E2M1
 * numbers (OCP Microscaling Formats 1.0, section 5.3.3), so that they are whole. */
#define IQ4_LIST   -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
#define MXFP4_LIST 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12
enum { IQ4_OFFSET = 128, MXFP4_OFFSET = 12 }; /* make them unsigned */

/* ---- file */

struct file_q4_0 { /* w = d * (q - 8); byte j: element j low, element j + 16 high */
    uint16_t d;
    uint8_t q[16];
};

struct file_q8_0 { /* w = d * q */
    uint16_t d;
    int8_t q[32];
};

struct file_q4_1 { /* w = d * q + m */
    uint16_t d, m;
    uint8_t q[16];
};

struct file_q5_0 { /* w = d * (q - 16); bit j of high (little endian): the fifth of element j */
    uint16_t d;
    uint8_t high[4];
    uint8_t q[16];
};

struct file_q5_1 { /* w = d * q + m */
    uint16_t d, m;
    uint8_t high[4];
    uint8_t q[16];
};

struct file_iq4_nl { /* w = d * list[q] */
    uint16_t d;
    uint8_t q[16];
};

struct file_mxfp4 { /* w = 2^(e - 128) * list[q]: half the scale for twice the numbers */
    uint8_t e;
    uint8_t q[16];
};

/* w = d * sc * q - dmin * m, per 32 elements a 6-bit sc and m.
 * Sub-blocks s < 4: sc = scales[s] & 63, m = scales[s + 4] & 63; s >= 4: low nibbles in
 * scales[s + 4], high two bits on top of scales[s - 4] (sc) and scales[s] (m).
 * q: per 64 elements 32 bytes, first 32 elements low, second 32 high. */
struct file_q4_k {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t q[128];
};

struct file_q5_k { /* the same with a fifth bit: bit s of high[j] is of sub-block s, element j */
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t high[32];
    uint8_t q[128];
};

/* w = d * scale * (q - 32), a signed scale per 16 elements. Per 128 elements, 64 bytes of low and
 * 32 of high: element 32 * g + l has low nibble low[l + 32 * (g & 1)] (g >= 2: its high half) and
 * bits 2g, 2g + 1 of high[l]. */
struct file_q6_k {
    uint8_t low[128];
    uint8_t high[64];
    int8_t scale[16];
    uint16_t d;
};

/* w = d * (scale - 32) * list[q], a 6-bit scale per 32 elements: of sub-block s, its low four bits
 * are nibble s % 2 of scale_lo[s / 2], the others bits 2s, 2s + 1 of scale_hi. q: per 32 elements
 * as in file_q4_0. */
struct file_iq4_xs {
    uint16_t d, scale_hi;
    uint8_t scale_lo[4];
    uint8_t q[8][16];
};

/* ---- packed */

struct p16_q4_0 {
    uint8_t q[4][16][4]; /* quad i low, quad i + 4 high */
    uint16_t d[16];
};

struct p16_q8_0 {
    uint8_t q[8][16][4]; /* q + 128 */
    uint16_t d[16];
};

struct p16_q4_1 {
    uint8_t q[4][16][4];
    uint16_t d[16], m[16];
};

struct p16_q5_0 {
    uint8_t q[4][16][4];
    uint8_t high[16][4]; /* bit j of [row][i] is of element 4 * j + i */
    uint16_t d[16];
};

struct p16_q5_1 {
    uint8_t q[4][16][4];
    uint8_t high[16][4];
    uint16_t d[16], m[16];
};

struct p16_iq4_nl {
    uint8_t q[4][16][4];
    uint16_t d[16];
};

struct p16_mxfp4 {
    uint8_t q[4][16][4];
    uint8_t e[16];
};

/* Scales of sub-blocks 2p, 2p + 1 (index i) of a row: low four bits of sc and, above, of m in
 * scale_lo[p][row][i]; their high two bits, sc | m << 2, in scale_hi[p & 1][row][i], shifted left
 * by 4 for p >= 2. */
struct p16_q4_k {
    uint8_t q[8][4][16][4]; /* per sub-block as in p16_q4_0 */
    uint8_t scale_lo[4][16][2];
    uint8_t scale_hi[2][16][2];
    uint16_t d[16], dmin[16];
};

struct p16_q5_k {
    uint8_t q[8][4][16][4];
    uint8_t high[8][16][4]; /* per sub-block: bit j of [row][i] is of element 4 * j + i */
    uint8_t scale_lo[4][16][2];
    uint8_t scale_hi[2][16][2];
    uint16_t d[16], dmin[16];
};

struct p16_q6_k {
    struct {
        uint8_t low[2][16][4]; /* quad i low, quad i + 2 high */
        uint8_t high[16][4];   /* bits 2j, 2j + 1: of quad j */
    } sub[16];
    int8_t scale[8][16][2]; /* sub-blocks 2p, 2p + 1 */
    uint16_t d[16];
};

struct p16_iq4_xs {
    uint8_t q[8][4][16][4];
    int8_t scale[4][16][2]; /* -32 .. 31; sub-blocks 2p, 2p + 1 */
    uint16_t d[16];
};
