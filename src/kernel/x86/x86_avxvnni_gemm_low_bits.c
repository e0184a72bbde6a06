/* x86_avxvnni_gemm_low_bits.c: compiles x86_avx2_gemm_low_bits.c with vpdpbusd. */
#include "kernel/x86/x86_avxvnni.h"

#define BYTE_DOTS      1
#define GEMM_SET(name) AVXVNNI(name)
#include "kernel/x86/x86_avx2_gemm_low_bits.c"
