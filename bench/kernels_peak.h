/* kernels_peak.h: the most multiply-adds a thread can do, measured: many independent products of a
 * set's widest instruction and nothing else. Runs what it is asked for: only for sets that run
 * here. */
#pragma once

#include "kernel/cpu.h"
#include "kernel/gemm.h"
#include "kernel/x86_amx_tile.h"

#if defined(__x86_64__)

enum { PEAK_ROUNDS = 20000, PEAK_CHAINS = 8 };

#define PEAK_4(i, a, b, c, d) i #a "\n" i #b "\n" i #c "\n" i #d "\n"
#define PEAK_CLOBBERS         "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8"
#define PEAK_LOOP(ins)                                                                             \
    for (int i = 0; i < PEAK_ROUNDS; i++)                                                          \
    __asm__ volatile(PEAK_4(ins, 1, 2, 3, 4) PEAK_4(ins, 5, 6, 7, 8) : : : PEAK_CLOBBERS)

static inline void peak_tiles(bool bytes)
{
    static const struct tile_config c = {
        .palette = 1, .row_bytes = { 64, 64, 64, 64, 64, 64 }, .rows = { 16, 16, 16, 16, 16, 16 }
    };

    tile_configure(&c);
    for (int i = 0; i < PEAK_ROUNDS / 8 && !bytes; i++) {
        TILE_DOT_BF16(0, 4, 5);
        TILE_DOT_BF16(1, 4, 5);
        TILE_DOT_BF16(2, 4, 5);
        TILE_DOT_BF16(3, 4, 5);
    }
    for (int i = 0; i < PEAK_ROUNDS / 8 && bytes; i++) {
        TILE_DOT_SS(0, 4, 5);
        TILE_DOT_SS(1, 4, 5);
        TILE_DOT_SS(2, 4, 5);
        TILE_DOT_SS(3, 4, 5);
    }
    tile_release();
}

/* vpdpbusd of AVX-VNNI is not there, so that of AVX-512 is measured. CPUID takes long: ask once. */
static bool peak_is_evex;

/* Does it; returns how many multiply-adds that were. 0: this set has no such roof. */
static inline double peak_work(const char *set, enum act_kind kind)
{
    const double n = (double)PEAK_ROUNDS * PEAK_CHAINS;
    bool bytes = kind == ACT_Q8_0 || kind == ACT_Q8_K;

    if (!strcmp(set, "amx") && kind != ACT_F32) { /* one of planes is two of bf16 */
        peak_tiles(bytes);
        return (double)(PEAK_ROUNDS / 8) * 4 * 16 * 16 * (bytes ? 64 : 16);
    }
    if (!strcmp(set, "avx512") || !strcmp(set, "amx")) {
        __asm__ volatile("vpxord %%zmm0, %%zmm0, %%zmm0" : : : "xmm0");
        if (bytes)
            PEAK_LOOP("vpdpbusd %%zmm0, %%zmm0, %%zmm");
        else
            PEAK_LOOP("vfmadd231ps %%zmm0, %%zmm0, %%zmm");
        __asm__ volatile("vzeroupper");
        return n * (bytes ? 64 : 16);
    }
    if (!strcmp(set, "avxvnni") && bytes) {
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
        if (bytes)
            PEAK_LOOP("vpmaddubsw %%ymm0, %%ymm0, %%ymm");
        else
            PEAK_LOOP("vfmadd231ps %%ymm0, %%ymm0, %%ymm");
        __asm__ volatile("vzeroupper");
        return n * (bytes ? 32 : 8);
    }
    return 0;
}

#else

static inline double peak_work(const char *set, enum act_kind kind)
{
    return 0;
}

#endif
