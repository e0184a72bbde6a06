#include "output/stops.h"

#include "base/aho_corasick.h"

_Static_assert((int)STOPS_MAX <= (int)AHO_CORASICK_MAX_STRINGS, "a matcher takes the strings");
_Static_assert((int)STOP_BYTES_MAX <= (int)AHO_CORASICK_MAX_BYTES, "a matcher takes the bytes");

struct stops {
    const struct aho_corasick *matcher;
    struct str *strings;
    uint32_t state; /* state of the matcher after the text so far */
    bool is_over;
};

bool stops_fit(const struct str *strings, int n)
{
    size_t bytes = 0;

    for (int i = 0; i < n; i++) {
        if (strings[i].n > STOP_BYTES_MAX)
            return false;
        bytes += strings[i].n;
    }
    return n <= STOPS_MAX && bytes <= STOP_BYTES_MAX;
}

struct stops *stops_new(struct arena *a, const struct str *strings, int n)
{
    if (!stops_fit(strings, n))
        return NULL;
    struct stops *s = arena_zalloc(a, 1, sizeof(*s));
    if (!s)
        return NULL;
    s->strings = arena_zalloc(a, (size_t)MAX(n, 1), sizeof(*s->strings));
    if (!s->strings)
        return NULL;
    for (int i = 0; i < n; i++) {
        s->strings[i] = arena_str(a, strings[i]);
        if (!s->strings[i].p)
            return NULL;
    }
    s->matcher = aho_corasick_new(a, s->strings, n);
    return s->matcher ? s : NULL;
}

/* Appends the first `n` of the bytes held in state `held` followed by `text`. */
static void append_held(
    const struct stops *s, uint32_t held, struct str text, size_t n, struct buf *out)
{
    size_t old = MIN(n, aho_corasick_depth(s->matcher, held));

    if (old)
        buf_put(out, aho_corasick_held(s->matcher, held).p, old);
    buf_put(out, text.p, n - old);
}

int stops_put(struct stops *s, struct str text, bool include, struct buf *out)
{
    const struct aho_corasick *m = s->matcher;
    uint32_t held = s->state, at = s->state;
    int hit;

    if (s->is_over)
        return -1;
    size_t end = aho_corasick_depth(m, held) + aho_corasick_find(m, &at, text, &hit);
    if (hit >= 0) {
        s->is_over = true;
        append_held(s, held, text, include ? end : end - s->strings[hit].n, out);
        return hit;
    }
    append_held(s, held, text, end - aho_corasick_depth(m, at), out);
    s->state = at;
    return -1;
}

void stops_end(struct stops *s, struct buf *out)
{
    if (!s->is_over)
        append_held(s, s->state, STR(""), aho_corasick_depth(s->matcher, s->state), out);
    s->is_over = true;
}
