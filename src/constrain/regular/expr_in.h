/* expr_in.h: the nodes of expressions, for the modules that build and derive them.
 *
 * The children of a node have smaller ids than the node. The members of a union or an intersection
 * are sorted by id. Owner: that of the pool. */
#pragma once

#include "constrain/regular/expr.h"
#include "constrain/regular/number.h"

enum expr_kind {
    K_NONE,
    K_EPS,
    K_ALL,
    K_BYTES,    /* args: index of the byte set */
    K_CAT,      /* a, b */
    K_OR,       /* members */
    K_AND,      /* members */
    K_NOT,      /* a */
    K_REPEAT,   /* a, min, max */
    K_LOOK,     /* a */
    K_CARET,    /* 1 if of lines */
    K_BOUNDARY, /* 1 if negated */
    K_SCOPE,    /* a, ctx */
    K_NUMBER    /* index of the specification, words of the state */
};

enum {
    F_ACCEPTS = 1,   /* contains (empty, empty), if it does not depend on the context */
    F_HAS_CARET = 2, /* contains `^` outside a scope */
    F_HAS_BOUND = 4, /* contains `\b` or `\B` outside a scope */
    F_HAS_LOOK = 8,  /* contains a lookahead outside a scope */
    F_IMPURE = 14,   /* any of the three */
    F_LIVE = 16,     /* proven: the language is not empty */
    F_DEAD = 32,     /* proven: the language is empty */
    F_CODE = 64,     /* prefix code: a sequence of its words can be split in one way only */
    F_VISITED = 128, /* the search in progress has visited it (live.c) */
    F_TEXT = 256     /* << text_mode: each word is a sequence of complete characters */
};

#define MIN_LEN_INF UINT32_MAX

struct node {
    uint8_t kind;
    uint8_t n_fixed; /* leading args that are not children */
    uint16_t flags;
    uint32_t depth;
    uint32_t first, n; /* args */
    uint32_t min_len;  /* no word is shorter */
};

enum fail_cause { FAIL_NONE, FAIL_MEMORY, FAIL_WORK, FAIL_DEPTH, FAIL_MEMBERS, FAIL_SEARCH };

/* One entry of the cache of derivatives: direct-mapped, overwritten on a collision. */
struct derivative {
    uint32_t of, result;
    uint16_t byte_ctx; /* byte + 256 * context */
    uint32_t work;     /* work of the computation; counted again on a hit */
};

enum { DERIVATIVE_CACHE = 2048, CLASS_CACHE = 64 };

/* Recent classes of characters; the hash has a random seed and 64 bits. */
struct class_entry {
    uint64_t hash; /* hash of the ranges and the mode; 0 = unused */
    expr_id expr;
};

struct exprs {
    struct expr_limits limits;
    uint64_t work;
    enum fail_cause fail;
    struct node *nodes;
    uint32_t n_nodes, cap_nodes;
    uint32_t *args;
    uint32_t n_args, cap_args;
    struct byte_set *sets;
    uint32_t n_sets, cap_sets;
    uint32_t *slots; /* hash table of ids; 0 = free, since node 0 is not in it */
    uint32_t n_slots;
    uint32_t *stack; /* scratch of the constructors */
    uint32_t n_stack, cap_stack;
    uint32_t *visited; /* expressions with F_VISITED */
    uint32_t n_visited, cap_visited;
    struct number_spec *numbers;
    uint32_t n_numbers, cap_numbers;
    uint32_t any_star[N_TEXT_MODES]; /* any text; 0 = not built */
    uint32_t or_depth;               /* nested factoring of unions */
    size_t bytes;                    /* memory of the arrays */
    bool is_fixed;                   /* the arrays have their final size */
    uint32_t *map;                   /* [cap_nodes] of a fixed pool: scratch of exprs_copy to it */
    uint32_t slots_max;              /* size of a fixed pool */
    uint64_t seed;
    struct derivative *cache; /* NULL: the pool is the target of copies only */
    struct class_entry classes[CLASS_CACHE];
};

static inline const struct node *node_of(const struct exprs *x, expr_id a)
{
    return &x->nodes[a.i];
}
static inline expr_id arg_of(const struct exprs *x, expr_id a, uint32_t k)
{
    return (expr_id){ x->args[x->nodes[a.i].first + k] };
}

/* Counts `n` units of work; false if the pool has failed or fails now. */
bool expr_work(struct exprs *x, uint64_t n);
void expr_fail(struct exprs *x, enum fail_cause why);
expr_id expr_intern(struct exprs *x, enum expr_kind kind, const uint32_t *args, uint32_t n);
/* Number of the byte set; UINT32_MAX if the pool fails. */
uint32_t expr_set_number(struct exprs *x, const struct byte_set *s);
/* Marks a union of characters of `mode` as prefix code and as text. */
void expr_mark_text(struct exprs *x, expr_id a, enum text_mode mode);
expr_id expr_number_leaf(struct exprs *x, uint32_t spec, const struct number_state *s);
uint32_t expr_number_add(struct exprs *x, const struct number_spec *spec);
bool expr_push(struct exprs *x, uint32_t v); /* onto the stack */
bool expr_visit(struct exprs *x, expr_id a); /* marks and lists it as visited */

/* A pool that allocates nothing later, for copies of `from` and their derivatives, without a cache
 * of derivatives. NULL: out of memory, or bytes_max is below the size of `from`. */
struct exprs *exprs_new_fixed(struct expr_limits limits, const struct exprs *from) MUST_CHECK;
/* Drops all expressions of a fixed pool. */
void exprs_clear(struct exprs *x);
int exprs_add_cache(struct exprs *x) MUST_CHECK; /* -1: out of memory */
/* Moves the cache of derivatives, which becomes empty. */
void exprs_move_cache(struct exprs *to, struct exprs *from);

/* Copies the expressions which the roots reach, and the roots' new ids replace them. If `to` fails,
 * the roots become EXPR_NONE. */
void exprs_copy(struct exprs *to, const struct exprs *from, expr_id *const *roots, size_t n);
