/* io.h: internal interface of serve: the state of one io thread, one call of a route, and the
 * handlers.
 *
 * Owner of all structs here: their io thread, except where a comment states another thread. */
#pragma once

#include "base/list.h"
#include "api/models.h"
#include "api/common/dialect.h"
#include "serve/constraint_ends.h"
#include "serve/query.h"
#include "serve/rate_limit.h"
#include "serve/serve.h"

#include <pthread.h>

struct async;
struct worker;

struct wakeup { /* coalesced wake-up message to an io thread; any thread may post it */
    struct msg msg;
    _Atomic bool is_posted;
};

struct io {
    struct service *service;
    const struct serve_options *o;
    struct origin_policy origins;   /* its needs_key: whether this thread requires an API key */
    struct policy_snapshot *policy; /* the newest that this thread received; a reference */
    struct loop *loop;
    struct http_server *http;
    struct metrics metrics;
    struct constraint_ends constraint_ends;
    struct limit_wait limits;
    struct worker *worker;
    int index; /* index in the service */
    /* lists of requests that are answered later, of three kinds; see async.h */
    struct list requests;      /* struct async: generation requests whose response has not ended */
    struct list cancels;       /* cancellations that this thread received and that visit others */
    struct list subscribers;   /* exchanges that follow a background response */
    struct list audit_waiting; /* struct inflight, the oldest first: see audit_wait.h */
    int n_held;                /* references that keep this thread running */
    /* events of background responses (background.h); the queue of the audit log has room */
    struct wakeup response_appended, response_cancelled, audit_room;
    pthread_t thread;
    bool has_thread, is_draining, is_closing;
    struct loop_timer drain_limit;
    struct msg loaded_msg; /* a model has changed its state; posted while is_loaded_posted */
    _Atomic bool is_loaded_posted;
};

/* Kinds of the messages between io threads. */
enum {
    MSG_DRAIN = 200,
    MSG_CANCEL,
    MSG_INVARIANTS,
    MSG_LOADED,
    MSG_RESPONSE_APPENDED,
    MSG_RESPONSE_CANCELLED,
    MSG_POLICY, /* struct policy_message */
    MSG_POLICY_CHANGED,
    MSG_AUDIT_ROOM,
    MSG_AUDIT_LINES, /* struct audit_query */
    MSG_LIMITS,      /* struct limit_wait */
    MSG_LIMITS_CHANGED
};
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
    bool has_audit_line; /* the handler writes a line to the audit log, also for an error */
    char request_id[REQUEST_ID_MAX + 1], allow[64], priority[12];
};

typedef void (*handler_fn)(struct io *io, struct http_exchange *x, struct route_call *c);

struct route {
    const char *method, *path; /* a path that ends in '*' matches by prefix */
    unsigned scope;            /* SCOPE_NONE: no key required */
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

/* engine_metrics.c: adds the metrics of all engines of the registry. */
void engine_metrics_copy(struct registry *p, struct metrics *m);

void admin_cache_show(struct io *io, struct http_exchange *x, struct route_call *c);
void admin_cache_flush(struct io *io, struct http_exchange *x, struct route_call *c);
void cancel_by_id(struct io *io, struct http_exchange *x, struct route_call *c);

/* cancel.c: messages of DELETE /v1/requests/{id} from other io threads; ends the pending
 * cancellations of this thread when the service drains. */
void cancel_message(struct io *io, struct msg *m);
void cancel_drain(struct io *io);
/* health.c: result of one engine's invariant check. */
void health_invariants_message(struct msg *m);

/* models.c */
/* file name without the directory, which is not disclosed to clients */
const char *model_file_name(const char *path);
struct model_info model_info_of(struct model *m);
/* The models that the key allows (NULL: all); returns their number. */
size_t models_info(
    struct io *io, const struct policy_key *key, struct model_info out[REGISTRY_MODELS_MAX]);

/* reply.c */
void reply_json(
    struct http_exchange *x, const struct route_call *c, int status, const struct buf *body);
/* Also writes the refusal to the audit log, unless the handler does (has_audit_line). */
void reply_error(struct http_exchange *x, const struct route_call *c, const struct err *e,
    const struct error_extra *extra);
/* Writes the refusal of a request to the audit log. No effect for routes that need no key. */
void audit_refused_call(
    const struct http_exchange *x, const struct route_call *c, const struct err *e);
/* The model that a request names, if it is ready and the key (NULL: any) allows it; else NULL. Any
 * thread. */
struct model *ready_model(
    const struct io *io, const struct policy_key *key, struct str name, struct err *e);
int model_check_allowed(
    const struct model *m, const struct policy_key *key, struct err *e); /* ERR_FORBIDDEN */
int model_check_ready(const struct model *m, struct err *e); /* ERR_NOT_READY; any thread */

/* service.c */
void route_call_add_request_id(
    struct route_call *c); /* adds `request-id`, which Anthropic's clients read */
struct io *service_io(struct service *s, int i); /* NULL after the last */
/* Shards of all io threads, for a scrape. Returns their number. */
int service_shards(struct service *s, struct metrics **out, int max);
