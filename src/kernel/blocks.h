/* blocks.h: bytes of the weight types, in GGUF and packed. Data only; every kernel set includes it.
 *
 * In the file (GGUF's formats) a row is a sequence of quantisation blocks of 32 or 256 consecutive
 * elements. Packed (P16), a panel is 16 rows, and a packed block holds the same k range of all 16
 * rows. The unit is the quad row: 16 rows x 4 consecutive k, [row][k], 64 bytes, which int8 dot
 * product instructions (VNNI) and AMX tiles read directly. Values are unsigned with an offset (8,
 * 16, 128, 32), which kernels subtract with the sums in acts.h. Nibbles that index a codebook are
 * stored as nibbles; a byte shuffle looks them up, in a codebook with an offset added.
 *
 *   F32   per k: 16 floats                  F16   per k: 16 halves
 *   BF16  per pair of k: [row][2]           (an odd last k is padded with a zero)
 *   the others: arrays of the structs below and in the headers included here */
#pragma once

#include "base/base.h"
#include "kernel/blocks_affine.h"
#include "kernel/blocks_fp8.h"
#include "kernel/blocks_low_bits.h"
#include "kernel/blocks_ternary.h"

enum { QK_SMALL = 32, QK_NVFP4 = 64, QK_SUPER = 256 };

/* Codebooks, indexed by a nibble: the one of IQ4_NL and IQ4_XS (from llama.cpp), and for MXFP4
 * twice the E2M1 numbers (OCP Microscaling Formats 1.0, section 5.3.3), so that they are
 * integers. */
#define IQ4_CODEBOOK   -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
#define MXFP4_CODEBOOK 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12
enum { IQ4_OFFSET = 128, MXFP4_OFFSET = 12 }; /* offsets that make the codebook entries unsigned */

/* ---- file */

/* w = d * (q - 8); byte j: element j in the low, element j + 16 in the high nibble */
struct file_q4_0 {
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

struct file_q5_0 { /* w = d * (q - 16); bit j of high (little endian): fifth bit of element j */
    uint16_t d;
    uint8_t high[4];
    uint8_t q[16];
};

struct file_q5_1 { /* w = d * q + m */
    uint16_t d, m;
    uint8_t high[4];
    uint8_t q[16];
};

struct file_iq4_nl { /* w = d * codebook[q] */
    uint16_t d;
    uint8_t q[16];
};

/* w = 2^(e - 128) * codebook[q]: half the scale, since the codebook is doubled */
struct file_mxfp4 {
    uint8_t e;
    uint8_t q[16];
};

/* w = scale(e[i / 16]) * codebook[q], with the doubled codebook of MXFP4 and half of a scale in
 * UE4M3. Per 16 elements, eight bytes: the first eight in the low, the second in the high
 * nibbles. */
struct file_nvfp4 {
    uint8_t e[4];
    uint8_t q[4][8];
};

/* w = d * sc * q - dmin * m, with a 6-bit sc and m per 32 elements. Sub-blocks s < 4: sc =
 * scales[s] & 63, m = scales[s + 4] & 63. Sub-blocks s >= 4: the low four bits are the nibbles of
 * scales[s + 4], the high two bits are the top bits of scales[s - 4] (sc) and scales[s] (m). q: 32
 * bytes per 64 elements, the first 32 elements in the low, the second 32 in the high nibbles. */
struct file_q4_k {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t q[128];
};

struct file_q5_k { /* Q4_K with fifth bits: bit s of high[j] belongs to sub-block s, element j */
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t high[32];
    uint8_t q[128];
};

/* w = d * scale * (q - 32), with a signed scale per 16 elements. Per 128 elements there are 64
 * bytes of low and 32 of high: element 32 * g + l has the low bits in low[l + 32 * (g & 1)] (high
 * nibble if g >= 2) and the high bits in bits 2g, 2g + 1 of high[l]. */
struct file_q6_k {
    uint8_t low[128];
    uint8_t high[64];
    int8_t scale[16];
    uint16_t d;
};

/* w = d * (scale - 32) * codebook[q], with a 6-bit scale per 32 elements. The scale of sub-block s
 * has its low four bits in nibble s % 2 of scale_lo[s / 2] and its high bits in bits 2s, 2s + 1 of
 * scale_hi. q: per 32 elements as in file_q4_0. */
struct file_iq4_xs {
    uint16_t d, scale_hi;
    uint8_t scale_lo[4];
    uint8_t q[8][16];
};

/* ---- packed */

struct p16_q4_0 {
    uint8_t q[4][16][4]; /* quad i in the low nibbles, quad i + 4 in the high nibbles */
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
    uint8_t high[16][4]; /* bit j of [row][i] is the fifth bit of element 4 * j + i */
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

struct p16_nvfp4 {
    uint8_t q[2][4][16][4]; /* per 32 elements as in p16_q4_0 */
    uint8_t e[4][16];
};

/* Scales of sub-blocks 2p and 2p + 1 (index i) of a row: scale_lo[p][row][i] has the low four bits
 * of sc and, above them, those of m. scale_hi[p & 1][row][i] has their high two bits, sc | m << 2,
 * shifted left by 4 if p >= 2. */
struct p16_q4_k {
    uint8_t q[8][4][16][4]; /* per sub-block as in p16_q4_0 */
    uint8_t scale_lo[4][16][2];
    uint8_t scale_hi[2][16][2];
    uint16_t d[16], dmin[16];
};

struct p16_q5_k {
    uint8_t q[8][4][16][4];
    /* per sub-block: bit j of [row][i] is the fifth bit of element 4 * j + i */
    uint8_t high[8][16][4];
    uint8_t scale_lo[4][16][2];
    uint8_t scale_hi[2][16][2];
    uint16_t d[16], dmin[16];
};

struct p16_q6_k {
    struct {
        uint8_t low[2][16][4]; /* quad i in the low nibbles, quad i + 2 in the high nibbles */
        uint8_t high[16][4];   /* bits 2j, 2j + 1 belong to quad j */
    } sub[16];
    int8_t scale[8][16][2]; /* sub-blocks 2p and 2p + 1 */
    uint16_t d[16];
};

struct p16_iq4_xs {
    uint8_t q[8][4][16][4];
    int8_t scale[4][16][2]; /* -32 .. 31; sub-blocks 2p and 2p + 1 */
    uint16_t d[16];
};
