/* The closure of a position: completion and prediction.
 *
 * Calls are collected by component, and a component is predicted when all calls of components with
 * higher numbers are done: then all of its callers are known, and its unit can be looked up. Rules
 * that are called within the component at their left corner are predicted with it; these callers
 * are listed in the grammar. */
#include "base/hash.h"
#include "constrain/grammar/grammar_acceptor_in.h"

#include <stdlib.h>

void grammar_acceptor_fail(struct grammar_acceptor *a, enum errcode code, const char *what)
{
    if (!a->is_failed)
        err_set(&a->err, code, "%s", what);
    a->is_failed = true;
}

static void fail_items(struct grammar_acceptor *a)
{
    grammar_acceptor_fail(a, ERR_TOO_LARGE,
        "the grammar is too ambiguous: a position has more than 2000 Earley items");
}

static void fail_memory(struct grammar_acceptor *a)
{
    grammar_acceptor_fail(
        a, ERR_TOO_LARGE, "the positions of the grammar exceed the memory of a choice");
}

/* Counts the work of a step. */
static bool count_work(struct grammar_acceptor *a, uint32_t n)
{
    a->work += n;
    if (a->work > CLOSURE_WORK_MAX)
        fail_items(a);
    return !a->is_failed;
}

/* Adds the task, unless the closure has done it before. */
static void add_task(struct grammar_acceptor *a, struct task t)
{
    uint64_t h = hash_fold(((uint64_t)t.slot << 32) | t.unit, t.rule);
    uint32_t at = (uint32_t)(h >> 32) % VISITED_SLOTS;

    for (; a->visited[at].step == a->n_steps; at = (at + 1) % VISITED_SLOTS) {
        const struct task *v = &a->visited[at].task;
        if (v->slot == t.slot && v->unit == t.unit && v->rule == t.rule)
            return;
    }
    if (a->n_visited == GRAMMAR_TASKS_MAX) {
        fail_items(a);
        return;
    }
    a->n_visited++;
    a->visited[at] = (struct visited){ t, a->n_steps };
    a->tasks[a->n_tasks++] = t;
}

void closure_reach(struct grammar_acceptor *a, uint32_t slot, uint32_t unit)
{
    add_task(a, (struct task){ NO_RULE, slot, unit });
}

void closure_add_item(struct grammar_acceptor *a, struct item i)
{
    if (a->n_items == GRAMMAR_ITEMS_MAX) {
        fail_items(a);
        return;
    }
    a->items[a->n_items] = i;
    a->states[a->n_items].i = i.pos;
    a->n_items++;
    a->new_roots.n = a->n_items;
}

void closure_begin(struct grammar_acceptor *a)
{
    if (++a->n_steps == 0) { /* the numbers begin again */
        memset(a->visited, 0, VISITED_SLOTS * sizeof(*a->visited));
        a->n_steps = 1;
    }
    a->below = a->p.n;
    a->n_items = a->n_tasks = a->n_visited = a->n_calls = a->n_sub_steps = a->work = 0;
    a->new_roots.n = 0;
    a->accepts = false;
}

/* ---- calls, by component */

static void push_call(struct grammar_acceptor *a, struct call c)
{
    uint32_t at = a->n_calls++;

    while (at && a->calls[(at - 1) / 2].component < c.component) {
        a->calls[at] = a->calls[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    a->calls[at] = c;
}

static struct call pop_call(struct grammar_acceptor *a)
{
    struct call top = a->calls[0], last = a->calls[--a->n_calls];
    uint32_t at = 0;

    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < a->n_calls && a->calls[child + 1].component > a->calls[child].component)
            child++;
        if (child >= a->n_calls || a->calls[child].component <= last.component)
            break;
        a->calls[at] = a->calls[child];
        at = child;
    }
    a->calls[at] = last;
    return top;
}

/* ---- tasks */

/* Adds the tasks that follow a complete rule of the unit, with `called`: NO_RULE for completion. */
static void add_callers(struct grammar_acceptor *a, uint32_t rule, uint32_t unit, uint32_t called)
{
    const struct compiled_rule *r = &a->g->t.rules[rule];
    struct unit u = a->p.units[unit];

    if (!count_work(a, u.n + r->n_callers))
        return;
    for (uint32_t k = u.first; k < u.first + u.n && !a->is_failed; k++)
        if (a->p.callers[k].rule == rule)
            add_task(a, (struct task){ called, a->p.callers[k].slot, a->p.callers[k].unit });
    for (uint32_t k = 0; k < r->n_callers && !a->is_failed; k++)
        add_task(a, (struct task){ called, a->g->t.callers[r->first_caller + k], unit });
}

/* A call at the end of an alternative returns to the callers of its rule. */
static void call_rule(struct grammar_acceptor *a, const struct task *t)
{
    struct symbol after = a->g->t.slots[t->slot];

    if (after.kind == SYMBOL_END && after.value)
        add_callers(a, after.value, t->unit, t->rule);
    else
        push_call(
            a, (struct call){ a->g->t.rules[t->rule].component, { t->rule, t->slot, t->unit } });
}

state_id grammar_expr_start(struct grammar_acceptor *a, uint32_t k)
{
    uint8_t code[GRAMMAR_CODE_BYTES];

    if (!a->starts[k].i) {
        grammar_code(k, code);
        a->starts[k] = automaton_run(
            a->automaton, STATE_START, (struct str){ (const char *)code, sizeof(code) });
    }
    return a->starts[k];
}

/* An item before its first byte. */
static void add_start(struct grammar_acceptor *a, uint32_t slot, uint32_t unit)
{
    struct symbol s = a->g->t.slots[slot];
    struct item i = { slot, unit, 0 };

    if (s.kind == SYMBOL_EXPR) {
        if (s.value == a->g->t.empty)
            return;
        i.pos = grammar_expr_start(a, s.value).i;
        if (!i.pos) /* a bound of the automaton is exceeded */
            return;
    } else if (s.kind == SYMBOL_JSON) {
        i.pos = POS_START.i;
    }
    closure_add_item(a, i);
}

static void do_task(struct grammar_acceptor *a, const struct task *t)
{
    const struct grammar_tables *tables = &a->g->t;
    struct symbol s = tables->slots[t->slot];
    bool is_nullable = false;

    if (t->rule != NO_RULE) {
        call_rule(a, t);
        return;
    }
    switch ((enum symbol_kind)s.kind) {
    case SYMBOL_END:
        a->accepts = a->accepts || !s.value;
        if (s.value)
            add_callers(a, s.value, t->unit, NO_RULE);
        return;
    case SYMBOL_RULE:
        is_nullable = tables->rules[s.value].is_nullable;
        add_task(a, (struct task){ s.value, t->slot + 1, t->unit });
        break;
    case SYMBOL_EXPR:
        is_nullable = tables->expr_is_nullable[s.value];
        add_start(a, t->slot, t->unit);
        break;
    case SYMBOL_JSON:
    case SYMBOL_TOKENS:
        add_start(a, t->slot, t->unit);
        break;
    }
    if (is_nullable)
        closure_reach(a, t->slot + 1, t->unit);
}

/* ---- prediction */

static int by_caller(const void *a, const void *b)
{
    const struct caller *x = a, *y = b;

    if (x->rule != y->rule)
        return x->rule < y->rule ? -1 : 1;
    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    return (x->unit > y->unit) - (x->unit < y->unit);
}

/* Predicts the component with the highest number: all of its callers are known. */
static void predict(struct grammar_acceptor *a)
{
    const struct grammar_tables *t = &a->g->t;
    uint32_t component = a->calls[0].component, n = 0;

    while (a->n_calls && a->calls[0].component == component)
        a->callers[n++] = pop_call(a).caller;
    if (n > 1)
        qsort(a->callers, n, sizeof(*a->callers), by_caller);
    uint32_t unit = positions_unit(&a->p, component, a->callers, n);
    if (unit == UINT32_MAX) {
        fail_memory(a);
        return;
    }
    const struct component *c = &t->components[component];
    if (!count_work(a, c->n_items + c->n_calls))
        return;
    for (uint32_t k = 0; k < c->n_items && !a->is_failed; k++)
        add_start(a, t->items[c->first_item + k], unit);
    for (uint32_t k = 0; k < c->n_calls && !a->is_failed; k++) {
        uint32_t slot = t->calls[c->first_call + k];
        add_task(a, (struct task){ t->slots[slot].value, slot + 1, unit });
    }
}

static int by_item(const void *a, const void *b)
{
    const struct item *x = a, *y = b;

    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    if (x->unit != y->unit)
        return x->unit < y->unit ? -1 : 1;
    return (x->pos > y->pos) - (x->pos < y->pos);
}

static void sort_items(struct grammar_acceptor *a)
{
    uint32_t n = 0;

    if (a->n_items < 2)
        return;
    qsort(a->items, a->n_items, sizeof(*a->items), by_item);
    for (uint32_t k = 0; k < a->n_items; k++)
        if (!n || by_item(&a->items[n - 1], &a->items[k]))
            a->items[n++] = a->items[k];
    a->n_items = n;
}

pos_id closure_end(struct grammar_acceptor *a)
{
    while ((a->n_tasks || a->n_calls) && !a->is_failed) {
        if (a->n_tasks) {
            struct task t = a->tasks[--a->n_tasks];
            do_task(a, &t);
        } else {
            predict(a);
        }
    }
    if (automaton_check(a->automaton, &a->err))
        a->is_failed = true;
    uint32_t row = 0;
    if (!a->is_failed && (a->n_items || a->accepts)) {
        sort_items(a);
        row = positions_row(&a->p, a->items, a->n_items, a->accepts, &a->below);
        if (!row)
            fail_memory(a);
    }
    if (!row)
        positions_cut(&a->p, &a->below);
    a->position_roots.n = a->p.n.items;
    a->new_roots.n = 0;
    return (pos_id){ row };
}
