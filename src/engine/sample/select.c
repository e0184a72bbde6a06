#include "engine/sample/select.h"
#include "base/mem.h"

#include <math.h>

bool select_init(struct select *s, size_t n)
{
    s->keys = try_calloc(n, sizeof(*s->keys));
    s->a = try_calloc(n, sizeof(*s->a));
    return s->keys && s->a;
}

void select_clear(struct select *s)
{
    mem_free(s->keys);
    mem_free(s->a);
    *s = (struct select){ 0 };
}

uint64_t select_key(float value, int place)
{
    uint32_t bits;

    value += 0.0f; /* -0 becomes 0 */
    memcpy(&bits, &value, sizeof(bits));
    /* Negative floats: a larger bit pattern is a smaller value. */
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)bits << 32 | (UINT32_MAX - (uint32_t)place);
}

int select_place(uint64_t key)
{
    return (int)(UINT32_MAX - (uint32_t)key);
}

/* Keeps the keys whose byte at `shift` equals `byte`; `from` may be s->a. */
static int keep_byte(struct select *s, const uint64_t *from, int n, int shift, int byte)
{
    int n_kept = 0;

    for (int i = 0; i < n; i++) {
        s->a[n_kept] = from[i];
        n_kept += (int)(from[i] >> shift & 255) == byte;
    }
    return n_kept;
}

uint64_t select_nth(struct select *s, int n, int m)
{
    const uint64_t *from = s->keys;

    for (int shift = 56; n > 1; shift -= 8) {
        int count[256] = { 0 }, byte = 255;
        for (int i = 0; i < n; i++)
            count[from[i] >> shift & 255]++;
        for (; m > count[byte]; byte--)
            m -= count[byte];
        n = keep_byte(s, from, n, shift, byte);
        from = s->a;
    }
    return from[0];
}

/* One byte per pass from the top: adds the weights of better byte values until the next one would
 * reach the mass, and continues in that one. */
uint64_t select_mass(struct select *s, int n, const float *weight, double mass)
{
    const uint64_t *from = s->keys;
    double sum = 0.0;

    for (int shift = 56; n > 1; shift -= 8) {
        double in[256] = { 0 };
        int count[256] = { 0 }, byte = 255, last = 0;
        for (int i = 0; i < n; i++) {
            in[from[i] >> shift & 255] += (double)weight[select_place(from[i])];
            count[from[i] >> shift & 255]++;
        }
        for (; byte >= 0 && !(count[byte] && sum + in[byte] >= mass); byte--)
            if (count[byte]) {
                last = byte;
                sum += in[byte];
            }
        if (byte < 0) { /* the mass is never reached: the worst key */
            byte = last;
            mass = INFINITY;
        }
        n = keep_byte(s, from, n, shift, byte);
        from = s->a;
    }
    return from[0];
}
