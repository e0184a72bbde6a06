/* ast.h: a compiled template: a tree of nodes in one arena, never changed after compiling.
 *
 *     source --lexer--> tokens --parser, expr--> nodes --exec, eval--> a blob with runs
 *
 * What the kinds keep in kid[]:
 *     ITEM      object, key             SLICE     object, start, stop, step (NULL: not written)
 *     CALL      callee, arguments       FILTER    subject (NULL in a block), arguments
 *     COND      test, then, else/NULL   TEST      subject, arguments
 *     COMPARE   first, OPERANDs         OPERAND   right side
 *     IF        test, body, test, body, ... [else body]
 *     FOR       target, iterable, filter/NULL, body, else body/NULL
 *     SET       target, value           SET_BLOCK target, filter/NULL, body
 *     MACRO     parameters, defaults of the last n_kw of them, body
 *     CALL_BLOCK call, MACRO            FILTER_BLOCK filter, body
 *     WITH      targets and values in turn, body
 * Of calls the last n_kw kids are the values of keyword arguments, named by kw[]. */
#pragma once

#include "jinja/call.h"

enum kind {
    K_CONST,
    K_NAME,
    K_LIST,
    K_TUPLE,
    K_DICT,
    K_ATTR,
    K_ITEM,
    K_SLICE,
    K_CALL,
    K_FILTER,
    K_TEST,
    K_NEG,
    K_POS,
    K_NOT,
    K_AND,
    K_OR,
    K_COND,
    K_CONCAT,
    K_COMPARE,
    K_OPERAND,
    K_BINARY,
    K_NAMESPACE_REF,
    K_TEXT,
    K_OUT,
    K_IF,
    K_FOR,
    K_SET,
    K_SET_BLOCK,
    K_MACRO,
    K_CALL_BLOCK,
    K_FILTER_BLOCK,
    K_WITH,
    K_BREAK,
    K_CONTINUE,
    K_BODY,
    K_SCOPE,
};

enum op {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN,
};

/* Flags of a MACRO: which of the implicit arguments its body names. */
enum { MACRO_CALLER = 1, MACRO_VARARGS = 2, MACRO_KWARGS = 4 };

struct node {
    uint8_t kind, op; /* op: of BINARY and OPERAND; flags of MACRO */
    uint16_t n_kw;
    uint32_t n, line;
    uint32_t name; /* NAME, MACRO, NAMESPACE_REF: the variable */
    struct node **kid;
    struct str *kw;
    struct text text;           /* CONST string, TEXT, ATTR and NAMESPACE_REF: the attribute */
    uint32_t text_at;           /* of all but TEXT: a run's own copy of it, in rt.texts */
    struct val value;           /* CONST */
    const struct callable *row; /* FILTER, TEST */
};

/* Variables every template may name: their numbers are fixed. */
enum { NAME_LOOP, NAME_CALLER, NAME_VARARGS, NAME_KWARGS, N_FIXED_NAMES };

/* Read-only once compiled. */
struct jinja {
    struct str source; /* a copy, with its line ends made uniform */
    struct node *root;
    struct str *names; /* of variables, by number */
    uint32_t n_names, n_texts;
};

/* Everything lives in `a`. ERR_SYNTAX "line 3: ...", ERR_TOO_LARGE, ERR_MEMORY. */
int jinja_compile(struct jinja *out, struct str source, struct arena *a, struct err *e) MUST_CHECK;

/* ---- tokens */
enum token_kind {
    TOK_END,
    TOK_DATA,
    TOK_VAR_BEGIN,
    TOK_VAR_END,
    TOK_BLOCK_BEGIN,
    TOK_BLOCK_END,
    TOK_NAME,
    TOK_STRING,
    TOK_INT,
    TOK_FLOAT,
    TOK_OP,
};

struct token {
    uint8_t kind;
    char op[3]; /* OP: "==", "**", "(" ... */
    uint32_t line;
    struct str s;     /* DATA, NAME: as written; STRING: decoded */
    struct val value; /* INT, FLOAT */
};

struct token_list {
    struct token *v;
    size_t n, cap;
};

/* Everything that compiling needs. Errors: ERR_SYNTAX "line 3: ...", ERR_MEMORY. */
struct compiler {
    struct arena *a;       /* of the template */
    struct arena *scratch; /* of compiling: the list of tokens */
    struct err *e;
    struct token_list tokens;
    size_t at; /* the token being looked at */
    struct str_map *name_ids;
    struct str *names;
    uint32_t n_names, cap_names, n_texts;
    int depth, loops;
    uint8_t *macro_flags; /* of the macro being compiled; NULL outside */
};

int compile_fail(struct compiler *c, uint32_t line, const char *fmt, ...) PRINTF(3, 4);
void *compile_alloc(struct compiler *c, size_t n) MUST_CHECK; /* zeroed; NULL with the error set */
int jinja_lex(struct compiler *c, struct str source) MUST_CHECK;
struct node *jinja_parse(struct compiler *c) MUST_CHECK; /* NULL: failed */

/* ---- running */
/* The text of a node that is a CONST, ATTR or NAMESPACE_REF. The tree is shared between threads;
 * what is found out about a text is not: each run has one copy. */
struct text *node_text(struct rt *rt, const struct node *n) MUST_CHECK;
int eval(struct rt *rt, const struct node *n, struct val *out) MUST_CHECK;
int eval_args(struct rt *rt, const struct node *n, struct args *args) MUST_CHECK;
int call_value(
    struct rt *rt, struct val callee, const struct args *args, struct val *out) MUST_CHECK;

enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };
int exec(struct rt *rt, const struct node *n) MUST_CHECK; /* enum flow, or -1 */

/* A macro with the scope it was written in. */
struct macro {
    const struct node *node;
    struct scope *scope;
};
int macro_call(struct rt *rt, struct macro *m, const struct args *args, struct val *out) MUST_CHECK;

struct var {
    uint32_t name;
    struct val v;
};
struct scope {
    struct scope *up; /* NULL: the template's own variables are next */
    struct var *vars;
    uint32_t n, cap;
    bool is_kept; /* a macro refers to it: it may not be used again for the next turn */
};
struct val scope_get(struct rt *rt, uint32_t name); /* T_MISSING when unset */
int scope_set(struct rt *rt, uint32_t name, struct val v) MUST_CHECK;
