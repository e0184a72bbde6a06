/* ref.h: functions shared by the files of the reference set. Included only by kernels.c and
 * ref*.c. */
#pragma once

#include "kernel/kernels.h"

extern const struct kernels kernels_ref;

float ref_exp(float x);
float ref_max_magnitude(const float *x, int n); /* a NaN is larger than every number */

#define WEIGHT(TYPE, name, act, block) void ref_gemm_##name(const struct gemm_args *g);
#include "kernel/types.def"
#undef WEIGHT

void ref_sigmoid_mul(float *out, const float *gate, const float *x, int n);
void ref_softplus(float *out, const float *x, const float *bias, int n);
void ref_l2_norm(float *out, const float *x, int n, float eps, float factor);
void ref_conv(float *out, const struct conv_row *c, int n);
void ref_delta_rule(const struct state_row *s);
void ref_state_row(const struct state_row *s);

void ref_kv_append(const struct kv_slot *slot, const float *k, const float *v);
void ref_attend(const struct attn_args *a);
void ref_attend_merge(const struct attn_args *a);
