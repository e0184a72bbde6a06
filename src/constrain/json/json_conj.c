#include "base/mem.h"
#include "constrain/json/json_program_in.h"
#include "constrain/regular/live.h"

#include <stdlib.h>

enum { CANONICAL_WORDS_MAX = 1000 };

/* ---- interning */

static int ascending(const void *a, const void *b)
{
    json_lit x = *(const json_lit *)a, y = *(const json_lit *)b;

    return (x > y) - (x < y);
}

static conj_id add_conj(struct json_program *p, const json_lit *lits, uint32_t n)
{
    struct conj *c = json_alloc(p, 1, sizeof(*c));
    json_lit *copy = json_alloc(p, n + 1, sizeof(*copy));

    if (p->n_conjs == p->cap_conjs) {
        uint32_t cap = p->cap_conjs ? p->cap_conjs * 2 : 64;
        struct conj **bigger = try_realloc(p->conjs, cap * sizeof(struct conj *));
        if (!bigger)
            json_fail(p, ERR_MEMORY, "no memory");
        else
            p->cap_conjs = cap;
        p->conjs = bigger ? bigger : p->conjs;
    }
    if (p->is_failed || !json_work(p, n + 4))
        return CONJ_FALSE;
    if (n)
        memcpy(copy, lits, n * sizeof(*copy));
    *c = (struct conj){
        .lits = copy, .n_lits = n, .cost = COST_NONE, .root = NO_ITEM, .canonical_root = NO_ITEM
    };
    struct str key = { (const char *)copy, n * sizeof(*copy) };
    if (str_map_put(p->conj_of, key, p->n_conjs) < 0) {
        json_fail(p, ERR_MEMORY, "no memory");
        return CONJ_FALSE;
    }
    p->conjs[p->n_conjs] = c;
    return p->n_conjs++;
}

conj_id json_conj(struct json_program *p, json_lit *lits, uint32_t n)
{
    uint32_t m = 0, id = 0;

    if (n)
        qsort(lits, n, sizeof(*lits), ascending);
    for (uint32_t k = 0; k < n; k++) {
        if (lits[k] == 0 || lits[k] == lit_not(LIT_FALSE) || (m && lits[m - 1] == lits[k]))
            continue;
        if (lits[k] == 1 || lits[k] == LIT_FALSE || (m && lits[m - 1] == lit_not(lits[k])))
            return CONJ_FALSE;
        lits[m++] = lits[k];
    }
    struct str key = { (const char *)lits, m * sizeof(*lits) };
    if (!m)
        key = STR("");
    if (str_map_get(p->conj_of, key, &id))
        return id;
    /* The table of a finished program contains all conjunctions within the budget. */
    return p->is_frozen ? CONJ_FALSE : add_conj(p, lits, m);
}

void json_conj_false(struct json_program *p)
{
    static const json_lit lit = LIT_FALSE;

    add_conj(p, &lit, 1);
}

conj_id json_conj_add(struct json_program *p, conj_id c, const json_lit *more, uint32_t n)
{
    enum { LITS_MAX = 512 };
    json_lit all[LITS_MAX];
    const struct conj *base = p->conjs[c];

    if (!n || c == CONJ_FALSE)
        return c;
    if (base->n_lits + n > LITS_MAX) {
        json_fail(p, ERR_TOO_LARGE, "a value has to satisfy too many subschemas");
        return CONJ_FALSE;
    }
    if (base->n_lits)
        memcpy(all, base->lits, base->n_lits * sizeof(*all));
    memcpy(all + base->n_lits, more, n * sizeof(*all));
    return json_conj(p, all, base->n_lits + n);
}

uint32_t json_root(struct json_program *p, expr_id a)
{
    uint32_t id = p->n_roots;

    if (u64_map_get(p->root_of, a.i, &id))
        return id;
    if (p->n_roots == p->cap_roots) {
        uint32_t cap = p->cap_roots ? p->cap_roots * 2 : 32;
        expr_id *bigger = try_realloc(p->roots, cap * sizeof(*bigger));
        if (!bigger) {
            json_fail(p, ERR_MEMORY, "no memory");
            return NO_ITEM;
        }
        p->roots = bigger;
        p->cap_roots = cap;
    }
    p->roots[p->n_roots] = a;
    if (u64_map_put(p->root_of, a.i, p->n_roots) < 0)
        json_fail(p, ERR_MEMORY, "no memory");
    return p->n_roots++;
}

/* ---- shapes */

/* The shape with these literals; equal ones are shared. */
static struct shape *shape_of(struct json_program *p, const struct alternative *a, unsigned kind)
{
    size_t n = a->n * sizeof(json_lit), m = a->n * sizeof(uint64_t);
    char *key = json_alloc(p, 1, sizeof(uint32_t) + n + m);
    uint32_t id = 0;

    if (!key)
        return NULL;
    memcpy(key, &(uint32_t){ kind }, sizeof(uint32_t));
    if (n) {
        memcpy(key + sizeof(uint32_t), a->lits, n);
        memcpy(key + sizeof(uint32_t) + n, a->scopes, m);
    }
    struct str text = { key, sizeof(uint32_t) + n + m };
    if (str_map_get(p->shape_of, text, &id))
        return p->shapes[id];
    if (p->n_shapes == p->cap_shapes) {
        uint32_t cap = p->cap_shapes ? p->cap_shapes * 2 : 32;
        struct shape **bigger = try_realloc(p->shapes, cap * sizeof(struct shape *));
        if (!bigger)
            return json_fail(p, ERR_MEMORY, "no memory");
        p->shapes = bigger;
        p->cap_shapes = cap;
    }
    struct shape *s = kind == KIND_OBJECT ? json_object_shape(p, a) : json_array_shape(p, a);
    if (!s)
        return NULL;
    s->number = p->n_shapes;
    if (str_map_put(p->shape_of, text, p->n_shapes) < 0)
        return json_fail(p, ERR_MEMORY, "no memory");
    p->shapes[p->n_shapes++] = s;
    return s;
}

static struct shape **shapes_for(
    struct json_program *p, conj_id id, unsigned kind, uint32_t *n_shapes)
{
    struct alternative *all = NULL;
    uint32_t n = json_expand(p, id, kind, &all);
    struct shape **shapes = json_alloc(p, n + 1, sizeof(struct shape *));

    *n_shapes = 0;
    for (uint32_t k = 0; shapes && k < n && !p->is_failed; k++) {
        struct shape *s = shape_of(p, &all[k], kind);
        bool is_new = s != NULL;
        for (uint32_t j = 0; j < *n_shapes && is_new; j++)
            is_new = shapes[j] != s;
        if (is_new)
            shapes[(*n_shapes)++] = s;
    }
    return shapes;
}

static void scalar_for(struct json_program *p, struct conj *c)
{
    struct json_scalar all = p->any;

    for (uint32_t k = 0; k < c->n_lits; k++) {
        struct json_scalar one = json_scalar_of(p, c->lits[k], 0);
        for (int j = 0; j < N_PARTS; j++)
            all.part[j] = k ? expr_and(p->x, all.part[j], one.part[j]) : one.part[j];
    }
    c->scalar = json_scalar_text(p, &all);
    if (expr_is_live(p->x, c->scalar))
        c->root = json_root(p, c->scalar);
    if (!p->has_unique || c->root == NO_ITEM)
        return;
    expr_id canonical = expr_and(p->x, c->scalar, p->canonical);
    c->n_words = json_count_words(p, canonical, CANONICAL_WORDS_MAX);
    if (c->n_words > CANONICAL_WORDS_MAX)
        c->n_words = UINT32_MAX;
    if (c->n_words)
        c->canonical_root = json_root(p, canonical);
}

void json_shapes(struct json_program *p, conj_id id)
{
    struct conj *c = p->conjs[id];

    if (c->has_shapes || p->is_failed || p->is_frozen)
        return;
    c->has_shapes = true;
    if (id == CONJ_FALSE)
        return;
    scalar_for(p, c);
    c->arrays = shapes_for(p, id, KIND_ARRAY, &c->n_arrays);
    c->objects = shapes_for(p, id, KIND_OBJECT, &c->n_objects);
    if (exprs_failed(p->x) && !p->is_failed) {
        p->is_failed = true;
        exprs_check(p->x, &p->err);
    }
}

/* ---- costs: the least fixpoint of
 *
 *     cost(c) = 0 if c has a scalar, else 1 + the least cost of a shape's initial state
 *
 * All conjunctions start with COST_NONE. Those which an evaluation reads are listed and evaluated
 * until nothing changes. */

/* The branch before the first member. */
unsigned json_shape_rest(struct json_program *p, struct shape *s)
{
    size_t bytes = branch_bytes(s);
    struct branch *b = try_calloc(1, bytes);
    unsigned rest = COST_NONE;

    if (!b) {
        json_fail(p, ERR_MEMORY, "no memory");
        return COST_NONE;
    }
    b->shape = s;
    b->pending = s->n_pending == 64 ? UINT64_MAX : ((uint64_t)1 << s->n_pending) - 1;
    rest =
        s->kind == KIND_OBJECT ? json_object_rest(p, b, 0) : json_array_rest(p, &p->search, b, 0);
    mem_free(b);
    return rest;
}

static unsigned evaluate(struct json_program *p, conj_id id)
{
    struct conj *c = p->conjs[id];
    unsigned best = COST_NONE;

    json_shapes(p, id);
    if (!json_work(p, 1 + c->n_arrays + c->n_objects))
        return COST_NONE;
    if (c->root != NO_ITEM)
        return 0;
    for (uint32_t k = 0; k < c->n_arrays && best > 1; k++)
        best = MIN(best, json_shape_rest(p, c->arrays[k]) + 1);
    for (uint32_t k = 0; k < c->n_objects && best > 1; k++)
        best = MIN(best, json_shape_rest(p, c->objects[k]) + 1);
    return best > JSON_DEPTH_MAX ? COST_NONE : best;
}

static void list(struct json_program *p, conj_id id)
{
    if (p->conjs[id]->is_listed)
        return;
    if (p->n_listed == p->cap_listed) {
        uint32_t cap = p->cap_listed ? p->cap_listed * 2 : 64;
        conj_id *bigger = try_realloc(p->listed, cap * sizeof(*bigger));
        if (!bigger) {
            json_fail(p, ERR_MEMORY, "no memory");
            return;
        }
        p->listed = bigger;
        p->cap_listed = cap;
    }
    p->conjs[id]->is_listed = true;
    p->listed[p->n_listed++] = id;
}

static void solve(struct json_program *p, conj_id id)
{
    bool has_changed = true;
    uint32_t n_evaluated = 0;

    p->is_solving = true;
    p->n_listed = 0;
    list(p, id);
    while (has_changed && !p->is_failed) {
        has_changed = false;
        for (uint32_t k = p->n_listed; k-- > 0 && !p->is_failed;) {
            struct conj *c = p->conjs[p->listed[k]];
            unsigned cost = evaluate(p, p->listed[k]);
            has_changed = has_changed || cost < c->cost;
            c->cost = (uint8_t)MIN(cost, c->cost);
        }
        has_changed = has_changed || p->n_listed > n_evaluated;
        n_evaluated = p->n_listed;
    }
    for (uint32_t k = 0; k < p->n_listed; k++)
        p->conjs[p->listed[k]]->is_solved = true;
    p->is_solving = false;
}

unsigned json_cost(struct json_program *p, conj_id id)
{
    const struct conj *c = p->conjs[id];

    if (c->is_solved || id == CONJ_FALSE || p->is_frozen || p->is_failed)
        return c->cost;
    if (p->is_solving)
        list(p, id);
    else
        solve(p, id);
    return c->cost;
}
