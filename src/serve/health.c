/* health.c: probes, metrics, invariants. The probes' texts are a contract with orchestrators. */
#include "base/json.h"
#include "serve/io.h"

static void put_field(struct jw *w, const char *key, const char *value)
{
    jw_key(w, key);
    jw_z(w, value);
}

void health_live(struct io *io, struct http_exchange *x, struct call *c)
{
    sink_reply(
        &x->sink, 200, "application/json", STR("{\"status\":\"alive\"}"), c->fields, c->n_fields);
}

void health_ready(struct io *io, struct http_exchange *x, struct call *c)
{
    bool is_ready = pool_n_ready(io->o->pool) > 0 && !io->is_draining;
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

void health_status(struct io *io, struct http_exchange *x, struct call *c)
{
    bool is_loaded = pool_n_ready(io->o->pool) > 0;
    struct str body = is_loaded ? STR("{\"status\":\"ok\"}")
                                : STR("{\"status\":\"degraded\",\"reason\":\"model_not_loaded\"}");

    sink_reply(&x->sink, 200, "application/json", body, c->fields, c->n_fields);
}

void health_root(struct io *io, struct http_exchange *x, struct call *c)
{
    sink_reply(&x->sink, 200, "text/plain; charset=utf-8",
        STR("InferFlux is running. GET /v1/models lists what it serves.\n"), c->fields,
        c->n_fields);
}

enum { SHARDS_MAX = 65 };

void health_metrics(struct io *io, struct http_exchange *x, struct call *c)
{
    struct metrics *shards[SHARDS_MAX];
    struct metrics copied = { 0 };
    struct buf b;

    int n = service_shards(io->service, shards, SHARDS_MAX - 1);
    numbers_copy(io->o->pool, &copied);
    shards[n++] = &copied;
    buf_init(&b, MB);
    metrics_write(&b, shards, n);
    sink_reply(&x->sink, 200, "text/plain; version=0.0.4; charset=utf-8", buf_str(&b), c->fields,
        c->n_fields);
    buf_clear(&b);
}

void health_invariants(struct io *io, struct http_exchange *x, struct call *c)
{
    struct engine_audit sum = { .ok = true };
    struct buf b;
    struct jw w;

    for (int i = 0; i < pool_n(io->o->pool); i++) {
        struct engine_audit a;
        if (model_state(pool_at(io->o->pool, i)) != MODEL_READY)
            continue;
        engine_audit(pool_at(io->o->pool, i)->engine, &a);
        sum.ok = sum.ok && a.ok;
        sum.pages_total += a.pages_total;
        sum.pages_free += a.pages_free;
        sum.pages_cached += a.pages_cached;
        sum.pages_owned += a.pages_owned;
        sum.sequences += a.sequences;
        sum.requests_running += a.requests_running;
        sum.requests_waiting += a.requests_waiting;
    }
    buf_init(&b, 4 * KB);
    jw_init(&w, &b);
    jw_object(&w);
    jw_key(&w, "ok"), jw_bool(&w, sum.ok);
    jw_key(&w, "pages"), jw_object(&w);
    jw_key(&w, "total"), jw_u64(&w, sum.pages_total);
    jw_key(&w, "free"), jw_u64(&w, sum.pages_free);
    jw_key(&w, "cached"), jw_u64(&w, sum.pages_cached);
    jw_key(&w, "owned"), jw_u64(&w, sum.pages_owned);
    jw_end_object(&w);
    jw_key(&w, "sequences"), jw_u64(&w, sum.sequences);
    jw_key(&w, "requests"), jw_object(&w);
    jw_key(&w, "running"), jw_u64(&w, sum.requests_running);
    jw_key(&w, "waiting"), jw_u64(&w, sum.requests_waiting);
    jw_end_object(&w);
    jw_end_object(&w);
    reply_json(x, c, 200, &b);
    buf_clear(&b);
}
