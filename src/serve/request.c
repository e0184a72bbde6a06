#include "serve/loading.h"

#include "base/log.h"
#include "os/clock.h"
#include "serve/responses/background.h"

static const size_t ARENA_MAX = 512 * 1024 * 1024;

/* ---- end */

static void write_audit(const struct request *r, const char *finish, int status)
{
    const struct prompt *p = r->prompts; /* NULL: the request was not prepared */
    struct str prompt = { p ? (const char *)p->ids : "", p ? (size_t)p->n * sizeof(*p->ids) : 0 };

    audit_write(
        r->io->o->audit, &(struct audit_entry){ r->request_id, r->caller.id, r->route->path,
                             str_of(r->model->spec->id), prompt, status, finish, r->n_prompt,
                             r->n_completion, r->n_cached, clock_ns() - r->began_ns });
}

static void count_end(struct request *r)
{
    struct metrics *m = &r->io->metrics;

    metric_add(m, METRIC_requests_running, -1);
    if (r->err.code == ERR_CANCELLED)
        metric_add(m, METRIC_requests_cancelled_total, 1);
    if (r->err.code == ERR_TIMEOUT)
        metric_add(m, METRIC_requests_timed_out_total, 1);
    if (!r->is_accepted) {
        metric_add(m, METRIC_requests_refused_total, 1);
        return;
    }
    metric_add(m, METRIC_requests_finished_total, 1);
    metric_add(m, METRIC_cached_tokens_total, r->n_cached);
    metric_observe_ns(m, METRIC_request_duration_seconds, clock_ns() - r->began_ns);
}

static void free_arena(struct clerk_job *j)
{
    arena_free(container_of(j, struct request, job)->arena);
}

static void request_free(struct request *r)
{
    bool is_large = (r->body.bytes.n >= CLERK_FROM || r->ask.needs_shelf) && r->io->clerk;
    const char *finish = r->err.code ? errcode_name(r->err.code) : "done";

    CHECK(!r->answer && !r->x && !r->is_at_clerk);
    count_end(r);
    if (r->io->o->audit && r->is_accepted)
        write_audit(r, finish, r->err.code ? status_of(r->err.code).http : 200);
    log_info("serve", "done", "req=%s why=%s prompt=%d cached=%d tokens=%d ttft_ms=%d ms=%d",
        r->request_id, finish, r->n_prompt, r->n_cached, r->n_completion,
        r->first_token_ns ? (int)((r->first_token_ns - r->began_ns) / 1000000) : -1,
        (int)((clock_ns() - r->began_ns) / 1000000));
    *r->prev = r->next;
    if (r->next)
        r->next->prev = r->prev;
    exact_unref(r->recalled);
    background_free(r);
    if (r->before)
        shelf_unref(r->io->o->shelf, r->before);
    exact_record_clear(&r->record);
    http_body_free(&r->body);
    r->job.run = free_arena;
    r->job.done = NULL;
    if (is_large)
        clerk_post(r->io->clerk, &r->job);
    else
        free_arena(&r->job);
}

/* Detaches the exchange, if there is one, when the response is complete or not needed. The caller
 * may use x until the running callback returns. */
static void detach_exchange(struct request *r)
{
    loop_timer_stop(r->io->loop, &r->ping);
    loop_timer_stop(r->io->loop, &r->deadline);
    r->answer = NULL;
    if (r->x)
        r->x->user = NULL;
    r->x = NULL;
}

/* The prediction counts once per choice. */
static void set_predicted(const struct request *r, struct answer *a)
{
    int64_t n = (int64_t)r->n_predicted * ask_n_choices(&r->ask) - r->n_accepted;

    answer_predicted(a, r->n_accepted, (int)MIN(MAX(n, 0), INT32_MAX));
}

/* The response is stored before the client can request it by id: answer_end only queues bytes. */
static void end_response(struct request *r, struct answer *response)
{
    answer_end(response);
    if (!r->background)
        kept_put(r->io->o->shelf, caller_tenant(&r->caller), &r->ask, response, r->before);
}

static void fill_error_extra(const struct request *r, struct error_extra *extra)
{
    if (r->err.code == ERR_CONTEXT && r->model) {
        extra->n_ctx = r->model->n_ctx;
        for (int i = 0; i < r->ask.n_prompts && r->prompts; i++) {
            extra->n_prompt_tokens = MAX(extra->n_prompt_tokens, r->prompts[i].n);
            extra->is_least |= r->prompts[i].is_least;
        }
    }
    if (r->err.code == ERR_OVERLOADED && r->model)
        extra->retry_after_s =
            (uint32_t)MIN(engine_wait_ns(r->model->engine) / 1000000000 + 1, 600u);
}

static void finish_response(struct request *r)
{
    struct http_exchange *x = r->x;
    struct answer *response = r->answer;
    struct error_extra extra = { 0 };

    if (!request_is_open(r))
        return;
    detach_exchange(r);
    fill_error_extra(r, &extra);
    if (!response || (r->background && x)) { /* rejected before the response started */
        CHECK(r->err.code);
        reply_error(x, r->call, &r->err, &extra);
        answer_free(response);
        return;
    }
    answer_usage(response, r->n_prompt, r->n_cached);
    answer_times(response, &r->times);
    set_predicted(r, response);
    background_ending(r);
    if (r->err.code)
        answer_error(response, &r->err, &extra);
    else
        end_response(r, response);
    background_ended(r, response);
    answer_free(response);
}

void request_release(struct request *r)
{
    if (--r->n_open > 0)
        return;
    finish_response(r);
    request_free(r);
}

/* A worker job returns by itself; sessions are cancelled and end by message. */
static void wind_down(struct request *r)
{
    if (r->is_at_clerk) {
        r->job.is_stopped = true;
        return;
    }
    r->n_open++; /* a session may end inside */
    for (int i = 0; r->legs && i < r->ask.n_prompts; i++)
        if (r->legs[i].session)
            session_cancel(r->legs[i].session);
    if (r->loaded) {
        loading_leave(r);
        r->n_open--; /* the reference of the callback that is not called any more */
    }
    request_release(r);
}

void request_fail(struct request *r, const struct err *e)
{
    if (!r->err.code)
        r->err = *e;
    finish_response(r);
    wind_down(r);
}

static void on_gone(struct pending *p)
{
    struct request *r = container_of(p, struct request, pending);

    if (!r->err.code)
        err_set(&r->err, ERR_CANCELLED, "the client left");
    answer_free(r->answer);
    detach_exchange(r);
    wind_down(r);
}

void request_cancel_all(struct io *io, enum errcode why)
{
    struct err e;

    err_set(&e, why, "The server is shutting down.");
    for (struct request *r = io->requests, *next; r; r = next) {
        next = r->next;
        request_fail(r, &e);
    }
}

struct request *request_find(struct io *io, struct str id, const struct caller *whose)
{
    for (struct request *r = io->requests; r; r = r->next)
        if (request_is_open(r) && str_is(id, r->request_id) &&
            (!whose || !strcmp(whose->id, r->caller.id)))
            return r;
    return NULL;
}

/* ---- time */

static void on_deadline(struct loop_timer *t)
{
    struct err e;

    err_set(&e, ERR_TIMEOUT, "the deadline of the request has passed");
    request_fail(container_of(t, struct request, deadline), &e);
}

void request_set_deadline(struct request *r, uint64_t when_ns)
{
    if (when_ns >= r->deadline_ns || !request_is_open(r))
        return;
    r->deadline_ns = when_ns;
    r->deadline.fn = on_deadline;
    loop_timer_set(r->io->loop, &r->deadline, when_ns);
}

static void on_ping(struct loop_timer *t)
{
    struct request *r = container_of(t, struct request, ping);
    uint64_t silence = (uint64_t)r->io->o->ping_ms * 1000000, now = clock_ns();

    if (now - r->last_write_ns >= silence) {
        answer_keepalive(r->answer);
        answer_flush(r->answer);
        r->last_write_ns = now;
    }
    loop_timer_set(r->io->loop, t, r->last_write_ns + silence);
}

void request_start_pings(struct request *r)
{
    r->ping.fn = on_ping;
    loop_timer_set(r->io->loop, &r->ping, clock_ns() + (uint64_t)r->io->o->ping_ms * 1000000);
}

/* ---- back-pressure */

void request_wrote(struct request *r)
{
    if (!r->answer)
        return;
    answer_flush(r->answer);
    r->last_write_ns = clock_ns();
    if (r->x && r->ask.stream && sink_queued(&r->x->sink) > SINK_HIGH_WATER)
        for (int i = 0; i < r->ask.n_prompts; i++)
            if (r->legs[i].session)
                session_pause(r->legs[i].session);
}

static void on_drained(struct pending *p)
{
    struct request *r = container_of(p, struct request, pending);

    if (!r->answer)
        return;
    r->n_open++;
    for (int i = 0; i < r->ask.n_prompts; i++)
        if (r->legs[i].session)
            session_resume(r->legs[i].session);
    request_release(r);
}

/* ---- start */

struct request *request_new(struct io *io, struct http_exchange *x, struct call *c)
{
    struct arena *a = arena_new(ARENA_MAX);
    struct request *r = a ? arena_zalloc(a, 1, sizeof(*r)) : NULL;
    struct err e;

    if (!r) {
        arena_free(a);
        err_set(&e, ERR_MEMORY, "no memory for the request");
        reply_error(x, c, &e, NULL);
        return NULL;
    }
    r->pending = (struct pending){ on_gone, on_drained };
    r->io = io;
    r->x = x;
    r->call = c;
    r->route = c->route;
    r->caller = c->caller;
    r->arena = a;
    r->n_open = 1;
    r->began_ns = x->started_ns;
    r->deadline_ns = UINT64_MAX;
    memcpy(r->request_id, c->request_id, sizeof(r->request_id));
    r->next = io->requests;
    r->prev = &io->requests;
    if (io->requests)
        io->requests->prev = &r->next;
    io->requests = r;
    x->user = &r->pending;
    metric_add(&io->metrics, METRIC_requests_running, 1);
    request_set_deadline(r, c->deadline_ns);
    return r;
}
