/* unroll.h: for the files of vectors: what must be inlined, and loops that must be unrolled, so
 * that arrays of vectors become registers. */
#pragma once

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define INLINE static inline __attribute__((always_inline))
