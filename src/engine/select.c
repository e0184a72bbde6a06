#include "engine/select.h"
#include "base/mem.h"

bool select_init(struct select *s, size_t n)
{
    s->keys = try_calloc(n, sizeof(*s->keys));
    s->a = try_calloc(n, sizeof(*s->a));
    s->b = try_calloc(n, sizeof(*s->b));
    return s->keys && s->a && s->b;
}

void select_clear(struct select *s)
{
    mem_free(s->keys);
    mem_free(s->a);
    mem_free(s->b);
    *s = (struct select){ 0 };
}

uint64_t select_key(float value, int place)
{
    uint32_t bits;

    value += 0.0f; /* -0 becomes 0 */
    memcpy(&bits, &value, sizeof(bits));
    /* Negative floats count down as their bits count up. */
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)bits << 32 | (UINT32_MAX - (uint32_t)place);
}

int select_place(uint64_t key)
{
    return (int)(UINT32_MAX - (uint32_t)key);
}

uint64_t select_nth(struct select *s, int n, int m)
{
    const uint64_t *from = s->keys;

    for (int shift = 56; n > 1; shift -= 8) {
        int count[256] = { 0 }, byte = 255, kept = 0;
        for (int i = 0; i < n; i++)
            count[from[i] >> shift & 255]++;
        for (; m > count[byte]; byte--)
            m -= count[byte];
        for (int i = 0; i < n; i++) {
            s->a[kept] = from[i];
            kept += (int)(from[i] >> shift & 255) == byte;
        }
        from = s->a;
        n = kept;
    }
    return from[0];
}

/* a[0..n) in descending order; the result lies in a. Radix sort: linear, no comparisons that an
 * unlucky order could make quadratic, no memory of its own. */
static void sort_down(struct select *s, int n)
{
    for (int shift = 0; shift < 64; shift += 8) {
        int at[256] = { 0 }, next = 0;
        for (int i = 0; i < n; i++)
            at[s->a[i] >> shift & 255]++;
        if (at[s->a[0] >> shift & 255] == n)
            continue; /* all alike in this byte */
        for (int byte = 255; byte >= 0; byte--) {
            int count = at[byte];
            at[byte] = next;
            next += count;
        }
        for (int i = 0; i < n; i++)
            s->b[at[s->a[i] >> shift & 255]++] = s->a[i];
        uint64_t *t = s->a;
        s->a = s->b;
        s->b = t;
    }
}

/* Most distributions have their mass in a few tokens: the best 64 are sorted first, then eight
 * times as many, so a flat one costs about as much as one full sort. */
uint64_t select_mass(struct select *s, int n, const float *weight, double mass)
{
    for (int m = MIN(64, n);; m = m > n / 8 ? n : 8 * m) {
        uint64_t cut = select_nth(s, n, m);
        double sum = 0.0;
        int kept = 0;
        for (int i = 0; i < n && kept < m; i++)
            if (s->keys[i] >= cut)
                s->a[kept++] = s->keys[i];
        sort_down(s, m);
        for (int i = 0; i < m; i++) {
            sum += (double)weight[select_place(s->a[i])];
            if (sum >= mass)
                return s->a[i];
        }
        if (m == n)
            return s->a[n - 1];
    }
}
