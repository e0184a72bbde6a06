/* json_shape.h: shapes of arrays and objects, and the branches that read their members.
 *
 *   shape    an alternative of a conjunction (json_program_in.h), prepared for reading members
 *   entry    a key that a literal of the shape names
 *   class    the other keys that match the same patterns
 *   pending  a negated node: at least one of its keywords must fail
 *   branch   a shape and its state in one array or object
 *
 * Shapes are read-only after compilation: any thread. Branches belong to an acceptor. */
#pragma once

#include "constrain/regular/expr.h"

typedef uint32_t json_lit; /* 2 * node + 1 if negated */
typedef uint32_t conj_id;

enum {
    CONJ_TRUE = 0,
    CONJ_FALSE = 1,
    COST_NONE = 255, /* no value exists */
    ORDER_TAIL = UINT32_MAX,
    NO_ITEM = UINT32_MAX
};

#define LIT_FALSE 2u /* NODE_FALSE */

static inline json_lit lit_not(json_lit l)
{
    return l ^ 1;
}

struct shape_entry { /* a key that a literal names */
    uint32_t key;    /* rank */
    uint32_t order;  /* position among the properties, or ORDER_TAIL */
    conj_id child;
    bool is_required;
};

struct shape_class { /* keys without entry that match the same patterns */
    expr_id keys;    /* texts with quotation marks; may contain keys of entries */
    uint32_t root;   /* number of the expression among the roots */
    uint64_t bits;   /* patterns and names of the shape that match */
    conj_id child;
    uint32_t n_words; /* number of keys, if not infinite */
    bool is_infinite;
};

struct shape_dependency { /* indexes of entries */
    uint32_t key, required;
};

struct shape_contains {
    json_lit lit; /* the item */
    uint64_t min, max;
    uint32_t pending; /* number of the negated node, or NO_ITEM */
    uint64_t scopes;  /* matches are evaluated for these unevaluatedItems */
};

struct shape {
    uint32_t kind; /* KIND_ARRAY, KIND_OBJECT */
    uint32_t number;
    json_lit *lits;
    uint64_t *scopes; /* per literal: bit k: it evaluates members for unevaluated[k] */
    uint32_t n_lits;
    json_lit *pending;
    uint32_t n_pending;
    uint32_t *unevaluated; /* nodes */
    uint32_t n_unevaluated;
    uint64_t n_min, n_max; /* members */
    uint64_t n_cap;        /* counts above it are equal */
    uint32_t n_words;      /* size of the state of a branch */
    unsigned cost;         /* cost of the initial state; set when the program is finished */

    struct shape_entry *entries; /* sorted by rank */
    uint32_t n_entries, n_seen_words;
    uint32_t *by_order; /* indexes of entries, in the order of output */
    uint32_t *required; /* indexes of entries */
    uint32_t n_required;
    struct shape_class *classes;
    uint32_t n_classes;
    struct shape_dependency *deps;
    uint32_t n_deps;
    uint32_t *patterns; /* numbers; bit k of a class */
    uint32_t n_patterns;
    uint32_t *names; /* nodes of propertyNames; bit n_patterns + k of a class */
    uint32_t n_names;

    conj_id *items; /* [n_prefix + 1] */
    uint32_t n_prefix;
    struct shape_contains *contains;
    uint32_t n_contains;
    bool is_unique;
};

/* A live branch: a shape and its state in one array or object. */
struct branch {
    struct shape *shape;
    uint64_t parents; /* branches of the enclosing value that continue with this one */
    uint64_t pending; /* negated nodes that have not failed yet */
    uint32_t order;   /* first position of a property that may follow */
    uint32_t pad;
    uint64_t words[]; /* bits of entries that were read; counts of `contains` */
};

static inline size_t branch_bytes(const struct shape *s)
{
    return sizeof(struct branch) + s->n_words * sizeof(uint64_t);
}
static inline bool branch_seen(const struct branch *b, uint32_t entry)
{
    return b->words[entry >> 6] >> (entry & 63) & 1;
}

/* One way to read a member: the conjunction of its value, and the state of the branch after it. */
struct member_option {
    conj_id child;
    uint64_t pending;
    uint64_t matches; /* bit k: the item counts for contains[k] */
};
enum { OPTIONS_MAX = 256, SEARCH_DEPTH_MAX = 200 };
struct member_options {
    struct member_option all[OPTIONS_MAX];
    uint32_t n;
    bool is_full;
};

/* The options along the path of a search for a completion, which has at most SEARCH_DEPTH_MAX + 1
 * items: the memory is reserved once, so that a search in an engine step allocates nothing. */
enum { OPTION_STACK_MAX = (SEARCH_DEPTH_MAX + 1) * OPTIONS_MAX };
struct option_stack {
    struct member_option *all; /* [OPTION_STACK_MAX]; only the part in use is written */
    uint32_t n, n_most;        /* n_most: the largest n so far */
};
