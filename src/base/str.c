#include "base/str.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

static unsigned char lower(char c)
{
    unsigned char u = (unsigned char)c;
    return u >= 'A' && u <= 'Z' ? u | 0x20 : u;
}

bool str_eq_nocase(struct str a, struct str b)
{
    if (a.n != b.n)
        return false;
    for (size_t i = 0; i < a.n; i++)
        if (lower(a.p[i]) != lower(b.p[i]))
            return false;
    return true;
}

ptrdiff_t str_find(struct str hay, struct str needle)
{
    if (!needle.n)
        return 0;
    const char *hit = hay.n ? memmem(hay.p, hay.n, needle.p, needle.n) : NULL;
    return hit ? hit - hay.p : -1;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

struct str str_trim(struct str s)
{
    while (s.n && is_blank(s.p[0]))
        s = str_skip(s, 1);
    while (s.n && is_blank(s.p[s.n - 1]))
        s.n--;
    return s;
}

bool str_to_u64(struct str s, uint64_t *out)
{
    uint64_t v = 0;

    if (!s.n)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
        uint64_t digit = (uint64_t)(s.p[i] - '0');
        if (v > (UINT64_MAX - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *out = v;
    return true;
}

bool str_to_i64(struct str s, int64_t *out)
{
    bool is_negative = s.n && s.p[0] == '-';
    uint64_t v;

    if (!str_to_u64(is_negative ? str_skip(s, 1) : s, &v))
        return false;
    if (v > (uint64_t)INT64_MAX + (is_negative ? 1 : 0))
        return false;
    *out = is_negative ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

bool str_to_f64(struct str s, double *out)
{
    char z[64];
    char *end;

    if (!s.n || s.n >= sizeof(z) || is_blank(s.p[0]))
        return false;
    memcpy(z, s.p, s.n);
    z[s.n] = '\0';
    double v = strtod(z, &end);
    if (end != z + s.n || !isfinite(v))
        return false;
    *out = v;
    return true;
}
