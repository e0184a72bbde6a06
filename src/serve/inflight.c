#include "serve/model_wait.h"

#include "base/log.h"
#include "os/clock.h"
#include "serve/responses/background.h"

static const size_t ARENA_MAX = 512 * 1024 * 1024;

/* ---- end */

static void write_audit(const struct inflight *r, const char *finish, int status)
{
    const struct prompt *p = r->prompts; /* NULL: the request was not prepared */
    struct str prompt = { p ? (const char *)p->ids : "", p ? (size_t)p->n * sizeof(*p->ids) : 0 };

    audit_write(
        r->io->o->audit, &(struct audit_entry){ r->request_id, r->caller.id, r->route->path,
                             str_of(r->model->spec->id), prompt, status, finish, r->n_prompt,
                             r->n_completion, r->n_cached, clock_ns() - r->began_ns });
}

static void count_end(struct inflight *r)
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

static void free_arena(struct worker_job *j)
{
    arena_free(container_of(j, struct inflight, job)->arena);
}

static void inflight_free(struct inflight *r)
{
    bool is_large = (r->body.bytes.n >= WORKER_MIN_BODY_BYTES || r->request.needs_response_store) &&
                    r->io->worker;
    const char *finish = r->err.code ? errcode_name(r->err.code) : "done";

    CHECK(!r->response && !r->x && !r->is_at_worker);
    count_end(r);
    if (r->io->o->audit && r->is_accepted)
        write_audit(r, finish, r->err.code ? status_of(r->err.code).http : 200);
    log_info("serve", "done", "req=%s finish=%s prompt=%d cached=%d tokens=%d ttft_ms=%d ms=%d",
        r->request_id, finish, r->n_prompt, r->n_cached, r->n_completion,
        r->first_token_ns ? (int)((r->first_token_ns - r->began_ns) / NS_PER_MS) : -1,
        (int)((clock_ns() - r->began_ns) / NS_PER_MS));
    *r->prev = r->next;
    if (r->next)
        r->next->prev = r->prev;
    cached_response_unref(r->cached_response);
    background_free(r);
    if (r->previous)
        response_store_unref(r->io->o->response_store, r->previous);
    response_cache_record_clear(&r->cache_record);
    http_body_free(&r->body);
    r->job.run = free_arena;
    r->job.done = NULL;
    if (is_large)
        worker_post(r->io->worker, &r->job);
    else
        free_arena(&r->job);
}

/* Detaches the exchange, if there is one, when the response is complete or not needed. The caller
 * may use x until the running callback returns. */
static void detach_exchange(struct inflight *r)
{
    loop_timer_stop(r->io->loop, &r->ping);
    loop_timer_stop(r->io->loop, &r->deadline);
    r->response = NULL;
    if (r->x)
        r->x->user = NULL;
    r->x = NULL;
}

/* The prediction counts once per choice. */
static void set_predicted(const struct inflight *r, struct response *a)
{
    int64_t n = (int64_t)r->n_predicted * request_n_choices(&r->request) - r->n_accepted;

    response_set_prediction_counts(a, r->n_accepted, (int)MIN(MAX(n, 0), INT32_MAX));
}

/* The response is stored before the client can request it by id: response_end only queues bytes. */
static void end_response(struct inflight *r, struct response *response)
{
    response_end(response);
    if (!r->background)
        stored_response_put(r->io->o->response_store, caller_tenant(&r->caller), &r->request,
            response, r->previous);
}

static void fill_error_extra(const struct inflight *r, struct error_extra *extra)
{
    if (r->err.code == ERR_CONTEXT && r->model) {
        extra->n_ctx = r->model->n_ctx;
        for (int i = 0; i < r->request.n_prompts && r->prompts; i++) {
            extra->n_prompt_tokens = MAX(extra->n_prompt_tokens, r->prompts[i].n);
            extra->is_lower_bound |= r->prompts[i].is_lower_bound;
        }
    }
    if (r->err.code == ERR_OVERLOADED && r->prompts)
        extra->retry_after_s = (uint32_t)MIN(engine_wait_ns(r->model->engine) / NS_PER_S + 1, 600u);
}

static void finish_response(struct inflight *r)
{
    struct http_exchange *x = r->x;
    struct response *response = r->response;
    struct error_extra extra = { 0 };

    if (!inflight_is_open(r))
        return;
    detach_exchange(r);
    fill_error_extra(r, &extra);
    if (!response || (r->background && x)) { /* rejected before the response started */
        CHECK(r->err.code);
        reply_error(x, r->call, &r->err, &extra);
        response_free(response);
        return;
    }
    response_set_usage(response, r->n_prompt, r->n_cached);
    response_set_times(response, &r->times);
    set_predicted(r, response);
    background_begin_end(r);
    if (r->err.code)
        response_error(response, &r->err, &extra);
    else
        end_response(r, response);
    background_finish_end(r, response);
    response_free(response);
}

void inflight_release(struct inflight *r)
{
    if (--r->n_refs > 0)
        return;
    finish_response(r);
    inflight_free(r);
}

/* A worker job returns by itself; sessions are cancelled and end by message. */
static void wind_down(struct inflight *r)
{
    if (r->is_at_worker) {
        r->job.is_stopped = true;
        return;
    }
    r->n_refs++; /* a session may end inside */
    for (int i = 0; r->inflight_prompts && i < r->request.n_prompts; i++)
        if (r->inflight_prompts[i].session)
            session_cancel(r->inflight_prompts[i].session);
    if (r->on_model_loaded) {
        model_wait_stop(r);
        r->n_refs--; /* the reference of the callback that is not called any more */
    }
    inflight_release(r);
}

void inflight_fail(struct inflight *r, const struct err *e)
{
    if (!r->err.code)
        r->err = *e;
    finish_response(r);
    wind_down(r);
}

static void on_gone(struct async_handler *p)
{
    struct inflight *r = container_of(p, struct inflight, async_handler);

    if (!r->err.code)
        err_set(&r->err, ERR_CANCELLED, "the client disconnected");
    response_free(r->response);
    detach_exchange(r);
    wind_down(r);
}

void inflight_cancel_all(struct io *io, enum errcode why)
{
    struct err e;

    err_set(&e, why, "The server is shutting down.");
    for (struct inflight *r = io->requests, *next; r; r = next) {
        next = r->next;
        inflight_fail(r, &e);
    }
}

struct inflight *inflight_find(struct io *io, struct str id, const struct caller *whose)
{
    for (struct inflight *r = io->requests; r; r = r->next)
        if (inflight_is_open(r) && str_is(id, r->request_id) &&
            (!whose || !strcmp(whose->id, r->caller.id)))
            return r;
    return NULL;
}

/* ---- time */

static void on_deadline(struct loop_timer *t)
{
    struct err e;

    err_set(&e, ERR_TIMEOUT, "the deadline of the request has passed");
    inflight_fail(container_of(t, struct inflight, deadline), &e);
}

void inflight_set_deadline(struct inflight *r, uint64_t when_ns)
{
    if (when_ns >= r->deadline_ns || !inflight_is_open(r))
        return;
    r->deadline_ns = when_ns;
    r->deadline.fn = on_deadline;
    loop_timer_set(r->io->loop, &r->deadline, when_ns);
}

static void on_ping(struct loop_timer *t)
{
    struct inflight *r = container_of(t, struct inflight, ping);
    uint64_t silence = r->io->o->ping_ms * NS_PER_MS, now = clock_ns();

    if (now - r->last_write_ns >= silence) {
        response_keepalive(r->response);
        response_flush(r->response);
        r->last_write_ns = now;
    }
    loop_timer_set(r->io->loop, t, r->last_write_ns + silence);
}

void inflight_start_keepalive(struct inflight *r)
{
    r->ping.fn = on_ping;
    loop_timer_set(r->io->loop, &r->ping, clock_ns() + r->io->o->ping_ms * NS_PER_MS);
}

/* ---- back-pressure */

void inflight_flush(struct inflight *r)
{
    if (!r->response)
        return;
    response_flush(r->response);
    r->last_write_ns = clock_ns();
    if (r->x && r->request.stream && sink_queued(&r->x->sink) > SINK_HIGH_WATER)
        for (int i = 0; i < r->request.n_prompts; i++)
            if (r->inflight_prompts[i].session)
                session_pause(r->inflight_prompts[i].session);
}

static void on_drained(struct async_handler *p)
{
    struct inflight *r = container_of(p, struct inflight, async_handler);

    if (!r->response)
        return;
    r->n_refs++;
    for (int i = 0; i < r->request.n_prompts; i++)
        if (r->inflight_prompts[i].session)
            session_resume(r->inflight_prompts[i].session);
    inflight_release(r);
}

/* ---- start */

struct inflight *inflight_new(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct arena *a = arena_new(ARENA_MAX);
    struct inflight *r = a ? arena_zalloc(a, 1, sizeof(*r)) : NULL;
    struct err e;

    if (!r) {
        arena_free(a);
        err_set(&e, ERR_MEMORY, "no memory for the request");
        reply_error(x, c, &e, NULL);
        return NULL;
    }
    r->async_handler = (struct async_handler){ on_gone, on_drained };
    r->io = io;
    r->x = x;
    r->call = c;
    r->route = c->route;
    r->caller = c->caller;
    r->arena = a;
    r->n_refs = 1;
    r->began_ns = x->started_ns;
    r->deadline_ns = UINT64_MAX;
    memcpy(r->request_id, c->request_id, sizeof(r->request_id));
    r->next = io->requests;
    r->prev = &io->requests;
    if (io->requests)
        io->requests->prev = &r->next;
    io->requests = r;
    x->user = &r->async_handler;
    metric_add(&io->metrics, METRIC_requests_running, 1);
    inflight_set_deadline(r, c->deadline_ns);
    return r;
}
