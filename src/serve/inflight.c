#include "serve/audit_record.h"
#include "serve/audit_wait.h"
#include "serve/model_wait.h"

#include "base/log.h"
#include "generate/output_constraint.h"
#include "os/clock.h"
#include "serve/responses/background.h"

/* ---- end */

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

static void on_free(struct async *a)
{
    struct inflight *r = inflight_of(a);
    const char *finish = r->err.code ? errcode_name(r->err.code) : "done";

    CHECK(!r->response);
    rate_limit_close(r, r->is_computed);
    count_end(r);
    if (r->io->o->audit && r->is_accepted)
        audit_record_write(r, finish, r->err.code ? status_of(r->err.code).http : 200);
    else if (r->has_audit_room)
        audit_unreserve(r->io->o->audit);
    log_info("serve", "done", "req=%s finish=%s prompt=%d cached=%d tokens=%d ttft_ms=%d ms=%d",
        r->request_id, finish, r->n_prompt, r->n_cached, r->n_completion,
        r->first_token_ns ? (int)((r->first_token_ns - r->began_ns) / NS_PER_MS) : -1,
        (int)((clock_ns() - r->began_ns) / NS_PER_MS));
    request_guard_close(r);
    audit_record_free(r->audit_record);
    cached_response_unref(r->cached_response);
    background_free(r);
    if (r->previous)
        response_store_unref(r->io->o->response_store, r->previous);
    response_cache_record_clear(&r->cache_record);
    for (int i = 0; r->inflight_prompts && i < r->request.n_prompts; i++)
        choice_constraints_free(r->inflight_prompts[i].constraints);
    registry_entry_unref(r->entry);
}

/* The response is complete or not needed. The caller may use the exchange until the running
 * callback returns. */
static void close_response(struct inflight *r)
{
    loop_timer_stop(r->io->loop, &r->ping);
    r->response = NULL;
    async_close(&r->async);
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
    if (r->err.code == ERR_RATE && r->limits.refusal.max) {
        extra->retry_after_s = (uint32_t)MIN(
            (r->limits.refusal.retry_ns + NS_PER_S - 1) / NS_PER_S, (uint64_t)UINT32_MAX);
        extra->retry_never = r->limits.refusal.is_never;
    }
}

static void finish_response(struct inflight *r)
{
    struct http_exchange *x = r->async.x;
    struct route_call *c = r->async.call;
    struct response *response = r->response;
    struct error_extra extra = { 0 };

    if (!inflight_is_open(r))
        return;
    close_response(r);
    fill_error_extra(r, &extra);
    if (response && r->request.constraint.is_set)
        extra.constraint = constraint_kind_name(r->request.constraint.source.kind);
    if (!response || (r->background && x)) { /* rejected before the response started */
        CHECK(r->err.code);
        c->has_audit_line = r->is_accepted; /* on_free writes it */
        c->guardrails = request_guard_hits(r);
        reply_error(x, c, &r->err, &extra);
        response_free(response);
        return;
    }
    /* The prediction counts once per choice. */
    int64_t n_rejected = (int64_t)r->n_predicted * request_n_choices(&r->request) - r->n_accepted;
    response_set_usage(response, r->n_prompt, r->n_cached);
    response_set_times(response, &r->times);
    response_set_prediction_counts(
        response, r->n_accepted, (int)MIN(MAX(n_rejected, 0), INT32_MAX));
    background_begin_end(r);
    if (r->err.code) {
        response_error(response, &r->err, &extra);
    } else {
        /* The client cannot request the id before the response is stored: response_end only queues
         * bytes. */
        response_end(response);
        if (!r->background)
            stored_response_put(r->io->o->response_store, caller_tenant(&r->caller), &r->request,
                response, r->previous);
    }
    background_finish_end(r, response);
    response_free(response);
}

void inflight_release(struct inflight *r)
{
    if (--r->n_refs > 0)
        return;
    finish_response(r);
    async_unhold(&r->async);
}

/* A worker job, which async_close has stopped, returns by itself; sessions are cancelled and end by
 * message. */
static void wind_down(struct inflight *r)
{
    if (r->async.is_at_worker)
        return;
    r->n_refs++; /* a session may end inside */
    for (int i = 0; r->inflight_prompts && i < r->request.n_prompts; i++)
        if (r->inflight_prompts[i].session)
            session_cancel(r->inflight_prompts[i].session);
    if (r->on_model_loaded) {
        model_wait_stop(r);
        r->n_refs--; /* the reference of the callback that is not called any more */
    }
    if (r->on_audit_room) {
        audit_wait_stop(r);
        r->n_refs--;
    }
    if (rate_limit_stop(r))
        r->n_refs--;
    inflight_release(r);
}

void inflight_fail(struct inflight *r, const struct err *e)
{
    if (!r->err.code)
        r->err = *e;
    finish_response(r);
    wind_down(r);
}

static void on_gone(struct async *a)
{
    struct inflight *r = inflight_of(a);

    if (!r->err.code)
        err_set(&r->err, ERR_CANCELLED, "the client disconnected");
    response_free(r->response);
    close_response(r);
    wind_down(r);
}

static void on_expired(struct async *a, const struct err *e)
{
    inflight_fail(inflight_of(a), e);
}

void inflight_cancel_all(struct io *io, enum errcode why)
{
    struct err e;

    err_set(&e, why, "The server is shutting down.");
    LIST_EACH (struct async, a, &io->requests, in_open)
        inflight_fail(inflight_of(a), &e);
}

/* now: the key as the policy has it now; NULL: revoked. */
static int check_key(const struct inflight *r, const struct policy_key *now, struct err *e)
{
    if (!now)
        return err_set(e, ERR_AUTH, "The API key of this request was revoked.");
    if (now == r->async.key)
        return 0;
    if (policy_key_is_expired(now, clock_wall_s()))
        return err_set(e, ERR_AUTH, "The API key of this request has expired.");
    if ((policy_key_scopes(now) & r->route->scope) != r->route->scope)
        return err_set(e, ERR_FORBIDDEN, "This key may not use %s any more.", r->route->path);
    /* While a worker thread prepares the request, it sets `entry`. */
    return !r->async.is_at_worker && r->entry
               ? model_check_allowed(registry_entry_spec(r->entry), now, e)
               : 0;
}

void inflight_revoke(struct io *io, const struct policy_snapshot *s)
{
    struct err e;

    LIST_EACH (struct async, a, &io->requests, in_open) {
        struct inflight *r = inflight_of(a);
        if (a->key && !a->key->is_token &&
            check_key(r, policy_snapshot_find(s, a->key->digest), &e)) {
            log_info("serve", "key_revoked", "req=%s key=%s", r->request_id, r->caller.id);
            inflight_fail(r, &e);
        }
    }
}

struct inflight *inflight_find(struct io *io, struct str id, const struct caller *whose)
{
    LIST_EACH (struct async, a, &io->requests, in_open) {
        struct inflight *r = inflight_of(a);
        if (str_is(id, r->request_id) && (!whose || !strcmp(whose->id, r->caller.id)))
            return r;
    }
    return NULL;
}

/* ---- keep-alive */

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
    if (r->async.x && r->request.stream && sink_queued(&r->async.x->sink) > SINK_HIGH_WATER)
        for (int i = 0; i < r->request.n_prompts; i++)
            if (r->inflight_prompts[i].session)
                session_pause(r->inflight_prompts[i].session);
}

static void on_drained(struct async *a)
{
    struct inflight *r = inflight_of(a);

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
    static const struct async_ops ops = { .run = generate_run_step,
        .done = generate_step_done,
        .gone = on_gone,
        .expired = on_expired,
        .drained = on_drained,
        .free = on_free };
    struct inflight *r = async_new(sizeof(*r), &ops, io, x, c);

    if (!r)
        return NULL;
    async_hold(&r->async); /* until inflight_release drops the last of n_refs */
    list_add_first(&io->requests, &r->async.in_open);
    r->n_refs = 1;
    r->io = io;
    r->route = c->route;
    r->caller = c->caller;
    r->began_ns = x->started_ns;
    request_guard_init(r);
    memcpy(r->request_id, c->request_id, sizeof(r->request_id));
    metric_add(&io->metrics, METRIC_requests_running, 1);
    async_set_deadline(&r->async, c->deadline_ns);
    return r;
}
