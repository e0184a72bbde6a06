/* hash.h: hash functions of 64 bits for tables and counters. None is cryptographic.
 *
 *   hash_step    one multiplication; only the upper half of the result is mixed well
 *   hash_mix     mixes all bits of one number; invertible, so that numbers do not collide
 *   hash_fold    combines two numbers by one wide multiplication
 *   hash_bytes   a string; with a secret random seed, keys that collide cannot be chosen
 *
 * The values are the same on every machine. Synthetic models, benchmark prompts and the names of
 * exported KV pages depend on those of hash_step, hash_mix and hash_fold. Pure; any thread. */
#pragma once

#include "base/base.h"

#define HASH_GOLDEN 0x9e3779b97f4a7c15u /* 2^64 / golden ratio, odd */

static inline uint64_t hash_step(uint64_t h, uint64_t x)
{
    return (h ^ x) * HASH_GOLDEN;
}

/* Output function of SplitMix64 (Steele, Lea, Flood 2014). */
static inline uint64_t hash_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static inline uint64_t hash_fold(uint64_t a, uint64_t b)
{
    unsigned __int128 p = (unsigned __int128)(a ^ HASH_GOLDEN) * (b ^ 0xd6e8feb86659fd93u);

    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

/* `bytes` may be NULL if n is 0. */
static inline uint64_t hash_bytes(uint64_t seed, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    uint64_t h = seed + n, w[2];

    for (; n >= sizeof(w); n -= sizeof(w), p += sizeof(w)) {
        memcpy(w, p, sizeof(w));
        h = hash_fold(h ^ w[0], seed ^ w[1]);
    }
    w[0] = w[1] = 0;
    if (n)
        memcpy(w, p, n);
    return hash_fold(h ^ w[0], seed ^ w[1]);
}
