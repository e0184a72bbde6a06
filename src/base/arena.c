#include "base/arena.h"
#include "base/limits.h"
#include "base/mem.h"

enum { ALIGN = 16 };

struct arena_chunk {
    struct arena_chunk *next;
    size_t used, size; /* bytes of data[] */
    char data[] ALIGNED(ALIGN);
};

struct cleanup_entry {
    struct cleanup_entry *next;
    void (*fn)(void *arg);
    void *arg;
};

struct arena {
    struct arena_chunk *head;
    struct cleanup_entry *cleanups;
    size_t used, max;
    size_t chunk_bytes;    /* allocated for chunks */
    struct charge *charge; /* NULL: not counted */
};

struct arena *arena_new(size_t max_bytes)
{
    struct arena *a = try_calloc(1, sizeof(*a));

    if (a)
        a->max = max_bytes;
    return a;
}

void arena_free(struct arena *a)
{
    if (!a)
        return;
    for (struct cleanup_entry *c = a->cleanups; c; c = c->next)
        c->fn(c->arg);
    if (a->charge) /* before the chunk is freed that may contain it */
        charge_sub(a->charge, a->chunk_bytes);
    for (struct arena_chunk *c = a->head, *next; c; c = next) {
        next = c->next;
        mem_free(c);
    }
    mem_free(a);
}

bool arena_charge(struct arena *a, struct charge *c)
{
    CHECK(!a->charge);
    if (!charge_add(c, a->chunk_bytes))
        return false;
    a->charge = c;
    return true;
}

static struct arena_chunk *chunk_for(struct arena *a, size_t n)
{
    size_t size = a->head ? MIN(a->head->size / 2 * 3, MB) : (size_t)ARENA_CHUNK;

    size = MAX(size, n);
    size_t bytes = sizeof(struct arena_chunk) + size;
    if (a->charge && !charge_add(a->charge, bytes))
        return NULL;
    struct arena_chunk *c = try_malloc(bytes);
    if (!c) {
        if (a->charge)
            charge_sub(a->charge, bytes);
        return NULL;
    }
    a->chunk_bytes += bytes;
    c->next = a->head;
    c->used = 0;
    c->size = size;
    return a->head = c;
}

void *arena_alloc(struct arena *a, size_t n)
{
    struct arena_chunk *c = a->head;

    if (n > a->max - a->used)
        return NULL;
    size_t padded = (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    padded = padded ? padded : ALIGN;
    if (!c || padded > c->size - c->used)
        c = chunk_for(a, padded);
    if (!c)
        return NULL;
    void *p = c->data + c->used;
    c->used += padded;
    a->used += n;
    return p;
}

void *arena_zalloc(struct arena *a, size_t n, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(n, size, &bytes))
        return NULL;
    void *p = arena_alloc(a, bytes);
    return p ? memset(p, 0, bytes) : NULL;
}

struct str arena_str(struct arena *a, struct str s)
{
    char *p = s.n < SIZE_MAX ? arena_alloc(a, s.n + 1) : NULL;

    if (!p)
        return STR_NONE;
    if (s.n)
        memcpy(p, s.p, s.n);
    p[s.n] = '\0';
    return (struct str){ p, s.n };
}

void *arena_realloc(struct arena *a, void *p, size_t old, size_t n)
{
    struct arena_chunk *c = a->head;
    size_t padded_old = (old + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    size_t padded = (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);

    if (!p)
        return arena_alloc(a, n);
    if (n <= old)
        return p;
    bool is_last = c && old && (char *)p + padded_old == c->data + c->used;
    if (is_last && padded - padded_old <= c->size - c->used && n - old <= a->max - a->used) {
        c->used += padded - padded_old;
        a->used += n - old;
        return p;
    }
    void *q = arena_alloc(a, n);
    return q ? memcpy(q, p, old) : NULL;
}

int arena_cleanup(struct arena *a, void (*fn)(void *arg), void *arg)
{
    struct cleanup_entry *c = arena_alloc(a, sizeof(*c));

    if (!c)
        return -1;
    *c = (struct cleanup_entry){ a->cleanups, fn, arg };
    a->cleanups = c;
    return 0;
}

size_t arena_used(const struct arena *a)
{
    return a->used;
}
