/* Second compilation of the AMX set, with emulated tiles, for processors without AMX: identical
 * except for the tile instructions. It uses tiles from one activation row on, so that tests cover
 * them for every number of rows. */
#include "x86_amx_soft.h"

#define TILES_IN_SOFTWARE
#define AMX_FROM_FEW_ROWS  1
#define AMX_FROM_MANY_ROWS 1
#define AMX_SET            kernels_amx_soft
#define AMX_NAME           "amx-soft"
#include "kernel/x86/x86_amx.c"

_Thread_local struct tile_unit tile_unit;

bool amx_soft_is_released(void)
{
    return !tile_unit.is_configured;
}

void amx_soft_configure(const void *config)
{
    struct tile_config c;

    memcpy(&c, config, sizeof(c));
    tile_configure(&c);
}

void amx_soft_use(int what)
{
    static uint8_t memory[TILE_ROWS][TILE_ROW_BYTES];

    switch (what) {
    case 0:
        TILE_ZERO(0);
        break;
    case 1:
        TILE_LOAD(1, memory, 64);
        break;
    case 2:
        TILE_STORE(2, memory, 64);
        break;
    case 3:
        TILE_DOT_SS(0, 1, 2);
        break;
    case 4:
        TILE_DOT_SU(0, 0, 2);
        break;
    case 5:
        TILE_DOT_BF16(0, 1, 2);
        break;
    default:
        TILE_DOT_BF16(0, 1, 1);
    }
}

void amx_soft_dot_bf16(float c[16][16], const uint16_t a[16][32], const uint16_t b[16][32])
{
    struct tile_config all = { .palette = 1, .row_bytes = { 64, 64, 64 }, .rows = { 16, 16, 16 } };

    tile_configure(&all);
    TILE_LOAD(0, c, 64);
    TILE_LOAD(1, a, 64);
    TILE_LOAD(2, b, 64);
    TILE_DOT_BF16(0, 1, 2);
    TILE_STORE(0, c, 64);
    tile_release();
}

float amx_soft_fma(float x, float w, float acc)
{
    float sums[16] = { tile_flushed(acc) }, ws[16] = { tile_flushed(w) };

    tile_fma(tile_flushed(x), ws, sums);
    return sums[0];
}
