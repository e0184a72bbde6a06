/* x86_amx_definition.h: definition in plain C, one output at a time, of the results of the AMX set
 * that differ from those of ref.c. */
#pragma once

#include "kernel/kernels.h"

void amx_definition_gemm_bf16(const struct gemm_args *g);
void amx_definition_gemm_f16(const struct gemm_args *g);
void amx_definition_attend(
    const struct attn_args *a); /* calls ref.c where AMX leaves the work to AVX-512 */
