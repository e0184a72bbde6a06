#include "constrain/regular/code_points.h"

#include "base/mem.h"

#include <stdlib.h>

void code_points_clear(struct code_points *s)
{
    mem_free(s->r);
    *s = (struct code_points){ 0 };
}

static int by_start(const void *a, const void *b)
{
    const struct code_range *p = a, *q = b;

    return (p->from > q->from) - (p->from < q->from);
}

void code_points_sort(struct code_points *s)
{
    uint32_t used = 0;

    if (!s->is_dirty)
        return;
    s->is_dirty = false;
    qsort(s->r, s->n, sizeof(*s->r), by_start);
    for (uint32_t k = 0; k < s->n; k++) {
        if (used && s->r[k].from <= s->r[used - 1].to + 1)
            s->r[used - 1].to = MAX(s->r[used - 1].to, s->r[k].to);
        else
            s->r[used++] = s->r[k];
    }
    s->n = used;
}

static bool has_room(struct code_points *s)
{
    if (s->is_failed || s->n < s->cap)
        return !s->is_failed;
    code_points_sort(s);
    if (s->n < s->cap / 2)
        return true;
    uint32_t cap = s->cap ? s->cap * 2 : 8;
    struct code_range *r = cap > RANGES_MAX * 2 ? NULL : try_realloc(s->r, cap * sizeof(*r));
    if (!r) {
        s->is_failed = true;
        return false;
    }
    s->r = r;
    s->cap = cap;
    return true;
}

void code_points_add(struct code_points *s, uint32_t from, uint32_t to)
{
    to = MIN(to, (uint32_t)CODE_POINT_MAX);
    if (from > to || !has_room(s))
        return;
    s->r[s->n++] = (struct code_range){ from, to };
    s->is_dirty = true;
}

void code_points_add_all(struct code_points *s, const struct code_points *from)
{
    s->is_failed |= from->is_failed;
    for (uint32_t k = 0; k < from->n; k++)
        code_points_add(s, from->r[k].from, from->r[k].to);
}

void code_points_invert(struct code_points *s)
{
    struct code_points out = { .is_failed = s->is_failed };
    uint32_t at = 0;

    code_points_sort(s);
    for (uint32_t k = 0; k < s->n; k++) {
        if (s->r[k].from > at)
            code_points_add(&out, at, s->r[k].from - 1);
        at = s->r[k].to + 1;
    }
    code_points_add(&out, at, CODE_POINT_MAX);
    code_points_clear(s);
    *s = out;
}

void code_points_remove(struct code_points *s, uint32_t from, uint32_t to)
{
    code_points_invert(s);
    code_points_add(s, from, to);
    code_points_invert(s);
}

uint32_t code_points_count(const struct code_points *s, uint32_t from, uint32_t to)
{
    uint32_t low = 0, high = s->n, count = 0;

    while (low < high) { /* the first range that ends at `from` or later */
        uint32_t mid = (low + high) / 2;
        if (s->r[mid].to < from)
            low = mid + 1;
        else
            high = mid;
    }
    for (; low < s->n && s->r[low].from <= to; low++)
        count += MIN(s->r[low].to, to) - MAX(s->r[low].from, from) + 1;
    return count;
}
