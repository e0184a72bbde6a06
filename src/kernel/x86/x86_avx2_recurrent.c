/* x86_avx2_recurrent.c: operations of recurrent layers of the AVX2 set. */
#ifndef __AVX2__
#error "compile with the AVX2 flags of the Makefile"
#endif

#include "kernel/x86/x86_avx2_vec16.h"

#include <math.h>

#define STATE_VECTORS        2
#define EACH_VECTOR_COUNT(F) F(1) F(2)
#define SET_NAME(op)         avx2_##op
#include "kernel/x86/x86_recurrent.h"
