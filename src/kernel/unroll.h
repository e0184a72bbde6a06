/* unroll.h: forced inlining and loop unrolling for the vector kernels, so that the compiler keeps
 * arrays of vectors in registers. */
#pragma once

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define INLINE static inline __attribute__((always_inline))
