#include "serve/object_routes.h"

#include "base/json.h"
#include "base/log.h"
#include "serve/async.h"
#include "serve/audit_record.h"

#include <stdio.h>

enum {
    PAGE = 100,
    PAGE_MAX = 500,
    OBJECT_JSON_MAX = OBJECT_BODY_MAX + 1024,
    LIST_JSON_MAX = 64 * 1024 * 1024,
    ROUTE_MAX = 128
};

struct change {
    struct async async;
    struct policy_change change; /* belongs to the policy while it is posted */
    struct caller caller;
    char request_id[REQUEST_ID_MAX + 1], route[ROUTE_MAX];
};

/* ---- JSON */

/* The body is an object, whose members follow those of every kind. */
static void put_object(struct jw *w, const struct policy_object *o)
{
    struct str members = { o->body.p + 1, o->body.n - 2 };

    jw_object(w);
    jw_key(w, "object"), jw_z(w, policy_object_kinds[o->kind]);
    jw_key(w, "name"), jw_z(w, o->name);
    jw_member_u64(w, "version", o->version);
    if (members.n) {
        buf_putc(w->b, ',');
        buf_puts(w->b, members);
    }
    jw_end_object(w);
}

static void reply_object(
    struct http_exchange *x, struct route_call *c, const struct policy_object *o)
{
    char etag[24];
    struct buf b;
    struct jw w;

    snprintf(etag, sizeof(etag), "\"%llu\"", (unsigned long long)o->version);
    CHECK(c->n_fields < ROUTE_CALL_FIELDS_MAX);
    c->fields[c->n_fields++] = (struct http_field){ STR("ETag"), str_of(etag) };
    buf_init(&b, OBJECT_JSON_MAX);
    jw_init(&w, &b);
    put_object(&w, o);
    reply_json(x, c, 200, &b);
    buf_clear(&b);
    c->n_fields--; /* etag ends here */
}

/* ---- reads */

static int read_page(
    const struct http_exchange *x, char after[OBJECT_NAME_MAX + 1], int *n, struct err *e)
{
    static const char *const names[] = { "limit", "after" };
    struct str limit = STR_NONE, text = STR("");
    uint64_t v = PAGE;

    if (query_check(x, names, ARRAY_LEN(names), e) || query_get(x, "limit", &limit, e) ||
        query_get(x, "after", &text, e))
        return -1;
    if (limit.p && (!str_to_u64(limit, &v) || v < 1 || v > PAGE_MAX))
        return err_param(e, ERR_RANGE, "limit", "limit must be from 1 to %d.", PAGE_MAX);
    if (text.n && !policy_object_name_is_valid(text))
        return err_param(e, ERR_INVALID, "after", "after is not the last_id of a page.");
    *n = (int)v;
    snprintf(after, OBJECT_NAME_MAX + 1, STR_FMT, STR_ARG(text));
    return 0;
}

void object_list(
    struct io *io, struct http_exchange *x, struct route_call *c, enum policy_object_kind kind)
{
    const struct object_set *set = policy_snapshot_objects(io->policy);
    char after[OBJECT_NAME_MAX + 1];
    int n;
    struct buf b;
    struct jw w;
    struct err e;

    if (read_page(x, after, &n, &e)) {
        reply_error(x, c, &e, NULL);
        return;
    }
    int first = object_set_after(set, kind, after), end = first;
    while (end < object_set_count(set) && object_set_at(set, end)->kind == kind && end < first + n)
        end++;
    bool has_more = end < object_set_count(set) && object_set_at(set, end)->kind == kind;
    buf_init(&b, LIST_JSON_MAX);
    jw_init(&w, &b);
    jw_object(&w);
    jw_key(&w, "object"), jw_z(&w, "list");
    jw_member_u64(&w, "version", policy_snapshot_version(io->policy));
    jw_key(&w, "data"), jw_array(&w);
    for (int i = first; i < end; i++)
        put_object(&w, object_set_at(set, i));
    jw_end_array(&w);
    jw_key(&w, "last_id"), jw_z(&w, end > first ? object_set_at(set, end - 1)->name : NULL);
    jw_member_bool(&w, "has_more", has_more);
    jw_end_object(&w);
    reply_json(x, c, 200, &b);
    buf_clear(&b);
}

static int read_name(
    enum policy_object_kind kind, struct str name, char out[OBJECT_NAME_MAX + 1], struct err *e)
{
    if (!policy_object_name_is_valid(name))
        return err_param(e, ERR_INVALID, "name",
            "The name of a %s has at most %d letters, digits, . _ -", policy_object_kinds[kind],
            OBJECT_NAME_MAX);
    snprintf(out, OBJECT_NAME_MAX + 1, STR_FMT, STR_ARG(name));
    return 0;
}

void object_show(struct io *io, struct http_exchange *x, struct route_call *c,
    enum policy_object_kind kind, struct str name)
{
    const struct policy_object *o = NULL;
    char text[OBJECT_NAME_MAX + 1];
    struct err e;

    int failed = read_name(kind, name, text, &e);
    if (!failed) {
        o = object_set_find(policy_snapshot_objects(io->policy), kind, text);
        if (!o)
            failed =
                err_set(&e, ERR_NOT_FOUND, "There is no %s '%s'.", policy_object_kinds[kind], text);
    }
    if (failed)
        reply_error(x, c, &e, NULL);
    else
        reply_object(x, c, o);
}

/* ---- changes */

static void on_free(struct async *a)
{
    struct change *k = container_of(a, struct change, async);

    policy_object_unref(k->change.object);
    policy_object_unref(k->change.object_result);
    policy_object_unref(k->change.object_before);
}

static int read_body(
    struct http_exchange *x, struct change *k, const struct object_change *o, struct err *e)
{
    const struct json_limits limits = { 64, 100000 };
    struct json *root;
    struct buf body;

    if (json_parse(&root, x->req->body, x->arena, &limits, e))
        return -1;
    if (root->kind != JSON_OBJECT)
        return err_set(e, ERR_INVALID, "The body must be a JSON object.");
    buf_init(&body, OBJECT_BODY_MAX);
    int failed = o->read(k->change.object_name, root, &body, e);
    if (!failed && !buf_ok(&body))
        failed = err_set(e, ERR_TOO_LARGE, "The body is too large.");
    if (!failed)
        failed =
            policy_object_new(&k->change.object, o->kind, k->change.object_name, buf_str(&body), e);
    buf_clear(&body);
    return failed ? -1 : 0;
}

static int prepare_change(struct io *io, struct http_exchange *x, struct change *k,
    const struct object_change *o, struct err *e)
{
    struct policy_change *p = &k->change;

    if (!io->o->policy || !policy_has_backend(io->o->policy))
        return err_set(e, ERR_DISABLED,
            "The policy of this server cannot be changed: policy.backend is not set.");
    if (read_name(o->kind, o->name, p->object_name, e) ||
        query_if_match(x, &p->has_version, &p->version, e))
        return -1;
    return o->action == POLICY_PUT_OBJECT ? read_body(x, k, o, e) : 0;
}

void object_change_start(
    struct io *io, struct http_exchange *x, struct route_call *c, const struct object_change *o)
{
    static const struct async_ops ops = { .free = on_free };
    struct change *k = async_new(sizeof(*k), &ops, io, x, c);
    struct err e;

    if (!k)
        return;
    k->change.action = o->action;
    k->change.object_kind = o->kind;
    k->caller = c->caller;
    memcpy(k->request_id, c->request_id, sizeof(k->request_id));
    snprintf(
        k->route, sizeof(k->route), "%.*s", (int)MIN(o->route.n, sizeof(k->route) - 1), o->route.p);
    if (prepare_change(io, x, k, o, &e) || audit_change_reserve(io, &e)) {
        async_reply_error(&k->async, &e, NULL);
        return;
    }
    k->change.reply_to = loop_mailbox(io->loop);
    k->change.msg.kind = MSG_OBJECT_CHANGED;
    async_hold(&k->async); /* until object_change_message */
    policy_post(io->o->policy, &k->change);
}

static void record_change(const struct change *k)
{
    const struct policy_change *p = &k->change;
    bool is_put = p->action == POLICY_PUT_OBJECT;
    const struct policy_object *before = is_put ? p->object_before : p->object_result,
                               *after = is_put ? p->object_result : NULL;
    char name[40];

    snprintf(name, sizeof(name), "%s.%s", policy_object_kinds[p->object_kind],
        !is_put   ? "deleted"
        : !before ? "created"
                  : "replaced");
    log_info(
        "policy", "object_changed", "route=%s change=%s caller=%s", k->route, name, k->caller.id);
    if (k->async.io->o->audit)
        audit_record_change(
            k->async.io->o->audit, &(struct audit_change){ .request_id = k->request_id,
                                       .key_id = k->caller.id,
                                       .tenant = k->caller.tenant,
                                       .action = name,
                                       .route = str_of(k->route),
                                       .status = 200,
                                       .before = before ? before->body : STR(""),
                                       .after = after ? after->body : STR(""),
                                       .is_reserved = true });
}

void object_change_message(struct io *io, struct msg *m)
{
    struct policy_change *p = container_of(m, struct policy_change, msg);
    struct change *k = container_of(p, struct change, change);

    if (p->object_result)
        record_change(k);
    else if (io->o->audit)
        audit_unreserve(io->o->audit);
    if (k->async.is_open && !p->object_result) {
        async_reply_error(&k->async, &p->err, NULL);
    } else if (k->async.is_open) {
        reply_object(k->async.x, k->async.call, p->object_result);
        async_close(&k->async);
    }
    async_unhold(&k->async);
}

/* ---- roles */

#define ROLES_PATH "/v1/admin/roles"

static struct str name_of_role(const struct http_exchange *x)
{
    return str_skip(x->req->path, strlen(ROLES_PATH "/"));
}

void roles_list(struct io *io, struct http_exchange *x, struct route_call *c)
{
    object_list(io, x, c, OBJECT_ROLE);
}

void roles_show(struct io *io, struct http_exchange *x, struct route_call *c)
{
    object_show(io, x, c, OBJECT_ROLE, name_of_role(x));
}

static int read_role(const char *name, const struct json *body, struct buf *out, struct err *e)
{
    struct policy_role *role;
    struct jw w;

    if (policy_role_parse(&role, name, body, e))
        return -1;
    jw_init(&w, out);
    jw_object(&w);
    policy_role_write(role, &w);
    jw_end_object(&w);
    policy_role_free(role);
    return 0;
}

static void change_role(
    struct io *io, struct http_exchange *x, struct route_call *c, enum policy_action action)
{
    const struct object_change o = { action, OBJECT_ROLE, name_of_role(x), x->req->path,
        read_role };

    object_change_start(io, x, c, &o);
}

void roles_replace(struct io *io, struct http_exchange *x, struct route_call *c)
{
    change_role(io, x, c, POLICY_PUT_OBJECT);
}

void roles_delete(struct io *io, struct http_exchange *x, struct route_call *c)
{
    change_role(io, x, c, POLICY_DELETE_OBJECT);
}

/* ---- guardrails */

#define GUARDRAILS_PATH "/v1/admin/guardrails"

static struct str name_of_guardrail(const struct http_exchange *x)
{
    struct str name = str_skip(x->req->path, strlen(GUARDRAILS_PATH "/"));

    return name.n ? name : STR("default");
}

void guardrails_list(struct io *io, struct http_exchange *x, struct route_call *c)
{
    object_list(io, x, c, OBJECT_GUARDRAIL);
}

void guardrails_show(struct io *io, struct http_exchange *x, struct route_call *c)
{
    object_show(io, x, c, OBJECT_GUARDRAIL, name_of_guardrail(x));
}

static int read_guardrail(const char *name, const struct json *body, struct buf *out, struct err *e)
{
    struct guard_set *set = NULL;
    struct guardrails *g = NULL;

    if (guard_set_read(&set, str_of(name), body, e))
        return -1;
    guard_set_text(set, out);
    const struct guard_set *take = set;
    if (guardrails_new(&g, &take, 1, e)) /* names a pattern that does not compile */
        return -1;
    guardrails_unref(g);
    return 0;
}

static void change_guardrail(
    struct io *io, struct http_exchange *x, struct route_call *c, enum policy_action action)
{
    const struct object_change o = { action, OBJECT_GUARDRAIL, name_of_guardrail(x), x->req->path,
        read_guardrail };

    object_change_start(io, x, c, &o);
}

void guardrails_replace(struct io *io, struct http_exchange *x, struct route_call *c)
{
    change_guardrail(io, x, c, POLICY_PUT_OBJECT);
}

void guardrails_remove(struct io *io, struct http_exchange *x, struct route_call *c)
{
    change_guardrail(io, x, c, POLICY_DELETE_OBJECT);
}
