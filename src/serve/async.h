/* async.h: an exchange whose response is sent after its handler has returned, because a worker
 * thread, an engine or another io thread works for it first. A route embeds struct async in its own
 * struct.
 *
 *     async_new --> OPEN --> CLOSED --> freed
 *
 *     OPEN     the response has not ended; after async_detach it is not sent to this exchange
 *     CLOSED   the response has ended or the client has left; nothing is written any more
 *     freed    no reference remains: one is held while OPEN, one by a job at the worker thread, and
 *              one per async_ref, for example for a message that another thread holds
 *
 * Three events may occur at any time, also while the job waits or runs at the worker thread:
 *
 *     client left   CLOSED at once, then ops->gone. A server that stops aborts its exchanges at the
 *                   end of the drain time, which is the same event.
 *     deadline      ops->expired; if NULL: 504, or an abort if a part of `out` was sent; CLOSED
 *     job returned  ops->done; if NULL: the response is `err` or `out`, unless CLOSED. The same if
 *                   the worker thread accepts no more jobs of the tenant, with `err` set
 *
 * CLOSED stops the job: its run is not called or, if it runs, may end early since job.is_stopped is
 * set; the result is not used. The io thread does not end before the job has returned
 * (async_hold).
 *
 * The arenas and `out` count against the budget for the memory of requests (serve_options) as they
 * grow. If the budget refuses memory, the request fails with 413 (it can never fit), 429 (its API
 * key holds its share) or 503.
 *
 * Owner: the io thread; references are counted on it only. While is_at_worker, the worker thread
 * owns `arena`, `scratch`, `charge`, `out`, `err` and the fields of the route that ops->run
 * uses. */
#pragma once

#include "serve/io.h"
#include "serve/worker.h"

struct async;

struct async_ops { /* functions may be NULL; all but run are called on the io thread */
    /* Any thread, without x and call: writes the response body to `out`. Returns -1 with `err` set
     * on failure. */
    int (*run)(struct async *a);
    /* run has returned, or was not called because of CLOSED or ERR_OVERLOADED */
    void (*done)(struct async *a);
    void (*gone)(struct async *a); /* the client has left; the state is CLOSED */
    void (*expired)(struct async *a, const struct err *e); /* the deadline has passed; OPEN */
    void (*drained)(struct async *a); /* the sink has room; if NULL: `out` is sent */
    void (*free)(struct async *a);    /* releases what is not in the arena */
    bool must_run;                    /* the job runs to its end even if the client has left */
};

struct async { /* x->user points to it */
    const struct async_ops *ops;
    struct io *io;
    struct list_link in_open; /* in a list of the io thread (io.h), while OPEN */
    struct http_exchange *x;  /* NULL after async_detach and in CLOSED */
    struct route_call *call;  /* in the arena of x; NULL if x is */
    struct model *model;      /* that the request uses: a reference; NULL: none */
    struct arena *arena;      /* contains the route's struct; NULL: x->arena contains it */
    struct arena *scratch;    /* memory that ends before the request; freed with it at the latest */
    struct charge charge;     /* memory of both arenas and of `out` */
    struct str body; /* valid as long as x, and after async_keep_body until freed or dropped */
    struct http_body kept_body;
    struct loop_timer deadline;
    uint64_t deadline_ns; /* UINT64_MAX: none */
    struct worker_job job;
    const struct policy_key *key; /* key of the caller, a reference; NULL = anonymous */
    float tenant_weight;          /* weight of the caller's key */
    int n_refs;
    bool is_open, is_at_worker, was_at_worker;
    struct err err; /* result of run; code ERR_NONE: success */
    struct buf out; /* JSON body of the response, for async_reply */
    size_t n_sent;  /* bytes of `out` that were sent */
};

/* Allocates the route's struct of `size` bytes, zeroed, with a struct async as its first member.
 * NULL: memory is short; the error was sent. */
void *async_new(size_t size, const struct async_ops *ops, struct io *io, struct http_exchange *x,
    struct route_call *c) MUST_CHECK;
/* The same for zeroed memory in x->arena; the request is CLOSED and freed before x ends. */
void async_init(struct async *a, const struct async_ops *ops, struct io *io,
    struct http_exchange *x, struct route_call *c);

/* Takes a reference to the model that a request names, if it is ready and the key allows it. NULL
 * with the error. Any thread. */
struct model *async_take_model(struct async *a, struct str name, struct err *e);
/* Sets the deadline if it is earlier than the current one. */
void async_set_deadline(struct async *a, uint64_t when_ns);
/* The body is valid until the struct is freed, also after the end of the exchange. */
void async_keep_body(struct async *a);
/* Frees the body, which the request does not need any more. Io thread. */
void async_drop_body(struct async *a);
/* Frees `scratch`. The thread that owns it. */
void async_free_scratch(struct async *a);
/* If the budget has refused memory, replaces ERR_MEMORY by the error that states the reason. */
void async_explain_refusal(const struct async *a, struct err *e);
/* Calls run and done: at once, or by the worker thread if the body is large or the job is slow.
 * Afterwards the struct may be freed. */
void async_start(struct async *a, bool is_slow);

/* End the response and close. The struct may be freed, but not what x->arena contains. */
void async_reply(struct async *a); /* sends `err` or `out`, at the pace of the client */
void async_reply_error(struct async *a, const struct err *e, const struct error_extra *extra);
/* The response has ended or is not needed. No effect in CLOSED. */
void async_close(struct async *a);
/* The exchange ends or belongs to another handler from here on; the state remains OPEN. */
void async_detach(struct async *a);

static inline void async_ref(struct async *a)
{
    a->n_refs++;
}
void async_unref(struct async *a);
/* A reference that keeps the io thread running: a job or a session will return to it. */
void async_hold(struct async *a);
void async_unhold(struct async *a);

/* Events of http for the exchange of `a`. */
void async_client_left(struct async *a);
void async_drained(struct async *a);
