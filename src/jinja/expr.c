/* expr.c: parses tokens to nodes: expressions, with Jinja's precedence: if-else, or, and, not,
 * comparisons, + -, ~, * / // %, **, unary, postfix, filters and tests. Owner: the thread that
 * compiles. */
#include "jinja/parser.h"
#include "base/map.h"

enum { DEPTH_MAX = 100, NAMES_MAX = 4096 };

/* ---- tokens */

bool accept_op(struct compiler *c, const char *op)
{
    bool found = is_op(c, op);

    c->at += found;
    return found;
}

struct ast_node *unexpected(struct compiler *c, const char *wanted)
{
    struct token *t = peek(c);
    struct str s = t->kind == TOK_OP ? str_of(t->op) : t->kind == TOK_NAME ? t->s : STR_NONE;

    compile_fail(c, t->line, "expected %s%s" STR_FMT, wanted, s.n ? ", not " : "",
        (int)MIN(s.n, 40u), s.n ? s.p : "");
    return NULL;
}

int expect_op(struct compiler *c, const char *op)
{
    if (accept_op(c, op))
        return 0;
    unexpected(c, op);
    return -1;
}

int expect_kind(struct compiler *c, enum token_kind kind, const char *what)
{
    if (peek(c)->kind == kind) {
        c->at++;
        return 0;
    }
    unexpected(c, what);
    return -1;
}

int parser_enter(struct compiler *c)
{
    if (c->depth++ < DEPTH_MAX)
        return 0;
    return compile_fail(c, peek(c)->line, "nested deeper than %d", DEPTH_MAX);
}

/* ---- nodes and names */

struct ast_node *node_new(struct compiler *c, enum node_kind kind)
{
    struct ast_node *n = compile_alloc(c, sizeof(*n));

    if (n) {
        n->kind = (uint8_t)kind;
        n->line = peek(c)->line;
    }
    return n;
}

int node_add_null(struct compiler *c, struct ast_node *n)
{
    bool is_full = (n->n & (n->n - 1)) == 0; /* the capacity is the next power of two */

    if (is_full) {
        struct ast_node **kid = compile_alloc(c, MAX(n->n * 2, 1u) * sizeof(struct ast_node *));
        if (!kid)
            return -1;
        if (n->n)
            memcpy(kid, n->kid, n->n * sizeof(struct ast_node *));
        n->kid = kid;
    }
    n->kid[n->n++] = NULL;
    return 0;
}

int node_add(struct compiler *c, struct ast_node *n, struct ast_node *kid)
{
    if (!kid || node_add_null(c, n))
        return -1;
    n->kid[n->n - 1] = kid;
    return 0;
}

bool is_reserved(struct str name)
{
    static const char *const words[] = { "true", "false", "none", "True", "False", "None" };

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (str_is(name, words[i]))
            return true;
    return false;
}

int name_id(struct compiler *c, struct str name, uint32_t *out)
{
    if (str_map_get(c->name_ids, name, out))
        return 0;
    if (c->n_names == NAMES_MAX)
        return compile_fail(c, peek(c)->line, "more than %d names", NAMES_MAX);
    if (c->n_names == c->cap_names) {
        uint32_t cap = MAX(c->cap_names * 2, 64u);
        struct str *names = compile_alloc(c, cap * sizeof(*names));
        if (!names)
            return -1;
        if (c->n_names)
            memcpy(names, c->names, c->n_names * sizeof(*names));
        c->names = names;
        c->cap_names = cap;
    }
    if (str_map_put(c->name_ids, name, c->n_names) < 0)
        return err_set(c->e, ERR_MEMORY, "no memory to compile the template");
    c->names[c->n_names] = name;
    *out = c->n_names++;
    return 0;
}

static struct ast_node *node_const(struct compiler *c, struct val v)
{
    struct ast_node *n = node_new(c, K_CONST);

    if (n)
        n->value = v;
    return n;
}

/* ---- calls */

static int add_keyword(
    struct compiler *c, struct ast_node *n, struct str name, struct ast_node *value)
{
    struct str *kw = compile_alloc(c, (n->n_kw + 1u) * sizeof(*kw));

    if (!kw || node_add(c, n, value))
        return -1;
    if (n->n_kw)
        memcpy(kw, n->kw, n->n_kw * sizeof(*kw));
    kw[n->n_kw++] = name;
    n->kw = kw;
    return 0;
}

/* Parses "(a, b, c=d)" and appends the arguments to n. */
static int parse_args(struct compiler *c, struct ast_node *n)
{
    if (expect_op(c, "("))
        return -1;
    while (!is_op(c, ")")) {
        struct token *name = peek(c);
        if (n->n - 1 == ARGS_MAX)
            return compile_fail(c, n->line, "more than %d arguments", ARGS_MAX);
        if (is_op(c, "*") || is_op(c, "**"))
            return compile_fail(c, n->line, "*args and **kwargs are not supported");
        bool is_kw = name->kind == TOK_NAME && c->at + 1 < c->tokens.n && name[1].kind == TOK_OP &&
                     !strcmp(name[1].op, "=");
        if (is_kw) {
            c->at += 2;
            if (add_keyword(c, n, name->s, parse_expr(c)))
                return -1;
        } else if (n->n_kw) {
            return compile_fail(c, n->line, "a positional argument after a named one");
        } else if (node_add(c, n, parse_expr(c))) {
            return -1;
        }
        if (!accept_op(c, ","))
            break;
    }
    return expect_op(c, ")");
}

static struct ast_node *parse_call(struct compiler *c, struct ast_node *callee)
{
    struct ast_node *n = node_new(c, K_CALL);

    return !n || node_add(c, n, callee) || parse_args(c, n) ? NULL : n;
}

struct ast_node *parse_filters(struct compiler *c, struct ast_node *subject, bool is_bare)
{
    while (is_bare || accept_op(c, "|")) {
        struct ast_node *n = node_new(c, K_FILTER);
        struct token *name = peek(c);
        is_bare = false;
        if (!n || node_add_null(c, n))
            return NULL;
        n->kid[0] = subject;
        if (name->kind != TOK_NAME)
            return unexpected(c, "the name of a filter");
        c->at++;
        if (!(n->callable = filter_find(name->s))) {
            compile_fail(
                c, name->line, "unknown filter '" STR_FMT "'", (int)MIN(name->s.n, 40u), name->s.p);
            return NULL;
        }
        if (is_op(c, "(") && parse_args(c, n))
            return NULL;
        subject = n;
    }
    return subject;
}

/* ---- primaries */

static struct ast_node *parse_sequence(struct compiler *c, enum node_kind kind, const char *close)
{
    struct ast_node *n = node_new(c, kind);

    c->at++;
    while (n && !is_op(c, close)) {
        if (node_add(c, n, parse_expr(c)))
            return NULL;
        if (kind == K_DICT && (expect_op(c, ":") || node_add(c, n, parse_expr(c))))
            return NULL;
        if (!accept_op(c, ","))
            break;
    }
    return n && !expect_op(c, close) ? n : NULL;
}

static struct ast_node *parse_parens(struct compiler *c)
{
    struct ast_node *n = node_new(c, K_TUPLE);
    bool is_tuple = false;

    c->at++;
    while (n && !is_op(c, ")")) {
        if (node_add(c, n, parse_expr(c)))
            return NULL;
        if (!accept_op(c, ","))
            break;
        is_tuple = true;
    }
    if (!n || expect_op(c, ")"))
        return NULL;
    return is_tuple || !n->n ? n : n->kid[0];
}

static struct ast_node *parse_string(struct compiler *c)
{
    struct ast_node *n = node_new(c, K_CONST);
    size_t first = c->at, bytes = 0;

    /* adjacent strings, as in 'a' 'b', are one string */
    for (; peek(c)->kind == TOK_STRING; c->at++)
        bytes += peek(c)->s.n;
    char *p = compile_alloc(c, bytes + 1);
    if (!n || !p)
        return NULL;
    n->text = (struct text){ .p = p, .n = bytes, .trusted = true };
    n->text_at = c->n_texts++;
    for (size_t i = first; i < c->at; i++) {
        struct str s = c->tokens.v[i].s;
        memcpy(p, s.p, s.n);
        p += s.n;
    }
    n->value = V_STR(&n->text);
    return n;
}

/* Notes the implicit arguments that the body of a macro uses. */
static void note_macro_name(struct compiler *c, uint32_t name)
{
    if (c->macro_flags)
        *c->macro_flags |= name == NAME_CALLER    ? MACRO_CALLER
                           : name == NAME_VARARGS ? MACRO_VARARGS
                           : name == NAME_KWARGS  ? MACRO_KWARGS
                                                  : 0;
}

static struct ast_node *parse_name(struct compiler *c)
{
    struct str s = peek(c)->s;
    struct ast_node *n;

    if (str_is(s, "true") || str_is(s, "True") || str_is(s, "false") || str_is(s, "False"))
        n = node_const(c, V_BOOL(s.n == 4));
    else if (str_is(s, "none") || str_is(s, "None"))
        n = node_const(c, V_NONE);
    else if ((n = node_new(c, K_NAME))) {
        if (name_id(c, s, &n->name))
            return NULL;
        note_macro_name(c, n->name);
    }
    c->at++;
    return n;
}

static struct ast_node *parse_primary(struct compiler *c)
{
    struct token *t = peek(c);

    switch (t->kind) {
    case TOK_NAME:
        return parse_name(c);
    case TOK_STRING:
        return parse_string(c);
    case TOK_INT:
    case TOK_FLOAT:
        c->at++;
        return node_const(c, t->value);
    default:
        if (is_op(c, "("))
            return parse_parens(c);
        if (is_op(c, "["))
            return parse_sequence(c, K_LIST, "]");
        if (is_op(c, "{"))
            return parse_sequence(c, K_DICT, "}");
        return unexpected(c, "an expression");
    }
}

/* ---- postfix */

static struct ast_node *parse_dot(struct compiler *c, struct ast_node *object)
{
    struct ast_node *n = node_new(c, K_ATTR);
    struct token *t = peek(c);

    if (!n || node_add(c, n, object))
        return NULL;
    if (t->kind == TOK_INT) {
        n->kind = K_ITEM;
        c->at++;
        return node_add(c, n, node_const(c, t->value)) ? NULL : n;
    }
    if (t->kind != TOK_NAME)
        return unexpected(c, "a name or number after the dot");
    c->at++;
    n->text = (struct text){ .p = t->s.p, .n = t->s.n, .trusted = true };
    n->text_at = c->n_texts++;
    return n;
}

/* After "[": an item, or start:stop:step with optional parts. */
static struct ast_node *parse_brackets(struct compiler *c, struct ast_node *object)
{
    struct ast_node *n = node_new(c, K_SLICE);
    int colons = 0;
    bool has_part = false;

    if (!n || node_add(c, n, object))
        return NULL;
    for (;; colons++) {
        has_part = !is_op(c, ":") && !is_op(c, "]");
        if (has_part ? node_add(c, n, parse_tuple_expr(c, true)) : node_add_null(c, n))
            return NULL;
        if (colons == 2 || !accept_op(c, ":"))
            break;
    }
    if (colons == 0) {
        n->kind = K_ITEM;
        if (!has_part)
            return unexpected(c, "an index");
    } else if (colons == 1 && node_add_null(c, n)) {
        return NULL;
    }
    return expect_op(c, "]") ? NULL : n;
}

static struct ast_node *parse_postfix(struct compiler *c, struct ast_node *n)
{
    while (n) {
        if (accept_op(c, "."))
            n = parse_dot(c, n);
        else if (accept_op(c, "["))
            n = parse_brackets(c, n);
        else if (is_op(c, "("))
            n = parse_call(c, n);
        else
            break;
    }
    return n;
}

/* The argument of a test may be without parentheses: x is divisibleby 3. */
static bool begins_argument(struct compiler *c)
{
    struct token *t = peek(c);

    if (t->kind == TOK_NAME)
        return !str_is(t->s, "else") && !str_is(t->s, "or") && !str_is(t->s, "and");
    return t->kind == TOK_STRING || t->kind == TOK_INT || t->kind == TOK_FLOAT || is_op(c, "[") ||
           is_op(c, "{");
}

static struct ast_node *parse_test(struct compiler *c, struct ast_node *subject)
{
    bool negated = is_name(c, "not");

    c->at += negated;
    struct ast_node *n = node_new(c, K_TEST);
    struct token *name = peek(c);
    if (!n || node_add(c, n, subject))
        return NULL;
    if (name->kind != TOK_NAME)
        return unexpected(c, "the name of a test");
    c->at++;
    if (!(n->callable = test_find(name->s))) {
        compile_fail(
            c, name->line, "unknown test '" STR_FMT "'", (int)MIN(name->s.n, 40u), name->s.p);
        return NULL;
    }
    if (is_op(c, "(")) {
        if (parse_args(c, n))
            return NULL;
    } else if (begins_argument(c)) {
        if (is_name(c, "is")) {
            compile_fail(c, name->line, "tests cannot be chained with 'is'");
            return NULL;
        }
        if (node_add(c, n, parse_postfix(c, parse_primary(c))))
            return NULL;
    }
    if (!negated)
        return n;
    struct ast_node *not = node_new(c, K_NOT);
    return !not || node_add(c, not, n) ? NULL : not ;
}

/* ---- operators */

static struct ast_node *parse_unary(struct compiler *c, bool with_filters)
{
    struct ast_node *n;

    if (parser_enter(c))
        return NULL;
    if (is_op(c, "-") || is_op(c, "+")) {
        n = node_new(c, is_op(c, "-") ? K_NEG : K_POS);
        c->at++;
        if (!n || node_add(c, n, parse_unary(c, false)))
            return NULL;
    } else {
        n = parse_primary(c);
    }
    n = parse_postfix(c, n);
    while (n && with_filters) {
        if (is_op(c, "|")) {
            n = parse_filters(c, n, false);
        } else if (is_name(c, "is")) {
            c->at++;
            n = parse_test(c, n);
        } else if (is_op(c, "(")) {
            n = parse_call(c, n);
        } else {
            break;
        }
    }
    c->depth--;
    return n;
}

static const struct level {
    const char *ops[5];
    uint8_t op[5];
} levels[] = {
    { { "+", "-" }, { OP_ADD, OP_SUB } },
    { { "~" }, { 0 } },
    { { "*", "/", "//", "%" }, { OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD } },
    { { "**" }, { OP_POW } },
};
enum { LEVEL_CONCAT = 1, N_LEVELS = ARRAY_LEN(levels) };

static int op_at(struct compiler *c, const struct level *l)
{
    for (int i = 0; l->ops[i]; i++)
        if (is_op(c, l->ops[i]))
            return i;
    return -1;
}

/* A chain of `~` becomes one node with many kids, since a deep tree would cost nesting at
 * evaluation. */
static struct ast_node *parse_level(struct compiler *c, size_t level)
{
    if (level == N_LEVELS)
        return parse_unary(c, true);
    const struct level *l = &levels[level];
    struct ast_node *left = parse_level(c, level + 1);
    for (int i; left && (i = op_at(c, l)) >= 0;) {
        bool joins = level == LEVEL_CONCAT && left->kind == K_CONCAT && left->op;
        struct ast_node *n =
            joins ? left : node_new(c, level == LEVEL_CONCAT ? K_CONCAT : K_BINARY);
        c->at++;
        if (!n || (!joins && node_add(c, n, left)))
            return NULL;
        n->op = level == LEVEL_CONCAT ? 1 : l->op[i]; /* 1: the chain can be extended */
        if (node_add(c, n, parse_level(c, level + 1)))
            return NULL;
        left = n;
    }
    if (left && left->kind == K_CONCAT)
        left->op = 0;
    return left;
}

static int comparison(struct compiler *c, uint8_t *op)
{
    static const struct {
        const char *text;
        uint8_t op;
    } ops[] = { { "==", OP_EQ }, { "!=", OP_NE }, { "<", OP_LT }, { "<=", OP_LE }, { ">", OP_GT },
        { ">=", OP_GE } };

    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        if (is_op(c, ops[i].text)) {
            *op = ops[i].op;
            return 1;
        }
    *op = OP_IN;
    if (is_name(c, "in"))
        return 1;
    *op = OP_NOT_IN;
    struct token *t = peek(c);
    return is_name(c, "not") && t[1].kind == TOK_NAME && str_is(t[1].s, "in") ? 2 : 0;
}

static struct ast_node *parse_compare(struct compiler *c)
{
    struct ast_node *left = parse_level(c, 0), *n = NULL;
    uint8_t op;
    int words;

    while (left && (words = comparison(c, &op))) {
        struct ast_node *operand = node_new(c, K_OPERAND);
        c->at += (size_t)words;
        if (!operand || node_add(c, operand, parse_level(c, 0)))
            return NULL;
        operand->op = op;
        if (!n && (!(n = node_new(c, K_COMPARE)) || node_add(c, n, left)))
            return NULL;
        if (node_add(c, n, operand))
            return NULL;
    }
    return n ? n : left;
}

static struct ast_node *parse_not(struct compiler *c)
{
    struct ast_node *n;

    if (!is_name(c, "not"))
        return parse_compare(c);
    c->at++;
    if (parser_enter(c))
        return NULL;
    n = node_new(c, K_NOT);
    if (!n || node_add(c, n, parse_not(c)))
        return NULL;
    c->depth--;
    return n;
}

static struct ast_node *parse_and_or(struct compiler *c, bool is_or)
{
    struct ast_node *left = is_or ? parse_and_or(c, false) : parse_not(c), *n = NULL;

    while (left && is_name(c, is_or ? "or" : "and")) {
        c->at++;
        if (!n && (!(n = node_new(c, is_or ? K_OR : K_AND)) || node_add(c, n, left)))
            return NULL;
        if (node_add(c, n, is_or ? parse_and_or(c, false) : parse_not(c)))
            return NULL;
    }
    return left && n ? n : left;
}

static struct ast_node *parse_conditional(struct compiler *c, bool with_if)
{
    if (parser_enter(c))
        return NULL;
    struct ast_node *n = parse_and_or(c, true);
    while (n && with_if && is_name(c, "if")) {
        struct ast_node *cond = node_new(c, K_COND);
        c->at++;
        if (!cond || node_add(c, cond, parse_and_or(c, true)) || node_add(c, cond, n))
            return NULL;
        bool has_else = is_name(c, "else");
        c->at += has_else;
        if (has_else ? node_add(c, cond, parse_expr(c)) : node_add_null(c, cond))
            return NULL;
        n = cond;
    }
    c->depth--;
    return n;
}

struct ast_node *parse_expr(struct compiler *c)
{
    return parse_conditional(c, true);
}

static bool ends_tuple(struct compiler *c)
{
    struct token *t = peek(c);

    return t->kind == TOK_VAR_END || t->kind == TOK_BLOCK_END || is_op(c, ")") || is_op(c, "]") ||
           is_name(c, "recursive");
}

struct ast_node *parse_tuple_expr(struct compiler *c, bool with_if)
{
    struct ast_node *first = parse_conditional(c, with_if);

    if (!first || !is_op(c, ","))
        return first;
    struct ast_node *n = node_new(c, K_TUPLE);
    if (!n || node_add(c, n, first))
        return NULL;
    while (accept_op(c, ",") && !ends_tuple(c))
        if (node_add(c, n, parse_conditional(c, with_if)))
            return NULL;
    return n;
}
