#include "constrain/schema/schema.h"
#include "base/mem.h"
#include "constrain/schema/schema_keyword.h"

#include <stdio.h>
#include <stdlib.h>

const struct schema_options schema_options_default = { .bytes_max = 16 * KB, .nodes_max = 500000 };

enum { MEMBERS_INDEXED = 16 }; /* objects with more members have an index */

/* ---- memory */

int schema_no_memory(struct schema_reader *r)
{
    return err_set(r->e, ERR_MEMORY, "no memory for a schema");
}

void *schema_scratch(struct schema_reader *r, size_t n, size_t size)
{
    size_t left = r->arena_bytes - MIN(arena_used(r->arena), r->arena_bytes);
    void *p = arena_zalloc(r->arena, MAX(n, (size_t)1), size);

    if (!p && n > left / size)
        err_set(r->e, ERR_TOO_LARGE, "the schema needs too much memory while it is read");
    else if (!p)
        schema_no_memory(r);
    return p;
}

int schema_grow(struct schema_reader *r, void **at, uint32_t n, uint32_t *cap, size_t size)
{
    if (n < *cap)
        return 0;
    uint32_t more = MAX(*cap * 2, 16u);
    void *p = try_realloc(*at, more * size);

    if (!p)
        return schema_no_memory(r);
    *at = p;
    *cap = more;
    return 0;
}

static int graph_check(struct schema_reader *r, size_t more)
{
    size_t used = arena_used(r->schema->arena) + r->nodes.n * sizeof(*r->nodes.at) + more;

    if (used > r->graph_bytes)
        return err_set(r->e, ERR_TOO_LARGE, "the schema needs more than %zu KiB of memory",
            r->graph_bytes / KB);
    return 0;
}

int schema_alloc(struct schema_reader *r, void **out, size_t n, size_t size)
{
    *out = NULL;
    if (!n)
        return 0;
    if (graph_check(r, n > SCHEMA_GRAPH_BYTES / size ? SCHEMA_GRAPH_BYTES : n * size))
        return -1;
    *out = arena_zalloc(r->schema->arena, n, size);
    return *out ? 0 : schema_no_memory(r);
}

int schema_keep(struct schema_reader *r, struct str *s)
{
    *s = arena_str(r->schema->arena, *s);
    return s->p ? graph_check(r, 0) : schema_no_memory(r);
}

/* ---- documents */

/* Place of a value in a document, for an error; the parent is on the stack of the caller. */
struct place {
    const struct place *parent;
    const struct json *value;
};

static int pointer_of(struct schema_reader *r, const struct place *p, struct str *out)
{
    const struct place *chain[256];
    size_t n = 0;

    *out = STR("#");
    for (; p && p->parent && n < ARRAY_LEN(chain); p = p->parent)
        chain[n++] = p;
    while (n) {
        const struct json *v = chain[--n]->value;
        char number[24];
        uint32_t k = 0;
        for (const struct json *m = chain[n]->parent->value->child; m != v; m = m->next)
            k++;
        snprintf(number, sizeof(number), "%u", k);
        if (schema_pointer_add(r, out, v->key.p ? v->key : str_of(number)))
            return -1;
    }
    return 0;
}

static int key_is_twice(struct schema_reader *r, const struct place *p, struct str key)
{
    struct str pointer;

    if (pointer_of(r, p, &pointer))
        return -1;
    return err_set(r->e, ERR_INVALID, STR_FMT ": the key \"" STR_FMT "\" occurs twice",
        STR_ARG(pointer), STR_ARG(((struct str){ key.p, MIN(key.n, (size_t)100) })));
}

static int index_large(struct schema_reader *r, const struct place *p)
{
    struct schema_members index = { 0 };
    uint32_t k = 0;

    if (SCHEMA_GROW(r, r->members))
        return -1;
    index.at = schema_scratch(r, p->value->n, sizeof(const struct json *));
    if (!index.at)
        return -1;
    if (!(index.by_key = str_map_new(p->value->n)))
        return schema_no_memory(r);
    r->members.at[r->members.n] = index;
    if (u64_map_put(r->by_object, (uintptr_t)p->value, r->members.n++))
        return schema_no_memory(r);
    for (const struct json *m = p->value->child; m; m = m->next) {
        int rc = str_map_put(index.by_key, m->key, k);
        if (rc < 0)
            return schema_no_memory(r);
        if (rc == 0)
            return key_is_twice(r, p, m->key);
        index.at[k++] = m;
    }
    return 0;
}

static int index_small(struct schema_reader *r, const struct place *p)
{
    for (const struct json *m = p->value->child; m; m = m->next)
        for (const struct json *l = p->value->child; l != m; l = l->next)
            if (str_eq(l->key, m->key))
                return key_is_twice(r, p, m->key);
    return 0;
}

/* Recursion depth is that of the tree, which the parser has bounded. */
static int index_tree(struct schema_reader *r, const struct place *p)
{
    const struct json *v = p->value;

    if (v->kind == JSON_OBJECT && (v->n > MEMBERS_INDEXED ? index_large(r, p) : index_small(r, p)))
        return -1;
    for (const struct json *m = v->child; m; m = m->next)
        if (m->child && index_tree(r, &(struct place){ p, m }))
            return -1;
    return 0;
}

int schema_parse(struct schema_reader *r, struct str text, const struct json **out)
{
    struct json *root;

    if (json_parse(&root, text, r->arena, NULL, r->e))
        return -1;
    *out = root;
    return index_tree(r, &(struct place){ NULL, root });
}

const struct json *schema_member(
    const struct schema_reader *r, const struct json *object, struct str key)
{
    uint32_t index, k;

    if (object->kind != JSON_OBJECT)
        return NULL;
    if (object->n > MEMBERS_INDEXED && u64_map_get(r->by_object, (uintptr_t)object, &index)) {
        const struct schema_members *members = &r->members.at[index];
        return str_map_get(members->by_key, key, &k) ? members->at[k] : NULL;
    }
    for (const struct json *m = object->child; m; m = m->next)
        if (str_eq(m->key, key))
            return m;
    return NULL;
}

/* ---- nodes */

int schema_node_of(struct schema_reader *r, const struct schema_todo *todo, node_id *out)
{
    struct schema_todo t = *todo;
    const struct schema_location *l = &r->locations.at[t.location];

    if (l->value->kind == JSON_BOOL || (l->value->kind == JSON_OBJECT && !l->value->n)) {
        *out = l->value->kind == JSON_OBJECT || l->value->b ? NODE_TRUE : NODE_FALSE;
        return 0;
    }
    if (schema_scope_enter(r, t.scope, l->resource, &t.scope))
        return -1;
    uint64_t key = (uint64_t)t.location << 33 | (uint64_t)t.is_closed << 32 | t.scope;
    if (u64_map_get(r->by_node, key, &out->i))
        return 0;
    if (r->nodes.n >= r->options->nodes_max)
        return err_set(r->e, ERR_TOO_LARGE, "more than %u subschemas", r->options->nodes_max);
    if (SCHEMA_GROW(r, r->nodes) || SCHEMA_GROW(r, r->todo) || graph_check(r, 0))
        return -1;
    out->i = r->nodes.n;
    r->nodes.at[r->nodes.n++] = (struct schema_node){ .kinds = KIND_ANY };
    r->todo.at[r->todo.n++] = t;
    return u64_map_put(r->by_node, key, out->i) ? schema_no_memory(r) : 0;
}

static const struct schema_node node_default = {
    .kinds = KIND_ANY,
    .not_of = { 1 },
    .range = { .allows_fraction = true, .allows_exponent = true },
    .max_length = UINT64_MAX,
    .max_items = UINT64_MAX,
    .min_contains = 1,
    .max_contains = UINT64_MAX,
    .max_properties = UINT64_MAX,
};

static int node_read(struct schema_reader *r, uint32_t id)
{
    struct schema_todo todo = r->todo.at[id];
    struct schema_location l = r->locations.at[todo.location];
    struct schema_node node = node_default;
    struct schema_reading k = { .r = r,
        .object = l.value,
        .node = &node,
        .location = todo.location,
        .scope = todo.scope,
        .version = r->resources.at[l.resource].version,
        .is_closed = todo.is_closed };

    if (l.value->kind != JSON_OBJECT)
        return err_set(
            r->e, ERR_INVALID, STR_FMT ": a schema is an object or a boolean", STR_ARG(l.pointer));
    node.pointer = l.pointer;
    if (schema_keep(r, &node.pointer) || schema_object_read(&k))
        return -1;
    r->nodes.at[id] = node;
    r->todo.at[id].closes_union = k.is_closed;
    return 0;
}

int schema_ignore(struct schema_reader *r, struct str name)
{
    struct str kept = { name.p, MIN(name.n, (size_t)100) };
    uint32_t known;

    if (r->ignored.n >= SCHEMA_IGNORED_MAX || str_map_get(r->ignored_names, kept, &known))
        return 0;
    if (SCHEMA_GROW(r, r->ignored) || schema_keep(r, &kept))
        return -1;
    if (str_map_put(r->ignored_names, kept, 0) < 0)
        return schema_no_memory(r);
    r->ignored.at[r->ignored.n++] = kept;
    return 0;
}

static int compare_names(const void *pa, const void *pb)
{
    const struct str *a = pa, *b = pb;
    int c = memcmp(a->p, b->p, MIN(a->n, b->n));

    return c ? c : a->n < b->n ? -1 : a->n > b->n;
}

/* ---- creation */

static int reader_init(struct schema_reader *r, size_t text_bytes)
{
    struct schema *s = r->schema = try_calloc(1, sizeof(*s));

    if (!s)
        return schema_no_memory(r);
    s->arena = arena_new(SCHEMA_GRAPH_BYTES + MB);
    /* A value has at least two characters with its comma, and some of the texts are copied. */
    r->graph_bytes = MIN(2 * MB + text_bytes * 128, (size_t)SCHEMA_GRAPH_BYTES);
    r->arena_bytes = (text_bytes + 64 * KB) * 128;
    r->arena = arena_new(r->arena_bytes);
    r->by_entries = u64_map_new(8);
    r->by_value = u64_map_new(64);
    r->by_object = u64_map_new(8);
    r->by_node = u64_map_new(64);
    r->by_scope = u64_map_new(8);
    r->by_uri = str_map_new(8);
    r->by_anchor = str_map_new(8);
    r->dynamic_names = str_map_new(8);
    r->ignored_names = str_map_new(8);
    bool is_complete = s->arena && r->arena && r->by_value && r->by_object && r->by_node &&
                       r->by_scope && r->by_entries && r->by_uri && r->by_anchor &&
                       r->dynamic_names && r->ignored_names;
    return is_complete ? 0 : schema_no_memory(r);
}

static void reader_clear(struct schema_reader *r)
{
    for (uint32_t k = 0; k < r->members.n; k++)
        str_map_free(r->members.at[k].by_key);
    u64_map_free(r->by_value);
    u64_map_free(r->by_object);
    u64_map_free(r->by_node);
    u64_map_free(r->by_scope);
    u64_map_free(r->by_entries);
    str_map_free(r->by_uri);
    str_map_free(r->by_anchor);
    str_map_free(r->dynamic_names);
    str_map_free(r->ignored_names);
    mem_free(r->resources.at);
    mem_free(r->locations.at);
    mem_free(r->anchors.at);
    mem_free(r->scopes.at);
    mem_free(r->todo.at);
    mem_free(r->nodes.at);
    mem_free(r->ignored.at);
    mem_free(r->members.at);
    exprs_free(r->exprs);
    arena_free(r->arena);
    schema_free(r->schema);
}

static int read_all(struct schema_reader *r, struct str text)
{
    struct schema_todo root = { .is_closed = r->options->closed_objects };
    uint32_t resource;

    /* Scope 0 is empty; the nodes 0 and 1 are NODE_TRUE and NODE_FALSE. */
    if (SCHEMA_GROW(r, r->scopes) || SCHEMA_GROW(r, r->nodes) || SCHEMA_GROW(r, r->todo))
        return -1;
    r->scopes.at[r->scopes.n++] = (struct schema_scope){ 0 };
    for (uint32_t k = 0; k < 2; k++) {
        r->nodes.at[k] = node_default;
        r->nodes.at[k].pointer = STR("#");
        r->nodes.at[k].kinds = k ? 0 : KIND_ANY;
        r->todo.at[k] = (struct schema_todo){ 0 };
    }
    r->nodes.n = r->todo.n = 2;
    if (schema_document_add(r, STR(""), text, &resource))
        return -1;
    root.location = 0;
    if (schema_node_of(r, &root, &r->schema->root))
        return err_wrap(r->e, "#");
    for (uint32_t k = 2; k < r->nodes.n; k++)
        if (node_read(r, k))
            return -1;
    return schema_graph_check(r);
}

/* Moves the results to the schema. */
static void finish(struct schema_reader *r)
{
    struct schema *s = r->schema;
    struct schema_node *nodes = try_realloc(r->nodes.at, r->nodes.n * sizeof(*nodes));

    if (r->ignored.n)
        qsort(r->ignored.at, r->ignored.n, sizeof(*r->ignored.at), compare_names);
    s->nodes = nodes ? nodes : r->nodes.at;
    s->n_nodes = r->nodes.n;
    s->ignored = r->ignored.at;
    s->n_ignored = r->ignored.n;
    r->nodes.at = NULL;
    r->ignored.at = NULL;
    r->schema = NULL;
}

int schema_new(struct schema **out, struct str text, const struct schema_options *o, struct err *e)
{
    struct schema_reader r = { .options = o ? o : &schema_options_default,
        .version = { DRAFT_ANY, VOCABULARIES_ALL },
        .e = e };

    if (text.n > r.options->bytes_max)
        return err_set(e, ERR_TOO_LARGE, "#: a schema of %zu bytes; the limit is %u", text.n,
            r.options->bytes_max);
    int rc = reader_init(&r, text.n);
    if (!rc)
        rc = read_all(&r, text);
    if (!rc) {
        *out = r.schema;
        finish(&r);
    } else if (e->code != ERR_TOO_LARGE && e->code != ERR_MEMORY) {
        e->code = ERR_INVALID;
    }
    reader_clear(&r);
    return rc;
}

void schema_free(struct schema *s)
{
    if (!s)
        return;
    mem_free(s->nodes);
    mem_free(s->ignored);
    arena_free(s->arena);
    mem_free(s);
}

node_id schema_root(const struct schema *s)
{
    return s->root;
}

uint32_t schema_count(const struct schema *s)
{
    return s->n_nodes;
}

const struct schema_node *schema_node(const struct schema *s, node_id id)
{
    CHECK(id.i < s->n_nodes);
    return &s->nodes[id.i];
}

size_t schema_bytes(const struct schema *s)
{
    return sizeof(*s) + s->n_nodes * sizeof(*s->nodes) + s->n_ignored * sizeof(*s->ignored) +
           arena_used(s->arena);
}

const struct str *schema_ignored(const struct schema *s, uint32_t *n)
{
    *n = s->n_ignored;
    return s->ignored;
}
