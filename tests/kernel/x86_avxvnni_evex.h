/* x86_avxvnni_evex.h: second compilation of the AVX-VNNI set with the AVX-512 encoding (EVEX) of
 * its instruction, for processors that have that encoding. Included instead of x86_avxvnni.h. */
#pragma once

#define AVXVNNI(name) avxvnni_evex_##name
#define AVXVNNI_NAME  "avxvnni-evex"
#define DOT_ENCODING  "%{evex%}"
#include "kernel/x86/x86_avxvnni.h"

/* Fills NULL entries from AVX2. Returns false if this machine cannot run the set. */
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
