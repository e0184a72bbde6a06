/* schema.h: a JSON Schema document as a graph of nodes.
 *
 * schema_new reads drafts 4, 6, 7, 2019-09 and 2020-12: it resolves references, brings old forms
 * of keywords to the forms below, and refuses assertions that cannot be enforced. A subschema that
 * is reached in two dynamic scopes becomes two nodes, so dynamic references are resolved too. A
 * value satisfies a node if it satisfies all its members; members that concern another kind of
 * value have no effect.
 *
 * The graph may be recursive, but only through members and items: the lists all_of .. one_of,
 * not_of, if_of, then_of, else_of and the schemas of dependencies form no cycle.
 *
 * Reference: JSON Schema 2020-12 (core and validation) and the earlier drafts.
 *
 * Read-only after creation: any thread. */
#pragma once

#include "base/json.h"
#include "constrain/regular/number.h"

/* Kinds of JSON values. An integer is a number with an integral value, also 1.0. */
enum {
    KIND_NULL = 1,
    KIND_BOOLEAN = 2,
    KIND_INTEGER = 4,
    KIND_FRACTION = 8, /* numbers that are not integers */
    KIND_STRING = 16,
    KIND_ARRAY = 32,
    KIND_OBJECT = 64,
    KIND_NUMBER = KIND_INTEGER | KIND_FRACTION,
    KIND_ANY = 127
};

typedef struct node_id {
    uint32_t i;
} node_id;

#define NODE_TRUE  ((node_id){ 0 }) /* every value; also the default of absent subschemas */
#define NODE_FALSE ((node_id){ 1 }) /* no value */

struct node_list {
    const node_id *ids;
    uint32_t n;
};

struct schema_property { /* `properties`, in the order of the document */
    struct str key;      /* decoded */
    node_id value;
    bool is_declared; /* false: only in `required`; the value is that of the other keywords */
    bool is_required;
};

struct schema_pattern_property {
    struct str pattern; /* ECMA-262 */
    node_id value;
};

struct schema_dependency { /* dependentRequired, dependentSchemas */
    struct str key;
    const struct str *required;
    uint32_t n_required;
    node_id schema; /* NODE_TRUE: none */
};

struct schema_node {
    struct str pointer; /* JSON pointer of the subschema, for messages; long ones are shortened */
    uint8_t kinds;      /* `type`, `nullable` */

    bool has_enum; /* `enum`, `const`; duplicates are removed */
    const struct json *const *values;
    uint32_t n_values;

    struct node_list all_of; /* allOf and the target of $ref */
    struct node_list any_of; /* empty: no keyword */
    struct node_list one_of; /* empty: no keyword */
    node_id not_of;          /* NODE_FALSE: none */
    bool has_if;
    node_id if_of, then_of, else_of;

    /* Numbers. `format` int32 .. uint64 is part of `range` and `kinds`. Whether the text may have a
     * fraction or an exponent depends on `kinds`; the flags of the range are set. */
    struct number_range range;

    /* Strings; lengths in code points. */
    const struct str *patterns;
    uint32_t n_patterns;
    const struct str *formats; /* known ones (string_format.h) */
    uint32_t n_formats;
    uint64_t min_length, max_length; /* UINT64_MAX: no limit */

    /* Arrays. */
    struct node_list prefix_items;
    node_id items; /* schema of the items after prefix_items */
    uint64_t min_items, max_items;
    bool has_contains, has_unique_items;
    node_id contains;
    uint64_t min_contains, max_contains;
    bool has_unevaluated_items;
    node_id unevaluated_items;

    /* Objects. */
    const struct schema_property *properties;
    uint32_t n_properties;
    const struct schema_pattern_property *pattern_properties;
    uint32_t n_pattern_properties;
    bool has_additional; /* false: additional_properties is NODE_TRUE and evaluates nothing */
    node_id additional_properties;
    node_id property_names; /* applied to the key as a string value */
    uint64_t min_properties, max_properties;
    const struct schema_dependency *dependencies;
    uint32_t n_dependencies;
    bool has_unevaluated_properties;
    node_id unevaluated_properties;

    /* For unevaluatedItems: whether `items`, `contains` of this node evaluate members. In drafts
     * before 2020-12 `contains` does not. */
    bool items_evaluate, contains_evaluate;
};

struct schema_document {
    struct str uri, text;
};

struct schema_options {
    bool closed_objects; /* objects with `properties` and without additionalProperties are closed */
    uint32_t bytes_max;  /* length of the text */
    uint32_t nodes_max;
    /* Documents that references and $schema may name, other than the metaschemas of the drafts.
     * Nothing is fetched. */
    const struct schema_document *documents;
    uint32_t n_documents;
};
extern const struct schema_options schema_options_default; /* 16 KB, 500,000 nodes */

struct schema;

/* -1: ERR_INVALID "#/properties/a/pattern: lookbehind is not supported", ERR_TOO_LARGE, ERR_MEMORY.
 * The text need not outlive the call. */
int schema_new(
    struct schema **out, struct str text, const struct schema_options *o, struct err *e) MUST_CHECK;
void schema_free(struct schema *s); /* accepts NULL */

node_id schema_root(const struct schema *s);
uint32_t schema_count(const struct schema *s);
const struct schema_node *schema_node(const struct schema *s, node_id id);
size_t schema_bytes(const struct schema *s);
/* Keywords that are ignored, in ascending order, for the report to the client. */
const struct str *schema_ignored(const struct schema *s, uint32_t *n);
