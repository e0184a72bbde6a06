/* x86_amx_definition.h: what the AMX set computes where its sums are not those of ref.c, in plain
 * C, one output at a time. */
#pragma once

#include "kernel/kernels.h"

void amx_definition_gemm_bf16(const struct gemm_args *g);
void amx_definition_gemm_f16(const struct gemm_args *g);
void amx_definition_attend(const struct attn_args *a); /* bf16 pages are its own, others ref.c's */
