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
 * The struct is in io->requests during its whole life.
 *
 * Owner: its io thread. While is_at_worker the worker thread owns the arena and the fields that
 * PREPARING sets: the parsed request, `previous`, `model`, `awaited_model`, `prompts`, `predicted`,
 * `inflight_prompts`, `cache_key`, `prepare_err`. */
#pragma once

#include "api/common/answer.h"
#include "generate/session.h"
#include "serve/io.h"
#include "serve/responses/kept.h"
#include "generate/prompt.h"
#include "serve/slots.h"

struct leg { /* one prompt of a request and its session */
    struct request *request;
    int index;
    struct session *session; /* NULL before the session is opened and after it has ended */
    const struct gen_script *script;
    struct slot_hold slot;
    /* The prompt is echoed token by token, with text and probability. */
    bool is_echoing;
    struct detok echo;
    /* part of the client's prompt text that was not echoed yet; .p NULL if the prompt was given as
     * tokens */
    struct str echo_left;
};

struct request {
    struct pending pending;       /* callbacks of the exchange; x->user points here */
    struct request *next, **prev; /* in io->requests */
    struct io *io;
    struct http_exchange *x; /* NULL after the response has ended or the client has left */
    struct call *call;       /* in the arena of x, valid as long as x */
    const struct route *route;
    struct arena *arena; /* contains this struct */
    struct clerk_job job;
    bool is_at_clerk, is_accepted;
    /* body that was taken from the exchange; the parsed request points into it */
    struct http_body body;
    struct err prepared; /* result of PREPARING */
    struct ask ask;
    struct model *model;
    struct model *loading;             /* LOADING: the model that the request waits for */
    void (*loaded)(struct request *r); /* LOADING: called when the model was loaded or failed */
    struct loop_timer load_limit;
    /* Background request: set while RUNNING; x is NULL, the request continues without it. */
    struct background *background;
    struct answer *answer; /* NULL before RUNNING, after the end, and after the client has left */
    struct prompt *prompts;
    const int32_t *predicted; /* tokens of the client's predicted output */
    int n_predicted;
    struct leg *legs;
    struct str exact_key; /* .n 0: the response is not cached */
    /* cached response that is replayed; a reference; NULL: the response is generated */
    const struct exact_answer *recalled;
    struct exact_record record;
    /* stored response that this request continues; a reference; NULL: none */
    const struct kept *before;
    struct exact_end exact_end; /* finish NONE: not finished by itself */
    int n_open;                 /* running sessions, plus one per function that needs the struct */
    struct err err;             /* first error */
    struct loop_timer ping, deadline;
    uint64_t began_ns, deadline_ns, first_token_ns, last_write_ns;
    uint64_t *last_token_ns;   /* per choice */
    struct answer_times times; /* measured by the engine */
    int n_prompt, n_cached, n_completion;
    int n_accepted; /* generated tokens that equal the client's prediction */
    char request_id[REQUEST_ID_MAX + 1];
    struct caller caller;
};

/* Creates the struct, adds it to io->requests with one reference and sets its deadline. Returns
 * NULL if memory is short; the error was sent to the client. */
struct request *request_new(struct io *io, struct http_exchange *x, struct call *c);
/* Drops one reference; the last one ends the response and frees the struct. */
void request_release(struct request *r);

/* The response has not ended. */
static inline bool request_is_open(const struct request *r)
{
    return r->x || r->answer;
}

/* Ends the response with an error at once; sessions end asynchronously. No effect after the end. */
void request_fail(struct request *r, const struct err *e);
void request_cancel_all(struct io *io, enum errcode why);
/* Finds an open request by its id. `whose`: only requests of this caller, NULL: of all callers.
 * NULL: not found. */
struct request *request_find(struct io *io, struct str id, const struct caller *whose);

/* Sets the deadline, if it is earlier than the current one. */
void request_set_deadline(struct request *r, uint64_t when_ns);

/* Flushes the response after data was added to it. Pauses the sessions if the client reads
 * slowly. */
void request_wrote(struct request *r);
void request_start_pings(struct request *r);

/* inflight_events.c: callbacks of a session; ctx is its struct inflight_prompt. */
extern const struct session_ops told_ops;
/* Called before generation: echoes the prompts, or the first token of each prompt that is echoed
 * token by token. */
void told_echo(struct request *r);
