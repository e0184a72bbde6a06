/* x86_avxvnni_gemm.c: compiles x86_avx2_gemm.c with vpdpbusd, and defines the table of the set. */
#include "kernel/x86/x86_avxvnni.h"

#define BYTE_DOTS      1
#define GEMM_SET(name) AVXVNNI(name)
#include "kernel/x86/x86_avx2_gemm.c"

const struct kernels AVXVNNI(kernels) = {
    .name = AVXVNNI_NAME,
    .gemm = {
#define WEIGHT(TYPE, name, act, block) [GEMM_##TYPE] = AVXVNNI(gemm_##name),
#include "kernel/types.def"
#undef WEIGHT
    },
};
