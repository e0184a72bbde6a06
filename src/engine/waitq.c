#include "engine/waitq.h"

/* The queues of fresh sequences:
 *
 *   classes -> head of priority 0 --next_class--> head of priority 5 --next_class--> NO_SEQ
 *                | next, prev                        |
 *              second                              second
 *                |
 *              tail <- class_tail of the head
 */

void waitq_init(struct waitq *q, struct seq *seqs)
{
    *q = (struct waitq){ .seqs = seqs, .classes = NO_SEQ, .back = NO_SEQ };
}

static uint32_t *class_link(struct waitq *q, int priority)
{
    uint32_t *at = &q->classes;

    while (*at != NO_SEQ && q->seqs[*at].priority != priority)
        at = &q->seqs[*at].next_class;
    return at;
}

static void push_fresh(struct waitq *q, uint32_t id)
{
    struct seq *s = &q->seqs[id];
    uint32_t *link = class_link(q, s->priority);

    s->prev = s->next = NO_SEQ;
    if (*link == NO_SEQ) {
        s->next_class = NO_SEQ;
        s->class_tail = id;
        *link = id;
        return;
    }
    struct seq *head = &q->seqs[*link];
    s->prev = head->class_tail;
    q->seqs[head->class_tail].next = id;
    head->class_tail = id;
}

static void remove_fresh(struct waitq *q, uint32_t id)
{
    struct seq *s = &q->seqs[id];
    uint32_t *link = class_link(q, s->priority);

    CHECK(*link != NO_SEQ);
    if (*link != id) {
        q->seqs[s->prev].next = s->next;
        if (s->next != NO_SEQ)
            q->seqs[s->next].prev = s->prev;
        else
            q->seqs[*link].class_tail = s->prev;
    } else if (s->next != NO_SEQ) {
        struct seq *head = &q->seqs[s->next];
        head->prev = NO_SEQ;
        head->next_class = s->next_class;
        head->class_tail = s->class_tail;
        *link = s->next;
    } else {
        *link = s->next_class;
    }
}

void waitq_push(struct waitq *q, uint32_t id)
{
    struct seq *s = &q->seqs[id];

    q->n++;
    if (s->is_fresh) {
        push_fresh(q, id);
        return;
    }
    s->prev = NO_SEQ;
    s->next = q->back;
    if (q->back != NO_SEQ)
        q->seqs[q->back].prev = id;
    q->back = id;
}

void waitq_remove(struct waitq *q, uint32_t id)
{
    struct seq *s = &q->seqs[id];

    CHECK(q->n > 0 && s->state == SEQ_WAITING);
    q->n--;
    if (s->is_fresh) {
        remove_fresh(q, id);
        return;
    }
    if (s->prev != NO_SEQ)
        q->seqs[s->prev].next = s->next;
    else
        q->back = s->next;
    if (s->next != NO_SEQ)
        q->seqs[s->next].prev = s->prev;
}

uint32_t waitq_first(const struct waitq *q, uint64_t now, uint64_t age_ns)
{
    uint32_t best = NO_SEQ;

    for (uint32_t id = q->classes; id != NO_SEQ; id = q->seqs[id].next_class)
        if (best == NO_SEQ || seq_is_before(&q->seqs[id], &q->seqs[best], now, age_ns))
            best = id;
    for (uint32_t id = q->back; id != NO_SEQ; id = q->seqs[id].next)
        if (best == NO_SEQ || seq_is_before(&q->seqs[id], &q->seqs[best], now, age_ns))
            best = id;
    return best;
}
