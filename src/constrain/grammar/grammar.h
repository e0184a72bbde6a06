/* grammar.h: context-free grammars over bytes, JSON values and control tokens.
 *
 * The readers of GBNF, Lark and structural tags, and the grammars of tool calls build a grammar
 * from parts. A part is a regular expression (expr.h), a JSON value, a set of control tokens, a
 * reference to a rule, or a concatenation, union or repetition of parts. grammar_finish folds parts
 * that are regular into one expression, brings the rest to the form
 *
 *     rule -> symbol .. symbol        symbol: expression, JSON value, control tokens, rule
 *
 * and removes rules that produce no text. Left recursion and rules that produce the empty text are
 * permitted. grammar_acceptor.h reads texts of the grammar.
 *
 * A function that exceeds a bound or has no memory sets the grammar to failed; further results are
 * without meaning, and grammar_finish returns the error. No function recurses on the parts.
 *
 * Owner: one thread at a time. After grammar_finish a grammar is read-only: any thread. */
#pragma once

#include "constrain/vocab/producible.h"

typedef struct part_id {
    uint32_t i;
} part_id;

typedef struct rule_id {
    uint32_t i;
} rule_id;

#define PART_NEVER ((part_id){ 0 }) /* no text */
#define PART_EMPTY ((part_id){ 1 }) /* the empty text */

struct grammar_limits {
    size_t bytes_max;   /* expressions */
    uint64_t work_max;  /* steps of compilation */
    uint32_t parts_max; /* parts, rules, symbols */
};
extern const struct grammar_limits grammar_limits_default; /* 16 MB, 10^6, 200,000 */

/* The vocabulary, for control tokens; borrowed until grammar_finish. */
struct grammar_vocab {
    struct token_source tokens;
    int32_t (*find)(const void *ctx, struct str text); /* -1: none */
    const struct producible *producible;               /* NULL: every byte has a token */
};
struct grammar_vocab grammar_vocab_of(const struct vocab *v, const struct producible *p);

struct grammar;

/* `v` may be NULL: the grammar cannot contain tokens. NULL: out of memory. */
struct grammar *grammar_new(
    const struct grammar_limits *l, const struct grammar_vocab *v) MUST_CHECK;
void grammar_free(struct grammar *g); /* accepts NULL */

/* ---- parts */

struct exprs *grammar_exprs(struct grammar *g); /* the pool for the expressions of this grammar */
part_id grammar_expr(struct grammar *g, expr_id pure);
part_id grammar_literal(struct grammar *g, struct str bytes);
part_id grammar_cat(struct grammar *g, part_id a, part_id b);
part_id grammar_cat_all(struct grammar *g, const part_id *members, size_t n);
part_id grammar_alt(struct grammar *g, part_id a, part_id b);
part_id grammar_alt_all(struct grammar *g, const part_id *members, size_t n);
/* min <= max; max is REPEAT_INF or at most REPEAT_MAX */
part_id grammar_repeat(struct grammar *g, part_id a, uint32_t min, uint32_t max);
/* A value of a JSON Schema; the text is copied. Equal texts are one value (grammar_json_text). */
part_id grammar_json(struct grammar *g, struct str schema);
/* One token. A token with bytes is read as these bytes. A control token has to be in the vocabulary
 * and must not end the text. */
part_id grammar_token(struct grammar *g, int32_t id);
part_id grammar_tokens(struct grammar *g, const int32_t *ids, size_t n); /* one of them */
/* One UTF-8 character, or a control token that is not in the list and does not end the text. All
 * ids of the list are those of control tokens. */
part_id grammar_token_except(struct grammar *g, const int32_t *ids, size_t n);
/* UTF-8 texts that contain none of the markers. */
part_id grammar_text_until(struct grammar *g, const struct str *markers, size_t n);

/* The token with this text; -1 if there is none. */
int32_t grammar_find_token(const struct grammar *g, struct str text);
/* Whether a token of the vocabulary is read as bytes; whether it ends the text. */
bool grammar_token_has_bytes(const struct grammar *g, int32_t id);
bool grammar_token_is_end(const struct grammar *g, int32_t id);

/* True after an error, with the error. */
bool grammar_failed(const struct grammar *g, struct err *e);

/* ---- rules */

/* A new rule; `name` is used by messages and is copied. It produces nothing until it is defined. */
rule_id grammar_rule(struct grammar *g, struct str name);
void grammar_define(struct grammar *g, rule_id r, part_id body);
part_id grammar_ref(struct grammar *g, rule_id r);

/* -1: the error of a part, a bound, or `root` produces no text; the message contains its name. */
int grammar_finish(struct grammar *g, rule_id root, struct err *e) MUST_CHECK;

/* ---- finished grammars */

/* True if the language is regular: *root is its expression in grammar_exprs. */
bool grammar_is_regular(const struct grammar *g, expr_id *root);
/* Schemas of the JSON values, numbered from 0. */
uint32_t grammar_json_count(const struct grammar *g);
struct str grammar_json_text(const struct grammar *g, uint32_t k);
size_t grammar_bytes(const struct grammar *g);
uint64_t grammar_work(const struct grammar *g);
