/* parser.c: parses tokens to nodes: statements. Expressions are in expr.c. Owner: the thread that
 * compiles. */
#include "jinja/parser.h"

static struct ast_node *parse_body(struct compiler *c, const char *const *ends);

static struct ast_node *finish(struct compiler *c, struct ast_node *n)
{
    return n && !expect_kind(c, TOK_BLOCK_END, "the end of the tag") ? n : NULL;
}

/* End tags such as {% endfor %}: parse_body has already matched the name. */
static struct ast_node *close_tag(struct compiler *c, struct ast_node *n)
{
    c->at++;
    return finish(c, n);
}

static bool is_one_of(const struct token *t, const char *const *words)
{
    for (; *words; words++)
        if (t->kind == TOK_NAME && str_is(t->s, *words))
            return true;
    return false;
}

/* ---- assignment targets */

static struct ast_node *parse_name_target(struct compiler *c, bool with_namespace)
{
    struct token *t = peek(c);

    if (t->kind != TOK_NAME)
        return unexpected(c, "a name to assign to");
    if (is_reserved(t->s)) {
        compile_fail(c, t->line, "cannot assign to " STR_FMT, STR_ARG(t->s));
        return NULL;
    }
    struct ast_node *n = node_new(c, K_NAME);
    if (!n || name_id(c, t->s, &n->name))
        return NULL;
    c->at++;
    if (with_namespace && accept_op(c, ".")) {
        if (peek(c)->kind != TOK_NAME)
            return unexpected(c, "the name of a member");
        n->kind = K_NAMESPACE_REF;
        n->text = (struct text){ .p = peek(c)->s.p, .n = peek(c)->s.n, .trusted = true };
        n->text_at = c->n_texts++;
        c->at++;
    }
    return n;
}

static struct ast_node *parse_target(struct compiler *c, bool with_namespace);

static struct ast_node *parse_target_item(struct compiler *c, bool with_namespace)
{
    if (!accept_op(c, "("))
        return parse_name_target(c, with_namespace);
    if (parser_enter(c))
        return NULL;
    struct ast_node *n = parse_target(c, with_namespace);
    c->depth--;
    return n && !expect_op(c, ")") ? n : NULL;
}

/* a, or a, b, or (a, b), or a, (b, c) */
static struct ast_node *parse_target(struct compiler *c, bool with_namespace)
{
    struct ast_node *tuple = node_new(c, K_TUPLE);
    bool is_tuple = false;

    if (!tuple)
        return NULL;
    while ((peek(c)->kind == TOK_NAME && !is_name(c, "in")) || is_op(c, "(")) {
        if (node_add(c, tuple, parse_target_item(c, with_namespace)))
            return NULL;
        if (!accept_op(c, ","))
            break;
        is_tuple = true;
    }
    if (!tuple->n)
        return unexpected(c, "a name to assign to");
    return is_tuple ? tuple : tuple->kid[0];
}

/* ---- statements */

static struct ast_node *parse_if(struct compiler *c)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL };
    static const char *const end[] = { "endif", NULL };
    struct ast_node *n = node_new(c, K_IF);

    for (;;) {
        if (!n || node_add(c, n, parse_tuple_expr(c, false)) || node_add(c, n, parse_body(c, ends)))
            return NULL;
        if (is_name(c, "elif")) {
            c->at++;
            continue;
        }
        if (is_name(c, "else")) {
            c->at++;
            if (node_add(c, n, parse_body(c, end)))
                return NULL;
        }
        return close_tag(c, n);
    }
}

static struct ast_node *parse_for(struct compiler *c)
{
    static const char *const ends[] = { "endfor", "else", NULL };
    static const char *const end[] = { "endfor", NULL };
    struct ast_node *n = node_new(c, K_FOR);

    if (!n || node_add(c, n, parse_target(c, false)))
        return NULL;
    if (!is_name(c, "in"))
        return unexpected(c, "in");
    c->at++;
    if (node_add(c, n, parse_tuple_expr(c, false)))
        return NULL;
    bool has_filter = is_name(c, "if");
    c->at += has_filter;
    if (has_filter ? node_add(c, n, parse_expr(c)) : node_add_null(c, n))
        return NULL;
    if (is_name(c, "recursive")) {
        compile_fail(c, n->line, "recursive loops are not supported");
        return NULL;
    }
    c->loops++;
    int rc = node_add(c, n, parse_body(c, ends));
    c->loops--;
    if (rc)
        return NULL;
    if (is_name(c, "else")) {
        c->at++;
        if (node_add(c, n, parse_body(c, end)))
            return NULL;
    } else if (node_add_null(c, n)) {
        return NULL;
    }
    return close_tag(c, n);
}

static struct ast_node *parse_set(struct compiler *c)
{
    static const char *const ends[] = { "endset", NULL };
    struct ast_node *n = node_new(c, K_SET);

    if (!n || node_add(c, n, parse_target(c, true)))
        return NULL;
    if (accept_op(c, "=")) {
        if (node_add(c, n, parse_tuple_expr(c, true)))
            return NULL;
        return finish(c, n);
    }
    n->kind = K_SET_BLOCK;
    if (is_op(c, "|") ? node_add(c, n, parse_filters(c, NULL, false)) : node_add_null(c, n))
        return NULL;
    return node_add(c, n, parse_body(c, ends)) ? NULL : close_tag(c, n);
}

/* Parses the parameters and defaults of a macro or a call block into n. */
static int parse_signature(struct compiler *c, struct ast_node *n)
{
    struct ast_node *defaults = node_new(c, K_TUPLE);

    if (!defaults || expect_op(c, "("))
        return -1;
    while (!is_op(c, ")")) {
        if (n->n && expect_op(c, ","))
            return -1;
        if (node_add(c, n, parse_name_target(c, false)))
            return -1;
        if (accept_op(c, "=")) {
            if (node_add(c, defaults, parse_expr(c)))
                return -1;
        } else if (defaults->n) {
            return compile_fail(
                c, n->line, "an argument without a default follows one with a default");
        }
    }
    n->n_kw = (uint16_t)defaults->n;
    for (uint32_t i = 0; i < defaults->n; i++)
        if (node_add(c, n, defaults->kid[i]))
            return -1;
    return n->n > ARGS_MAX ? compile_fail(c, n->line, "too many arguments") : expect_op(c, ")");
}

static struct ast_node *parse_macro_body(struct compiler *c, struct ast_node *n, const char *end)
{
    const char *const ends[] = { end, NULL };
    uint8_t *outer_flags = c->macro_flags;
    int outer_loops = c->loops;

    c->macro_flags = &n->op;
    c->loops = 0;
    int rc = node_add(c, n, parse_body(c, ends));
    c->macro_flags = outer_flags;
    c->loops = outer_loops;
    return rc ? NULL : n;
}

static struct ast_node *parse_macro(struct compiler *c)
{
    struct ast_node *n = node_new(c, K_MACRO);
    struct ast_node *name = n ? parse_name_target(c, false) : NULL;

    if (!name || parse_signature(c, n))
        return NULL;
    n->name = name->name;
    return parse_macro_body(c, n, "endmacro") ? close_tag(c, n) : NULL;
}

static struct ast_node *parse_call_block(struct compiler *c)
{
    struct ast_node *n = node_new(c, K_CALL_BLOCK);
    struct ast_node *caller = node_new(c, K_MACRO);

    if (!n || !caller || (is_op(c, "(") && parse_signature(c, caller)))
        return NULL;
    caller->name = NAME_CALLER;
    struct ast_node *call = parse_expr(c);
    if (!call)
        return NULL;
    if (call->kind != K_CALL) {
        compile_fail(c, n->line, "a call block needs a call");
        return NULL;
    }
    if (node_add(c, n, call) || node_add(c, n, parse_macro_body(c, caller, "endcall")))
        return NULL;
    return close_tag(c, n);
}

static struct ast_node *parse_filter_block(struct compiler *c)
{
    static const char *const ends[] = { "endfilter", NULL };
    struct ast_node *n = node_new(c, K_FILTER_BLOCK);

    if (!n || node_add(c, n, parse_filters(c, NULL, true)) || node_add(c, n, parse_body(c, ends)))
        return NULL;
    return close_tag(c, n);
}

static struct ast_node *parse_with(struct compiler *c)
{
    static const char *const ends[] = { "endwith", NULL };
    struct ast_node *n = node_new(c, K_WITH);

    while (n && peek(c)->kind != TOK_BLOCK_END) {
        if (n->n && expect_op(c, ","))
            return NULL;
        if (node_add(c, n, parse_name_target(c, false)) || expect_op(c, "=") ||
            node_add(c, n, parse_expr(c)))
            return NULL;
    }
    return !n || node_add(c, n, parse_body(c, ends)) ? NULL : close_tag(c, n);
}

/* `generation` marks assistant output for training; its body is rendered without change. */
static struct ast_node *parse_generation(struct compiler *c)
{
    static const char *const ends[] = { "endgeneration", NULL };
    struct ast_node *n = node_new(c, K_SCOPE);

    return !n || node_add(c, n, parse_body(c, ends)) ? NULL : close_tag(c, n);
}

static struct ast_node *parse_print(struct compiler *c)
{
    struct ast_node *n = node_new(c, K_BODY);

    while (n && peek(c)->kind != TOK_BLOCK_END) {
        struct ast_node *out = node_new(c, K_OUT);
        if (n->n && expect_op(c, ","))
            return NULL;
        if (!out || node_add(c, out, parse_expr(c)) || node_add(c, n, out))
            return NULL;
    }
    return finish(c, n);
}

static struct ast_node *parse_jump(struct compiler *c, enum node_kind kind)
{
    struct ast_node *n = node_new(c, kind);

    if (n && !c->loops) {
        compile_fail(c, n->line, "%s outside a loop", kind == K_BREAK ? "break" : "continue");
        return NULL;
    }
    return finish(c, n);
}

static struct ast_node *parse_break(struct compiler *c)
{
    return parse_jump(c, K_BREAK);
}

static struct ast_node *parse_continue(struct compiler *c)
{
    return parse_jump(c, K_CONTINUE);
}

static const struct {
    const char *word;
    struct ast_node *(*parse)(struct compiler *c);
} statements[] = {
    { "if", parse_if },
    { "for", parse_for },
    { "set", parse_set },
    { "macro", parse_macro },
    { "call", parse_call_block },
    { "filter", parse_filter_block },
    { "with", parse_with },
    { "generation", parse_generation },
    { "print", parse_print },
    { "break", parse_break },
    { "continue", parse_continue },
};

static struct ast_node *parse_statement(struct compiler *c)
{
    struct token *t = peek(c);

    if (t->kind != TOK_NAME)
        return unexpected(c, "the name of a statement");
    for (size_t i = 0; i < ARRAY_LEN(statements); i++)
        if (str_is(t->s, statements[i].word)) {
            c->at++;
            return statements[i].parse(c);
        }
    compile_fail(c, t->line, "unknown statement '" STR_FMT "'", (int)MIN(t->s.n, 40u), t->s.p);
    return NULL;
}

static struct ast_node *parse_text(struct compiler *c)
{
    struct ast_node *n = node_new(c, K_TEXT);
    struct token *t = peek(c);

    if (n)
        n->text = (struct text){ .p = t->s.p, .n = t->s.n, .trusted = true };
    c->at++;
    return n;
}

static struct ast_node *parse_output(struct compiler *c)
{
    c->at++;
    struct ast_node *n = node_new(c, K_OUT);
    if (!n || node_add(c, n, parse_tuple_expr(c, true)))
        return NULL;
    return expect_kind(c, TOK_VAR_END, "}}") ? NULL : n;
}

/* Parses up to a tag that begins with one of `ends` (NULL: to the end of the source); the name is
 * then the next token. The current token is the end of the tag that opened the body. */
static struct ast_node *parse_body(struct compiler *c, const char *const *ends)
{
    struct ast_node *body = node_new(c, K_BODY);

    if (!body || parser_enter(c))
        return NULL;
    accept_op(c, ":");
    if (ends && expect_kind(c, TOK_BLOCK_END, "the end of the tag"))
        return NULL;
    for (;;) {
        struct token *t = peek(c);
        struct ast_node *n;
        if (t->kind == TOK_END) {
            if (!ends)
                break;
            compile_fail(c, t->line, "the template ends where %s is expected", ends[0]);
            return NULL;
        }
        if (t->kind == TOK_DATA) {
            n = parse_text(c);
        } else if (t->kind == TOK_VAR_BEGIN) {
            n = parse_output(c);
        } else {
            c->at++;
            if (ends && is_one_of(peek(c), ends))
                break;
            n = parse_statement(c);
        }
        if (node_add(c, body, n))
            return NULL;
    }
    c->depth--;
    return body;
}

struct ast_node *jinja_parse(struct compiler *c)
{
    return parse_body(c, NULL);
}
