#include "engine/sched/timers.h"

uint64_t timer_key(const struct seq *s)
{
    return MIN(MIN(s->deadline_ns, s->start_deadline_ns), s->delay_until_ns);
}

static uint64_t key_at(const struct timers *t, uint32_t at)
{
    return timer_key(&t->seqs[t->heap[at]]);
}

static void heap_set(struct timers *t, uint32_t at, uint32_t id)
{
    t->heap[at] = id;
    t->seqs[id].timer_at = at;
}

static void heap_sift(struct timers *t, uint32_t at)
{
    uint32_t id = t->heap[at];
    uint64_t key = timer_key(&t->seqs[id]);

    for (; at > 0 && key_at(t, (at - 1) / 2) > key; at = (at - 1) / 2)
        heap_set(t, at, t->heap[(at - 1) / 2]);
    for (uint32_t child; (child = 2 * at + 1) < t->n; at = child) {
        if (child + 1 < t->n && key_at(t, child + 1) < key_at(t, child))
            child++;
        if (key_at(t, child) >= key)
            break;
        heap_set(t, at, t->heap[child]);
    }
    heap_set(t, at, id);
}

void timers_update(struct timers *t, uint32_t id)
{
    struct seq *s = &t->seqs[id];
    uint32_t at = s->timer_at;

    if (timer_key(s) != UINT64_MAX) {
        if (at == NO_SEQ) {
            at = t->n++;
            heap_set(t, at, id);
        }
        heap_sift(t, at);
    } else if (at != NO_SEQ) {
        uint32_t last = t->heap[--t->n];
        s->timer_at = NO_SEQ;
        if (last != id) {
            heap_set(t, at, last);
            heap_sift(t, at);
        }
    }
}

uint32_t timers_first(const struct timers *t)
{
    return t->n ? t->heap[0] : NO_SEQ;
}
