#include "serve/responses/event_log.h"

#include "base/limits.h"
#include "base/mem.h"

enum { CHUNK_FIRST = SMALL ? 16 : 2048, CHUNK_MAX = SMALL ? 64 : 64 * 1024 };

struct log_chunk {
    struct log_chunk *next;
    uint64_t n_frames_before;
    size_t n, cap;
    char bytes[];
};

void event_log_clear(struct event_log *t)
{
    for (struct log_chunk *r = t->first, *next; r; r = next) {
        next = r->next;
        mem_free(r);
    }
    mem_free(t->reserve);
    *t = (struct event_log){ 0 };
}

static bool fits(const struct event_log *t, size_t n)
{
    return t->last && n <= t->last->cap - t->last->n;
}

static size_t next_cap(const struct event_log *t, size_t n)
{
    size_t cap = t->last ? MIN(2 * t->last->cap, (size_t)CHUNK_MAX) : (size_t)CHUNK_FIRST;

    return MAX(cap, n);
}

size_t event_log_cost(const struct event_log *t, size_t n)
{
    return !n || fits(t, n) ? 0 : sizeof(struct log_chunk) + next_cap(t, n);
}

static void add_chunk(struct event_log *t, struct log_chunk *r, size_t cap)
{
    *r = (struct log_chunk){ .n_frames_before = t->n_frames, .cap = cap };
    *(t->last ? &t->last->next : &t->first) = r;
    t->last = r;
}

static bool make_room(struct event_log *t, size_t n)
{
    size_t cap = next_cap(t, n);
    struct log_chunk *r = fits(t, n) ? t->last : try_malloc(sizeof(*r) + cap);

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

bool event_log_append(struct event_log *t, struct str frames)
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

size_t event_log_reserve(struct event_log *t, size_t n)
{
    CHECK(!t->reserve);
    t->reserve = try_malloc(sizeof(struct log_chunk) + n);
    if (!t->reserve)
        return 0;
    t->reserve->cap = n;
    return sizeof(struct log_chunk) + n;
}

bool event_log_append_reserved(struct event_log *t, struct str frames)
{
    struct log_chunk *r = t->reserve;

    if (!r || frames.n > r->cap)
        return false;
    t->reserve = NULL;
    add_chunk(t, r, r->cap);
    return event_log_append(t, frames);
}

struct str event_log_read(const struct event_log *t, struct event_log_pos *p, size_t most)
{
    if (!p->log_chunk)
        p->log_chunk = t->first;
    while (p->log_chunk && p->offset == p->log_chunk->n && p->log_chunk->next)
        *p = (struct event_log_pos){ .log_chunk = p->log_chunk->next };
    if (!p->log_chunk)
        return STR_NONE;
    struct str piece = { p->log_chunk->bytes + p->offset, MIN(p->log_chunk->n - p->offset, most) };
    p->offset += piece.n;
    return piece;
}

bool event_log_seek(const struct event_log *t, struct event_log_pos *p, uint64_t frame)
{
    const struct log_chunk *r = t->first;

    if (frame >= t->n_frames)
        return false;
    while (r->next && r->next->n_frames_before <= frame)
        r = r->next;
    const char *start = r->bytes, *end = r->bytes + r->n;
    for (uint64_t i = r->n_frames_before; i < frame; i++)
        start = frame_end(start, end);
    *p = (struct event_log_pos){ r, (size_t)(start - r->bytes) };
    return true;
}
