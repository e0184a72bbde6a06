/* x86_amx_tile.h: the tile instructions, in hardware or in software. For x86_amx*.c, and for what
 * measures the unit.
 *
 * Eight tiles of up to 16 rows x 64 bytes, per thread; a configuration gives each its size, and
 * until there is one they cannot be used. Tile numbers are literals 0 .. 7.
 *
 *   TILE_LOAD(t, from, stride)    rows of the tile from memory
 *   TILE_STORE(t, to, stride)
 *   TILE_ZERO(t)
 *   TILE_DOT_SS(c, a, b)          c[m][n] += sum over k of a[m][k] * b[k / 4][n][k % 4], in int32
 *   TILE_DOT_SU(c, a, b)          the same; b is unsigned
 *   TILE_DOT_BF16(c, a, b)        c[m][n] += sum over k of a[m][k] * b[k / 2][n][k % 2], in float:
 *                                 one chain of fma over even k from 0, one over odd k, and c gains
 *                                 what both come to. Subnormals count as zero and become zero,
 *                                 rounding is to nearest even, whatever MXCSR says
 *   tile_configure, tile_release  around their use, in one function call: a thread that waits
 *                                 has no tiles that the system would have to save
 *
 * Own assembly because gcc 12 drops stores before _tile_loadconfig, whose operand it takes for
 * 8 bytes, and its loads and stores of tiles do not clobber memory. No compiler keeps anything in
 * tiles by itself, so they need not be named as clobbered.
 *
 * With TILES_IN_SOFTWARE a unit in plain C stands in (x86_amx_tile_soft.h). (Intel's manual,
 * volume 2, LDTILECFG, TILELOADD, TDPBSSD, TDPBF16PS, and volume 1, chapter 18.) */
#pragma once

#include "base/base.h"

enum { N_TILES = 8, TILE_ROWS = 16, TILE_ROW_BYTES = 64 };

struct tile_config { /* 64 bytes, as LDTILECFG reads them */
    uint8_t palette; /* 1: eight tiles of 1 kB */
    uint8_t start_row;
    uint8_t zero[14];
    uint16_t row_bytes[16]; /* 8 .. 15: 0 */
    uint8_t rows[16];       /* likewise; 0 x 0: a tile that is not used */
};

#ifndef TILES_IN_SOFTWARE

static inline void tile_configure(const struct tile_config *c)
{
    __asm__ volatile("ldtilecfg %0" : : "m"(*c) : "memory");
}

static inline void tile_release(void)
{
    __asm__ volatile("tilerelease" : : : "memory");
}

#define TILE_LOAD(t, from, stride)                                                                 \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t                                               \
                     :                                                                             \
                     : "r"((const void *)(from)), "r"((size_t)(stride))                            \
                     : "memory")
#define TILE_STORE(t, to, stride)                                                                  \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)"                                           \
                     :                                                                             \
                     : "r"((void *)(to)), "r"((size_t)(stride))                                    \
                     : "memory")
#define TILE_ZERO(t) __asm__ volatile("tilezero %tmm" #t)
#define TILE_DOT_SS(c, a, b)                                                                       \
    __asm__ volatile("tdpbssd %tmm" #b ", %tmm" #a ", %tmm" #c) /* AT&T: the last is written */
#define TILE_DOT_SU(c, a, b)   __asm__ volatile("tdpbsud %tmm" #b ", %tmm" #a ", %tmm" #c)
#define TILE_DOT_BF16(c, a, b) __asm__ volatile("tdpbf16ps %tmm" #b ", %tmm" #a ", %tmm" #c)

#else
#include "kernel/x86/x86_amx_tile_soft.h"

#define tile_configure(c) tile_soft_configure(c)
#define tile_release()    tile_soft_release()
#define TILE_LOAD(t, from, stride)                                                                 \
    tile_load(t, (const uint8_t *)(const void *)(from), (size_t)(stride))
#define TILE_STORE(t, to, stride) tile_store(t, (uint8_t *)(void *)(to), (size_t)(stride))
#define TILE_ZERO(t)              tile_zero(t)
#define TILE_DOT_SS(c, a, b)      tile_dot(c, a, b, false)
#define TILE_DOT_SU(c, a, b)      tile_dot(c, a, b, true)
#define TILE_DOT_BF16(c, a, b)    tile_dot_bf16(c, a, b)
#endif
