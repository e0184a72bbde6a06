/* x86_avxvnni_evex_low_bits.c: compiles x86_avxvnni_gemm_low_bits.c with the AVX-512 encoding. */
#include "x86_avxvnni_evex.h"

#include "kernel/x86/x86_avxvnni_gemm_low_bits.c"
