/* tenants.h: service that each tenant received, for fair scheduling between tenants.
 *
 * Virtual token counters (Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024): a
 * tenant is charged 1 per prompt token and 2 per output token when it is computed, divided by its
 * weight. A tenant that had no waiting sequences and has one again is raised to the smallest
 * counter of the waiting tenants, so unused service does not accumulate. While two tenants both
 * have waiting requests, their counters differ by at most 2 max(longest prompt, 2 * tokens of all
 * running sequences), independent of their demand.
 *
 * Tenants with sequences always have a slot. A tenant without sequences keeps its slot and counter
 * until the slot is needed, so a short absence does not reset its counter.
 *
 * Owner: the engine thread. Allocates only in tenants_init. */
#pragma once

#include "base/err.h"
#include "base/list.h"
#include "engine/sched/sorted.h"

enum { CHARGE_PROMPT = 1, CHARGE_OUTPUT = 2, LANES = 2 };

struct tenant_service {
    uint64_t id;
    double served, weight;
    uint32_t n_live, n_waiting; /* sequences */
    uint32_t waiting[LANES];    /* waiting sequences: sets of waitq.c */
    uint32_t next_hash;
    struct index_link idle; /* in the list of idle tenants, while n_live == 0 */
};

struct tenants {
    struct tenant_service *t; /* [cap] */
    uint32_t *hash;           /* [n_hash] chains through next_hash */
    uint32_t cap, n, n_hash;
    struct index_list idle; /* tenants without sequences, the longest idle first */
    /* Tenants with waiting sequences, by an earlier value of their counter. */
    struct sorted by_service;
    uint32_t waiting;   /* root of that set */
    uint32_t n_waiting; /* size of that set */
    double left_served; /* counter of the last tenant that left that set */
};

#define NO_TENANT UINT32_MAX

/* Room for n_live tenants with sequences, and some idle ones. ERR_MEMORY. */
int tenants_init(struct tenants *ts, uint32_t n_live, struct err *e) MUST_CHECK;
void tenants_clear(struct tenants *ts);

/* Adds a sequence of tenant `id`; returns its index, valid until as many calls of tenants_leave. */
uint32_t tenants_enter(struct tenants *ts, uint64_t id, double weight);
void tenants_leave(struct tenants *ts, uint32_t i);

/* A sequence of the tenant starts or ends waiting. is_new: the sequence was just added. */
void tenants_wait(struct tenants *ts, uint32_t i, bool is_new);
void tenants_unwait(struct tenants *ts, uint32_t i);

static inline void tenants_charge(struct tenants *ts, uint32_t i, double tokens)
{
    ts->t[i].served += tokens / ts->t[i].weight;
}
