#include "registry/registry.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/suggest.h"
#include "base/utf8.h"
#include "chat/family.h"
#include "os/thread.h"
#include "output/parser.h"
#include "registry/kv_reservation.h"
#include "registry/pack.h"

#include <stdatomic.h>
#include <stdio.h>

struct registry {
    struct model models[REGISTRY_MODELS_MAX];
    struct model_spec specs[REGISTRY_MODELS_MAX];
    int n;
    bool is_strict;
    struct str aliases;
    struct kv_reservation reserved;
    struct capabilities *store; /* NULL = none; used by the loader thread after registry_start */
    pthread_t loader;
    bool has_loader;
    _Atomic bool stop;   /* the loader opens no further model */
    void *on_change_arg; /* constant once on_change is set */
    void (*_Atomic on_change)(void *arg);
    void (*on_loaded)(int n_ready);
};

/* ---- checks of the configuration */

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

/* Model names are written to logs, terminals and header fields. */
static int check_name(struct str name, const char *what, struct err *e)
{
    uint32_t cp;

    if (!name.n)
        return err_set(e, ERR_INVALID, "%s is empty", what);
    for (struct str rest = name; rest.n;) {
        int n = utf8_decode(rest, &cp);
        if (n <= 0)
            return err_set(e, ERR_INVALID, "%s is not UTF-8", what);
        if (utf8_is_control(cp))
            return err_set(
                e, ERR_INVALID, "%s contains the control character U+%04X", what, (unsigned)cp);
        rest = str_skip(rest, (size_t)n);
    }
    return 0;
}

static int check_parsers(const struct model_spec *s, struct err *e)
{
    struct parser_format *f;

    if (parser_format_new(&f, str_of(s->tool_parser), str_of(s->thinking_parser), e))
        return -1;
    parser_format_free(f);
    return 0;
}

static int unknown_family(const struct model_spec *spec, struct err *e)
{
    struct suggestion s = suggest_for(str_of(spec->family));
    char hint[SUGGEST_NAME_MAX + 32];

    for (size_t i = 0; chat_family_at(i); i++)
        suggest_offer(&s, str_of(chat_family_at(i)->name));
    return err_set(e, ERR_INVALID, "model '%s': no chat family '%s'%s", spec->id, spec->family,
        suggest_text(&s, "", hint, sizeof(hint)));
}

static int check_spec(struct registry *p, int i, struct err *e)
{
    const struct model_spec *s = &p->specs[i];

    if (check_name(str_of(s->id), "the name of a model", e))
        return -1;
    if (find_id(p, str_of(s->id)) != &p->models[i])
        return err_set(e, ERR_INVALID, "two models have the name '%s'", s->id);
    if (*s->family && !chat_family_find(str_of(s->family)))
        return unknown_family(s, e);
    if (check_parsers(s, e))
        return err_wrap(e, "model '%s': %s", s->id, e->param);
    if (engine_options_check(&s->engine, e))
        return err_wrap(e, "model '%s'", s->id);
    return 0;
}

static int check_aliases(struct registry *p, struct err *e)
{
    for (struct str rest = p->aliases; rest.n;) {
        struct str id = take_until(&rest, ",");
        struct str name = take_until(&id, "=");
        if (check_name(name, "a name in the list of model aliases", e))
            return -1;
        id = str_trim(id);
        if (id.n && !find_id(p, id))
            return err_set(e, ERR_INVALID,
                "the model alias '" STR_FMT "' names the model '" STR_FMT "', which does not exist",
                STR_ARG(name), STR_ARG(id));
    }
    return 0;
}

static int check_configuration(struct registry *p, struct err *e)
{
    for (int i = 0; i < p->n; i++)
        if (check_spec(p, i, e))
            return -1;
    return check_aliases(p, e);
}

/* ---- loading */

static void set_failed(struct model *m, const struct err *why)
{
    m->why = *why;
    atomic_store_explicit(&m->state, MODEL_FAILED, memory_order_release);
}

static void log_failure(const struct model *m)
{
    log_error("registry", "load_failed", "model=%s error=\"%s\"", m->spec->id, m->why.msg);
}

int registry_check_failed(struct registry *p, struct err *e)
{
    char reasons[sizeof(e->msg)];
    size_t n = 0;

    for (int i = 0; i < p->n; i++) {
        if (model_state(&p->models[i]) != MODEL_FAILED)
            return 0;
        if (n < sizeof(reasons))
            n += (size_t)snprintf(reasons + n, sizeof(reasons) - n, "%smodel '%s': %s",
                i ? "; " : "", p->specs[i].id, p->models[i].why.msg);
    }
    return err_set(e, p->models[0].why.code, "no model can be served: %s", reasons);
}

static int check_model(struct registry *p, int i, struct err *e)
{
    if (model_check(&p->models[i], &p->specs[i], e))
        return -1;
    if (!kv_reserve(&p->reserved, &p->models[i], e))
        return 0;
    model_close(&p->models[i]);
    return -1;
}

/* Checks the models in their order until one can be served; the loader checks the others. */
static int check_models(struct registry *p, struct err *e)
{
    int n_failed = 0;

    for (; n_failed < p->n; n_failed++) {
        struct err why;
        if (!check_model(p, n_failed, &why))
            break;
        set_failed(&p->models[n_failed], &why);
    }
    if (n_failed == p->n)
        return registry_check_failed(p, e);
    for (int i = 0; i < n_failed; i++)
        log_failure(&p->models[i]);
    return 0;
}

static void load_model(struct registry *p, int i)
{
    struct model *m = &p->models[i];
    struct err e;

    if ((m->file || !check_model(p, i, &e)) && !model_load(m, &e)) {
        atomic_store_explicit(&m->state, MODEL_READY, memory_order_release);
        return;
    }
    set_failed(m, &e);
    if (p->n > 1 || !p->on_loaded) /* otherwise on_loaded reports the only failure */
        log_failure(m);
}

static void *load_all(void *arg)
{
    struct registry *p = arg;

    for (int i = 0; i < p->n && !atomic_load(&p->stop); i++) {
        if (model_state(&p->models[i]) == MODEL_LOADING)
            load_model(p, i);
        void (*notify)(void *arg) = p->on_change;
        if (notify)
            notify(p->on_change_arg);
    }
    capabilities_close(p->store);
    p->store = NULL;
    if (p->on_loaded && !atomic_load(&p->stop))
        p->on_loaded(registry_n_ready(p));
    for (int i = 0; i < p->n && !atomic_load(&p->stop); i++)
        if (model_state(&p->models[i]) == MODEL_READY)
            pack_write(&p->models[i], &p->stop);
    return NULL;
}

/* ---- opening and closing */

/* A store that does not exist yet is no error, unless its directory does not exist either. */
static int open_store(struct registry *p, const struct registry_options *o, struct err *e)
{
    struct err why;

    if (!o->store_path || !*o->store_path ||
        !capabilities_open(&p->store, o->store_path, o->probe != NULL, &why))
        return 0;
    if (why.code == ERR_NOT_FOUND)
        return 0;
    *e = why;
    return err_wrap(e, "capability store");
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
    p->on_loaded = o->on_loaded;
    p->reserved.fd = -1;
    for (int i = 0; i < p->n; i++) {
        p->specs[i] = o->specs[i];
        p->specs[i].probe = o->probe;
        p->specs[i].stop = &p->stop;
        p->models[i].spec = &p->specs[i];
    }
    if (check_configuration(p, e) || open_store(p, o, e))
        goto fail;
    for (int i = 0; i < p->n; i++)
        p->specs[i].store = p->store;
    if (o->must_serve && check_models(p, e))
        goto fail;
    *out = p;
    return 0;

fail:
    registry_close(p);
    return -1;
}

int registry_start(struct registry *p, struct err *e)
{
    if (thread_start(&p->loader, "loader", load_all, p, e))
        return -1;
    p->has_loader = true;
    return 0;
}

void registry_close(struct registry *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, true);
    if (p->has_loader)
        pthread_join(p->loader, NULL);
    capabilities_close(p->store);
    for (int i = 0; i < p->n; i++)
        model_close(&p->models[i]);
    kv_reservation_close(&p->reserved);
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
