/* x86_amx_float_soft.c: compiles GEMM of float weights with emulated tiles. */
#define TILES_IN_SOFTWARE
#include "kernel/x86/x86_amx_float.c"
