#include "serve/responses/background.h"

#include "api/responses/responses.h"
#include "os/clock.h"
#include "serve/responses/watch.h"

/* ---- wakeups */

static void post_wakeup(struct notice *n, struct io *io, int kind)
{
    if (atomic_exchange(&n->is_under_way, true))
        return;
    n->msg.kind = kind;
    mailbox_post(loop_mailbox(io->loop), &n->msg);
}

static void wake_subscribers(const struct request *r, uint64_t listeners)
{
    for (int i = 0; listeners; i++, listeners >>= 1) {
        struct io *io = listeners & 1 ? service_io(r->io->service, i) : NULL;
        if (io)
            post_wakeup(&io->grown, io, MSG_GROWN);
    }
}

bool background_stop(struct io *io, const struct kept *k)
{
    struct io *home = service_io(io->service, k->maker);

    if (!growing_stop(io->o->shelf, k))
        return false;
    post_wakeup(&home->unwanted, home, MSG_UNWANTED);
    return true;
}

/* The flag is cleared before the responses are checked, so that a later cancellation posts a new
 * message. */
void background_message(struct io *io)
{
    struct err e;

    atomic_exchange(&io->unwanted.is_under_way, false);
    err_set(&e, ERR_CANCELLED, "The response was cancelled.");
    for (struct request *r = io->requests, *next; r; r = next) {
        const struct background *b = r->background;
        next = r->next;
        if (b && b->kept && request_is_open(r) && growing_is_unwanted(io->o->shelf, b->kept))
            request_fail(r, &e);
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
    const struct request *r = b->request;
    uint64_t listeners = 0;

    if (!r->ask.stream || b->is_full)
        return;
    if (b->is_ending) {
        buf_puts(&b->last, bytes);
        return;
    }
    b->is_full = !growing_put(r->io->o->shelf, b->kept, bytes, &listeners);
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

struct sink *background_sink(struct request *r)
{
    return &r->background->sink;
}

/* ---- start */

int background_new(struct request *r, struct err *e)
{
    r->background = arena_zalloc(r->arena, 1, sizeof(*r->background));
    if (!r->background)
        return err_set(e, ERR_MEMORY, "no memory for the request");
    r->background->sink.ops = &sink_ops;
    r->background->request = r;
    buf_init(&r->background->last, ANSWER_BYTES_MAX);
    return 0;
}

int background_keep(struct request *r, struct err *e)
{
    struct background *b = r->background;
    struct buf answer, input;

    buf_init(&answer, ANSWER_BYTES_MAX);
    buf_init(&input, ANSWER_BYTES_MAX);
    if (answer_keep(r->answer, &answer, &input)) {
        struct kept k = { .id = str_of(answer_id(r->answer)),
            .answer = buf_str(&answer),
            .input = buf_str(&input),
            .before = r->before,
            .is_told = r->ask.stream,
            .maker = r->io->index };
        b->kept = growing_begin(r->io->o->shelf, caller_tenant(&r->caller), &k, clock_ns());
    }
    buf_clear(&answer);
    buf_clear(&input);
    if (b->kept)
        return 0;
    return err_param(
        e, ERR_OVERLOADED, "background", "There is no room to keep this answer while it is made.");
}

int background_detach(struct request *r, struct err *e)
{
    struct background *b = r->background;
    struct http_exchange *x = r->x;
    struct call *c = r->call;

    if (b->is_full)
        return err_param(e, ERR_OVERLOADED, "background",
            "There is no room to keep this answer while it is made.");
    if (!r->body.bytes.p) /* the body is kept, because the input items are stored from it later */
        http_body_take(x, &r->body);
    x->user = NULL;
    r->x = NULL;
    r->call = NULL;
    metric_add(&r->io->metrics, METRIC_responses_background_total, 1);
    metric_add(&r->io->metrics, METRIC_responses_background_running, 1);
    if (r->ask.stream)
        watch_stream(r->io, &(struct watch_ask){ x, c, b->kept, 0 });
    else
        sink_reply(&x->sink, 200, "application/json", b->kept->answer, c->fields, c->n_fields);
    return 0;
}

void background_runs(struct request *r)
{
    if (!r->background || !r->answer || r->background->has_run)
        return;
    r->background->has_run = true;
    growing_runs(r->io->o->shelf, r->background->kept);
    answer_runs(r->answer);
    request_wrote(r);
}

bool background_fits(const struct request *r)
{
    return !r->background || !r->background->is_full;
}

/* ---- end */

void background_ending(struct request *r)
{
    if (r->background)
        r->background->is_ending = true;
}

static enum kept_stage stage_of(enum errcode why)
{
    return why == ERR_NONE ? KEPT_ENDED : why == ERR_CANCELLED ? KEPT_CANCELLED : KEPT_FAILED;
}

/* Stores the final object. Returns false if the store has no room or memory is short. */
static bool end_whole(struct request *r, const struct answer *a, uint64_t *listeners)
{
    struct background *b = r->background;
    struct growing_last last = { .stage = stage_of(r->err.code), .frames = buf_str(&b->last) };
    struct buf answer, input;
    bool is_ok = false;

    buf_init(&answer, ANSWER_BYTES_MAX);
    buf_init(&input, ANSWER_BYTES_MAX);
    if (!b->is_full && buf_ok(&b->last) && answer_keep(a, &answer, &input)) {
        last.answer = buf_str(&answer);
        is_ok = growing_end(r->io->o->shelf, b->kept, &last, clock_ns(), listeners);
    }
    buf_clear(&answer);
    buf_clear(&input);
    return is_ok;
}

/* Stores the initial object with status `failed`, for which room is always reserved. If memory is
 * too short even to write it, the response is removed from the store. */
static void end_as_failed(struct request *r, uint64_t *listeners)
{
    const struct kept *k = r->background->kept;
    struct growing_last last = { .stage = KEPT_FAILED };
    struct shelf *shelf = r->io->o->shelf;
    struct buf answer, frames;
    struct kept_view v;

    if (!r->err.code)
        err_set(&r->err, ERR_MEMORY, "There is no room to keep all of this answer.");
    buf_init(&answer, ANSWER_BYTES_MAX);
    buf_init(&frames, ANSWER_BYTES_MAX);
    responses_restate(&answer, k->answer, "failed", &r->err);
    shelf_look(shelf, k, &v);
    if (k->is_told)
        responses_put_failed(&frames, buf_str(&answer), v.n_frames);
    last.is_cut = !buf_ok(&answer) || !buf_ok(&frames);
    last.answer = buf_ok(&answer) ? buf_str(&answer) : k->answer;
    last.frames = last.is_cut ? STR_NONE : buf_str(&frames);
    if (!buf_ok(&answer))
        shelf_drop(shelf, caller_tenant(&r->caller), k->id, clock_ns());
    CHECK(growing_end(shelf, k, &last, clock_ns(), listeners));
    buf_clear(&answer);
    buf_clear(&frames);
}

void background_ended(struct request *r, const struct answer *a)
{
    uint64_t listeners = 0;

    if (!r->background)
        return;
    if (!end_whole(r, a, &listeners))
        end_as_failed(r, &listeners);
    wake_subscribers(r, listeners);
    metric_add(&r->io->metrics, METRIC_responses_background_running, -1);
}

void background_free(struct request *r)
{
    struct background *b = r->background;
    struct shelf *shelf = r->io->o->shelf;
    struct kept_view v;

    if (!b)
        return;
    buf_clear(&b->last);
    if (!b->kept)
        return;
    shelf_look(shelf, b->kept, &v);
    /* rejected before its client received the id */
    if (v.stage == KEPT_WAITS || v.stage == KEPT_RUNS)
        shelf_drop(shelf, caller_tenant(&r->caller), b->kept->id, clock_ns());
    shelf_unref(shelf, b->kept);
    b->kept = NULL;
}
