#include "engine/sched/tenants.h"
#include "base/hash.h"
#include "base/mem.h"

enum { IDLE_TENANTS = 256 };

int tenants_init(struct tenants *ts, uint32_t n_live, struct err *e)
{
    *ts = (struct tenants){
        .cap = n_live + IDLE_TENANTS, .idle = INDEX_LIST_EMPTY, .waiting = SORTED_NONE
    };
    for (ts->n_hash = 1; ts->n_hash < ts->cap;)
        ts->n_hash *= 2;
    ts->t = try_calloc(ts->cap, sizeof(*ts->t));
    ts->hash = try_malloc(ts->n_hash * sizeof(*ts->hash));
    ts->by_service.n = try_calloc(ts->cap, sizeof(*ts->by_service.n));
    if (!ts->t || !ts->hash || !ts->by_service.n)
        return err_set(e, ERR_MEMORY, "no memory for %u tenants", ts->cap);
    memset(ts->hash, 0xff, ts->n_hash * sizeof(*ts->hash));
    return 0;
}

void tenants_clear(struct tenants *ts)
{
    mem_free(ts->t);
    mem_free(ts->hash);
    mem_free(ts->by_service.n);
    *ts = (struct tenants){ 0 };
}

/* Ids are mostly hashes; the multiplication prevents chosen ids from colliding. */
static uint32_t *chain_of(struct tenants *ts, uint64_t id)
{
    return &ts->hash[(hash_step(0, id) >> 32) & (ts->n_hash - 1)];
}

static uint32_t take_slot(struct tenants *ts)
{
    if (ts->n < ts->cap)
        return ts->n++;
    uint32_t i = ts->idle.first; /* exists, since fewer than cap tenants have sequences */
    CHECK(i != NO_TENANT);
    index_list_remove(&ts->idle, INDEX_LINKS(ts->t, idle), i);
    uint32_t *at = chain_of(ts, ts->t[i].id);
    while (*at != i)
        at = &ts->t[*at].next_hash;
    *at = ts->t[i].next_hash;
    return i;
}

uint32_t tenants_enter(struct tenants *ts, uint64_t id, double weight)
{
    uint32_t *chain = chain_of(ts, id), i = *chain;

    while (i != NO_TENANT && ts->t[i].id != id)
        i = ts->t[i].next_hash;
    if (i == NO_TENANT) {
        i = take_slot(ts);
        ts->t[i] = (struct tenant_service){
            .id = id, .waiting = { SORTED_NONE, SORTED_NONE }, .next_hash = *chain
        };
        *chain = i;
    } else if (ts->t[i].n_live == 0) {
        index_list_remove(&ts->idle, INDEX_LINKS(ts->t, idle), i);
    }
    ts->t[i].n_live++;
    ts->t[i].weight = weight > 0 ? weight : 1;
    return i;
}

void tenants_leave(struct tenants *ts, uint32_t i)
{
    CHECK(ts->t[i].n_live > 0);
    if (--ts->t[i].n_live == 0)
        index_list_add_last(&ts->idle, INDEX_LINKS(ts->t, idle), i);
}

/* Counters only grow: if the first tenant by its earlier value has not grown since, it has the
 * smallest counter. */
static double least_served(struct tenants *ts)
{
    for (;;) {
        uint32_t i = sorted_first(&ts->by_service, ts->waiting);
        if (i == SORTED_NONE)
            return ts->left_served;
        int64_t key = sorted_key_of(ts->t[i].served);
        if (ts->by_service.n[i].key == key)
            return ts->t[i].served;
        sorted_remove(&ts->by_service, &ts->waiting, i);
        ts->by_service.n[i].key = key;
        sorted_insert(&ts->by_service, &ts->waiting, i);
    }
}

void tenants_wait(struct tenants *ts, uint32_t i, bool is_new)
{
    struct tenant_service *t = &ts->t[i];

    if (t->n_waiting++ > 0)
        return;
    if (is_new)
        t->served = MAX(t->served, least_served(ts));
    ts->n_waiting++;
    ts->by_service.n[i].key = sorted_key_of(t->served);
    ts->by_service.n[i].tag = i;
    sorted_insert(&ts->by_service, &ts->waiting, i);
}

void tenants_unwait(struct tenants *ts, uint32_t i)
{
    struct tenant_service *t = &ts->t[i];

    CHECK(t->n_waiting > 0);
    if (--t->n_waiting > 0)
        return;
    ts->n_waiting--;
    sorted_remove(&ts->by_service, &ts->waiting, i);
    ts->left_served = t->served;
}
