/* kernels_peak.h: measured peak of multiply-adds of one thread: a loop with independent dependency
 * chains of a kernel set's widest instruction. The caller must ensure that the CPU has the set.
 * Pure functions except peak_is_evex; any thread. */
#pragma once

#include "kernel/cpu.h"
#include "kernel/gemm.h"
#include "kernel/x86/x86_amx_tile.h"

#if defined(__x86_64__)

enum { PEAK_ROUNDS = 20000, PEAK_CHAINS = 8 };

#define PEAK_4(i, a, b, c, d) i #a "\n" i #b "\n" i #c "\n" i #d "\n"
#define PEAK_CLOBBERS         "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8"
#define PEAK_LOOP(ins)                                                                             \
    for (int i = 0; i < PEAK_ROUNDS; i++)                                                          \
    __asm__ volatile(PEAK_4(ins, 1, 2, 3, 4) PEAK_4(ins, 5, 6, 7, 8) : : : PEAK_CLOBBERS)

static inline void peak_tiles(bool is_int8)
{
    static const struct tile_config c = {
        .palette = 1, .row_bytes = { 64, 64, 64, 64, 64, 64 }, .rows = { 16, 16, 16, 16, 16, 16 }
    };

    tile_configure(&c);
    for (int i = 0; i < PEAK_ROUNDS / 8 && !is_int8; i++) {
        TILE_DOT_BF16(0, 4, 5);
        TILE_DOT_BF16(1, 4, 5);
        TILE_DOT_BF16(2, 4, 5);
        TILE_DOT_BF16(3, 4, 5);
    }
    for (int i = 0; i < PEAK_ROUNDS / 8 && is_int8; i++) {
        TILE_DOT_SS(0, 4, 5);
        TILE_DOT_SS(1, 4, 5);
        TILE_DOT_SS(2, 4, 5);
        TILE_DOT_SS(3, 4, 5);
    }
    tile_release();
}

/* Adds vectors in the L1 cache (a[i] += b[i]) with the set's widest registers. n is a multiple of
 * 64. Returns the number of bytes read and written. */
#define PEAK_ADD_4(reg, w0, w1, w2, w3)                                                            \
    "vmovups " w0 "(%0), %%" reg "0\nvmovups " w1 "(%0), %%" reg "1\n"                             \
    "vmovups " w2 "(%0), %%" reg "2\nvmovups " w3 "(%0), %%" reg "3\n"                             \
    "vaddps " w0 "(%1), %%" reg "0, %%" reg "0\nvaddps " w1 "(%1), %%" reg "1, %%" reg "1\n"       \
    "vaddps " w2 "(%1), %%" reg "2, %%" reg "2\nvaddps " w3 "(%1), %%" reg "3, %%" reg "3\n"       \
    "vmovups %%" reg "0, " w0 "(%0)\nvmovups %%" reg "1, " w1 "(%0)\n"                             \
    "vmovups %%" reg "2, " w2 "(%0)\nvmovups %%" reg "3, " w3 "(%0)\n"

static inline double peak_l1(const char *set, float *a, const float *b, int n)
{
    bool is_wide = !strcmp(set, "avx512") || !strcmp(set, "amx");

    for (int i = 0; i < n; i += is_wide ? 64 : 32)
        if (is_wide)
            __asm__ volatile(PEAK_ADD_4("zmm", "0", "64", "128", "192")
                             :
                             : "r"(a + i), "r"(b + i)
                             : "xmm0", "xmm1", "xmm2", "xmm3", "memory");
        else
            __asm__ volatile(PEAK_ADD_4("ymm", "0", "32", "64", "96")
                             :
                             : "r"(a + i), "r"(b + i)
                             : "xmm0", "xmm1", "xmm2", "xmm3", "memory");
    __asm__ volatile("vzeroupper");
    return 12.0 * n;
}

/* The CPU lacks AVX-VNNI: measure the EVEX encoding of vpdpbusd (AVX-512 VNNI). Set once by
 * choose_set() in kernels.c, since CPUID is slow. */
static bool peak_is_evex;

/* Runs the loop and returns its number of multiply-adds. 0: the set has no such instruction. */
static inline double peak_work(const char *set, enum act_kind kind)
{
    const double n = (double)PEAK_ROUNDS * PEAK_CHAINS;
    bool is_int8 = kind == ACT_Q8_0 || kind == ACT_Q8_K;

    if (!strcmp(set, "amx") && kind != ACT_F32) { /* ACT_BF16X2: two bf16 products per element */
        peak_tiles(is_int8);
        return (double)(PEAK_ROUNDS / 8) * 4 * 16 * 16 * (is_int8 ? 64 : 16);
    }
    if (!strcmp(set, "avx512") || !strcmp(set, "amx")) {
        __asm__ volatile("vpxord %%zmm0, %%zmm0, %%zmm0" : : : "xmm0");
        if (is_int8)
            PEAK_LOOP("vpdpbusd %%zmm0, %%zmm0, %%zmm");
        else
            PEAK_LOOP("vfmadd231ps %%zmm0, %%zmm0, %%zmm");
        __asm__ volatile("vzeroupper");
        return n * (is_int8 ? 64 : 16);
    }
    if (!strcmp(set, "avxvnni") && is_int8) {
        __asm__ volatile("vpxor %%ymm0, %%ymm0, %%ymm0" : : : "xmm0");
        if (peak_is_evex)
            PEAK_LOOP("%{evex%} vpdpbusd %%ymm0, %%ymm0, %%ymm");
        else
            PEAK_LOOP("%{vex%} vpdpbusd %%ymm0, %%ymm0, %%ymm");
        __asm__ volatile("vzeroupper");
        return n * 32;
    }
    if (!strcmp(set, "avx2") || !strcmp(set, "avxvnni")) {
        __asm__ volatile("vpxor %%ymm0, %%ymm0, %%ymm0" : : : "xmm0");
        if (is_int8)
            PEAK_LOOP("vpmaddubsw %%ymm0, %%ymm0, %%ymm");
        else
            PEAK_LOOP("vfmadd231ps %%ymm0, %%ymm0, %%ymm");
        __asm__ volatile("vzeroupper");
        return n * (is_int8 ? 32 : 8);
    }
    return 0;
}

#else

static inline double peak_work(const char *set, enum act_kind kind)
{
    return 0;
}

static inline double peak_l1(const char *set, float *a, const float *b, int n)
{
    for (int i = 0; i < n; i++)
        a[i] += b[i];
    return 12.0 * n;
}

#endif
