/* Completions of grammars (acceptor_ops.completion): the shortest text after a position.
 *
 *     slots[s]       elements from the slot to the end of its alternative: a least fixpoint
 *     exits of unit  elements from the end of each rule of the unit to the end of the text
 *
 * An item needs the rest of its symbol, slots[] of the slot after it, and the exit of its rule. Of
 * the items that need the least, the one whose first element precedes is chosen. A control token is
 * one element. */
#include "base/mem.h"
#include "constrain/grammar/grammar_acceptor_in.h"
#include "constrain/regular/shortest.h"

#include <stdlib.h>

enum {
    LENGTH_NONE = 1 << 28,
    VALUE_MAX = 1 << 16, /* bytes of the completion of a JSON value */
    VALUES = 1024,       /* stored lengths of values, direct-mapped */
    EXITS_MAX = 1 << 14,
    ROUNDS_MAX = 1000
};

struct value_length {
    uint64_t key; /* 0: unused */
    uint32_t sub, length;
};

struct grammar_lengths {
    struct shortest *shortest;
    uint32_t *slots;     /* [n_slots] */
    uint32_t *rule_of;   /* [n_slots] rule of the alternative */
    uint32_t *rules;     /* [n_rules] shortest texts */
    uint32_t *index;     /* [n_rules] number within its component */
    uint32_t *n_rules;   /* [n_components] */
    uint64_t generation; /* of `values` */
    struct value_length values[VALUES];

    /* The units that the items reach, and their exits. */
    uint32_t *stamp, *first; /* [cap.units] number of the query; the first exit of the unit */
    uint32_t n_query;
    uint32_t *units; /* [EXITS_MAX] */
    uint32_t n_units;
    uint32_t exits[EXITS_MAX], n_exits;
};

static uint32_t add(uint32_t a, uint32_t b)
{
    return MIN(a + b, (uint32_t)LENGTH_NONE);
}

/* ---- symbols */

/* Bytes of the completion of a JSON value. Those after each of its bytes are stored, too. */
static uint32_t value_length(struct grammar_acceptor *a, uint32_t k, pos_id p)
{
    struct acceptor *sub = a->subs[k];
    struct grammar_lengths *l = a->lengths;
    uint64_t generation = sub->ops->generation(sub), key = sub->ops->key(sub, p);
    uint32_t mark = sub->ops->mark(sub), n = 0;
    int32_t byte = COMPLETION_NONE;

    if (l->generation != generation) {
        l->generation = generation;
        memset(l->values, 0, sizeof(l->values));
    }
    struct value_length *known = &l->values[(key ^ k) % VALUES];
    if (key && known->key == key && known->sub == k)
        return known->length;
    for (pos_id at = p; n < VALUE_MAX; n++) {
        byte = sub->ops->completion(sub, at);
        if (byte < 0)
            break;
        at = sub->ops->step(sub, at, (uint8_t)byte);
    }
    sub->ops->release(sub, mark);
    uint32_t length = byte == COMPLETION_END ? n : (uint32_t)LENGTH_NONE;
    /* The lengths after the next bytes follow from this one. */
    for (uint32_t k2 = 0; length != LENGTH_NONE && key && k2 <= n; k2++) {
        if (generation != sub->ops->generation(sub))
            break;
        l->values[(key ^ k) % VALUES] = (struct value_length){ key, k, n - k2 };
        byte = k2 < n ? sub->ops->completion(sub, p) : COMPLETION_END;
        if (byte < 0)
            break;
        p = sub->ops->step(sub, p, (uint8_t)byte);
        key = sub->ops->key(sub, p);
    }
    sub->ops->release(sub, mark);
    return length;
}

static uint32_t expr_length(struct grammar_acceptor *a, uint32_t k)
{
    uint32_t n =
        k == a->g->t.empty ? 0 : shortest_length(a->lengths->shortest, grammar_expr_start(a, k));

    return MIN(n, (uint32_t)LENGTH_NONE);
}

static uint32_t symbol_length(struct grammar_acceptor *a, struct symbol s)
{
    switch ((enum symbol_kind)s.kind) {
    case SYMBOL_EXPR:
        return expr_length(a, s.value);
    case SYMBOL_JSON:
        return value_length(a, s.value, POS_START);
    case SYMBOL_TOKENS:
        return 1;
    case SYMBOL_RULE:
        return a->lengths->rules[s.value];
    case SYMBOL_END:
        break;
    }
    return 0;
}

/* ---- tables */

/* True if a rule became shorter. */
static bool relax_rules(struct grammar_acceptor *a)
{
    const struct grammar_tables *t = &a->g->t;
    struct grammar_lengths *l = a->lengths;
    bool has_changed = false;

    for (uint32_t s = t->n_slots; s-- > 0;) {
        struct symbol at = t->slots[s];
        l->slots[s] = at.kind == SYMBOL_END ? 0 : add(symbol_length(a, at), l->slots[s + 1]);
        bool begins = s == 0 || t->slots[s - 1].kind == SYMBOL_END;
        uint32_t *rule = &l->rules[l->rule_of[s]];
        if (begins && l->slots[s] < *rule) {
            *rule = l->slots[s];
            has_changed = true;
        }
    }
    return has_changed;
}

static void compute_tables(struct grammar_acceptor *a)
{
    const struct grammar_tables *t = &a->g->t;
    struct grammar_lengths *l = a->lengths;

    for (uint32_t s = t->n_slots; s-- > 0;)
        l->rule_of[s] = t->slots[s].kind == SYMBOL_END ? t->slots[s].value : l->rule_of[s + 1];
    for (uint32_t r = 0; r < t->n_rules; r++) {
        l->rules[r] = LENGTH_NONE;
        l->index[r] = l->n_rules[t->rules[r].component]++;
    }
    for (int round = 0; round < ROUNDS_MAX && relax_rules(a); round++)
        continue;
}

static int allocate(struct grammar_acceptor *a)
{
    const struct grammar_tables *t = &a->g->t;
    struct grammar_lengths *l = a->lengths = try_calloc(1, sizeof(*l));

    if (!l)
        return -1;
    l->slots = try_calloc(t->n_slots + (size_t)1, sizeof(uint32_t));
    l->rule_of = try_calloc(t->n_slots + (size_t)1, sizeof(uint32_t));
    l->rules = try_calloc(MAX(t->n_rules, 1u), sizeof(uint32_t));
    l->index = try_calloc(MAX(t->n_rules, 1u), sizeof(uint32_t));
    l->n_rules = try_calloc(MAX(t->n_components, 1u), sizeof(uint32_t));
    l->stamp = try_calloc(a->p.cap.units + (size_t)1, sizeof(uint32_t));
    l->first = try_calloc(a->p.cap.units + (size_t)1, sizeof(uint32_t));
    l->units = try_calloc(EXITS_MAX, sizeof(uint32_t));
    return l->slots && l->rule_of && l->rules && l->index && l->n_rules && l->stamp && l->first &&
                   l->units
               ? 0
               : -1;
}

int grammar_completion_new(struct acceptor *base, struct err *e)
{
    struct grammar_acceptor *a = container_of(base, struct grammar_acceptor, base);

    if (allocate(a))
        return err_set(e, ERR_MEMORY, "no memory for the state of a constraint");
    for (uint32_t k = 0; k < a->p.n_subs; k++)
        if (a->subs[k]->ops->completion_new(a->subs[k], e))
            return -1;
    if (shortest_new(&a->lengths->shortest, a->automaton, e))
        return -1;
    compute_tables(a);
    return base->ops->check(base, e);
}

void grammar_completion_free(struct grammar_acceptor *a)
{
    struct grammar_lengths *l = a->lengths;

    if (!l)
        return;
    shortest_free(l->shortest);
    mem_free(l->slots);
    mem_free(l->rule_of);
    mem_free(l->rules);
    mem_free(l->index);
    mem_free(l->n_rules);
    mem_free(l->stamp);
    mem_free(l->first);
    mem_free(l->units);
    mem_free(l);
}

size_t grammar_completion_bytes(const struct grammar_acceptor *a)
{
    const struct grammar_tables *t = &a->g->t;
    size_t words = 2 * (size_t)t->n_slots + 2 * (size_t)t->n_rules + t->n_components +
                   2 * (size_t)a->p.cap.units + EXITS_MAX;

    return a->lengths ? sizeof(*a->lengths) + shortest_bytes() + words * sizeof(uint32_t) : 0;
}

/* ---- exits */

static void list_unit(struct grammar_lengths *l, uint32_t unit)
{
    if (l->stamp[unit] == l->n_query || l->n_units == EXITS_MAX)
        return;
    l->stamp[unit] = l->n_query;
    l->first[unit] = LENGTH_NONE; /* not computed */
    l->units[l->n_units++] = unit;
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static uint32_t exit_of(const struct grammar_lengths *l, uint32_t unit, uint32_t rule)
{
    if (!rule)
        return 0; /* the start: the text ends */
    return l->first[unit] == LENGTH_NONE ? (uint32_t)LENGTH_NONE
                                         : l->exits[l->first[unit] + l->index[rule]];
}

static uint32_t after_slot(const struct grammar_lengths *l, uint32_t slot, uint32_t unit)
{
    return add(l->slots[slot], exit_of(l, unit, l->rule_of[slot]));
}

/* Callers within the component: until nothing becomes shorter. */
static void relax_exits(struct grammar_acceptor *a, uint32_t unit, uint32_t component)
{
    const struct grammar_tables *t = &a->g->t;
    struct grammar_lengths *l = a->lengths;
    bool has_changed = true;

    while (has_changed) {
        has_changed = false;
        for (uint32_t r = 0; r < t->n_rules; r++) {
            if (t->rules[r].component != component)
                continue;
            uint32_t *exit = &l->exits[l->first[unit] + l->index[r]];
            for (uint32_t k = 0; k < t->rules[r].n_callers; k++) {
                uint32_t n = after_slot(l, t->callers[t->rules[r].first_caller + k], unit);
                has_changed = has_changed || n < *exit;
                *exit = MIN(*exit, n);
            }
        }
    }
}

/* The exits of a unit; those of its callers are computed. */
static void compute_exits(struct grammar_acceptor *a, uint32_t unit)
{
    struct grammar_lengths *l = a->lengths;
    const struct unit *u = &a->p.units[unit];
    uint32_t n = l->n_rules[u->component];

    if (n > EXITS_MAX - l->n_exits)
        return;
    l->first[unit] = l->n_exits;
    l->n_exits += n;
    for (uint32_t k = 0; k < n; k++)
        l->exits[l->first[unit] + k] = LENGTH_NONE;
    for (uint32_t k = u->first; k < u->first + u->n; k++) {
        const struct caller *c = &a->p.callers[k];
        uint32_t *exit = &l->exits[l->first[unit] + l->index[c->rule]];
        *exit = MIN(*exit, after_slot(l, c->slot, c->unit));
    }
    relax_exits(a, unit, u->component);
}

/* The exits of all units that the items of the row reach. Callers have smaller numbers. */
static void compute_all_exits(struct grammar_acceptor *a, const struct row *r)
{
    struct grammar_lengths *l = a->lengths;

    l->n_query++;
    l->n_units = l->n_exits = 0;
    for (uint32_t k = r->first; k < r->first + r->n; k++)
        list_unit(l, a->p.items[k].unit);
    for (uint32_t k = 0; k < l->n_units; k++) {
        const struct unit *u = &a->p.units[l->units[k]];
        for (uint32_t j = u->first; j < u->first + u->n; j++)
            list_unit(l, a->p.callers[j].unit);
    }
    qsort(l->units, l->n_units, sizeof(*l->units), ascending);
    for (uint32_t k = 0; k < l->n_units; k++)
        compute_exits(a, l->units[k]);
}

/* ---- the next element */

/* Elements up to the end of the item's symbol; 0: other items continue after it. */
static uint32_t item_length(struct grammar_acceptor *a, const struct item *i, struct symbol s)
{
    uint32_t n = s.kind == SYMBOL_EXPR ? shortest_length(a->lengths->shortest, (state_id){ i->pos })
                 : s.kind == SYMBOL_JSON ? value_length(a, s.value, (pos_id){ i->pos })
                                         : 1;

    return MIN(n, (uint32_t)LENGTH_NONE);
}

static int32_t first_element(struct grammar_acceptor *a, const struct item *i, struct symbol s)
{
    if (s.kind == SYMBOL_EXPR)
        return shortest_first(a->lengths->shortest, (state_id){ i->pos });
    if (s.kind == SYMBOL_JSON)
        return a->subs[s.value]->ops->completion(a->subs[s.value], (pos_id){ i->pos });
    return COMPLETION_TOKEN + a->g->sets[s.value].ids[0];
}

static unsigned rank_of(int32_t element)
{
    return element < COMPLETION_TOKEN ? byte_rank((uint8_t)element) : (unsigned)element;
}

int32_t grammar_completion(struct acceptor *base, pos_id p)
{
    struct grammar_acceptor *a = container_of(base, struct grammar_acceptor, base);
    const struct row r = a->p.rows[p.i];
    uint32_t least = LENGTH_NONE;
    int32_t best = COMPLETION_NONE;

    if (!p.i || a->is_failed)
        return COMPLETION_NONE;
    if (r.accepts)
        return COMPLETION_END;
    compute_all_exits(a, &r);
    for (uint32_t k = r.first; k < r.first + r.n; k++) {
        struct item i = a->p.items[k];
        struct symbol s = a->g->t.slots[i.slot];
        uint32_t n = item_length(a, &i, s);
        uint32_t length = add(n, after_slot(a->lengths, i.slot + 1, i.unit));
        if (!n || length > least || length == LENGTH_NONE)
            continue;
        int32_t first = first_element(a, &i, s);
        if (first < 0)
            continue;
        if (length < least || rank_of(first) < rank_of(best))
            best = first;
        least = length;
    }
    return best;
}
