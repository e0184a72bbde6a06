#include "serve/async.h"

/* ---- end */

static void free_memory(struct worker_job *j)
{
    struct async *a = container_of(j, struct async, job);

    buf_clear(&a->out);
    arena_free(a->scratch);
    arena_free(a->arena);
}

void async_free_scratch(struct async *a)
{
    arena_free(a->scratch);
    a->scratch = NULL;
}

/* The worker thread frees what it has allocated: freeing hundreds of megabytes takes time. The last
 * reference of a message may be dropped after the io thread has ended and `io` was freed; such a
 * request was not at the worker thread. */
void async_unref(struct async *a)
{
    if (--a->n_refs > 0)
        return;
    CHECK(!a->is_open && !a->is_at_worker);
    if (a->ops->free)
        a->ops->free(a);
    model_release(a->model);
    http_body_free(&a->kept_body);
    policy_key_unref(a->key);
    a->job.run = free_memory;
    if (a->was_at_worker)
        worker_post_free(a->io->worker, &a->job);
    else
        free_memory(&a->job);
}

void async_hold(struct async *a)
{
    a->io->n_held++;
    async_ref(a);
}

void async_unhold(struct async *a)
{
    a->io->n_held--;
    async_unref(a);
}

void async_detach(struct async *a)
{
    if (a->x)
        a->x->user = NULL;
    a->x = NULL;
    a->call = NULL;
}

void async_close(struct async *a)
{
    if (!a->is_open)
        return;
    a->is_open = false;
    loop_timer_stop(a->io->loop, &a->deadline);
    if (a->in_open.list)
        list_remove(&a->in_open);
    async_detach(a);
    if (a->is_at_worker && !a->ops->must_run)
        a->job.is_stopped = true;
    async_unref(a);
}

void async_client_left(struct async *a)
{
    async_ref(a);
    async_close(a);
    if (a->ops->gone)
        a->ops->gone(a);
    async_unref(a);
}

/* ---- response */

void async_reply_error(struct async *a, const struct err *e, const struct error_extra *extra)
{
    reply_error(a->x, a->call, e, extra);
    async_close(a);
}

/* Writes while the client has room; the rest is written when the sink has drained. */
static void send_more(struct async *a)
{
    struct sink *s = &a->x->sink;

    while (a->n_sent < a->out.n && sink_queued(s) <= SINK_HIGH_WATER) {
        size_t n = MIN(a->out.n - a->n_sent, (size_t)SINK_HIGH_WATER);
        sink_write(s, (struct str){ a->out.p + a->n_sent, n });
        a->n_sent += n;
    }
    if (a->n_sent < a->out.n)
        return;
    sink_end(s);
    async_close(a);
}

void async_reply(struct async *a)
{
    const struct route_call *c = a->call;

    if (!a->err.code && !buf_ok(&a->out)) {
        err_set(&a->err, ERR_MEMORY, "no memory for the response");
        async_explain_refusal(a, &a->err);
    }
    if (a->err.code) {
        async_reply_error(a, &a->err, NULL);
        return;
    }
    sink_begin(&a->x->sink, 200, "application/json", (int64_t)a->out.n, c->fields, c->n_fields);
    send_more(a);
}

void async_drained(struct async *a)
{
    if (a->ops->drained)
        a->ops->drained(a);
    else if (a->n_sent)
        send_more(a);
}

/* ---- deadline */

static void on_deadline(struct loop_timer *t)
{
    struct async *a = container_of(t, struct async, deadline);
    struct err e;

    err_set(&e, ERR_TIMEOUT, "the deadline of the request has passed");
    if (a->ops->expired) {
        a->ops->expired(a, &e);
    } else if (a->n_sent) { /* the head was sent, so no error can be reported */
        sink_abort(&a->x->sink);
        async_close(a);
    } else {
        async_reply_error(a, &e, NULL);
    }
}

void async_set_deadline(struct async *a, uint64_t when_ns)
{
    if (!a->is_open || when_ns >= a->deadline_ns)
        return;
    a->deadline_ns = when_ns;
    a->deadline.fn = on_deadline;
    loop_timer_set(a->io->loop, &a->deadline, when_ns);
}

struct model *async_take_model(struct async *a, struct str name, struct err *e)
{
    CHECK(!a->model);
    a->model = take_ready_model(a->io, a->key, name, e);
    return a->model;
}

/* ---- memory */

void async_explain_refusal(const struct async *a, struct err *e)
{
    if (e->code != ERR_MEMORY)
        return;
    switch (a->charge.refusal) {
    case BUDGET_NEVER:
        err_set(e, ERR_TOO_LARGE, "The request needs more than the %zu MB that one may use.",
            budget_charge_max(a->charge.budget) / MB);
        break;
    case BUDGET_SHARE:
        err_set(e, ERR_RATE, "Other requests of this API key hold the memory that a key may use.");
        break;
    case BUDGET_FULL:
        err_set(e, ERR_OVERLOADED, "Other requests hold the memory for requests.");
        break;
    case BUDGET_NONE:
    case N_BUDGET_REFUSALS:
        break;
    }
}

/* ---- job */

static void run_job(struct worker_job *j)
{
    struct async *a = container_of(j, struct async, job);

    if (a->ops->run(a) == 0)
        a->err.code = ERR_NONE;
    else
        async_explain_refusal(a, &a->err);
}

static void finish_job(struct async *a)
{
    if (a->ops->done)
        a->ops->done(a);
    else if (a->is_open)
        async_reply(a);
}

static void on_job_returned(struct worker_job *j)
{
    struct async *a = container_of(j, struct async, job);

    a->is_at_worker = false;
    finish_job(a);
    async_unhold(a);
}

void async_keep_body(struct async *a)
{
    if (a->body.n && !a->kept_body.bytes.p)
        http_body_take(a->x, &a->kept_body);
}

void async_drop_body(struct async *a)
{
    async_keep_body(a);
    http_body_free(&a->kept_body);
    a->body = STR_NONE;
}

void async_start(struct async *a, bool is_slow)
{
    if (!is_slow && a->body.n < WORKER_MIN_BODY_BYTES) {
        run_job(&a->job);
        finish_job(a);
        return;
    }
    async_keep_body(a);
    async_hold(a);
    a->is_at_worker = a->was_at_worker = true;
    a->job.run = run_job;
    a->job.done = on_job_returned;
    a->job.cost =
        (uint64_t)((double)MAX(a->body.n, (size_t)WORKER_MIN_BODY_BYTES) / a->tenant_weight);
    if (worker_post(a->io->worker, &a->job, &a->err))
        on_job_returned(&a->job);
}

/* ---- start */

void async_init(struct async *a, const struct async_ops *ops, struct io *io,
    struct http_exchange *x, struct route_call *c)
{
    a->ops = ops;
    a->io = io;
    a->x = x;
    a->call = c;
    a->body = x->req->body;
    a->job.tenant = caller_tenant(&c->caller);
    a->key = policy_key_ref(c->key);
    a->tenant_weight = c->caller.weight > 0 ? c->caller.weight : 1;
    a->deadline_ns = UINT64_MAX;
    a->n_refs = 1;
    a->is_open = true;
    a->charge = (struct charge){ .budget = io->o->request_memory, .owner = c->caller.number };
    buf_init(&a->out, REQUEST_BYTES_MAX);
    a->out.charge = &a->charge;
    x->user = a;
}

void *async_new(size_t size, const struct async_ops *ops, struct io *io, struct http_exchange *x,
    struct route_call *c)
{
    struct arena *arena = arena_new(REQUEST_BYTES_MAX);
    struct async *a = arena ? arena_zalloc(arena, 1, size) : NULL;
    struct err e;

    err_set(&e, ERR_MEMORY, "no memory for the request");
    if (!a)
        goto fail;
    async_init(a, ops, io, x, c);
    a->arena = arena;
    a->scratch = arena_new(REQUEST_BYTES_MAX);
    if (a->scratch && arena_charge(arena, &a->charge) && arena_charge(a->scratch, &a->charge))
        return a;
    async_explain_refusal(a, &e);
    policy_key_unref(a->key);
    arena_free(a->scratch);
    x->user = NULL;

fail:
    arena_free(arena);
    reply_error(x, c, &e, NULL);
    return NULL;
}
