/* x86_avxvnni.h: the kernel set for processors with AVX-VNNI but without AVX-512: the GEMMs of AVX2
 * with vpdpbusd instead of vpmaddubsw. All other operations are those of AVX2. Included by
 * kernels.c.
 *
 * Processors with AVX-512 have the same instruction in another encoding: tests and benchmarks
 * compile the set a second time for them, with their own AVXVNNI, AVXVNNI_NAME and DOT_ENCODING. */
#pragma once

#include "kernel/kernels.h"

#ifndef AVXVNNI
#define AVXVNNI(name) avxvnni_##name
#define AVXVNNI_NAME  "avxvnni"
#endif

extern const struct kernels AVXVNNI(kernels);

#define WEIGHT(TYPE, name, act, block) void AVXVNNI(gemm_##name)(const struct gemm_args *g);
#include "kernel/types.def"
#undef WEIGHT
