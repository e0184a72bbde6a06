#include "serve/responses/background.h"

#include "api/responses/responses.h"
#include "os/clock.h"
#include "serve/responses/subscriber.h"

/* ---- wakeups */

static void post_wakeup(struct wakeup *n, struct io *io, int kind)
{
    if (atomic_exchange(&n->is_posted, true))
        return;
    n->msg.kind = kind;
    mailbox_post(loop_mailbox(io->loop), &n->msg);
}

static void wake_subscribers(const struct inflight *r, uint64_t listeners)
{
    for (int i = 0; listeners; i++, listeners >>= 1) {
        struct io *io = listeners & 1 ? service_io(r->io->service, i) : NULL;
        if (io)
            post_wakeup(&io->response_appended, io, MSG_RESPONSE_APPENDED);
    }
}

bool background_cancel(struct io *io, const struct stored_response *k)
{
    struct io *home = service_io(io->service, k->producer);

    if (!live_response_cancel(io->o->response_store, k))
        return false;
    post_wakeup(&home->response_cancelled, home, MSG_RESPONSE_CANCELLED);
    return true;
}

/* The flag is cleared before the responses are checked, so that a later cancellation posts a new
 * message. */
void background_message(struct io *io)
{
    struct err e;

    atomic_exchange(&io->response_cancelled.is_posted, false);
    err_set(&e, ERR_CANCELLED, "The response was cancelled.");
    LIST_EACH (struct async, a, &io->requests, in_open) {
        struct inflight *r = inflight_of(a);
        const struct background *b = r->background;
        if (b && b->stored_response &&
            live_response_is_cancel_requested(io->o->response_store, b->stored_response))
            inflight_fail(r, &e);
    }
}

/* ---- sink: stream frames are appended to the event log; a single body is stored at the end */

static struct background *background_of(struct sink *s)
{
    return container_of(s, struct background, sink);
}

static void on_begin(struct sink *s, int status, const char *type, int64_t n_bytes,
    const struct http_field *fields, int n_fields)
{
}

static void on_write(struct sink *s, struct str bytes)
{
    struct background *b = background_of(s);
    const struct inflight *r = b->inflight;
    uint64_t listeners = 0;

    if (!r->request.stream || b->is_full)
        return;
    if (b->is_ending) {
        buf_puts(&b->last, bytes);
        return;
    }
    b->is_full =
        !live_response_append(r->io->o->response_store, b->stored_response, bytes, &listeners);
    wake_subscribers(r, listeners);
}

static void on_end(struct sink *s)
{
}

/* Memory was short for the last frames. */
static void on_abort(struct sink *s)
{
    background_of(s)->is_full = true;
}

static size_t on_queued(const struct sink *s)
{
    return 0; /* no back-pressure: the response store limits the bytes */
}

static const struct sink_ops sink_ops = { on_begin, on_write, on_end, on_abort, on_queued };

struct sink *background_sink(struct inflight *r)
{
    return &r->background->sink;
}

/* ---- start */

int background_new(struct inflight *r, struct err *e)
{
    r->background = arena_zalloc(r->async.arena, 1, sizeof(*r->background));
    if (!r->background)
        return err_set(e, ERR_MEMORY, "no memory for the request");
    r->background->sink.ops = &sink_ops;
    r->background->inflight = r;
    buf_init(&r->background->last, RESPONSE_BYTES_MAX);
    return 0;
}

int background_store(struct inflight *r, struct err *e)
{
    struct background *b = r->background;
    struct buf response, input;

    buf_init(&response, RESPONSE_BYTES_MAX);
    buf_init(&input, RESPONSE_BYTES_MAX);
    if (response_serialize(r->response, &response, &input)) {
        struct stored_response k = { .id = str_of(response_id(r->response)),
            .response = buf_str(&response),
            .input = buf_str(&input),
            .previous = r->previous,
            .has_event_log = r->request.stream,
            .producer = r->io->index };
        b->stored_response = live_response_begin(
            r->io->o->response_store, caller_tenant(&r->caller), &k, clock_ns());
    }
    buf_clear(&response);
    buf_clear(&input);
    if (b->stored_response)
        return 0;
    return err_param(
        e, ERR_OVERLOADED, "background", "The response store has no room for this response.");
}

int background_detach(struct inflight *r, struct err *e)
{
    struct background *b = r->background;
    struct http_exchange *x = r->async.x;
    struct route_call *c = r->async.call;

    if (b->is_full)
        return err_param(
            e, ERR_OVERLOADED, "background", "The response store has no room for this response.");
    async_detach(&r->async);
    metric_add(&r->io->metrics, METRIC_responses_background_total, 1);
    metric_add(&r->io->metrics, METRIC_responses_background_running, 1);
    if (r->request.stream)
        subscriber_stream(r->io, &(struct subscriber_params){ x, c, b->stored_response, 0 });
    else
        sink_respond(&x->sink, 200, "application/json", b->stored_response->response, c->fields,
            c->n_fields);
    return 0;
}

void background_set_running(struct inflight *r)
{
    if (!r->background || !r->response || r->background->has_run)
        return;
    r->background->has_run = true;
    live_response_set_running(r->io->o->response_store, r->background->stored_response);
    response_set_running(r->response);
    inflight_flush(r);
}

bool background_has_room(const struct inflight *r)
{
    return !r->background || !r->background->is_full;
}

/* ---- end */

void background_begin_end(struct inflight *r)
{
    if (r->background)
        r->background->is_ending = true;
}

static enum stored_stage stage_of(enum errcode why)
{
    return why == ERR_NONE        ? STORED_COMPLETED
           : why == ERR_CANCELLED ? STORED_CANCELLED
                                  : STORED_FAILED;
}

/* Stores the final object. Returns false if the store has no room or memory is short. */
static bool end_whole(struct inflight *r, const struct response *a, uint64_t *listeners)
{
    struct background *b = r->background;
    struct live_response_final last = { .stage = stage_of(r->err.code),
        .frames = buf_str(&b->last) };
    struct buf response, input;
    bool is_ok = false;

    buf_init(&response, RESPONSE_BYTES_MAX);
    buf_init(&input, RESPONSE_BYTES_MAX);
    if (!b->is_full && buf_ok(&b->last) && response_serialize(a, &response, &input)) {
        last.response = buf_str(&response);
        is_ok = live_response_end(
            r->io->o->response_store, b->stored_response, &last, clock_ns(), listeners);
    }
    buf_clear(&response);
    buf_clear(&input);
    return is_ok;
}

/* Stores the initial object with status `failed`, for which room is always reserved. If memory is
 * too short even to write it, the response is removed from the store. */
static void end_as_failed(struct inflight *r, uint64_t *listeners)
{
    const struct stored_response *k = r->background->stored_response;
    struct live_response_final last = { .stage = STORED_FAILED };
    struct response_store *response_store = r->io->o->response_store;
    struct buf response, frames;
    struct stored_response_view v;

    if (!r->err.code)
        err_set(&r->err, ERR_MEMORY, "The response store has no room for the complete response.");
    buf_init(&response, RESPONSE_BYTES_MAX);
    buf_init(&frames, RESPONSE_BYTES_MAX);
    responses_set_status(&response, k->response, "failed", &r->err);
    response_store_view(response_store, k, &v);
    if (k->has_event_log)
        responses_put_failed(&frames, buf_str(&response), v.n_frames);
    last.is_log_truncated = !buf_ok(&response) || !buf_ok(&frames);
    last.response = buf_ok(&response) ? buf_str(&response) : k->response;
    last.frames = last.is_log_truncated ? STR_NONE : buf_str(&frames);
    if (!buf_ok(&response))
        response_store_remove(response_store, caller_tenant(&r->caller), k->id, clock_ns());
    CHECK(live_response_end(response_store, k, &last, clock_ns(), listeners));
    buf_clear(&response);
    buf_clear(&frames);
}

void background_finish_end(struct inflight *r, const struct response *a)
{
    uint64_t listeners = 0;

    if (!r->background)
        return;
    if (!end_whole(r, a, &listeners))
        end_as_failed(r, &listeners);
    wake_subscribers(r, listeners);
    metric_add(&r->io->metrics, METRIC_responses_background_running, -1);
}

void background_free(struct inflight *r)
{
    struct background *b = r->background;
    struct response_store *response_store = r->io->o->response_store;
    struct stored_response_view v;

    if (!b)
        return;
    buf_clear(&b->last);
    if (!b->stored_response)
        return;
    response_store_view(response_store, b->stored_response, &v);
    /* rejected before its client received the id */
    if (v.stage == STORED_QUEUED || v.stage == STORED_RUNNING)
        response_store_remove(
            response_store, caller_tenant(&r->caller), b->stored_response->id, clock_ns());
    response_store_unref(response_store, b->stored_response);
    b->stored_response = NULL;
}
