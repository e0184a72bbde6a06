#include "base/budget.h"
#include "base/mem.h"

#include <stdatomic.h>

enum { MAIN, RESERVE, N_POOLS };

struct pool {
    size_t max, share; /* bytes: of all owners, of one owner */
    _Atomic size_t used;
};

struct budget {
    struct budget_options o;
    struct pool pools[N_POOLS];
    _Atomic uint64_t refused[N_BUDGET_REFUSALS];
    struct {
        _Atomic size_t used[N_POOLS];
    } owners[];
};

struct budget *budget_new(const struct budget_options *o)
{
    CHECK(o->n_owners > 0 && o->share_percent >= 1 && o->share_percent <= 100);
    struct budget *b = xcalloc(1, sizeof(*b) + (size_t)o->n_owners * sizeof(b->owners[0]));

    b->o = *o;
    b->pools[RESERVE].max = o->max / 4;
    b->pools[MAIN].max = o->max - o->max / 4;
    for (int i = 0; i < N_POOLS; i++)
        b->pools[i].share = b->pools[i].max / 100 * (size_t)o->share_percent +
                            b->pools[i].max % 100 * (size_t)o->share_percent / 100;
    return b;
}

void budget_free(struct budget *b)
{
    if (!b)
        return;
    CHECK(!b->pools[MAIN].used && !b->pools[RESERVE].used);
    mem_free(b);
}

size_t budget_charge_max(const struct budget *b)
{
    size_t first = MIN(b->o.small, b->pools[RESERVE].share);
    /* a charge whose first bytes do not fit into the reserve has no others */
    size_t rest = first < b->o.small ? 0 : b->pools[MAIN].share;

    return b->o.charge_max ? MIN(b->o.charge_max, first + rest) : first + rest;
}

void budget_stats(const struct budget *b, struct budget_stats *out)
{
    out->bytes = b->pools[MAIN].used + b->pools[RESERVE].used;
    for (int i = 0; i < N_BUDGET_REFUSALS; i++)
        out->refused[i] = b->refused[i];
}

/* ---- charges */

/* Adds n to the counter unless the sum exceeds max. */
static bool count_up(_Atomic size_t *counter, size_t n, size_t max)
{
    size_t before = atomic_fetch_add_explicit(counter, n, memory_order_relaxed);

    if (before <= max && n <= max - before)
        return true;
    atomic_fetch_sub_explicit(counter, n, memory_order_relaxed);
    return false;
}

static void give_back(struct charge *c, int pool, size_t n)
{
    struct budget *b = c->budget;

    atomic_fetch_sub_explicit(&b->pools[pool].used, n, memory_order_relaxed);
    atomic_fetch_sub_explicit(&b->owners[c->owner].used[pool], n, memory_order_relaxed);
}

static enum budget_refusal take(struct charge *c, int pool, size_t n)
{
    struct budget *b = c->budget;
    _Atomic size_t *own = &b->owners[c->owner].used[pool];

    if (!count_up(own, n, b->pools[pool].share))
        return b->pools[pool].share < b->pools[pool].max ? BUDGET_SHARE : BUDGET_FULL;
    if (count_up(&b->pools[pool].used, n, b->pools[pool].max))
        return BUDGET_NONE;
    atomic_fetch_sub_explicit(own, n, memory_order_relaxed);
    return BUDGET_FULL;
}

/* Bytes of a charge of n bytes that come from the reserve. */
static size_t small_part(const struct budget *b, size_t n)
{
    return MIN(n, b->o.small);
}

static enum budget_refusal try_add(struct charge *c, size_t n)
{
    const struct budget *b = c->budget;
    size_t max = budget_charge_max(b);

    if (c->n > max || n > max - c->n)
        return BUDGET_NEVER;
    size_t small = small_part(b, c->n + n) - small_part(b, c->n);
    enum budget_refusal why = take(c, RESERVE, small);
    if (why)
        return why;
    why = take(c, MAIN, n - small);
    if (why)
        give_back(c, RESERVE, small);
    return why;
}

bool charge_add(struct charge *c, size_t n)
{
    if (c->budget) {
        enum budget_refusal why = try_add(c, n);
        if (why) {
            c->refusal = why;
            atomic_fetch_add_explicit(&c->budget->refused[why], 1, memory_order_relaxed);
            return false;
        }
    }
    c->n += n;
    return true;
}

void charge_sub(struct charge *c, size_t n)
{
    CHECK(n <= c->n);
    if (c->budget) {
        size_t small = small_part(c->budget, c->n) - small_part(c->budget, c->n - n);
        give_back(c, RESERVE, small);
        give_back(c, MAIN, n - small);
    }
    c->n -= n;
}
