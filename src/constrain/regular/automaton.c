#include "constrain/regular/automaton.h"

#include "base/hash.h"
#include "base/mem.h"
#include "constrain/regular/derive.h"
#include "constrain/regular/expr_in.h"
#include "constrain/regular/live.h"

#define NEXT_UNKNOWN UINT32_MAX

enum { PARTITION_SLOTS = 256, CLASSES_MAX = 256, STATES_MIN = 32 };

/* The transitions of a state. */
struct row {
    uint32_t partition;
    uint32_t n;
    uint32_t next[]; /* per class: state, 0 (dead) or NEXT_UNKNOWN */
};

#define ROW_WORDS(n) (sizeof(struct row) / sizeof(uint32_t) + (n))

struct state {
    expr_id expr;    /* EXPR_NONE: unused, or a start without texts */
    uint32_t link;   /* the next unused state; while flushing, the state itself if it is kept */
    struct row *row; /* NULL: no transition is computed */
};

/* All memory is allocated at creation: three eighths each for expressions and for their copy while
 * flushing, a quarter for the tables. */
struct automaton {
    struct automaton_limits limits;
    struct exprs *x, *spare;
    struct state *states;
    uint32_t n_states, cap_states, unused;
    uint32_t n_starts; /* states that are kept */
    uint32_t *slots;   /* hash table of states by expression; 0: free */
    uint32_t n_slots, slots_max, n_in_slots;
    expr_id **kept;                    /* [cap_states] scratch */
    struct byte_partition *partitions; /* direct-mapped by hash while there is room */
    uint32_t n_partitions, cap_partitions;
    uint32_t partition_of[PARTITION_SLOTS]; /* 1 + number; the newest with this hash */
    uint32_t *rows;                         /* [cap_rows] words */
    size_t n_rows, cap_rows;
    struct automaton_roots *roots;
    uint64_t generation;
    bool is_failed, is_full;
};

size_t automaton_bytes(const struct automaton *a)
{
    return sizeof(*a) + exprs_bytes(a->x) + a->n_rows * sizeof(*a->rows) +
           a->n_states * sizeof(*a->states) + a->n_slots * sizeof(*a->slots) +
           a->n_partitions * sizeof(*a->partitions);
}

/* ---- states */

static uint32_t first_slot(const struct automaton *a, expr_id expr)
{
    return (uint32_t)hash_mix(expr.i) & (a->n_slots - 1);
}

/* Number of the state of an expression; 0: there is none. */
static uint32_t find_state(const struct automaton *a, expr_id expr)
{
    uint32_t at = first_slot(a, expr);

    while (a->slots[at] && a->states[a->slots[at]].expr.i != expr.i)
        at = (at + 1) & (a->n_slots - 1);
    return a->slots[at];
}

static void put_slot(struct automaton *a, uint32_t id)
{
    uint32_t at = first_slot(a, a->states[id].expr);

    while (a->slots[at])
        at = (at + 1) & (a->n_slots - 1);
    a->slots[at] = id;
    a->n_in_slots++;
}

/* Enters all states that are in use. */
static void fill_slots(struct automaton *a)
{
    memset(a->slots, 0, a->n_slots * sizeof(*a->slots));
    a->n_in_slots = 0;
    for (uint32_t id = 1; id < a->n_states; id++)
        if (a->states[id].expr.i && !find_state(a, a->states[id].expr))
            put_slot(a, id);
}

/* Number of a state for the expression; 0: there is no room. */
static uint32_t state_for(struct automaton *a, expr_id expr)
{
    uint32_t id = find_state(a, expr);

    if (id)
        return id;
    if (a->unused) {
        id = a->unused;
        a->unused = a->states[id].link;
    } else if (a->n_states < a->cap_states) {
        id = a->n_states++;
    } else {
        return 0;
    }
    a->states[id] = (struct state){ .expr = expr };
    put_slot(a, id);
    if (a->n_in_slots * 2 > a->n_slots && a->n_slots < a->slots_max) {
        a->n_slots *= 2;
        fill_slots(a);
    }
    return id;
}

static bool is_same_partition(const struct byte_partition *p, const struct byte_partition *q)
{
    return p->n == q->n && !memcmp(p->class_of, q->class_of, sizeof(p->class_of));
}

/* Number of the partition; the caller has left room for one. */
static uint32_t partition_number(struct automaton *a, const struct byte_partition *p)
{
    uint32_t *slot =
        &a->partition_of[hash_bytes(0, p->class_of, sizeof(p->class_of)) % PARTITION_SLOTS];

    if (*slot && is_same_partition(&a->partitions[*slot - 1], p))
        return *slot - 1;
    a->partitions[a->n_partitions] = *p;
    *slot = ++a->n_partitions;
    return *slot - 1;
}

/* The transitions of a state, all unknown if new; NULL: a bound is exceeded. The caller has left
 * room for a row. */
static struct row *row_of(struct automaton *a, uint32_t id)
{
    struct byte_partition p;

    if (a->states[id].row)
        return a->states[id].row;
    expr_partition(a->x, a->states[id].expr, &p);
    if (exprs_failed(a->x))
        return NULL;
    struct row *row = (struct row *)(a->rows + a->n_rows);
    a->n_rows += ROW_WORDS(p.n);
    row->partition = partition_number(a, &p);
    row->n = p.n;
    memset(row->next, 0xff, p.n * sizeof(uint32_t));
    a->states[id].row = row;
    return row;
}

/* Room for one more state with its transitions. */
static bool has_room(const struct automaton *a)
{
    return (a->unused || a->n_states < a->cap_states) && a->n_partitions < a->cap_partitions &&
           a->n_rows + ROW_WORDS(CLASSES_MAX) <= a->cap_rows;
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

/* Copies the expressions of the kept states to the other pool; -1: they do not fit. */
static int copy_kept(struct automaton *a)
{
    struct exprs *to = a->spare;
    size_t n = 0;

    exprs_clear(to);
    exprs_restart_work(to, UINT64_MAX);
    for (uint32_t id = 1; id < a->n_states; id++)
        if (a->states[id].link && a->states[id].expr.i)
            a->kept[n++] = &a->states[id].expr;
    /* The ids in the states change; if the copy fails, the automaton has failed. */
    exprs_copy(to, a->x, a->kept, n);
    exprs_move_cache(to, a->x);
    a->spare = a->x;
    a->x = to;
    a->unused = 0;
    for (uint32_t id = 1; id < a->n_states; id++)
        if (!a->states[id].link) {
            a->states[id] = (struct state){ .link = a->unused };
            a->unused = id;
        }
    fill_slots(a);
    return exprs_failed(to) ? -1 : 0;
}

/* Keeps the start, the current state and the roots. */
static void flush(struct automaton *a, uint32_t current)
{
    for (uint32_t id = 0; id < a->n_states; id++)
        a->states[id].row = NULL;
    a->n_rows = 0;
    a->n_partitions = 0;
    memset(a->partition_of, 0, sizeof(a->partition_of));
    mark_kept(a, current);
    if (copy_kept(a))
        a->is_full = a->is_failed = true;
    a->generation++;
}

/* ---- construction */

/* The tables; -1: out of memory, or too little for the starts. */
static int reserve_tables(struct automaton *a, uint32_t n_starts)
{
    size_t bytes = a->limits.bytes_max / 4;

    a->cap_states = (uint32_t)MIN(bytes / 256 + STATES_MIN, (size_t)1 << 24) + n_starts;
    a->slots_max = a->n_slots = 64;
    while (a->slots_max / 4 * 3 < a->cap_states)
        a->slots_max *= 2;
    a->cap_partitions = (uint32_t)MIN(bytes / 4 / sizeof(*a->partitions) + 2, (size_t)UINT16_MAX);
    a->cap_rows = bytes / 2 / sizeof(*a->rows) + ROW_WORDS(CLASSES_MAX);
    a->states = try_malloc(a->cap_states * sizeof(*a->states));
    a->kept = try_malloc(a->cap_states * sizeof(*a->kept));
    a->slots = try_malloc(a->slots_max * sizeof(*a->slots));
    a->partitions = try_malloc(a->cap_partitions * sizeof(*a->partitions));
    a->rows = try_malloc(a->cap_rows * sizeof(*a->rows));
    return a->states && a->kept && a->slots && a->partitions && a->rows ? 0 : -1;
}

/* An automaton without states. */
static struct automaton *reserve(
    const struct exprs *x, uint32_t n_starts, struct automaton_limits limits)
{
    struct automaton *a = try_calloc(1, sizeof(*a));
    struct expr_limits pool = { limits.bytes_max / 8 * 3, limits.step_work_max };

    if (!a)
        return NULL;
    a->limits = limits;
    a->x = exprs_new_fixed(pool, x);
    a->spare = exprs_new_fixed(pool, x);
    if (!a->x || !a->spare || reserve_tables(a, n_starts) || exprs_add_cache(a->x)) {
        automaton_free(a);
        return NULL;
    }
    return a;
}

int automaton_new_many(struct automaton **out, const struct exprs *x, const expr_id *roots,
    uint32_t n, struct automaton_limits limits, struct err *e)
{
    struct automaton *a = exprs_check(x, e) ? NULL : reserve(x, n, limits);

    CHECK(n);
    if (exprs_failed(x))
        return -1;
    if (!a)
        return err_set(e, ERR_MEMORY, "no memory for the automaton of a constraint");
    a->n_states = n + 1;
    a->states[0] = (struct state){ 0 };
    for (uint32_t k = 0; k < n; k++) {
        CHECK(expr_is_pure(x, roots[k]));
        a->states[k + 1] = (struct state){ .expr = roots[k] };
        a->kept[k] = &a->states[k + 1].expr;
    }
    exprs_restart_work(a->x, UINT64_MAX);
    exprs_copy(a->x, x, a->kept, n);
    exprs_restart_work(a->x, limits.step_work_max);
    if (exprs_check(a->x, e)) {
        automaton_free(a);
        return -1;
    }
    while (a->n_slots < 2 * n && a->n_slots < a->slots_max)
        a->n_slots *= 2;
    fill_slots(a);
    *out = a;
    return 0;
}

int automaton_new(struct automaton **out, const struct exprs *x, expr_id root,
    struct automaton_limits limits, struct err *e)
{
    struct automaton *a;

    if (automaton_new_many(&a, x, &root, 1, limits, e))
        return -1;
    if (!expr_is_live(a->x, a->states[STATE_START.i].expr)) {
        a->states[STATE_START.i].expr = EXPR_NONE;
        fill_slots(a);
    }
    if (exprs_check(a->x, e)) {
        automaton_free(a);
        return -1;
    }
    *out = a;
    return 0;
}

void automaton_free(struct automaton *a)
{
    if (!a)
        return;
    mem_free(a->states);
    mem_free(a->kept);
    mem_free(a->slots);
    mem_free(a->partitions);
    mem_free(a->rows);
    exprs_free(a->x);
    exprs_free(a->spare);
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
        if (exprs_failed(a->x))
            return -1;
        uint32_t target = is_live ? state_for(a, to) : 0;
        if (is_live && !target) { /* too many roots */
            a->is_full = true;
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
    if (!has_room(a))
        flush(a, id);
    a->is_full = a->is_full || !has_room(a);
    a->is_failed = a->is_failed || a->is_full;
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

bool automaton_is_final(const struct automaton *a, state_id s)
{
    return expr_eq(a->states[s.i].expr, EXPR_EPS);
}

uint32_t automaton_min_length(const struct automaton *a, state_id s)
{
    return s.i ? node_of(a->x, a->states[s.i].expr)->min_len : MIN_LEN_INF;
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
    if (a->is_full || exprs_is_full(a->x))
        return err_set(e, ERR_TOO_LARGE, "the states of a constraint need more than %zu bytes",
            a->limits.bytes_max);
    return exprs_check(a->x, e);
}

uint64_t automaton_generation(const struct automaton *a)
{
    return a->generation;
}

size_t automaton_states(const struct automaton *a)
{
    return a->n_in_slots;
}
