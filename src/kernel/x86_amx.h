/* x86_amx.h: the AMX set, for kernels.c. It has products with integer dots only; floats are left
 * to AVX-512, whose sums have the order of ref.c, which tiles of bf16 do not. */
#pragma once

#include "kernel/kernels.h"

extern const struct kernels kernels_amx;
