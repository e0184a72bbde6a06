#include "serve/session_routes.h"

#include "serve/async.h"
#include "serve/audit_record.h"
#include "serve/key_wait.h"

#include <openssl/crypto.h>
#include <stdio.h>

enum { FLOW_S = 600, COOKIE_FIELD_BYTES = 256, JSON_MAX = 32 * 1024, PAGE_MAX = 4096 };

#define CALLBACK_CSP                                                                               \
    "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

struct session_call {
    struct async async;
    struct login_job job; /* belongs to the logins thread while it is posted */
    struct caller caller;
    char request_id[REQUEST_ID_MAX + 1];
    bool is_reserved; /* room in the audit log */
};

/* ---- cookies */

enum cookie { COOKIE_SESSION, COOKIE_FLOW };

static const struct {
    const char *secure, *plain; /* names */
    const char *same_site;
} cookies[] = {
    [COOKIE_SESSION] = { "__Host-inferflux", "inferflux", "Strict" },
    [COOKIE_FLOW] = { "__Host-inferflux-login", "inferflux-login", "Lax" },
};

static const char *name_of(const struct io *io, enum cookie k)
{
    return io->o->has_secure_cookies ? cookies[k].secure : cookies[k].plain;
}

/* Adds the values of one field; *n counts them. */
static void find_in_field(struct str field, const char *name, struct str *value, int *n)
{
    while (field.n) {
        ptrdiff_t end = str_find(field, STR(";"));
        struct str pair = str_trim((struct str){ field.p, end < 0 ? field.n : (size_t)end });
        ptrdiff_t is = str_find(pair, STR("="));
        if (is > 0 && str_is((struct str){ pair.p, (size_t)is }, name)) {
            *value = str_skip(pair, (size_t)is + 1);
            ++*n;
        }
        field = str_skip(field, end < 0 ? field.n : (size_t)end + 1);
    }
}

/* Two cookies of one name have different paths or domains: one of them may be from elsewhere. */
static struct str find_cookie(const struct io *io, const struct http_exchange *x, enum cookie k)
{
    const struct http_request *q = x->req;
    struct str value = STR_NONE;
    int n = 0;

    for (int i = 0; i < q->n_fields; i++)
        if (str_eq_nocase(q->fields[i].name, STR("cookie")))
            find_in_field(q->fields[i].value, name_of(io, k), &value, &n);
    return n == 1 ? value : STR_NONE;
}

struct str session_routes_cookie(
    const struct io *io, const struct http_exchange *x, const struct route_call *c)
{
    return io->o->logins && c->allows_cookie ? find_cookie(io, x, COOKIE_SESSION) : STR_NONE;
}

static void add_field(struct route_call *c, struct str name, struct str value)
{
    CHECK(c->n_fields < ROUTE_CALL_FIELDS_MAX);
    c->fields[c->n_fields++] = (struct http_field){ name, value };
}

/* The field is in the arena of the exchange. Without memory there is none. value: "" removes the
 * cookie. */
static void set_cookie(struct io *io, struct http_exchange *x, struct route_call *c, enum cookie k,
    const char *value, int64_t age_s)
{
    char *text = arena_alloc(x->arena, COOKIE_FIELD_BYTES);

    if (!text)
        return;
    snprintf(text, COOKIE_FIELD_BYTES, "%s=%s; Path=/; Max-Age=%lld; HttpOnly; SameSite=%s%s",
        name_of(io, k), value, (long long)(*value ? age_s : 0), cookies[k].same_site,
        io->o->has_secure_cookies ? "; Secure" : "");
    add_field(c, STR("Set-Cookie"), str_of(text));
}

/* ---- replies */

static void put_scopes(struct jw *w, unsigned scopes)
{
    static const struct {
        unsigned scope;
        const char *name;
    } names[] = { { SCOPE_READ, "read" }, { SCOPE_GENERATE, "generate" },
        { SCOPE_ADMIN, "admin" } };

    jw_array(w);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (scopes & names[i].scope)
            jw_z(w, names[i].name);
    jw_end_array(w);
}

/* caller: NULL = not authenticated. */
static void reply_session(struct io *io, struct http_exchange *x, struct route_call *c,
    const struct caller *caller, int64_t expires_s)
{
    const char *name = c->key ? c->key->name : "";
    struct buf b;
    struct jw w;

    add_field(c, STR("Cache-Control"), STR("no-store"));
    buf_init(&b, JSON_MAX);
    jw_init(&w, &b);
    jw_object(&w);
    jw_key(&w, "object"), jw_z(&w, "session");
    jw_member_bool(&w, "needs_key", io->origins.needs_key);
    jw_member_bool(&w, "authenticated", caller != NULL);
    jw_key(&w, "key_id"), jw_z(&w, caller && *caller->id ? caller->id : NULL);
    jw_key(&w, "name"), jw_z(&w, caller && *name ? name : NULL);
    jw_key(&w, "tenant"), jw_z(&w, caller && *caller->tenant ? caller->tenant : NULL);
    jw_key(&w, "scopes"), put_scopes(&w, caller ? caller->scopes : SCOPE_NONE);
    jw_key(&w, "expires_at");
    if (expires_s)
        jw_i64(&w, expires_s);
    else
        jw_null(&w);
    jw_key(&w, "login_url"), jw_z(&w, io->o->login_flow ? "/v1/session/login" : NULL);
    jw_end_object(&w);
    reply_json(x, c, 200, &b);
    buf_clear(&b);
}

static void put_html(struct buf *b, const char *text)
{
    for (; *text; text++)
        if (*text == '<' || *text == '>' || *text == '&' || *text == '"')
            buf_printf(b, "&#%d;", *text);
        else
            buf_putc(b, *text);
}

/* The page that ends a login. The browser gets the next page from a page of this server, and not by
 * a redirect of the issuer, since only then it sends the SameSite=Strict cookie.
 * e: NULL = success. */
static void reply_page(
    struct io *io, struct http_exchange *x, struct route_call *c, const struct err *e)
{
    struct buf b;

    set_cookie(io, x, c, COOKIE_FLOW, "", 0);
    add_field(c, STR("Cache-Control"), STR("no-store"));
    add_field(c, STR("Content-Security-Policy"), STR(CALLBACK_CSP));
    add_field(c, STR("Referrer-Policy"), STR("no-referrer"));
    add_field(c, STR("X-Content-Type-Options"), STR("nosniff"));
    buf_init(&b, PAGE_MAX);
    buf_putz(&b, "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">");
    if (e) {
        buf_putz(&b, "<title>Login failed</title><p>The login failed: ");
        put_html(&b, e->msg);
        buf_putz(&b, "<p><a href=\"/v1/session/login\">Log in again</a>");
    } else {
        buf_putz(&b, "<title>Logged in</title><meta http-equiv=\"refresh\" content=\"0; url=/\">"
                     "<p>You are logged in. <a href=\"/\">Continue</a>");
    }
    sink_respond(&x->sink, e ? status_http(ERROR_PROBLEM, e->code) : 200,
        "text/html; charset=utf-8", buf_str(&b), c->fields, c->n_fields);
    buf_clear(&b);
}

static void fail_page(struct io *io, struct http_exchange *x, struct route_call *c, struct err *e)
{
    audit_refused_call(x, c, e);
    reply_page(io, x, c, e);
}

/* ---- audit log */

static void record(struct session_call *s, const struct caller *caller)
{
    static const char *const actions[] = { [LOGIN_CREATE] = "session.created",
        [LOGIN_END] = "session.ended",
        [LOGIN_END_FLOW] = "session.created",
        [LOGIN_LOGOUT_TOKEN] = "session.ended_by_issuer" };

    s->is_reserved = false;
    audit_record_change(s->async.io->o->audit, &(struct audit_change){ .request_id = s->request_id,
                                                   .key_id = caller->id,
                                                   .tenant = caller->tenant,
                                                   .action = actions[s->job.action],
                                                   .route = STR("/v1/session"),
                                                   .status = 200,
                                                   .is_reserved = true });
}

static int reserve_line(struct session_call *s, struct err *e)
{
    if (!s->async.io->o->audit)
        return 0;
    if (audit_change_reserve(s->async.io, e))
        return -1;
    s->is_reserved = true;
    return 0;
}

/* ---- jobs */

static void on_free(struct async *a)
{
    struct session_call *s = container_of(a, struct session_call, async);

    if (s->is_reserved)
        audit_unreserve(a->io->o->audit);
    if (s->job.action == LOGIN_END_FLOW)
        policy_key_unref(s->job.key);
    OPENSSL_cleanse(s->job.cookie, sizeof(s->job.cookie));
    OPENSSL_cleanse(s->job.secret, sizeof(s->job.secret));
}

/* NULL: the error was sent. */
static struct session_call *new_call(
    struct io *io, struct http_exchange *x, struct route_call *c, enum login_action action)
{
    static const struct async_ops ops = { .free = on_free };
    bool needs_issuer = action != LOGIN_CREATE && action != LOGIN_END;
    struct err e;

    if (!io->o->logins || (needs_issuer && !io->o->login_flow)) {
        err_set(&e, ERR_DISABLED, "This server has no login of browsers%s.",
            needs_issuer ? " at an issuer: auth.login.client_id is not set" : "");
        reply_error(x, c, &e, NULL);
        return NULL;
    }
    struct session_call *s = async_new(sizeof(*s), &ops, io, x, c);
    if (!s)
        return NULL;
    s->job.action = action;
    s->caller = c->caller;
    memcpy(s->request_id, c->request_id, sizeof(s->request_id));
    return s;
}

static void post(struct session_call *s)
{
    s->job.msg.kind = MSG_LOGIN;
    s->job.reply_to = loop_mailbox(s->async.io->loop);
    async_hold(&s->async); /* until session_routes_message */
    logins_post(s->async.io->o->logins, &s->job);
}

/* ---- routes */

void session_routes_show(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct err e;

    add_field(c, STR("Vary"), STR("Cookie, Authorization, X-Api-Key"));
    if (!io->origins.needs_key) {
        reply_session(io, x, c, &c->caller, 0);
        return;
    }
    bool is_known = !service_find_caller(io, x, c, &e);
    c->waits_for_keys = false;
    reply_session(io, x, c, is_known ? &c->caller : NULL, is_known ? c->login_expires_s : 0);
}

void session_routes_create(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct err e;

    if (!c->key || c->has_login) {
        err_set(&e, c->key ? ERR_FORBIDDEN : ERR_DISABLED,
            c->key ? "A session begins with an API key or a token, not with another session."
                   : "This server needs no API key, and has no sessions.");
        reply_error(x, c, &e, NULL);
        return;
    }
    struct session_call *s = new_call(io, x, c, LOGIN_CREATE);
    if (!s)
        return;
    s->job.key = s->async.key;
    if (reserve_line(s, &e))
        async_reply_error(&s->async, &e, NULL);
    else
        post(s);
}

void session_routes_end(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct str cookie = session_routes_cookie(io, x, c);
    struct session_call *s = new_call(io, x, c, LOGIN_END);
    struct err e;

    if (!s)
        return;
    if (cookie.n == LOGIN_COOKIE_BYTES)
        memcpy(s->job.cookie, cookie.p, cookie.n);
    if (io->origins.needs_key && cookie.n && !service_find_caller(io, x, c, &e))
        s->caller = c->caller;
    if (reserve_line(s, &e))
        async_reply_error(&s->async, &e, NULL);
    else
        post(s);
}

void session_routes_login(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct session_call *s = new_call(io, x, c, LOGIN_BEGIN_FLOW);

    if (s)
        post(s);
}

void session_routes_callback(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct str secret = find_cookie(io, x, COOKIE_FLOW);
    struct code_response r = { STR_NONE, STR_NONE, STR_NONE, STR_NONE };
    char text[CODE_FLOW_SECRET_BYTES + 1] = "";
    struct err e;

    c->is_login = true;
    if (secret.n == CODE_FLOW_SECRET_BYTES)
        memcpy(text, secret.p, secret.n);
    if (io->o->login_flow &&
        (query_get(x, "state", &r.state, &e) || query_get(x, "code", &r.code, &e) ||
            query_get(x, "iss", &r.issuer, &e) || query_get(x, "error", &r.error, &e) ||
            code_flow_check(io->o->token_rules, text, &r, &e))) {
        fail_page(io, x, c, &e);
        return;
    }
    struct session_call *s = new_call(io, x, c, LOGIN_END_FLOW);
    if (!s)
        return;
    memcpy(s->job.secret, text, sizeof(text));
    s->job.has_issuer = r.issuer.p != NULL;
    char *code = arena_alloc(s->async.arena, r.code.n + 1);
    if (!code)
        err_set(&e, ERR_MEMORY, "no memory for the request");
    if (!code || reserve_line(s, &e)) {
        fail_page(io, x, c, &e);
        async_close(&s->async);
        return;
    }
    memcpy(code, r.code.p, r.code.n);
    s->job.code = (struct str){ code, r.code.n };
    post(s);
}

/* application/x-www-form-urlencoded: the value of one parameter, which is not escaped. */
static struct str form_value(struct str form, struct str name)
{
    while (form.n) {
        ptrdiff_t end = str_find(form, STR("&"));
        struct str pair = { form.p, end < 0 ? form.n : (size_t)end };
        if (str_starts(pair, name) && pair.n > name.n && pair.p[name.n] == '=')
            return str_skip(pair, name.n + 1);
        form = str_skip(form, end < 0 ? form.n : (size_t)end + 1);
    }
    return STR_NONE;
}

void session_routes_logout_token(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct str token = form_value(x->req->body, STR("logout_token"));
    struct err e;

    c->is_login = true;
    if (io->o->login_flow && (!token.n || token.n > JWT_BYTES_MAX)) {
        err_param(&e, ERR_INVALID, "logout_token", "The body has no logout_token.");
        reply_error(x, c, &e, NULL);
        return;
    }
    struct session_call *s = new_call(io, x, c, LOGIN_LOGOUT_TOKEN);
    if (!s)
        return;
    async_keep_body(&s->async);
    s->job.token = token;
    if (reserve_line(s, &e))
        async_reply_error(&s->async, &e, NULL);
    else
        post(s);
}

/* ---- results */

static void reply_ended(struct session_call *s)
{
    struct buf b;
    struct jw w;

    set_cookie(s->async.io, s->async.x, s->async.call, COOKIE_SESSION, "", 0);
    add_field(s->async.call, STR("Cache-Control"), STR("no-store"));
    buf_init(&b, JSON_MAX);
    jw_init(&w, &b);
    jw_object(&w);
    jw_key(&w, "object"), jw_z(&w, "session");
    jw_member_bool(&w, "deleted", s->job.n_ended > 0);
    jw_key(&w, "logout_url"), jw_z(&w, *s->job.url ? s->job.url : NULL);
    jw_end_object(&w);
    reply_json(s->async.x, s->async.call, 200, &b);
    buf_clear(&b);
}

static void reply_failed(struct session_call *s)
{
    struct login_job *j = &s->job;
    struct err e = j->err;

    if (j->action == LOGIN_END_FLOW) {
        if (e.code == ERR_NOT_FOUND) /* a key of the issuer */
            e.code = ERR_AUTH;
        fail_page(s->async.io, s->async.x, s->async.call, &e);
        async_close(&s->async);
        return;
    }
    if (j->action == LOGIN_LOGOUT_TOKEN && (e.code == ERR_AUTH || e.code == ERR_NOT_FOUND))
        e.code = ERR_INVALID; /* status 400, as its specification requires */
    async_reply_error(&s->async, &e, NULL);
}

static void reply_done(struct session_call *s)
{
    struct io *io = s->async.io;
    struct http_exchange *x = s->async.x;
    struct route_call *c = s->async.call;

    switch (s->job.action) {
    case LOGIN_CREATE:
        set_cookie(io, x, c, COOKIE_SESSION, s->job.cookie, io->o->login_life_s);
        reply_session(io, x, c, &s->caller, s->job.expires_s);
        break;
    case LOGIN_END_FLOW:
        set_cookie(io, x, c, COOKIE_SESSION, s->job.cookie, io->o->login_life_s);
        reply_page(io, x, c, NULL);
        break;
    case LOGIN_BEGIN_FLOW:
        set_cookie(io, x, c, COOKIE_FLOW, s->job.secret, FLOW_S);
        add_field(c, STR("Cache-Control"), STR("no-store"));
        add_field(c, STR("Referrer-Policy"), STR("no-referrer"));
        add_field(c, STR("Location"), str_of(s->job.url));
        sink_respond(&x->sink, 302, "text/plain", STR(""), c->fields, c->n_fields);
        break;
    case LOGIN_END:
        reply_ended(s);
        break;
    case LOGIN_LOGOUT_TOKEN:
        add_field(c, STR("Cache-Control"), STR("no-store"));
        sink_respond(&x->sink, 200, "text/plain", STR(""), c->fields, c->n_fields);
        break;
    }
    async_close(&s->async);
}

void session_routes_message(struct io *io, struct msg *m)
{
    struct login_job *j = container_of(m, struct login_job, msg);
    struct session_call *s = container_of(j, struct session_call, job);

    if (j->action == LOGIN_END_FLOW && j->key)
        policy_key_caller(j->key, &s->caller);
    bool is_change = j->action == LOGIN_CREATE || j->action == LOGIN_END_FLOW || j->n_ended > 0;
    if (!j->err.code && s->is_reserved && is_change)
        record(s, &s->caller);
    if (s->async.is_open && j->err.code)
        reply_failed(s);
    else if (s->async.is_open)
        reply_done(s);
    async_unhold(&s->async);
}
