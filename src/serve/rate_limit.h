/* rate_limit.h: rate limits of generation requests: reserves the amounts of a request before its
 * sessions are opened, settles tokens while they arrive, and refunds the rest at the end.
 *
 *     rate_limit_open      finds the limits of the key, its tenant and the model
 *     rate_limit_reserve   granted, refused (ERR_RATE), or waiting: then `on_granted` is called
 *     rate_limit_count     each generated token; settles groups of tokens
 *     rate_limit_close     when the request is freed
 *
 * limits.when_full: with `refuse`, the prompt and the largest output are reserved as a whole. With
 * `pace`, the request waits until the windows have room for the prompt and a slice of output, and
 * its sessions return events to the engine as further tokens are granted (limits/pace.h), so that
 * the engine parks a choice without tokens. Budgets are reserved as a whole in both modes.
 *
 * Owner: the io thread. */
#pragma once

#include "limits/limiter.h"
#include "os/loop.h"
#include "serve/serve.h"

struct inflight;
struct io;

struct limit_wait { /* waiting requests of an io thread */
    struct limit_waker waker;
    struct msg wakeup;
    _Atomic bool is_posted;
    struct loop_timer timer; /* runs while n_waiting > 0 */
    int n_waiting;           /* requests in state LIMIT_WAITING or LIMIT_GRANTED */
};

struct rate_limit { /* reservations of one request; zeroed: none */
    struct limit_hold hold;
    int64_t max_output; /* tokens of each choice if the request sets no limit; 0 = no bound */
    int slice, group;   /* paced: events of a choice, and those returned together; 0: not paced */
    int n_unsettled;    /* output tokens */
    bool is_prompt_settled, is_waiting;
    void (*on_granted)(struct inflight *r); /* while waiting to start; NULL: waits for a slice */
    struct limit_refusal refusal;           /* reason of an ERR_RATE; max 0: there is none */
};

void rate_limit_io_init(struct io *io);
/* Handles MSG_LIMITS. */
void rate_limit_message(struct io *io);

/* ERR_MEMORY. */
int rate_limit_open(struct inflight *r, struct err *e) MUST_CHECK;
/* Adds the header fields of the limits to the response. 0: granted. 1: waiting; takes over the
 * caller's reference, which on_granted receives; if the request ends before, it is dropped. -1:
 * ERR_RATE. */
int rate_limit_reserve(
    struct inflight *r, void (*on_granted)(struct inflight *r), struct err *e) MUST_CHECK;
/* True: the request waited to start, and its reference has to be dropped by the caller. */
bool rate_limit_stop(struct inflight *r);
void rate_limit_started(struct inflight *r); /* the request was accepted */
void rate_limit_count(struct inflight *r);   /* one more output token */
void rate_limit_pace(struct inflight *r);    /* a session needs a group of events */
/* is_computed: the engine has processed the prompt, or begun to. */
void rate_limit_close(struct inflight *r, bool is_computed);

/* Limits that apply to the key: its own, else those of its roles, else those of the default entry.
 * key: NULL = anonymous. */
void rate_limit_of_key(
    int64_t out[N_POLICY_LIMITS], const struct policy_snapshot *s, const struct policy_key *key);
