/* inflight.h: execution state of a generation request, from its body to the last byte of the
 * response.
 *
 *     PREPARING  body to tokens: on the io thread if the body is small, else on the worker thread
 *     LOADING    waits until its model is loaded (model_wait.h); then PREPARING continues
 *     RUNNING    one session per prompt, one response; events arrive from the engine
 *     ENDING     the response is complete or the client has left; sessions end asynchronously
 *
 * A request in flight outlives its HTTP exchange: if the client leaves, the sessions are cancelled
 * and the struct is kept until their last message, because the engine reads memory of the arena
 * until then. A background request detaches from its exchange when it starts to run (background.h).
 * The struct is in io->requests until the response has ended.
 *
 * Owner: its io thread. While async.is_at_worker the worker thread owns the arena and the fields
 * that PREPARING sets: the parsed request, `previous`, `entry`, `model`, `must_wait`, `prompts`,
 * `predicted`, `n_earlier_calls`, `compile_ns`, `inflight_prompts`, `cache_key`.
 *
 * PREPARING works in async.scratch. At its end, what generation needs is copied to async.arena
 * (request_keep); scratch and body are freed, so that a running request holds little memory. */
#pragma once

#include "api/common/response.h"
#include "generate/session.h"
#include "serve/async.h"
#include "serve/responses/stored_response.h"
#include "generate/prompt.h"
#include "serve/request_guard.h"
#include "serve/slots.h"

struct inflight_prompt { /* one prompt of a request and its session */
    struct inflight *inflight;
    int index;
    struct session *session; /* NULL before the session is opened and after it has ended */
    const struct gen_script *script;
    struct choice_constraints *constraints; /* NULL: the request has no constraint */
    int n_ends_counted;                     /* choices counted in io.constraint_ends */
    struct slot_lease slot;
    /* The prompt is echoed token by token, with text and probability. */
    bool is_echoing;
    struct detok echo;
    /* part of the client's prompt text that was not echoed yet; .p NULL if the prompt was given as
     * tokens */
    struct str echo_text_left;
};

struct inflight {
    /* Exchange, arena, deadline and job; OPEN: the response has not ended. The arena contains this
     * struct. Until the end of PREPARING, `async.body` contains the parsed strings. One reference
     * is held while n_refs > 0. */
    struct async async;
    struct io *io; /* equals async.io */
    const struct route *route;
    bool is_accepted;
    bool has_audit_room;               /* audit_reserve has returned true */
    struct audit_record *audit_record; /* set while RUNNING and ENDING if there is an audit log */
    /* PREPARING: the step that async.ops->run executes */
    int (*prepare_step)(struct inflight *r, struct err *e);
    struct request request;
    struct registry_entry *entry; /* model that the request names: a reference, set in PREPARING */
    struct model *model;          /* equals async.model; set in PREPARING when it is loaded */
    bool must_wait;               /* PREPARING: LOADING is the next state */
    void (*on_model_loaded)(struct inflight *r); /* LOADING: called when the model was loaded */
    struct loop_timer load_limit;
    /* set while the request waits for room in the queue of the audit log; see audit_wait.h */
    void (*on_audit_room)(struct inflight *r);
    struct list_link in_audit_waiting;
    /* Background request: set while RUNNING; async.x is NULL, the request continues without it. */
    struct background *background;
    struct response
        *response; /* NULL before RUNNING, after the end, and after the client has left */
    struct prompt *prompts;
    const int32_t *predicted; /* tokens of the client's predicted output */
    int n_predicted;
    int n_earlier_calls; /* tool calls in the conversation */
    uint64_t compile_ns; /* compilation of the constraint; 0: the request has none */
    int n_unmet;         /* choices that ended because the constraint was not met */
    struct inflight_prompt *inflight_prompts;
    struct str cache_key; /* .n 0: the response is not cached */
    /* cached response that is replayed; a reference; NULL: the response is generated */
    const struct cached_response *cached_response;
    struct response_cache_record cache_record;
    /* stored response that this request continues; a reference; NULL: none */
    const struct stored_response *previous;
    struct response_cache_end response_cache_end; /* finish NONE: not finished by itself */
    struct rate_limit limits;
    struct request_guard guard;
    bool is_computed; /* the engine has begun to process a prompt */
    int n_refs;       /* running sessions, plus one per function that needs the struct */
    struct err err;   /* first error */
    struct loop_timer ping;
    uint64_t began_ns, first_token_ns, last_write_ns;
    uint64_t *last_token_ns;     /* per choice */
    struct response_times times; /* measured by the engine */
    int n_prompt, n_cached, n_completion;
    int n_accepted; /* generated tokens that equal the client's prediction */
    char request_id[REQUEST_ID_MAX + 1];
    struct caller caller;
};

static inline struct inflight *inflight_of(struct async *a)
{
    return container_of(a, struct inflight, async);
}

/* Creates the struct, adds it to io->requests with one reference and sets its deadline. Returns
 * NULL if memory is short; the error was sent to the client. */
struct inflight *inflight_new(struct io *io, struct http_exchange *x, struct route_call *c);
/* Drops one reference; the last one ends the response and frees the struct. */
void inflight_release(struct inflight *r);

/* The response has not ended. */
static inline bool inflight_is_open(const struct inflight *r)
{
    return r->async.is_open;
}

/* Ends the response with an error at once; sessions end asynchronously. No effect after the end. */
void inflight_fail(struct inflight *r, const struct err *e);
void inflight_cancel_all(struct io *io, enum errcode why);
/* Ends the requests whose keys `s` does not contain any more, or does not allow to continue. */
void inflight_revoke(struct io *io, const struct policy_snapshot *s);
/* Finds an open request by its id. `whose`: only requests of this caller, NULL: of all callers.
 * NULL: not found. */
struct inflight *inflight_find(struct io *io, struct str id, const struct caller *whose);

/* Largest output of prompt i, in tokens per choice. */
int inflight_max_tokens(const struct inflight *r, int i);

/* Flushes the response after data was added to it. Pauses the sessions if the client reads
 * slowly. */
void inflight_flush(struct inflight *r);
void inflight_start_keepalive(struct inflight *r);

/* generate.c: callbacks of async for PREPARING. */
int generate_run_step(struct async *a);
void generate_step_done(struct async *a);

/* inflight_events.c: callbacks of a session; ctx is its struct inflight_prompt. */
extern const struct session_ops inflight_events_ops;
/* Called before generation: echoes the prompts, or the first token of each prompt that is echoed
 * token by token. */
void inflight_events_echo(struct inflight *r);
