/* serve.h: the HTTP service: io threads, routes, handlers.
 *
 * Each io thread has its own event loop, HTTP server (SO_REUSEPORT), worker thread and shard of the
 * metrics. The io threads share the options, the registry and the keys. A request stays on the io
 * thread that read it.
 *
 * Owner: the main thread opens, drains and closes the service. */
#pragma once

#include "auth/oidc.h"
#include "policy/logins.h"
#include "policy/policy.h"
#include "policy/token_keys.h"
#include "constrain/compile_cache.h"
#include "http/server.h"
#include "limits/usage.h"
#include "generate/prompt.h"
#include "generate/response_cache.h"
#include "registry/registry.h"
#include "serve/metrics.h"
#include "serve/origin_policy.h"
#include "audit/audit.h"
#include "serve/responses/response_store.h"

enum auth_mode { AUTH_AUTO, AUTH_ALWAYS, AUTH_NEVER };

enum serve_limit { LIMIT_NONE, LIMIT_CHAT, LIMIT_COMPLETION, LIMIT_TOKENIZE, N_SERVE_LIMITS };

enum { REQUEST_BYTES_MAX = 512 * 1024 * 1024 }; /* memory of one request, without its body */

struct serve_options { /* borrowed for the life of the service */
    struct http_options http;
    int n_threads;
    int64_t max_body;
    /* Limits the memory of the requests in flight; http.bodies limits that of their bodies. The
     * owner is caller.number. NULL = no limit. */
    struct budget *request_memory;
    uint32_t ping_ms, drain_ms;
    uint32_t load_wait_ms;   /* longest wait for a model that is loading; 0 = reject at once */
    uint32_t demand_wait_ms; /* the same for a model that the request causes to be loaded */
    uint32_t limit_ms[N_SERVE_LIMITS]; /* longest duration of a response, else 504; 0 = no limit */
    const char *cors_origin;           /* origins that may use inference routes; may be NULL */
    const char *hosts;                 /* names of the server; may be NULL */
    const char *proxies;               /* networks of reverse proxies; may be NULL */
    const char *role;                  /* "unified", "prefill", "decode" */
    bool strip_billing;                /* see convo_drop_billing */
    unsigned reasoning_names;          /* see response_setup */
    size_t constraint_bytes_max;       /* limit of a schema or grammar; 0 = 16 KB */
    struct compile_cache *compile_cache; /* compiled constraints; NULL = none */
    enum tool_strictness tool_strictness;
    int default_max_tokens; /* 0 = up to the end of the context */
    /* cached prefixes are shared between all keys; else per key or cache group */
    bool share_prefixes;
    struct slots *slots;  /* NULL = none */
    const char *slot_dir; /* directory of saved slot files; NULL or "" = slots cannot be saved */
    int64_t slot_bytes;   /* limit for the slot files of one key together */
    struct registry *registry;
    struct response_cache *response_cache; /* NULL = none */
    struct response_store *response_store; /* NULL = none */
    struct keys *keys;                     /* an administrator may change their weights */
    struct limiter *limiter;               /* rate limits; NULL = none */
    struct usage *usage;                   /* NULL = none; started */
    bool pace;             /* a full window delays requests (rate_limit.h); else it refuses them */
    struct policy *policy; /* NULL = the keys of `keys` alone */
    struct oidc *oidc;     /* issuer of tokens; NULL = none */
    const struct token_rules *token_rules;      /* set if oidc is */
    struct logins *logins;                      /* sessions of browsers; NULL = none */
    const struct code_flow_options *login_flow; /* NULL = no login at the issuer */
    int64_t login_life_s;
    bool has_secure_cookies; /* browsers reach the server by https */
    bool needs_key;
    bool needs_key_once_set;         /* a key is required as soon as the policy has one */
    struct audit *audit;             /* NULL = none */
    struct audit_index *audit_index; /* NULL = none */
    struct live_fairness *fairness;  /* shared by all engines; NULL = cannot be changed */
};

/* Tenant number of the prefix cache entries that the caller shares; 0 = all callers. */
static inline uint64_t scope_tenant(const struct serve_options *o, const struct caller *c)
{
    return o->share_prefixes ? 0 : caller_cache_group(c);
}

struct service;

/* Starts the threads of o->policy, o->logins and o->oidc, which must be stopped before
 * service_close. */
int service_open(struct service **out, const struct serve_options *o, struct err *e);
uint16_t service_port(const struct service *s);

/* Reads the certificates of o->http again and uses them for new connections. Main thread; it waits
 * for the disk. The errors are those of tls_open; the old certificates then remain in use. */
int service_reload_tls(struct service *s, struct err *e) MUST_CHECK;

/* Stops accepting, lets running requests finish, cancels the rest after drain_ms, joins the
 * threads. Main thread. */
void service_drain(struct service *s);
void service_close(struct service *s);
