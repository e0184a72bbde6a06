#include "serve/responses/shelf_in.h"

#include "base/mem.h"

static struct growth *growth_of(const struct kept *k)
{
    struct growth *g = shelf_entry(k)->growth;

    CHECK(g);
    return g;
}

static bool has_ended(const struct growth *g)
{
    return g->stage != KEPT_WAITS && g->stage != KEPT_RUNS;
}

const struct kept *growing_begin(
    struct shelf *s, uint64_t owner, const struct kept *from, uint64_t now_ns)
{
    size_t n_spare = from->answer.n + GROWING_SPARE;
    char *extra;
    struct entry *k = shelf_new_entry(from, sizeof(struct growth) + n_spare, &extra);

    if (!k)
        return NULL;
    k->growth = (struct growth *)(void *)extra;
    *k->growth = (struct growth){
        .stage = KEPT_WAITS, .spare = extra + sizeof(struct growth), .n_spare = n_spare
    };
    k->kept.is_grown = true;
    k->kept.is_told = from->is_told;
    k->kept.maker = from->maker;
    k->refs = 2; /* the store's and the producer's */
    size_t n_last = from->is_told ? tape_reserve(&k->growth->tape, n_spare) : 0;
    k->bytes += n_last;
    if ((n_last || !from->is_told) && shelf_bring_in(s, owner, k, now_ns))
        return &k->kept;
    tape_clear(&k->growth->tape);
    mem_free(k);
    return NULL;
}

void growing_runs(struct shelf *s, const struct kept *k)
{
    struct growth *g = growth_of(k);

    pthread_mutex_lock(&s->mu);
    CHECK(!has_ended(g));
    g->stage = KEPT_RUNS;
    pthread_mutex_unlock(&s->mu);
}

/* The caller holds the mutex. Reserves `more` bytes and room for the frames, and appends the
 * frames. Returns false if nothing changed. */
static bool append_frames(
    struct shelf *s, struct entry *k, size_t more, struct str frames, struct entry **gone)
{
    struct tape *t = &k->growth->tape;
    size_t bytes = more + tape_cost(t, frames.n);

    if (!shelf_claim(s, k, bytes, gone))
        return false;
    if (tape_put(t, frames))
        return true;
    shelf_unclaim(s, k, bytes);
    return false;
}

/* Same, but appends into the room that is reserved for the final event. */
static bool append_reserved_frames(
    struct shelf *s, struct entry *k, size_t more, struct str frames, struct entry **gone)
{
    if (!shelf_claim(s, k, more, gone))
        return false;
    if (tape_put_reserved(&k->growth->tape, frames))
        return true;
    shelf_unclaim(s, k, more);
    return false;
}

bool growing_put(struct shelf *s, const struct kept *k, struct str frames, uint64_t *listeners)
{
    struct growth *g = growth_of(k);
    struct entry *gone = NULL;

    pthread_mutex_lock(&s->mu);
    CHECK(!has_ended(g));
    bool is_ok = append_frames(s, shelf_entry(k), 0, frames, &gone);
    *listeners = g->listeners;
    pthread_mutex_unlock(&s->mu);
    shelf_free_all(gone);
    return is_ok;
}

/* The caller holds the mutex. The final response is in `block`, or is copied to the reserved bytes
 * if `block` is NULL. */
static bool set_final(struct shelf *s, struct entry *k, const struct growing_last *last,
    char *block, struct entry **gone)
{
    struct growth *g = k->growth;

    CHECK(!has_ended(g) && last->stage != KEPT_WAITS && last->stage != KEPT_RUNS);
    size_t more = block ? last->answer.n : 0;
    if (!append_frames(s, k, more, last->frames, gone) &&
        !append_reserved_frames(s, k, more, last->frames, gone))
        return false;
    if (!block)
        memcpy(g->spare, last->answer.p, last->answer.n);
    g->final = (struct str){ block ? block : g->spare, last->answer.n };
    g->final_block = block;
    g->is_cut = last->is_cut;
    g->stage = last->stage;
    return true;
}

bool growing_end(struct shelf *s, const struct kept *kept, const struct growing_last *last,
    uint64_t now_ns, uint64_t *listeners)
{
    struct entry *k = shelf_entry(kept), *gone = NULL;
    char *block = NULL;

    if (last->answer.n > k->growth->n_spare) {
        block = try_malloc(last->answer.n);
        if (!block)
            return false;
        memcpy(block, last->answer.p, last->answer.n);
    }
    pthread_mutex_lock(&s->mu);
    bool is_ok = set_final(s, k, last, block, &gone);
    if (is_ok && k->is_found)
        shelf_list(k, now_ns);
    *listeners = k->growth->listeners;
    pthread_mutex_unlock(&s->mu);
    if (!is_ok)
        mem_free(block);
    shelf_free_all(gone);
    return is_ok;
}

void growing_listen(struct shelf *s, const struct kept *k, unsigned listener)
{
    CHECK(listener < 64);
    pthread_mutex_lock(&s->mu);
    growth_of(k)->listeners |= 1ull << listener;
    pthread_mutex_unlock(&s->mu);
}

struct str growing_read(struct shelf *s, const struct kept *k, struct tape_place *p, size_t most)
{
    pthread_mutex_lock(&s->mu);
    struct str piece = tape_read(&growth_of(k)->tape, p, most);
    pthread_mutex_unlock(&s->mu);
    return piece;
}

bool growing_seek(struct shelf *s, const struct kept *k, struct tape_place *p, uint64_t frame)
{
    pthread_mutex_lock(&s->mu);
    bool is_there = tape_seek(&growth_of(k)->tape, p, frame);
    pthread_mutex_unlock(&s->mu);
    return is_there;
}

bool growing_stop(struct shelf *s, const struct kept *k)
{
    struct growth *g = growth_of(k);

    pthread_mutex_lock(&s->mu);
    bool is_going = !has_ended(g);
    g->is_unwanted = true;
    pthread_mutex_unlock(&s->mu);
    return is_going;
}

bool growing_is_unwanted(struct shelf *s, const struct kept *k)
{
    pthread_mutex_lock(&s->mu);
    bool is_unwanted = growth_of(k)->is_unwanted;
    pthread_mutex_unlock(&s->mu);
    return is_unwanted;
}
