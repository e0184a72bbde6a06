/* x86_amx_tile.h: AMX tile instructions, in hardware or emulated in C. For x86_amx*.c and the
 * benchmark of the tile unit.
 *
 * Each thread has eight tiles of up to 16 rows x 64 bytes; a configuration defines the size of each
 * tile and is required before any use. Tile numbers are literals 0 .. 7.
 *
 *   TILE_LOAD(t, from, stride)    loads the rows of the tile from memory
 *   TILE_STORE(t, to, stride)
 *   TILE_ZERO(t)
 *   TILE_DOT_SS(c, a, b)          c[m][n] += sum over k of a[m][k] * b[k / 4][n][k % 4], in int32
 *   TILE_DOT_SU(c, a, b)          the same with unsigned b
 *   TILE_DOT_BF16(c, a, b)        c[m][n] += sum over k of a[m][k] * b[k / 2][n][k % 2], in float:
 *                                 one fma chain over even k from 0, one over odd k; their sum is
 *                                 added to c. Subnormals count as zero and become zero; rounding is
 *                                 to nearest even; both are independent of MXCSR
 *   tile_configure, tile_release  used around these in one function call, so that a waiting thread
 *                                 has no tiles that the system would have to save
 *
 * The instructions are inline assembly because gcc 12 drops stores before _tile_loadconfig, whose
 * operand it treats as 8 bytes, and its tile loads and stores do not clobber memory. Compilers
 * never keep values in tiles, so the tiles need not be declared as clobbered.
 *
 * TILES_IN_SOFTWARE replaces the instructions by C functions (x86_amx_tile_soft.h). Reference:
 * Intel's manual, volume 2, LDTILECFG, TILELOADD, TDPBSSD, TDPBF16PS, and volume 1, chapter 18. */
#pragma once

#include "base/base.h"

enum { N_TILES = 8, TILE_ROWS = 16, TILE_ROW_BYTES = 64 };

struct tile_config { /* 64 bytes, the operand of LDTILECFG */
    uint8_t palette; /* 1: eight tiles of 1 kB */
    uint8_t start_row;
    uint8_t zero[14];
    uint16_t row_bytes[16]; /* entries 8 .. 15: 0 */
    uint8_t rows[16];       /* entries 8 .. 15: 0; 0 rows and 0 bytes: an unused tile */
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
    __asm__ volatile("tdpbssd %tmm" #b ", %tmm" #a                                                 \
                     ", %tmm" #c) /* AT&T syntax: the last operand is the destination */
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
