#include "constrain/json/json_program.h"

#include "base/mem.h"
#include "constrain/json/json_program_in.h"

enum {
    ARENA_MAX = 32 * 1024 * 1024,
    EXPRS_MAX = 32 * 1024 * 1024,
    EXPR_WORK_MAX = 20 * 1000 * 1000,
    WORK_MAX = 10 * 1000 * 1000,
    SUBSETS_MAX = 6 /* pending nodes whose subsets are all prepared */
};

void *json_fail(struct json_program *p, enum errcode code, const char *what)
{
    if (!p->is_failed && !p->is_frozen)
        err_set(&p->err, code, "%s", what);
    p->is_failed = p->is_failed || !p->is_frozen;
    return NULL;
}

bool json_work(struct json_program *p, uint64_t n)
{
    if (p->is_frozen)
        return true;
    p->work += n;
    if (p->work > p->work_max)
        json_fail(p, ERR_TOO_LARGE, "the schema needs too much work");
    return !p->is_failed;
}

void *json_alloc(struct json_program *p, size_t n, size_t size)
{
    void *m = p->is_failed ? NULL : arena_zalloc(p->arena, n, size);

    return m ? m : json_fail(p, ERR_TOO_LARGE, "the schema needs too much memory");
}

/* ---- conjunctions that can occur in values of the root */

static void close_member(struct json_program *p, struct branch *b, uint32_t entry,
    const struct shape_class *class, struct member_options *o)
{
    if (b->shape->kind == KIND_OBJECT)
        json_object_options(p, b, entry, class, o);
    else
        json_array_options(p, b, entry, o);
    for (uint32_t k = 0; k < o->n; k++)
        json_cost(p, o->all[k].child);
    if (o->is_full)
        json_fail(p, ERR_TOO_LARGE, "a member has too many alternatives");
}

static void close_members(struct json_program *p, struct branch *b, struct member_options *o)
{
    const struct shape *s = b->shape;

    for (uint32_t k = 0; k < s->n_entries && !p->is_failed; k++)
        close_member(p, b, k, NULL, o);
    for (uint32_t k = 0; k < s->n_classes && !p->is_failed; k++)
        close_member(p, b, NO_ITEM, &s->classes[k], o);
    for (uint32_t k = 0; k <= s->n_prefix && s->kind == KIND_ARRAY && !p->is_failed; k++)
        close_member(p, b, k, NULL, o);
}

/* Reads a member in every set of pending nodes, before and after the counts are reached. */
static void close_shape(struct json_program *p, struct shape *s)
{
    struct branch *b = try_calloc(1, branch_bytes(s));
    struct member_options *o = try_malloc(sizeof(*o));
    uint64_t all = s->n_pending == 64 ? UINT64_MAX : ((uint64_t)1 << s->n_pending) - 1;
    bool has_all = s->n_pending <= SUBSETS_MAX;

    if (!b || !o)
        json_fail(p, ERR_MEMORY, "no memory");
    for (uint64_t k = 0; k <= (has_all ? all : s->n_pending) && !p->is_failed; k++) {
        b->shape = s;
        b->pending = has_all ? k : k < s->n_pending ? all & ~((uint64_t)1 << k) : all;
        for (uint32_t j = 0; j < s->n_contains && s->kind == KIND_ARRAY; j++)
            b->words[j] = 0;
        close_members(p, b, o);
        for (uint32_t set = 1; set < 1u << MIN(s->n_contains, 4u) && !p->is_failed; set++) {
            for (uint32_t j = 0; j < s->n_contains; j++)
                b->words[j] = set >> MIN(j, 3u) & 1 ? json_array_count(s, j, UINT64_MAX) : 0;
            close_members(p, b, o);
            for (uint32_t j = 0; j < s->n_contains; j++)
                b->words[j] = set >> MIN(j, 3u) & 1 ? s->contains[j].min : 0;
            close_members(p, b, o);
        }
    }
    mem_free(b);
    mem_free(o);
}

static void close_all(struct json_program *p)
{
    uint32_t n_closed = 0;

    for (uint32_t k = 0; (k < p->n_conjs || n_closed < p->n_shapes) && !p->is_failed;) {
        if (k < p->n_conjs)
            json_cost(p, k++);
        else
            close_shape(p, p->shapes[n_closed++]);
    }
    for (uint32_t k = 0; k < p->n_shapes && !p->is_failed; k++)
        p->shapes[k]->cost = json_shape_rest(p, p->shapes[k]);
}

/* ---- construction */

static void unsatisfiable(struct json_program *p, struct err *e)
{
    const struct schema_node *s =
        json_node(p, p->conjs[p->root]->n_lits ? p->conjs[p->root]->lits[0] >> 1 : 0);

    err_set(e, ERR_INVALID, STR_FMT ": no value satisfies the schema", STR_ARG(s->pointer));
}

static int compile(struct json_program *p, struct err *e)
{
    for (uint32_t k = 2; p->schema && k < schema_count(p->schema); k++)
        p->has_unique = p->has_unique || schema_node(p->schema, (node_id){ k })->has_unique_items;
    json_scalar_init(p);
    if (json_nodes_build(p, e))
        return -1;
    p->scalars = json_alloc(p, p->n_nodes * (size_t)2, sizeof(*p->scalars));
    p->has_scalar = json_alloc(p, p->n_nodes * (size_t)2, 1);
    if (p->is_failed)
        goto fail;
    p->scalars[0] = p->scalars[lit_not(LIT_FALSE)] = p->any;
    p->has_scalar[0] = p->has_scalar[1] = p->has_scalar[2] = p->has_scalar[3] = true;
    json_conj(p, NULL, 0); /* CONJ_TRUE */
    json_conj_false(p);    /* CONJ_FALSE */
    if (p->is_failed)
        goto fail;
    json_lit root = p->schema ? schema_root(p->schema).i * 2 : 0;
    p->root = json_conj(p, &root, 1);
    unsigned cost = json_cost(p, p->root);
    if (p->is_failed || exprs_failed(p->x)) /* else a full pool looks like an empty language */
        goto fail;
    if (p->options.object_only) {
        cost = COST_NONE;
        for (uint32_t k = 0; k < p->conjs[p->root]->n_objects; k++)
            cost = MIN(cost, json_shape_rest(p, p->conjs[p->root]->objects[k]));
        if (p->is_failed || exprs_failed(p->x))
            goto fail;
    }
    if (cost == COST_NONE) {
        unsatisfiable(p, e);
        return -1;
    }
    close_all(p);
    if (p->is_failed || exprs_failed(p->x))
        goto fail;
    p->is_frozen = true;
    return 0;
fail:
    if (!p->is_failed)
        return exprs_check(p->x, e);
    *e = p->err;
    return -1;
}

int json_program_new(struct json_program **out, const struct schema *s,
    const struct json_program_options *o, struct err *e)
{
    struct json_program *p = try_calloc(1, sizeof(*p));

    if (!p)
        return err_set(e, ERR_MEMORY, "no memory for a schema");
    p->options = *o;
    p->schema = s;
    p->work_max = WORK_MAX;
    p->arena = arena_new(ARENA_MAX);
    p->x = exprs_new((struct expr_limits){ EXPRS_MAX, EXPR_WORK_MAX });
    p->conj_of = str_map_new(64);
    p->shape_of = str_map_new(64);
    p->disjoint_of = u64_map_new(8);
    p->match_of = u64_map_new(8);
    p->root_of = u64_map_new(32);
    if (option_stack_init(&p->search, e))
        goto fail;
    if (!p->arena || !p->x || !p->conj_of || !p->shape_of || !p->disjoint_of || !p->match_of ||
        !p->root_of) {
        err_set(e, ERR_MEMORY, "no memory for a schema");
        goto fail;
    }
    if (compile(p, e))
        goto fail;
    option_stack_clear(&p->search);
    p->search = (struct option_stack){ 0 };
    *out = p;
    return 0;
fail:
    json_program_free(p);
    return -1;
}

void json_program_free(struct json_program *p)
{
    if (!p)
        return;
    arena_free(p->arena);
    exprs_free(p->x);
    str_map_free(p->conj_of);
    str_map_free(p->shape_of);
    str_map_free(p->key_of);
    str_map_free(p->pattern_of);
    u64_map_free(p->disjoint_of);
    u64_map_free(p->match_of);
    u64_map_free(p->root_of);
    option_stack_clear(&p->search);
    mem_free(p->nodes);
    mem_free(p->conjs);
    mem_free(p->shapes);
    mem_free(p->roots);
    mem_free(p->listed);
    mem_free(p);
}

size_t json_program_bytes(const struct json_program *p)
{
    enum { MAP_ENTRY = 48 };
    size_t entries = str_map_count(p->conj_of) + str_map_count(p->shape_of) +
                     str_map_count(p->key_of) + u64_map_count(p->match_of) +
                     u64_map_count(p->disjoint_of) + u64_map_count(p->root_of);

    return sizeof(*p) + arena_used(p->arena) + exprs_bytes(p->x) + entries * MAP_ENTRY +
           p->cap_nodes * sizeof(*p->nodes) + p->cap_conjs * sizeof(*p->conjs) +
           p->cap_shapes * sizeof(*p->shapes) + p->cap_roots * sizeof(*p->roots);
}

uint64_t json_program_work(const struct json_program *p)
{
    return p->work + exprs_work(p->x);
}
