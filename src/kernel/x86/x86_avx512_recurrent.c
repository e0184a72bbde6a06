/* x86_avx512_recurrent.c: operations of recurrent layers of the AVX-512 set. */
#ifndef __AVX512F__
#error "compile with the AVX-512 flags of the Makefile"
#endif

#include "kernel/x86/x86_avx512_vec16.h"

#include <math.h>

#define STATE_VECTORS        4
#define EACH_VECTOR_COUNT(F) F(1) F(2) F(3) F(4)
#define SET_NAME(op)         avx512_##op
#include "kernel/x86/x86_recurrent.h"
