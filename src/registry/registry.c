#include "registry/registry_in.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/suggest.h"
#include "base/utf8.h"
#include "chat/family.h"
#include "os/clock.h"
#include "output/parser.h"

#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>

/* ---- names; the caller holds the mutex, or no other thread runs yet */

static struct registry_entry *find_id(struct registry *p, struct str id)
{
    LIST_EACH (struct registry_entry, m, &p->all, in_all)
        if (!m->is_removed && str_is(id, m->spec.id))
            return m;
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

static int check_spec(struct registry *p, const struct model_spec *s, struct err *e)
{
    if (check_name(str_of(s->id), "the name of a model", e))
        return -1;
    if (find_id(p, str_of(s->id)))
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

static struct registry_entry *find_alias(struct registry *p, struct str name)
{
    for (struct str rest = p->aliases; rest.n;) {
        struct str id = take_until(&rest, ",");
        struct str pattern = take_until(&id, "=");
        bool is_front = str_ends(pattern, STR("*"));
        pattern.n -= is_front;
        if (!(is_front ? str_starts(name, pattern) : str_eq(name, pattern)))
            continue;
        id = str_trim(id);
        return id.n ? find_id(p, id) : p->first;
    }
    return NULL;
}

static struct registry_entry *find_named(struct registry *p, struct str name)
{
    struct str bare = name;
    struct registry_entry *m = find_id(p, name);

    if (str_ends(name, STR(":latest")))
        bare.n -= strlen(":latest");
    if (!m && bare.n < name.n)
        m = find_id(p, bare);
    return m || !name.n ? m : find_alias(p, name);
}

/* ---- entries */

/* Copies the strings of the spec that belong to one model. */
static int copy_spec(struct registry_entry *m, const struct model_spec *from)
{
    const char **fields[] = { &m->spec.id, &m->spec.path, &m->spec.family, &m->spec.template_path,
        &m->spec.tool_parser, &m->spec.thinking_parser, &m->spec.draft_path };
    size_t n = 0;

    m->spec = *from;
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        n += *fields[i] ? strlen(*fields[i]) + 1 : 0;
    char *to = m->strings = try_malloc(n);
    for (size_t i = 0; to && i < ARRAY_LEN(fields); i++) {
        if (!*fields[i])
            continue;
        size_t n_field = strlen(*fields[i]) + 1;
        *fields[i] = memcpy(to, *fields[i], n_field);
        to += n_field;
    }
    return m->strings ? 0 : -1;
}

static void free_entry(struct registry_entry *m)
{
    mem_free(m->model);
    mem_free(m->strings);
    mem_free(m);
}

/* Adds an entry with one reference, that of the registry. */
static int add_entry(struct registry *p, const struct model_spec *spec, struct err *e)
{
    if (p->n >= REGISTRY_MODELS_MAX)
        return err_set(
            e, ERR_RANGE, "%d models; supported are 1 to %d", p->n + 1, REGISTRY_MODELS_MAX);
    struct registry_entry *m = try_calloc(1, sizeof(*m));
    if (!m || copy_spec(m, spec)) {
        mem_free(m);
        return err_set(e, ERR_MEMORY, "no memory for the model '%s'", spec->id);
    }
    m->registry = p;
    m->n_refs = 1;
    m->is_pinned = spec->is_pinned;
    m->spec.stop = &m->stop;
    m->spec.percent = &m->percent;
    list_add_last(&p->all, &m->in_all);
    p->n++;
    p->first = p->first ? p->first : m;
    return 0;
}

void registry_drop_entry(struct registry_entry *m)
{
    CHECK(m->n_refs > 0);
    if (--m->n_refs == 0)
        free_entry(m);
}

void registry_entry_unref(struct registry_entry *m)
{
    struct registry *p = m ? m->registry : NULL;

    if (!m)
        return;
    pthread_mutex_lock(&p->mu);
    registry_drop_entry(m);
    pthread_mutex_unlock(&p->mu);
}

const struct model_spec *registry_entry_spec(const struct registry_entry *m)
{
    return &m->spec;
}

/* ---- states */

const char *model_state_name(enum model_state s)
{
    static const char *const names[N_MODEL_STATES] = { [MODEL_KNOWN] = "known",
        [MODEL_LOADING] = "loading",
        [MODEL_READY] = "ready",
        [MODEL_DRAINING] = "draining",
        [MODEL_UNLOADED] = "unloaded",
        [MODEL_FAILED] = "failed" };

    return names[s];
}

uint64_t registry_file_stamp(const char *path)
{
    struct stat st;

    if (stat(path, &st))
        return 0;
    return ((uint64_t)st.st_mtim.tv_sec * NS_PER_S + (uint64_t)st.st_mtim.tv_nsec) ^
           ((uint64_t)st.st_size << 20) ^ ((uint64_t)st.st_ino << 1) ^ 1;
}

void registry_set_failed(struct registry_entry *m, const struct err *why)
{
    m->why = *why;
    m->state = MODEL_FAILED;
    m->is_wanted = false;
    m->failed_ns = clock_ns();
}

bool registry_may_load(const struct registry_entry *m)
{
    return !m->is_removed && (m->is_wanted || m->n_waiting > 0);
}

void registry_notify(struct registry *p)
{
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mu);
    if (p->watch.changed)
        p->watch.changed(p->watch.arg);
    pthread_mutex_lock(&p->mu);
}

void registry_queue_load(struct registry_entry *m)
{
    m->stop = false;
    m->state = MODEL_LOADING;
    m->stage = STAGE_QUEUED;
    m->percent = 0;
    m->queued_ns = clock_ns();
    pthread_cond_broadcast(&m->registry->changed);
}

/* No loader thread uses the model, and it is not loaded; a KNOWN one may have been checked. */
static bool can_queue(const struct registry_entry *m)
{
    return (!m->model || m->state == MODEL_KNOWN) && !m->is_at_loader;
}

/* The load is not needed any more. */
static void cancel_load(struct registry_entry *m)
{
    m->stop = true;
    if (!m->is_at_loader)
        m->state = m->was_loaded ? MODEL_UNLOADED : MODEL_KNOWN;
    pthread_cond_broadcast(&m->registry->changed);
}

static void unload(struct registry_entry *m)
{
    m->is_wanted = false;
    if (m->state == MODEL_LOADING)
        cancel_load(m);
    if (m->state != MODEL_READY)
        return;
    m->stop = true; /* packed weights that are being written */
    m->state = MODEL_DRAINING;
    pthread_cond_broadcast(&m->registry->changed);
}

/* ---- opening and closing */

int registry_check_failed(struct registry *p, struct err *e)
{
    char reasons[sizeof(e->msg)];
    enum errcode code = ERR_NONE;
    bool are_failed = true;
    size_t n = 0;

    pthread_mutex_lock(&p->mu);
    LIST_EACH (struct registry_entry, m, &p->all, in_all) {
        are_failed = are_failed && m->state == MODEL_FAILED;
        if (are_failed && n < sizeof(reasons))
            n += (size_t)snprintf(reasons + n, sizeof(reasons) - n, "%smodel '%s': %s",
                code ? "; " : "", m->spec.id, m->why.msg);
        code = code ? code : m->why.code;
    }
    pthread_mutex_unlock(&p->mu);
    return are_failed && p->n ? err_set(e, code, "no model can be served: %s", reasons) : 0;
}

int registry_check_model(struct registry_entry *m, struct model *model, struct err *e)
{
    struct registry *p = m->registry;

    model->entry = m;
    if (model_check(model, &m->spec, e))
        return -1;
    pthread_mutex_lock(&p->mu);
    int failed = kv_reserve(&p->reserved, model, e);
    pthread_mutex_unlock(&p->mu);
    if (failed)
        model_close(model);
    return failed ? -1 : 0;
}

static int check_at_start(struct registry_entry *m, struct err *e)
{
    struct model *model = xcalloc(1, sizeof(*model));

    m->file_stamp = registry_file_stamp(m->spec.path);
    if (registry_check_model(m, model, e)) {
        mem_free(model);
        return -1;
    }
    m->model = model;
    return 0;
}

/* Checks the models that are loaded at start in their order until one can be served; the loader
 * threads check the others. */
static int check_models(struct registry *p, struct err *e)
{
    int n_failed = 0, n = 0;

    LIST_EACH (struct registry_entry, m, &p->all, in_all) {
        struct err why;
        if (m->spec.on_demand)
            continue;
        n++;
        if (!check_at_start(m, &why))
            break;
        registry_set_failed(m, &why);
        n_failed++;
    }
    if (n && n_failed == n && n == p->n)
        return registry_check_failed(p, e);
    LIST_EACH (struct registry_entry, m, &p->all, in_all)
        if (m->state == MODEL_FAILED)
            log_error("registry", "load_failed", "model=%s error=\"%s\"", m->spec.id, m->why.msg);
    return 0;
}

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

static int add_configured(struct registry *p, const struct registry_options *o, struct err *e)
{
    for (int i = 0; i < o->n_specs; i++) {
        struct model_spec spec = o->specs[i];
        spec.probe = o->probe;
        if (check_spec(p, &spec, e) || add_entry(p, &spec, e))
            return -1;
    }
    return check_aliases(p, e);
}

static struct registry *new_registry(const struct registry_options *o)
{
    struct registry *p = xcalloc(1, sizeof(*p));
    pthread_condattr_t monotonic;

    CHECK(!pthread_mutex_init(&p->mu, NULL) && !pthread_condattr_init(&monotonic));
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    CHECK(!pthread_cond_init(&p->changed, &monotonic));
    pthread_condattr_destroy(&monotonic);
    p->is_strict = o->is_strict;
    p->aliases = str_of(o->aliases);
    p->on_loaded = o->on_loaded;
    p->pool = o->pool;
    p->reserved.fd = -1;
    return p;
}

int registry_open(struct registry **out, const struct registry_options *o, struct err *e)
{
    struct registry *p = new_registry(o);

    if (add_configured(p, o, e) || open_store(p, o, e))
        goto fail;
    LIST_EACH (struct registry_entry, m, &p->all, in_all)
        m->spec.store = p->store;
    if (o->must_serve && check_models(p, e))
        goto fail;
    LIST_EACH (struct registry_entry, m, &p->all, in_all)
        if (!m->spec.on_demand && m->state == MODEL_KNOWN) {
            m->is_wanted = m->is_initial = true;
            p->n_initial++;
            registry_queue_load(m);
        }
    *out = p;
    return 0;

fail:
    registry_close(p);
    return -1;
}

int registry_start(struct registry *p, struct err *e)
{
    return model_pool_start(p, e);
}

void registry_close(struct registry *p)
{
    if (!p)
        return;
    model_pool_stop(p);
    capabilities_close(p->store);
    LIST_EACH (struct registry_entry, m, &p->all, in_all) {
        if (m->model)
            model_close(m->model);
        list_remove(&m->in_all);
        free_entry(m);
    }
    kv_reservation_close(&p->reserved);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->mu);
    mem_free(p);
}

void registry_watch(struct registry *p, const struct registry_watch *w)
{
    p->watch = *w;
}

/* ---- requests */

static struct registry_entry *ref_entry(struct registry_entry *m)
{
    if (m)
        m->n_refs++;
    return m;
}

struct registry_entry *registry_find_named(struct registry *p, struct str name)
{
    pthread_mutex_lock(&p->mu);
    struct registry_entry *m = ref_entry(find_named(p, name));
    pthread_mutex_unlock(&p->mu);
    return m;
}

struct registry_entry *registry_find_id(struct registry *p, struct str id)
{
    pthread_mutex_lock(&p->mu);
    struct registry_entry *m = ref_entry(find_id(p, id));
    pthread_mutex_unlock(&p->mu);
    return m;
}

struct registry_entry *registry_find(struct registry *p, struct str name, struct err *e)
{
    pthread_mutex_lock(&p->mu);
    struct registry_entry *m = find_named(p, name);
    if (!m && (!name.n || (!p->is_strict && p->n == 1)))
        m = p->first;
    ref_entry(m);
    pthread_mutex_unlock(&p->mu);
    if (!m)
        err_param(e, ERR_NOT_FOUND, "model",
            "The model '%.*s' does not exist; GET /v1/models lists "
            "those that do.",
            (int)MIN(name.n, (size_t)80), name.p);
    return m;
}

/* The memory that was missing may be available now. */
static bool may_try_again(const struct registry_entry *m)
{
    static const uint64_t PAUSE_NS = 1000000000;

    return m->state == MODEL_FAILED && !m->model && !m->is_at_loader && m->why.code == ERR_MEMORY &&
           clock_ns() - m->failed_ns >= PAUSE_NS;
}

/* Loads the model again if a request waits for it, or when one does. */
static void forget_failure(struct registry_entry *m)
{
    m->state = MODEL_UNLOADED;
    if (registry_may_load(m))
        registry_queue_load(m);
}

enum take registry_take(struct registry_entry *m, struct model **out, struct err *e)
{
    struct registry *p = m->registry;
    enum take result = TAKE_LATER;

    pthread_mutex_lock(&p->mu);
    if (may_try_again(m))
        forget_failure(m);
    if (m->state == MODEL_READY) {
        m->model->n_refs++;
        m->used_ns = clock_ns();
        *out = m->model;
        result = TAKE_OK;
    } else if (m->state == MODEL_FAILED && m->why.code == ERR_MEMORY) {
        err_set(e, ERR_NOT_READY, "The model %s.", m->why.msg);
        result = TAKE_FAILED;
    } else if (m->state == MODEL_FAILED || m->is_removed) {
        err_set(e, ERR_NOT_READY,
            "The model '%s' could not be loaded; the log of the server states the reason.",
            m->spec.id);
        result = TAKE_FAILED;
    } else if (m->state == MODEL_LOADING) {
        err_set(e, ERR_NOT_READY, "The model '%s' is still loading.", m->spec.id);
    } else {
        err_set(e, ERR_NOT_READY, "The model '%s' is not loaded.", m->spec.id);
    }
    pthread_mutex_unlock(&p->mu);
    return result;
}

void model_release(struct model *m)
{
    if (!m)
        return;
    struct registry_entry *entry = m->entry;
    struct registry *p = entry->registry;

    pthread_mutex_lock(&p->mu);
    CHECK(m->n_refs > 0);
    entry->used_ns = clock_ns();
    if (--m->n_refs == 0) /* it can be closed or evicted */
        pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mu);
}

void registry_wait(struct registry_entry *m)
{
    struct registry *p = m->registry;

    pthread_mutex_lock(&p->mu);
    m->n_waiting++;
    m->used_ns = clock_ns();
    if (m->state == MODEL_KNOWN || m->state == MODEL_UNLOADED) {
        if (can_queue(m) && !m->is_removed)
            registry_queue_load(m);
    }
    pthread_mutex_unlock(&p->mu);
}

void registry_wait_end(struct registry_entry *m)
{
    struct registry *p = m->registry;

    pthread_mutex_lock(&p->mu);
    CHECK(m->n_waiting > 0);
    m->n_waiting--;
    if (m->state == MODEL_LOADING && !registry_may_load(m))
        cancel_load(m);
    pthread_mutex_unlock(&p->mu);
}

bool registry_is_loading_anyway(struct registry_entry *m)
{
    struct registry *p = m->registry;

    pthread_mutex_lock(&p->mu);
    bool is_wanted = m->state == MODEL_LOADING && m->is_wanted;
    pthread_mutex_unlock(&p->mu);
    return is_wanted;
}

/* ---- administration */

int registry_add(struct registry *p, const struct model_spec *spec, struct err *e)
{
    struct model_spec own = *spec;

    pthread_mutex_lock(&p->mu);
    own.store = p->store;
    int failed = check_spec(p, &own, e) || add_entry(p, &own, e);
    if (!failed && !spec->on_demand) {
        struct registry_entry *m = find_id(p, str_of(spec->id));
        m->is_wanted = true;
        registry_queue_load(m);
    }
    if (!failed)
        registry_notify(p);
    pthread_mutex_unlock(&p->mu);
    return failed ? -1 : 0;
}

void registry_remove(struct registry_entry *m)
{
    struct registry *p = m->registry;

    pthread_mutex_lock(&p->mu);
    if (!m->is_removed) {
        m->is_removed = true;
        unload(m);
        if (p->first == m)
            p->first = NULL;
        LIST_EACH (struct registry_entry, k, &p->all, in_all)
            if (!p->first && !k->is_removed)
                p->first = k;
        p->n--;
        registry_notify(p);
    }
    pthread_mutex_unlock(&p->mu);
}

void registry_load(struct registry_entry *m)
{
    struct registry *p = m->registry;

    pthread_mutex_lock(&p->mu);
    m->is_wanted = !m->is_removed;
    bool is_idle =
        m->state == MODEL_KNOWN || m->state == MODEL_UNLOADED || m->state == MODEL_FAILED;
    if (m->is_wanted && is_idle && can_queue(m)) {
        registry_queue_load(m);
        registry_notify(p);
    }
    pthread_mutex_unlock(&p->mu);
}

void registry_unload(struct registry_entry *m)
{
    struct registry *p = m->registry;

    pthread_mutex_lock(&p->mu);
    unload(m);
    registry_notify(p);
    pthread_mutex_unlock(&p->mu);
}

void registry_pin(struct registry_entry *m, bool is_pinned)
{
    struct registry *p = m->registry;

    pthread_mutex_lock(&p->mu);
    m->is_pinned = is_pinned;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mu);
}

void registry_set_default(struct registry_entry *m)
{
    struct registry *p = m->registry;

    pthread_mutex_lock(&p->mu);
    if (!m->is_removed)
        p->first = m;
    pthread_mutex_unlock(&p->mu);
}

/* ---- lists */

static void view_of(struct registry_view *v, struct registry_entry *m)
{
    *v = (struct registry_view){ .entry = ref_entry(m),
        .spec = &m->spec,
        .model = m->state == MODEL_READY ? m->model : NULL,
        .state = m->state,
        .stage = m->stage,
        .percent = m->percent,
        .is_default = m == m->registry->first,
        .is_pinned = m->is_pinned,
        .planned_bytes = m->planned_bytes,
        .used_ns = m->used_ns,
        .n_waiting = m->n_waiting,
        .n_users = m->model ? m->model->n_refs : 0 };
    if (m->state == MODEL_FAILED)
        v->why = m->why;
    if (v->model)
        v->model->n_refs++;
}

void registry_view(struct registry_entry *m, struct registry_view *out)
{
    struct registry *p = m->registry;

    pthread_mutex_lock(&p->mu);
    view_of(out, m);
    pthread_mutex_unlock(&p->mu);
}

static void clear_view(struct registry_view *v)
{
    if (v->model && --v->model->n_refs == 0)
        pthread_cond_broadcast(&v->entry->registry->changed);
    registry_drop_entry(v->entry);
}

void registry_view_clear(struct registry_view *v)
{
    struct registry *p = v->entry->registry;

    pthread_mutex_lock(&p->mu);
    clear_view(v);
    pthread_mutex_unlock(&p->mu);
}

int registry_list(struct registry *p, struct registry_list *out, struct err *e)
{
    pthread_mutex_lock(&p->mu);
    *out = (struct registry_list){ try_calloc((size_t)MAX(p->n, 1), sizeof(*out->views)), 0 };
    LIST_EACH (struct registry_entry, m, &p->all, in_all)
        if (out->views && !m->is_removed)
            view_of(&out->views[out->n++], m);
    pthread_mutex_unlock(&p->mu);
    return out->views ? 0 : err_set(e, ERR_MEMORY, "no memory for the list of models");
}

void registry_list_clear(struct registry_list *l)
{
    if (l->n) {
        struct registry *p = l->views[0].entry->registry;
        pthread_mutex_lock(&p->mu);
        for (size_t i = 0; i < l->n; i++)
            clear_view(&l->views[i]);
        pthread_mutex_unlock(&p->mu);
    }
    mem_free(l->views);
    *l = (struct registry_list){ 0 };
}

int registry_n_models(struct registry *p)
{
    pthread_mutex_lock(&p->mu);
    int n = p->n;
    pthread_mutex_unlock(&p->mu);
    return n;
}

int registry_n_ready(struct registry *p)
{
    int n = 0;

    pthread_mutex_lock(&p->mu);
    LIST_EACH (const struct registry_entry, m, &p->all, in_all)
        n += m->state == MODEL_READY && !m->is_removed;
    pthread_mutex_unlock(&p->mu);
    return n;
}
