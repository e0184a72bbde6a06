/* ref.h: how ref.c, the definition, is spread over its files. For kernels.c and ref_*.c only. */
#pragma once

#include "kernel/kernels.h"

extern const struct kernels kernels_ref;

float ref_exp(float x);
float ref_max_magnitude(const float *x, int n); /* any NaN wins */

#define WEIGHT(TYPE, name, act, block) void ref_gemm_##name(const struct gemm_args *g);
#include "kernel/types.def"
#undef WEIGHT

void ref_kv_append(const struct kv_slot *slot, const float *k, const float *v);
void ref_attend(const struct attn_args *a);
void ref_attend_merge(const struct attn_args *a);
