/* select.h: the best m of n candidates without sorting all of them.
 *
 * A key is a candidate's value and place in one number: larger is better, equal values go by
 * lowest place. Keys are distinct, so every cut is exact and the same on every machine.
 * Owner: the sampler. Allocates nothing after select_init. */
#pragma once

#include "base/base.h"

struct select {
    uint64_t *keys; /* [n] the caller fills it; nth and mass leave it as it is */
    uint64_t *a;    /* [n] scratch */
};

bool select_init(struct select *s, size_t n) MUST_CHECK; /* false: no memory; clear it anyway */
void select_clear(struct select *s);

uint64_t select_key(float value, int place); /* value is not NaN; -0 counts as 0 */
int select_place(uint64_t key);

/* The m-th best of keys[0..n), 1 <= m <= n. Linear: byte by byte from the top. */
uint64_t select_nth(struct select *s, int n, int m);

/* The last key needed for the weights of the best to reach `mass`, added up in double; the worst
 * key when they never do. weight[place] belongs to key. At least one. Linear as well; sums of keys
 * that are alike in their first bytes are added up by themselves, in the order of their places. */
uint64_t select_mass(struct select *s, int n, const float *weight, double mass);
