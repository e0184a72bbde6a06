/* schema_in.h: the reader of schemas, for the files schema*.c.
 *
 *   schema.c             documents, the list of nodes, errors
 *   schema_graph.c       checks of the graph as a whole
 *   schema_refs.c        locations, resources, anchors, references, dynamic scopes
 *   schema_version.c     drafts and vocabularies; the metaschemas
 *   schema_keywords.c    table of keywords; keywords with subschemas
 *   schema_assertions.c  the other keywords
 *   schema_values.c      enum, const
 *
 * A location is a subschema in a document. A scope is the set of the dynamic anchors that have been
 * reached, each with the outermost location that defines it. A node is a location in a scope; nodes
 * are read one after the other from a list, so that chains of references need no recursion. All
 * recursion is bounded by the nesting of the documents.
 *
 * schema_keyword.h declares the functions of the keywords.
 *
 * Owner: one thread, the caller of schema_new. */
#pragma once

#include "base/map.h"
#include "constrain/regular/expr.h"
#include "constrain/schema/schema.h"

enum {
    SCHEMA_POINTER_MAX = 256,      /* bytes of a pointer in a message */
    SCHEMA_IGNORED_MAX = 64,       /* names that are reported */
    SCHEMA_GRAPH_BYTES = 32 << 20, /* memory of the largest graph */
};

enum schema_draft { /* bits */
    DRAFT_4 = 1,
    DRAFT_6 = 2,
    DRAFT_7 = 4,
    DRAFT_2019 = 8,
    DRAFT_2020 = 16,
    DRAFT_ANY = 32, /* no $schema: 2020-12, and the older forms */
    DRAFTS_OLD = DRAFT_4 | DRAFT_6 | DRAFT_7,
};

enum schema_vocabulary { /* bits */
    VOCABULARY_CORE = 1,
    VOCABULARY_APPLICATOR = 2,
    VOCABULARY_UNEVALUATED = 4,
    VOCABULARY_VALIDATION = 8,
    VOCABULARY_OTHER = 16, /* format, content, annotations */
    VOCABULARIES_ALL = 31
};

struct schema_version {
    uint8_t draft, vocabularies;
};

struct schema_resource { /* a document, or a subschema with its own URI */
    const struct json *root;
    struct str uri;
    struct schema_version version;
    uint32_t dynamic;  /* first dynamic anchor; UINT32_MAX: none */
    bool is_ambiguous; /* another resource has the same URI */
};

struct schema_location {
    const struct json *value;
    uint32_t resource;
    struct str pointer;
};

struct schema_anchor {
    uint32_t location, name;
    uint32_t next; /* dynamic anchor of the same resource */
    bool is_dynamic, is_ambiguous;
};

struct schema_scope_entry {
    uint32_t name, location;
};

struct schema_scope { /* sorted by name */
    const struct schema_scope_entry *entries;
    uint32_t n;
};

struct schema_todo { /* how node k was reached */
    uint32_t location, scope;
    bool is_closed;    /* schema_options.closed_objects applies to this node */
    bool closes_union; /* with the nodes that are applied to the same value */
};

struct schema_members {     /* index of an object with many members */
    struct str_map *by_key; /* -> number in `at` */
    const struct json **at;
};

/* Array that grows; members are addressed by number. */
#define SCHEMA_LIST(type)                                                                          \
    struct {                                                                                       \
        type *at;                                                                                  \
        uint32_t n, cap;                                                                           \
    }

struct schema {
    struct arena *arena;
    struct schema_node *nodes;
    uint32_t n_nodes, n_ignored;
    struct str *ignored;
    node_id root;
};

struct schema_reader {
    struct schema *schema;
    const struct schema_options *options;
    struct arena *arena;           /* lifetime of the reader */
    size_t arena_bytes;            /* cap of the arena */
    size_t graph_bytes;            /* cap of the graph, proportional to the text */
    struct exprs *exprs;           /* NULL until a pattern is compiled */
    struct schema_version version; /* version of the main document */
    struct err *e;

    SCHEMA_LIST(struct schema_resource) resources;
    SCHEMA_LIST(struct schema_location) locations;
    SCHEMA_LIST(struct schema_anchor) anchors;
    SCHEMA_LIST(struct schema_scope) scopes;
    SCHEMA_LIST(struct schema_todo) todo; /* one per node */
    SCHEMA_LIST(struct schema_node) nodes;
    SCHEMA_LIST(struct str) ignored;
    SCHEMA_LIST(struct schema_members) members;

    struct u64_map *by_value;      /* address of a value -> location */
    struct u64_map *by_object;     /* address of an object -> members */
    struct u64_map *by_node;       /* location, scope -> node */
    struct u64_map *by_scope;      /* scope, resource -> scope */
    struct u64_map *by_entries;    /* hash of the entries -> scope */
    struct str_map *by_uri;        /* -> resource */
    struct str_map *by_anchor;     /* resource and name -> anchor */
    struct str_map *dynamic_names; /* -> number */
    struct str_map *ignored_names;
};

/* ---- schema.c */

#define SCHEMA_GROW(r, list)                                                                       \
    schema_grow((r), (void **)&(list).at, (list).n, &(list).cap, sizeof(*(list).at))
/* Makes space for one more member. */
int schema_grow(
    struct schema_reader *r, void **at, uint32_t n, uint32_t *cap, size_t size) MUST_CHECK;
int schema_no_memory(struct schema_reader *r);
/* Memory until the end of the call; NULL with an error if there is none. */
void *schema_scratch(struct schema_reader *r, size_t n, size_t size) MUST_CHECK;
/* Memory of the graph; -1 with an error if there is none. `n` 0: NULL. */
int schema_alloc(struct schema_reader *r, void **out, size_t n, size_t size) MUST_CHECK;
int schema_keep(struct schema_reader *r, struct str *s) MUST_CHECK; /* copies to the graph */
/* Parses a document and adds its members to r->members; refuses keys that occur twice. */
int schema_parse(struct schema_reader *r, struct str text, const struct json **out) MUST_CHECK;
const struct json *schema_member(
    const struct schema_reader *r, const struct json *object, struct str key);
/* The node of a location in a scope, which is read later. */
int schema_node_of(
    struct schema_reader *r, const struct schema_todo *todo, node_id *out) MUST_CHECK;
int schema_ignore(struct schema_reader *r, struct str name) MUST_CHECK;

/* ---- schema_graph.c */

/* Refuses cycles of nodes that are applied to the same value; closes unions. */
int schema_graph_check(struct schema_reader *r) MUST_CHECK;

/* ---- schema_refs.c */

/* Adds `value` and the subschemas in it; returns the location of `value` in *out. */
int schema_scan(struct schema_reader *r, const struct json *value, uint32_t resource,
    struct str pointer, uint32_t *out) MUST_CHECK;
int schema_document_add(
    struct schema_reader *r, struct str uri, struct str text, uint32_t *resource) MUST_CHECK;
/* The target of $ref. *anchor is the anchor that the fragment names, UINT32_MAX: none. */
int schema_resolve(struct schema_reader *r, uint32_t from, struct str reference, uint32_t *location,
    uint32_t *anchor) MUST_CHECK;
/* The scope in `resource` after `scope`: anchors that are already in it stay. */
int schema_scope_enter(
    struct schema_reader *r, uint32_t scope, uint32_t resource, uint32_t *out) MUST_CHECK;
bool schema_scope_find(
    const struct schema_reader *r, uint32_t scope, uint32_t name, uint32_t *location);
int schema_pointer_add(struct schema_reader *r, struct str *pointer, struct str token) MUST_CHECK;

/* ---- schema_version.c */

int schema_version_find(
    struct schema_reader *r, struct str uri, struct schema_version *out) MUST_CHECK;
/* STR_NONE: no metaschema. */
struct str schema_metaschema(struct str uri);
