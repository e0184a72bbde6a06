/* rng.h: counter-based random numbers (Philox 4x32-10; Salmon et al., SC 2011).
 *
 * The numbers for (key, counter) do not depend on the number of earlier draws, so the random number
 * of a token is a function of (seed, choice, position) only.
 *
 * Pure, except rng_entropy; any thread. */
#pragma once

#include "base/base.h"

struct rng4 {
    uint32_t v[4];
};

struct rng4 rng_at(uint64_t key, uint64_t hi, uint64_t lo);

/* Uniform in [0, 1) with 53 bits; which = 0 or 1 selects one of the two numbers of a block. */
double rng_unit(struct rng4 r, int which);

/* Sequential stream for tests and tools. */
struct rng {
    uint64_t key, n;
};
uint64_t rng_next(struct rng *r);
uint64_t rng_below(struct rng *r, uint64_t n); /* 0 .. n-1, n > 0 */
double rng_next_unit(struct rng *r);

uint64_t rng_entropy(void); /* from the system; aborts if it has none */

enum { RNG_HEX = 32 };
/* 128 bits of entropy as hexadecimal digits, for names that cannot be predicted */
void rng_hex(char out[RNG_HEX + 1]);
