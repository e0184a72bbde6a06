/* Alternatives of a conjunction: a worklist of partial ones, each a list of literals that are
 * expanded and a stack of items that are not. An item with a choice copies the partial alternative
 * for each possibility. */
#include "base/mem.h"
#include "constrain/json/json_program_in.h"
#include "constrain/regular/live.h"

enum { PARTIALS_MAX = 20000, ALTERNATIVES_MAX = 1024, CHAIN_MAX = 64, UNEVALUATED_MAX = 64 };

enum item_type { ITEM_LIT, ITEM_ANY, ITEM_ONE, ITEM_IF, ITEM_DEP, ITEM_VALUES, ITEM_NOT };

struct item {
    enum item_type type;
    json_lit lit; /* or the node of a choice */
    uint32_t arg; /* number of the dependency */
    uint64_t scopes;
};

struct items {
    struct item *all;
    uint32_t n, cap;
};

struct partial {
    struct items todo, done;
    uint32_t unevaluated[UNEVALUATED_MAX], n_unevaluated;
    struct partial *next;
};

struct expansion {
    struct json_program *p;
    struct arena *scratch;
    struct partial *work;
    unsigned kind;
    uint32_t n_partials;
    struct alternative *out;
    uint32_t n_out, cap_out;
};

/* ---- disjoint nodes: a sufficient condition */

/* The node and those of its allOf, recursively. */
static uint32_t chain_of(const struct json_program *p, uint32_t node, uint32_t *chain)
{
    uint32_t n = 0;

    chain[n++] = node;
    for (uint32_t k = 0; k < n; k++) {
        const struct schema_node *s = json_node(p, chain[k]);
        for (uint32_t j = 0; j < s->all_of.n && n < CHAIN_MAX; j++)
            chain[n++] = s->all_of.ids[j].i;
    }
    return n;
}

static bool requires(const struct json_program *p, const uint32_t *chain, uint32_t n, uint32_t key)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t at = json_property(p, chain[k], key);
        if (at != NO_ITEM && json_node(p, chain[k])->properties[at].is_required)
            return true;
    }
    return false;
}

static unsigned kinds_of(const struct json_program *p, const uint32_t *chain, uint32_t n)
{
    unsigned kinds = KIND_ANY, scalars = KIND_ANY & ~(KIND_ARRAY | KIND_OBJECT);

    for (uint32_t k = 0; k < n; k++) {
        kinds &= json_node(p, chain[k])->kinds;
        if (json_node(p, chain[k])->has_enum && !p->nodes[chain[k]].n_values)
            kinds &= scalars;
    }
    return kinds;
}

static bool has_values(const struct json_program *p, uint32_t node)
{
    uint32_t chain[CHAIN_MAX], n = chain_of(p, node, chain);

    for (uint32_t k = 0; k < n; k++)
        if (json_node(p, chain[k])->has_enum)
            return true;
    return false;
}

/* True if no value satisfies both children; `false` does not exclude it. */
static bool are_values_disjoint(struct json_program *p, uint32_t a, uint32_t b)
{
    uint32_t chain_a[CHAIN_MAX], chain_b[CHAIN_MAX];
    unsigned kinds = kinds_of(p, chain_a, chain_of(p, a, chain_a));

    kinds &= kinds_of(p, chain_b, chain_of(p, b, chain_b));
    if (!kinds)
        return true;
    if (a == b || kinds & (KIND_ARRAY | KIND_OBJECT) || (!has_values(p, a) && !has_values(p, b)))
        return false;
    struct json_scalar x = json_scalar_of(p, a * 2, 0), y = json_scalar_of(p, b * 2, 0);
    for (int k = 0; k < N_PARTS; k++)
        if (expr_is_live(p->x, expr_and(p->x, x.part[k], y.part[k])))
            return false;
    return true;
}

/* Whether the key is not permitted by additionalProperties. */
static bool excludes(const struct json_program *p, uint32_t node, uint32_t key)
{
    const struct schema_node *s = json_node(p, node);

    return s->has_additional && s->additional_properties.i == NODE_FALSE.i &&
           !s->n_pattern_properties && json_property(p, node, key) == NO_ITEM;
}

static bool are_objects_disjoint(
    struct json_program *p, const uint32_t *a, uint32_t n_a, const uint32_t *b, uint32_t n_b)
{
    for (uint32_t i = 0; i < n_a; i++) {
        const struct schema_node *s = json_node(p, a[i]);
        for (uint32_t k = 0; k < s->n_properties && json_work(p, 1); k++) {
            uint32_t key = p->nodes[a[i]].keys[k];
            bool is_required = requires(p, a, n_a, key);
            for (uint32_t j = 0; j < n_b; j++) {
                uint32_t at = json_property(p, b[j], key);
                if (is_required && excludes(p, b[j], key))
                    return true;
                if (at == NO_ITEM || !(is_required || requires(p, b, n_b, key)))
                    continue;
                if (are_values_disjoint(
                        p, s->properties[k].value.i, json_node(p, b[j])->properties[at].value.i))
                    return true;
            }
        }
    }
    return false;
}

/* True if no array or object satisfies both nodes; false does not exclude it. */
static bool are_disjoint(struct json_program *p, uint32_t a, uint32_t b, unsigned kind)
{
    uint64_t key = ((uint64_t)MIN(a, b) << 32 | MAX(a, b)) * 2 + (kind == KIND_OBJECT);
    uint32_t chain_a[CHAIN_MAX], chain_b[CHAIN_MAX], known = 0;

    if (u64_map_get(p->disjoint_of, key, &known))
        return known;
    uint32_t n_a = chain_of(p, a, chain_a), n_b = chain_of(p, b, chain_b);
    known = !(kinds_of(p, chain_a, n_a) & kinds_of(p, chain_b, n_b) & kind);
    if (!known && kind == KIND_OBJECT)
        known = are_objects_disjoint(p, chain_a, n_a, chain_b, n_b) ||
                are_objects_disjoint(p, chain_b, n_b, chain_a, n_a);
    if (u64_map_put(p->disjoint_of, key, known) < 0)
        json_fail(p, ERR_MEMORY, "no memory");
    return known;
}

/* ---- partial alternatives */

static void push(struct expansion *x, struct items *l, struct item item)
{
    if (l->n == l->cap) {
        uint32_t cap = l->cap ? l->cap * 2 : 8;
        struct item *bigger =
            arena_realloc(x->scratch, l->all, l->cap * sizeof(*bigger), cap * sizeof(*bigger));
        if (!bigger) {
            json_fail(x->p, ERR_TOO_LARGE, "a subschema has too many alternatives");
            return;
        }
        l->all = bigger;
        l->cap = cap;
    }
    l->all[l->n++] = item;
}

static void push_lit(struct expansion *x, struct partial *a, json_lit l, uint64_t scopes)
{
    push(x, &a->todo, (struct item){ ITEM_LIT, l, 0, scopes });
}

static void push_choice(
    struct expansion *x, struct partial *a, enum item_type t, const struct item *of, uint32_t arg)
{
    push(x, &a->todo, (struct item){ t, of->lit, arg, of->scopes });
}

static struct items copy_items(struct expansion *x, const struct items *l)
{
    struct items r = { 0 };

    for (uint32_t k = 0; k < l->n && !x->p->is_failed; k++)
        push(x, &r, l->all[k]);
    return r;
}

/* A copy in the worklist; NULL: failed. */
static struct partial *copy_partial(struct expansion *x, const struct partial *a)
{
    struct partial *b = arena_alloc(x->scratch, sizeof(*b));

    if (!b || ++x->n_partials > PARTIALS_MAX || !json_work(x->p, 8 + a->done.n + a->todo.n))
        return json_fail(x->p, ERR_TOO_LARGE, "a subschema has too many alternatives");
    *b = *a;
    b->todo = copy_items(x, &a->todo);
    b->done = copy_items(x, &a->done);
    b->next = x->work;
    x->work = b;
    return b;
}

static struct item *find_done(const struct partial *a, json_lit l)
{
    for (uint32_t k = 0; k < a->done.n; k++)
        if (a->done.all[k].lit == l)
            return &a->done.all[k];
    return NULL;
}

/* ---- literals */

static bool has_object_keyword(const struct schema_node *s)
{
    bool has = s->n_pattern_properties || s->min_properties || s->n_dependencies ||
               s->max_properties != UINT64_MAX || s->property_names.i ||
               (s->has_additional && s->additional_properties.i);

    for (uint32_t k = 0; k < s->n_properties && !has; k++)
        has = s->properties[k].is_required || s->properties[k].value.i;
    return has;
}

static bool has_array_keyword(const struct schema_node *s)
{
    bool has = s->items.i || s->min_items || s->max_items != UINT64_MAX || s->has_contains;

    for (uint32_t k = 0; k < s->prefix_items.n && !has; k++)
        has = s->prefix_items.ids[k].i;
    return has;
}

static bool has_unevaluated(const struct schema_node *s, unsigned kind)
{
    return kind == KIND_OBJECT ? s->has_unevaluated_properties : s->has_unevaluated_items;
}

static bool conflicts(struct expansion *x, const struct partial *a, uint32_t node)
{
    for (uint32_t k = 0; k < a->done.n; k++)
        if (!(a->done.all[k].lit & 1) && are_disjoint(x->p, a->done.all[k].lit >> 1, node, x->kind))
            return true;
    return false;
}

/* The keywords of the node and, on the stack, its subschemas, first on top. False: contradiction.
 */
static bool add_positive(struct expansion *x, struct partial *a, struct item item)
{
    uint32_t node = item.lit >> 1;
    const struct schema_node *s = json_node(x->p, node);

    if (!(s->kinds & x->kind) || conflicts(x, a, node))
        return false;
    if (has_unevaluated(s, x->kind)) {
        if (a->n_unevaluated == UNEVALUATED_MAX) {
            json_fail(x->p, ERR_TOO_LARGE, "too many unevaluated keywords apply to one value");
            return false;
        }
        item.scopes |= (uint64_t)1 << a->n_unevaluated;
        a->unevaluated[a->n_unevaluated++] = node;
    }
    push(x, &a->done, item);
    for (uint32_t k = s->n_dependencies; k-- > 0 && x->kind == KIND_OBJECT;)
        if (x->p->nodes[node].dep_nodes[k])
            push_choice(x, a, ITEM_DEP, &item, k);
    if (s->has_if)
        push_choice(x, a, ITEM_IF, &item, 0);
    if (s->one_of.n)
        push_choice(x, a, ITEM_ONE, &item, 0);
    if (s->any_of.n)
        push_choice(x, a, ITEM_ANY, &item, 0);
    if (s->not_of.i != NODE_FALSE.i)
        push_lit(x, a, s->not_of.i * 2 + 1, 0);
    if (s->has_enum)
        push_choice(x, a, ITEM_VALUES, &item, 0);
    for (uint32_t k = s->all_of.n; k-- > 0;)
        push_lit(x, a, s->all_of.ids[k].i * 2, item.scopes);
    return true;
}

static bool add_lit(struct expansion *x, struct partial *a, struct item item)
{
    struct item *same = find_done(a, item.lit);

    if (item.lit == 0 || item.lit == lit_not(LIT_FALSE))
        return true;
    if (item.lit == 1 || item.lit == LIT_FALSE || find_done(a, lit_not(item.lit)))
        return false;
    if (same) {
        same->scopes |= item.scopes;
        return true;
    }
    if (!(item.lit & 1))
        return add_positive(x, a, item);
    if (json_node(x->p, item.lit >> 1)->kinds & x->kind)
        push_choice(x, a, ITEM_NOT, &item, 0);
    return true;
}

/* ---- choices. Each function leaves one possibility in `a` and forks the others; false: there is
 * none. `n_made` counts them. */

struct choice {
    struct expansion *x;
    const struct partial *base; /* without the choice */
};

static struct partial *possibility(struct choice *c)
{
    return copy_partial(c->x, c->base);
}

static void choose_any(struct choice *c, const struct schema_node *s, uint64_t scopes)
{
    uint32_t n = s->any_of.n;

    for (uint32_t k = n; k-- > 0;) {
        struct partial *b = possibility(c);
        if (b)
            push_lit(c->x, b, s->any_of.ids[k].i * 2, scopes);
    }
    if (!scopes || n > 6)
        return;
    for (uint32_t set = 3; set < 1u << n; set++) { /* which members evaluate */
        struct partial *b = set & (set - 1) ? possibility(c) : NULL;
        for (uint32_t k = n; k-- > 0 && b;)
            if (set >> k & 1)
                push_lit(c->x, b, s->any_of.ids[k].i * 2, scopes);
    }
}

static void choose_one(struct choice *c, const struct schema_node *s, uint64_t scopes)
{
    for (uint32_t k = s->one_of.n; k-- > 0;) {
        struct partial *b = possibility(c);
        uint32_t one = s->one_of.ids[k].i;
        for (uint32_t j = s->one_of.n; j-- > 0 && b;) {
            uint32_t other = s->one_of.ids[j].i;
            if (j != k && (other == one || !are_disjoint(c->x->p, one, other, c->x->kind)))
                push_lit(c->x, b, other * 2 + 1, 0);
        }
        if (b)
            push_lit(c->x, b, one * 2, scopes);
    }
}

static void choose_pair(struct choice *c, json_lit l, json_lit m, uint64_t scopes)
{
    struct partial *b = possibility(c);

    if (!b)
        return;
    push_lit(c->x, b, m, m & 1 ? 0 : scopes);
    push_lit(c->x, b, l, l & 1 ? 0 : scopes);
}

/* The ways in which a node can fail. */
static void choose_failure(struct choice *c, uint32_t node)
{
    const struct json_program *p = c->x->p;
    const struct schema_node *s = json_node(p, node);
    unsigned kind = c->x->kind;
    struct partial *b;

    if (s->has_if) {
        choose_pair(c, s->if_of.i * 2, s->then_of.i * 2 + 1, 0);
        choose_pair(c, s->if_of.i * 2 + 1, s->else_of.i * 2 + 1, 0);
    }
    for (uint32_t k = 0; k < s->n_dependencies && kind == KIND_OBJECT; k++)
        if (p->nodes[node].dep_nodes[k])
            choose_pair(c, p->nodes[node].dep_nodes[k] * 2, s->dependencies[k].schema.i * 2 + 1, 0);
    if (s->not_of.i != NODE_FALSE.i)
        choose_pair(c, s->not_of.i * 2, 0, 0);
    for (uint32_t k = 0; k < s->one_of.n; k++)
        for (uint32_t j = 0; j < k; j++)
            choose_pair(c, s->one_of.ids[j].i * 2, s->one_of.ids[k].i * 2, 0);
    const struct node_list *none_of[] = { &s->one_of, &s->any_of };
    for (int m = 0; m < 2; m++) {
        b = none_of[m]->n ? possibility(c) : NULL;
        for (uint32_t k = none_of[m]->n; k-- > 0 && b;)
            push_lit(c->x, b, none_of[m]->ids[k].i * 2 + 1, 0);
    }
    for (uint32_t k = s->all_of.n; k-- > 0;)
        choose_pair(c, s->all_of.ids[k].i * 2 + 1, 0, 0);
    b = s->has_enum ? possibility(c) : NULL;
    for (uint32_t k = p->nodes[node].n_values; k-- > 0 && b;)
        push_lit(c->x, b, p->nodes[node].values[k] * 2 + 1, 0);
    if (kind == KIND_OBJECT ? has_object_keyword(s) : has_array_keyword(s)) {
        b = possibility(c);
        if (b)
            push(c->x, &b->done, (struct item){ ITEM_LIT, node * 2 + 1, 0, 0 });
    }
}

static void choose(struct expansion *x, const struct partial *a, const struct item *item)
{
    struct choice c = { x, a };
    uint32_t node = item->lit >> 1;
    const struct schema_node *s = json_node(x->p, node);
    const struct jnode *n = &x->p->nodes[node];

    switch (item->type) {
    case ITEM_LIT:
        break;
    case ITEM_ANY:
        choose_any(&c, s, item->scopes);
        break;
    case ITEM_ONE:
        choose_one(&c, s, item->scopes);
        break;
    case ITEM_IF:
        choose_pair(&c, s->if_of.i * 2 + 1, s->else_of.i * 2, item->scopes);
        choose_pair(&c, s->if_of.i * 2, s->then_of.i * 2, item->scopes);
        break;
    case ITEM_DEP:
        choose_pair(
            &c, n->dep_nodes[item->arg] * 2, s->dependencies[item->arg].schema.i * 2, item->scopes);
        choose_pair(&c, n->dep_nodes[item->arg] * 2 + 1, 0, 0);
        break;
    case ITEM_VALUES:
        for (uint32_t k = n->n_values; k-- > 0;)
            choose_pair(&c, n->values[k] * 2, 0, 0);
        break;
    case ITEM_NOT:
        choose_failure(&c, node);
        break;
    }
}

/* ---- results */

static void finish(struct expansion *x, const struct partial *a)
{
    struct json_program *p = x->p;
    struct alternative *out;

    if (x->n_out == ALTERNATIVES_MAX) {
        json_fail(p, ERR_TOO_LARGE, "a subschema has too many alternatives");
        return;
    }
    if (x->n_out == x->cap_out) {
        uint32_t cap = x->cap_out ? x->cap_out * 4 : 1;
        struct alternative *bigger = json_alloc(p, cap, sizeof(*bigger));
        if (!bigger)
            return;
        if (x->n_out)
            memcpy(bigger, x->out, x->n_out * sizeof(*bigger));
        x->out = bigger;
        x->cap_out = cap;
    }
    out = &x->out[x->n_out];
    *out = (struct alternative){ .n = a->done.n, .n_unevaluated = a->n_unevaluated };
    out->lits = json_alloc(p, a->done.n + 1, sizeof(*out->lits));
    out->scopes = json_alloc(p, a->done.n + 1, sizeof(*out->scopes));
    out->unevaluated = json_alloc(p, a->n_unevaluated + 1, sizeof(*out->unevaluated));
    if (p->is_failed)
        return;
    for (uint32_t k = 0; k < a->done.n; k++) {
        out->lits[k] = a->done.all[k].lit;
        out->scopes[k] = a->done.all[k].scopes;
    }
    memcpy(out->unevaluated, a->unevaluated, a->n_unevaluated * sizeof(*a->unevaluated));
    x->n_out++;
}

/* Expands until the partial alternative is complete, contradictory or forked. */
static void expand_one(struct expansion *x, struct partial *a)
{
    while (a->todo.n && !x->p->is_failed) {
        struct item item = a->todo.all[--a->todo.n];
        if (item.type != ITEM_LIT) {
            choose(x, a, &item);
            return;
        }
        if (!add_lit(x, a, item))
            return;
    }
    if (!x->p->is_failed)
        finish(x, a);
}

uint32_t json_expand(struct json_program *p, conj_id id, unsigned kind, struct alternative **out)
{
    struct expansion x = { .p = p, .kind = kind, .scratch = arena_new(16 * MB) };
    const struct conj *c = p->conjs[id];
    static const struct partial empty;

    if (!x.scratch) {
        json_fail(p, ERR_MEMORY, "no memory");
        return 0;
    }
    struct partial *first = copy_partial(&x, &empty);
    for (uint32_t k = c->n_lits; k-- > 0 && first;)
        push_lit(&x, first, c->lits[k], 0);
    while (x.work && !p->is_failed) {
        struct partial *a = x.work;
        x.work = a->next;
        expand_one(&x, a);
    }
    arena_free(x.scratch);
    *out = x.out;
    return p->is_failed ? 0 : x.n_out;
}
