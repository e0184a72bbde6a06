/* budget.h: limit for the memory of many holders, in total and per owner (API key).
 *
 * A holder (a request, a body) has a struct charge, which counts the bytes that it has taken from
 * the budget. A budget consists of two pools:
 *
 *     reserve  a quarter of the bytes: the first `small` bytes of every charge
 *     main     the rest: the bytes of a charge above `small`
 *
 * Large holders thus never take the memory of small ones. In each pool an owner may hold
 * share_percent of the bytes. Bytes that do not fit are refused, and the charge records the reason:
 *
 *     BUDGET_NEVER  the charge alone exceeds what one charge may have: a retry would not help
 *     BUDGET_SHARE  the owner holds its share: a retry helps after its other charges have ended
 *     BUDGET_FULL   all owners together hold the whole pool
 *
 * A budget has no lock: it consists of counters, which decide only about refusals. Two calls at the
 * same moment may both be refused although one of them would fit; the limits always hold.
 *
 * Any thread; a charge belongs to one thread at a time. */
#pragma once

#include "base/base.h"

enum budget_refusal { BUDGET_NONE, BUDGET_NEVER, BUDGET_SHARE, BUDGET_FULL, N_BUDGET_REFUSALS };

struct budget;

struct budget_options {
    size_t max;        /* bytes of all charges */
    size_t small;      /* first bytes of each charge, which come from the reserve */
    size_t charge_max; /* bytes of one charge; 0 = only bounded by the pools */
    int share_percent; /* 1 to 100 */
    int n_owners;      /* owners are numbered 0 .. n_owners - 1 */
};

struct budget *budget_new(const struct budget_options *o);
void budget_free(struct budget *b); /* accepts NULL; no charge holds bytes */

/* Bytes that one charge can have at most: the smaller of charge_max and an owner's share. */
size_t budget_charge_max(const struct budget *b);

struct budget_stats {
    uint64_t bytes;                      /* held by all charges now */
    uint64_t refused[N_BUDGET_REFUSALS]; /* one counter per reason */
};
void budget_stats(const struct budget *b, struct budget_stats *out);

struct charge {            /* zeroed: no budget, which refuses nothing */
    struct budget *budget; /* borrowed; NULL: bytes are only counted */
    int owner;
    size_t n; /* bytes that the charge holds */
    enum budget_refusal
        refusal; /* reason of the last refused call; BUDGET_NONE: none was refused */
};

/* False: the bytes were refused, and nothing was taken. */
bool charge_add(struct charge *c, size_t n) MUST_CHECK;
void charge_sub(struct charge *c, size_t n); /* gives bytes back */
static inline void charge_clear(struct charge *c)
{
    charge_sub(c, c->n);
}
