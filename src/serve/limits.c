#include "serve/limits.h"

#include "base/json.h"
#include "base/log.h"
#include "os/clock.h"
#include "serve/async.h"

#include <stdio.h>

#define LIMITS_PATH  "/v1/admin/limits"
#define TENANTS_PATH "/v1/admin/tenants"

enum {
    PAGE = 100,
    PAGE_MAX = 500,
    LIST_JSON_MAX = 4 * 1024 * 1024,
    SUBJECT_MAX = LIMIT_ENTRY_NAME_MAX + 8
};

struct limits_change {
    struct async async;
    struct policy_change change; /* belongs to the policy while it is posted */
    struct caller caller;
    char request_id[REQUEST_ID_MAX + 1];
    bool is_rate_limit; /* the response has the form of that route */
};

/* ---- JSON */

static void put_values(struct jw *w, const struct limit_entry *l)
{
    jw_object(w);
    for (int i = 0; i < N_LIMIT_VALUES; i++)
        if (l->values[i])
            jw_member_i64(w, limit_value_name(i), l->values[i]);
    jw_end_object(w);
}

/* Used and reserved amounts of the limits. Those of the default entry belong to the keys. */
static void put_used(struct jw *w, const struct io *io, const struct limit_entry *l)
{
    enum limit_kind kind = l->kind == LIMITS_MODEL ? LIMIT_OF_MODEL : LIMIT_OF_TENANT;
    struct limit_time t = { clock_ns(), clock_wall_s() };

    jw_object(w);
    for (int i = 0; i < N_POLICY_LIMITS; i++)
        if (l->values[i])
            jw_member_i64(w, limit_value_name(i),
                limiter_used(io->o->limiter, kind, l->name, (enum policy_limit)i, &t));
    jw_end_object(w);
}

static void put_entry(struct jw *w, const struct io *io, const struct limit_entry *l)
{
    jw_object(w);
    jw_key(w, "object"), jw_z(w, "limits");
    jw_key(w, "kind"), jw_z(w, limit_entry_kinds[l->kind]);
    jw_key(w, "name"), jw_z(w, l->name);
    jw_member_u64(w, "version", l->version);
    jw_key(w, "limits"), put_values(w, l);
    if (l->kind != LIMITS_DEFAULT && io->o->limiter)
        jw_key(w, "used"), put_used(w, io, l);
    jw_end_object(w);
}

static void put_rate_limit(struct jw *w, const struct limit_entry *l)
{
    jw_object(w);
    jw_key(w, "object"), jw_z(w, "rate_limit");
    jw_member_u64(w, "version", l->version);
    jw_member_i64(w, "tokens_per_minute", l->values[POLICY_LIMIT_requests_per_minute]);
    jw_key(w, "unit"), jw_z(w, "requests");
    jw_end_object(w);
}

static void reply_entry(struct io *io, struct http_exchange *x, struct route_call *c,
    const struct limit_entry *l, bool is_rate_limit)
{
    char etag[24];
    struct buf b;
    struct jw w;

    snprintf(etag, sizeof(etag), "\"%llu\"", (unsigned long long)l->version);
    CHECK(c->n_fields < ROUTE_CALL_FIELDS_MAX);
    c->fields[c->n_fields++] = (struct http_field){ STR("ETag"), str_of(etag) };
    buf_init(&b, LIST_JSON_MAX);
    jw_init(&w, &b);
    if (is_rate_limit)
        put_rate_limit(&w, l);
    else
        put_entry(&w, io, l);
    reply_json(x, c, 200, &b);
    buf_clear(&b);
    c->n_fields--; /* etag ends here */
}

/* ---- lists */

struct page {
    struct str after; /* exclusive; .n 0: from the start */
    int n;            /* entries, at most */
};

static int read_page(const struct http_exchange *x, struct page *out, struct err *e)
{
    struct str limit = STR_NONE;
    uint64_t n = PAGE;

    out->after = STR("");
    if (query_get(x, "limit", &limit, e) || query_get(x, "after", &out->after, e))
        return -1;
    if (limit.p && (!str_to_u64(limit, &n) || n < 1 || n > PAGE_MAX))
        return err_param(e, ERR_RANGE, "limit", "limit must be from 1 to %d.", PAGE_MAX);
    out->n = (int)n;
    return 0;
}

static void begin_list(struct jw *w, struct buf *b, const struct io *io)
{
    buf_init(b, LIST_JSON_MAX);
    jw_init(w, b);
    jw_object(w);
    jw_key(w, "object"), jw_z(w, "list");
    jw_member_u64(w, "version", policy_snapshot_version(io->policy));
    jw_key(w, "data"), jw_array(w);
}

/* last_id: STR_NONE: the page is empty. */
static void reply_list(struct http_exchange *x, struct route_call *c, struct jw *w, struct buf *b,
    struct str last_id, bool has_more)
{
    jw_end_array(w);
    jw_key(w, "last_id");
    if (last_id.p)
        jw_str(w, last_id);
    else
        jw_null(w);
    jw_member_bool(w, "has_more", has_more);
    jw_end_object(w);
    reply_json(x, c, 200, b);
    buf_clear(b);
}

/* Index after the entry that `after` names, whether it exists or not. */
static int first_after(const struct limit_set *set, struct str after, struct err *e)
{
    struct limit_entry l;
    int i = 0;

    if (!after.n)
        return 0;
    if (limit_entry_init(&l, after, '/', e))
        return err_param(e, ERR_INVALID, "after", "after is not the last_id of a page.");
    while (i < limit_set_count(set)) {
        const struct limit_entry *at = limit_set_at(set, i);
        if (at->kind > l.kind || (at->kind == l.kind && strcmp(at->name, l.name) > 0))
            break;
        i++;
    }
    return i;
}

void limits_list(struct io *io, struct http_exchange *x, struct route_call *c)
{
    const struct limit_set *set = policy_snapshot_limits(io->policy);
    struct page page;
    struct buf b, last;
    struct jw w;
    struct err e;

    int first = read_page(x, &page, &e) ? -1 : first_after(set, page.after, &e);
    if (first < 0) {
        reply_error(x, c, &e, NULL);
        return;
    }
    int end = MIN(first + page.n, limit_set_count(set));
    begin_list(&w, &b, io);
    for (int i = first; i < end; i++)
        put_entry(&w, io, limit_set_at(set, i));
    buf_init(&last, SUBJECT_MAX + 1);
    if (end > first)
        limit_entry_write_subject(limit_set_at(set, end - 1), '/', &last);
    reply_list(x, c, &w, &b, last.n ? buf_str(&last) : STR_NONE, end < limit_set_count(set));
    buf_clear(&last);
}

/* The first names after `after`, ascending; one more than a page has, if there are more. */
struct names {
    const char *at[PAGE_MAX + 1];
    int n, n_max;
};

/* Whether the name is after `after`, in the order of strcmp. */
static bool follows(const char *name, struct str after)
{
    int order = strncmp(name, after.p, after.n);

    return order > 0 || (!order && strlen(name) > after.n);
}

static void add_name(struct names *names, const char *name, struct str after)
{
    int low = 0, high = names->n;

    if (!*name || (after.n && !follows(name, after)))
        return;
    while (low < high) {
        int mid = low + (high - low) / 2, order = strcmp(names->at[mid], name);
        if (!order)
            return;
        low = order < 0 ? mid + 1 : low;
        high = order < 0 ? high : mid;
    }
    if (low == names->n_max)
        return;
    names->n = MIN(names->n + 1, names->n_max);
    memmove((void *)&names->at[low + 1], (const void *)&names->at[low],
        (size_t)(names->n - 1 - low) * sizeof(names->at[0]));
    names->at[low] = name;
}

/* Tenants that a key or an entry of limits names. */
void tenants_list(struct io *io, struct http_exchange *x, struct route_call *c)
{
    const struct limit_set *set = policy_snapshot_limits(io->policy);
    struct names names = { 0 };
    struct page page;
    struct buf b;
    struct jw w;
    struct err e;

    if (read_page(x, &page, &e)) {
        reply_error(x, c, &e, NULL);
        return;
    }
    names.n_max = page.n + 1;
    for (int i = 0; i < policy_snapshot_count(io->policy); i++)
        add_name(&names, policy_snapshot_at(io->policy, i)->tenant, page.after);
    for (int i = 0; i < limit_set_count(set); i++)
        if (limit_set_at(set, i)->kind == LIMITS_TENANT)
            add_name(&names, limit_set_at(set, i)->name, page.after);
    int n = MIN(names.n, page.n);
    begin_list(&w, &b, io);
    for (int i = 0; i < n; i++) {
        const struct limit_entry *l = limit_set_find(set, LIMITS_TENANT, names.at[i]);
        struct limit_entry none = { .kind = LIMITS_TENANT };
        snprintf(none.name, sizeof(none.name), "%s", names.at[i]);
        put_entry(&w, io, l ? l : &none);
    }
    reply_list(x, c, &w, &b, n ? str_of(names.at[n - 1]) : STR_NONE, names.n > n);
}

/* ---- one entry */

/* Sets the subject that the path names, without values. */
static int read_subject(const struct http_exchange *x, struct limit_entry *out, struct err *e)
{
    char text[SUBJECT_MAX + 1];
    bool is_tenant = str_starts(x->req->path, STR(TENANTS_PATH "/"));
    struct str rest =
        str_skip(x->req->path, is_tenant ? strlen(TENANTS_PATH "/") : strlen(LIMITS_PATH "/"));
    struct err why;

    int n = snprintf(text, sizeof(text), "%s" STR_FMT, is_tenant ? "tenant/" : "", STR_ARG(rest));
    if (n < 0 || n >= (int)sizeof(text))
        return err_set(e, ERR_NOT_FOUND, "There are no limits with a name of %zu bytes.", rest.n);
    if (limit_entry_init(out, str_of(text), '/', &why))
        return err_set(e, ERR_NOT_FOUND, "%s.", why.msg);
    return 0;
}

void limits_show(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct limit_entry named;
    struct err e;

    int failed = read_subject(x, &named, &e);
    const struct limit_entry *l =
        failed ? NULL : limit_set_find(policy_snapshot_limits(io->policy), named.kind, named.name);
    if (!failed && !l)
        failed = err_set(&e, ERR_NOT_FOUND, "There are no limits of %s%s%s.",
            limit_entry_kinds[named.kind], *named.name ? " " : "", named.name);
    if (failed)
        reply_error(x, c, &e, NULL);
    else
        reply_entry(io, x, c, l, false);
}

static const struct limit_entry *default_entry(const struct io *io)
{
    static const struct limit_entry none;
    const struct limit_entry *l =
        limit_set_find(policy_snapshot_limits(io->policy), LIMITS_DEFAULT, "");

    return l ? l : &none;
}

void rate_limit_show(struct io *io, struct http_exchange *x, struct route_call *c)
{
    reply_entry(io, x, c, default_entry(io), true);
}

/* ---- changes */

static int parse_body(
    struct http_exchange *x, const char *member, const struct json **out, struct err *e)
{
    const struct json_limits limits = { 4, 64 };
    struct json *root;

    if (json_parse(&root, x->req->body, x->arena, &limits, e))
        return -1;
    if (root->kind != JSON_OBJECT)
        return err_set(e, ERR_INVALID, "The body must be a JSON object.");
    for (const struct json *v = root->child; v; v = v->next)
        if (!str_is(v->key, member))
            return err_param(e, ERR_INVALID, member, "Unknown field '%.*s'; the body has '%s'.",
                (int)MIN(v->key.n, (size_t)40), v->key.p, member);
    *out = json_get(root, member);
    return *out ? 0 : err_param(e, ERR_MISSING, member, "The field '%s' is missing.", member);
}

/* "limits": an object of numbers; null = none. */
static int parse_limits(struct limit_entry *l, struct http_exchange *x, struct err *e)
{
    const struct json *values;
    struct err why;

    if (parse_body(x, "limits", &values, e))
        return -1;
    if (values->kind != JSON_OBJECT)
        return err_param(e, ERR_INVALID, "limits", "limits must be an object of numbers.");
    for (const struct json *v = values->child; v; v = v->next) {
        char name[64];
        int64_t n = 0;
        snprintf(name, sizeof(name), "limits.%.*s", (int)MIN(v->key.n, (size_t)40), v->key.p);
        if (json_is_null(v))
            continue;
        if (!json_i64(v, &n))
            return err_param(e, ERR_INVALID, name, "%s must be a whole number.", name);
        if (limit_entry_set(l, v->key, n, &why))
            return err_param(e, why.code, name, "limits: %s.", why.msg);
    }
    return 0;
}

/* Replaces one value of the default entry; If-Match is the version that was read. */
static int parse_rate_limit(
    const struct io *io, struct policy_change *p, struct http_exchange *x, struct err *e)
{
    const struct json *v;
    int64_t n = 0;

    if (parse_body(x, "tokens_per_minute", &v, e))
        return -1;
    if ((!json_is_null(v) && !json_i64(v, &n)) || n < 0 || n > LIMIT_VALUE_MAX)
        return err_param(e, ERR_RANGE, "tokens_per_minute",
            "tokens_per_minute is a number of requests per minute, from 0 (no limit) to %lld.",
            (long long)LIMIT_VALUE_MAX);
    uint64_t version = default_entry(io)->version;
    if (p->has_version && p->version != version)
        return err_param(e, ERR_PRECONDITION, "If-Match", "The rate limit has version %llu.",
            (unsigned long long)version);
    p->limits = *default_entry(io);
    p->limits.values[POLICY_LIMIT_requests_per_minute] = n;
    p->has_version = true;
    p->version = version;
    return 0;
}

static int prepare_change(
    struct io *io, struct http_exchange *x, struct limits_change *k, struct err *e)
{
    struct policy_change *p = &k->change;

    if (!io->o->policy || !policy_has_backend(io->o->policy))
        return err_set(e, ERR_DISABLED,
            "The limits of this server cannot be changed: policy.backend is not set.");
    if (query_if_match(x, &p->has_version, &p->version, e))
        return -1;
    if (k->is_rate_limit)
        return parse_rate_limit(io, p, x, e);
    if (read_subject(x, &p->limits, e))
        return -1;
    return p->action == POLICY_PUT_LIMITS ? parse_limits(&p->limits, x, e) : 0;
}

static void start_change(struct io *io, struct http_exchange *x, struct route_call *c,
    enum policy_action action, bool is_rate_limit)
{
    static const struct async_ops ops = { 0 };
    struct limits_change *k = async_new(sizeof(*k), &ops, io, x, c);
    struct err e;

    if (!k)
        return;
    k->change.action = action;
    k->is_rate_limit = is_rate_limit;
    k->caller = c->caller;
    memcpy(k->request_id, c->request_id, sizeof(k->request_id));
    if (prepare_change(io, x, k, &e)) {
        async_reply_error(&k->async, &e, NULL);
        return;
    }
    k->change.reply_to = loop_mailbox(io->loop);
    k->change.msg.kind = MSG_LIMITS_CHANGED;
    async_hold(&k->async); /* until limits_message */
    policy_post(io->o->policy, &k->change);
}

void limits_replace(struct io *io, struct http_exchange *x, struct route_call *c)
{
    start_change(io, x, c, POLICY_PUT_LIMITS, false);
}

void limits_delete(struct io *io, struct http_exchange *x, struct route_call *c)
{
    start_change(io, x, c, POLICY_DELETE_LIMITS, false);
}

void rate_limit_replace(struct io *io, struct http_exchange *x, struct route_call *c)
{
    start_change(io, x, c, POLICY_PUT_LIMITS, true);
}

static void record_change(const struct limits_change *k)
{
    const struct io *io = k->async.io;
    const struct limit_entry *l = &k->change.limits;
    const char *name = k->change.action == POLICY_DELETE_LIMITS ? "deleted" : "replaced";
    char path[sizeof(LIMITS_PATH) + SUBJECT_MAX + 1];

    snprintf(path, sizeof(path), "%s/%s%s%s", LIMITS_PATH, limit_entry_kinds[l->kind],
        *l->name ? "/" : "", l->name);
    log_info("policy", "limits_changed", "path=%s change=%s caller=%s", path, name, k->caller.id);
    if (io->o->audit)
        audit_write(io->o->audit, &(struct audit_entry){ .request_id = k->request_id,
                                      .key_id = k->caller.id,
                                      .route = path,
                                      .model = STR(""),
                                      .prompt = STR(""),
                                      .status = 200,
                                      .finish = name });
}

void limits_message(struct io *io, struct msg *m)
{
    struct policy_change *p = container_of(m, struct policy_change, msg);
    struct limits_change *k = container_of(p, struct limits_change, change);

    if (!p->err.code)
        record_change(k);
    if (k->async.is_open && p->err.code) {
        async_reply_error(&k->async, &p->err, NULL);
    } else if (k->async.is_open) {
        reply_entry(io, k->async.x, k->async.call, &p->limits, k->is_rate_limit);
        async_close(&k->async);
    }
    async_unhold(&k->async);
}
