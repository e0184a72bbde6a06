#include "kernel/iq_grids.h"

/* Element i of an entry. */
#define TWO_BITS(x, i)   ((x) >> (2 * (i)) & 3)
#define THREE_BITS(x, i) ((x) >> (3 * (i)) & 7)

#define IQ2(x, i)      (TWO_BITS(x, i) == 0 ? 8 : TWO_BITS(x, i) == 1 ? 25 : 43)
#define IQ1(x, i)      (8 * TWO_BITS(x, i))
#define IQ3_HALF(x, i) (THREE_BITS(x, i) == 7 ? 31 : 4 * THREE_BITS(x, i) + 2)
#define IQ3_ODD(x, i)  (8 + THREE_BITS(x, i))

#define EIGHT(level, x)                                                                            \
    { level(x, 0), level(x, 1), level(x, 2), level(x, 3), level(x, 4), level(x, 5), level(x, 6),   \
        level(x, 7) },
#define FOUR(level, x) { level(x, 0), level(x, 1), level(x, 2), level(x, 3) },

/* A line of the file has eight entries. */
#define LINE(size, level, a, b, c, d, e, f, g, h)                                                  \
    size(level, a) size(level, b) size(level, c) size(level, d) size(level, e) size(level, f)      \
        size(level, g) size(level, h)

/* The lists of the other types are empty. */
#define IQ2_XXS(...)
#define IQ2_XS(...)
#define IQ2_S(...)
#define IQ3_XXS(...)
#define IQ3_S(...)
#define IQ1_S(...)

#undef IQ2_XXS
#define IQ2_XXS(...) LINE(EIGHT, IQ2, __VA_ARGS__)
const uint8_t iq2_xxs_grid[256][8] = {
#include "kernel/iq_grids.def"
};
#undef IQ2_XXS
#define IQ2_XXS(...)

#undef IQ2_XS
#define IQ2_XS(...) LINE(EIGHT, IQ2, __VA_ARGS__)
const uint8_t iq2_xs_grid[512][8] = {
#include "kernel/iq_grids.def"
};
#undef IQ2_XS
#define IQ2_XS(...)

#undef IQ2_S
#define IQ2_S(...) LINE(EIGHT, IQ2, __VA_ARGS__)
const uint8_t iq2_s_grid[1024][8] = {
#include "kernel/iq_grids.def"
};
#undef IQ2_S
#define IQ2_S(...)

#undef IQ3_XXS
#define IQ3_XXS(...) LINE(FOUR, IQ3_HALF, __VA_ARGS__)
const uint8_t iq3_xxs_grid[256][4] = {
#include "kernel/iq_grids.def"
};
#undef IQ3_XXS
#define IQ3_XXS(...)

#undef IQ3_S
#define IQ3_S(...) LINE(FOUR, IQ3_ODD, __VA_ARGS__)
const uint8_t iq3_s_grid[512][4] = {
#include "kernel/iq_grids.def"
};
#undef IQ3_S
#define IQ3_S(...)

#undef IQ1_S
#define IQ1_S(...) LINE(EIGHT, IQ1, __VA_ARGS__)
const uint8_t iq1_grid[2048][8] = {
#include "kernel/iq_grids.def"
};
