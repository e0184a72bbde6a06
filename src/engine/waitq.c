#include "engine/waitq.h"

/* The queues of fresh sequences of a tenant:
 *
 *   queues -> head of priority 0 --next_class--> head of priority 5 --next_class--> NO_SEQ
 *                | next, prev                       |
 *              second                             second
 *                |
 *              tail <- class_tail of the head
 */

void waitq_init(struct waitq *q, struct seq *seqs, struct tenants *tenants, uint64_t age_ns)
{
    *q = (struct waitq){ .seqs = seqs, .tenants = tenants, .back = NO_SEQ, .age_ns = age_ns };
}

static uint32_t *class_link(struct waitq *q, const struct seq *s)
{
    uint32_t *at = &q->tenants->t[s->tenant].queues;

    while (*at != NO_SEQ && q->seqs[*at].priority != s->priority)
        at = &q->seqs[*at].next_class;
    return at;
}

static void push_fresh(struct waitq *q, uint32_t id)
{
    struct seq *s = &q->seqs[id];
    uint32_t *link = class_link(q, s);

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
    uint32_t *link = class_link(q, s);

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
    tenants_wait(q->tenants, s->tenant, s->is_fresh);
    if (s->is_fresh) {
        push_fresh(q, id);
        return;
    }
    q->n_back++;
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
    tenants_go(q->tenants, s->tenant);
    if (s->is_fresh) {
        remove_fresh(q, id);
        return;
    }
    q->n_back--;
    if (s->prev != NO_SEQ)
        q->seqs[s->prev].next = s->next;
    else
        q->back = s->next;
    if (s->next != NO_SEQ)
        q->seqs[s->next].prev = s->prev;
}

struct search {
    const struct waitq *q;
    uint64_t now;
    bool with_fresh;
    uint32_t best;
    int64_t rank;  /* of the best */
    double served; /* of its tenant */
};

static bool is_better(const struct search *f, const struct seq *s, int64_t rank, double served)
{
    if (f->best == NO_SEQ || rank != f->rank)
        return f->best == NO_SEQ || rank > f->rank;
    if (served != f->served)
        return served < f->served;
    return seq_came_before(s, &f->q->seqs[f->best]);
}

static void keep_better(struct search *f, uint32_t id)
{
    const struct seq *s = &f->q->seqs[id];
    int64_t rank = seq_rank(s, f->now, f->q->age_ns);
    double served = f->q->tenants->t[s->tenant].served;

    if (!is_better(f, s, rank, served))
        return;
    f->best = id;
    f->rank = rank;
    f->served = served;
}

static void look_at_tenant(struct search *f, uint32_t tenant)
{
    const struct waitq *q = f->q;

    for (uint32_t id = q->tenants->t[tenant].queues; f->with_fresh && id != NO_SEQ;
         id = q->seqs[id].next_class)
        keep_better(f, id);
}

/* Is the tenant of `s` served less than that of `least`; or the same, and s came before? */
static bool is_served_less(const struct search *f, const struct seq *s, const struct seq *least)
{
    const struct tenant *t = f->q->tenants->t;
    double a = t[s->tenant].served, b = t[least->tenant].served;

    return a != b ? a < b : seq_came_before(s, least);
}

/* Whose turn it is, of those that have something of the best one's priority. */
static uint32_t least_served(const struct search *f)
{
    const struct waitq *q = f->q;
    const struct tenant *t = q->tenants->t;
    const struct seq *least = &q->seqs[f->best];
    int priority = least->priority;

    for (uint32_t i = q->tenants->waiting; f->with_fresh && i != NO_TENANT; i = t[i].next) {
        if (t[i].served > t[least->tenant].served)
            continue;
        for (uint32_t id = t[i].queues; id != NO_SEQ; id = q->seqs[id].next_class)
            if (q->seqs[id].priority == priority && is_served_less(f, &q->seqs[id], least))
                least = &q->seqs[id];
    }
    for (uint32_t id = q->back; id != NO_SEQ; id = q->seqs[id].next)
        if (q->seqs[id].priority == priority && is_served_less(f, &q->seqs[id], least))
            least = &q->seqs[id];
    return least->tenant;
}

uint32_t waitq_first(const struct waitq *q, uint64_t now, bool with_fresh)
{
    struct search f = { .q = q, .now = now, .with_fresh = with_fresh, .best = NO_SEQ };

    for (uint32_t i = q->tenants->waiting; i != NO_TENANT; i = q->tenants->t[i].next)
        look_at_tenant(&f, i);
    for (uint32_t id = q->back; id != NO_SEQ; id = q->seqs[id].next)
        keep_better(&f, id);
    if (f.best == NO_SEQ || q->tenants->t[q->tenants->waiting].next == NO_TENANT)
        return f.best; /* all of one tenant */
    uint32_t tenant = least_served(&f);
    f.best = NO_SEQ;
    look_at_tenant(&f, tenant);
    for (uint32_t id = q->back; id != NO_SEQ; id = q->seqs[id].next)
        if (q->seqs[id].tenant == tenant)
            keep_better(&f, id);
    return f.best;
}
