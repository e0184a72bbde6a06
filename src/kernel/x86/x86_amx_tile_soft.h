/* x86_amx_tile_soft.h: emulation in C of the tiles of x86_amx_tile.h, for tests on machines without
 * AMX. It aborts wherever hardware would raise an exception. */
#pragma once

#include "base/half.h"
#include "kernel/x86/x86_amx_tile.h"

#include <float.h>
#include <math.h>

struct tile_unit {
    bool is_configured;
    struct tile_config c;
    uint8_t tile[N_TILES][TILE_ROWS][TILE_ROW_BYTES];
};

/* State of the thread. A program that uses it in several files defines it in one of them. */
extern _Thread_local struct tile_unit tile_unit;

/* aborts where LDTILECFG raises #GP */
static inline void tile_soft_configure(const struct tile_config *c)
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

static inline void tile_soft_release(void)
{
    memset(&tile_unit, 0, sizeof(tile_unit));
}

/* aborts where an instruction raises #UD */
static inline struct tile_unit *tile_used(int t)
{
    CHECK(tile_unit.is_configured && t >= 0 && t < N_TILES && tile_unit.c.rows[t]);
    return &tile_unit;
}

static inline void tile_load(int t, const uint8_t *from, size_t stride)
{
    struct tile_unit *u = tile_used(t);

    memset(u->tile[t], 0, sizeof(u->tile[t])); /* clears the part outside the tile */
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

static inline const struct tile_config *tile_sizes(int c, int a, int b)
{
    const struct tile_config *size = &tile_used(c)->c;

    CHECK(tile_used(a) && tile_used(b) && c != a && c != b && a != b);
    CHECK(size->row_bytes[c] % 4 == 0 && size->row_bytes[a] % 4 == 0);
    CHECK(size->rows[c] == size->rows[a] && size->row_bytes[c] == size->row_bytes[b]);
    CHECK(size->rows[b] == size->row_bytes[a] / 4);
    return size;
}

static inline void tile_dot(int c, int a, int b, bool b_is_unsigned)
{
    struct tile_unit *u = &tile_unit;
    const struct tile_config *size = tile_sizes(c, a, b);

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

/* Flushes a subnormal to zero of the same sign. */
static inline float tile_flushed(float v)
{
    return fabsf(v) < FLT_MIN ? copysignf(0, v) : v;
}

/* Flushes acc + x * w if it is tiny; r is the sum with normal rounding. A sum is tiny if it is
 * below FLT_MIN when rounded to 24 bits with an unbounded exponent (volume 1, 4.9.1.5); subnormals
 * have only 23 bits there, so r alone does not decide it. The sum in double is exact in this
 * range. */
static inline float tile_fma_tiny(float x, float w, float acc, float r)
{
    bool is_tiny = fabs((double)x * (double)w + (double)acc) < (double)FLT_MIN - 0x1p-151;

    return fabsf(r) <= FLT_MIN && is_tiny ? copysignf(0, r) : r;
}

static inline float tile_bf16(const uint8_t *at)
{
    uint16_t h;

    memcpy(&h, at, sizeof(h));
    return tile_flushed(bf16_to_f32(h));
}

/* Adds the products of one k to all columns. */
static inline void tile_fma(float x, const float w[16], float sums[16])
{
    float next[16];
    int n_tiny = 0;

    for (int n = 0; n < 16; n++) {
        next[n] = fmaf(x, w[n], sums[n]);
        n_tiny += fabsf(next[n]) <= FLT_MIN && next[n] != 0;
    }
    for (int n = 0; n < 16 && n_tiny; n++)
        next[n] = tile_fma_tiny(x, w[n], sums[n], next[n]);
    memcpy(sums, next, sizeof(next));
}

static inline void tile_dot_bf16(int c, int a, int b)
{
    struct tile_unit *u = &tile_unit;
    const struct tile_config *size = tile_sizes(c, a, b);
    int n_pairs = size->row_bytes[a] / 4;
    float w[TILE_ROWS][2][16], to[16]; /* zero outside the tile */

    for (int k = 0; k < n_pairs; k++)
        for (int n = 0; n < 2 * 16; n++)
            w[k][n % 2][n / 2] = tile_bf16(u->tile[b][k] + 2 * n);
    for (int m = 0; m < size->rows[c]; m++) {
        float sums[2][16] = { 0 };
        for (int k = 0; k < 2 * n_pairs; k++)
            tile_fma(tile_bf16(u->tile[a][m] + 2 * k), w[k / 2][k % 2], sums[k % 2]);
        memcpy(to, u->tile[c][m], sizeof(to));
        for (int n = 0; n < 16; n++)
            to[n] = tile_flushed(tile_flushed(to[n]) + tile_flushed(sums[0][n] + sums[1][n]));
        memcpy(u->tile[c][m], to, size->row_bytes[c]);
    }
}
