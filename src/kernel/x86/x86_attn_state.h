/* x86_attn_state.h: operations on attention states in vectors of 16 lanes. The including file has
 * included x86_avx2_vec16.h or x86_avx512_vec16.h. */
#pragma once

#include "kernel/attn.h"

#include <math.h>

#ifdef __AVX2__
/* Merges the later split into the earlier one (total). */
static void merge_states(struct attn_state total, struct attn_state split, int dim)
{
    float a = *total.max, b = *split.max, max = b > a ? b : a;
    float total_factor = exp1(a - max), split_factor = exp1(b - max);

    *total.max = max;
    *total.sum = fmaf(*split.sum, split_factor, *total.sum * total_factor);
    for (int d = 0; d < dim; d += 16) {
        vec16 v = mul16(load16(total.out + d), all16(total_factor));
        store16(total.out + d, fma16(load16(split.out + d), all16(split_factor), v));
    }
}
#endif
