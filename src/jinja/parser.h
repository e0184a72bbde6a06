/* parser.h: functions shared by parser.c (statements) and expr.c (expressions). NULL and -1 mean
 * that the compilation failed and the error is set. Owner: the thread that compiles. */
#pragma once

#include "jinja/ast.h"

static inline struct token *peek(struct compiler *c)
{
    return &c->tokens.v[MIN(c->at, c->tokens.n - 1)];
}
static inline bool is_op(struct compiler *c, const char *op)
{
    return peek(c)->kind == TOK_OP && !strcmp(peek(c)->op, op);
}
static inline bool is_name(struct compiler *c, const char *name)
{
    return peek(c)->kind == TOK_NAME && str_is(peek(c)->s, name);
}
bool accept_op(struct compiler *c, const char *op);
int expect_op(struct compiler *c, const char *op) MUST_CHECK;
int expect_kind(struct compiler *c, enum token_kind kind, const char *what) MUST_CHECK;
struct ast_node *unexpected(
    struct compiler *c, const char *wanted); /* sets the error; returns NULL */
/* limits nesting; the caller decrements c->depth when done */
int parser_enter(struct compiler *c) MUST_CHECK;

struct ast_node *node_new(struct compiler *c, enum node_kind kind) MUST_CHECK;
/* -1 if kid is NULL */
int node_add(struct compiler *c, struct ast_node *n, struct ast_node *kid) MUST_CHECK;
int node_add_null(struct compiler *c, struct ast_node *n) MUST_CHECK;
int name_id(struct compiler *c, struct str name, uint32_t *out) MUST_CHECK;
bool is_reserved(struct str name); /* true, none and similar constants */

struct ast_node *parse_expr(struct compiler *c) MUST_CHECK;
/* Also "a, b" without parentheses. with_if: a conditional expression is allowed. */
struct ast_node *parse_tuple_expr(struct compiler *c, bool with_if) MUST_CHECK;
/* "|name(args)|..." after subject; is_bare: the first filter has no leading bar. */
struct ast_node *parse_filters(
    struct compiler *c, struct ast_node *subject, bool is_bare) MUST_CHECK;
