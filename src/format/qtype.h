/* qtype.h: number formats of weights, with the type ids of GGUF (ggml).
 *
 * A row of a tensor is a whole number of blocks. Constant data; any thread. */
#pragma once

#include "base/base.h"

enum qtype {
    Q_F32 = 0,
    Q_F16 = 1,
    Q_Q4_0 = 2,
    Q_Q4_1 = 3,
    Q_Q5_0 = 6,
    Q_Q5_1 = 7,
    Q_Q8_0 = 8,
    Q_Q2_K = 10,
    Q_Q3_K = 11,
    Q_Q4_K = 12,
    Q_Q5_K = 13,
    Q_Q6_K = 14,
    Q_IQ2_XXS = 16,
    Q_IQ2_XS = 17,
    Q_IQ3_XXS = 18,
    Q_IQ1_S = 19,
    Q_IQ4_NL = 20,
    Q_IQ3_S = 21,
    Q_IQ2_S = 22,
    Q_IQ4_XS = 23,
    Q_I8 = 24,
    Q_I16 = 25,
    Q_I32 = 26,
    Q_IQ1_M = 29,
    Q_BF16 = 30,
    Q_TQ1_0 = 34,
    Q_TQ2_0 = 35,
    Q_MXFP4 = 39,
    Q_NVFP4 = 40,
    Q_Q1_0 = 41,
    Q_Q2_0 = 42,
    /* Not in GGUF files: unsigned codes of 4 or 8 bits with a scale and an offset per group of 32
     * or 64, w = scale * q + offset (MLX "affine"). A block: f32 scale, f32 offset, codes; 4 bits:
     * per 32 elements in the order of Q4_0. */
    Q_AFFINE4_32 = 60,
    Q_AFFINE4_64 = 61,
    Q_AFFINE8_32 = 62,
    Q_AFFINE8_64 = 63,
    /* Not in GGUF files: E4M3 numbers times a scale. A block: f32 scale and 32 or 128 numbers;
     * MXFP8: E8M0 scale and 32 numbers. */
    Q_FP8_32 = 64,
    Q_FP8_128 = 65,
    Q_MXFP8 = 66,
    /* These types differ from Q_AFFINE8_* in the codes: 2, 3, 5 or 6 bits in the order of a
     * little-endian bit stream. */
    Q_AFFINE2_32 = 67,
    Q_AFFINE2_64 = 68,
    Q_AFFINE3_32 = 69,
    Q_AFFINE3_64 = 70,
    Q_AFFINE5_32 = 71,
    Q_AFFINE5_64 = 72,
    Q_AFFINE6_32 = 73,
    Q_AFFINE6_64 = 74,
};

enum { N_QTYPES = 75 };

struct qtype_info {
    const char *name;
    uint32_t block;       /* elements per block */
    uint32_t block_bytes; /* bytes per block in the file */
    bool is_supported;    /* kernels exist; other types are known only for errors and `inspect` */
    bool is_ggml;         /* may be in a GGUF file */
};

/* NULL for an unknown id. */
const struct qtype_info *qtype_info(uint32_t type);

/* Bytes of n elements; false if n is not a multiple of the block or the product overflows. */
bool qtype_bytes(enum qtype type, uint64_t n, uint64_t *bytes);
