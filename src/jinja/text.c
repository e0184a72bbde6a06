#include "jinja/text.h"
#include "base/limits.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

enum {
    BYTES_PER_STEP = 32,     /* bytes copied or examined */
    NEW_BYTES_PER_STEP = 64, /* bytes allocated */
    BLOB_FIRST = 64,
    RUNS_FIRST = 4,
    LOOK_EVERY = SMALL ? 100 : 50 * 1000, /* steps between checks of `stop`: one millisecond */
};

int rt_fail(struct rt *rt, const char *fmt, ...)
{
    char msg[sizeof(rt->e->msg)];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(msg, sizeof(msg), fmt, ap);
    va_end(ap);
    return err_set(rt->e, ERR_INVALID, "line %u: %s", rt->line, msg);
}

/* The current slice of steps is used up: checks `stop` and starts the next slice. */
static int next_slice(struct rt *rt, size_t steps)
{
    uint64_t all = rt->fuel + rt->reserve;

    rt->fuel = rt->reserve = 0; /* no further steps after an error */
    if (rt->stop && atomic_load_explicit(rt->stop, memory_order_relaxed))
        return err_set(rt->e, ERR_CANCELLED, "the request was cancelled");
    if (steps > all)
        return err_set(
            rt->e, ERR_TOO_LARGE, "line %u: the template exceeds the limit of steps", rt->line);
    rt->fuel = MIN(all - steps, (uint64_t)LOOK_EVERY);
    rt->reserve = all - steps - rt->fuel;
    return 0;
}

int rt_spend(struct rt *rt, size_t steps)
{
    if (steps > rt->fuel)
        return next_slice(rt, steps);
    rt->fuel -= steps;
    return 0;
}

int rt_spend_bytes(struct rt *rt, size_t n)
{
    return rt_spend(rt, n / BYTES_PER_STEP);
}

char *rt_bytes(struct rt *rt, size_t n)
{
    if (rt_spend(rt, n / NEW_BYTES_PER_STEP))
        return NULL;
    char *p = arena_alloc(rt->a, n);
    if (p)
        return p;
    if (n > rt->max_memory - MIN(rt->max_memory, arena_used(rt->a)))
        err_set(
            rt->e, ERR_TOO_LARGE, "line %u: the template exceeds the limit of memory", rt->line);
    else
        err_set(rt->e, ERR_MEMORY, "no memory to render the template");
    return NULL;
}

void *rt_alloc(struct rt *rt, size_t n)
{
    char *p = rt_bytes(rt, n);

    return p ? memset(p, 0, n) : NULL;
}

int rt_enter(struct rt *rt)
{
    if (rt_spend(rt, 1))
        return -1;
    if (rt->depth >= rt->max_depth)
        return err_set(
            rt->e, ERR_TOO_LARGE, "line %u: nested deeper than %d", rt->line, rt->max_depth);
    rt->depth++;
    return 0;
}

struct blob *blob_new(struct rt *rt)
{
    return rt_alloc(rt, sizeof(struct blob));
}

/* The old buffer is not freed: texts may point to it. */
static int blob_grow(struct rt *rt, struct blob *b, size_t n)
{
    if (b->p && n <= b->cap - b->n)
        return 0;
    if (n > rt->max_output || b->n > rt->max_output - n)
        return err_set(rt->e, ERR_TOO_LARGE, "line %u: the template writes more than %zu bytes",
            rt->line, rt->max_output);
    size_t cap = MAX((b->n + n) * 2, (size_t)BLOB_FIRST);
    if (rt_spend_bytes(rt, b->n))
        return -1;
    char *p = rt_bytes(rt, cap);
    if (!p)
        return -1;
    if (b->n)
        memcpy(p, b->p, b->n);
    b->p = p;
    b->cap = cap;
    return 0;
}

static int add_run(struct rt *rt, struct blob *b, size_t end, bool trusted)
{
    if (b->n_runs && b->runs[b->n_runs - 1].trusted == trusted) {
        b->runs[b->n_runs - 1].end = end;
        return 0;
    }
    if (b->n_runs == b->cap_runs) {
        uint32_t cap = MAX(b->cap_runs * 2, (uint32_t)RUNS_FIRST);
        struct text_run *runs = rt_alloc(rt, cap * sizeof(*runs));
        if (!runs)
            return -1;
        if (b->n_runs)
            memcpy(runs, b->runs, b->n_runs * sizeof(*runs));
        b->runs = runs;
        b->cap_runs = cap;
    }
    b->runs[b->n_runs++] = (struct text_run){ end, trusted };
    return 0;
}

int blob_put(struct rt *rt, struct blob *b, struct str s, bool trusted)
{
    if (!s.n)
        return 0;
    if (rt_spend(rt, 1 + s.n / BYTES_PER_STEP) || blob_grow(rt, b, s.n) ||
        add_run(rt, b, b->n + s.n, trusted))
        return -1;
    memcpy(b->p + b->n, s.p, s.n);
    b->n += s.n;
    return 0;
}

int blob_put_part(struct rt *rt, struct blob *b, const struct text *t, size_t from, size_t n)
{
    if (!t->blob)
        return blob_put(rt, b, (struct str){ t->p + from, n }, t->trusted);
    for (size_t i = from, end; i < from + n; i = end) {
        bool trusted = text_origin(t, i, &end);
        end = MIN(end, from + n);
        if (blob_put(rt, b, (struct str){ t->p + i, end - i }, trusted))
            return -1;
    }
    return 0;
}

int blob_put_text(struct rt *rt, struct blob *b, const struct text *t)
{
    return blob_put_part(rt, b, t, 0, t->n);
}

struct text *blob_text(struct rt *rt, struct blob *b)
{
    struct text *t = rt_alloc(rt, sizeof(*t));

    if (t) {
        *t = (struct text){ .p = b->p ? b->p : "", .n = b->n, .blob = b };
        if (!b->n_runs) {
            t->blob = NULL;
            t->trusted = true; /* an empty text is trusted */
        }
    }
    return t;
}

struct text *text_new(struct rt *rt, struct str s, bool trusted)
{
    struct text *t = rt_alloc(rt, sizeof(*t));

    if (t)
        *t = (struct text){ .p = s.p ? s.p : "", .n = s.n, .trusted = trusted };
    return t;
}

struct text *text_copy(struct rt *rt, struct str s, bool trusted)
{
    char *p = rt_bytes(rt, s.n + 1);

    if (!p || rt_spend_bytes(rt, s.n))
        return NULL;
    if (s.n)
        memcpy(p, s.p, s.n);
    return text_new(rt, (struct str){ p, s.n }, trusted);
}

struct text *text_of_now(struct rt *rt, const char *format, bool trusted)
{
    char text[1024];
    time_t now = (time_t)rt->now;
    struct tm tm;

    size_t n = localtime_r(&now, &tm) ? strftime(text, sizeof(text), format, &tm) : 0;
    if (n || !*format)
        return text_copy(rt, (struct str){ text, n }, trusted);
    rt_fail(rt, "the text of the time is too long");
    return NULL;
}

struct text *text_part(struct rt *rt, const struct text *t, size_t from, size_t n)
{
    struct text *part = rt_alloc(rt, sizeof(*part));

    DCHECK(from <= t->n && n <= t->n - from);
    if (!part)
        return NULL;
    *part = *t;
    part->p += from;
    part->at += from;
    part->n = n;
    if (t->ascii == ASCII_NO)
        part->ascii = ASCII_UNKNOWN;
    return part;
}

struct text *text_cat(struct rt *rt, struct text *a, const struct text *b)
{
    struct blob *blob = a->blob;
    size_t at = a->at;

    if (!b->n)
        return a;
    if (!blob || a->at + a->n != blob->n) {
        blob = blob_new(rt);
        at = 0;
        if (!blob || blob_grow(rt, blob, a->n + b->n) || blob_put_text(rt, blob, a))
            return NULL;
    }
    size_t n = a->n + b->n;
    if (blob_put_text(rt, blob, b))
        return NULL;
    struct text *t = rt_alloc(rt, sizeof(*t));
    if (t)
        *t = (struct text){ .p = blob->p + at, .n = n, .at = at, .blob = blob };
    return t;
}

bool text_origin(const struct text *t, size_t i, size_t *end)
{
    if (!t->blob) {
        *end = t->n;
        return t->trusted;
    }
    const struct text_run *runs = t->blob->runs;
    size_t lo = 0, hi = t->blob->n_runs - 1, offset = t->at + i;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (runs[mid].end > offset)
            hi = mid;
        else
            lo = mid + 1;
    }
    *end = MIN(runs[lo].end - t->at, t->n);
    return runs[lo].trusted;
}

int text_is_ascii(struct rt *rt, struct text *t, bool *out)
{
    if (t->ascii == ASCII_UNKNOWN) {
        unsigned char any = 0;
        if (rt_spend_bytes(rt, t->n))
            return -1;
        for (size_t i = 0; i < t->n; i++)
            any |= (unsigned char)t->p[i];
        t->ascii = any & 0x80 ? ASCII_NO : ASCII_YES;
    }
    *out = t->ascii == ASCII_YES;
    return 0;
}

size_t char_len(struct str s, uint32_t *cp)
{
    uint32_t c;
    int n = utf8_decode(s, &c);

    if (cp)
        *cp = n > 0 ? c : 0xFFFD;
    return n > 0 ? (size_t)n : 1;
}

int text_n_chars(struct rt *rt, struct text *t, size_t *out)
{
    bool is_ascii;
    size_t n = 0;

    if (text_is_ascii(rt, t, &is_ascii))
        return -1;
    if (is_ascii) {
        *out = t->n;
        return 0;
    }
    if (rt_spend(rt, t->n / 8))
        return -1;
    for (size_t i = 0; i < t->n; n++)
        i += char_len((struct str){ t->p + i, t->n - i }, NULL);
    *out = n;
    return 0;
}

int text_offset(struct rt *rt, struct text *t, size_t nth, size_t *out)
{
    bool is_ascii;
    size_t i = 0;

    if (text_is_ascii(rt, t, &is_ascii))
        return -1;
    if (is_ascii) {
        *out = MIN(nth, t->n);
        return 0;
    }
    for (; nth && i < t->n; nth--)
        i += char_len((struct str){ t->p + i, t->n - i }, NULL);
    *out = i;
    return rt_spend(rt, i / 8);
}

bool char_is_space(uint32_t cp)
{
    if (cp < 0x80)
        return cp == ' ' || (cp >= 0x09 && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1F);
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

size_t leading_space(struct str s)
{
    size_t i = 0;

    while (i < s.n) {
        uint32_t cp;
        size_t n = char_len(str_skip(s, i), &cp);
        if (!char_is_space(cp))
            break;
        i += n;
    }
    return i;
}

size_t trailing_space(struct str s)
{
    size_t n = s.n;

    while (n) {
        size_t i = n - 1;
        while (i && n - i < 4 && ((unsigned char)s.p[i] & 0xC0) == 0x80)
            i--;
        uint32_t cp;
        if (char_len((struct str){ s.p + i, n - i }, &cp) != n - i || !char_is_space(cp))
            break;
        n = i;
    }
    return s.n - n;
}
