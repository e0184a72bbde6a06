/* rng.h: random numbers by counter, not by history (Philox 4x32-10; Salmon et al., SC 2011).
 *
 * The numbers for (key, counter) do not depend on how many were drawn before, so a token's
 * randomness is a function of (seed, choice, position) and of nothing else. Pure; any thread. */
#pragma once

#include "base/base.h"

struct rng4 {
    uint32_t v[4];
};

struct rng4 rng_at(uint64_t key, uint64_t hi, uint64_t lo);

/* Uniform in [0, 1) with 53 bits; which = 0 or 1 picks one of the two in a block. */
double rng_unit(struct rng4 r, int which);

/* A stream for tests and tools, where history is fine. */
struct rng {
    uint64_t key, n;
};
uint64_t rng_next(struct rng *r);
uint64_t rng_below(struct rng *r, uint64_t n); /* 0 .. n-1, n > 0 */
double rng_next_unit(struct rng *r);

uint64_t rng_entropy(void); /* from the system; aborts when it has none */

enum { RNG_HEX = 32 };
void rng_hex(char out[RNG_HEX + 1]); /* 128 bits of it as hex digits: a name nobody guesses */
