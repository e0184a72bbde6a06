#include "constrain/regular/pattern.h"

#include "base/utf8.h"
#include "constrain/regular/expr_in.h"
#include "constrain/regular/pattern_in.h"

static expr_id disjunction(struct pattern_cursor *c, expr_id before, expr_id after);

/* An element of a sequence, before its quantifier. */
struct atom {
    expr_id expr;
    bool is_assertion; /* must not be repeated */
};

static expr_id class_expr(struct pattern_cursor *c, struct code_points *set)
{
    if (c->flags & PATTERN_IGNORE_CASE && expr_work(c->x, set->n))
        code_points_fold(set);
    expr_id all = c->is_failed ? EXPR_NONE : text_class(c->x, set, c->mode);
    code_points_clear(set);
    return all;
}

static expr_id character(struct pattern_cursor *c, uint32_t cp)
{
    struct code_points one = { 0 };

    /* Most characters are one byte in every mode. */
    bool is_plain = !(c->flags & PATTERN_IGNORE_CASE) || (cp >= '0' && cp <= '9') || cp == ' ';
    if (cp >= ' ' && cp <= '~' && cp != '"' && cp != '\\' && cp != '/' && is_plain && !c->is_failed)
        return expr_range(c->x, (uint8_t)cp, (uint8_t)cp);
    code_points_add(&one, cp, cp);
    return class_expr(c, &one);
}

/* `.`: not a line terminator */
static expr_id dot(struct pattern_cursor *c)
{
    struct code_points set = { 0 };

    if (c->flags & PATTERN_DOT_ALL)
        return c->is_failed ? EXPR_NONE : text_any(c->x, c->mode);
    code_points_add(&set, '\n', '\n');
    if (!(c->flags & PATTERN_LINE_FEED)) {
        code_points_add(&set, '\r', '\r');
        code_points_add(&set, 0x2028, 0x2029);
    }
    code_points_invert(&set);
    expr_id all = c->is_failed ? EXPR_NONE : text_class(c->x, &set, c->mode);
    code_points_clear(&set);
    return all;
}

/* `$`: the end, or a place before a newline */
static expr_id dollar(struct pattern_cursor *c)
{
    expr_id rest = EXPR_EPS;

    if (c->flags & PATTERN_LINES)
        rest = expr_or(c->x, rest, expr_cat(c->x, expr_range(c->x, '\n', '\n'), EXPR_ALL));
    return expr_look(c->x, rest);
}

/* ---- groups */

/* Groups that begin with `(?`; the longest match is first. */
static const struct {
    const char *start;
    const char *refusal; /* NULL: supported */
} group_kinds[] = {
    { "(?:", NULL },
    { "(?=", NULL },
    { "(?!", NULL },
    { "(?<=", "lookbehinds are not supported: lookbehind" },
    { "(?<!", "lookbehinds are not supported: negative lookbehind" },
    { "(?<", NULL },
    { "(?P", "named groups are written (?<name>..): group" },
    { "(?>", "atomic groups are not part of ECMA-262: group" },
    { "(?#", "comments are not part of ECMA-262: comment" },
    { "(?", "inline flags and other groups are not supported: group" },
    { "(", NULL },
};

/* The name of a group and `>`. */
static void group_name(struct pattern_cursor *c)
{
    struct str rest = str_skip(c->text, c->at);
    ptrdiff_t end = str_find(rest, STR(">"));
    bool is_valid = end > 0 && !(rest.p[0] >= '0' && rest.p[0] <= '9');

    for (ptrdiff_t k = 0; is_valid && k < end; k++) {
        char ch = rest.p[k];
        is_valid = ((ch | 0x20) >= 'a' && (ch | 0x20) <= 'z') || (ch >= '0' && ch <= '9') ||
                   ch == '_' || ch == '$' || (signed char)ch < 0;
    }
    if (is_valid)
        c->at += (size_t)end + 1;
    else
        pattern_error(c, ERR_SYNTAX, c->at, "malformed name of a group");
}

static struct atom group(struct pattern_cursor *c)
{
    size_t start = c->at, kind = 0;
    struct atom a = { .expr = EXPR_NONE };

    while (!pattern_skip(c, group_kinds[kind].start))
        kind++;
    const char *name = group_kinds[kind].start;
    if (group_kinds[kind].refusal) {
        pattern_error(c, ERR_UNSUPPORTED, start, group_kinds[kind].refusal);
        return a;
    }
    if (++c->depth > PATTERN_DEPTH_MAX) {
        pattern_error(c, ERR_TOO_LARGE, start, "groups are nested too deeply: group");
        return a;
    }
    if (!strcmp(name, "(?<"))
        group_name(c);
    a.expr = disjunction(c, EXPR_EPS, EXPR_EPS);
    if (!pattern_skip(c, ")"))
        pattern_error(c, ERR_SYNTAX, start, "group without end");
    c->depth--;
    a.is_assertion = !strcmp(name, "(?=") || !strcmp(name, "(?!");
    if (a.is_assertion) {
        expr_id rest = expr_cat(c->x, a.expr, EXPR_ALL);
        a.expr = expr_look(c->x, strcmp(name, "(?!") ? rest : expr_not(c->x, rest));
    }
    return a;
}

/* ---- atoms and quantifiers */

static struct atom escape(struct pattern_cursor *c)
{
    struct code_points set = { 0 };

    if (pattern_sees(c, "b") || pattern_sees(c, "B")) {
        bool is_negated = c->text.p[c->at++] == 'B';
        return (struct atom){ expr_boundary(c->x, is_negated), .is_assertion = true };
    }
    pattern_escape(c, false, &set);
    return (struct atom){ .expr = class_expr(c, &set) };
}

static struct atom atom(struct pattern_cursor *c)
{
    struct code_points set = { 0 };

    switch (c->text.p[c->at]) {
    case '(':
        return group(c);
    case '^':
        c->at++;
        return (struct atom){ expr_caret(c->x, c->flags & PATTERN_LINES), .is_assertion = true };
    case '$':
        c->at++;
        return (struct atom){ dollar(c), .is_assertion = true };
    case '.':
        c->at++;
        return (struct atom){ .expr = dot(c) };
    case '[':
        c->at++;
        pattern_class(c, &set);
        return (struct atom){ .expr = class_expr(c, &set) };
    case '\\':
        c->at++;
        return escape(c);
    case '*':
    case '+':
    case '?':
        pattern_error(c, ERR_SYNTAX, c->at, "quantifier without an element");
        return (struct atom){ .expr = EXPR_NONE };
    default:
        return (struct atom){ .expr = character(c, pattern_next(c)) };
    }
}

struct count {
    uint32_t min, max;
};

/* Reads a number at *at; false if there is none. It saturates above REPEAT_MAX. */
static bool read_count(const struct pattern_cursor *c, size_t *at, uint32_t *value)
{
    size_t start = *at;
    uint64_t n = 0;

    for (; *at < c->text.n && c->text.p[*at] >= '0' && c->text.p[*at] <= '9'; (*at)++)
        n = MIN(n * 10 + (uint64_t)(c->text.p[*at] - '0'), (uint64_t)REPEAT_MAX + 1);
    *value = (uint32_t)n;
    return *at > start;
}

/* {m} {m,} {m,n}; anything else is no quantifier, and `{` is a character. */
static bool braces(struct pattern_cursor *c, struct count *q)
{
    size_t at = c->at + 1, start = c->at;

    if (!pattern_sees(c, "{") || !read_count(c, &at, &q->min))
        return false;
    q->max = q->min;
    if (at < c->text.n && c->text.p[at] == ',') {
        at++;
        if (!read_count(c, &at, &q->max))
            q->max = REPEAT_INF;
    }
    if (at >= c->text.n || c->text.p[at] != '}')
        return false;
    c->at = at + 1;
    if (q->min > q->max)
        pattern_error(c, ERR_SYNTAX, start, "numbers out of order in a quantifier");
    else if (q->min > REPEAT_MAX || (q->max > REPEAT_MAX && q->max != REPEAT_INF))
        pattern_error(c, ERR_TOO_LARGE, start, "count above 2^30 in a quantifier");
    return true;
}

static bool quantifier(struct pattern_cursor *c, struct count *q)
{
    bool is_found = true;

    if (pattern_skip(c, "*"))
        *q = (struct count){ 0, REPEAT_INF };
    else if (pattern_skip(c, "+"))
        *q = (struct count){ 1, REPEAT_INF };
    else if (pattern_skip(c, "?"))
        *q = (struct count){ 0, 1 };
    else
        is_found = braces(c, q);
    if (is_found)
        pattern_skip(c, "?");
    return is_found;
}

static expr_id term(struct pattern_cursor *c)
{
    size_t start = c->at;
    struct atom a = atom(c);
    struct count q;

    if (c->is_failed || !quantifier(c, &q) || c->is_failed)
        return a.expr;
    if (a.is_assertion) {
        pattern_error(c, ERR_SYNTAX, start, "quantifier after an assertion");
        return a.expr;
    }
    return expr_repeat(c->x, a.expr, q.min, q.max);
}

/* ---- sequences and alternatives */

/* `before` term term .. `after`; nested to the right, so that it is built from the end. */
static expr_id sequence(struct pattern_cursor *c, expr_id before, expr_id after)
{
    struct exprs *x = c->x;
    uint32_t start = x->n_stack;
    expr_id all = after;

    while (!pattern_at_end(c) && !pattern_sees(c, "|") && !pattern_sees(c, ")"))
        expr_push(x, term(c).i);
    while (x->n_stack > start)
        all = expr_cat(x, (expr_id){ x->stack[--x->n_stack] }, all);
    return expr_cat(x, before, all);
}

static expr_id disjunction(struct pattern_cursor *c, expr_id before, expr_id after)
{
    struct exprs *x = c->x;
    uint32_t start = x->n_stack;

    do
        expr_push(x, sequence(c, before, after).i);
    while (pattern_skip(c, "|"));
    expr_id all = EXPR_NONE;
    if (!exprs_failed(x))
        all = expr_or_all(x, (const expr_id *)(const void *)(x->stack + start), x->n_stack - start);
    x->n_stack = start;
    return all;
}

int pattern_compile_with(struct exprs *x, struct str pattern, const struct pattern_options *o,
    expr_id *out, struct err *e)
{
    enum text_mode mode = o->mode;
    struct pattern_cursor c = { .x = x, .text = pattern, .mode = mode, .flags = o->flags, .e = e };
    unsigned ctx = CTX_START | (mode == TEXT_UTF8 ? 0 : CTX_JSON);
    uint32_t start = x->n_stack;

    CHECK(mode == TEXT_UTF8 || (mode == TEXT_JSON && !(o->flags & PATTERN_LINES)));
    ctx |= o->flags & PATTERN_LINES ? CTX_LINES : 0;
    if (pattern.n > PATTERN_BYTES_MAX)
        return err_set(
            e, ERR_TOO_LARGE, "pattern: %zu bytes, at most %d", pattern.n, PATTERN_BYTES_MAX);
    if (!utf8_valid(pattern))
        return err_set(e, ERR_SYNTAX, "pattern: invalid UTF-8");
    expr_id around = o->extent == PATTERN_SEARCH ? text_any_star(x, mode) : EXPR_EPS;
    expr_id all = disjunction(&c, around, around);
    if (!pattern_at_end(&c))
        pattern_error(&c, ERR_SYNTAX, c.at, "unexpected `)`");
    if (c.is_failed) {
        x->n_stack = start;
        return -1;
    }
    *out = expr_scope(x, all, ctx);
    return exprs_check(x, e) ? err_wrap(e, "pattern") : 0;
}

int pattern_compile(struct exprs *x, struct str pattern, enum text_mode mode,
    enum pattern_extent extent, expr_id *out, struct err *e)
{
    return pattern_compile_with(x, pattern, &(struct pattern_options){ mode, extent, 0 }, out, e);
}
