#include "base/buf.h"
#include "base/mem.h"
#include "constrain/json/json_program_in.h"
#include "constrain/regular/pattern.h"

#include <stdlib.h>

/* ---- nodes that the schema does not have */

static const struct schema_node node_true = { .kinds = KIND_ANY,
    .not_of = { 1 },
    .max_length = UINT64_MAX,
    .max_items = UINT64_MAX,
    .max_contains = UINT64_MAX,
    .max_properties = UINT64_MAX };

/* Appends a node; 0: failed. */
static uint32_t add_node(struct json_program *p, const struct schema_node *s)
{
    if (p->n_nodes == p->cap_nodes) {
        uint32_t cap = p->cap_nodes ? p->cap_nodes * 2 : 64;
        struct jnode *bigger = try_realloc(p->nodes, cap * sizeof(*bigger));
        if (!bigger) {
            json_fail(p, ERR_MEMORY, "no memory");
            return 0;
        }
        p->nodes = bigger;
        p->cap_nodes = cap;
    }
    p->nodes[p->n_nodes] = (struct jnode){ .s = s };
    return p->n_nodes++;
}

static struct schema_node *copy_of_true(struct json_program *p)
{
    struct schema_node *s = json_alloc(p, 1, sizeof(*s));

    if (s)
        *s = node_true;
    return s;
}

/* Requires a key. */
static uint32_t require_node(struct json_program *p, struct str key)
{
    struct schema_node *s = copy_of_true(p);
    struct schema_property *property = json_alloc(p, 1, sizeof(*property));

    if (!s || !property)
        return 0;
    *property = (struct schema_property){ .key = key, .is_required = true };
    s->properties = property;
    s->n_properties = 1;
    return add_node(p, s);
}

static uint32_t value_node(struct json_program *p, const struct json *v, unsigned depth);

static bool array_value(
    struct json_program *p, struct schema_node *s, const struct json *v, unsigned depth)
{
    node_id *ids = json_alloc(p, v->n + 1, sizeof(*ids));
    uint32_t n = 0;

    for (const struct json *c = v->child; ids && c; c = c->next)
        ids[n++].i = value_node(p, c, depth + 1);
    s->kinds = KIND_ARRAY;
    s->prefix_items = (struct node_list){ ids, n };
    s->items = NODE_FALSE;
    s->min_items = s->max_items = n;
    return ids != NULL;
}

static bool object_value(
    struct json_program *p, struct schema_node *s, const struct json *v, unsigned depth)
{
    struct schema_property *all = json_alloc(p, v->n + 1, sizeof(*all));
    struct str_map *index_of = str_map_new(v->n);
    uint32_t n = 0, at = 0;

    for (const struct json *c = v->child; all && index_of && c; c = c->next) {
        if (str_map_put(index_of, c->key, n) < 0)
            json_fail(p, ERR_MEMORY, "no memory");
        if (!str_map_get(index_of, c->key, &at))
            break;
        n = MAX(n, at + 1); /* the last of equal keys counts */
        all[at] = (struct schema_property){ .key = c->key,
            .value.i = value_node(p, c, depth + 1),
            .is_declared = true,
            .is_required = true };
    }
    str_map_free(index_of);
    s->kinds = KIND_OBJECT;
    s->properties = all;
    s->n_properties = n;
    s->has_additional = true;
    s->additional_properties = NODE_FALSE;
    return all != NULL;
}

/* A node that one value satisfies. */
static uint32_t value_node(struct json_program *p, const struct json *v, unsigned depth)
{
    struct schema_node *s = copy_of_true(p);
    const struct json **values = json_alloc(p, 1, sizeof(*values));

    if (!s || !values || !json_work(p, 1))
        return 0;
    if (depth > JSON_DEPTH_MAX) {
        json_fail(p, ERR_TOO_LARGE, "a value in enum is nested too deeply");
        return 0;
    }
    *values = v;
    if (v->kind == JSON_ARRAY) {
        array_value(p, s, v, depth);
    } else if (v->kind == JSON_OBJECT) {
        object_value(p, s, v, depth);
    } else {
        s->has_enum = true;
        s->values = values;
        s->n_values = 1;
    }
    return add_node(p, s);
}

/* ---- keys and patterns */

static uint32_t key_number(struct json_program *p, struct str key)
{
    uint32_t number = (uint32_t)str_map_count(p->key_of);
    int rc = str_map_put(p->key_of, key, number);

    if (rc < 0)
        json_fail(p, ERR_MEMORY, "no memory");
    if (!str_map_get(p->key_of, key, &number))
        number = 0;
    return number;
}

static uint32_t pattern_number(struct json_program *p, struct str pattern)
{
    uint32_t number = p->n_patterns;
    int rc = str_map_put(p->pattern_of, pattern, number);

    if (rc < 0)
        json_fail(p, ERR_MEMORY, "no memory");
    else if (rc)
        p->n_patterns++;
    if (!str_map_get(p->pattern_of, pattern, &number))
        number = 0;
    return number;
}

/* Numbers of the keys of a node; creates the nodes which its keywords need. */
static void read_node(struct json_program *p, uint32_t id)
{
    const struct schema_node *s = p->nodes[id].s;
    struct jnode n = p->nodes[id];

    n.keys = json_alloc(p, s->n_properties + 1, sizeof(uint32_t));
    n.sorted = json_alloc(p, s->n_properties + 1, sizeof(uint32_t));
    n.patterns = json_alloc(p, s->n_pattern_properties + 1, sizeof(uint32_t));
    n.dep_keys = json_alloc(p, s->n_dependencies + 1, sizeof(uint32_t));
    n.dep_nodes = json_alloc(p, s->n_dependencies + 1, sizeof(uint32_t));
    n.dep_required = json_alloc(p, s->n_dependencies + 1, sizeof(uint32_t *));
    n.values = json_alloc(p, s->n_values + 1, sizeof(uint32_t));
    if (p->is_failed)
        return;
    for (uint32_t k = 0; k < s->n_properties; k++)
        n.keys[k] = key_number(p, s->properties[k].key);
    for (uint32_t k = 0; k < s->n_pattern_properties; k++)
        n.patterns[k] = pattern_number(p, s->pattern_properties[k].pattern);
    for (uint32_t k = 0; k < s->n_dependencies; k++) {
        const struct schema_dependency *d = &s->dependencies[k];
        n.dep_keys[k] = key_number(p, d->key);
        n.dep_required[k] = json_alloc(p, d->n_required + 1, sizeof(uint32_t));
        for (uint32_t j = 0; n.dep_required[k] && j < d->n_required; j++)
            n.dep_required[k][j] = key_number(p, d->required[j]);
        if (d->schema.i != NODE_TRUE.i)
            n.dep_nodes[k] = require_node(p, d->key);
    }
    for (uint32_t k = 0; k < s->n_values; k++)
        if (s->values[k]->kind == JSON_ARRAY || s->values[k]->kind == JSON_OBJECT)
            n.values[n.n_values++] = value_node(p, s->values[k], 0);
    p->nodes[id] = n;
}

static int by_spelling(const void *a, const void *b)
{
    const struct json_key *x = a, *y = b;
    int order = memcmp(x->spelled.p, y->spelled.p, MIN(x->spelled.n, y->spelled.n));

    return order ? order : (x->spelled.n > y->spelled.n) - (x->spelled.n < y->spelled.n);
}

static struct str spelled(struct json_program *p, struct str text)
{
    struct buf b;
    struct str s = STR_NONE;

    buf_init(&b, text.n * 6 + 2);
    buf_putc(&b, '"');
    json_escape(&b, text);
    buf_putc(&b, '"');
    if (buf_ok(&b))
        s = arena_str(p->arena, buf_str(&b));
    if (!s.p)
        json_fail(p, ERR_MEMORY, "no memory");
    buf_clear(&b);
    return s;
}

/* Sorts the keys; rank_of[number] is the rank. */
static uint32_t *sort_keys(struct json_program *p)
{
    uint32_t *rank_of, number = 0;

    p->n_keys = (uint32_t)str_map_count(p->key_of);
    p->keys = json_alloc(p, p->n_keys + 1, sizeof(*p->keys));
    rank_of = json_alloc(p, p->n_keys + 1, sizeof(*rank_of));
    for (uint32_t id = 0; id < p->n_nodes && !p->is_failed; id++) {
        const struct jnode *n = &p->nodes[id];
        for (uint32_t k = 0; k < n->s->n_properties; k++)
            p->keys[n->keys[k]].text = n->s->properties[k].key;
        for (uint32_t k = 0; k < n->s->n_dependencies; k++) {
            p->keys[n->dep_keys[k]].text = n->s->dependencies[k].key;
            for (uint32_t j = 0; j < n->s->dependencies[k].n_required; j++)
                p->keys[n->dep_required[k][j]].text = n->s->dependencies[k].required[j];
        }
    }
    for (uint32_t k = 0; k < p->n_keys && !p->is_failed; k++) {
        p->keys[k].spelled = spelled(p, p->keys[k].text);
        p->key_bytes_max = MAX(p->key_bytes_max, p->keys[k].spelled.n);
    }
    if (p->is_failed)
        return NULL;
    if (p->n_keys)
        qsort(p->keys, p->n_keys, sizeof(*p->keys), by_spelling);
    for (uint32_t k = 0; k < p->n_keys; k++)
        if (str_map_get(p->key_of, p->keys[k].text, &number))
            rank_of[number] = k;
    p->ranks = rank_of;
    return rank_of;
}

static void sort_properties(struct jnode *n)
{
    /* Shell sort: qsort has no argument for the ranks. */
    uint32_t count = n->s->n_properties;

    for (uint32_t k = 0; k < count; k++)
        n->sorted[k] = k;
    for (uint32_t gap = count / 2; gap; gap = gap == 2 ? 1 : gap * 5 / 11)
        for (uint32_t k = gap; k < count; k++) {
            uint32_t moved = n->sorted[k], at = k;
            for (; at >= gap && n->keys[n->sorted[at - gap]] > n->keys[moved]; at -= gap)
                n->sorted[at] = n->sorted[at - gap];
            n->sorted[at] = moved;
        }
}

static void use_ranks(struct jnode *n, const uint32_t *rank_of)
{
    for (uint32_t k = 0; k < n->s->n_properties; k++)
        n->keys[k] = rank_of[n->keys[k]];
    for (uint32_t k = 0; k < n->s->n_dependencies; k++) {
        n->dep_keys[k] = rank_of[n->dep_keys[k]];
        for (uint32_t j = 0; j < n->s->dependencies[k].n_required; j++)
            n->dep_required[k][j] = rank_of[n->dep_required[k][j]];
    }
    sort_properties(n);
}

static int compile_patterns(struct json_program *p, struct err *e)
{
    p->pattern_exprs = json_alloc(p, p->n_patterns + 1, sizeof(*p->pattern_exprs));
    expr_id quote = expr_range(p->x, '"', '"');
    for (uint32_t id = 0; id < p->n_nodes && !p->is_failed; id++) {
        const struct jnode *n = &p->nodes[id];
        for (uint32_t k = 0; k < n->s->n_pattern_properties; k++) {
            expr_id *out = &p->pattern_exprs[n->patterns[k]], part;
            if (out->i)
                continue;
            if (pattern_compile(p->x, n->s->pattern_properties[k].pattern, TEXT_JSON,
                    PATTERN_SEARCH, &part, e)) {
                err_wrap(e, STR_FMT "/patternProperties", STR_ARG(n->s->pointer));
                return -1;
            }
            *out = expr_cat(p->x, quote, expr_cat(p->x, part, quote));
        }
    }
    return 0;
}

int json_nodes_build(struct json_program *p, struct err *e)
{
    struct schema_node *none = copy_of_true(p);
    uint32_t n = p->schema ? schema_count(p->schema) : 2;

    p->key_of = str_map_new(64);
    p->pattern_of = str_map_new(8);
    if (!p->key_of || !p->pattern_of || !none)
        return err_set(e, ERR_MEMORY, "no memory for a schema");
    none->kinds = 0;
    add_node(p, &node_true);
    add_node(p, none);
    for (uint32_t k = 2; k < n && !p->is_failed; k++)
        add_node(p, schema_node(p->schema, (node_id){ k }));
    for (uint32_t k = 0; k < p->n_nodes && !p->is_failed; k++) /* grows */
        read_node(p, k);
    uint32_t *rank_of = p->is_failed ? NULL : sort_keys(p);
    for (uint32_t k = 0; rank_of && k < p->n_nodes; k++)
        use_ranks(&p->nodes[k], rank_of);
    if (!p->is_failed && compile_patterns(p, e))
        return -1;
    if (p->is_failed)
        *e = p->err;
    return p->is_failed ? -1 : 0;
}

uint32_t json_property(const struct json_program *p, uint32_t node, uint32_t key)
{
    const struct jnode *n = &p->nodes[node];
    uint32_t lo = 0, hi = n->s->n_properties;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (n->keys[n->sorted[mid]] < key)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n->s->n_properties && n->keys[n->sorted[lo]] == key ? n->sorted[lo] : NO_ITEM;
}

bool json_pattern_matches(struct json_program *p, uint32_t pattern, uint32_t key)
{
    uint64_t id = (uint64_t)pattern << 32 | key;
    uint32_t known = 0;

    if (u64_map_get(p->match_of, id, &known) || p->is_frozen)
        return known;
    known = json_expr_matches(p, p->pattern_exprs[pattern], p->keys[key].spelled);
    if (u64_map_put(p->match_of, id, known) < 0)
        json_fail(p, ERR_MEMORY, "no memory");
    return known;
}
