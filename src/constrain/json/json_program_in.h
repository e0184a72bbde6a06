/* json_program_in.h: the tables of a compiled schema.
 *
 *   literal      a node or the negation of a node
 *   conjunction  a set of literals that one value satisfies, interned
 *   alternative  a set of literals whose own keywords are sufficient for a conjunction: allOf and
 *                references are added, one member of anyOf and oneOf is chosen, `not` is pushed
 *                inwards (json_expand.c)
 *
 * Shapes of arrays and objects are in json_shape.h.
 *
 * Owner: the compilation; afterwards read-only. */
#pragma once

#include "base/arena.h"
#include "base/map.h"
#include "constrain/json/json_program.h"
#include "constrain/json/json_shape.h"

/* Parts of the texts of scalar values. */
enum { PART_WORD, PART_NUMBER, PART_STRING, N_PARTS }; /* strings without quotation marks */
struct json_scalar {
    expr_id part[N_PARTS];
};

/* The properties of a node that are computed before it is used. */
struct jnode {
    const struct schema_node *s;
    uint32_t *keys;     /* ranks of `properties` */
    uint32_t *sorted;   /* indexes of `properties` by rank */
    uint32_t *patterns; /* numbers of `pattern_properties` */
    uint32_t *dep_keys; /* ranks of `dependencies` */
    uint32_t **dep_required;
    uint32_t *dep_nodes; /* node that requires the key of a dependency with a schema; 0: none */
    uint32_t *values;    /* nodes for the arrays and objects in `enum` */
    uint32_t n_values;
};

struct json_key {
    struct str text;    /* decoded */
    struct str spelled; /* with quotation marks */
};

/* ---- conjunctions */

struct conj {
    json_lit *lits; /* ascending */
    uint32_t n_lits;
    uint8_t cost; /* containers that the shallowest value nests; COST_NONE */
    bool is_solved, is_listed, has_shapes;
    expr_id scalar;
    uint32_t root;    /* number of `scalar` among the roots; NO_ITEM: empty */
    uint32_t n_words; /* texts in canonical form, for uniqueItems; UINT32_MAX: many; 0: unknown */
    uint32_t canonical_root; /* the same, in canonical form */
    struct shape **arrays, **objects;
    uint32_t n_arrays, n_objects;
};

struct json_program {
    struct json_program_options options;
    const struct schema *schema;
    struct arena *arena;
    struct exprs *x;
    struct jnode *nodes;
    uint32_t n_nodes, cap_nodes;
    struct json_key *keys; /* sorted by spelled text */
    uint32_t n_keys;
    size_t key_bytes_max;   /* limit of the spelled texts */
    struct str_map *key_of; /* decoded -> number */
    uint32_t *ranks;        /* number -> rank */
    struct str *patterns;
    expr_id *pattern_exprs;
    uint32_t n_patterns;
    struct str_map *pattern_of;
    struct json_scalar *scalars; /* per literal */
    uint8_t *has_scalar;
    expr_id any_key, key_text; /* with and without quotation marks */
    bool has_unique;           /* uniqueItems occurs */
    expr_id canonical;         /* scalars in the form in which equal values have equal texts */
    struct json_scalar any;
    struct conj **conjs;
    uint32_t n_conjs, cap_conjs;
    struct str_map *conj_of; /* literals as bytes */
    struct shape **shapes;
    uint32_t n_shapes, cap_shapes;
    struct str_map *shape_of; /* kind, literals and scopes as bytes */
    struct u64_map *disjoint_of, *match_of, *root_of;
    expr_id *roots;
    uint32_t n_roots, cap_roots;
    conj_id *listed; /* conjunctions whose costs are being computed */
    uint32_t n_listed, cap_listed;
    struct option_stack search; /* stack of the compilation; each acceptor has its own */
    uint64_t work, work_max;
    bool is_solving, is_frozen;
    bool is_failed;
    struct err err; /* the first error, if it failed */
    conj_id root;
};

/* Sets the program to failed; returns NULL. */
void *json_fail(struct json_program *p, enum errcode code, const char *what);
bool json_work(struct json_program *p, uint64_t n);              /* false after a failure */
void *json_alloc(struct json_program *p, size_t n, size_t size); /* zeroed; NULL: failed */
static inline const struct schema_node *json_node(const struct json_program *p, uint32_t node)
{
    return p->nodes[node].s;
}

/* ---- nodes (json_nodes.c) */

int json_nodes_build(struct json_program *p, struct err *e) MUST_CHECK;
/* Index of the property, or NO_ITEM. */
uint32_t json_property(const struct json_program *p, uint32_t node, uint32_t key);
bool json_pattern_matches(struct json_program *p, uint32_t pattern, uint32_t key);

/* ---- scalar texts (json_scalar.c) */

void json_scalar_init(struct json_program *p);
/* Texts of the scalar values that satisfy the literal; narrower than the values by the policy. */
struct json_scalar json_scalar_of(struct json_program *p, json_lit l, unsigned depth);
expr_id json_scalar_text(struct json_program *p, const struct json_scalar *s);
/* Words of the language up to `max`; more than `max` if the search takes long. */
uint32_t json_count_words(struct json_program *p, expr_id a, uint32_t max);
bool json_expr_matches(struct json_program *p, expr_id a, struct str text);

/* ---- conjunctions (json_conj.c) */

/* Sorts and deduplicates `lits`. */
conj_id json_conj(struct json_program *p, json_lit *lits, uint32_t n);
void json_conj_false(struct json_program *p); /* creates CONJ_FALSE */
conj_id json_conj_add(struct json_program *p, conj_id c, const json_lit *more, uint32_t n);
/* Nesting of the shallowest value; COST_NONE. */
unsigned json_cost(struct json_program *p, conj_id c);
void json_shapes(struct json_program *p, conj_id c); /* computes the shapes of the conjunction */
unsigned json_shape_rest(struct json_program *p, struct shape *s); /* rest of the initial state */
uint32_t json_root(struct json_program *p, expr_id a);

/* ---- alternatives (json_expand.c) */

struct alternative {
    json_lit *lits;
    uint64_t *scopes;
    uint32_t n;
    uint32_t *unevaluated;
    uint32_t n_unevaluated;
};
/* The alternatives of a conjunction for arrays or objects. Returns their number. */
uint32_t json_expand(struct json_program *p, conj_id c, unsigned kind, struct alternative **out);

/* ---- objects (json_object.c) and arrays (json_array.c) */

struct shape *json_object_shape(struct json_program *p, const struct alternative *a);
uint64_t json_inner_scopes(const struct shape *s); /* evaluated by inner unevaluated keywords */
uint32_t json_entry(const struct shape *s, uint32_t key); /* index, or NO_ITEM */
struct shape *json_array_shape(struct json_program *p, const struct alternative *a);
void json_object_options(struct json_program *p, const struct branch *b, uint32_t entry,
    const struct shape_class *class, struct member_options *out);
void json_array_options(
    struct json_program *p, const struct branch *b, uint64_t at, struct member_options *out);
/* Nesting of the shallowest completion, at least 0; COST_NONE. `n`: members that were read. */
unsigned json_object_rest(struct json_program *p, const struct branch *b, uint64_t n);
unsigned json_array_rest(
    struct json_program *p, struct option_stack *stack, const struct branch *b, uint64_t n);
int option_stack_init(struct option_stack *s, struct err *e) MUST_CHECK;
void option_stack_clear(struct option_stack *s);
bool json_object_closes(struct json_program *p, const struct branch *b, uint64_t n);
uint64_t json_array_count(const struct shape *s, uint32_t k, uint64_t count); /* capped */
bool json_array_closes(struct json_program *p, const struct branch *b, uint64_t n);
/* Adds pending nodes to the options: each fails here, or its subschemas hold. `applied` has
 * n_applied[k] literals for pending node k, one after the other. */
void json_split_pending(struct json_program *p, const struct shape *s, const json_lit *applied,
    const uint32_t *n_applied, struct member_options *o);
