#include "policy/policy.h"

#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "os/clock.h"
#include "os/thread.h"

#include <poll.h>
#include <stdatomic.h>

enum { MSG_STOP = -1, WATCH_MS = 500 };

struct policy {
    const struct keys *keys;
    int (*check_object)(void *ctx, const struct policy_object *o, struct err *e);
    void *check_ctx;
    struct policy_backend *backend; /* NULL: none */
    struct policy_snapshot *current;
    struct mailbox *mailbox; /* NULL: no backend */
    void (*publish)(void *ctx, struct policy_snapshot *s);
    void *ctx;
    pthread_t thread;
    uint64_t stale_ns;
    _Atomic uint64_t contact_ns; /* clock_ns: the snapshot was the stored policy at this time */
    bool has_thread, is_stopping, has_failed;
    struct msg stop;
};

/* ---- snapshot of all keys */

static struct policy_key *static_key(const struct keys *keys, int i)
{
    struct policy_key *k = policy_key_new(keys_hash(keys, i));
    struct caller c;

    if (!k)
        return NULL;
    keys_at(keys, i, &c);
    k->scopes = c.scopes;
    k->weight = c.weight;
    k->max_priority = c.max_priority;
    memcpy(k->cache_group, c.group, sizeof(k->cache_group));
    k->owner = c.number;
    k->is_static = true;
    return k;
}

static int add_static_keys(struct policy_list *l, const struct keys *keys, struct err *e)
{
    for (int i = 0; keys && i < keys_count(keys); i++) {
        struct policy_key *k = static_key(keys, i);
        if (!k)
            return err_set(e, ERR_MEMORY, "no memory for the API keys");
        if (policy_list_add(l, k, e))
            return -1;
    }
    return 0;
}

/* The keys of a tenant have one number. A key keeps its number as long as it has its tenant. */
static int assign_owners(struct policy_list *l, const struct policy_snapshot *old, struct err *e)
{
    uint8_t *is_used = xcalloc(1, POLICY_KEYS_MAX + 2);
    struct str_map *tenants = str_map_new(64);
    int failed = tenants ? 0 : -1, next = 1;

    for (int pass = 0; pass < 2 && !failed; pass++)
        for (int i = 0; i < l->n && !failed; i++) {
            struct policy_key *k = l->keys[i];
            const struct policy_key *before = old ? policy_snapshot_find(old, k->digest) : NULL;
            struct str tenant = str_of(k->tenant);
            uint32_t owner;
            if (pass == 0 && !k->owner && before && !strcmp(before->tenant, k->tenant))
                k->owner = before->owner;
            if (pass == 1 && !k->owner && tenant.n && str_map_get(tenants, tenant, &owner))
                k->owner = (int)owner;
            for (; pass == 1 && !k->owner; next++)
                k->owner = is_used[next] ? 0 : next;
            if (!k->owner)
                continue;
            is_used[k->owner] = 1;
            failed = tenant.n && str_map_put(tenants, tenant, (uint32_t)k->owner) < 0 ? -1 : 0;
        }
    str_map_free(tenants);
    mem_free(is_used);
    return failed ? err_set(e, ERR_MEMORY, "no memory for the API keys") : 0;
}

/* Takes the stored keys. */
static int make_snapshot(struct policy_snapshot **out, struct policy_list *take,
    const struct keys *keys, const struct policy_snapshot *old, struct err *e)
{
    int failed = add_static_keys(take, keys, e) || assign_owners(take, old, e);

    if (!failed) {
        failed = policy_snapshot_new(
            out, (const struct policy_key *const *)take->keys, take->n, take->version, e);
        take->n = 0;
    }
    if (!failed && take->limits) {
        struct policy_snapshot *keys_only = *out;
        failed = policy_snapshot_set_limits(out, keys_only, take->limits, take->version, e);
        policy_snapshot_unref(keys_only);
    }
    if (!failed) { /* also without objects: keys may have roles that do not exist */
        struct policy_snapshot *without = *out;
        failed = policy_snapshot_set_objects(out, without, take->objects, take->version, e);
        policy_snapshot_unref(without);
    }
    policy_list_clear(take);
    return failed ? -1 : 0;
}

int policy_snapshot_of_keys(struct policy_snapshot **out, const struct keys *keys, struct err *e)
{
    struct policy_list none = { 0 };

    return make_snapshot(out, &none, keys, NULL, e);
}

static int load(struct policy *p, struct policy_snapshot **out, struct err *e)
{
    struct policy_list stored = { 0 };

    if (p->backend && p->backend->ops->load(p->backend, &stored, e))
        return -1;
    return make_snapshot(out, &stored, p->keys, p->current, e);
}

/* ---- changes; policy thread */

static void touch(struct policy *p)
{
    atomic_store_explicit(&p->contact_ns, clock_ns(), memory_order_relaxed);
}

static void publish(struct policy *p, struct policy_snapshot *take)
{
    policy_snapshot_unref(p->current);
    p->current = take;
    touch(p);
    p->publish(p->ctx, take);
}

/* Loads the policy again if another process has changed it. */
static void reload(struct policy *p)
{
    struct policy_snapshot *s = NULL;
    uint64_t version = policy_snapshot_version(p->current);
    struct err e;

    int failed = p->backend->ops->version(p->backend, &version, &e);
    if (!failed && version != policy_snapshot_version(p->current))
        failed = load(p, &s, &e);
    if (failed && !p->has_failed)
        log_error("policy", "load_failed", "error=\"%s\"", e.msg);
    if (!failed && p->has_failed)
        log_info("policy", "available", "version=%llu", (unsigned long long)version);
    p->has_failed = failed;
    if (!failed)
        touch(p);
    if (s) {
        log_info("policy", "reloaded", "version=%llu keys=%d", (unsigned long long)version,
            policy_snapshot_count(s));
        publish(p, s);
    }
}

/* The key that PUT or DELETE names. */
static int find_present(
    struct policy *p, const struct policy_change *c, const struct policy_key **out, struct err *e)
{
    *out = policy_snapshot_find_id(p->current, str_of(c->id));
    if (!*out)
        return err_set(e, ERR_NOT_FOUND, "There is no API key with the id '%s'.", c->id);
    if ((*out)->is_static)
        return err_set(e, ERR_UNSUPPORTED,
            "The API key '%s' is set by the configuration of the server and cannot be changed.",
            c->id);
    if (c->has_version && c->version != (*out)->version)
        return err_param(e, ERR_PRECONDITION, "If-Match",
            "The API key has version %llu, not %llu: it was changed.",
            (unsigned long long)(*out)->version, (unsigned long long)c->version);
    return 0;
}

/* The identity of a key remains; the attributes are replaced. */
static void keep_identity(struct policy_key *k, const struct policy_key *present)
{
    memcpy(k->digest, present->digest, sizeof(k->digest));
    memcpy(k->id, present->id, sizeof(k->id));
    k->created_at = present->created_at;
    k->owner = strcmp(k->tenant, present->tenant) ? 0 : present->owner;
}

/* Grants the key what its roles grant, which must exist. */
static int apply_roles(struct policy *p, struct policy_key *k, struct err *e)
{
    const struct role_set *roles = policy_snapshot_roles(p->current);
    struct str rest = str_of(k->roles);

    for (struct str item; policy_list_next(&rest, &item);)
        if (!role_set_find(roles, item))
            return err_param(
                e, ERR_INVALID, "roles", "roles: there is no role '" STR_FMT "'.", STR_ARG(item));
    return role_set_apply(roles, k, e);
}

static int store_key(struct policy *p, struct policy_change *c, struct err *e)
{
    uint64_t version = policy_snapshot_version(p->current) + 1;
    const struct policy_key *present = NULL;
    struct policy_snapshot *next;

    if (c->action == POLICY_PUT) {
        if (find_present(p, c, &present, e))
            return -1;
        keep_identity(c->key, present);
    }
    if (c->action == POLICY_CREATE)
        c->key->created_at = clock_wall_s();
    c->key->version = version;
    if (!c->key->owner)
        c->key->owner = policy_snapshot_owner(p->current, c->key->tenant);
    if (apply_roles(p, c->key, e) || policy_snapshot_put(&next, p->current, c->key, version, e))
        return -1;
    if (p->backend->ops->put(p->backend, c->key, next, e)) {
        policy_snapshot_unref(next);
        return -1;
    }
    c->result = policy_key_ref(c->key);
    if (c->action == POLICY_PUT)
        c->before = policy_key_ref(present);
    publish(p, next);
    return 0;
}

static int delete_key(struct policy *p, struct policy_change *c, struct err *e)
{
    uint64_t version = policy_snapshot_version(p->current) + 1;
    const struct policy_key *present;
    struct policy_snapshot *next;

    if (find_present(p, c, &present, e) ||
        policy_snapshot_delete(&next, p->current, present, version, e))
        return -1;
    if (p->backend->ops->delete (p->backend, present, next, e)) {
        policy_snapshot_unref(next);
        return -1;
    }
    c->result = policy_key_ref(present);
    publish(p, next);
    return 0;
}

/* Stores a snapshot with other limits, and publishes it. */
static int store_limits(struct policy *p, const struct limit_set *set, struct err *e)
{
    uint64_t version = policy_snapshot_version(p->current) + 1;
    struct policy_snapshot *next;

    if (policy_snapshot_set_limits(&next, p->current, set, version, e))
        return -1;
    if (p->backend->ops->put_limits(p->backend, next, e)) {
        policy_snapshot_unref(next);
        return -1;
    }
    publish(p, next);
    return 0;
}

static int change_limits(struct policy *p, struct policy_change *c, struct err *e)
{
    const struct limit_set *old = policy_snapshot_limits(p->current);
    const struct limit_entry *present = limit_set_find(old, c->limits.kind, c->limits.name);
    uint64_t version = present ? present->version : 0;
    struct limit_set *set;

    if (!present && c->action == POLICY_DELETE_LIMITS)
        return err_set(e, ERR_NOT_FOUND, "There are no limits of %s%s%s.",
            limit_entry_kinds[c->limits.kind], *c->limits.name ? " " : "", c->limits.name);
    if (c->has_version && c->version != version)
        return err_param(e, ERR_PRECONDITION, "If-Match",
            "The limits have version %llu, not %llu: they were changed.",
            (unsigned long long)version, (unsigned long long)c->version);
    if (c->action == POLICY_PUT_LIMITS)
        c->limits.version = policy_snapshot_version(p->current) + 1;
    else
        c->limits = *present;
    int failed = c->action == POLICY_PUT_LIMITS ? limit_set_put(&set, old, &c->limits, e)
                                                : limit_set_delete(&set, old, present, e);
    if (failed)
        return -1;
    failed = store_limits(p, set, e);
    limit_set_unref(set);
    return failed;
}

/* Makes the snapshot with the object, or without it, stores and publishes it. */
static int store_object(struct policy *p, const struct policy_object *o, bool is_put, struct err *e)
{
    const struct object_set *old = policy_snapshot_objects(p->current);
    uint64_t version = policy_snapshot_version(p->current) + 1;
    struct policy_snapshot *next = NULL;
    struct object_set *set;

    if (is_put ? object_set_put(&set, old, o, e) : object_set_delete(&set, old, o, e))
        return -1;
    int failed = policy_snapshot_set_objects(&next, p->current, set, version, e);
    object_set_unref(set);
    if (!failed)
        failed = is_put ? p->backend->ops->put_object(p->backend, o, next, e)
                        : p->backend->ops->delete_object(p->backend, o, next, e);
    if (!failed)
        publish(p, next);
    else
        policy_snapshot_unref(next);
    return failed;
}

static int change_object(struct policy *p, struct policy_change *c, struct err *e)
{
    bool is_put = c->action == POLICY_PUT_OBJECT;
    const struct policy_object *present =
        object_set_find(policy_snapshot_objects(p->current), c->object_kind, c->object_name);
    uint64_t version = present ? present->version : 0;

    if (!present && !is_put)
        return err_set(e, ERR_NOT_FOUND, "There is no %s '%s'.",
            policy_object_kinds[c->object_kind], c->object_name);
    if (c->has_version && c->version != version)
        return err_param(e, ERR_PRECONDITION, "If-Match",
            "The %s has version %llu, not %llu: it was changed.",
            policy_object_kinds[c->object_kind], (unsigned long long)version,
            (unsigned long long)c->version);
    if (is_put && p->check_object && p->check_object(p->check_ctx, c->object, e))
        return -1;
    if (is_put)
        c->object->version = policy_snapshot_version(p->current) + 1;
    const struct policy_object *before = policy_object_ref(present);
    if (store_object(p, is_put ? c->object : present, is_put, e)) {
        policy_object_unref(before);
        return -1;
    }
    c->object_result = is_put ? policy_object_ref(c->object) : before;
    c->object_before = is_put ? before : NULL;
    return 0;
}

static int change_once(struct policy *p, struct policy_change *c, struct err *e)
{
    if (c->action == POLICY_PUT_OBJECT || c->action == POLICY_DELETE_OBJECT)
        return change_object(p, c, e);
    if (c->action == POLICY_PUT_LIMITS || c->action == POLICY_DELETE_LIMITS)
        return change_limits(p, c, e);
    return c->action == POLICY_DELETE ? delete_key(p, c, e) : store_key(p, c, e);
}

/* A change of another process in between is loaded, and the change is tried again. */
static void execute(struct policy *p, struct policy_change *c)
{
    enum { TRIES = 3 };
    int failed = -1;

    for (int i = 0; failed && i < TRIES; i++) {
        failed = change_once(p, c, &c->err);
        if (failed && (c->err.code != ERR_PRECONDITION || *c->err.param))
            break;
        if (failed)
            reload(p);
    }
    if (failed && c->err.code == ERR_PRECONDITION && !*c->err.param)
        err_set(&c->err, ERR_OVERLOADED, "Other processes are changing the policy.");
    policy_key_unref(c->key);
    c->key = NULL;
    policy_object_unref(c->object);
    c->object = NULL;
    mailbox_post(c->reply_to, &c->msg);
}

/* True: the backend may have been changed. */
static bool wait_for_work(struct policy *p, uint64_t look_ns)
{
    int fd = p->backend->ops->fd ? p->backend->ops->fd(p->backend) : -1;
    uint64_t now = clock_ns();

    if (fd < 0) {
        mailbox_wait(p->mailbox, look_ns);
        return false;
    }
    struct pollfd fds[] = { { mailbox_fd(p->mailbox), POLLIN, 0 }, { fd, POLLIN, 0 } };
    if (mailbox_arm(p->mailbox) && look_ns > now)
        poll(fds, ARRAY_LEN(fds), (int)((look_ns - now) / NS_PER_MS) + 1);
    return fds[1].revents != 0;
}

static void *run(void *arg)
{
    struct policy *p = arg;
    uint64_t look_ns = clock_ns() + WATCH_MS * NS_PER_MS;

    while (!p->is_stopping) {
        struct msg *next;
        bool is_notified = wait_for_work(p, look_ns);
        for (struct msg *m = mailbox_drain(p->mailbox); m; m = next) {
            next = m->next;
            if (m == &p->stop)
                p->is_stopping = true;
            else
                execute(p, container_of(m, struct policy_change, msg));
        }
        if (!p->is_stopping && (is_notified || clock_ns() >= look_ns)) {
            reload(p);
            look_ns = clock_ns() + WATCH_MS * NS_PER_MS;
        }
    }
    return NULL;
}

void policy_post(struct policy *p, struct policy_change *take)
{
    take->result = take->before = NULL;
    take->object_result = take->object_before = NULL;
    take->err.code = ERR_NONE;
    mailbox_post(p->mailbox, &take->msg);
}

/* ---- life */

int policy_open(struct policy **out, const struct policy_options *o, struct err *e)
{
    struct policy *p = xcalloc(1, sizeof(*p));

    p->keys = o->keys;
    p->check_object = o->check_object;
    p->check_ctx = o->check_ctx;
    p->stale_ns = (uint64_t)o->stale_ms * NS_PER_MS;
    if ((*o->backend && (policy_backend_open(&p->backend, o->backend, &o->storage, e) ||
                            mailbox_open(&p->mailbox, e))) ||
        load(p, &p->current, e)) {
        policy_close(p);
        return -1;
    }
    touch(p);
    *out = p;
    return 0;
}

struct policy_snapshot *policy_first(struct policy *p)
{
    CHECK(!p->has_thread);
    return policy_snapshot_ref(p->current);
}

bool policy_is_stale(const struct policy *p)
{
    uint64_t contact = p ? atomic_load_explicit(&p->contact_ns, memory_order_relaxed) : 0;
    uint64_t now = clock_ns();

    return p && p->backend && p->stale_ns && now > contact && now - contact > p->stale_ns;
}

bool policy_has_backend(const struct policy *p)
{
    return p->backend != NULL;
}

int policy_start(struct policy *p, void (*publish_fn)(void *ctx, struct policy_snapshot *s),
    void *ctx, struct err *e)
{
    if (!p->backend)
        return 0;
    p->publish = publish_fn;
    p->ctx = ctx;
    if (thread_start(&p->thread, "policy", run, p, e))
        return -1;
    p->has_thread = true;
    return 0;
}

void policy_stop(struct policy *p)
{
    if (!p || !p->has_thread)
        return;
    p->stop.kind = MSG_STOP;
    mailbox_post(p->mailbox, &p->stop);
    pthread_join(p->thread, NULL);
    p->has_thread = false;
}

void policy_close(struct policy *p)
{
    if (!p)
        return;
    policy_stop(p);
    if (p->backend)
        p->backend->ops->close(p->backend);
    if (p->mailbox)
        mailbox_close(p->mailbox);
    policy_snapshot_unref(p->current);
    mem_free(p);
}
