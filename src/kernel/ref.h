/* ref.h: how ref.c, the definition, is spread over its files. For kernels.c and ref_*.c only. */
#pragma once

#include "kernel/kernels.h"

extern const struct kernels kernels_ref;

float ref_exp(float x);
float ref_max_magnitude(const float *x, int n); /* any NaN wins */

void ref_gemm_f32(const struct gemm_args *g);
void ref_gemm_f16(const struct gemm_args *g);
void ref_gemm_bf16(const struct gemm_args *g);
void ref_gemm_q8_0(const struct gemm_args *g);
void ref_gemm_q4_0(const struct gemm_args *g);
void ref_gemm_q4_k(const struct gemm_args *g);
void ref_gemm_q5_k(const struct gemm_args *g);
void ref_gemm_q6_k(const struct gemm_args *g);

void ref_kv_append(const struct kv_slot *slot, const float *k, const float *v);
void ref_attend(const struct attn_args *a);
