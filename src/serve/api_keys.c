#include "serve/api_keys.h"

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rfc3339.h"
#include "serve/async.h"
#include "serve/audit_record.h"

#include <openssl/crypto.h>
#include <stdio.h>

#define API_KEYS_PATH "/v1/admin/api_keys"

enum { PAGE = 100, PAGE_MAX = 500, KEY_JSON_MAX = 64 * 1024, LIST_JSON_MAX = 64 * 1024 * 1024 };

struct key_change {
    struct async async;
    struct policy_change change; /* belongs to the policy while it is posted */
    struct caller caller;
    char request_id[REQUEST_ID_MAX + 1];
    char secret[POLICY_SECRET_BYTES + 1]; /* secret of a new key */
};

/* ---- JSON of a key */

static void put_list(struct jw *w, struct str text)
{
    jw_array(w);
    while (text.n) {
        const char *tab = memchr(text.p, '\t', text.n);
        size_t n = tab ? (size_t)(tab - text.p) : text.n;
        jw_str(w, (struct str){ text.p, n });
        text = str_skip(text, n + 1);
    }
    jw_end_array(w);
}

static void put_limits(struct jw *w, const struct policy_key *k)
{
    jw_object(w);
    for (int i = 0; i < N_POLICY_LIMITS; i++)
        if (k->limits[i])
            jw_member_i64(w, policy_limit_names[i], k->limits[i]);
    jw_end_object(w);
}

/* The default of an attribute without a text is null; an empty list stands for no restriction. */
static void put_attribute(
    struct jw *w, const struct policy_key *k, const struct policy_attribute *a, struct buf *scratch)
{
    buf_reset(scratch);
    a->write(k, scratch);
    struct str text = buf_str(scratch);
    jw_key(w, a->name);
    switch (a->kind) {
    case ATTRIBUTE_LIST: /* no scopes have a text, since no text is the default */
        put_list(w, a == policy_attribute_find(STR("scopes")) && !k->scopes ? STR("") : text);
        return;
    case ATTRIBUTE_LIMITS:
        put_limits(w, k);
        return;
    case ATTRIBUTE_NUMBER:
        jw_raw(w, text.n ? text : STR("0"));
        return;
    case ATTRIBUTE_TIME:
        if (text.n)
            jw_raw(w, text);
        else
            jw_null(w);
        return;
    case ATTRIBUTE_TEXT:
        jw_str(w, text);
        return;
    }
}

/* secret: of a new key; NULL otherwise. */
static void put_key(struct jw *w, const struct policy_key *k, const char *secret)
{
    struct buf scratch;

    buf_init(&scratch, 2 * POLICY_ATTRIBUTE_BYTES);
    jw_object(w);
    jw_key(w, "id"), jw_z(w, k->id);
    jw_key(w, "object"), jw_z(w, "api_key");
    if (secret)
        jw_key(w, "key"), jw_z(w, secret);
    for (size_t i = 0; i < ARRAY_LEN(policy_attributes); i++)
        put_attribute(w, k, &policy_attributes[i], &scratch);
    jw_member_bool(w, "is_static", k->is_static);
    jw_end_object(w);
    buf_clear(&scratch);
}

/* ---- GET */

void api_keys_list(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct str limit = STR_NONE, after = STR("");
    uint64_t n = PAGE;
    struct buf b;
    struct jw w;
    struct err e;

    if (query_get(x, "limit", &limit, &e) || query_get(x, "after", &after, &e)) {
        reply_error(x, c, &e, NULL);
        return;
    }
    if (limit.p && (!str_to_u64(limit, &n) || n < 1 || n > PAGE_MAX)) {
        err_param(&e, ERR_RANGE, "limit", "limit must be from 1 to %d.", PAGE_MAX);
        reply_error(x, c, &e, NULL);
        return;
    }
    int first = after.n ? policy_snapshot_after(io->policy, after) : 0;
    int end = MIN(policy_snapshot_count(io->policy), first + (int)n);
    buf_init(&b, LIST_JSON_MAX);
    jw_init(&w, &b);
    jw_object(&w);
    jw_key(&w, "object"), jw_z(&w, "list");
    jw_member_u64(&w, "version", policy_snapshot_version(io->policy));
    jw_key(&w, "data"), jw_array(&w);
    for (int i = first; i < end; i++)
        put_key(&w, policy_snapshot_at(io->policy, i), NULL);
    jw_end_array(&w);
    jw_key(&w, "last_id");
    jw_z(&w, end > first ? policy_snapshot_at(io->policy, end - 1)->id : NULL);
    jw_member_bool(&w, "has_more", end < policy_snapshot_count(io->policy));
    jw_end_object(&w);
    reply_json(x, c, 200, &b);
    buf_clear(&b);
}

static void reply_key(
    struct http_exchange *x, struct route_call *c, const struct policy_key *k, const char *secret)
{
    char etag[24];
    struct buf b;
    struct jw w;

    snprintf(etag, sizeof(etag), "\"%llu\"", (unsigned long long)k->version);
    CHECK(c->n_fields < ROUTE_CALL_FIELDS_MAX);
    c->fields[c->n_fields++] = (struct http_field){ STR("ETag"), str_of(etag) };
    buf_init(&b, KEY_JSON_MAX);
    jw_init(&w, &b);
    put_key(&w, k, secret);
    reply_json(x, c, secret ? 201 : 200, &b);
    if (b.p)
        OPENSSL_cleanse(b.p, b.n);
    buf_clear(&b);
    c->n_fields--; /* etag ends here */
}

static struct str id_of(const struct http_exchange *x)
{
    return str_skip(x->req->path, strlen(API_KEYS_PATH "/"));
}

void api_keys_show(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct str id = id_of(x);
    const struct policy_key *k = policy_snapshot_find_id(io->policy, id);
    struct err e;

    if (k) {
        reply_key(x, c, k, NULL);
        return;
    }
    err_set(&e, ERR_NOT_FOUND, "There is no API key with the id '%.*s'.",
        (int)MIN(id.n, (size_t)40), id.p);
    reply_error(x, c, &e, NULL);
}

/* ---- body of POST and PUT: JSON values to the text of an attribute */

static bool has_control_characters(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < ' ')
            return true;
    return false;
}

static int bad_type(const struct policy_attribute *a, const char *type, struct err *e)
{
    return err_param(e, ERR_INVALID, a->name, "%s must be %s.", a->name, type);
}

static int list_text(
    const struct policy_attribute *a, const struct json *v, struct buf *out, struct err *e)
{
    if (v->kind != JSON_ARRAY)
        return bad_type(a, "an array of strings", e);
    for (const struct json *item = v->child; item; item = item->next) {
        if (item->kind != JSON_STRING || !item->s.n || has_control_characters(item->s))
            return bad_type(a, "an array of strings without control characters", e);
        if (item != v->child)
            buf_putc(out, '\t');
        buf_puts(out, item->s);
    }
    return 0;
}

static int limits_text(
    const struct policy_attribute *a, const struct json *v, struct buf *out, struct err *e)
{
    if (v->kind != JSON_OBJECT)
        return bad_type(a, "an object of numbers", e);
    for (const struct json *item = v->child; item; item = item->next) {
        int64_t n;
        if (json_is_null(item))
            continue;
        if (!json_i64(item, &n) || has_control_characters(item->key))
            return err_param(e, ERR_INVALID, a->name, "%s.%.*s must be a whole number.", a->name,
                (int)MIN(item->key.n, (size_t)40), item->key.p);
        buf_printf(out, "%s" STR_FMT "=%lld", out->n ? "\t" : "", STR_ARG(item->key), (long long)n);
    }
    return 0;
}

/* Unix time, or RFC 3339 (base/rfc3339.h). */
static bool read_time(const struct json *v, int64_t *out)
{
    bool is_read = v->kind == JSON_STRING ? rfc3339_read(v->s, out) : json_i64(v, out);

    return is_read && *out > 0;
}

static int attribute_text(
    const struct policy_attribute *a, const struct json *v, struct buf *out, struct err *e)
{
    int64_t time_s;

    if (json_is_null(v))
        return 0;
    switch (a->kind) {
    case ATTRIBUTE_LIST:
        return list_text(a, v, out, e);
    case ATTRIBUTE_LIMITS:
        return limits_text(a, v, out, e);
    case ATTRIBUTE_NUMBER:
        buf_puts(out, v->s);
        return v->kind == JSON_NUMBER ? 0 : bad_type(a, "a number", e);
    case ATTRIBUTE_TIME:
        if (!read_time(v, &time_s))
            return bad_type(a, "a Unix time in seconds, or a time such as 2026-11-24T08:00:00Z", e);
        buf_printf(out, "%lld", (long long)time_s);
        return 0;
    case ATTRIBUTE_TEXT:
        buf_puts(out, v->s);
        return v->kind == JSON_STRING ? 0 : bad_type(a, "a string", e);
    }
    return -1;
}

static int set_attribute(struct policy_key *k, const struct json *v, struct err *e)
{
    const struct policy_attribute *a = policy_attribute_find(v->key);
    struct buf text;

    if (!a || a->is_internal) {
        char name[48];
        snprintf(name, sizeof(name), "%.*s", (int)MIN(v->key.n, sizeof(name) - 1), v->key.p);
        return err_param(e, ERR_INVALID, name, "Unknown field '%s'.", name);
    }
    buf_init(&text, 2 * POLICY_ATTRIBUTE_BYTES);
    int failed = attribute_text(a, v, &text, e);
    if (!text.n && a == policy_attribute_find(STR("scopes")))
        buf_putz(&text, "none"); /* parse_key checks whether the key has roles */
    if (!failed && !buf_ok(&text))
        failed = err_param(e, ERR_TOO_LARGE, a->name, "%s is too large.", a->name);
    if (!failed)
        failed = policy_key_set(k, a, buf_str(&text), e);
    buf_clear(&text);
    return failed;
}

static int parse_key(struct policy_key *k, struct http_exchange *x, struct err *e)
{
    const struct json_limits limits = { 4, 1024 };
    struct json *root;

    if (json_parse(&root, x->req->body, x->arena, &limits, e))
        return -1;
    if (root->kind != JSON_OBJECT)
        return err_set(e, ERR_INVALID, "The body must be a JSON object.");
    const struct json *roles = json_get(root, "roles");
    if (roles && roles->n && json_is_null(json_get(root, "scopes")))
        k->scopes = SCOPE_NONE; /* the roles grant the scopes */
    for (const struct json *v = root->child; v; v = v->next)
        if (set_attribute(k, v, e))
            return -1;
    if (!k->scopes && !k->roles)
        return err_param(e, ERR_INVALID, "scopes",
            "scopes: a key needs at least one of generate, read, admin, or a role");
    return 0;
}

/* ---- changes */

static void on_free(struct async *a)
{
    struct key_change *k = container_of(a, struct key_change, async);

    policy_key_unref(k->change.result);
    policy_key_unref(k->change.before);
    policy_key_unref(k->change.key);
    OPENSSL_cleanse(k->secret, sizeof(k->secret));
}

/* After this key, the server requires one: without the scope admin it could not be administered. */
static int check_first_key(const struct io *io, const struct policy_key *key, struct err *e)
{
    if (io->origins.needs_key || !io->o->needs_key_once_set || (key->scopes & SCOPE_ADMIN))
        return 0;
    return err_param(e, ERR_INVALID, "scopes",
        "The first API key needs the scope admin, since the server requires a key from then on.");
}

static int prepare_change(
    struct io *io, struct http_exchange *x, struct key_change *k, struct err *e)
{
    struct policy_change *p = &k->change;
    struct str id = p->action == POLICY_CREATE ? STR("") : id_of(x);
    uint8_t digest[POLICY_DIGEST_BYTES] = { 0 };

    if (!io->o->policy || !policy_has_backend(io->o->policy))
        return err_set(e, ERR_DISABLED,
            "The API keys of this server cannot be changed: policy.backend is not set.");
    if (id.n >= sizeof(p->id))
        return err_set(e, ERR_NOT_FOUND, "There is no API key with the id '%.*s'.",
            (int)MIN(id.n, (size_t)40), id.p);
    snprintf(p->id, sizeof(p->id), STR_FMT, STR_ARG(id));
    if (query_if_match(x, &p->has_version, &p->version, e))
        return -1;
    if (p->action == POLICY_DELETE)
        return 0;
    if (p->action == POLICY_CREATE) {
        policy_secret_new(k->secret);
        policy_digest(digest, str_of(k->secret));
    }
    p->key = policy_key_new(digest);
    if (!p->key)
        return err_set(e, ERR_MEMORY, "no memory for an API key");
    return parse_key(p->key, x, e) || check_first_key(io, p->key, e) ? -1 : 0;
}

static void start_change(
    struct io *io, struct http_exchange *x, struct route_call *c, enum policy_action action)
{
    static const struct async_ops ops = { .free = on_free };
    struct key_change *k = async_new(sizeof(*k), &ops, io, x, c);
    struct err e;

    if (!k)
        return;
    k->change.action = action;
    k->caller = c->caller;
    memcpy(k->request_id, c->request_id, sizeof(k->request_id));
    if (prepare_change(io, x, k, &e) || audit_change_reserve(io, &e)) {
        async_reply_error(&k->async, &e, NULL);
        return;
    }
    k->change.reply_to = loop_mailbox(io->loop);
    k->change.msg.kind = MSG_POLICY_CHANGED;
    async_hold(&k->async); /* until api_keys_message */
    policy_post(io->o->policy, &k->change);
}

void api_keys_create(struct io *io, struct http_exchange *x, struct route_call *c)
{
    start_change(io, x, c, POLICY_CREATE);
}

void api_keys_replace(struct io *io, struct http_exchange *x, struct route_call *c)
{
    start_change(io, x, c, POLICY_PUT);
}

void api_keys_delete(struct io *io, struct http_exchange *x, struct route_call *c)
{
    start_change(io, x, c, POLICY_DELETE);
}

/* JSON of a key without its secret; NULL: null. */
static void key_json(const struct policy_key *k, struct buf *b)
{
    struct jw w;

    buf_init(b, KEY_JSON_MAX);
    jw_init(&w, b);
    if (k)
        put_key(&w, k, NULL);
}

static void record_change(const struct key_change *k)
{
    static const char *const names[] = { [POLICY_CREATE] = "api_key.created",
        [POLICY_PUT] = "api_key.replaced",
        [POLICY_DELETE] = "api_key.deleted" };
    const struct policy_change *p = &k->change;
    const struct io *io = k->async.io;
    const char *name = names[p->action];
    struct buf before, after;
    char path[80];

    snprintf(path, sizeof(path), "%s/%s", API_KEYS_PATH, p->result->id);
    log_info("policy", "api_key_changed", "key=%s change=%s caller=%s", p->result->id, name,
        k->caller.id);
    if (!io->o->audit)
        return;
    key_json(p->action == POLICY_DELETE ? p->result : p->before, &before);
    key_json(p->action == POLICY_DELETE ? NULL : p->result, &after);
    audit_record_change(io->o->audit, &(struct audit_change){ .request_id = k->request_id,
                                          .key_id = k->caller.id,
                                          .tenant = k->caller.tenant,
                                          .action = name,
                                          .route = str_of(path),
                                          .status = p->action == POLICY_CREATE ? 201 : 200,
                                          .before = buf_str(&before),
                                          .after = buf_str(&after),
                                          .is_reserved = true });
    buf_clear(&before);
    buf_clear(&after);
}

static void reply_deleted(struct key_change *k)
{
    struct buf b;
    struct jw w;

    buf_init(&b, KEY_JSON_MAX);
    jw_init(&w, &b);
    jw_object(&w);
    jw_key(&w, "id"), jw_z(&w, k->change.id);
    jw_key(&w, "object"), jw_z(&w, "api_key");
    jw_member_bool(&w, "deleted", true);
    jw_end_object(&w);
    reply_json(k->async.x, k->async.call, 200, &b);
    buf_clear(&b);
}

void api_keys_message(struct io *io, struct msg *m)
{
    struct policy_change *p = container_of(m, struct policy_change, msg);
    struct key_change *k = container_of(p, struct key_change, change);

    if (p->result)
        record_change(k);
    else if (io->o->audit)
        audit_unreserve(io->o->audit);
    if (k->async.is_open && !p->result) {
        async_reply_error(&k->async, &p->err, NULL);
    } else if (k->async.is_open) {
        if (p->action == POLICY_DELETE)
            reply_deleted(k);
        else
            reply_key(k->async.x, k->async.call, p->result, *k->secret ? k->secret : NULL);
        async_close(&k->async);
    }
    async_unhold(&k->async);
}
