/* health.c: health probes, metrics, invariant checks. Orchestrators depend on the exact texts of
 * the probes. Owner: the io thread. */
#include "base/json.h"
#include "os/log_queue.h"
#include "serve/async.h"
#include "serve/io.h"

static void put_field(struct jw *w, const char *key, const char *value)
{
    jw_key(w, key);
    jw_z(w, value);
}

void health_live(struct io *io, struct http_exchange *x, struct route_call *c)
{
    sink_respond(
        &x->sink, 200, "application/json", STR("{\"status\":\"alive\"}"), c->fields, c->n_fields);
}

void health_ready(struct io *io, struct http_exchange *x, struct route_call *c)
{
    bool is_ready = registry_n_ready(io->o->registry) > 0 && !io->is_draining;
    struct buf b;
    struct jw w;

    buf_init(&b, 4 * KB);
    jw_init(&w, &b);
    jw_object(&w);
    put_field(&w, "status", is_ready ? "ready" : "not_ready");
    put_field(&w, "role", io->o->role);
    if (!is_ready)
        put_field(&w, "reason", io->is_draining ? "draining" : "no model backend loaded");
    jw_end_object(&w);
    reply_json(x, c, is_ready ? 200 : 503, &b);
    buf_clear(&b);
}

void health_status(struct io *io, struct http_exchange *x, struct route_call *c)
{
    bool is_loaded = registry_n_ready(io->o->registry) > 0;
    struct str body = is_loaded ? STR("{\"status\":\"ok\"}")
                                : STR("{\"status\":\"degraded\",\"reason\":\"model_not_loaded\"}");

    sink_respond(&x->sink, 200, "application/json", body, c->fields, c->n_fields);
}

void health_root(struct io *io, struct http_exchange *x, struct route_call *c)
{
    /* Ollama's clients check this text. */
    sink_respond(&x->sink, 200, "text/plain; charset=utf-8", STR("Ollama is running"), c->fields,
        c->n_fields);
}

enum { SHARDS_MAX = 65 };

static void copy_response_cache(struct response_cache *x, struct metrics *m)
{
    struct response_cache_stats s;

    response_cache_stats(x, &s);
    metric_set(m, METRIC_response_cache_hits_total, s.hits);
    metric_set(m, METRIC_response_cache_misses_total, s.misses);
    metric_set(m, METRIC_response_cache_evicted_total, s.evicted);
    metric_set(m, METRIC_response_cache_entries, s.entries);
    metric_set(m, METRIC_response_cache_bytes, s.bytes);
}

static void copy_compile_cache(struct compile_cache *c, struct metrics *m)
{
    struct compile_cache_stats s = compile_cache_stats(c);

    metric_set(m, METRIC_constraint_cache_hits_total, s.n_hits);
    metric_set(m, METRIC_constraint_cache_misses_total, s.n_misses);
    metric_set(m, METRIC_constraint_cache_evicted_total, s.n_evictions);
    metric_set(m, METRIC_constraint_cache_entries, s.n_entries);
    metric_set(m, METRIC_constraint_cache_bytes, s.bytes);
}

static void copy_response_store(struct response_store *response_store, struct metrics *m)
{
    struct response_store_stats s;

    response_store_stats(response_store, &s);
    metric_set(m, METRIC_responses_found_total, s.hits);
    metric_set(m, METRIC_responses_missed_total, s.misses);
    metric_set(m, METRIC_responses_evicted_total, s.evicted);
    metric_set(m, METRIC_responses_kept, s.entries);
    metric_set(m, METRIC_responses_kept_bytes, s.bytes);
}

static void copy_audit(struct audit *a, struct metrics *m)
{
    struct audit_stats s;

    audit_stats(a, &s);
    metric_set(m, METRIC_audit_lines_total, s.n_lines);
    metric_set(m, METRIC_audit_lines_lost_total, s.n_lost);
    metric_set(m, METRIC_audit_failures_total, s.n_failures);
}

struct budget_metrics {
    enum metric bytes, refusals;
};

static void copy_budget(const struct budget *b, struct budget_metrics to, struct metrics *m)
{
    static const char *const labels[N_BUDGET_REFUSALS] = { [BUDGET_NEVER] = "reason=\"never\"",
        [BUDGET_SHARE] = "reason=\"share\"",
        [BUDGET_FULL] = "reason=\"full\"" };
    struct budget_stats s;

    if (!b)
        return;
    budget_stats(b, &s);
    metric_set(m, to.bytes, s.bytes);
    for (int i = BUDGET_NONE + 1; i < N_BUDGET_REFUSALS; i++)
        metric_add_series(m, to.refusals, labels[i], s.refused[i]);
}

void health_metrics(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct metrics *shards[SHARDS_MAX];
    struct metrics copied = { 0 };
    struct buf b;

    int n = service_shards(io->service, shards, SHARDS_MAX - 1);
    engine_metrics_copy(io->o->registry, &copied);
    if (io->o->response_cache)
        copy_response_cache(io->o->response_cache, &copied);
    if (io->o->compile_cache)
        copy_compile_cache(io->o->compile_cache, &copied);
    if (io->o->response_store)
        copy_response_store(io->o->response_store, &copied);
    if (io->o->audit)
        copy_audit(io->o->audit, &copied);
    copy_budget(io->o->http.bodies,
        (struct budget_metrics){ METRIC_request_body_bytes, METRIC_request_body_refusals_total },
        &copied);
    copy_budget(io->o->request_memory,
        (struct budget_metrics){
            METRIC_request_memory_bytes, METRIC_request_memory_refusals_total },
        &copied);
    for (int i = 0; service_io(io->service, i); i++) {
        constraint_ends_copy(&service_io(io->service, i)->constraint_ends, &copied);
        guard_counts_copy(&service_io(io->service, i)->guard_counts, &copied);
    }
    metric_set(&copied, METRIC_log_lines_dropped_total, log_queue_dropped());
    shards[n++] = &copied;
    buf_init(&b, MB);
    metrics_write(&b, shards, n);
    if (buf_ok(&b))
        sink_respond(&x->sink, 200, "text/plain; version=0.0.4; charset=utf-8", buf_str(&b),
            c->fields, c->n_fields);
    else
        reply_json(x, c, 200, &b); /* replies with the error */
    buf_clear(&b);
}

/* ---- invariants: each engine checks itself between two steps and replies by message */

struct invariants_round {
    struct async async; /* held while engines write to this memory */
    struct registry_list models;
    int n_out, n; /* n_out: engines that have not replied; n: all engines */
    struct engine_check {
        struct invariants_round *round;
        struct audit_call call;
        struct engine_audit found;
    } checks[];
};

static void add_check(struct engine_audit *sum, const struct engine_audit *a)
{
    sum->ok = sum->ok && a->ok;
    sum->pages_total += a->pages_total;
    sum->pages_free += a->pages_free;
    sum->pages_cached += a->pages_cached;
    sum->pages_owned += a->pages_owned;
    sum->sequences += a->sequences;
    sum->requests_running += a->requests_running;
    sum->requests_waiting += a->requests_waiting;
}

static void put_invariants(struct buf *out, const struct engine_audit *sum)
{
    struct jw w;

    jw_init(&w, out);
    jw_object(&w);
    jw_key(&w, "ok"), jw_bool(&w, sum->ok);
    jw_key(&w, "pages"), jw_object(&w);
    jw_member_u64(&w, "total", sum->pages_total);
    jw_member_u64(&w, "free", sum->pages_free);
    jw_member_u64(&w, "cached", sum->pages_cached);
    jw_member_u64(&w, "owned", sum->pages_owned);
    jw_end_object(&w);
    jw_member_u64(&w, "sequences", sum->sequences);
    jw_key(&w, "requests"), jw_object(&w);
    jw_member_u64(&w, "running", sum->requests_running);
    jw_member_u64(&w, "waiting", sum->requests_waiting);
    jw_end_object(&w);
    jw_end_object(&w);
}

static void release_round(struct invariants_round *r)
{
    struct engine_audit sum = { .ok = true };

    if (--r->n_out > 0)
        return;
    for (int i = 0; i < r->n; i++)
        add_check(&sum, &r->checks[i].found);
    put_invariants(&r->async.out, &sum);
    registry_list_clear(&r->models);
    if (r->async.is_open)
        async_reply(&r->async);
    async_unhold(&r->async);
}

void health_invariants_message(struct msg *m)
{
    struct audit_call *call = container_of(m, struct audit_call, msg);

    release_round(container_of(call, struct engine_check, call)->round);
}

void health_invariants(struct io *io, struct http_exchange *x, struct route_call *c)
{
    static const struct async_ops ops = { 0 };
    struct registry_list models;
    struct err e;

    if (registry_list(io->o->registry, &models, &e)) {
        reply_error(x, c, &e, NULL);
        return;
    }
    struct invariants_round *r =
        async_new(sizeof(*r) + models.n * sizeof(struct engine_check), &ops, io, x, c);
    if (!r) {
        registry_list_clear(&models);
        return;
    }
    r->models = models;
    r->n_out = 1; /* this function's reference, until all engines have been asked */
    async_hold(&r->async);
    for (size_t i = 0; i < models.n; i++) {
        struct engine_check *a = &r->checks[r->n];
        if (!models.views[i].model)
            continue;
        r->n++;
        r->n_out++;
        a->round = r;
        a->call =
            (struct audit_call){ { NULL, 0 }, loop_mailbox(io->loop), &a->found, MSG_INVARIANTS };
        engine_audit_ask(models.views[i].model->engine, &a->call);
    }
    release_round(r);
}
