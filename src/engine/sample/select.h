/* select.h: selects the best m of n candidates in linear time (MSD radix select).
 *
 * A key combines value and place of a candidate: a larger key is better, and equal values are
 * ordered by lowest place. Keys are distinct, so every cut is exact and the same on every machine.
 * Owner: the sampler. Allocates nothing after select_init. */
#pragma once

#include "base/base.h"

struct select {
    uint64_t *keys; /* [n] filled by the caller; select_nth and select_mass do not change it */
    uint64_t *a;    /* [n] scratch */
};

/* False = out of memory; select_clear is still required. */
bool select_init(struct select *s, size_t n) MUST_CHECK;
void select_clear(struct select *s);

uint64_t select_key(float value, int place); /* value must not be NaN; -0 equals 0 */
int select_place(uint64_t key);

/* The m-th best of keys[0..n), 1 <= m <= n. Linear: one byte per pass, from the top. */
uint64_t select_nth(struct select *s, int n, int m);

/* Last key that is needed for the weights of the best keys to reach `mass`, added in double; the
 * worst key if they never do. weight[place] belongs to a key. Selects at least one. Linear; the
 * weights of keys that agree in the leading bytes are first added among themselves, in the order of
 * their places. */
uint64_t select_mass(struct select *s, int n, const float *weight, double mass);
