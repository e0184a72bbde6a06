/* iq_grids.h: grids of the IQ types: groups of eight or four weights, indexed by the codes in the
 * file. Constant data; any thread. */
#pragma once

#include "base/base.h"

extern const uint8_t iq2_xxs_grid[256][8], iq2_xs_grid[512][8], iq2_s_grid[1024][8]; /* 8, 25, 43 */
extern const uint8_t iq3_xxs_grid[256][4]; /* half of 4, 12, .. 52, 62 */
extern const uint8_t iq3_s_grid[512][4];   /* 8 .. 15: (w + 15) / 2 for w = 1, 3, .. 15 */
extern const uint8_t iq1_grid[2048][8];    /* 0, 8, 16: 8 * (w + 1) for w = -1, 0, 1 */
