#include "format/qtype.h"

static const struct qtype_info types[] = {
    [Q_F32] = { "F32", 1, 4, true, true },
    [Q_F16] = { "F16", 1, 2, true, true },
    [Q_Q4_0] = { "Q4_0", 32, 18, true, true },
    [Q_Q4_1] = { "Q4_1", 32, 20, true, true },
    [Q_Q5_0] = { "Q5_0", 32, 22, true, true },
    [Q_Q5_1] = { "Q5_1", 32, 24, true, true },
    [Q_Q8_0] = { "Q8_0", 32, 34, true, true },
    [9] = { "Q8_1", 32, 36, false, true },
    [Q_Q2_K] = { "Q2_K", 256, 84, true, true },
    [Q_Q3_K] = { "Q3_K", 256, 110, true, true },
    [Q_Q4_K] = { "Q4_K", 256, 144, true, true },
    [Q_Q5_K] = { "Q5_K", 256, 176, true, true },
    [Q_Q6_K] = { "Q6_K", 256, 210, true, true },
    [15] = { "Q8_K", 256, 292, false, true },
    [Q_IQ4_NL] = { "IQ4_NL", 32, 18, true, true },
    [Q_IQ4_XS] = { "IQ4_XS", 256, 136, true, true },
    [Q_MXFP4] = { "MXFP4", 32, 17, true, true },
    [Q_NVFP4] = { "NVFP4", 64, 36, true, true },
    [Q_Q1_0] = { "Q1_0", 128, 18, true, true },
    [Q_Q2_0] = { "Q2_0", 64, 18, true, true },
    [Q_IQ2_XXS] = { "IQ2_XXS", 256, 66, true, true },
    [Q_IQ2_XS] = { "IQ2_XS", 256, 74, true, true },
    [Q_IQ3_XXS] = { "IQ3_XXS", 256, 98, true, true },
    [Q_IQ1_S] = { "IQ1_S", 256, 50, true, true },
    [Q_IQ3_S] = { "IQ3_S", 256, 110, true, true },
    [Q_IQ2_S] = { "IQ2_S", 256, 82, true, true },
    [Q_IQ1_M] = { "IQ1_M", 256, 56, true, true },
    [Q_TQ1_0] = { "TQ1_0", 256, 54, true, true },
    [Q_TQ2_0] = { "TQ2_0", 256, 66, true, true },
    /* Without kernels: name and size for `inspect` and error messages. */
    [Q_I8] = { "I8", 1, 1, false, true },
    [Q_I16] = { "I16", 1, 2, false, true },
    [Q_I32] = { "I32", 1, 4, false, true },
    [27] = { "I64", 1, 8, false, true },
    [28] = { "F64", 1, 8, false, true },
    [Q_BF16] = { "BF16", 1, 2, true, true },
    [Q_AFFINE4_32] = { "AFFINE4_32", 32, 24, true, false },
    [Q_AFFINE4_64] = { "AFFINE4_64", 64, 40, true, false },
    [Q_AFFINE8_32] = { "AFFINE8_32", 32, 40, true, false },
    [Q_AFFINE8_64] = { "AFFINE8_64", 64, 72, true, false },
    [Q_FP8_32] = { "FP8_32", 32, 36, true, false },
    [Q_FP8_128] = { "FP8_128", 128, 132, true, false },
    [Q_MXFP8] = { "MXFP8", 32, 33, true, false },
    [Q_AFFINE2_32] = { "AFFINE2_32", 32, 16, true, false },
    [Q_AFFINE2_64] = { "AFFINE2_64", 64, 24, true, false },
    [Q_AFFINE3_32] = { "AFFINE3_32", 32, 20, true, false },
    [Q_AFFINE3_64] = { "AFFINE3_64", 64, 32, true, false },
    [Q_AFFINE5_32] = { "AFFINE5_32", 32, 28, true, false },
    [Q_AFFINE5_64] = { "AFFINE5_64", 64, 48, true, false },
    [Q_AFFINE6_32] = { "AFFINE6_32", 32, 32, true, false },
    [Q_AFFINE6_64] = { "AFFINE6_64", 64, 56, true, false },
};

const struct qtype_info *qtype_info(uint32_t type)
{
    return type < ARRAY_LEN(types) && types[type].name ? &types[type] : NULL;
}

bool qtype_bytes(enum qtype type, uint64_t n, uint64_t *bytes)
{
    const struct qtype_info *q = qtype_info((uint32_t)type);

    return q && n % q->block == 0 && !__builtin_mul_overflow(n / q->block, q->block_bytes, bytes);
}
