/* x86_amx.h: functions shared by the files of the AMX set. Included only by these files and
 * kernels.c. */
#pragma once

#include "kernel/kernels.h"

extern const struct kernels kernels_amx;

#ifdef TILES_IN_SOFTWARE /* names of the second copy, for tests */
#define amx_gemm_bf16    amx_soft_gemm_bf16
#define amx_gemm_f16     amx_soft_gemm_f16
#define amx_attend       amx_soft_attend
#define amx_attend_merge amx_soft_attend_merge
#define amx_bf16x2       amx_soft_bf16x2
#endif

void amx_gemm_bf16(const struct gemm_args *g);
void amx_gemm_f16(const struct gemm_args *g);
void amx_attend(const struct attn_args *a);
void amx_attend_merge(const struct attn_args *a);
void amx_bf16x2(const float *x, int n, void *out);
