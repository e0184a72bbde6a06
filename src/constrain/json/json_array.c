#include "base/mem.h"
#include "constrain/regular/derive.h"
#include "constrain/json/json_program_in.h"

enum {
    APPLIED_MAX = 512,
    CONTAINS_MAX = 32,
    PREFIX_MAX = 1 << 16,
    SEARCH_STEPS_MAX = 3000 /* items that a search of a completion tries */
};

/* ---- the shape */

static json_lit item_of(const struct json_program *p, uint32_t node, uint64_t at)
{
    const struct schema_node *s = json_node(p, node);

    return (at < s->prefix_items.n ? s->prefix_items.ids[at].i : s->items.i) * 2;
}

/* Without contains and unevaluatedItems. */
static conj_id item_conj(struct json_program *p, const struct shape *s, uint64_t at)
{
    json_lit lits[APPLIED_MAX];
    uint32_t n = 0;

    for (uint32_t k = 0; k < s->n_lits; k++) {
        if (s->lits[k] & 1)
            continue;
        if (n == APPLIED_MAX) {
            json_fail(p, ERR_TOO_LARGE, "too many subschemas apply to one item");
            return CONJ_FALSE;
        }
        lits[n++] = item_of(p, s->lits[k] >> 1, at);
    }
    return json_conj(p, lits, n);
}

/* unevaluatedItems of all nodes that no other keyword evaluates the item for. */
static conj_id add_unevaluated(
    struct json_program *p, const struct shape *s, uint64_t at, conj_id c, uint64_t matches)
{
    uint64_t evaluated = json_inner_scopes(s);

    for (uint32_t k = 0; k < s->n_lits; k++) {
        const struct schema_node *n = json_node(p, s->lits[k] >> 1);
        if (!(s->lits[k] & 1) && (at < n->prefix_items.n || n->items_evaluate))
            evaluated |= s->scopes[k];
    }
    for (uint32_t k = 0; k < s->n_contains; k++)
        if (matches >> k & 1)
            evaluated |= s->contains[k].scopes;
    for (uint32_t k = 0; k < s->n_unevaluated; k++) {
        json_lit l = json_node(p, s->unevaluated[k])->unevaluated_items.i * 2;
        if (!(evaluated >> k & 1))
            c = json_conj_add(p, c, &l, 1);
    }
    return c;
}

static void add_contains(struct json_program *p, struct shape *s, uint32_t lit)
{
    const struct schema_node *n = json_node(p, s->lits[lit] >> 1);
    bool is_negated = s->lits[lit] & 1;

    if (!n->has_contains)
        return;
    if (s->n_contains == CONTAINS_MAX) {
        json_fail(p, ERR_TOO_LARGE, "too many contains keywords apply to one array");
        return;
    }
    s->contains[s->n_contains++] = (struct shape_contains){ .lit = n->contains.i * 2,
        .min = n->min_contains,
        .max = n->max_contains,
        .pending = is_negated ? s->n_pending : NO_ITEM,
        .scopes = n->contains_evaluate && !is_negated ? s->scopes[lit] : 0 };
}

struct shape *json_array_shape(struct json_program *p, const struct alternative *a)
{
    struct shape *s = json_alloc(p, 1, sizeof(*s));

    if (!s)
        return NULL;
    *s = (struct shape){ .kind = KIND_ARRAY,
        .lits = a->lits,
        .scopes = a->scopes,
        .n_lits = a->n,
        .unevaluated = a->unevaluated,
        .n_unevaluated = a->n_unevaluated,
        .n_max = UINT64_MAX };
    s->pending = json_alloc(p, a->n + 1, sizeof(json_lit));
    s->contains = json_alloc(p, CONTAINS_MAX, sizeof(*s->contains));
    for (uint32_t k = 0; k < a->n && !p->is_failed; k++) {
        const struct schema_node *n = json_node(p, a->lits[k] >> 1);
        uint64_t max = n->max_items == UINT64_MAX ? 0 : n->max_items;
        s->n_cap = MAX(s->n_cap, MAX(MAX(n->min_items, max), n->prefix_items.n));
        s->n_prefix = MAX(s->n_prefix, n->prefix_items.n);
        add_contains(p, s, k);
        if (a->lits[k] & 1) {
            s->pending[s->n_pending++] = a->lits[k];
            continue;
        }
        s->is_unique = s->is_unique || n->has_unique_items;
        s->n_min = MAX(s->n_min, n->min_items);
        s->n_max = MIN(s->n_max, n->max_items);
    }
    if (s->n_pending > 64 || s->n_prefix > PREFIX_MAX)
        return json_fail(p, ERR_TOO_LARGE, "too many subschemas apply to one array");
    s->n_cap = MIN(s->n_cap, UINT32_MAX) + 1;
    s->n_words = s->n_contains;
    s->items = json_alloc(p, s->n_prefix + 1, sizeof(conj_id));
    for (uint32_t k = 0; k <= s->n_prefix && !p->is_failed; k++)
        s->items[k] = item_conj(p, s, k);
    return p->is_failed ? NULL : s;
}

/* ---- items */

static void add_option(struct json_program *p, struct member_options *o, struct member_option made)
{
    if (made.child == CONJ_FALSE || json_cost(p, made.child) == COST_NONE)
        return;
    o->is_full = o->is_full || o->n == OPTIONS_MAX;
    if (o->n < OPTIONS_MAX)
        o->all[o->n++] = made;
}

/* Splits the options by whether the item counts for contains[k]. */
static void split_contains(
    struct json_program *p, const struct branch *b, uint32_t k, struct member_options *o)
{
    const struct shape_contains *c = &b->shape->contains[k];
    struct member_options made = { .n = 0 };
    uint64_t count = b->words[k];
    bool is_pending = c->pending != NO_ITEM;
    bool is_exact = is_pending || c->max != UINT64_MAX;

    if (is_pending ? !(b->pending >> c->pending & 1)
                   : count >= c->min && c->max == UINT64_MAX && !c->scopes)
        return;
    made.is_full = o->is_full;
    for (uint32_t i = 0; i < o->n; i++) {
        struct member_option in = o->all[i], out = in;
        json_lit no = lit_not(c->lit);
        in.child = json_conj_add(p, in.child, &c->lit, 1);
        in.matches |= (uint64_t)1 << k;
        if (is_exact)
            out.child = json_conj_add(p, out.child, &no, 1);
        if (is_pending || count < c->max)
            add_option(p, &made, in);
        if (is_exact || in.child != out.child)
            add_option(p, &made, out);
    }
    memcpy(o->all, made.all, made.n * sizeof(*made.all));
    o->n = made.n;
    o->is_full = made.is_full;
}

void json_array_options(
    struct json_program *p, const struct branch *b, uint64_t at, struct member_options *o)
{
    const struct shape *s = b->shape;
    uint32_t n_lits[64] = { 0 };
    json_lit lits[64];
    uint32_t n = 0, kept = 0;

    o->n = 0;
    o->is_full = false;
    if (at >= s->n_max)
        return;
    add_option(p, o,
        (struct member_option){
            .child = s->items[MIN(at, (uint64_t)s->n_prefix)], .pending = b->pending });
    for (uint32_t k = 0; k < s->n_contains; k++)
        split_contains(p, b, k, o);
    for (uint32_t k = 0; k < o->n && s->n_unevaluated; k++) {
        o->all[k].child = add_unevaluated(p, s, at, o->all[k].child, o->all[k].matches);
        if (json_cost(p, o->all[k].child) != COST_NONE)
            o->all[kept++] = o->all[k];
    }
    o->n = s->n_unevaluated ? kept : o->n;
    if (!b->pending)
        return;
    for (uint32_t k = 0; k < s->n_pending; k++)
        if (b->pending >> k & 1) {
            lits[n++] = item_of(p, s->pending[k] >> 1, at);
            n_lits[k] = lits[n - 1] ? 1 : 0;
            n -= !lits[n - 1];
        }
    json_split_pending(p, s, lits, n_lits, o);
}

/* ---- the end */

bool json_array_closes(struct json_program *p, const struct branch *b, uint64_t n)
{
    const struct shape *s = b->shape;
    uint64_t pending = b->pending;

    if (n < s->n_min || n > s->n_max)
        return false;
    for (uint32_t k = 0; k < s->n_contains; k++) {
        const struct shape_contains *c = &s->contains[k];
        bool holds = b->words[k] >= c->min && b->words[k] <= c->max;
        if (c->pending == NO_ITEM && !holds)
            return false;
        if (c->pending != NO_ITEM && !holds)
            pending &= ~((uint64_t)1 << c->pending);
    }
    for (uint32_t k = 0; k < s->n_pending; k++) {
        const struct schema_node *node = json_node(p, s->pending[k] >> 1);
        if (pending >> k & 1 && n >= node->min_items && n <= node->max_items)
            return false;
    }
    return true;
}

uint64_t json_array_count(const struct shape *s, uint32_t k, uint64_t count)
{
    uint64_t max = s->contains[k].max == UINT64_MAX ? 0 : s->contains[k].max;

    return MIN(count, MAX(s->contains[k].min, max) + 1);
}

/* ---- completions: a search over items. Beyond the prefix an item that changes nothing can be
 * repeated, and so can one that counts for contains. */

int option_stack_init(struct option_stack *s, struct err *e)
{
    *s = (struct option_stack){ .all = try_malloc(OPTION_STACK_MAX * sizeof(*s->all)) };
    return s->all ? 0 : err_set(e, ERR_MEMORY, "no memory for searches of a constraint");
}

void option_stack_clear(struct option_stack *s)
{
    mem_free(s->all);
}

/* Pushes the options of item n and returns their number. Only searches inside of a search, which
 * the compilation makes, can exceed the stack. */
static uint32_t push_options(
    struct option_stack *s, struct json_program *p, const struct branch *b, uint64_t n)
{
    struct member_options o;

    json_array_options(p, b, n, &o);
    if (o.n > OPTION_STACK_MAX - s->n) {
        json_fail(p, ERR_TOO_LARGE, "a search for the rest of an array is too deep");
        return 0;
    }
    memcpy(s->all + s->n, o.all, o.n * sizeof(*o.all));
    s->n += o.n;
    s->n_most = MAX(s->n_most, s->n);
    return o.n;
}

struct search {
    struct json_program *p;
    struct option_stack *stack;
    uint32_t steps;
    unsigned depth_max; /* items */
};

static bool counts_are_met(const struct branch *b)
{
    for (uint32_t k = 0; k < b->shape->n_contains; k++)
        if (b->shape->contains[k].pending == NO_ITEM && b->words[k] < b->shape->contains[k].min)
            return false;
    return true;
}

/* Values of the items after the prefix, if they differ; UINT64_MAX: many. */
static uint64_t distinct_items(struct json_program *p, const struct shape *s)
{
    const struct conj *c = p->conjs[s->items[s->n_prefix]];

    if (!s->is_unique || c->n_arrays || c->n_objects || c->n_words == 0)
        return UINT64_MAX;
    return c->n_words == UINT32_MAX ? UINT64_MAX : c->n_words;
}

/* Items n .. n_min - 1 that change nothing. */
static unsigned filler_cost(struct json_program *p, const struct branch *b, uint64_t n)
{
    const struct shape *s = b->shape;
    struct member_options o;
    unsigned most = 0;

    if (s->n_min > s->n_max || s->n_min > distinct_items(p, s))
        return COST_NONE;
    for (; n < s->n_min && most != COST_NONE; n++) {
        unsigned best = COST_NONE;
        json_array_options(p, b, n, &o);
        for (uint32_t k = 0; k < o.n; k++)
            if (!o.all[k].matches && o.all[k].pending == b->pending)
                best = MIN(best, json_cost(p, o.all[k].child));
        most = MAX(most, best);
        if (n >= s->n_prefix)
            break;
    }
    return most;
}

/* Number of times that the item may be repeated to reach the counts. */
static uint64_t repeats(const struct branch *b, const struct member_option *o, uint64_t n)
{
    const struct shape *s = b->shape;
    uint64_t times = UINT64_MAX;

    if (n < s->n_prefix || !o->matches)
        return 1;
    for (uint32_t k = 0; k < s->n_contains; k++) {
        const struct shape_contains *c = &s->contains[k];
        if (!(o->matches >> k & 1))
            continue;
        uint64_t goal = c->pending == NO_ITEM ? c->min : json_array_count(s, k, UINT64_MAX);
        if (b->words[k] < goal)
            times = MIN(times, goal - b->words[k]);
        if (c->pending == NO_ITEM)
            times = MIN(times, c->max - b->words[k]);
    }
    return times == UINT64_MAX ? 1 : MAX(times, 1);
}

static unsigned search_rest(struct search *q, const struct branch *b, uint64_t n, unsigned depth);

static unsigned after_item(struct search *q, const struct branch *b, uint64_t n, unsigned depth,
    const struct member_option *o)
{
    size_t bytes = branch_bytes(b->shape);
    uint64_t room[(sizeof(*b) / sizeof(uint64_t)) + CONTAINS_MAX];
    struct branch *next = (struct branch *)room;
    uint64_t times = repeats(b, o, n);

    memcpy(next, b, bytes);
    next->pending = o->pending;
    for (uint32_t k = 0; k < b->shape->n_contains; k++)
        if (o->matches >> k & 1)
            next->words[k] = json_array_count(b->shape, k, b->words[k] + times);
    return search_rest(q, next, n + times, depth + 1);
}

static bool is_same_state(const struct branch *b, const struct member_option *o, uint64_t n)
{
    return !o->matches && o->pending == b->pending && n >= b->shape->n_prefix;
}

static unsigned search_rest(struct search *q, const struct branch *b, uint64_t n, unsigned depth)
{
    struct json_program *p = q->p;
    uint32_t base = q->stack->n;
    unsigned best = COST_NONE;

    if (json_array_closes(p, b, n))
        return 0;
    if (n > b->shape->n_max || depth > q->depth_max || ++q->steps > SEARCH_STEPS_MAX ||
        !json_work(p, 1))
        return COST_NONE;
    if (n < b->shape->n_min && counts_are_met(b)) {
        if (json_array_closes(p, b, b->shape->n_min))
            best = filler_cost(p, b, n);
        if (!best)
            return best;
    }
    for (uint32_t k = push_options(q->stack, p, b, n); k-- > 0 && best;) {
        /* The options that change the state are first tried from the last. */
        const struct member_option *o = &q->stack->all[base + k];
        if (is_same_state(b, o, n) && n >= b->shape->n_min)
            continue;
        unsigned cost = json_cost(p, o->child);
        if (cost < best)
            best = MIN(best, MAX(cost, after_item(q, b, n, depth, o)));
    }
    q->stack->n = base;
    return best;
}

unsigned json_array_rest(
    struct json_program *p, struct option_stack *stack, const struct branch *b, uint64_t n)
{
    static const uint8_t depths[] = { 1, 2, 3, 5, SEARCH_DEPTH_MAX };
    const struct shape *s = b->shape;
    unsigned best = COST_NONE;

    if (!s->n_contains && !b->pending)
        return n > s->n_max ? COST_NONE : n >= s->n_min ? 0 : filler_cost(p, b, n);
    for (size_t k = 0; k < ARRAY_LEN(depths) && best == COST_NONE; k++) {
        struct search q = { .p = p, .stack = stack, .depth_max = depths[k] };
        best = search_rest(&q, b, n, 0);
    }
    return best;
}
