#include "pool/pool.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/thread.h"

#include <stdatomic.h>

struct pool {
    struct model models[POOL_MODELS_MAX];
    struct model_spec specs[POOL_MODELS_MAX];
    int n;
    bool is_strict;
    pthread_t loader;
    _Atomic bool stop; /* the loader opens no further model */
};

static void *load_all(void *arg)
{
    struct pool *p = arg;

    for (int i = 0; i < p->n && !atomic_load(&p->stop); i++) {
        struct model *m = &p->models[i];
        struct err e;
        if (model_open(m, &p->specs[i], &e)) {
            m->why = e;
            log_error("pool", "failed", "model=%s %s", p->specs[i].id, e.msg);
        }
        atomic_store_explicit(
            &m->state, m->engine ? MODEL_READY : MODEL_FAILED, memory_order_release);
    }
    return NULL;
}

int pool_open(struct pool **out, const struct pool_options *o, struct err *e)
{
    if (o->n_specs < 1 || o->n_specs > POOL_MODELS_MAX)
        return err_set(
            e, ERR_RANGE, "%d models; 1 to %d can be served", o->n_specs, POOL_MODELS_MAX);
    struct pool *p = xcalloc(1, sizeof(*p));
    p->n = o->n_specs;
    p->is_strict = o->is_strict;
    for (int i = 0; i < p->n; i++) {
        p->specs[i] = o->specs[i];
        p->models[i].spec = &p->specs[i];
    }
    if (thread_start(&p->loader, "loader", load_all, p, e)) {
        mem_free(p);
        return -1;
    }
    *out = p;
    return 0;
}

void pool_close(struct pool *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, true);
    pthread_join(p->loader, NULL);
    for (int i = 0; i < p->n; i++)
        model_close(&p->models[i]);
    mem_free(p);
}

enum model_state model_state(const struct model *m)
{
    return (enum model_state)atomic_load_explicit(&m->state, memory_order_acquire);
}

struct model *pool_find(struct pool *p, struct str name, struct err *e)
{
    for (int i = 0; i < p->n; i++)
        if (str_is(name, p->specs[i].id))
            return &p->models[i];
    if (!name.n || !p->is_strict)
        return &p->models[0];
    err_param(e, ERR_NOT_FOUND, "model",
        "The model '%.*s' does not exist; GET /v1/models lists "
        "those that do.",
        (int)MIN(name.n, (size_t)80), name.p);
    return NULL;
}

int pool_n(const struct pool *p)
{
    return p->n;
}

struct model *pool_at(struct pool *p, int i)
{
    CHECK(i >= 0 && i < p->n);
    return &p->models[i];
}

int pool_n_ready(const struct pool *p)
{
    int n = 0;

    for (int i = 0; i < p->n; i++)
        n += model_state(&p->models[i]) == MODEL_READY;
    return n;
}
