#include "constrain/schema/schema_keyword.h"

#define GRAPH_ARRAY(k, out, n) schema_alloc((k)->r, (void **)&(out), (n), sizeof(*(out)))

enum { NO_ANCHOR = UINT32_MAX };

static int need(struct schema_reading *k, const char *what)
{
    return err_set(k->r->e, ERR_INVALID, "%s was expected", what);
}

/* ---- subschemas */

/* The node of a subschema. `is_closed`: see struct schema_todo. */
static int subschema(struct schema_reading *k, const struct json *v, bool is_closed, node_id *out)
{
    struct schema_todo todo = { .scope = k->scope, .is_closed = is_closed };
    struct schema_location *own = &k->r->locations.at[k->location];

    if (schema_scan(k->r, v, own->resource, own->pointer, &todo.location))
        return -1;
    return schema_node_of(k->r, &todo, out);
}

/* A subschema of another value: of a member or an item. */
static int inner(struct schema_reading *k, const struct json *v, node_id *out)
{
    return subschema(k, v, k->r->options->closed_objects, out);
}

static int subschemas(
    struct schema_reading *k, const struct json *v, bool is_closed, struct node_list *out)
{
    node_id *ids;
    uint32_t n = 0;

    if (v->kind != JSON_ARRAY || !v->n)
        return need(k, "an array of schemas");
    if (GRAPH_ARRAY(k, ids, v->n))
        return -1;
    for (const struct json *m = v->child; m; m = m->next)
        if (subschema(k, m, is_closed, &ids[n++]))
            return -1;
    *out = (struct node_list){ ids, n };
    return 0;
}

/* Appends to all_of, which several keywords write. */
static int add_all_of(struct schema_reading *k, const node_id *ids, uint32_t n)
{
    struct node_list *list = &k->node->all_of;
    node_id *all;

    if (GRAPH_ARRAY(k, all, list->n + n))
        return -1;
    if (list->n)
        memcpy(all, list->ids, list->n * sizeof(*all));
    memcpy(all + list->n, ids, n * sizeof(*all));
    *list = (struct node_list){ all, list->n + n };
    return 0;
}

static int read_all_of(struct schema_reading *k, const struct json *v)
{
    struct node_list list;

    return subschemas(k, v, k->are_members_closed, &list) ? -1 : add_all_of(k, list.ids, list.n);
}

static int read_any_of(struct schema_reading *k, const struct json *v)
{
    return subschemas(k, v, k->are_members_closed, &k->node->any_of);
}

static int read_one_of(struct schema_reading *k, const struct json *v)
{
    return subschemas(k, v, k->are_members_closed, &k->node->one_of);
}

static int read_not(struct schema_reading *k, const struct json *v)
{
    return subschema(k, v, false, &k->node->not_of);
}

static int read_if(struct schema_reading *k, const struct json *v)
{
    k->node->has_if = true;
    return subschema(k, v, false, &k->node->if_of);
}

static int read_then(struct schema_reading *k, const struct json *v)
{
    return json_get(k->object, "if") ? subschema(k, v, false, &k->node->then_of) : 0;
}

static int read_else(struct schema_reading *k, const struct json *v)
{
    return json_get(k->object, "if") ? subschema(k, v, false, &k->node->else_of) : 0;
}

/* ---- references */

static int add_target(struct schema_reading *k, uint32_t location)
{
    struct schema_todo todo = { location, k->scope, k->are_members_closed, false };
    node_id target;

    return schema_node_of(k->r, &todo, &target) ? -1 : add_all_of(k, &target, 1);
}

static int read_ref(struct schema_reading *k, const struct json *v)
{
    uint32_t location, anchor;

    if (v->kind != JSON_STRING)
        return need(k, "a string");
    if (schema_resolve(k->r, k->location, v->s, &location, &anchor))
        return -1;
    return add_target(k, location);
}

/* The outermost location in the dynamic scope, if the reference names a dynamic anchor. */
static int read_dynamic_ref(struct schema_reading *k, const struct json *v)
{
    uint32_t location, anchor, scope;

    if (v->kind != JSON_STRING)
        return need(k, "a string");
    if (schema_resolve(k->r, k->location, v->s, &location, &anchor))
        return -1;
    if (anchor != NO_ANCHOR && k->r->anchors.at[anchor].is_dynamic) {
        struct schema_anchor a = k->r->anchors.at[anchor];
        uint32_t resource = k->r->locations.at[location].resource;
        if (schema_scope_enter(k->r, k->scope, resource, &scope))
            return -1;
        schema_scope_find(k->r, scope, a.name, &location);
    }
    return add_target(k, location);
}

static int read_recursive_ref(struct schema_reading *k, const struct json *v)
{
    uint32_t location, anchor, name;

    if (v->kind != JSON_STRING || !str_is(v->s, "#"))
        return need(k, "\"#\"");
    if (schema_resolve(k->r, k->location, v->s, &location, &anchor))
        return -1;
    const struct json *target = k->r->locations.at[location].value;
    const struct json *mark = json_get(target, "$recursiveAnchor");
    if (mark && mark->b && str_map_get(k->r->dynamic_names, STR(""), &name))
        schema_scope_find(k->r, k->scope, name, &location);
    return add_target(k, location);
}

/* ---- arrays */

static int read_prefix(struct schema_reading *k, const struct json *v)
{
    return subschemas(k, v, k->r->options->closed_objects, &k->node->prefix_items);
}

/* Before 2020-12 an array has the meaning of prefixItems, and an empty one is permitted. */
static int read_items(struct schema_reading *k, const struct json *v)
{
    if (v->kind == JSON_ARRAY)
        return v->n ? read_prefix(k, v) : 0;
    k->node->items_evaluate = true;
    return inner(k, v, &k->node->items);
}

static int read_additional_items(struct schema_reading *k, const struct json *v)
{
    const struct json *items = json_get(k->object, "items");

    if (!items || items->kind != JSON_ARRAY)
        return 0;
    k->node->items_evaluate = true;
    return inner(k, v, &k->node->items);
}

static int read_contains(struct schema_reading *k, const struct json *v)
{
    k->node->has_contains = true;
    k->node->contains_evaluate = k->version.draft & (DRAFT_2020 | DRAFT_ANY);
    return inner(k, v, &k->node->contains);
}

static int read_unevaluated_items(struct schema_reading *k, const struct json *v)
{
    k->node->has_unevaluated_items = true;
    return inner(k, v, &k->node->unevaluated_items);
}

/* ---- objects */

static bool is_string_array(const struct json *v)
{
    if (v->kind != JSON_ARRAY)
        return false;
    for (const struct json *m = v->child; m; m = m->next)
        if (m->kind != JSON_STRING)
            return false;
    return true;
}

/* `properties` and `required`: called for the first of them in the document. */
static int read_properties(struct schema_reading *k, const struct json *v)
{
    static const struct json none = { .kind = JSON_OBJECT }, no_names = { .kind = JSON_ARRAY };
    bool is_used = schema_keyword_find(k->version, STR("required")) != NULL;
    const struct json *declared = json_get(k->object, "properties");
    const struct json *required = is_used ? json_get(k->object, "required") : NULL;
    struct schema_property *list;
    struct str_map *by_key = NULL;
    uint32_t n = 0, at;
    int rc = -1;

    if (k->node->properties)
        return 0;
    declared = declared ? declared : &none;
    required = required ? required : &no_names;
    if (declared->kind != JSON_OBJECT)
        return need(k, "an object of schemas in properties");
    if (!is_string_array(required))
        return need(k, "an array of strings in required");
    if (GRAPH_ARRAY(k, list, (size_t)declared->n + required->n))
        return -1;
    if (!(by_key = str_map_new(declared->n + required->n)))
        return schema_no_memory(k->r);
    for (const struct json *m = declared->child; m; m = m->next, n++) {
        list[n] = (struct schema_property){ .key = m->key, .is_declared = true };
        if (schema_keep(k->r, &list[n].key) || inner(k, m, &list[n].value))
            goto done;
        if (str_map_put(by_key, list[n].key, n) < 0) {
            schema_no_memory(k->r);
            goto done;
        }
    }
    for (const struct json *m = required->child; m; m = m->next) {
        if (!str_map_get(by_key, m->s, &at)) {
            list[at = n++] = (struct schema_property){ .key = m->s };
            if (schema_keep(k->r, &list[at].key))
                goto done;
            if (str_map_put(by_key, list[at].key, at) < 0) {
                schema_no_memory(k->r);
                goto done;
            }
        }
        list[at].is_required = true;
    }
    k->node->properties = list;
    k->node->n_properties = n;
    rc = 0;
done:
    str_map_free(by_key);
    return rc;
}

static int read_pattern_properties(struct schema_reading *k, const struct json *v)
{
    struct schema_pattern_property *list;
    uint32_t n = 0;

    if (v->kind != JSON_OBJECT)
        return need(k, "an object of schemas");
    if (GRAPH_ARRAY(k, list, v->n))
        return -1;
    for (const struct json *m = v->child; m; m = m->next, n++) {
        list[n].pattern = m->key;
        if (schema_keep(k->r, &list[n].pattern) || schema_pattern_check(k->r, m->key) ||
            inner(k, m, &list[n].value))
            return -1;
    }
    k->node->pattern_properties = list;
    k->node->n_pattern_properties = n;
    return 0;
}

static int read_additional_properties(struct schema_reading *k, const struct json *v)
{
    k->node->has_additional = true;
    return inner(k, v, &k->node->additional_properties);
}

static int read_property_names(struct schema_reading *k, const struct json *v)
{
    return inner(k, v, &k->node->property_names);
}

static int read_unevaluated_properties(struct schema_reading *k, const struct json *v)
{
    k->node->has_unevaluated_properties = true;
    return inner(k, v, &k->node->unevaluated_properties);
}

static int dependency_names(
    struct schema_reading *k, const struct json *v, struct schema_dependency *d)
{
    struct str *names;

    if (!is_string_array(v))
        return need(k, "an array of strings");
    if (GRAPH_ARRAY(k, names, v->n))
        return -1;
    d->required = names;
    for (const struct json *m = v->child; m; m = m->next) {
        names[d->n_required] = m->s;
        if (schema_keep(k->r, &names[d->n_required++]))
            return -1;
    }
    return 0;
}

/* dependentRequired, dependentSchemas and dependencies: the kind of each value selects. */
static int read_dependencies(struct schema_reading *k, const struct json *v)
{
    struct schema_node *node = k->node;
    struct schema_dependency *list;
    uint32_t n = node->n_dependencies;
    bool has_names = !str_is(v->key, "dependentSchemas");
    bool has_schemas = !str_is(v->key, "dependentRequired");

    if (v->kind != JSON_OBJECT)
        return need(k, "an object");
    if (GRAPH_ARRAY(k, list, (size_t)n + v->n))
        return -1;
    if (n)
        memcpy(list, node->dependencies, n * sizeof(*list));
    for (const struct json *m = v->child; m; m = m->next, n++) {
        list[n].key = m->key;
        list[n].schema = NODE_TRUE;
        if (schema_keep(k->r, &list[n].key))
            return -1;
        if (has_names && (m->kind == JSON_ARRAY || !has_schemas)) {
            if (dependency_names(k, m, &list[n]))
                return -1;
        } else if (subschema(k, m, false, &list[n].schema)) {
            return -1;
        }
    }
    node->dependencies = list;
    node->n_dependencies = n;
    return 0;
}

/* ---- the table */

enum {
    FROM_4 = 63,
    FROM_6 = FROM_4 & ~DRAFT_4,
    FROM_7 = FROM_6 & ~DRAFT_6,
    FROM_2019 = FROM_7 & ~DRAFT_7,
    FROM_2020 = FROM_2019 & ~DRAFT_2019,
    CORE = VOCABULARY_CORE,
    APPLY = VOCABULARY_APPLICATOR,
    UNEVAL = VOCABULARY_UNEVALUATED,
    VALID = VOCABULARY_VALIDATION,
    OTHER = VOCABULARY_OTHER
};

static const struct schema_keyword keywords[] = {
    { "type", FROM_4, VALID, SHAPE_VALUE, false, schema_read_type },
    { "properties", FROM_4, APPLY, SHAPE_SCHEMA_MAP, false, read_properties },
    { "required", FROM_4, VALID, SHAPE_VALUE, false, read_properties },
    { "enum", FROM_4, VALID, SHAPE_VALUE, false, schema_read_enum },
    { "const", FROM_6, VALID, SHAPE_VALUE, false, schema_read_const },
    { "description", FROM_4, OTHER, SHAPE_VALUE, false, NULL },
    { "title", FROM_4, OTHER, SHAPE_VALUE, false, NULL },
    { "$ref", FROM_4, CORE, SHAPE_VALUE, false, read_ref },
    { "$dynamicRef", FROM_2020, CORE, SHAPE_VALUE, false, read_dynamic_ref },
    { "$recursiveRef", DRAFT_2019 | DRAFT_ANY, CORE, SHAPE_VALUE, false, read_recursive_ref },
    { "$schema", FROM_4, CORE, SHAPE_VALUE, false, NULL },
    { "$id", FROM_6, CORE, SHAPE_VALUE, false, NULL },
    { "id", DRAFT_4 | DRAFT_ANY, CORE, SHAPE_VALUE, false, NULL },
    { "$anchor", FROM_2019, CORE, SHAPE_VALUE, false, NULL },
    { "$dynamicAnchor", FROM_2020, CORE, SHAPE_VALUE, false, NULL },
    { "$recursiveAnchor", DRAFT_2019 | DRAFT_ANY, CORE, SHAPE_VALUE, false, NULL },
    { "$vocabulary", FROM_2019, CORE, SHAPE_VALUE, false, NULL },
    { "$comment", FROM_7, CORE, SHAPE_VALUE, false, NULL },
    { "$defs", FROM_4, CORE, SHAPE_SCHEMA_MAP, false, NULL },
    { "definitions", FROM_4, CORE, SHAPE_SCHEMA_MAP, false, NULL },

    { "allOf", FROM_4, APPLY, SHAPE_SCHEMAS, false, read_all_of },
    { "anyOf", FROM_4, APPLY, SHAPE_SCHEMAS, false, read_any_of },
    { "oneOf", FROM_4, APPLY, SHAPE_SCHEMAS, false, read_one_of },
    { "not", FROM_4, APPLY, SHAPE_SCHEMA, false, read_not },
    { "if", FROM_7, APPLY, SHAPE_SCHEMA, false, read_if },
    { "then", FROM_7, APPLY, SHAPE_SCHEMA, false, read_then },
    { "else", FROM_7, APPLY, SHAPE_SCHEMA, false, read_else },

    { "items", FROM_4, APPLY, SHAPE_ITEMS, false, read_items },
    { "prefixItems", FROM_2020, APPLY, SHAPE_SCHEMAS, false, read_prefix },
    { "additionalItems", FROM_4, APPLY, SHAPE_SCHEMA, false, read_additional_items },
    { "contains", FROM_6, APPLY, SHAPE_SCHEMA, false, read_contains },
    { "unevaluatedItems", FROM_2019, UNEVAL, SHAPE_SCHEMA, false, read_unevaluated_items },
    { "minItems", FROM_4, VALID, SHAPE_VALUE, false, schema_read_min_items },
    { "maxItems", FROM_4, VALID, SHAPE_VALUE, false, schema_read_max_items },
    { "minContains", FROM_2019, VALID, SHAPE_VALUE, false, schema_read_min_contains },
    { "maxContains", FROM_2019, VALID, SHAPE_VALUE, false, schema_read_max_contains },
    { "uniqueItems", FROM_4, VALID, SHAPE_VALUE, false, schema_read_unique_items },

    { "patternProperties", FROM_4, APPLY, SHAPE_SCHEMA_MAP, false, read_pattern_properties },
    { "additionalProperties", FROM_4, APPLY, SHAPE_SCHEMA, false, read_additional_properties },
    { "propertyNames", FROM_6, APPLY, SHAPE_SCHEMA, false, read_property_names },
    { "unevaluatedProperties", FROM_2019, UNEVAL, SHAPE_SCHEMA, false,
        read_unevaluated_properties },
    { "minProperties", FROM_4, VALID, SHAPE_VALUE, false, schema_read_min_properties },
    { "maxProperties", FROM_4, VALID, SHAPE_VALUE, false, schema_read_max_properties },
    { "dependencies", FROM_4, APPLY, SHAPE_SCHEMA_MAP, false, read_dependencies },
    { "dependentSchemas", FROM_2019, APPLY, SHAPE_SCHEMA_MAP, false, read_dependencies },
    { "dependentRequired", FROM_2019, VALID, SHAPE_VALUE, false, read_dependencies },

    { "minimum", FROM_4, VALID, SHAPE_VALUE, false, schema_read_minimum },
    { "maximum", FROM_4, VALID, SHAPE_VALUE, false, schema_read_maximum },
    { "exclusiveMinimum", FROM_4, VALID, SHAPE_VALUE, false, schema_read_exclusive_minimum },
    { "exclusiveMaximum", FROM_4, VALID, SHAPE_VALUE, false, schema_read_exclusive_maximum },
    { "multipleOf", FROM_4, VALID, SHAPE_VALUE, false, schema_read_multiple_of },

    { "minLength", FROM_4, VALID, SHAPE_VALUE, false, schema_read_min_length },
    { "maxLength", FROM_4, VALID, SHAPE_VALUE, false, schema_read_max_length },
    { "pattern", FROM_4, VALID, SHAPE_VALUE, false, schema_read_pattern },
    { "format", FROM_4, OTHER, SHAPE_VALUE, false, schema_read_format },

    { "nullable", DRAFT_ANY, OTHER, SHAPE_VALUE, false, NULL },
    { "default", FROM_4, OTHER, SHAPE_VALUE, false, NULL },
    { "examples", FROM_6, OTHER, SHAPE_VALUE, false, NULL },
    { "deprecated", FROM_2019, OTHER, SHAPE_VALUE, false, NULL },
    { "readOnly", FROM_7, OTHER, SHAPE_VALUE, false, NULL },
    { "writeOnly", FROM_7, OTHER, SHAPE_VALUE, false, NULL },
    { "contentEncoding", FROM_7, OTHER, SHAPE_VALUE, true, NULL },
    { "contentMediaType", FROM_7, OTHER, SHAPE_VALUE, true, NULL },
    { "contentSchema", FROM_2019, OTHER, SHAPE_SCHEMA, true, NULL },
};

const struct schema_keyword *schema_keyword_find(struct schema_version d, struct str name)
{
    for (size_t k = 0; k < ARRAY_LEN(keywords); k++)
        if (str_is(name, keywords[k].name))
            return (keywords[k].drafts & d.draft) && (keywords[k].vocabulary & d.vocabularies)
                       ? &keywords[k]
                       : NULL;
    return NULL;
}

/* ---- one object */

static uint32_t count_of(const struct json *object, const char *const *names, size_t n)
{
    uint32_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += json_get(object, names[i]) != NULL;
    return count;
}

/* schema_options.closed_objects: a schema that lists properties is closed, and one that combines
 * several schemas closes their union (schema_graph.c). One that only refers to others or has only
 * alternatives leaves that to them. */
static void choose_closed(struct schema_reading *k, bool is_reference)
{
    static const char *const own[] = { "properties", "patternProperties", "additionalProperties",
        "unevaluatedProperties" };
    static const char *const single[] = { "$ref", "$dynamicRef", "$recursiveRef", "anyOf",
        "oneOf" };
    static const char *const conditional[] = { "if", "dependentSchemas", "dependencies" };
    const struct json *all_of = json_get(k->object, "allOf");
    uint32_t n_own = count_of(k->object, own, ARRAY_LEN(own));
    uint32_t n_conditional = count_of(k->object, conditional, ARRAY_LEN(conditional));
    uint32_t n = count_of(k->object, single, ARRAY_LEN(single)) + (all_of ? all_of->n : 0);

    if (!k->is_closed)
        return;
    k->are_members_closed = is_reference || (n == 1 && !n_conditional && !n_own);
    k->is_closed = !k->are_members_closed && !count_of(k->object, own + 2, 2);
    if (k->is_closed && !n && !n_conditional && json_get(k->object, "properties")) {
        k->node->has_additional = true;
        k->node->additional_properties = NODE_FALSE;
        k->is_closed = false;
    }
}

int schema_object_read(struct schema_reading *k)
{
    bool is_reference = (k->version.draft & DRAFTS_OLD) && json_get(k->object, "$ref");

    choose_closed(k, is_reference);
    for (const struct json *m = k->object->child; m; m = m->next) {
        const struct schema_keyword *word = schema_keyword_find(k->version, m->key);
        if (is_reference && !str_is(m->key, "$ref"))
            continue; /* siblings of $ref are ignored up to draft 7 */
        if ((!word || word->is_reported) && schema_ignore(k->r, m->key))
            return -1;
        if (word && word->read && word->read(k, m))
            return err_wrap(
                k->r->e, STR_FMT "/" STR_FMT, STR_ARG(k->node->pointer), STR_ARG(m->key));
    }
    return 0;
}
