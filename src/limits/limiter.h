/* limiter.h: rate limits, concurrency limits and budgets. A counter belongs to one limit of one
 * subject (key, tenant or model); the same counter enforces the limit and is reported.
 *
 *     limiter_begin    finds the counters of a request
 *     limiter_reserve  takes amounts from all counters, or from none; granted, waiting or refused
 *     limiter_settle   tokens were used: they change from reserved to used
 *     limiter_end      refunds what is still reserved
 *
 * Reserved amounts count until they are settled or refunded (window.h), so a limit holds at every
 * instant, also for requests that run longer than a window.
 *
 * A request that waits is in the queue of the counter that has no room. A counter serves its queue
 * in order, and no new request precedes it. When amounts are granted, the request is moved to the
 * list of its waker (one per io thread), and `wake` is called; the io thread then calls
 * limiter_granted. Room also appears with time: each io thread that has waiting requests calls
 * limiter_advance at the time that it returned, and at least every LIMITER_POLL_MS.
 *
 * Budgets per day and month never make a request wait: it is refused.
 *
 * Any thread; a mutex guards the counters and the members of struct limit_hold, and is held for
 * less than a microsecond per request that is granted. No call is made per token. */
#pragma once

#include "base/err.h"
#include "base/list.h"
#include "policy/limit_set.h"

struct limiter;
struct limit_subject;

enum limit_kind { LIMIT_OF_KEY, LIMIT_OF_TENANT, LIMIT_OF_MODEL, N_LIMIT_KINDS };
enum { LIMITER_POLL_MS = 100, LIMIT_NAME_MAX = 200 };

struct limit_time {
    uint64_t ns;    /* clock_ns */
    int64_t wall_s; /* Unix time, which may jump (calendar.h) */
};

struct limit_price { /* millionths of the currency per million tokens, <= LIMIT_PRICE_MAX */
    int64_t prompt, output;
};

struct limit_waker {                     /* one per io thread */
    struct list granted;                 /* struct limit_hold */
    void (*wake)(struct limit_waker *w); /* any thread; not under the mutex */
};

struct limit_amounts {
    int64_t requests, prompt, output;
};

struct limit_want {                      /* amounts of one reservation */
    struct limit_amounts window, budget; /* budget.requests is 0 */
    bool may_wait;
};

enum limit_state { LIMIT_IDLE, LIMIT_WAITING, LIMIT_GRANTED };

struct limit_hold { /* amounts of one request; zeroed: none */
    struct limit_subject *subjects[N_LIMIT_KINDS];
    int n_subjects;
    struct limit_price price;
    struct limit_waker *waker;
    struct limit_amounts window, budget; /* reserved and not settled */
    bool is_running;                     /* counts in the concurrency limits */
    enum limit_state state;
    bool is_refused; /* GRANTED: nothing was reserved, since a limit is now below the amount */
    struct limit_want want; /* amounts of the last reservation */
    struct list_link link;  /* WAITING: in the queue of a counter; GRANTED: of the waker */
};

struct limit_subject_of { /* one subject of a request; borrowed for the call */
    enum limit_kind kind;
    const char *name;      /* not empty */
    const int64_t *limits; /* [N_POLICY_LIMITS], 0 = none */
};

struct limit_refusal {
    enum policy_limit limit;
    enum limit_kind kind;
    char name[LIMIT_NAME_MAX + 1]; /* name of the subject */
    int64_t max, requested;        /* the limit, and the requested amount */
    uint64_t retry_ns;             /* time until a retry can succeed, at least 1 */
    bool is_never;                 /* more than the limit permits at once */
};

/* width_ns: length of the sliding windows, of which each has its share of the limit per minute. */
int limiter_open(struct limiter **out, uint64_t width_ns, struct err *e) MUST_CHECK;
void limiter_close(struct limiter *l); /* accepts NULL; no hold has subjects */

/* Finds the counters, and sets their limits to those of the subjects. ERR_MEMORY. */
int limiter_begin(struct limiter *l, struct limit_hold *h, const struct limit_subject_of *subjects,
    int n, struct err *e) MUST_CHECK;
/* Output tokens that the limits can ever grant to the request in addition to `prompt` prompt
 * tokens: what the budgets have left and, with_windows, the least limit of a window. INT64_MAX: no
 * limit. */
int64_t limiter_max_output(struct limiter *l, const struct limit_hold *h, int64_t prompt,
    bool with_windows, const struct limit_time *t);
/* Reserves want->window from the windows and want->budget from the budgets. The first reservation
 * also begins to count in the concurrency limits. LIMIT_IDLE: refused, *why has the first limit
 * without room. LIMIT_WAITING only with may_wait; h->waker is set. */
enum limit_state limiter_reserve(struct limiter *l, struct limit_hold *h,
    const struct limit_want *want, const struct limit_time *t,
    struct limit_refusal *why) MUST_CHECK;
/* These amounts, which are reserved, were used until now. Returns the date (limiter_date). */
int64_t limiter_settle(struct limiter *l, struct limit_hold *h, const struct limit_amounts *used,
    const struct limit_time *t);
/* Ends a wait, refunds what is reserved and releases the counters. No effect on a zeroed hold. */
void limiter_end(struct limiter *l, struct limit_hold *h, const struct limit_time *t);

/* Grants what has room now. Returns the time (clock_ns) at which room appears for the next waiting
 * request; UINT64_MAX: unknown, or none waits. */
uint64_t limiter_advance(struct limiter *l, const struct limit_time *t);
/* Takes the next granted hold of the waker, which is LIMIT_IDLE again; NULL: none. The caller looks
 * at is_refused. */
struct limit_hold *limiter_granted(struct limiter *l, struct limit_waker *w);

struct limit_status { /* limits of the subject with the least room */
    int64_t max;      /* 0: no limit */
    int64_t left;     /* not negative */
    uint64_t full_ns; /* time until `left` is `max`, if no request follows */
};
/* The windows of the subjects of the hold. limit: one that ends in per_minute. */
void limiter_status(struct limiter *l, const struct limit_hold *h, enum policy_limit limit,
    const struct limit_time *t, struct limit_status *out);
/* Used and reserved amount of a limit of a subject; 0 if it has no counters. Cost: millionths. */
int64_t limiter_used(struct limiter *l, enum limit_kind kind, const char *name,
    enum policy_limit limit, const struct limit_time *t);

struct limit_restored { /* tokens that a subject used before a start */
    enum limit_kind kind;
    const char *name;
    int64_t tokens, cost; /* cost: millionths of millionths */
    bool is_today;        /* sums of this day; else of this month */
};
/* Adds them to the budgets per day or per month. ERR_MEMORY. */
int limiter_restore(struct limiter *l, const struct limit_restored *r, const struct limit_time *t,
    struct err *e) MUST_CHECK;

/* The date for budgets. */
int64_t limiter_date(struct limiter *l, const struct limit_time *t);
void limiter_check(struct limiter *l); /* checks all invariants; aborts on a violation */
