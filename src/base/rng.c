#include "base/rng.h"

#include <sys/random.h>

struct rng4 rng_at(uint64_t key, uint64_t hi, uint64_t lo)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c[4] = { (uint32_t)lo, (uint32_t)(lo >> 32), (uint32_t)hi, (uint32_t)(hi >> 32) };

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c[0];
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c[1] ^ k0;
        uint32_t n2 = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
        c[1] = (uint32_t)p1;
        c[3] = (uint32_t)p0;
        c[0] = n0;
        c[2] = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (struct rng4){ { c[0], c[1], c[2], c[3] } };
}

double rng_unit(struct rng4 r, int which)
{
    uint64_t bits = (uint64_t)r.v[2 * which] << 32 | r.v[2 * which + 1];
    return (double)(bits >> 11) * 0x1p-53;
}

uint64_t rng_next(struct rng *r)
{
    struct rng4 x = rng_at(r->key, 0, r->n++);
    return (uint64_t)x.v[0] << 32 | x.v[1];
}

uint64_t rng_below(struct rng *r, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)rng_next(r) * n) >> 64);
}

double rng_next_unit(struct rng *r)
{
    return (double)(rng_next(r) >> 11) * 0x1p-53;
}

/* A request needs five values, so 256 bytes are read at once; getrandom never returns fewer up to
 * this size. A value is erased from the pool when it is returned. */
uint64_t rng_entropy(void)
{
    static _Thread_local uint64_t pool[32];
    static _Thread_local int n_left;

    if (!n_left) {
        CHECK(getrandom(pool, sizeof(pool), 0) == sizeof(pool));
        n_left = (int)ARRAY_LEN(pool);
    }
    uint64_t v = pool[--n_left];
    pool[n_left] = 0;
    return v;
}

void rng_hex(char out[RNG_HEX + 1])
{
    static const char digits[] = "0123456789abcdef";

    for (int i = 0; i < RNG_HEX; i += 16) {
        uint64_t v = rng_entropy();
        for (int k = 0; k < 16; k++, v >>= 4)
            out[i + k] = digits[v & 15];
    }
    out[RNG_HEX] = '\0';
}
