#include "base/suggest.h"

#include <stdio.h>

/* Optimal string alignment; rows[i % 3][k] is the distance of the first i bytes of a and the first
 * k of b. */
size_t suggest_distance(struct str a, struct str b)
{
    size_t rows[3][SUGGEST_NAME_MAX + 1];

    CHECK(a.n <= SUGGEST_NAME_MAX && b.n <= SUGGEST_NAME_MAX);
    for (size_t i = 0; i <= a.n; i++) {
        size_t *now = rows[i % 3], *before = rows[(i + 2) % 3], *earlier = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t k = 1; k <= b.n; k++) {
            if (!i) {
                now[k] = k;
                continue;
            }
            size_t replaced = before[k - 1] + (a.p[i - 1] != b.p[k - 1]);
            now[k] = MIN(replaced, MIN(before[k], now[k - 1]) + 1);
            if (i > 1 && k > 1 && a.p[i - 1] == b.p[k - 2] && a.p[i - 2] == b.p[k - 1])
                now[k] = MIN(now[k], earlier[k - 2] + 1);
        }
    }
    return rows[a.n % 3][b.n];
}

struct suggestion suggest_for(struct str name)
{
    return (struct suggestion){ .name = name, .best = STR_NONE };
}

void suggest_offer(struct suggestion *s, struct str candidate)
{
    if (s->name.n > SUGGEST_NAME_MAX || candidate.n > SUGGEST_NAME_MAX)
        return;
    size_t d = suggest_distance(s->name, candidate);
    if (d > MIN(candidate.n / 3, (size_t)3) || (s->best.p && d >= s->distance))
        return;
    s->best = candidate;
    s->distance = d;
}

void suggest_offer_list(struct suggestion *s, const char *candidates)
{
    for (struct str rest = str_of(candidates); rest.n;) {
        ptrdiff_t bar = str_find(rest, STR("|"));
        struct str one = { rest.p, bar < 0 ? rest.n : (size_t)bar };
        suggest_offer(s, one);
        rest = str_skip(rest, one.n + 1);
    }
}

const char *suggest_text(const struct suggestion *s, const char *prefix, char *out, size_t size)
{
    *out = '\0';
    if (s->best.p)
        snprintf(out, size, "; did you mean %s" STR_FMT "?", prefix, STR_ARG(s->best));
    return out;
}
