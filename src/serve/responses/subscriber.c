#include "serve/responses/subscriber.h"

#include "os/clock.h"
#include "serve/async.h"

enum { PIECE = 64 * 1024 };

struct subscriber { /* one exchange that follows a response; in the exchange's arena */
    struct async async;
    const struct stored_response *stored_response; /* a reference */
    bool is_stream;
    uint64_t from;
    bool has_place; /* `place` is set: the event `from` is in the log */
    struct event_log_pos place;
    struct loop_timer ping;
    uint64_t last_ns; /* time of the last write */
};

static struct response_store *response_store_of(const struct subscriber *w)
{
    return w->async.io->o->response_store;
}

static void unsubscribe(struct async *a)
{
    struct subscriber *w = container_of(a, struct subscriber, async);

    loop_timer_stop(a->io->loop, &w->ping);
    response_store_unref(response_store_of(w), w->stored_response);
}

/* Writes events while the client has room for them. Returns false if more events may be in the
 * log. */
static bool send_events(struct subscriber *w)
{
    struct sink *s = &w->async.x->sink;

    if (!w->has_place)
        w->has_place =
            live_response_seek(response_store_of(w), w->stored_response, &w->place, w->from);
    if (!w->has_place)
        return true;
    while (sink_queued(s) <= SINK_HIGH_WATER) {
        struct str piece =
            live_response_read(response_store_of(w), w->stored_response, &w->place, PIECE);
        if (!piece.n)
            return true;
        sink_write(s, piece);
        w->last_ns = clock_ns();
    }
    return false;
}

/* The stage is read before the events: when the response has ended, all its events are in the log.
 * w may be freed afterwards. */
static void advance(struct subscriber *w)
{
    struct http_exchange *x = w->async.x;
    const struct route_call *c = w->async.call;
    struct stored_response_view v;

    response_store_view(response_store_of(w), w->stored_response, &v);
    bool has_ended = v.stage != STORED_QUEUED && v.stage != STORED_RUNNING;
    if ((w->is_stream && !send_events(w)) || !has_ended)
        return;
    if (!w->is_stream)
        sink_respond(&x->sink, 200, "application/json", v.response, c->fields, c->n_fields);
    else if (v.is_log_truncated)
        sink_abort(&x->sink);
    else
        sink_end(&x->sink);
    async_close(&w->async);
}

static void on_drained(struct async *a)
{
    struct subscriber *w = container_of(a, struct subscriber, async);

    if (w->is_stream)
        advance(w);
}

/* The event log contains whole frames, so a keep-alive is sent only between two frames. */
static void on_ping(struct loop_timer *t)
{
    struct subscriber *w = container_of(t, struct subscriber, ping);
    uint64_t silence = w->async.io->o->ping_ms * NS_PER_MS, now = clock_ns();

    if (now - w->last_ns >= silence) {
        if (send_events(w))
            sink_write(&w->async.x->sink, dialect_responses.keepalive);
        w->last_ns = now;
    }
    loop_timer_set(w->async.io->loop, t, w->last_ns + silence);
}

void subscriber_message(struct io *io)
{
    atomic_exchange(&io->response_appended.is_posted, false);
    LIST_EACH (struct async, a, &io->subscribers, in_open) {
        advance(container_of(a, struct subscriber, async));
    }
}

void subscriber_revoke(struct io *io, const struct policy_snapshot *s)
{
    LIST_EACH (struct async, a, &io->subscribers, in_open) {
        struct subscriber *w = container_of(a, struct subscriber, async);
        if (!a->key || a->key->is_token || policy_snapshot_find(s, a->key->digest))
            continue;
        if (w->is_stream) {
            sink_abort(&a->x->sink);
            async_close(a);
        } else {
            struct err e;
            err_set(&e, ERR_AUTH, "The API key of this request was revoked.");
            async_reply_error(a, &e, NULL);
        }
    }
}

/* ---- start */

static void begin_stream(struct subscriber *w)
{
    struct http_field all[ROUTE_CALL_FIELDS_MAX + 2];
    int n = w->async.call->n_fields;

    if (n)
        memcpy(all, w->async.call->fields, (size_t)n * sizeof(*all));
    all[n++] = (struct http_field){ STR("Cache-Control"), STR("no-cache") };
    all[n++] = (struct http_field){ STR("X-Accel-Buffering"), STR("no") };
    sink_begin(&w->async.x->sink, 200, dialect_responses.stream_type, -1, all, n);
    w->ping.fn = on_ping;
    w->last_ns = clock_ns();
    loop_timer_set(w->async.io->loop, &w->ping, w->last_ns + w->async.io->o->ping_ms * NS_PER_MS);
}

/* The subscription precedes the first read, so that no event is missed. */
static void start_subscriber(struct io *io, const struct subscriber_params *a, bool is_stream)
{
    static const struct async_ops ops = { .drained = on_drained, .free = unsubscribe };
    struct subscriber *w = arena_zalloc(a->x->arena, 1, sizeof(*w));
    struct err e;

    if (!w) {
        err_set(&e, ERR_MEMORY, "no memory for the request");
        reply_error(a->x, a->call, &e, NULL);
        return;
    }
    async_init(&w->async, &ops, io, a->x, a->call);
    w->stored_response = response_store_ref(io->o->response_store, a->stored_response);
    w->is_stream = is_stream;
    w->from = a->from;
    w->has_place = !a->from;
    list_add_first(&io->subscribers, &w->async.in_open);
    live_response_subscribe(io->o->response_store, w->stored_response, (unsigned)io->index);
    if (is_stream)
        begin_stream(w);
    advance(w);
}

void subscriber_stream(struct io *io, const struct subscriber_params *a)
{
    start_subscriber(io, a, true);
}

void subscriber_wait_end(struct io *io, const struct subscriber_params *a)
{
    start_subscriber(io, a, false);
}
