/* x86_avxvnni_evex.c: compiles x86_avxvnni_gemm.c with the AVX-512 encoding. */
#include "x86_avxvnni_evex.h"

#include "kernel/x86/x86_avxvnni_gemm.c"
