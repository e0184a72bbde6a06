/* x86_avxvnni_evex.h: the AVX-VNNI set with AVX-512's encoding of its instruction, for processors
 * that have only that one (or both). Instead of x86_avxvnni.h. */
#pragma once

#define AVXVNNI(name) avxvnni_evex_##name
#define AVXVNNI_NAME  "avxvnni-evex"
#define DOT_ENCODING  "%{evex%}"
#include "kernel/x86/x86_avxvnni.h"

/* Its gaps filled from AVX2's. False: it does not run here. */
static inline bool avxvnni_evex_choose(struct kernels *out)
{
    const struct kernels *k;
    struct err e;

    if (kernels_choose(&k, "avx512", &e) || kernels_choose(&k, "avx2", &e))
        return false;
    *out = *k;
    out->name = avxvnni_evex_kernels.name;
    memcpy(out->gemm, avxvnni_evex_kernels.gemm, sizeof(out->gemm));
    return true;
}
