/* grammar_in.h: the structure of grammars, for the modules that build, compile and read them.
 *
 * Compiled form: a slot is a position in an alternative, before a symbol or at the end. The slots
 * of an alternative are consecutive. Alternative 0 is `start -> root`.
 *
 * The left-corner relation leads from a rule to the rules with which it can begin. A component of
 * this relation is predicted as a whole: its items and calls are listed once.
 *
 * Owner: that of the grammar. */
#pragma once

#include "base/arena.h"
#include "base/map.h"
#include "constrain/grammar/grammar.h"

enum part_kind {
    PART_EXPR,   /* the expression `folded` */
    PART_CAT,    /* args */
    PART_ALT,    /* args */
    PART_REPEAT, /* args[0], min, max */
    PART_REF,    /* value: rule */
    PART_JSON,   /* value: number of the schema */
    PART_TOKENS  /* value: number of the set */
};

#define NOT_REGULAR UINT32_MAX

struct part {
    uint8_t kind;
    uint32_t first, n; /* args */
    uint32_t value;
    uint32_t min, max;
    uint32_t folded; /* expression, or NOT_REGULAR */
    uint32_t rule;   /* compiled rule + 1; 0: none */
};

struct named_rule {
    struct str name;
    uint32_t body; /* part */
};

struct token_set { /* ids in ascending order */
    const int32_t *ids;
    uint32_t n;
};

enum symbol_kind { SYMBOL_END, SYMBOL_EXPR, SYMBOL_JSON, SYMBOL_TOKENS, SYMBOL_RULE };

struct symbol {
    uint32_t kind;
    /* END, RULE: rule. EXPR: number of the expression. JSON: schema. TOKENS: set. */
    uint32_t value;
};

struct compiled_rule {
    uint32_t component;
    bool is_nullable;
    uint32_t first_caller, n_callers; /* `callers`: calls within the component, as left corners */
};

struct component {
    uint32_t first_item, n_items; /* `items`: slots before an expression, JSON value or token */
    uint32_t first_call, n_calls; /* `calls`: slots before a rule of another component */
};

struct grammar_tables {
    struct symbol *slots;
    uint32_t n_slots;
    struct compiled_rule *rules; /* rule 0: start */
    uint32_t n_rules;
    struct component *components; /* callers have higher numbers */
    uint32_t n_components;
    uint32_t *items, *calls, *callers; /* slots; `callers`: slots after the call */
    uint32_t *exprs;                   /* expressions of SYMBOL_EXPR */
    bool *expr_is_nullable;
    uint32_t n_exprs;
    uint32_t empty; /* number of the expression of the empty text */
    uint32_t codes; /* expression: union of code(k) exprs[k] (grammar_code) */
};

struct grammar {
    struct grammar_limits limits;
    struct grammar_vocab vocab;
    bool has_vocab;
    struct exprs *x;
    struct arena *arena; /* names, schemas, token sets, tables */
    bool is_failed;
    struct err err;

    struct part *parts;
    uint32_t n_parts, cap_parts;
    uint32_t *args;
    uint32_t n_args, cap_args;
    struct named_rule *rules;
    uint32_t n_rules, cap_rules;
    struct token_set *sets;
    uint32_t n_sets, cap_sets;
    struct str *schemas;
    uint32_t n_schemas, cap_schemas;
    struct str_map *schema_of; /* text -> number */

    uint32_t regular; /* expression of the language, or NOT_REGULAR */
    struct grammar_tables t;
};

/* Expressions are numbered by words of GRAMMAR_CODE_BYTES bytes, so that one automaton contains
 * all: the state after the code of an expression is the start of the expression. */
enum { GRAMMAR_CODE_BYTES = 3, GRAMMAR_FOLD_DEPTH_MAX = 100 };

static inline void grammar_code(uint32_t k, uint8_t code[GRAMMAR_CODE_BYTES])
{
    code[0] = (uint8_t)(k >> 16);
    code[1] = (uint8_t)(k >> 8);
    code[2] = (uint8_t)k;
}

/* Sets the error of the grammar, unless it has one. */
void grammar_fail(struct grammar *g, enum errcode code, const char *fmt, ...) PRINTF(3, 4);
/* Makes room for one more element; false if there is no memory or the limit is reached. */
bool grammar_grow(struct grammar *g, void **array, uint32_t n, uint32_t *cap, size_t size);
/* Folds the regular parts that `root` reaches (grammar_fold.c). -1: the grammar has failed. */
int grammar_fold(struct grammar *g, uint32_t root) MUST_CHECK;
/* Compiles the tables from the folded parts (grammar_tables.c). */
int grammar_compile(struct grammar *g, rule_id root) MUST_CHECK;
