/* ast.h: a compiled template, a tree of nodes in one arena that never changes after compilation.
 *
 *     source --lexer--> tokens --parser, expr--> nodes --exec, eval--> a blob with text runs
 *
 * Contents of kid[] by node kind:
 *     ITEM      object, key             SLICE     object, start, stop, step (NULL: not written)
 *     CALL      callee, arguments       FILTER    subject (NULL in a block), arguments
 *     COND      test, then, else/NULL   TEST      subject, arguments
 *     COMPARE   first, OPERANDs         OPERAND   right side
 *     IF        test, body, test, body, ... [else body]
 *     FOR       target, iterable, filter/NULL, body, else body/NULL
 *     SET       target, value           SET_BLOCK target, filter/NULL, body
 *     MACRO     parameters, defaults of the last n_kw of them, body
 *     CALL_BLOCK call, MACRO            FILTER_BLOCK filter, body
 *     WITH      alternating targets and values, body
 * In calls the last n_kw kids are the values of keyword arguments, with the names in kw[].
 *
 * Owner: the tree is read-only after compilation (any thread); struct compiler belongs to the
 * thread that compiles, struct rt to the thread that renders. */
#pragma once

#include "jinja/call.h"

enum node_kind {
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

/* Flags of a MACRO: implicit arguments which its body uses. */
enum { MACRO_CALLER = 1, MACRO_VARARGS = 2, MACRO_KWARGS = 4 };

struct ast_node {
    uint8_t kind, op; /* op: operator of BINARY and OPERAND; flags of MACRO */
    uint16_t n_kw;
    uint32_t n, line;
    uint32_t name; /* NAME, MACRO, NAMESPACE_REF: number of the variable */
    struct ast_node **kid;
    struct str *kw;
    struct text text; /* CONST string, TEXT; the attribute name of ATTR and NAMESPACE_REF */
    uint32_t text_at; /* index of the rendering's copy of `text` in rt.texts; unused for TEXT */
    struct val value; /* value of a CONST */
    const struct callable *callable; /* function of a FILTER or TEST */
};

/* Variables that every template may use; their numbers are fixed. */
enum { NAME_LOOP, NAME_CALLER, NAME_VARARGS, NAME_KWARGS, N_FIXED_NAMES };

/* Read-only once compiled. */
struct jinja {
    struct str source; /* copy with normalised line ends */
    struct ast_node *root;
    struct str *names; /* names of variables, by number */
    uint32_t n_names, n_texts;
};

/* Allocates in `a`. ERR_SYNTAX "line 3: ...", ERR_TOO_LARGE, ERR_MEMORY. */
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
    struct str s;     /* DATA, NAME: as in the source; STRING: decoded */
    struct val value; /* INT, FLOAT */
};

struct lexer_tokens {
    struct token *v;
    size_t n, cap;
};

/* State of the compiler. Errors: ERR_SYNTAX "line 3: ...", ERR_MEMORY. */
struct compiler {
    struct arena *a;       /* arena of the template */
    struct arena *scratch; /* temporary arena for the token list */
    struct err *e;
    struct lexer_tokens tokens;
    size_t at; /* index of the current token */
    struct str_map *name_ids;
    struct str *names;
    uint32_t n_names, cap_names, n_texts;
    int depth, loops;
    uint8_t *macro_flags; /* flags of the macro being compiled; NULL outside macros */
};

int compile_fail(struct compiler *c, uint32_t line, const char *fmt, ...) PRINTF(3, 4);
void *compile_alloc(struct compiler *c, size_t n) MUST_CHECK; /* zeroed; NULL with the error set */
int jinja_lex(struct compiler *c, struct str source) MUST_CHECK;
struct ast_node *jinja_parse(struct compiler *c) MUST_CHECK; /* NULL: failed */

/* ---- rendering */
/* Text of a CONST, ATTR or NAMESPACE_REF node. The tree is shared between threads; properties
 * computed lazily (is the text ASCII?) are stored in a copy per rendering. */
struct text *node_text(struct rt *rt, const struct ast_node *n) MUST_CHECK;
int eval(struct rt *rt, const struct ast_node *n, struct val *out) MUST_CHECK;
int eval_args(struct rt *rt, const struct ast_node *n, struct args *args) MUST_CHECK;
int call_value(
    struct rt *rt, struct val callee, const struct args *args, struct val *out) MUST_CHECK;

enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };
int exec(struct rt *rt, const struct ast_node *n) MUST_CHECK; /* returns enum flow, or -1 */

/* A macro with the scope in which it was defined. */
struct macro {
    const struct ast_node *node;
    struct scope *scope;
};
int macro_call(struct rt *rt, struct macro *m, const struct args *args, struct val *out) MUST_CHECK;

struct var {
    uint32_t name;
    struct val v;
};
struct scope {
    struct scope *up; /* enclosing scope; NULL: the template's own variables are next */
    struct var *vars;
    uint32_t n, cap;
    /* a macro refers to the scope: it must not be reused for the next loop iteration */
    bool is_captured;
};
struct val scope_get(struct rt *rt, uint32_t name); /* T_MISSING if unset */
int scope_set(struct rt *rt, uint32_t name, struct val v) MUST_CHECK;
