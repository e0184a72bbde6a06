/* io.h: internal interface of serve: the state of one io thread, its messages, and the functions
 * that the handlers of routes share.
 *
 * Owner of all structs here: their io thread, except where a comment states another thread. */
#pragma once

#include "base/list.h"
#include "api/models.h"
#include "api/common/dialect.h"
#include "serve/constraint_ends.h"
#include "serve/guard_counts.h"
#include "serve/query.h"
#include "serve/rate_limit.h"
#include "serve/routes.h"
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
    struct origin_policy origins;   /* needs_key: whether this thread requires an API key */
    struct policy_snapshot *policy; /* the newest that this thread received; a reference */
    struct loop *loop;
    struct http_server *http;
    struct metrics metrics;
    struct constraint_ends constraint_ends;
    struct guard_counts guard_counts;
    struct limit_wait limits;
    struct worker *worker;
    int index; /* index in the service */
    /* lists of requests that are answered later, of three kinds; see async.h */
    struct list requests;      /* struct async: generation requests whose response has not ended */
    struct list cancels;       /* cancellations that this thread received and that visit others */
    struct list subscribers;   /* exchanges that follow a background response */
    struct list audit_waiting; /* struct inflight, the oldest first: see audit_wait.h */
    struct list key_waits;     /* requests that wait for keys of the issuer; see key_wait.h */
    struct token_keys *tokens; /* callers with tokens; NULL = no issuer is configured */
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
    MSG_LIMITS_CHANGED,
    MSG_ISSUER_KEYS, /* struct issuer_keys_message */
    MSG_TLS,         /* struct tls_message */
    MSG_USAGE,
    MSG_OBJECT_CHANGED,
    MSG_LOGIN /* struct login_job */
};

/* engine_metrics.c: adds the metrics of all engines of the registry. */
void engine_metrics_copy(struct registry *p, struct metrics *m);
/* cancel.c: messages of DELETE /v1/requests/{id} from other io threads; ends the pending
 * cancellations of this thread when the service drains. */
void cancel_message(struct io *io, struct msg *m);
void cancel_drain(struct io *io);
/* health.c: result of one engine's invariant check. */
void health_invariants_message(struct msg *m);

/* models.c */
/* file name without the directory, which is not disclosed to clients */
const char *model_file_name(const char *path);
struct model_info model_info_of(const struct registry_view *v);
struct model_infos { /* infos[] is in an arena and refers to `models` */
    struct registry_list models;
    struct model_info *infos;
    size_t n;
};
/* The models that the key allows (NULL: all), in the order of the registry. After success the
 * caller clears out->models. */
int models_info(struct model_infos *out, const struct io *io, const struct policy_key *key,
    struct arena *a, struct err *e);

/* reply.c */
void reply_json(
    struct http_exchange *x, const struct route_call *c, int status, const struct buf *body);
/* Also writes the refusal to the audit log, unless the handler does (has_audit_line). */
void reply_error(struct http_exchange *x, const struct route_call *c, const struct err *e,
    const struct error_extra *extra);
/* Writes the refusal of a request to the audit log. No effect for routes that need no key,
 * except logins. */
void audit_refused_call(
    const struct http_exchange *x, const struct route_call *c, const struct err *e);
/* The model that a request names, if it is ready and the key (NULL: any) allows it; else NULL. The
 * caller owns a reference (model_release). Any thread. */
struct model *take_ready_model(
    const struct io *io, const struct policy_key *key, struct str name, struct err *e);
int model_check_allowed(
    const struct model_spec *m, const struct policy_key *key, struct err *e); /* ERR_FORBIDDEN */

/* service.c */
void route_call_add_request_id(struct route_call *c);                 /* for Anthropic's clients */
struct io *service_io(struct service *s, int i);                      /* NULL after the last */
int service_shards(struct service *s, struct metrics **out, int max); /* returns their number */
