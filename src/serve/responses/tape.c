#include "serve/responses/tape.h"

#include "base/limits.h"
#include "base/mem.h"

enum { CHUNK_FIRST = SMALL ? 16 : 2048, CHUNK_MAX = SMALL ? 64 : 64 * 1024 };

struct reel {
    struct reel *next;
    uint64_t n_frames_before;
    size_t n, cap;
    char bytes[];
};

void tape_clear(struct tape *t)
{
    for (struct reel *r = t->first, *next; r; r = next) {
        next = r->next;
        mem_free(r);
    }
    mem_free(t->spare);
    *t = (struct tape){ 0 };
}

static bool fits(const struct tape *t, size_t n)
{
    return t->last && n <= t->last->cap - t->last->n;
}

static size_t next_cap(const struct tape *t, size_t n)
{
    size_t cap = t->last ? MIN(2 * t->last->cap, (size_t)CHUNK_MAX) : (size_t)CHUNK_FIRST;

    return MAX(cap, n);
}

size_t tape_cost(const struct tape *t, size_t n)
{
    return !n || fits(t, n) ? 0 : sizeof(struct reel) + next_cap(t, n);
}

static void add_chunk(struct tape *t, struct reel *r, size_t cap)
{
    *r = (struct reel){ .n_frames_before = t->n_frames, .cap = cap };
    *(t->last ? &t->last->next : &t->first) = r;
    t->last = r;
}

static bool make_room(struct tape *t, size_t n)
{
    size_t cap = next_cap(t, n);
    struct reel *r = fits(t, n) ? t->last : try_malloc(sizeof(*r) + cap);

    if (r && r != t->last)
        add_chunk(t, r, cap);
    return r != NULL;
}

/* End of the frame that begins at p: the byte after its empty line. */
static const char *frame_end(const char *p, const char *end)
{
    const char *line;

    while (p < end && (line = memchr(p, '\n', (size_t)(end - p)))) {
        if (line + 1 < end && line[1] == '\n')
            return line + 2;
        p = line + 1;
    }
    return end;
}

bool tape_put(struct tape *t, struct str frames)
{
    if (!frames.n)
        return true;
    CHECK(str_ends(frames, STR("\n\n")));
    if (!make_room(t, frames.n))
        return false;
    memcpy(t->last->bytes + t->last->n, frames.p, frames.n);
    t->last->n += frames.n;
    const char *end = frames.p + frames.n;
    for (const char *p = frames.p; p < end; p = frame_end(p, end))
        t->n_frames++;
    return true;
}

size_t tape_reserve(struct tape *t, size_t n)
{
    CHECK(!t->spare);
    t->spare = try_malloc(sizeof(struct reel) + n);
    if (!t->spare)
        return 0;
    t->spare->cap = n;
    return sizeof(struct reel) + n;
}

bool tape_put_reserved(struct tape *t, struct str frames)
{
    struct reel *r = t->spare;

    if (!r || frames.n > r->cap)
        return false;
    t->spare = NULL;
    add_chunk(t, r, r->cap);
    return tape_put(t, frames);
}

struct str tape_read(const struct tape *t, struct tape_place *p, size_t most)
{
    if (!p->reel)
        p->reel = t->first;
    while (p->reel && p->at == p->reel->n && p->reel->next)
        *p = (struct tape_place){ .reel = p->reel->next };
    if (!p->reel)
        return STR_NONE;
    struct str piece = { p->reel->bytes + p->at, MIN(p->reel->n - p->at, most) };
    p->at += piece.n;
    return piece;
}

bool tape_seek(const struct tape *t, struct tape_place *p, uint64_t frame)
{
    const struct reel *r = t->first;

    if (frame >= t->n_frames)
        return false;
    while (r->next && r->next->n_frames_before <= frame)
        r = r->next;
    const char *start = r->bytes, *end = r->bytes + r->n;
    for (uint64_t i = r->n_frames_before; i < frame; i++)
        start = frame_end(start, end);
    *p = (struct tape_place){ r, (size_t)(start - r->bytes) };
    return true;
}
