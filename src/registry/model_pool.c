#include "registry/registry_in.h"

#include "base/log.h"
#include "base/mem.h"
#include "os/clock.h"
#include "os/thread.h"
#include "registry/pack.h"

#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

/* Period in which the files of failed and loaded models are looked at. */
static const uint64_t FILES_PERIOD_NS = 2000000000;

/* All functions are called with the mutex, except where their comment states otherwise. */

/* ---- unloading */

static bool is_idle(const struct registry_entry *m)
{
    return m->state == MODEL_READY && !m->is_at_loader && m->model->n_refs == 0 && !m->n_waiting;
}

/* The file of the model was truncated: its output is wrong from then on. */
static bool is_file_lost(const struct registry_entry *m)
{
    return m->state == MODEL_READY && lm_is_file_lost(m->model->lm);
}

/* The memory of the model does not count any more. */
static void undo_admission(struct registry_entry *m)
{
    struct registry *p = m->registry;

    if (!m->planned_bytes)
        return;
    p->used_bytes -= m->planned_bytes;
    p->n_loaded--;
    m->planned_bytes = 0;
}

/* Closes the model, which no request uses, without the mutex. FAILED remains; otherwise the state
 * is UNLOADED, or LOADING if a request waits. */
static void close_model(struct registry_entry *m)
{
    struct registry *p = m->registry;
    struct model *model = m->model;
    uint64_t began = clock_ns();

    m->is_at_loader = true;
    pthread_mutex_unlock(&p->mu);
    if (p->watch.before_close)
        p->watch.before_close(p->watch.arg, model);
    model_close(model);
    log_info("registry", "unloaded", "model=%s ms=%d", m->spec.id,
        (int)((clock_ns() - began) / NS_PER_MS));
    pthread_mutex_lock(&p->mu);
    m->model = NULL; /* views have read its n_refs until now */
    mem_free(model);
    m->is_at_loader = false;
    undo_admission(m);
    if (m->state == MODEL_DRAINING) {
        m->state = MODEL_UNLOADED;
        if (registry_may_load(m))
            registry_queue_load(m);
    }
    registry_notify(p);
}

/* Removes the entry from the table when nothing belongs to it any more. */
static bool drop_removed(struct registry *p)
{
    LIST_EACH (struct registry_entry, m, &p->all, in_all) {
        if (!m->is_removed || m->is_at_loader || m->model)
            continue;
        list_remove(&m->in_all);
        registry_drop_entry(m);
        return true;
    }
    return false;
}

static struct registry_entry *next_to_close(struct registry *p)
{
    LIST_EACH (struct registry_entry, m, &p->all, in_all) {
        bool is_ending = m->state == MODEL_DRAINING || m->state == MODEL_FAILED ||
                         (m->is_removed && m->state != MODEL_LOADING);
        if (m->model && is_ending && !m->is_at_loader && m->model->n_refs == 0)
            return m;
    }
    return NULL;
}

/* ---- limits */

static bool fits(const struct registry *p, uint64_t bytes)
{
    return (!p->pool.memory_bytes || p->used_bytes + bytes <= p->pool.memory_bytes) &&
           (!p->pool.max_models || p->n_loaded < p->pool.max_models);
}

/* The least recently used model that may be evicted; NULL: none. */
static struct registry_entry *find_victim(struct registry *p)
{
    struct registry_entry *victim = NULL;

    LIST_EACH (struct registry_entry, m, &p->all, in_all)
        if (is_idle(m) && !m->is_pinned && (!victim || m->used_ns < victim->used_ns))
            victim = m;
    return victim;
}

/* A model will be unloaded, or may be evicted when its requests have ended. */
static bool may_get_room(const struct registry *p, const struct registry_entry *except)
{
    LIST_EACH (const struct registry_entry, m, &p->all, in_all)
        if (m != except && m->planned_bytes && (!m->is_pinned || m->state != MODEL_READY))
            return true;
    return false;
}

static int set_no_room(
    const struct registry *p, const struct registry_entry *m, uint64_t bytes, struct err *e)
{
    uint64_t most = p->pool.memory_bytes, left = most - MIN(most, p->used_bytes);

    if (p->pool.max_models && p->n_loaded >= p->pool.max_models)
        return err_set(e, ERR_MEMORY,
            "'%s' does not fit: %d models are loaded, the limit of the model pool, and none of "
            "them "
            "may be evicted",
            m->spec.id, p->n_loaded);
    return err_set(e, ERR_MEMORY,
        "'%s' needs %llu MB; %llu MB of the %llu MB of the model pool are available: %llu MB are "
        "missing",
        m->spec.id, (unsigned long long)(bytes / MB), (unsigned long long)(left / MB),
        (unsigned long long)(most / MB), (unsigned long long)((bytes - left + MB - 1) / MB));
}

/* Reserves the memory of the model; evicts others, or waits for them. ERR_MEMORY; ERR_CANCELLED. */
static int admit(struct registry_entry *m, uint64_t bytes, struct err *e)
{
    struct registry *p = m->registry;

    m->stage = STAGE_MEMORY;
    while (!fits(p, bytes)) {
        struct registry_entry *victim = find_victim(p);
        bool is_too_large = p->pool.memory_bytes && bytes > p->pool.memory_bytes;
        if (m->stop || p->is_closing)
            return err_set(e, ERR_CANCELLED, "the load was cancelled");
        if (is_too_large || (!victim && !may_get_room(p, m)))
            return set_no_room(p, m, bytes, e);
        if (victim) {
            log_info("registry", "evict", "model=%s for=%s", victim->spec.id, m->spec.id);
            victim->state = MODEL_DRAINING;
            victim->is_wanted = false;
            close_model(victim);
        } else {
            pthread_cond_wait(&p->changed, &p->mu);
        }
    }
    m->planned_bytes = MAX(bytes, 1);
    p->used_bytes += m->planned_bytes;
    p->n_loaded++;
    return 0;
}

/* ---- loading */

/* One model of those that are loaded at start is ready, has failed or was cancelled. */
static void end_initial(struct registry_entry *m)
{
    struct registry *p = m->registry;
    bool can_serve = false;
    int n_ready = 0;

    if (!m->is_initial)
        return;
    m->is_initial = false;
    if (--p->n_initial > 0 || !p->on_loaded || p->is_closing)
        return;
    LIST_EACH (const struct registry_entry, k, &p->all, in_all) {
        n_ready += k->state == MODEL_READY;
        can_serve = can_serve || k->state != MODEL_FAILED;
    }
    pthread_mutex_unlock(&p->mu);
    p->on_loaded(n_ready, can_serve);
    pthread_mutex_lock(&p->mu);
}

static int load_files(struct registry_entry *m, struct model *model, bool is_checked, struct err *e)
{
    struct registry *p = m->registry;

    m->stage = STAGE_FILES;
    pthread_mutex_unlock(&p->mu);
    uint64_t stamp = registry_file_stamp(m->spec.path);
    int failed = !is_checked && registry_check_model(m, model, e);
    pthread_mutex_lock(&p->mu);
    m->file_stamp = stamp;
    if (failed)
        return -1;
    if (m->stop || admit(m, model->planned_bytes, e)) {
        if (m->stop)
            err_set(e, ERR_CANCELLED, "the load was cancelled");
        pthread_mutex_unlock(&p->mu);
        model_close(model);
        pthread_mutex_lock(&p->mu);
        return -1;
    }
    m->stage = STAGE_WEIGHTS;
    pthread_mutex_unlock(&p->mu);
    failed = model_load(model, e);
    pthread_mutex_lock(&p->mu);
    return failed ? -1 : 0;
}

static void load_entry(struct registry_entry *m)
{
    struct registry *p = m->registry;
    bool is_checked = m->model != NULL;
    struct model *model = is_checked ? m->model : xcalloc(1, sizeof(*model));
    struct err e;

    m->is_at_loader = true;
    m->model = NULL;
    int failed = load_files(m, model, is_checked, &e);
    m->is_at_loader = false;
    m->percent = 0;
    if (!failed) {
        m->model = model;
        m->state = m->stop && !registry_may_load(m) ? MODEL_DRAINING : MODEL_READY;
        m->was_loaded = m->wants_pack = true;
        m->used_ns = clock_ns();
    } else {
        mem_free(model);
        undo_admission(m);
        if (e.code != ERR_CANCELLED) {
            registry_set_failed(m, &e);
            /* otherwise on_loaded reports the only failure */
            if (p->n > 1 || !p->on_loaded || !m->is_initial)
                log_error("registry", "load_failed", "model=%s error=\"%s\"", m->spec.id, e.msg);
        } else if (registry_may_load(m) && !p->is_closing) { /* wanted again meanwhile */
            registry_queue_load(m);
        } else {
            m->state = m->was_loaded ? MODEL_UNLOADED : MODEL_KNOWN;
        }
    }
    end_initial(m);
    registry_notify(p);
}

/* The model that has been waiting longest. */
static struct registry_entry *next_to_load(struct registry *p)
{
    struct registry_entry *next = NULL;

    LIST_EACH (struct registry_entry, m, &p->all, in_all)
        if (m->state == MODEL_LOADING && !m->is_at_loader && !m->is_removed &&
            (!next || m->queued_ns < next->queued_ns))
            next = m;
    return next;
}

/* ---- packed weights */

static struct registry_entry *next_to_pack(struct registry *p)
{
    LIST_EACH (struct registry_entry, m, &p->all, in_all)
        if (m->wants_pack && !p->n_initial && m->state == MODEL_READY && !m->is_at_loader)
            return m;
    return NULL;
}

static void write_pack(struct registry_entry *m)
{
    struct registry *p = m->registry;
    struct model *model = m->model;

    m->wants_pack = false;
    model->n_refs++;
    pthread_mutex_unlock(&p->mu);
    pack_write(model, &m->stop);
    pthread_mutex_lock(&p->mu);
    model->n_refs--;
    pthread_cond_broadcast(&p->changed);
}

/* ---- time */

static uint64_t idle_ttl_ns(const struct registry_entry *m)
{
    if (m->is_pinned)
        return 0;
    return (m->spec.idle_ttl_ms >= 0 ? (uint64_t)m->spec.idle_ttl_ms
                                     : m->registry->pool.idle_ttl_ms) *
           NS_PER_MS;
}

/* Unloads the models that were idle for too long; returns the time of the next one, UINT64_MAX:
 * none. */
static uint64_t expire_idle(struct registry *p, uint64_t now)
{
    uint64_t next = UINT64_MAX;

    LIST_EACH (struct registry_entry, m, &p->all, in_all) {
        uint64_t ttl = idle_ttl_ns(m);
        if (!ttl || !is_idle(m))
            continue;
        if (now >= m->used_ns + ttl) {
            m->state = MODEL_DRAINING;
            m->is_wanted = false;
            return now;
        }
        next = MIN(next, m->used_ns + ttl);
    }
    return next;
}

/* A model whose file was truncated fails. Returns whether there was one. */
static bool fail_lost(struct registry *p)
{
    bool is_lost = false;
    struct err e;

    LIST_EACH (struct registry_entry, m, &p->all, in_all) {
        if (m->is_removed || m->is_at_loader || !is_file_lost(m))
            continue;
        err_set(&e, ERR_CORRUPT, "%s: the file was truncated", m->spec.path);
        log_error("registry", "file_lost", "model=%s error=\"%s\"", m->spec.id, e.msg);
        registry_set_failed(m, &e);
        is_lost = true;
    }
    return is_lost;
}

static struct registry_entry *next_failed(struct registry *p, uint64_t now)
{
    LIST_EACH (struct registry_entry, m, &p->all, in_all)
        if (m->state == MODEL_FAILED && !m->model && !m->is_removed && !m->is_at_loader &&
            m->looked_ns < now)
            return m;
    return NULL;
}

/* Loads the failed models again whose files have changed. The files are looked at without the
 * mutex, since that may take long. Returns whether there was one. */
static bool retry_changed(struct registry *p, uint64_t now)
{
    struct registry_entry *m;
    bool has_changed = false;

    while (!p->is_closing && (m = next_failed(p, now))) {
        m->looked_ns = now;
        m->is_at_loader = true;
        pthread_mutex_unlock(&p->mu);
        uint64_t stamp = registry_file_stamp(m->spec.path);
        pthread_mutex_lock(&p->mu);
        m->is_at_loader = false;
        if (stamp == m->file_stamp || m->state != MODEL_FAILED || m->is_removed)
            continue;
        log_info("registry", "file_changed", "model=%s", m->spec.id);
        m->is_wanted = true;
        registry_queue_load(m);
        has_changed = true;
    }
    return has_changed;
}

static void wait_until(struct registry *p, uint64_t when_ns)
{
    struct timespec at = { (time_t)(when_ns / NS_PER_S), (long)(when_ns % NS_PER_S) };

    pthread_cond_timedwait(&p->changed, &p->mu, &at);
}

static void *run_loader(void *arg)
{
    struct registry *p = arg;
    struct registry_entry *m;
    uint64_t files_ns = clock_ns();

    pthread_mutex_lock(&p->mu);
    while (!p->is_closing) {
        if ((m = next_to_close(p)))
            close_model(m);
        else if (drop_removed(p))
            continue;
        else if ((m = next_to_load(p)))
            load_entry(m);
        else if ((m = next_to_pack(p)))
            write_pack(m);
        else {
            uint64_t now = clock_ns();
            if (now >= files_ns + FILES_PERIOD_NS) {
                files_ns = now;
                bool is_lost = fail_lost(p);
                if (retry_changed(p, now) || is_lost)
                    registry_notify(p);
                continue;
            }
            uint64_t expiry = expire_idle(p, now);
            if (expiry > now)
                wait_until(p, MIN(expiry, files_ns + FILES_PERIOD_NS));
        }
    }
    pthread_mutex_unlock(&p->mu);
    return NULL;
}

int model_pool_start(struct registry *p, struct err *e)
{
    int n = p->pool.parallel_loads ? MIN(p->pool.parallel_loads, LOADERS_MAX) : 1;

    for (; p->n_loaders < n; p->n_loaders++)
        if (thread_start(&p->loaders[p->n_loaders], "loader", run_loader, p, e))
            return -1;
    return 0;
}

void model_pool_stop(struct registry *p)
{
    pthread_mutex_lock(&p->mu);
    p->is_closing = true;
    LIST_EACH (struct registry_entry, m, &p->all, in_all)
        m->stop = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mu);
    for (int i = 0; i < p->n_loaders; i++)
        pthread_join(p->loaders[i], NULL);
    p->n_loaders = 0;
}
