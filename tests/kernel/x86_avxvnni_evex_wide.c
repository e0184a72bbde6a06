#include "x86_avxvnni_evex.h"

#include "kernel/x86/x86_avxvnni_gemm_wide.c"
