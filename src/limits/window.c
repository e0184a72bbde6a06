#include "limits/window.h"

#include "base/mem.h"

void window_clear(struct window *w)
{
    mem_free(w->entries);
    *w = (struct window){ 0 };
}

static uint64_t part_of(uint64_t width_ns, uint64_t now_ns)
{
    return now_ns / (width_ns / WINDOW_PARTS);
}

/* First time at which amounts of the part are outside of the window. */
static uint64_t end_of(uint64_t part, uint64_t width_ns)
{
    return (part + 1 + WINDOW_PARTS) * (width_ns / WINDOW_PARTS);
}

void window_advance(struct window *w, uint64_t width_ns, uint64_t now_ns)
{
    while (w->n && end_of(w->entries[w->first].part, width_ns) <= now_ns) {
        w->used -= w->entries[w->first].n;
        w->first++;
        w->n--;
    }
    if (w->late.n && end_of(w->late.part, width_ns) <= now_ns) {
        w->used -= w->late.n;
        w->late.n = 0;
    }
    if (w->n || !w->entries)
        return;
    mem_free(w->entries);
    w->entries = NULL;
    w->first = w->n_max = 0;
}

void window_reserve(struct window *w, int64_t n)
{
    w->reserved += n;
}

void window_refund(struct window *w, int64_t n)
{
    CHECK(n >= 0 && n <= w->reserved);
    w->reserved -= n;
}

/* Room for an entry at the end. */
static bool has_room(struct window *w)
{
    if (w->first + w->n < w->n_max)
        return true;
    if (w->first) {
        memmove(w->entries, w->entries + w->first, (size_t)w->n * sizeof(*w->entries));
        w->first = 0;
        return true;
    }
    int n_max = MAX(4, 2 * w->n_max);
    struct window_entry *grown = try_realloc(w->entries, (size_t)n_max * sizeof(*grown));
    if (!grown)
        return false;
    w->entries = grown;
    w->n_max = n_max;
    return true;
}

void window_settle(struct window *w, int64_t n, uint64_t width_ns, uint64_t now_ns)
{
    uint64_t part = part_of(width_ns, now_ns);

    CHECK(n >= 0 && n <= w->reserved);
    if (!n)
        return;
    window_advance(w, width_ns, now_ns);
    struct window_entry *last = w->n ? &w->entries[w->first + w->n - 1] : NULL;
    if (last && last->part >= part) {
        last->n += n;
    } else if (has_room(w)) {
        w->entries[w->first + w->n++] = (struct window_entry){ part, n };
    } else {
        w->late.part = part;
        w->late.n += n;
    }
    w->reserved -= n;
    w->used += n;
}

uint64_t window_room_at(
    const struct window *w, int64_t n, int64_t limit, uint64_t width_ns, uint64_t now_ns)
{
    int64_t excess = w->used + w->reserved + n - limit;

    for (int i = 0; i < w->n && excess > 0; i++) {
        excess -= w->entries[w->first + i].n;
        if (excess <= 0)
            return MAX(end_of(w->entries[w->first + i].part, width_ns), now_ns);
    }
    if (excess > 0 && excess <= w->late.n)
        return MAX(end_of(w->late.part, width_ns), now_ns);
    return excess > 0 ? UINT64_MAX : now_ns;
}
