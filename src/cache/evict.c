#include "cache/evict.h"
#include "base/mem.h"

int evict_init(struct evict *ev, enum evict_policy policy, uint32_t n, struct err *e)
{
    *ev = (struct evict){ .policy = policy, .n = n, .next = EVICT_NONE };
    ev->entry = try_calloc(n, sizeof(*ev->entry));
    ev->heap = policy == EVICT_LRU ? try_calloc(n, sizeof(*ev->heap)) : NULL;
    if (!ev->entry || (policy == EVICT_LRU && !ev->heap)) {
        evict_clear(ev);
        return err_set(e, ERR_MEMORY, "no memory for the eviction policy of %u pages", n);
    }
    for (uint32_t i = 0; i < n; i++)
        ev->entry[i].heap_at = EVICT_NONE;
    return 0;
}

void evict_clear(struct evict *ev)
{
    mem_free(ev->entry);
    mem_free(ev->heap);
    *ev = (struct evict){ 0 };
}

/* ---- LRU heap: lowest value on top, ties by least recent use */

static bool goes_before(const struct evict *ev, uint32_t a, uint32_t b)
{
    const struct evict_entry *x = &ev->entry[a], *y = &ev->entry[b];

    return x->value != y->value ? x->value < y->value : x->tick < y->tick;
}

static void heap_set(struct evict *ev, uint32_t at, uint32_t i)
{
    ev->heap[at] = i;
    ev->entry[i].heap_at = at;
}

static void sift_up(struct evict *ev, uint32_t at, uint32_t i)
{
    while (at > 0 && goes_before(ev, i, ev->heap[(at - 1) / 2])) {
        heap_set(ev, at, ev->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    heap_set(ev, at, i);
}

static void sift_down(struct evict *ev, uint32_t at, uint32_t i)
{
    for (;;) {
        uint32_t low = 2 * at + 1;
        if (low + 1 < ev->n_candidates && goes_before(ev, ev->heap[low + 1], ev->heap[low]))
            low++;
        if (low >= ev->n_candidates || !goes_before(ev, ev->heap[low], i))
            break;
        heap_set(ev, at, ev->heap[low]);
        at = low;
    }
    heap_set(ev, at, i);
}

static void heap_remove(struct evict *ev, uint32_t at)
{
    uint32_t last = ev->heap[ev->n_candidates]; /* n_candidates is already decremented */

    if (at == ev->n_candidates)
        return;
    if (at > 0 && goes_before(ev, last, ev->heap[(at - 1) / 2]))
        sift_up(ev, at, last);
    else
        sift_down(ev, at, last);
}

/* ---- CLOCK hand */

static uint64_t n_passed(const struct evict *ev, uint32_t i)
{
    return ev->laps + (i < ev->hand);
}

/* First entry from the hand on whose passes are used up, or the one with the fewest left. */
static uint32_t advance_hand(struct evict *ev)
{
    uint32_t best = EVICT_NONE, i = ev->hand;
    int64_t least = INT64_MAX;

    for (uint32_t k = 0; k < ev->n && least > 0; k++) {
        i = ev->hand;
        int64_t left = (int64_t)(ev->entry[i].survives_until - n_passed(ev, i));
        if (ev->entry[i].heap_at != EVICT_NONE && left < least) {
            least = left;
            best = i;
        }
        ev->laps += i + 1 == ev->n;
        ev->hand = i + 1 < ev->n ? i + 1 : 0;
    }
    return best;
}

static uint32_t clock_take(struct evict *ev)
{
    uint32_t i = ev->next;

    ev->next = EVICT_NONE;
    if (i != EVICT_NONE && ev->entry[i].heap_at != EVICT_NONE &&
        ev->entry[i].survives_until <= n_passed(ev, i))
        return i;
    return advance_hand(ev);
}

/* ---- interface */

void evict_touch(struct evict *ev, uint32_t i, uint32_t weight)
{
    struct evict_entry *t = &ev->entry[i];

    CHECK(i < ev->n && t->heap_at == EVICT_NONE);
    t->value = ev->floor + weight;
    t->tick = ++ev->tick;
    t->survives_until = n_passed(ev, i) + MIN(weight / EVICT_WEIGHT, (uint32_t)EVICT_ROUNDS);
}

bool evict_has(const struct evict *ev, uint32_t i)
{
    CHECK(i < ev->n);
    return ev->entry[i].heap_at != EVICT_NONE;
}

void evict_add(struct evict *ev, uint32_t i)
{
    CHECK(!evict_has(ev, i));
    ev->n_candidates++;
    if (ev->policy == EVICT_LRU)
        sift_up(ev, ev->n_candidates - 1, i);
    else
        ev->entry[i].heap_at = 0;
}

void evict_add_next(struct evict *ev, uint32_t i)
{
    evict_add(ev, i);
    ev->next = i;
}

void evict_remove(struct evict *ev, uint32_t i)
{
    CHECK(evict_has(ev, i));
    ev->n_candidates--;
    if (ev->policy == EVICT_LRU)
        heap_remove(ev, ev->entry[i].heap_at);
    ev->entry[i].heap_at = EVICT_NONE;
}

uint32_t evict_take(struct evict *ev)
{
    if (ev->n_candidates == 0)
        return EVICT_NONE;

    uint32_t i = ev->policy == EVICT_LRU ? ev->heap[0] : clock_take(ev);
    ev->floor = MAX(ev->floor, ev->entry[i].value);
    evict_remove(ev, i);
    return i;
}

const char *evict_check(const struct evict *ev)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < ev->n; i++) {
        uint32_t at = ev->entry[i].heap_at;
        n += at != EVICT_NONE;
        if (at == EVICT_NONE || ev->policy != EVICT_LRU)
            continue;
        if (at >= ev->n_candidates || ev->heap[at] != i)
            return "an eviction candidate has a wrong heap index";
        if (at > 0 && goes_before(ev, i, ev->heap[(at - 1) / 2]))
            return "the heap of eviction candidates is out of order";
    }
    return n == ev->n_candidates ? NULL : "the count of candidates is wrong";
}
