/* kit_types.h: for tests: all weight types, with the sizes of their file blocks. Constant data. */
#pragma once

#include "base/base.h"
#include "base/half.h"
#include "format/qtype.h"

struct kit_type {
    enum qtype type;
    const char *name;
    int block;
    size_t bytes;            /* bytes of a block in the file */
    size_t scale_at, min_at; /* position of d and of a minimum in f16; min_at 0: none */
};

static const struct kit_type kit_types[] = {
    { Q_F32, "F32", 1, 4 },
    { Q_F16, "F16", 1, 2 },
    { Q_BF16, "BF16", 1, 2 },
    { Q_Q8_0, "Q8_0", 32, 34 },
    { Q_Q4_0, "Q4_0", 32, 18 },
    { Q_Q4_K, "Q4_K", 256, 144, 0, 2 },
    { Q_Q5_K, "Q5_K", 256, 176, 0, 2 },
    { Q_Q6_K, "Q6_K", 256, 210, 208 },
    { Q_Q4_1, "Q4_1", 32, 20, 0, 2 },
    { Q_Q5_0, "Q5_0", 32, 22 },
    { Q_Q5_1, "Q5_1", 32, 24, 0, 2 },
    { Q_IQ4_NL, "IQ4_NL", 32, 18 },
    { Q_MXFP4, "MXFP4", 32, 17 },
    { Q_IQ4_XS, "IQ4_XS", 256, 136 },
    { Q_Q2_K, "Q2_K", 256, 84, 80, 82 },
    { Q_Q3_K, "Q3_K", 256, 110, 108 },
    { Q_IQ2_XXS, "IQ2_XXS", 256, 66 },
    { Q_IQ2_XS, "IQ2_XS", 256, 74 },
    { Q_IQ2_S, "IQ2_S", 256, 82 },
    { Q_IQ3_XXS, "IQ3_XXS", 256, 98 },
    { Q_IQ3_S, "IQ3_S", 256, 110 },
    { Q_IQ1_S, "IQ1_S", 256, 50 },
    { Q_IQ1_M, "IQ1_M", 256, 56 },
    { Q_TQ1_0, "TQ1_0", 256, 54, 52 },
    { Q_TQ2_0, "TQ2_0", 256, 66, 64 },
    { Q_Q1_0, "Q1_0", 128, 18 },
    { Q_Q2_0, "Q2_0", 64, 18 },
    { Q_NVFP4, "NVFP4", 64, 36 },
    { Q_AFFINE4_32, "AFFINE4_32", 32, 24 },
    { Q_AFFINE4_64, "AFFINE4_64", 64, 40 },
    { Q_AFFINE8_32, "AFFINE8_32", 32, 40 },
    { Q_AFFINE8_64, "AFFINE8_64", 64, 72 },
    { Q_FP8_32, "FP8_32", 32, 36 },
    { Q_FP8_128, "FP8_128", 128, 132 },
    { Q_MXFP8, "MXFP8", 32, 33 },
    { Q_AFFINE2_32, "AFFINE2_32", 32, 16 },
    { Q_AFFINE2_64, "AFFINE2_64", 64, 24 },
    { Q_AFFINE3_32, "AFFINE3_32", 32, 20 },
    { Q_AFFINE3_64, "AFFINE3_64", 64, 32 },
    { Q_AFFINE5_32, "AFFINE5_32", 32, 28 },
    { Q_AFFINE5_64, "AFFINE5_64", 64, 48 },
    { Q_AFFINE6_32, "AFFINE6_32", 32, 32 },
    { Q_AFFINE6_64, "AFFINE6_64", 64, 56 },
};
enum { KIT_N_TYPES = ARRAY_LEN(kit_types) };

/* Writes d as f16. IQ1_M has four bits of it in each of four words. */
static inline void kit_put_scale(const struct kit_type *t, uint8_t *block, uint16_t d)
{
    if (t->type == Q_IQ1_M)
        for (int i = 0; i < 4; i++)
            block[49 + 2 * i] = (uint8_t)((block[49 + 2 * i] & 15) | (d >> (4 * i) & 15) << 4);
    else
        memcpy(block + t->scale_at, &d, 2);
}

static inline bool kit_is_affine(enum qtype type)
{
    return (type >= Q_AFFINE4_32 && type <= Q_AFFINE8_64) ||
           (type >= Q_AFFINE2_32 && type <= Q_AFFINE6_64);
}

static inline bool kit_is_fp8(enum qtype type)
{
    return type == Q_FP8_32 || type == Q_FP8_128;
}

/* Scale and offset are f32 at the start of the block; here of the precision of bf16, so that a
 * product with a code is exact. */
static inline void kit_put_affine(uint8_t *block, float scale, float offset)
{
    const float rounded[2] = { bf16_to_f32(f32_to_bf16(scale)), bf16_to_f32(f32_to_bf16(offset)) };

    memcpy(block, rounded, sizeof(rounded));
}
