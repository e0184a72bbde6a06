/* tenants.h: what each tenant was served, so that the one with the least can go first.
 *
 * Virtual token counters (Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024):
 * a tenant is charged for each token as it is served, a prompt's 1, an answer's 2, divided by the
 * tenant's weight. A tenant that had nothing waiting and has something again is lifted to the
 * least charged of those that wait: what it did not ask for meanwhile it has no claim to. While
 * two tenants both have requests waiting, what they are charged differs by at most 2 max(longest
 * prompt, 2 * tokens of all that run), however much either of them asks for.
 *
 * Tenants with sequences have a place for sure. Those without keep theirs as long as nobody needs
 * it more: leaving for a moment does not wipe out what was served.
 *
 * Owner: the engine thread. Allocates only when opened. */
#pragma once

#include "base/err.h"
#include "engine/sched/sorted.h"

enum { CHARGE_PROMPT = 1, CHARGE_OUTPUT = 2, LANES = 2 };

struct tenant {
    uint64_t id;
    double served, weight;
    uint32_t n_live, n_waiting; /* its sequences */
    uint32_t waiting[LANES];    /* those: sets of waitq.c */
    uint32_t next_hash;
    uint32_t prev, next; /* of the idle */
};

struct tenants {
    struct tenant *t; /* [cap] */
    uint32_t *hash;   /* [n_hash] chains through next_hash */
    uint32_t cap, n, n_hash;
    uint32_t idle, idle_tail; /* without sequences; the one that left first at the head */
    struct sorted by_service; /* those with some that wait, by what they were served once */
    uint32_t waiting;         /* that set */
    uint32_t n_waiting;       /* how many they are */
    double left_served;       /* of the last that had nothing waiting any more */
};

#define NO_TENANT UINT32_MAX

/* Room for n_live with sequences, and some more remembered. ERR_MEMORY. */
int tenants_init(struct tenants *ts, uint32_t n_live, struct err *e) MUST_CHECK;
void tenants_clear(struct tenants *ts);

/* A sequence of tenant `id` comes: the tenant's number, until tenants_leave for as many. */
uint32_t tenants_enter(struct tenants *ts, uint64_t id, double weight);
void tenants_leave(struct tenants *ts, uint32_t i);

/* A sequence of it begins to wait, or does no longer. is_new: it came just now. */
void tenants_wait(struct tenants *ts, uint32_t i, bool is_new);
void tenants_go(struct tenants *ts, uint32_t i);

static inline void tenants_charge(struct tenants *ts, uint32_t i, double tokens)
{
    ts->t[i].served += tokens / ts->t[i].weight;
}
