#include "serve/responses/response_store_in.h"

#include "base/mem.h"

static struct live_state *live_state_of(const struct stored_response *k)
{
    struct live_state *g = response_store_entry(k)->live_state;

    CHECK(g);
    return g;
}

static bool has_ended(const struct live_state *g)
{
    return g->stage != STORED_QUEUED && g->stage != STORED_RUNNING;
}

const struct stored_response *live_response_begin(
    struct response_store *s, uint64_t owner, const struct stored_response *from, uint64_t now_ns)
{
    size_t reserve_bytes = from->response.n + LIVE_RESPONSE_RESERVE;
    char *extra;
    struct store_entry *k =
        response_store_new_entry(from, sizeof(struct live_state) + reserve_bytes, &extra);

    if (!k)
        return NULL;
    k->live_state = (struct live_state *)(void *)extra;
    *k->live_state = (struct live_state){ .stage = STORED_QUEUED,
        .reserve = extra + sizeof(struct live_state),
        .reserve_bytes = reserve_bytes };
    k->stored_response.is_background = true;
    k->stored_response.has_event_log = from->has_event_log;
    k->stored_response.producer = from->producer;
    k->refs = 2; /* the store's and the producer's */
    size_t n_last =
        from->has_event_log ? event_log_reserve(&k->live_state->event_log, reserve_bytes) : 0;
    k->bytes += n_last;
    if ((n_last || !from->has_event_log) && response_store_insert(s, owner, k, now_ns))
        return &k->stored_response;
    event_log_clear(&k->live_state->event_log);
    mem_free(k);
    return NULL;
}

void live_response_set_running(struct response_store *s, const struct stored_response *k)
{
    struct live_state *g = live_state_of(k);

    pthread_mutex_lock(&s->mu);
    CHECK(!has_ended(g));
    g->stage = STORED_RUNNING;
    pthread_mutex_unlock(&s->mu);
}

/* The caller holds the mutex. Reserves `more` bytes and room for the frames, and appends the
 * frames. Returns false if nothing changed. */
static bool append_frames(struct response_store *s, struct store_entry *k, size_t more,
    struct str frames, struct store_entry **gone)
{
    struct event_log *t = &k->live_state->event_log;
    size_t bytes = more + event_log_cost(t, frames.n);

    if (!response_store_reserve(s, k, bytes, gone))
        return false;
    if (event_log_append(t, frames))
        return true;
    response_store_unreserve(s, k, bytes);
    return false;
}

/* Same, but appends into the room that is reserved for the final event. */
static bool append_reserved_frames(struct response_store *s, struct store_entry *k, size_t more,
    struct str frames, struct store_entry **gone)
{
    if (!response_store_reserve(s, k, more, gone))
        return false;
    if (event_log_append_reserved(&k->live_state->event_log, frames))
        return true;
    response_store_unreserve(s, k, more);
    return false;
}

bool live_response_append(struct response_store *s, const struct stored_response *k,
    struct str frames, uint64_t *listeners)
{
    struct live_state *g = live_state_of(k);
    struct store_entry *gone = NULL;

    pthread_mutex_lock(&s->mu);
    CHECK(!has_ended(g));
    bool is_ok = append_frames(s, response_store_entry(k), 0, frames, &gone);
    *listeners = g->listeners;
    pthread_mutex_unlock(&s->mu);
    response_store_free_entries(gone);
    return is_ok;
}

/* The caller holds the mutex. The final response is in `block`, or is copied to the reserved bytes
 * if `block` is NULL. */
static bool set_final(struct response_store *s, struct store_entry *k,
    const struct live_response_final *last, char *block, struct store_entry **gone)
{
    struct live_state *g = k->live_state;

    CHECK(!has_ended(g) && last->stage != STORED_QUEUED && last->stage != STORED_RUNNING);
    size_t more = block ? last->response.n : 0;
    if (!append_frames(s, k, more, last->frames, gone) &&
        !append_reserved_frames(s, k, more, last->frames, gone))
        return false;
    if (!block)
        memcpy(g->reserve, last->response.p, last->response.n);
    g->final = (struct str){ block ? block : g->reserve, last->response.n };
    g->final_block = block;
    g->is_log_truncated = last->is_log_truncated;
    g->stage = last->stage;
    return true;
}

bool live_response_end(struct response_store *s, const struct stored_response *stored_response,
    const struct live_response_final *last, uint64_t now_ns, uint64_t *listeners)
{
    struct store_entry *k = response_store_entry(stored_response), *gone = NULL;
    char *block = NULL;

    if (last->response.n > k->live_state->reserve_bytes) {
        block = try_malloc(last->response.n);
        if (!block)
            return false;
        memcpy(block, last->response.p, last->response.n);
    }
    pthread_mutex_lock(&s->mu);
    bool is_ok = set_final(s, k, last, block, &gone);
    if (is_ok && k->is_found)
        response_store_set_complete(k, now_ns);
    *listeners = k->live_state->listeners;
    pthread_mutex_unlock(&s->mu);
    if (!is_ok)
        mem_free(block);
    response_store_free_entries(gone);
    return is_ok;
}

void live_response_subscribe(
    struct response_store *s, const struct stored_response *k, unsigned listener)
{
    CHECK(listener < 64);
    pthread_mutex_lock(&s->mu);
    live_state_of(k)->listeners |= 1ull << listener;
    pthread_mutex_unlock(&s->mu);
}

struct str live_response_read(
    struct response_store *s, const struct stored_response *k, struct event_log_pos *p, size_t most)
{
    pthread_mutex_lock(&s->mu);
    struct str piece = event_log_read(&live_state_of(k)->event_log, p, most);
    pthread_mutex_unlock(&s->mu);
    return piece;
}

bool live_response_seek(struct response_store *s, const struct stored_response *k,
    struct event_log_pos *p, uint64_t frame)
{
    pthread_mutex_lock(&s->mu);
    bool is_there = event_log_seek(&live_state_of(k)->event_log, p, frame);
    pthread_mutex_unlock(&s->mu);
    return is_there;
}

bool live_response_cancel(struct response_store *s, const struct stored_response *k)
{
    struct live_state *g = live_state_of(k);

    pthread_mutex_lock(&s->mu);
    bool is_going = !has_ended(g);
    g->is_cancel_requested = true;
    pthread_mutex_unlock(&s->mu);
    return is_going;
}

bool live_response_is_cancel_requested(struct response_store *s, const struct stored_response *k)
{
    pthread_mutex_lock(&s->mu);
    bool is_cancel_requested = live_state_of(k)->is_cancel_requested;
    pthread_mutex_unlock(&s->mu);
    return is_cancel_requested;
}
