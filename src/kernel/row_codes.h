/* row_codes.h: integer codes and scales of one matrix row of a packed block, for the types of
 * blocks_low_bits.h and blocks_ternary.h with blocks of 256. unpack.c computes floats from them,
 * ref_gemm.c dot products. Pure functions; any thread. */
#pragma once

#include "kernel/blocks.h"

enum { ROW_SUB_BLOCK = 16 }; /* elements per scale */

/* w = d * scale * code - dmin * min. Scales times codes fit in 16 bits. */
struct row_codes {
    float d, dmin;
    bool has_mins;
    int8_t code[QK_SUPER];
    int8_t scale[QK_SUPER / ROW_SUB_BLOCK];
    int8_t min[QK_SUPER / ROW_SUB_BLOCK];
};

/* Decodes row r (0 .. 15) of a packed block. */
typedef void (*row_codes_fn)(struct row_codes *out, const void *block, int r);

void row_codes_q2_k(struct row_codes *out, const void *block, int r);
void row_codes_q3_k(struct row_codes *out, const void *block, int r);
void row_codes_iq2_xxs(struct row_codes *out, const void *block, int r);
void row_codes_iq2_xs(struct row_codes *out, const void *block, int r);
void row_codes_iq2_s(struct row_codes *out, const void *block, int r);
void row_codes_iq3_xxs(struct row_codes *out, const void *block, int r);
void row_codes_iq3_s(struct row_codes *out, const void *block, int r);
void row_codes_iq1_s(struct row_codes *out, const void *block, int r);
void row_codes_iq1_m(struct row_codes *out, const void *block, int r);
void row_codes_tq1_0(struct row_codes *out, const void *block, int r);
void row_codes_tq2_0(struct row_codes *out, const void *block, int r);
