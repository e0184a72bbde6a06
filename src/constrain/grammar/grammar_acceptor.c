#include "constrain/grammar/grammar_acceptor.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/sorted_ids.h"
#include "constrain/grammar/grammar_acceptor_in.h"

const struct grammar_acceptor_limits grammar_acceptor_limits_default = { 2 * MB,
    { 2 * MB, 1000000 } };

static struct grammar_acceptor *of(struct acceptor *base)
{
    return container_of(base, struct grammar_acceptor, base);
}

/* ---- steps */

static struct symbol symbol_at(const struct grammar_acceptor *a, const struct item *i)
{
    return a->g->t.slots[i->slot];
}

static void step_expr(struct grammar_acceptor *a, const struct item *i, uint8_t byte)
{
    state_id next = automaton_step(a->automaton, (state_id){ i->pos }, byte);

    if (!next.i)
        return;
    /* The state of the empty text has no continuation. */
    if (next.i != a->starts[a->g->t.empty].i)
        closure_add_item(a, (struct item){ i->slot, i->unit, next.i });
    if (automaton_accepts(a->automaton, next))
        closure_reach(a, i->slot + 1, i->unit);
}

/* The step of a sub-acceptor; equal positions are stepped once. */
static pos_id step_sub(struct grammar_acceptor *a, uint32_t k, pos_id from, uint8_t byte)
{
    struct acceptor *sub = a->subs[k];
    struct positions *p = &a->p;
    bool has_mark = false;

    for (uint32_t j = 0; j < a->n_sub_steps; j++)
        if (a->sub_steps[j].sub == k && a->sub_steps[j].from.i == from.i)
            return a->sub_steps[j].to;
    for (uint32_t j = a->below.journal; j < p->n.journal; j++)
        has_mark = has_mark || p->journal[j].sub == k;
    if (!has_mark) {
        if (p->n.journal == p->cap.journal) {
            grammar_acceptor_fail(
                a, ERR_TOO_LARGE, "the positions of the grammar exceed the memory of a choice");
            return POS_DEAD;
        }
        p->journal[p->n.journal++] = (struct journal_entry){ k, sub->ops->mark(sub) };
    }
    pos_id to = sub->ops->step(sub, from, byte);
    if (!to.i && sub->ops->check(sub, &a->err))
        a->is_failed = true;
    a->sub_steps[a->n_sub_steps++] = (struct sub_step){ k, from, to };
    return to;
}

static void step_json(struct grammar_acceptor *a, const struct item *i, uint8_t byte)
{
    uint32_t k = symbol_at(a, i).value;
    pos_id next = step_sub(a, k, (pos_id){ i->pos }, byte);

    if (!next.i || a->is_failed)
        return;
    closure_add_item(a, (struct item){ i->slot, i->unit, next.i });
    if (a->subs[k]->ops->accepts(a->subs[k], next))
        closure_reach(a, i->slot + 1, i->unit);
}

static pos_id acceptor_step(struct acceptor *base, pos_id p, uint8_t byte)
{
    struct grammar_acceptor *a = of(base);
    struct row r = a->p.rows[p.i];

    if (!p.i || a->is_failed)
        return POS_DEAD;
    closure_begin(a);
    for (uint32_t k = r.first; k < r.first + r.n && !a->is_failed; k++) {
        struct item i = a->p.items[k];
        uint32_t kind = symbol_at(a, &i).kind;
        if (kind == SYMBOL_EXPR)
            step_expr(a, &i, byte);
        else if (kind == SYMBOL_JSON)
            step_json(a, &i, byte);
    }
    return closure_end(a);
}

/* ---- control tokens */

static bool set_has(const struct token_set *s, int32_t token)
{
    return sorted_ids_has(s->ids, s->n, token);
}

static pos_id acceptor_step_token(struct acceptor *base, pos_id p, int32_t token)
{
    struct grammar_acceptor *a = of(base);
    struct row r = a->p.rows[p.i];

    if (!p.i || a->is_failed)
        return POS_DEAD;
    closure_begin(a);
    for (uint32_t k = r.first; k < r.first + r.n && !a->is_failed; k++) {
        struct item i = a->p.items[k];
        struct symbol s = symbol_at(a, &i);
        if (s.kind == SYMBOL_TOKENS && set_has(&a->g->sets[s.value], token))
            closure_reach(a, i.slot + 1, i.unit);
    }
    return closure_end(a);
}

/* True if an item before number `end` of the row has a set with the token. */
static bool is_listed(
    const struct grammar_acceptor *a, const struct row *r, uint32_t end, int32_t token)
{
    for (uint32_t k = r->first; k < end; k++) {
        struct symbol s = symbol_at(a, &a->p.items[k]);
        if (s.kind == SYMBOL_TOKENS && set_has(&a->g->sets[s.value], token))
            return true;
    }
    return false;
}

static size_t acceptor_tokens(struct acceptor *base, pos_id p, int32_t *ids, size_t cap)
{
    struct grammar_acceptor *a = of(base);
    const struct row *r = &a->p.rows[p.i];
    size_t n = 0;

    for (uint32_t k = r->first; p.i && k < r->first + r->n; k++) {
        struct symbol s = symbol_at(a, &a->p.items[k]);
        for (uint32_t j = 0; s.kind == SYMBOL_TOKENS && j < a->g->sets[s.value].n; j++) {
            int32_t id = a->g->sets[s.value].ids[j];
            if (is_listed(a, r, k, id))
                continue;
            if (n < cap)
                ids[n] = id;
            n++;
        }
    }
    return n;
}

/* ---- properties of a position */

static bool acceptor_accepts(struct acceptor *base, pos_id p)
{
    return p.i && of(base)->p.rows[p.i].accepts;
}

static struct byte_set acceptor_next_bytes(struct acceptor *base, pos_id p)
{
    struct grammar_acceptor *a = of(base);
    const struct row *r = &a->p.rows[p.i];
    struct byte_set all = { 0 };

    for (uint32_t k = r->first; p.i && !a->is_failed && k < r->first + r->n; k++) {
        const struct item *i = &a->p.items[k];
        struct symbol s = symbol_at(a, i);
        struct byte_set next = { 0 };
        if (s.kind == SYMBOL_EXPR)
            next = automaton_next_bytes(a->automaton, (state_id){ i->pos });
        else if (s.kind == SYMBOL_JSON)
            next = a->subs[s.value]->ops->next_bytes(a->subs[s.value], (pos_id){ i->pos });
        for (int w = 0; w < 4; w++)
            all.w[w] |= next.w[w];
    }
    if (automaton_check(a->automaton, &a->err))
        a->is_failed = true;
    return all;
}

static bool acceptor_permits_all(struct acceptor *base, pos_id p)
{
    struct grammar_acceptor *a = of(base);
    const struct row *r = &a->p.rows[p.i];
    const struct item *i = &a->p.items[r->first];

    return p.i && r->n == 1 && r->accepts && symbol_at(a, i).kind == SYMBOL_EXPR &&
           automaton_permits_all(a->automaton, (state_id){ i->pos });
}

static uint64_t acceptor_key(struct acceptor *base, pos_id p)
{
    struct grammar_acceptor *a = of(base);
    const struct row *r = &a->p.rows[p.i];
    uint64_t h = a->p.seed + r->accepts;

    if (!p.i)
        return 0;
    for (uint32_t k = r->first; k < r->first + r->n; k++) {
        const struct item *i = &a->p.items[k];
        struct symbol s = symbol_at(a, i);
        uint64_t pos = i->pos;
        if (s.kind == SYMBOL_JSON) {
            struct acceptor *sub = a->subs[s.value];
            pos = sub->ops->key ? sub->ops->key(sub, (pos_id){ i->pos }) : 0;
            if (!pos)
                return 0;
        }
        /* Items of one row are sorted by numbers of units, which differ between equal positions:
         * the sum does not depend on the order. */
        h += hash_mix(hash_fold(hash_fold(i->slot, pos), a->p.units[i->unit].hash));
    }
    return h | 1;
}

static uint64_t acceptor_generation(struct acceptor *base)
{
    struct grammar_acceptor *a = of(base);
    uint64_t sum = automaton_generation(a->automaton);

    for (uint32_t k = 0; k < a->p.n_subs; k++)
        if (a->subs[k]->ops->generation)
            sum += a->subs[k]->ops->generation(a->subs[k]);
    return sum;
}

/* ---- memory */

static uint32_t acceptor_mark(struct acceptor *base)
{
    return of(base)->p.n_rows;
}

static void acceptor_release(struct acceptor *base, uint32_t mark)
{
    struct grammar_acceptor *a = of(base);

    positions_release(&a->p, mark);
    a->position_roots.n = a->p.n.items;
}

static pos_id acceptor_keep(struct acceptor *base, uint32_t mark, pos_id p)
{
    struct grammar_acceptor *a = of(base);

    if (!p.i) {
        acceptor_release(base, mark);
        return p;
    }
    p.i = positions_keep(&a->p, mark, p.i);
    a->position_roots.n = a->p.n.items;
    return p;
}

static int acceptor_check(const struct acceptor *base, struct err *e)
{
    const struct grammar_acceptor *a =
        container_of((struct acceptor *)(uintptr_t)base, struct grammar_acceptor, base);

    if (!a->is_failed)
        return 0;
    *e = a->err;
    return -1;
}

static size_t acceptor_bytes(const struct acceptor *base)
{
    const struct grammar_acceptor *a =
        container_of((struct acceptor *)(uintptr_t)base, struct grammar_acceptor, base);
    size_t sum = sizeof(*a) + a->p.bytes + automaton_bytes(a->automaton) +
                 a->g->t.n_exprs * sizeof(*a->starts) +
                 GRAMMAR_ITEMS_MAX * (sizeof(*a->items) + sizeof(*a->states)) +
                 GRAMMAR_TASKS_MAX * (sizeof(*a->tasks) + sizeof(*a->calls) + sizeof(*a->callers) +
                                         sizeof(*a->sub_steps)) +
                 VISITED_SLOTS * sizeof(*a->visited) + REACH_SLOTS * sizeof(*a->reach);

    sum += grammar_completion_bytes(a);
    for (uint32_t k = 0; k < a->p.n_subs; k++)
        sum += a->subs[k]->ops->bytes(a->subs[k]);
    return sum;
}

static void acceptor_free_all(struct acceptor *base)
{
    struct grammar_acceptor *a = of(base);

    grammar_completion_free(a);
    for (uint32_t k = 0; a->subs && k < grammar_json_count(a->g); k++)
        if (a->subs[k])
            a->subs[k]->ops->free(a->subs[k]);
    automaton_free(a->automaton);
    positions_clear(&a->p);
    mem_free(a->subs);
    mem_free(a->starts);
    mem_free(a->items);
    mem_free(a->states);
    mem_free(a->tasks);
    mem_free(a->visited);
    mem_free(a->calls);
    mem_free(a->callers);
    mem_free(a->sub_steps);
    mem_free(a->reach);
    mem_free(a);
}

static const struct acceptor_ops ops = {
    .free = acceptor_free_all,
    .step = acceptor_step,
    .step_token = acceptor_step_token,
    .tokens = acceptor_tokens,
    .accepts = acceptor_accepts,
    .next_bytes = acceptor_next_bytes,
    .reach = grammar_acceptor_reach,
    .permits_all = acceptor_permits_all,
    .completion_new = grammar_completion_new,
    .completion = grammar_completion,
    .key = acceptor_key,
    .generation = acceptor_generation,
    .mark = acceptor_mark,
    .release = acceptor_release,
    .keep = acceptor_keep,
    .check = acceptor_check,
    .bytes = acceptor_bytes,
};

/* ---- construction */

static int allocate(struct grammar_acceptor *a, const struct grammar_acceptor_limits *l)
{
    uint32_t n_subs = grammar_json_count(a->g);

    if (positions_init(&a->p, l->bytes_max, a->g->t.slots, a->subs, n_subs))
        return -1;
    a->starts = try_calloc(MAX(a->g->t.n_exprs, 1u), sizeof(*a->starts));
    a->items = try_calloc(GRAMMAR_ITEMS_MAX, sizeof(*a->items));
    a->states = try_calloc(GRAMMAR_ITEMS_MAX, sizeof(*a->states));
    a->tasks = try_calloc(GRAMMAR_TASKS_MAX, sizeof(*a->tasks));
    a->visited = try_calloc(VISITED_SLOTS, sizeof(*a->visited));
    a->calls = try_calloc(GRAMMAR_TASKS_MAX, sizeof(*a->calls));
    a->callers = try_calloc(GRAMMAR_TASKS_MAX, sizeof(*a->callers));
    a->sub_steps = try_calloc(GRAMMAR_ITEMS_MAX, sizeof(*a->sub_steps));
    a->reach = try_calloc(REACH_SLOTS, sizeof(*a->reach));
    return a->starts && a->items && a->states && a->tasks && a->visited && a->calls && a->callers &&
                   a->sub_steps && a->reach
               ? 0
               : -1;
}

/* The start: slot 0 in a unit without callers. */
static int make_start(struct grammar_acceptor *a)
{
    uint8_t code[GRAMMAR_CODE_BYTES];

    a->position_roots = (struct automaton_roots){ .ids = a->p.states };
    a->start_roots = (struct automaton_roots){ .ids = a->starts, .n = a->g->t.n_exprs };
    a->new_roots = (struct automaton_roots){ .ids = a->states };
    automaton_add_roots(a->automaton, &a->position_roots);
    automaton_add_roots(a->automaton, &a->start_roots);
    automaton_add_roots(a->automaton, &a->new_roots);
    grammar_code(a->g->t.empty, code);
    a->starts[a->g->t.empty] =
        automaton_run(a->automaton, STATE_START, (struct str){ (const char *)code, sizeof(code) });
    uint32_t unit = positions_unit(&a->p, a->g->t.rules[0].component, NULL, 0);
    closure_begin(a);
    a->below = (struct heights){ 0 };
    closure_reach(a, 0, unit);
    pos_id start = closure_end(a);
    CHECK(a->is_failed || start.i == POS_START.i);
    a->position_roots.n = a->p.n.items;
    return a->is_failed ? -1 : 0;
}

int grammar_acceptor_new(struct acceptor **out, const struct grammar *g,
    const struct grammar_acceptor_limits *l, struct acceptor *const *take_subs, struct err *e)
{
    uint32_t n_subs = grammar_json_count(g);
    struct grammar_acceptor *a = try_calloc(1, sizeof(*a));
    struct acceptor **subs = try_calloc(MAX(n_subs, 1u), sizeof(*subs));

    if (!a || !subs) {
        for (uint32_t k = 0; k < n_subs; k++)
            take_subs[k]->ops->free(take_subs[k]);
        mem_free(a);
        mem_free(subs);
        return err_set(e, ERR_MEMORY, "no memory for the state of a grammar");
    }
    if (n_subs)
        memcpy(subs, take_subs, n_subs * sizeof(*subs));
    a->base.ops = &ops;
    a->g = g;
    a->subs = subs;
    if (automaton_new(&a->automaton, g->x, (expr_id){ g->t.codes }, l->automaton, e))
        goto fail;
    if (allocate(a, l)) {
        err_set(e, ERR_MEMORY, "no memory for the state of a grammar");
        goto fail;
    }
    if (make_start(a)) {
        *e = a->err;
        goto fail;
    }
    *out = &a->base;
    return 0;
fail:
    acceptor_free_all(&a->base);
    return -1;
}
