#include "registry/registry.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/thread.h"
#include "registry/pack.h"

#include <stdatomic.h>
#include <stdio.h>

struct registry {
    struct model models[REGISTRY_MODELS_MAX];
    struct model_spec specs[REGISTRY_MODELS_MAX];
    int n;
    bool is_strict;
    struct str aliases;
    char store_path[1024]; /* "" = none */
    bool may_create_store;
    pthread_t loader;
    _Atomic bool stop;   /* the loader opens no further model */
    void *on_change_arg; /* constant once on_change is set */
    void (*_Atomic on_change)(void *arg);
};

/* Models are served even if the store cannot be opened. */
static struct capabilities *open_store(const struct registry *p)
{
    struct capabilities *store = NULL;
    struct err e;

    if (!*p->store_path || !capabilities_open(&store, p->store_path, p->may_create_store, &e))
        return store;
    if (e.code != ERR_NOT_FOUND)
        log_error("registry", "store_failed", "error=\"%s\"", e.msg);
    return NULL;
}

static void *load_all(void *arg)
{
    struct registry *p = arg;
    struct capabilities *store = open_store(p);

    for (int i = 0; i < p->n && !atomic_load(&p->stop); i++) {
        struct model *m = &p->models[i];
        struct err e;
        p->specs[i].store = store;
        if (model_open(m, &p->specs[i], &e)) {
            m->why = e;
            log_error("registry", "load_failed", "model=%s error=\"%s\"", p->specs[i].id, e.msg);
        }
        atomic_store_explicit(
            &m->state, m->engine ? MODEL_READY : MODEL_FAILED, memory_order_release);
        void (*notify)(void *arg) = p->on_change;
        if (notify)
            notify(p->on_change_arg);
    }
    capabilities_close(store);
    for (int i = 0; i < p->n && !atomic_load(&p->stop); i++)
        if (model_state(&p->models[i]) == MODEL_READY)
            pack_write(&p->models[i], &p->stop);
    return NULL;
}

int registry_open(struct registry **out, const struct registry_options *o, struct err *e)
{
    if (o->n_specs < 1 || o->n_specs > REGISTRY_MODELS_MAX)
        return err_set(
            e, ERR_RANGE, "%d models; supported are 1 to %d", o->n_specs, REGISTRY_MODELS_MAX);
    struct registry *p = xcalloc(1, sizeof(*p));
    p->n = o->n_specs;
    p->is_strict = o->is_strict || o->n_specs > 1;
    p->aliases = str_of(o->aliases);
    p->may_create_store = o->probe != NULL;
    if (o->store_path)
        snprintf(p->store_path, sizeof(p->store_path), "%s", o->store_path);
    for (int i = 0; i < p->n; i++) {
        p->specs[i] = o->specs[i];
        p->specs[i].probe = o->probe;
        p->specs[i].stop = &p->stop;
        p->models[i].spec = &p->specs[i];
    }
    if (thread_start(&p->loader, "loader", load_all, p, e)) {
        mem_free(p);
        return -1;
    }
    *out = p;
    return 0;
}

void registry_close(struct registry *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, true);
    pthread_join(p->loader, NULL);
    for (int i = 0; i < p->n; i++)
        model_close(&p->models[i]);
    mem_free(p);
}

void registry_watch(struct registry *p, void (*fn)(void *arg), void *arg)
{
    CHECK(!p->on_change);
    p->on_change_arg = arg;
    p->on_change = fn;
}

enum model_state model_state(const struct model *m)
{
    return (enum model_state)atomic_load_explicit(&m->state, memory_order_acquire);
}

static struct model *find_id(struct registry *p, struct str id)
{
    for (int i = 0; i < p->n; i++)
        if (str_is(id, p->specs[i].id))
            return &p->models[i];
    return NULL;
}

/* Splits off the part before the separator; the separator is dropped. */
static struct str take_until(struct str *rest, const char *separator)
{
    ptrdiff_t at = str_find(*rest, str_of(separator));
    struct str head = { rest->p, at < 0 ? rest->n : (size_t)at };

    *rest = at < 0 ? STR_NONE : str_skip(*rest, (size_t)at + 1);
    return str_trim(head);
}

static struct model *find_alias(struct registry *p, struct str name)
{
    for (struct str rest = p->aliases; rest.n;) {
        struct str id = take_until(&rest, ",");
        struct str pattern = take_until(&id, "=");
        bool is_front = str_ends(pattern, STR("*"));
        pattern.n -= is_front;
        if (!(is_front ? str_starts(name, pattern) : str_eq(name, pattern)))
            continue;
        id = str_trim(id);
        return id.n ? find_id(p, id) : &p->models[0];
    }
    return NULL;
}

struct model *registry_find_named(struct registry *p, struct str name)
{
    struct str bare = name;
    struct model *m = find_id(p, name);

    if (str_ends(name, STR(":latest")))
        bare.n -= strlen(":latest");
    if (!m && bare.n < name.n)
        m = find_id(p, bare);
    return m || !name.n ? m : find_alias(p, name);
}

struct model *registry_find(struct registry *p, struct str name, struct err *e)
{
    struct model *m = registry_find_named(p, name);

    if (m)
        return m;
    if (!name.n || !p->is_strict)
        return &p->models[0];
    err_param(e, ERR_NOT_FOUND, "model",
        "The model '%.*s' does not exist; GET /v1/models lists "
        "those that do.",
        (int)MIN(name.n, (size_t)80), name.p);
    return NULL;
}

int registry_n_models(const struct registry *p)
{
    return p->n;
}

struct model *registry_model(struct registry *p, int i)
{
    CHECK(i >= 0 && i < p->n);
    return &p->models[i];
}

int registry_n_ready(const struct registry *p)
{
    int n = 0;

    for (int i = 0; i < p->n; i++)
        n += model_state(&p->models[i]) == MODEL_READY;
    return n;
}
