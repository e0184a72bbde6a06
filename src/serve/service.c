/* service.c: io threads, and the checks before every handler: Host and Origin, route, API key,
 * deadline. Owner of struct service: the main thread. */
#include "serve/inflight.h"
#include "serve/responses/background.h"
#include "serve/api_keys.h"
#include "serve/audit_routes.h"
#include "serve/audit_wait.h"
#include "serve/limits.h"
#include "serve/object_routes.h"
#include "serve/key_wait.h"
#include "serve/session_routes.h"
#include "serve/usage_list.h"
#include "serve/model_wait.h"
#include "serve/responses/subscriber.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "http/tls.h"
#include "os/clock.h"
#include "os/thread.h"
#include "generate/session.h"

#include <stdatomic.h>
#include <stdio.h>

enum {
    THREADS_MAX = 64,
    TIMEOUT_MAX_MS = 86400000,
    SMALL_BODY = 1024 * 1024,
    FINAL_ERRORS_MS = 1000
};

struct service {
    struct serve_options o;
    struct origin_policy origins;
    struct policy_snapshot *policy; /* the first; a reference while the service is opened */
    struct io *ios[THREADS_MAX];
    int n;
    struct msg drain[THREADS_MAX];
};

/* ---- before the handlers */

static const char id_characters[] =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-._";

static bool is_id(struct str s)
{
    if (!s.n || s.n > REQUEST_ID_MAX)
        return false;
    for (size_t i = 0; i < s.n; i++)
        if (!memchr(id_characters, s.p[i], sizeof(id_characters) - 1))
            return false;
    return true;
}

/* Uses the client's x-request-id if it is valid, so that the client can cancel the request before
 * it receives a response; otherwise generates an id. */
static void init_call(struct io *io, const struct http_exchange *x, struct route_call *c)
{
    struct str own = http_field_get(x->req, "x-request-id");

    c->io = io;
    if (is_id(own))
        memcpy(c->request_id, own.p, own.n);
    else
        rng_hex((char *)memcpy(c->request_id, "req_", 4) + 4);
    c->fields[c->n_fields++] = (struct http_field){ STR("x-request-id"), str_of(c->request_id) };
}

static void add_cors_fields(struct route_call *c, struct str origin)
{
    c->fields[c->n_fields++] = (struct http_field){ STR("Access-Control-Allow-Origin"), origin };
    c->fields[c->n_fields++] =
        (struct http_field){ STR("Access-Control-Expose-Headers"), STR("*") };
    c->fields[c->n_fields++] = (struct http_field){ STR("Vary"), STR("Origin") };
}

void route_call_add_request_id(struct route_call *c)
{
    CHECK(c->n_fields < ROUTE_CALL_FIELDS_MAX);
    c->fields[c->n_fields++] = (struct http_field){ STR("request-id"), str_of(c->request_id) };
}

static bool is_preflight(const struct http_request *q)
{
    return str_is(q->method, "OPTIONS") && http_field_get(q, "access-control-request-method").p;
}

/* Preflight requests of allowed origins are handled before the key is checked, because browsers
 * send them without a key. */
static void reply_preflight(struct http_exchange *x, struct route_call *c)
{
    struct str wanted = http_field_get(x->req, "access-control-request-headers");

    c->fields[c->n_fields++] = (struct http_field){ STR("Access-Control-Allow-Methods"),
        STR("GET, POST, PUT, DELETE, OPTIONS") };
    c->fields[c->n_fields++] = (struct http_field){ STR("Access-Control-Allow-Headers"),
        wanted.n ? wanted : STR("Authorization, Content-Type, X-Api-Key") };
    c->fields[c->n_fields++] = (struct http_field){ STR("Access-Control-Max-Age"), STR("86400") };
    sink_respond(&x->sink, 204, "text/plain", STR(""), c->fields, c->n_fields);
}

static void release_key(void *arg)
{
    policy_key_unref(arg);
}

/* Keeps a reference to the key until the exchange ends. */
static int hold_key(struct http_exchange *x, const struct policy_key *take, struct err *e)
{
    if (!arena_cleanup(x->arena, release_key, (void *)(uintptr_t)take))
        return 0;
    policy_key_unref(take);
    return err_set(e, ERR_MEMORY, "no memory for the request");
}

/* The key of a secret; a reference. */
static const struct policy_key *find_by_secret(
    struct io *io, struct route_call *c, struct str secret, struct err *e)
{
    uint8_t digest[POLICY_DIGEST_BYTES];

    policy_digest(digest, secret);
    const struct policy_key *key = policy_snapshot_find(io->policy, digest);
    if (!key && io->tokens && jwt_has_form(secret))
        return policy_key_ref(key_wait_find(io, c, secret, e));
    if (!(key && key->is_static) && policy_is_stale(io->o->policy)) {
        err_set(e, ERR_UNAVAILABLE, "The storage of the API keys does not respond.");
        return NULL;
    }
    if (!key)
        err_set(e, ERR_AUTH, "Incorrect API key provided.");
    return policy_key_ref(key);
}

/* The key of the session cookie; a reference. NULL without `e`: there is no login. */
static const struct policy_key *find_by_cookie(
    struct io *io, struct http_exchange *x, struct route_call *c, struct err *e)
{
    struct str cookie = session_routes_cookie(io, x, c);
    struct login_found f;

    if (!cookie.n || !logins_find(io->o->logins, cookie, clock_wall_s(), &f))
        return NULL;
    c->has_login = true;
    c->login_expires_s = f.expires_s;
    if (f.is_user) {
        const struct policy_key *user =
            io->tokens ? token_keys_of_login(io->tokens, f.digest, f.key, e) : NULL;
        policy_key_unref(f.key);
        return policy_key_ref(user);
    }
    const struct policy_key *key = policy_snapshot_find(io->policy, f.key_digest);
    if (!(key && key->is_static) && policy_is_stale(io->o->policy)) {
        err_set(e, ERR_UNAVAILABLE, "The storage of the API keys does not respond.");
        return NULL;
    }
    if (!key)
        err_set(e, ERR_AUTH, "The API key of this session was deleted.");
    return policy_key_ref(key);
}

/* Sets the caller, and a reference to its key until the exchange ends. A key in a field precedes
 * the session cookie. */
static int find_key(struct io *io, struct http_exchange *x, struct route_call *c, struct err *e)
{
    struct str secret = keys_from_fields(
        http_field_get(x->req, "authorization"), http_field_get(x->req, "x-api-key"));

    err_set(e, ERR_AUTH,
        "You did not provide an API key. Send it as `Authorization: Bearer "
        "KEY`.");
    const struct policy_key *key =
        secret.n ? find_by_secret(io, c, secret, e) : find_by_cookie(io, x, c, e);
    if (!key || hold_key(x, key, e))
        return -1;
    c->key = key;
    policy_key_caller(key, &c->caller);
    if (key->is_static) /* the weight may have been changed */
        keys_at(io->o->keys, key->owner - 1, &c->caller);
    return 0;
}

int service_find_caller(struct io *io, struct http_exchange *x, struct route_call *c, struct err *e)
{
    if (find_key(io, x, c, e))
        return -1;
    if (policy_key_is_expired(c->key, clock_wall_s()))
        return err_set(e, ERR_AUTH, "This API key has expired.");
    if (!policy_key_allows_address(c->key, x->req->peer))
        return err_set(e, ERR_FORBIDDEN, "This key may not be used from the address " STR_FMT ".",
            STR_ARG(x->req->peer));
    return 0;
}

int service_check_caller(
    struct io *io, struct http_exchange *x, struct route_call *c, struct err *e)
{
    unsigned scope = c->route->scope;

    c->caller.scopes = SCOPE_READ | SCOPE_GENERATE | (c->is_local ? SCOPE_ADMIN : 0);
    c->caller.max_priority = INT32_MAX; /* without keys there is one tenant */
    if (!io->origins.needs_key || scope == SCOPE_NONE)
        return 0;
    if (service_find_caller(io, x, c, e))
        return -1;
    if (scope != SCOPE_ANY && (c->caller.scopes & scope) != scope)
        return err_set(e, ERR_FORBIDDEN, "This key may not use %s.", c->route->path);
    return 0;
}

/* Deadline of the response: the server's limit for the route, or the client's limit if that is
 * shorter. */
static int read_deadline(
    struct io *io, struct http_exchange *x, struct route_call *c, struct err *e)
{
    struct str wish = http_field_get(x->req, "x-request-timeout-ms");
    uint64_t ms = UINT64_MAX, limit = io->o->limit_ms[c->route->limit];

    if (wish.p && (!str_to_u64(wish, &ms) || ms < 1 || ms > TIMEOUT_MAX_MS))
        return err_param(e, ERR_RANGE, "x-request-timeout-ms",
            "x-request-timeout-ms must be a whole number of milliseconds, 1 to %d.",
            TIMEOUT_MAX_MS);
    ms = limit ? MIN(ms, limit) : ms;
    c->deadline_ns = ms == UINT64_MAX ? ms : x->started_ns + ms * NS_PER_MS;
    return 0;
}

static void find_route(struct http_exchange *x, struct route_call *c)
{
    const struct http_request *q = x->req;

    c->route = route_find(q->method, q->path, &c->route_near);
    const struct route *nearest = c->route ? c->route : c->route_near;
    if (route_errors(nearest, q->path) == ERROR_ANTHROPIC)
        route_call_add_request_id(c);
}

static int check_route(struct http_exchange *x, struct route_call *c, struct err *e)
{
    const struct http_request *q = x->req;
    int n = (int)MIN(q->path.n, (size_t)120);

    if (c->route)
        return 0;
    if (!c->route_near)
        return err_set(e, ERR_NOT_FOUND, "No %.*s", n, q->path.p);
    c->fields[c->n_fields++] =
        (struct http_field){ STR("Allow"), route_methods(q->path, c->allow) };
    return err_set(e, ERR_METHOD, "%.*s does not accept " STR_FMT "; it accepts " STR_FMT ".", n,
        q->path.p, STR_ARG(q->method), STR_ARG(c->fields[c->n_fields - 1].value));
}

/* Only routes with a time limit accept large bodies. A body that can never get the memory is
 * rejected by its length. */
static int64_t max_body_of(const struct io *io, const struct route *r)
{
    int64_t max = r->limit ? io->o->max_body : MIN(io->o->max_body, (int64_t)SMALL_BODY);

    if (!r->has_body)
        return 0;
    return io->o->http.bodies ? MIN(max, (int64_t)budget_charge_max(io->o->http.bodies)) : max;
}

static int check_origin(struct io *io, struct http_exchange *x, struct route_call *c,
    struct origin_verdict *out, struct err *e)
{
    const struct route *nearest = c->route ? c->route : c->route_near;

    if (origin_check(&io->origins, x->req, nearest && nearest->scope == SCOPE_ADMIN, out, e))
        return -1;
    if (out->allow_origin.p)
        add_cors_fields(c, out->allow_origin);
    return 0;
}

static int find_client(struct io *io, struct http_exchange *x, struct err *e)
{
    struct str client;

    if (origin_client(&io->origins, x->req, &client, e))
        return -1;
    http_set_peer(x, client);
    return 0;
}

static int64_t on_head(void *ctx, struct http_exchange *x)
{
    struct io *io = ctx;
    struct route_call *c = arena_zalloc(x->arena, 1, sizeof(*c));
    struct origin_verdict verdict;
    struct err e;

    if (!c) {
        err_set(&e, ERR_MEMORY, "no memory for the request");
        status_reply(&x->sink, ERROR_PROBLEM, &e, NULL, NULL, 0);
        return -1;
    }
    init_call(io, x, c);
    find_route(x, c);
    if (find_client(io, x, &e) || check_origin(io, x, c, &verdict, &e)) {
        reply_error(x, c, &e, NULL);
        return -1;
    }
    if (verdict.allow_origin.p && is_preflight(x->req)) {
        reply_preflight(x, c);
        return -1;
    }
    c->is_local = verdict.is_local;
    c->allows_cookie = verdict.allows_cookie;
    if (check_route(x, c, &e) || (service_check_caller(io, x, c, &e) && !c->waits_for_keys) ||
        read_deadline(io, x, c, &e)) {
        reply_error(x, c, &e, NULL);
        return -1;
    }
    x->user = c; /* until on_request */
    x->owner = c->caller.number;
    return max_body_of(io, c->route);
}

static enum errcode code_of_refusal(int status)
{
    switch (status) {
    case 408:
        return ERR_LATE;
    case 413:
        return ERR_TOO_LARGE;
    case 429:
        return ERR_RATE;
    case 503:
        return ERR_OVERLOADED;
    default:
        return ERR_INVALID;
    }
}

/* The http layer rejected the body: too large, malformed, late, or too many bodies. The error is
 * sent in the format of the route. */
static void on_reject(void *ctx, struct http_exchange *x, int status, const char *why)
{
    struct route_call *c = x->user;
    struct err e;

    if (!c || status == 431)
        return; /* 431: trailers that are too large, which no dialect has a code for */
    err_set(&e, code_of_refusal(status), "The request was rejected: %s.", why);
    reply_error(x, c, &e, NULL);
}

static void on_request(void *ctx, struct http_exchange *x)
{
    struct route_call *c = x->user;

    x->user = NULL; /* NULL or a struct async from here on */
    if (c->waits_for_keys)
        key_wait_begin(ctx, x, c);
    else
        c->route->fn(ctx, x, c);
}

static void on_gone(void *ctx, struct http_exchange *x)
{
    if (x->user)
        async_client_left(x->user);
}

static void on_drained(void *ctx, struct http_exchange *x)
{
    if (x->user)
        async_drained(x->user);
}

/* ---- threads */

/* Requests can outlive their exchanges: engines and the worker thread still hold them. */
static bool is_idle(const struct io *io)
{
    return !io->n_held;
}

static void stop_if_idle(struct io *io)
{
    if (!io->is_draining || io->is_closing || !is_idle(io) || http_server_stats(io->http)->open)
        return;
    loop_timer_stop(io->loop, &io->drain_limit);
    loop_stop(io->loop);
}

/* All exchanges have ended or were aborted at the limit. Background requests may run until
 * drain_limit; engines may still work for clients that left. */
static void on_http_drained(void *arg)
{
    stop_if_idle(arg);
}

/* Ends all requests with an error. The http server has FINAL_ERRORS_MS more to send the errors. */
static void on_drain_limit(struct loop_timer *t)
{
    struct io *io = container_of(t, struct io, drain_limit);

    inflight_cancel_all(io, ERR_DRAINING);
    stop_if_idle(io);
}

static void begin_drain(struct io *io)
{
    io->is_draining = true;
    cancel_drain(io);
    io->drain_limit.fn = on_drain_limit;
    loop_timer_set(io->loop, &io->drain_limit, clock_ns() + io->o->drain_ms * 1000000ull);
    http_server_drain(io->http, io->o->drain_ms + FINAL_ERRORS_MS, on_http_drained, io);
}

/* A new version of the policy, from the policy thread. */
struct policy_message {
    struct msg msg;
    struct policy_snapshot *snapshot; /* a reference */
};

/* Once a key is required, it remains so until the server is restarted: the deletion of the last key
 * does not open the server. */
static void apply_policy(struct io *io, struct policy_snapshot *take)
{
    policy_snapshot_unref(io->policy);
    io->policy = take;
    if (io->tokens)
        token_keys_set_roles(io->tokens, policy_snapshot_roles(take));
    if (io->o->needs_key_once_set && policy_snapshot_count(take))
        io->origins.needs_key = true;
}

static void on_policy_message(struct io *io, struct msg *m)
{
    struct policy_message *p = container_of(m, struct policy_message, msg);

    apply_policy(io, p->snapshot);
    mem_free(p);
    if (io->is_closing)
        return;
    inflight_revoke(io, io->policy);
    subscriber_revoke(io, io->policy);
    stop_if_idle(io);
}

struct tls_message {
    struct msg msg;
    struct tls *tls; /* a reference */
};

static void on_tls_message(struct io *io, struct msg *m)
{
    struct tls_message *t = container_of(m, struct tls_message, msg);

    if (io->is_closing)
        tls_close(t->tls); /* the server is closed */
    else
        http_server_set_tls(io->http, t->tls);
    mem_free(t);
}

int service_reload_tls(struct service *s, struct err *e)
{
    const struct http_options *h = &s->o.http;
    struct tls *tls;

    if (tls_open(&tls, &(struct tls_files){ h->tls_cert, h->tls_key, h->tls_client_ca }, e))
        return -1;
    for (int i = 0; i < s->n; i++) {
        struct tls_message *m = xmalloc(sizeof(*m));
        m->msg.kind = MSG_TLS;
        m->tls = tls_ref(tls);
        mailbox_post(loop_mailbox(s->ios[i]->loop), &m->msg);
    }
    log_info("serve", "tls_reloaded", "certificates=%d", tls_count(tls));
    tls_close(tls);
    return 0;
}

static void on_message(void *ctx, struct msg *m)
{
    struct io *io = ctx;

    switch (m->kind) {
    case MSG_DRAIN:
        begin_drain(io);
        return;
    case MSG_CANCEL:
        cancel_message(io, m);
        return;
    case MSG_INVARIANTS:
        health_invariants_message(m);
        return;
    case MSG_LOADED:
        model_wait_message(io);
        return;
    case MSG_RESPONSE_APPENDED:
        subscriber_message(io);
        return;
    case MSG_RESPONSE_CANCELLED:
        background_message(io);
        return;
    case MSG_POLICY:
        on_policy_message(io, m);
        return;
    case MSG_ISSUER_KEYS:
        key_wait_message(io, m);
        break;
    case MSG_POLICY_CHANGED:
        api_keys_message(io, m);
        break;
    case MSG_TLS:
        on_tls_message(io, m);
        break;
    case MSG_AUDIT_LINES:
        audit_routes_message(m);
        break;
    case MSG_AUDIT_ROOM:
        audit_wait_message(io);
        break;
    case MSG_LIMITS_CHANGED:
        limits_message(io, m);
        break;
    case MSG_OBJECT_CHANGED:
        object_change_message(io, m);
        break;
    case MSG_USAGE:
        usage_list_message(io, m);
        break;
    case MSG_LOGIN:
        session_routes_message(io, m);
        break;
    case MSG_LIMITS:
        rate_limit_message(io);
        break;
    case WORKER_DONE:
        worker_done(io->worker, m);
        break;
    default:
        session_event(container_of(m, struct gen_event, msg));
    }
    stop_if_idle(io);
}

static void *io_run(void *arg)
{
    struct io *io = arg;

    loop_run(io->loop);
    /* The worker thread reads models, which are closed after all io threads have ended. */
    worker_close(io->worker);
    io->worker = NULL;
    return NULL;
}

static void io_close(struct io *io)
{
    if (!io)
        return;
    CHECK(is_idle(io));
    io->is_closing = true;
    if (io->http)
        http_server_close(io->http);
    worker_close(io->worker);
    if (io->loop)
        loop_close(io->loop); /* handles or frees the last messages */
    policy_snapshot_unref(io->policy);
    token_keys_free(io->tokens);
    mem_free(io);
}

static int io_open(struct io **out, struct service *s, int port, struct err *e)
{
    struct io *io = xcalloc(1, sizeof(*io));
    struct http_options http = s->o.http;
    struct http_app app = { io, on_head, on_reject, on_request, on_gone, on_drained };

    io->service = s;
    io->index = s->n - 1;
    io->o = &s->o;
    io->origins = s->origins;
    *out = io;
    io->tokens = s->o.oidc ? token_keys_new(s->o.token_rules) : NULL;
    apply_policy(io, policy_snapshot_ref(s->policy));
    if (port >= 0)
        http.port = (uint16_t)port;
    http.port_use = s->o.n_threads < 2 ? PORT_OWN : port < 0 ? PORT_SHARE : PORT_JOIN;
    if (loop_open(&io->loop, e))
        return -1;
    rate_limit_io_init(io);
    loop_on_message(io->loop, on_message, io);
    if (worker_open(&io->worker, loop_mailbox(io->loop), e))
        return -1;
    return http_server_open(&io->http, io->loop, &http, &app, e);
}

static void on_model_change(void *arg)
{
    struct service *s = arg;

    for (int i = 0; i < s->n; i++)
        model_wait_notify(s->ios[i]);
}

/* Loader thread: compiled constraints refer to the vocabulary of the model. */
static void on_model_close(void *arg, const struct model *m)
{
    struct service *s = arg;

    if (s->o.compile_cache && m->vocab_tables)
        compile_cache_drop(s->o.compile_cache, m->vocab_tables);
}

static void on_audit_room(void *arg)
{
    struct service *s = arg;

    for (int i = 0; i < s->n; i++)
        audit_wait_notify(s->ios[i]);
}

/* Policy thread. */
static void on_policy_change(void *arg, struct policy_snapshot *snapshot)
{
    struct service *s = arg;

    for (int i = 0; i < s->n; i++) {
        struct policy_message *m = xmalloc(sizeof(*m));
        m->msg.kind = MSG_POLICY;
        m->snapshot = policy_snapshot_ref(snapshot);
        mailbox_post(loop_mailbox(s->ios[i]->loop), &m->msg);
    }
}

/* Oidc thread. */
static void on_issuer_keys(void *arg, const struct oidc_result *r)
{
    struct service *s = arg;

    for (int i = 0; i < s->n; i++)
        key_wait_publish(s->ios[i], r);
    if (s->o.login_flow)
        logins_publish(s->o.logins, r);
}

/* The threads that send messages to the io threads. */
static int start_policy(struct service *s, struct err *e)
{
    if ((s->o.policy && policy_start(s->o.policy, on_policy_change, s, e)) ||
        (s->o.logins && logins_start(s->o.logins, e)))
        return -1;
    return s->o.oidc ? oidc_start(s->o.oidc, on_issuer_keys, s, e) : 0;
}

static int first_policy(struct service *s, struct err *e)
{
    if (!s->o.policy)
        return policy_snapshot_of_keys(&s->policy, s->o.keys, e);
    s->policy = policy_first(s->o.policy);
    return 0;
}

int service_open(struct service **out, const struct serve_options *o, struct err *e)
{
    struct service *s = xcalloc(1, sizeof(*s));

    s->o = *o;
    struct origin_settings settings = { o->http.host, o->hosts, o->cors_origin, o->needs_key,
        o->proxies };
    if (origin_policy_init(&s->origins, &settings, e) || first_policy(s, e))
        goto fail;
    for (int i = 0; i < MIN(o->n_threads, THREADS_MAX); i++) {
        /* The first thread may listen on a port that the system chose; the others use the same
         * port. */
        int port = i ? http_server_port(s->ios[0]->http) : -1;
        s->n++;
        if (io_open(&s->ios[i], s, port, e))
            goto fail;
    }
    for (int i = 0; i < s->n; i++) {
        if (thread_start(&s->ios[i]->thread, "io", io_run, s->ios[i], e)) {
            service_drain(s);
            goto fail;
        }
        s->ios[i]->has_thread = true;
    }
    if (start_policy(s, e)) {
        service_drain(s);
        goto fail;
    }
    policy_snapshot_unref(s->policy);
    s->policy = NULL;
    if (o->audit)
        audit_watch(o->audit, on_audit_room, s);
    registry_watch(o->registry, &(struct registry_watch){ on_model_change, on_model_close, s });
    on_model_change(s); /* model changes since the io threads were started */
    *out = s;
    return 0;

fail:
    service_close(s);
    return -1;
}

struct io *service_io(struct service *s, int i)
{
    return i >= 0 && i < s->n ? s->ios[i] : NULL;
}

uint16_t service_port(const struct service *s)
{
    return http_server_port(s->ios[0]->http);
}

void service_drain(struct service *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->ios[i]->has_thread) {
            s->drain[i].kind = MSG_DRAIN;
            mailbox_post(loop_mailbox(s->ios[i]->loop), &s->drain[i]);
        }
    for (int i = 0; i < s->n; i++)
        if (s->ios[i]->has_thread) {
            pthread_join(s->ios[i]->thread, NULL);
            s->ios[i]->has_thread = false;
        }
}

void service_close(struct service *s)
{
    if (!s)
        return;
    if (s->o.audit)
        audit_watch(s->o.audit, NULL, NULL);
    for (int i = 0; i < s->n; i++)
        io_close(s->ios[i]);
    policy_snapshot_unref(s->policy);
    mem_free(s);
}

/* A scrape reads counters that other io threads write; no decision depends on them. */
int service_shards(struct service *s, struct metrics **out, int max)
{
    int n = MIN(s->n, max);

    for (int i = 0; i < n; i++) {
        struct io *io = s->ios[i];
        struct http_stats h;
        http_server_stats_read(io->http, &h);
        metric_set(&io->metrics, METRIC_http_requests_total, h.requests);
        metric_set(&io->metrics, METRIC_http_bad_requests_total, h.bad_requests);
        metric_set(&io->metrics, METRIC_http_gone_total, h.gone);
        metric_set(&io->metrics, METRIC_http_connections_total, h.accepted);
        metric_set(&io->metrics, METRIC_http_connections_open, h.open);
        out[i] = &io->metrics;
    }
    return n;
}
