/* expr.h: hash-consed expressions that denote regular languages of bytes.
 *
 * An expression denotes a set of pairs (word, rest): `rest` is the text from the end of the word to
 * the end of the scope. Most expressions do not depend on `rest` and are called pure; they denote
 * a language. The others make anchors and lookaheads possible at any place, also in repetitions:
 *
 *   bytes S         one byte of S                 or, and, not    set operations on the pairs
 *   cat a b         uv: (u, v rest) in a,         repeat a m n    a^m or ... or a^n
 *                   (v, rest) in b                number          texts of numbers (number.h)
 *   look a          (empty, rest): rest is in a   caret, boundary (empty, rest): `^`, `\b`, `\B`
 *   scope a         a, where the scope of anchors and lookaheads ends with the word: always pure
 *
 * Equal expressions have equal ids. The constructors normalise (union and intersection are sorted,
 * unions of equal heads and of adjacent repetitions are merged), so that a derivative by a byte
 * (derive.h) yields few different expressions. A repetition is a counter: {0,100000} is one node.
 *
 * A constructor that exceeds a bound of struct expr_limits sets the pool to failed; further
 * results are without meaning, and the caller checks exprs_check() once at the end.
 *
 * Owner: one thread at a time. A pool that is only read may be read by any thread. */
#pragma once

#include "base/err.h"
#include "base/str.h"

typedef struct expr_id {
    uint32_t i;
} expr_id;

#define EXPR_NONE ((expr_id){ 0 }) /* the empty language */
#define EXPR_EPS  ((expr_id){ 1 }) /* the empty word */
#define EXPR_ALL  ((expr_id){ 2 }) /* all words of bytes */

#define REPEAT_INF UINT32_MAX
enum {
    REPEAT_MAX = 1 << 30, /* largest finite count; nested counts above it are not merged */
    EXPR_DEPTH_MAX = 400, /* nesting: bounds the recursion of all functions on expressions */
    OR_MEMBERS_MAX = 8192 /* members of a normalised union or intersection */
};

struct expr_limits {
    size_t bytes_max;  /* memory of the pool */
    uint64_t work_max; /* visits of expressions by constructors and derivatives */
};

struct byte_set {
    uint64_t w[4];
};

/* Encoding of code points by bytes (text.h). */
enum text_mode {
    TEXT_UTF8,          /* UTF-8 */
    TEXT_JSON,          /* contents of a JSON string with short escapes only */
    TEXT_JSON_U_ESCAPE, /* the same, and four hexadecimal digits after \u */
    N_TEXT_MODES
};

/* Context of a scope: the character before the position. */
enum scope_ctx {
    CTX_START,    /* no character */
    CTX_WORD,     /* one of [A-Za-z0-9_] */
    CTX_OTHER,    /* another one */
    CTX_ESCAPE,   /* inside an escape sequence of a JSON string */
    CTX_JSON = 4, /* flag: the text is the contents of a JSON string */
    CTX_LINES = 8 /* flag: `^` also matches after newlines; not with CTX_JSON */
};

struct exprs;

struct exprs *exprs_new(struct expr_limits limits) MUST_CHECK; /* NULL: out of memory */
void exprs_free(struct exprs *x);                              /* accepts NULL */
bool exprs_failed(const struct exprs *x);
bool exprs_is_full(const struct exprs *x);             /* failed for lack of memory */
int exprs_check(const struct exprs *x, struct err *e); /* -1 with the bound that was exceeded */
/* Frees what only the constructors need. The pool is then read-only: for copies. */
void exprs_seal(struct exprs *x);
size_t exprs_bytes(const struct exprs *x);
size_t exprs_count(const struct exprs *x); /* expressions */
uint64_t exprs_work(const struct exprs *x);
/* Restarts the count of work, for example for the next step of an automaton. */
void exprs_restart_work(struct exprs *x, uint64_t work_max);

expr_id expr_bytes(struct exprs *x, const struct byte_set *s);
expr_id expr_range(struct exprs *x, uint8_t from, uint8_t to); /* one byte from..to */
expr_id expr_literal(struct exprs *x, struct str s);
expr_id expr_cat(struct exprs *x, expr_id a, expr_id b);
expr_id expr_or(struct exprs *x, expr_id a, expr_id b);
expr_id expr_or_all(struct exprs *x, const expr_id *members, size_t n);
expr_id expr_and(struct exprs *x, expr_id a, expr_id b);
expr_id expr_and_all(struct exprs *x, const expr_id *members, size_t n);
expr_id expr_not(struct exprs *x, expr_id a);
/* min <= max; max is REPEAT_INF or at most REPEAT_MAX */
expr_id expr_repeat(struct exprs *x, expr_id a, uint32_t min, uint32_t max);

/* The rest of the scope is in `a`. A lookahead for `p` is expr_look(cat(p, EXPR_ALL)), a negative
 * one expr_look(not(cat(p, EXPR_ALL))), and `$` is expr_look(EXPR_EPS). */
expr_id expr_look(struct exprs *x, expr_id a);
/* `of_lines`: the scope has CTX_LINES. */
expr_id expr_caret(struct exprs *x, bool of_lines);
expr_id expr_boundary(struct exprs *x, bool is_negated);
/* `ctx` is a value of enum scope_ctx, with or without a flag. */
expr_id expr_scope(struct exprs *x, expr_id a, unsigned ctx);

/* True if `a` contains no anchor or lookahead outside a scope. */
bool expr_is_pure(const struct exprs *x, expr_id a);

static inline bool expr_eq(expr_id a, expr_id b)
{
    return a.i == b.i;
}
static inline bool byte_set_has(const struct byte_set *s, uint8_t b)
{
    return s->w[b >> 6] >> (b & 63) & 1;
}
static inline void byte_set_add(struct byte_set *s, uint8_t b)
{
    s->w[b >> 6] |= (uint64_t)1 << (b & 63);
}
static inline void byte_set_add_range(struct byte_set *s, unsigned from, unsigned to)
{
    for (; from <= to; from++)
        byte_set_add(s, (uint8_t)from);
}
static inline bool byte_set_is_empty(const struct byte_set *s)
{
    return !(s->w[0] | s->w[1] | s->w[2] | s->w[3]);
}
