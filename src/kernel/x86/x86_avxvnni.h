/* x86_avxvnni.h: the set for processors with AVX-VNNI and no AVX-512: products, which are those of
 * AVX2 with vpdpbusd in place of vpmaddubsw. The rest is AVX2's. For kernels.c.
 *
 * Processors with AVX-512 have the same instruction in another encoding: tests and bench compile
 * the set once more for them, with AVXVNNI, AVXVNNI_NAME and DOT_ENCODING of their own. */
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
