/* serve.h: the HTTP service: routes, handlers, io threads.
 *
 * Every io thread has a loop, an HTTP server (SO_REUSEPORT) and a shard of the metrics of its own;
 * they share what never changes: the options, the pool, the keys. A request stays on the thread
 * that read it. */
#pragma once

#include "auth/keys.h"
#include "http/server.h"
#include "generate/exact.h"
#include "registry/pool.h"
#include "serve/metrics.h"
#include "store/audit.h"
#include "serve/responses/shelf.h"

enum auth_mode { AUTH_AUTO, AUTH_ALWAYS, AUTH_NEVER };

enum serve_limit { LIMIT_NONE, LIMIT_CHAT, LIMIT_COMPLETION, LIMIT_WORDS, N_SERVE_LIMITS };

struct serve_options { /* borrowed for the life of the service */
    struct http_options http;
    int n_threads;
    int64_t max_body;
    uint32_t ping_ms, drain_ms;
    uint32_t load_wait_ms;             /* for a model that is being loaded; 0 = told at once */
    uint32_t limit_ms[N_SERVE_LIMITS]; /* an answer takes at most so long, else 504; 0 = no limit */
    const char *cors_origin;           /* "" = no CORS fields */
    const char *role;                  /* "unified", "prefill", "decode" */
    bool strip_billing;                /* see convo_drop_billing */
    unsigned reasoning_names;          /* see answer_setup */
    int default_max_tokens;            /* 0 = to the end of the context */
    bool share_prefixes;  /* between all keys; else each finds what its own, or its group's, left */
    struct slots *slots;  /* NULL = none */
    const char *slot_dir; /* of their files; NULL or "" = they can not be saved */
    int64_t slot_bytes;   /* the most that the files of a key take together */
    struct pool *pool;
    struct exact *exact; /* answers that are remembered; NULL = none */
    struct shelf *shelf; /* answers that others go on from; NULL = none */
    struct keys *keys;   /* whose weights an administrator may change */
    bool needs_key;
    struct audit *audit;            /* NULL = none */
    struct live_fairness *fairness; /* of all engines; NULL: cannot be changed */
};

/* Whose prefixes these are, as a number. */
static inline uint64_t scope_tenant(const struct serve_options *o, const struct caller *c)
{
    return o->share_prefixes ? 0 : caller_circle(c);
}

struct service;

int service_open(struct service **out, const struct serve_options *o, struct err *e);
uint16_t service_port(const struct service *s);

/* Stops accepting, lets running requests finish, cancels the rest after drain_ms, joins the
 * threads. Main thread. */
void service_drain(struct service *s);
void service_close(struct service *s);

/* True when listening on `host` needs a key under AUTH_AUTO: it is not a loopback address. */
bool host_is_loopback(const char *host);
