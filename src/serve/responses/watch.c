#include "serve/responses/watch.h"

#include "os/clock.h"

enum { PIECE = 64 * 1024 };

struct watch { /* one exchange that follows a response; in the exchange's arena */
    struct pending pending;
    struct watch *next, **prev; /* in io->watches */
    struct io *io;
    struct http_exchange *x;
    struct call *call;
    const struct kept *kept; /* a reference */
    bool is_stream;
    uint64_t from;
    bool has_place; /* `place` is set: the event `from` is in the log */
    struct tape_place place;
    struct loop_timer ping;
    uint64_t last_ns; /* time of the last write */
};

static struct shelf *shelf_of(const struct watch *w)
{
    return w->io->o->shelf;
}

static void unsubscribe(struct watch *w)
{
    loop_timer_stop(w->io->loop, &w->ping);
    *w->prev = w->next;
    if (w->next)
        w->next->prev = w->prev;
    w->x->user = NULL;
    shelf_unref(shelf_of(w), w->kept);
}

/* Writes events while the client has room for them. Returns false if more events may be in the
 * log. */
static bool send_events(struct watch *w)
{
    struct sink *s = &w->x->sink;

    if (!w->has_place)
        w->has_place = growing_seek(shelf_of(w), w->kept, &w->place, w->from);
    if (!w->has_place)
        return true;
    while (sink_queued(s) <= SINK_HIGH_WATER) {
        struct str piece = growing_read(shelf_of(w), w->kept, &w->place, PIECE);
        if (!piece.n)
            return true;
        sink_write(s, piece);
        w->last_ns = clock_ns();
    }
    return false;
}

/* The stage is read before the events: when the response has ended, all its events are in the log.
 * w may be freed afterwards. */
static void advance(struct watch *w)
{
    struct http_exchange *x = w->x;
    const struct call *c = w->call;
    struct kept_view v;

    shelf_look(shelf_of(w), w->kept, &v);
    bool has_ended = v.stage != KEPT_WAITS && v.stage != KEPT_RUNS;
    if ((w->is_stream && !send_events(w)) || !has_ended)
        return;
    if (!w->is_stream)
        sink_reply(&x->sink, 200, "application/json", v.answer, c->fields, c->n_fields);
    else if (v.is_cut)
        sink_abort(&x->sink);
    else
        sink_end(&x->sink);
    unsubscribe(w);
}

static void on_gone(struct pending *p)
{
    unsubscribe(container_of(p, struct watch, pending));
}

static void on_drained(struct pending *p)
{
    struct watch *w = container_of(p, struct watch, pending);

    if (w->is_stream)
        advance(w);
}

/* The event log contains whole frames, so a keep-alive is sent only between two frames. */
static void on_ping(struct loop_timer *t)
{
    struct watch *w = container_of(t, struct watch, ping);
    uint64_t silence = (uint64_t)w->io->o->ping_ms * 1000000, now = clock_ns();

    if (now - w->last_ns >= silence) {
        if (send_events(w))
            sink_write(&w->x->sink, wire_responses.keepalive);
        w->last_ns = now;
    }
    loop_timer_set(w->io->loop, t, w->last_ns + silence);
}

void watch_message(struct io *io)
{
    atomic_exchange(&io->grown.is_under_way, false);
    for (struct watch *w = io->watches, *next; w; w = next) {
        next = w->next;
        advance(w);
    }
}

/* ---- start */

static void begin_stream(struct watch *w)
{
    struct http_field all[CALL_FIELDS_MAX + 2];
    int n = w->call->n_fields;

    if (n)
        memcpy(all, w->call->fields, (size_t)n * sizeof(*all));
    all[n++] = (struct http_field){ STR("Cache-Control"), STR("no-cache") };
    all[n++] = (struct http_field){ STR("X-Accel-Buffering"), STR("no") };
    sink_begin(&w->x->sink, 200, wire_responses.stream_type, -1, all, n);
    w->ping.fn = on_ping;
    w->last_ns = clock_ns();
    loop_timer_set(w->io->loop, &w->ping, w->last_ns + (uint64_t)w->io->o->ping_ms * 1000000);
}

/* The subscription precedes the first read, so that no event is missed. */
static void start_subscriber(struct io *io, const struct watch_ask *a, bool is_stream)
{
    struct watch *w = arena_zalloc(a->x->arena, 1, sizeof(*w));
    struct err e;

    if (!w) {
        err_set(&e, ERR_MEMORY, "no memory for the request");
        reply_error(a->x, a->call, &e, NULL);
        return;
    }
    w->pending = (struct pending){ on_gone, on_drained };
    w->io = io;
    w->x = a->x;
    w->call = a->call;
    w->kept = shelf_ref(io->o->shelf, a->kept);
    w->is_stream = is_stream;
    w->from = a->from;
    w->has_place = !a->from;
    w->next = io->watches;
    w->prev = &io->watches;
    if (io->watches)
        io->watches->prev = &w->next;
    io->watches = w;
    w->x->user = &w->pending;
    growing_listen(io->o->shelf, w->kept, (unsigned)io->index);
    if (is_stream)
        begin_stream(w);
    advance(w);
}

void watch_stream(struct io *io, const struct watch_ask *a)
{
    start_subscriber(io, a, true);
}

void watch_end(struct io *io, const struct watch_ask *a)
{
    start_subscriber(io, a, false);
}
