/* x86_amx_tile.h: the tile instructions, in hardware or in software. For x86_amx.c alone.
 *
 * Eight tiles of up to 16 rows x 64 bytes, per thread; a configuration gives each its size, and
 * until there is one they cannot be used. Tile numbers are literals 0 .. 7.
 *
 *   TILE_LOAD(t, from, stride)    rows of the tile from memory
 *   TILE_STORE(t, to, stride)
 *   TILE_ZERO(t)
 *   TILE_DOT_SS(c, a, b)          c[m][n] += sum over k of a[m][k] * b[k / 4][n][k % 4], in int32
 *   TILE_DOT_SU(c, a, b)          the same; b is unsigned
 *   tile_configure, tile_release  around their use, in one function call: a thread that waits
 *                                 has no tiles that the system would have to save
 *
 * Own assembly because gcc 12 drops stores before _tile_loadconfig, whose operand it takes for
 * 8 bytes, and its loads and stores of tiles do not clobber memory. No compiler keeps anything in
 * tiles by itself, so they need not be named as clobbered.
 *
 * With TILES_IN_SOFTWARE a unit in plain C stands in, which aborts wherever the hardware would
 * raise an exception: what the tests run where there is no hardware. (Intel's manual, volume 2A,
 * LDTILECFG, TILELOADD, TDPBSSD, and volume 1, chapter 18.) */
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
#define TILE_DOT_SU(c, a, b) __asm__ volatile("tdpbsud %tmm" #b ", %tmm" #a ", %tmm" #c)

#else

struct tile_unit {
    bool is_configured;
    struct tile_config c;
    uint8_t tile[N_TILES][TILE_ROWS][TILE_ROW_BYTES];
};

static _Thread_local struct tile_unit tile_unit;

/* #GP */
static inline void tile_configure(const struct tile_config *c)
{
    struct tile_unit *u = &tile_unit;

    CHECK(c->palette == 1 && c->start_row == 0);
    for (int i = 0; i < (int)sizeof(c->zero); i++)
        CHECK(c->zero[i] == 0);
    for (int i = 0; i < 16; i++) {
        CHECK(c->rows[i] <= (i < N_TILES ? TILE_ROWS : 0));
        CHECK(c->row_bytes[i] <= (i < N_TILES ? TILE_ROW_BYTES : 0));
        CHECK(!c->rows[i] == !c->row_bytes[i]);
    }
    u->c = *c;
    u->is_configured = true;
    memset(u->tile, 0, sizeof(u->tile));
}

static inline void tile_release(void)
{
    memset(&tile_unit, 0, sizeof(tile_unit));
}

/* #UD */
static inline struct tile_unit *tile_used(int t)
{
    CHECK(tile_unit.is_configured && t >= 0 && t < N_TILES && tile_unit.c.rows[t]);
    return &tile_unit;
}

static inline void tile_load(int t, const uint8_t *from, size_t stride)
{
    struct tile_unit *u = tile_used(t);

    memset(u->tile[t], 0, sizeof(u->tile[t])); /* what is beyond its size */
    for (int r = 0; r < u->c.rows[t]; r++)
        memcpy(u->tile[t][r], from + (size_t)r * stride, u->c.row_bytes[t]);
}

static inline void tile_store(int t, uint8_t *to, size_t stride)
{
    struct tile_unit *u = tile_used(t);

    for (int r = 0; r < u->c.rows[t]; r++)
        memcpy(to + (size_t)r * stride, u->tile[t][r], u->c.row_bytes[t]);
}

static inline void tile_zero(int t)
{
    memset(tile_used(t)->tile[t], 0, sizeof(tile_unit.tile[t]));
}

static inline void tile_dot(int c, int a, int b, bool b_is_unsigned)
{
    struct tile_unit *u = tile_used(c);
    const struct tile_config *size = &tile_used(a)->c;

    CHECK(tile_used(b) && c != a && c != b && a != b);
    CHECK(size->row_bytes[c] % 4 == 0 && size->row_bytes[a] % 4 == 0);
    CHECK(size->rows[c] == size->rows[a] && size->row_bytes[c] == size->row_bytes[b]);
    CHECK(size->rows[b] == size->row_bytes[a] / 4);
    for (int m = 0; m < size->rows[c]; m++) {
        int32_t sum[TILE_ROW_BYTES / 4];
        memcpy(sum, u->tile[c][m], sizeof(sum));
        for (int k = 0; k < size->row_bytes[a]; k++) {
            int x = (int8_t)u->tile[a][m][k];
            const uint8_t *w = &u->tile[b][k / 4][k % 4];
            for (int n = 0; n < size->row_bytes[c] / 4; n++)
                sum[n] += x * (b_is_unsigned ? w[4 * n] : (int8_t)w[4 * n]);
        }
        memcpy(u->tile[c][m], sum, sizeof(sum));
    }
}

#define TILE_LOAD(t, from, stride)                                                                 \
    tile_load(t, (const uint8_t *)(const void *)(from), (size_t)(stride))
#define TILE_STORE(t, to, stride) tile_store(t, (uint8_t *)(void *)(to), (size_t)(stride))
#define TILE_ZERO(t)              tile_zero(t)
#define TILE_DOT_SS(c, a, b)      tile_dot(c, a, b, false)
#define TILE_DOT_SU(c, a, b)      tile_dot(c, a, b, true)
#endif
