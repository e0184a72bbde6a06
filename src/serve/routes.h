/* routes.h: the table of routes, a request on a route, and the handlers.
 *
 * A handler is called once the head of the request is complete and the caller is known to have the
 * route's scope; it replies at once, or later (async.h).
 * Owner: the table is constant; a call belongs to the io thread of its connection. */
#pragma once

#include "api/common/dialect.h"
#include "auth/keys.h"
#include "http/server.h"
#include "policy/policy.h"
#include "serve/serve.h"

struct io;
struct err;

enum { ROUTE_CALL_FIELDS_MAX = 24, REQUEST_ID_MAX = 64 };

struct route_call { /* one HTTP request on a known route; allocated in the exchange's arena */
    struct io *io;
    const struct route *route;
    /* if route is NULL: a route with the same path and another method */
    const struct route *route_near;
    struct caller caller;
    /* key of the caller, a reference until the exchange ends; NULL = anonymous */
    const struct policy_key *key;
    /* deadline of the response as far as the header fields set it; UINT64_MAX = none */
    uint64_t deadline_ns;
    struct http_field fields[ROUTE_CALL_FIELDS_MAX]; /* added to every response */
    int n_fields;
    bool is_local;      /* the origin allows administration without a key */
    bool allows_cookie; /* the origin allows the session cookie */
    bool is_login;      /* the route needs no key, and its refusal is in the audit log */
    bool has_login;     /* the caller is known by its session cookie */
    int64_t login_expires_s;
    /* The key of the caller's token is unknown, and is being fetched; at most once. */
    bool waits_for_keys, has_waited;
    bool has_audit_line;   /* the handler writes a line to the audit log, also for an error */
    struct str guardrails; /* hits, for the audit log (request_guard.h) */
    char request_id[REQUEST_ID_MAX + 1], allow[64], priority[12];
};

typedef void (*handler_fn)(struct io *io, struct http_exchange *x, struct route_call *c);

struct route {
    const char *method, *path; /* a path that ends in '*' matches by prefix */
    unsigned scope;            /* SCOPE_NONE: no key required; SCOPE_ANY: any valid one */
    bool has_body;
    enum error_form errors;
    handler_fn fn;
    enum serve_limit limit;        /* selects the server's limit for the duration of a response */
    const struct dialect *dialect; /* for generation and token counting; else NULL */
};

/* NULL: no such route; then *near is a route of that path with another method, or NULL. */
const struct route *route_find(struct str method, struct str path, const struct route **near);
/* Error format of a path: of the route, or of the dialect that has routes with the same first
 * segments if near is NULL. */
enum error_form route_errors(const struct route *near, struct str path);
/* "GET, HEAD, POST": the methods of all routes with this path. */
struct str route_methods(struct str path, char out[64]);
const struct route *route_at(size_t i); /* NULL at the end; for tests and docs */

/* handlers, by file */
void health_live(struct io *io, struct http_exchange *x, struct route_call *c);
void health_ready(struct io *io, struct http_exchange *x, struct route_call *c);
void health_status(struct io *io, struct http_exchange *x, struct route_call *c);
void health_metrics(struct io *io, struct http_exchange *x, struct route_call *c);
void health_root(struct io *io, struct http_exchange *x, struct route_call *c);
void health_invariants(struct io *io, struct http_exchange *x, struct route_call *c);
void models_all(struct io *io, struct http_exchange *x, struct route_call *c);
void models_single(struct io *io, struct http_exchange *x, struct route_call *c);
void generate_response(struct io *io, struct http_exchange *x, struct route_call *c);
void ollama_get_version(struct io *io, struct http_exchange *x, struct route_call *c);
void ollama_get_tags(struct io *io, struct http_exchange *x, struct route_call *c);
void ollama_get_ps(struct io *io, struct http_exchange *x, struct route_call *c);
void ollama_post_show(struct io *io, struct http_exchange *x, struct route_call *c);
void ollama_post_embed(struct io *io, struct http_exchange *x, struct route_call *c);
void ollama_post_pull(struct io *io, struct http_exchange *x, struct route_call *c);
void ollama_change(struct io *io, struct http_exchange *x, struct route_call *c);
void ollama_head_blob(struct io *io, struct http_exchange *x, struct route_call *c);
void props_show(struct io *io, struct http_exchange *x, struct route_call *c);
void props_health(struct io *io, struct http_exchange *x, struct route_call *c);
void tokenize_routes_tokenize(struct io *io, struct http_exchange *x, struct route_call *c);
void tokenize_routes_detokenize(struct io *io, struct http_exchange *x, struct route_call *c);
void tokenize_routes_apply_template(struct io *io, struct http_exchange *x, struct route_call *c);
void tokenize_routes_count_messages(struct io *io, struct http_exchange *x, struct route_call *c);
void tokenize_routes_count_chat(struct io *io, struct http_exchange *x, struct route_call *c);
void tokenize_routes_parse(struct io *io, struct http_exchange *x, struct route_call *c);
/* Lists a page of the input items of a stored response. Takes the reference. */
struct stored_response;
struct responses_page;
void tokenize_routes_list_input(struct io *io, struct http_exchange *x, struct route_call *c,
    const struct stored_response *take, const struct responses_page *page);

void grammar_check(struct io *io, struct http_exchange *x, struct route_call *c);
void slots_show(struct io *io, struct http_exchange *x, struct route_call *c);
void slots_post_action(struct io *io, struct http_exchange *x, struct route_call *c);
void tokenize_routes_count_responses(struct io *io, struct http_exchange *x, struct route_call *c);

/* responses.c */
void responses_show(struct io *io, struct http_exchange *x, struct route_call *c);
void responses_delete(struct io *io, struct http_exchange *x, struct route_call *c);
void responses_cancel(struct io *io, struct http_exchange *x, struct route_call *c);
void responses_compact(struct io *io, struct http_exchange *x, struct route_call *c);

/* fairness.c */
void fairness_show(struct io *io, struct http_exchange *x, struct route_call *c);
void fairness_change(struct io *io, struct http_exchange *x, struct route_call *c);
void admin_cache_show(struct io *io, struct http_exchange *x, struct route_call *c);
void admin_cache_flush(struct io *io, struct http_exchange *x, struct route_call *c);
void cancel_by_id(struct io *io, struct http_exchange *x, struct route_call *c);
