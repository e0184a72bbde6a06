/* request.h: a generation request, from its body to the last byte of its answer.
 *
 *     PREPARING  the body becomes tokens: here when it is small, at the clerk when it is large
 *     LOADING    its model is not there yet (loading.h); then PREPARING goes on
 *     RUNNING    a session per prompt, one answer; events come from the engine
 *     ENDING     the client has its answer, or has left; sessions end behind
 *
 * It outlives its exchange: when the client leaves, the sessions are cancelled and the request
 * waits for their last message, so that the engine never reads memory that is gone. One that is
 * made in the background lets its client go when it begins to run (background.h). It is in
 * io->requests from its first moment to its last.
 *
 * Owner: its io thread. While is_at_clerk the clerk has the arena and what PREPARING fills in:
 * `ask`, `before`, `model`, `loading`, `prompts`, `predicted`, `legs`, `exact_key`, `prepared`; the
 * io thread everything else. */
#pragma once

#include "api/common/answer.h"
#include "generate/session.h"
#include "serve/io.h"
#include "serve/responses/kept.h"
#include "generate/prompt.h"
#include "serve/slots.h"

struct leg { /* one prompt of a request */
    struct request *request;
    int index;
    struct session *session; /* NULL before it began and after it ended */
    const struct gen_script *script;
    struct slot_hold slot;
    /* A prompt whose tokens come back one by one, each with its text and probability. */
    bool is_echoing;
    struct detok echo;
    struct str echo_left; /* of the text that was written; .p NULL when it came as tokens */
};

struct request {
    struct pending pending;       /* what x->user points to */
    struct request *next, **prev; /* io->requests */
    struct io *io;
    struct http_exchange *x; /* NULL once it has ended or gone */
    struct call *call;       /* in x's arena: as long as x */
    const struct route *route;
    struct arena *arena; /* holds the request */
    struct clerk_job job;
    bool is_at_clerk, is_accepted;
    struct http_body body; /* what went to the clerk; ask points into it */
    struct err prepared;   /* how PREPARING ended */
    struct ask ask;
    struct model *model;
    struct model *loading;             /* LOADING, or about to: what it waits for */
    void (*loaded)(struct request *r); /* LOADING: what comes then */
    struct loop_timer load_limit;
    struct background *background; /* ask.background, from RUNNING on: x is let go, it runs on */
    struct answer *answer;         /* NULL before RUNNING and once it has ended, or x has gone */
    struct prompt *prompts;
    const int32_t *predicted; /* the client's prediction */
    int n_predicted;
    struct leg *legs;
    struct str exact_key;                /* .n 0: its answer is neither remembered nor recalled */
    const struct exact_answer *recalled; /* a reference; NULL: it is computed */
    struct exact_record record;
    const struct kept *before;  /* a reference: the answer that this one goes on from; NULL */
    struct exact_end exact_end; /* finish NONE: it did not end by itself */
    int n_open;                 /* sessions that run, and one for whoever holds the request */
    struct err err;             /* the first thing that went wrong */
    struct loop_timer ping, deadline;
    uint64_t began_ns, deadline_ns, first_token_ns, last_write_ns;
    uint64_t *last_token_ns;   /* per choice */
    struct answer_times times; /* as the engine has them */
    int n_prompt, n_cached, n_completion;
    int n_accepted; /* tokens that came as predicted */
    char request_id[REQUEST_ID_MAX + 1];
    struct caller caller;
};

/* In the list, held once, with its deadline set. NULL: no memory, and the client knows. */
struct request *request_new(struct io *io, struct http_exchange *x, struct call *c);
/* Lets go of one hold; the last one ends the answer and frees the request. */
void request_release(struct request *r);

/* Its answer has not ended. */
static inline bool request_is_open(const struct request *r)
{
    return r->x || r->answer;
}

/* Tells the client at once; what runs winds down behind. Harmless when it has ended. */
void request_fail(struct request *r, const struct err *e);
void request_cancel_all(struct io *io, enum errcode why);
/* One that has not ended, with this id; caller: whose, or NULL for anybody's. NULL: none. */
struct request *request_find(struct io *io, struct str id, const struct caller *whose);

/* The deadline moves here, if it is earlier than the one there is. */
void request_set_deadline(struct request *r, uint64_t when_ns);

/* After the answer was given something: it leaves, and the sessions of a slow reader pause. */
void request_wrote(struct request *r);
void request_start_pings(struct request *r);

/* told.c: what a session of the request says goes to its answer; ctx is its leg. */
extern const struct session_ops told_ops;
/* Before anything is generated: the echo of whole prompts, or the first token of those that are
 * told by token. */
void told_echo(struct request *r);
