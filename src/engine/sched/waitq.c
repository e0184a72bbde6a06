#include "engine/sched/waitq.h"
#include "base/mem.h"

/* ---- init and clear */

static bool get_nodes(struct sorted *s, uint32_t n)
{
    s->n = try_calloc(n, sizeof(*s->n));
    return s->n;
}

int waitq_init(struct waitq *q, struct seq *seqs, uint32_t n, struct tenants *tenants,
    uint64_t age_ns, struct err *e)
{
    *q = (struct waitq){ .seqs = seqs,
        .tenants = tenants,
        .age_ns = age_ns,
        .cap = n,
        .free_class = SORTED_NONE,
        .free_line = SORTED_NONE,
        .all = { SORTED_NONE, SORTED_NONE },
        .priorities = SORTED_NONE,
        .names = SORTED_NONE };
    q->classes = try_calloc(n, sizeof(*q->classes));
    q->lines = try_calloc(n, sizeof(*q->lines));
    if (q->classes && q->lines && get_nodes(&q->by_rank, n) && get_nodes(&q->of_tenant, n) &&
        get_nodes(&q->by_priority, n) && get_nodes(&q->by_name, n) && get_nodes(&q->by_service, n))
        return 0;
    waitq_clear(q);
    return err_set(e, ERR_MEMORY, "no memory for a queue of %u sequences", n);
}

void waitq_clear(struct waitq *q)
{
    mem_free(q->classes);
    mem_free(q->lines);
    mem_free(q->by_rank.n);
    mem_free(q->of_tenant.n);
    mem_free(q->by_priority.n);
    mem_free(q->by_name.n);
    mem_free(q->by_service.n);
    *q = (struct waitq){ 0 };
}

/* ---- lines and their classes */

static uint32_t class_of(struct waitq *q, int priority)
{
    uint32_t c = sorted_find(&q->by_priority, q->priorities, priority);

    if (c != SORTED_NONE)
        return c;
    c = q->free_class;
    if (c == SORTED_NONE)
        c = q->n_classes++;
    else
        q->free_class = q->classes[c].next_free;
    CHECK(c < q->cap); /* each class has a line, each line a sequence */
    q->classes[c] = (struct waitq_class){ .lines = { SORTED_NONE, SORTED_NONE } };
    q->by_priority.n[c].key = priority;
    q->by_priority.n[c].tag = c;
    sorted_insert(&q->by_priority, &q->priorities, c);
    return c;
}

static void class_unref(struct waitq *q, uint32_t c)
{
    if (--q->classes[c].n > 0)
        return;
    sorted_remove(&q->by_priority, &q->priorities, c);
    q->classes[c].next_free = q->free_class;
    q->free_class = c;
}

static uint32_t *service_set(struct waitq *q, const struct waitq_line *l)
{
    return &q->classes[l->class_of].lines[l->lane];
}

/* Inserts a line by the service of its tenant, after all lines with equal service. */
static void line_insert(struct waitq *q, uint32_t line)
{
    struct waitq_line *l = &q->lines[line];

    q->by_service.n[line].key = sorted_key_of(q->tenants->t[l->tenant].served);
    q->by_service.n[line].tag = q->n_swaps++;
    sorted_insert(&q->by_service, service_set(q, l), line);
}

static void line_remove(struct waitq *q, uint32_t line)
{
    sorted_remove(&q->by_service, service_set(q, &q->lines[line]), line);
}

static uint32_t line_of(struct waitq *q, uint32_t tenant, int priority, uint32_t lane)
{
    uint32_t c = class_of(q, priority);
    int64_t name = (int64_t)tenant << 32 | c << 1 | lane;
    uint32_t line = sorted_find(&q->by_name, q->names, name);

    if (line != SORTED_NONE)
        return line;
    line = q->free_line;
    if (line == SORTED_NONE)
        line = q->n_lines++;
    else
        q->free_line = q->lines[line].next_free;
    CHECK(line < q->cap);
    q->lines[line] = (struct waitq_line){ tenant, c, lane, 0, SORTED_NONE };
    q->by_name.n[line].key = name;
    q->by_name.n[line].tag = line;
    sorted_insert(&q->by_name, &q->names, line);
    q->classes[c].n++;
    line_insert(q, line);
    return line;
}

/* A sequence has left the line. */
static void line_unref(struct waitq *q, uint32_t line)
{
    struct waitq_line *l = &q->lines[line];

    line_remove(q, line);
    if (--l->n > 0) {
        line_insert(q, line);
        return;
    }
    sorted_remove(&q->by_name, &q->names, line);
    class_unref(q, l->class_of);
    l->next_free = q->free_line;
    q->free_line = line;
}

/* ---- push and remove */

static void insert_seq(
    struct waitq *q, struct sorted *by, uint32_t *set, const struct seq *s, int64_t priority)
{
    uint32_t id = (uint32_t)(s - q->seqs);

    by->n[id].key = (int64_t)(s->since_ns - s->waited_ns) - priority * (int64_t)q->age_ns;
    by->n[id].tag = seq_arrival(s);
    sorted_insert(by, set, id);
}

void waitq_push(struct waitq *q, uint32_t id)
{
    struct seq *s = &q->seqs[id];
    uint32_t lane = s->is_fresh ? LANE_NEW : LANE_STARTED;

    q->n++;
    q->n_started += lane == LANE_STARTED;
    tenants_wait(q->tenants, s->tenant, s->is_fresh);
    s->line = line_of(q, s->tenant, s->priority, lane);
    q->lines[s->line].n++;
    insert_seq(q, &q->by_rank, &q->all[lane], s, s->priority);
    insert_seq(q, &q->of_tenant, &q->tenants->t[s->tenant].waiting[lane], s, s->tenant_priority);
}

void waitq_remove(struct waitq *q, uint32_t id)
{
    struct seq *s = &q->seqs[id];
    uint32_t lane = s->is_fresh ? LANE_NEW : LANE_STARTED;

    CHECK(q->n > 0 && s->state == SEQ_WAITING);
    q->n--;
    q->n_started -= lane == LANE_STARTED;
    sorted_remove(&q->by_rank, &q->all[lane], id);
    sorted_remove(&q->of_tenant, &q->tenants->t[s->tenant].waiting[lane], id);
    line_unref(q, s->line);
    tenants_unwait(q->tenants, s->tenant);
}

/* ---- selection */

/* Largest v whose rank equals that of v. */
static int64_t rank_bound(const struct waitq *q, int64_t v, uint64_t now)
{
    int64_t age = (int64_t)q->age_ns, waited = (int64_t)now - v;
    int64_t rank = waited / age - (waited % age < 0);

    return (int64_t)now - rank * age;
}

/* First sequence in `sets` (one per lane) by rank, then arrival. */
static uint32_t first_in(
    struct waitq *q, struct sorted *by, const uint32_t sets[LANES], uint64_t now, int n_lanes)
{
    uint32_t best = NO_SEQ;
    int64_t v = INT64_MAX;

    for (int i = 0; i < n_lanes; i++) {
        uint32_t id = sorted_first(by, sets[i]);
        if (id != SORTED_NONE)
            v = MIN(v, by->n[id].key);
    }
    if (v == INT64_MAX)
        return NO_SEQ;
    v = rank_bound(q, v, now);
    for (int i = 0; i < n_lanes; i++) {
        uint32_t id = sorted_upto(by, sets[i], v);
        if (id != SORTED_NONE && (best == NO_SEQ || by->n[id].tag < by->n[best].tag))
            best = id;
    }
    return best;
}

/* Line whose tenant has the least service, by its current value. */
static uint32_t least_served_line(struct waitq *q, uint32_t set)
{
    for (;;) {
        uint32_t line = sorted_first(&q->by_service, set);
        if (line == SORTED_NONE)
            return line;
        struct waitq_line *l = &q->lines[line];
        if (q->by_service.n[line].key == sorted_key_of(q->tenants->t[l->tenant].served))
            return line;
        line_remove(q, line);
        line_insert(q, line);
        set = *service_set(q, l);
    }
}

static uint32_t least_served_tenant(struct waitq *q, const struct waitq_class *c, int n_lanes)
{
    const struct sorted_node *n = q->by_service.n;
    uint32_t best = SORTED_NONE;

    for (int i = 0; i < n_lanes; i++) {
        uint32_t line = least_served_line(q, c->lines[i]);
        if (line == SORTED_NONE)
            continue;
        if (best == SORTED_NONE || n[line].key < n[best].key ||
            (n[line].key == n[best].key && n[line].tag < n[best].tag))
            best = line;
    }
    return q->lines[best].tenant;
}

uint32_t waitq_first(struct waitq *q, uint64_t now, bool with_fresh)
{
    int n_lanes = with_fresh ? LANES : LANE_STARTED + 1;
    uint32_t id = first_in(q, &q->by_rank, q->all, now, n_lanes);

    if (id == NO_SEQ)
        return id;
    const struct waitq_class *c = &q->classes[q->lines[q->seqs[id].line].class_of];
    uint32_t tenant =
        q->tenants->n_waiting == 1 ? q->seqs[id].tenant : least_served_tenant(q, c, n_lanes);
    return first_in(q, &q->of_tenant, q->tenants->t[tenant].waiting, now, n_lanes);
}

uint64_t waitq_n_visited(const struct waitq *q)
{
    return q->by_rank.n_visited + q->of_tenant.n_visited + q->by_priority.n_visited +
           q->by_name.n_visited + q->by_service.n_visited + q->tenants->by_service.n_visited;
}
