#include "constrain/automaton.h"

#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "constrain/derive.h"
#include "constrain/expr_in.h"
#include "constrain/live.h"

#define NEXT_UNKNOWN UINT32_MAX

enum {
    PARTITION_SLOTS = 256,
    MAP_ENTRY = 48 /* bytes of state_of per state, which is at least a third full */
};

/* The transitions of a state. */
struct row {
    uint32_t partition;
    uint32_t n;
    uint32_t next[]; /* per class: state, 0 (dead) or NEXT_UNKNOWN */
};

struct state {
    expr_id expr; /* EXPR_NONE: unused; `link` is the next unused state */
    uint32_t link;
    struct row *row; /* NULL: no transition is computed */
};

struct automaton {
    struct automaton_limits limits;
    struct exprs *x;
    struct state *states;
    uint32_t n_states, cap_states, unused;
    struct byte_partition *partitions; /* direct-mapped by hash while there is room */
    uint32_t n_partitions, cap_partitions;
    uint32_t partition_of[PARTITION_SLOTS]; /* 1 + number; the newest with this hash */
    struct u64_map *state_of;               /* expression -> state */
    struct automaton_roots *roots;
    size_t row_bytes;
    uint64_t generation;
    bool is_failed, is_out_of_memory;
};

/* Half of the memory is for expressions: while they are copied, there are two pools. A quarter is
 * for transitions. */
static struct expr_limits pool_limits(const struct automaton *a)
{
    return (struct expr_limits){ .bytes_max = a->limits.bytes_max / 2,
        .work_max = a->limits.step_work_max };
}

size_t automaton_bytes(const struct automaton *a)
{
    return sizeof(*a) + exprs_bytes(a->x) + a->row_bytes + a->cap_states * sizeof(*a->states) +
           a->cap_partitions * sizeof(*a->partitions) + u64_map_count(a->state_of) * MAP_ENTRY;
}

static size_t table_bytes(const struct automaton *a)
{
    return automaton_bytes(a) - exprs_bytes(a->x);
}

/* ---- states */

/* Number of a state for the expression; 0: out of memory. */
static uint32_t state_for(struct automaton *a, expr_id expr)
{
    uint32_t id = a->unused;

    if (u64_map_get(a->state_of, expr.i, &id))
        return id;
    if (id) {
        a->unused = a->states[id].link;
    } else {
        if (a->n_states == a->cap_states) {
            uint32_t cap = a->cap_states ? a->cap_states * 2 : 16;
            struct state *bigger = try_realloc(a->states, cap * sizeof(*bigger));
            if (!bigger)
                return 0;
            a->states = bigger;
            a->cap_states = cap;
        }
        id = a->n_states++;
    }
    a->states[id] = (struct state){ .expr = expr };
    if (u64_map_put(a->state_of, expr.i, id) < 0) {
        a->states[id] = (struct state){ .link = a->unused };
        a->unused = id;
        return 0;
    }
    return id;
}

static bool is_same_partition(const struct byte_partition *p, const struct byte_partition *q)
{
    return p->n == q->n && !memcmp(p->class_of, q->class_of, sizeof(p->class_of));
}

/* Number of the partition; UINT32_MAX: out of memory. */
static uint32_t partition_number(struct automaton *a, const struct byte_partition *p)
{
    uint32_t *slot =
        &a->partition_of[hash_bytes(0, p->class_of, sizeof(p->class_of)) % PARTITION_SLOTS];

    if (*slot && is_same_partition(&a->partitions[*slot - 1], p))
        return *slot - 1;
    if (a->n_partitions == a->cap_partitions) {
        uint32_t cap = a->cap_partitions ? a->cap_partitions * 2 : 4;
        struct byte_partition *bigger = try_realloc(a->partitions, cap * sizeof(*bigger));
        if (!bigger)
            return UINT32_MAX;
        a->partitions = bigger;
        a->cap_partitions = cap;
    }
    a->partitions[a->n_partitions] = *p;
    *slot = ++a->n_partitions;
    return *slot - 1;
}

static void drop_row(struct automaton *a, struct state *s)
{
    if (s->row)
        a->row_bytes -= sizeof(*s->row) + s->row->n * sizeof(uint32_t);
    mem_free(s->row);
    s->row = NULL;
}

/* The transitions of a state, all unknown if new; NULL: a bound is exceeded. */
static struct row *row_of(struct automaton *a, uint32_t id)
{
    struct byte_partition p;

    if (a->states[id].row)
        return a->states[id].row;
    expr_partition(a->x, a->states[id].expr, &p);
    if (exprs_failed(a->x))
        return NULL;
    uint32_t number = partition_number(a, &p);
    size_t bytes = sizeof(struct row) + p.n * sizeof(uint32_t);
    struct row *row = number == UINT32_MAX ? NULL : try_malloc(bytes);
    if (!row) {
        a->is_out_of_memory = true;
        return NULL;
    }
    row->partition = number;
    row->n = p.n;
    memset(row->next, 0xff, p.n * sizeof(uint32_t));
    a->row_bytes += bytes;
    a->states[id].row = row;
    return row;
}

/* ---- flushing */

/* Marks the states to keep by a link to themselves. */
static void mark_kept(struct automaton *a, uint32_t current)
{
    for (uint32_t id = 0; id < a->n_states; id++)
        a->states[id].link = 0;
    a->states[STATE_START.i].link = STATE_START.i;
    a->states[current].link = current;
    for (const struct automaton_roots *r = a->roots; r; r = r->next)
        for (size_t k = 0; k < r->n; k++)
            if (r->ids[k].i < a->n_states)
                a->states[r->ids[k].i].link = r->ids[k].i;
}

/* Copies the expressions of the kept states to a new pool; -1: out of memory. */
static int copy_kept(struct automaton *a)
{
    struct exprs *to = exprs_new(pool_limits(a));
    struct u64_map *state_of = u64_map_new(64);
    size_t n = 0;
    expr_id **roots = try_calloc(a->n_states, sizeof(*roots));

    if (!to || !state_of || !roots)
        goto fail;
    for (uint32_t id = 1; id < a->n_states; id++)
        if (a->states[id].link && a->states[id].expr.i)
            roots[n++] = &a->states[id].expr;
    /* The ids in the states change; if the copy fails, the automaton has failed. */
    exprs_copy(to, a->x, roots, n);
    a->unused = 0;
    for (uint32_t id = 1; id < a->n_states; id++) {
        struct state *s = &a->states[id];
        if (!s->link) {
            *s = (struct state){ .link = a->unused };
            a->unused = id;
        } else if (u64_map_put(state_of, s->expr.i, id) < 0) {
            goto fail;
        }
    }
    if (exprs_failed(to))
        goto fail;
    mem_free(roots);
    u64_map_free(a->state_of);
    exprs_free(a->x);
    a->state_of = state_of;
    a->x = to;
    return 0;
fail:
    mem_free(roots);
    u64_map_free(state_of);
    exprs_free(to);
    return -1;
}

/* Keeps the start, the current state and the roots. */
static void flush(struct automaton *a, uint32_t current)
{
    for (uint32_t id = 0; id < a->n_states; id++)
        drop_row(a, &a->states[id]);
    a->n_partitions = 0;
    memset(a->partition_of, 0, sizeof(a->partition_of));
    mark_kept(a, current);
    if (copy_kept(a)) {
        a->is_out_of_memory = true;
        a->is_failed = true;
    }
    a->generation++;
}

/* ---- construction */

int automaton_new(struct automaton **out, const struct exprs *x, expr_id root,
    struct automaton_limits limits, struct err *e)
{
    struct automaton *a = try_calloc(1, sizeof(*a));
    expr_id *roots[] = { &root };

    CHECK(expr_is_pure(x, root));
    if (exprs_check(x, e))
        goto fail;
    if (!a)
        goto no_memory;
    a->limits = limits;
    a->x = exprs_new(pool_limits(a));
    a->state_of = u64_map_new(64);
    if (!a->x || !a->state_of)
        goto no_memory;
    exprs_restart_work(a->x, UINT64_MAX);
    exprs_copy(a->x, x, roots, 1);
    exprs_restart_work(a->x, limits.step_work_max);
    bool is_live = expr_is_live(a->x, root);
    if (exprs_check(a->x, e))
        goto fail;
    a->n_states = 1;
    a->cap_states = 16;
    a->states = try_calloc(a->cap_states, sizeof(*a->states));
    if (!a->states || state_for(a, is_live ? root : EXPR_NONE) != STATE_START.i)
        goto no_memory;
    *out = a;
    return 0;
no_memory:
    err_set(e, ERR_MEMORY, "no memory for the automaton of a constraint");
fail:
    automaton_free(a);
    return -1;
}

void automaton_free(struct automaton *a)
{
    if (!a)
        return;
    for (uint32_t id = 0; id < a->n_states && a->states; id++)
        drop_row(a, &a->states[id]);
    mem_free(a->states);
    mem_free(a->partitions);
    u64_map_free(a->state_of);
    exprs_free(a->x);
    mem_free(a);
}

void automaton_add_roots(struct automaton *a, struct automaton_roots *r)
{
    r->next = a->roots;
    a->roots = r;
}

void automaton_remove_roots(struct automaton *a, struct automaton_roots *r)
{
    for (struct automaton_roots **at = &a->roots; *at; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            return;
        }
}

/* ---- steps */

state_id automaton_start(const struct automaton *a)
{
    return a->states[STATE_START.i].expr.i ? STATE_START : STATE_DEAD;
}

/* Computes a transition. 0: done; -1: a bound is exceeded. */
static int compute(struct automaton *a, uint32_t id, uint8_t byte, uint32_t *next)
{
    exprs_restart_work(a->x, a->limits.step_work_max);
    struct row *row = row_of(a, id);
    if (!row)
        return -1;
    const struct byte_partition *p = &a->partitions[row->partition];
    uint32_t class = p->class_of[byte];
    if (row->next[class] == NEXT_UNKNOWN) {
        expr_id to = expr_derive(a->x, a->states[id].expr, p->first[class]);
        bool is_live = expr_is_live(a->x, to);
        uint32_t target = is_live ? state_for(a, to) : 0;
        if (exprs_failed(a->x))
            return -1;
        if (is_live && !target) {
            a->is_out_of_memory = true;
            return -1;
        }
        row->next[class] = target;
    }
    *next = row->next[class];
    return 0;
}

/* A transition that is not in the table. If the memory is full, flushes and tries again. */
static state_id step_slow(struct automaton *a, uint32_t id, uint8_t byte)
{
    uint32_t next = 0;

    if (a->is_failed)
        return STATE_DEAD;
    if (table_bytes(a) > a->limits.bytes_max / 4)
        flush(a, id);
    if (!a->is_failed && compute(a, id, byte, &next)) {
        if (exprs_is_full(a->x)) {
            flush(a, id);
            a->is_failed = a->is_failed || compute(a, id, byte, &next);
        } else {
            a->is_failed = true;
        }
    }
    return a->is_failed ? STATE_DEAD : (state_id){ next };
}

state_id automaton_step(struct automaton *a, state_id s, uint8_t byte)
{
    const struct row *row;

    if (!s.i)
        return s;
    row = a->states[s.i].row;
    if (row) {
        uint32_t next = row->next[a->partitions[row->partition].class_of[byte]];
        if (next != NEXT_UNKNOWN)
            return (state_id){ next };
    }
    return step_slow(a, s.i, byte);
}

state_id automaton_run(struct automaton *a, state_id s, struct str text)
{
    for (size_t k = 0; k < text.n && s.i; k++)
        s = automaton_step(a, s, (uint8_t)text.p[k]);
    return s;
}

bool automaton_accepts(const struct automaton *a, state_id s)
{
    return s.i && expr_accepts(a->x, a->states[s.i].expr);
}

bool automaton_permits_all(const struct automaton *a, state_id s)
{
    return expr_eq(a->states[s.i].expr, EXPR_ALL);
}

struct byte_set automaton_next_bytes(struct automaton *a, state_id s)
{
    struct byte_set all = { 0 };

    for (unsigned b = 0; b < 256; b++)
        if (automaton_step(a, s, (uint8_t)b).i)
            byte_set_add(&all, (uint8_t)b);
    return all;
}

int automaton_forced_byte(struct automaton *a, state_id s)
{
    int found = -1;

    if (!s.i || automaton_accepts(a, s))
        return -1;
    for (unsigned b = 0; b < 256; b++)
        if (automaton_step(a, s, (uint8_t)b).i) {
            if (found >= 0)
                return -1;
            found = (int)b;
        }
    return found;
}

int automaton_check(const struct automaton *a, struct err *e)
{
    if (!a->is_failed)
        return 0;
    if (a->is_out_of_memory)
        return err_set(e, ERR_MEMORY, "no memory for the states of a constraint");
    return exprs_check(a->x, e);
}

uint64_t automaton_generation(const struct automaton *a)
{
    return a->generation;
}

size_t automaton_states(const struct automaton *a)
{
    return u64_map_count(a->state_of);
}
