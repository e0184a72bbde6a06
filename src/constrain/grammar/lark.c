#include "constrain/grammar/lark.h"

#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "constrain/regular/pattern.h"
#include "constrain/grammar/syntax.h"
#include "constrain/regular/text.h"

struct lark_name {
    rule_id id;
    size_t used_at; /* offset of the first use */
    struct str name;
    bool is_defined;
};

struct lark {
    struct syntax s;
    struct str_map *number_of;
    struct lark_name *names; /* rules and terminals */
    uint32_t n_names, cap_names;
    rule_id ignored; /* texts between terminals */
    part_id ignore;  /* one ignored terminal */
    bool in_terminal;
};

static const struct {
    const char *name, *pattern;
} common[] = {
#define LARK_COMMON(name, pattern) { name, pattern },
#include "constrain/grammar/lark_common.def"
#undef LARK_COMMON
};

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool is_terminal(struct str name)
{
    size_t k = 0;

    while (k < name.n && name.p[k] == '_')
        k++;
    return k < name.n && name.p[k] >= 'A' && name.p[k] <= 'Z';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void skip_comment(struct syntax *s)
{
    while (!syntax_at_end(s) && syntax_peek(s) != '\n')
        s->at++;
}

/* Blanks and comments of the line. */
static void skip_blanks(struct lark *p)
{
    struct syntax *s = &p->s;

    for (;;) {
        char c = syntax_peek(s);
        if (c == '#' || syntax_sees(s, "//"))
            skip_comment(s);
        else if (!syntax_at_end(s) && (c == ' ' || c == '\t' || c == '\r' || c == '\f'))
            s->at++;
        else
            return;
    }
}

static void skip_lines(struct lark *p)
{
    do
        skip_blanks(p);
    while (syntax_skip(&p->s, "\n"));
}

/* Number of the rule or terminal with this name, which may be new. */
static uint32_t name_number(struct lark *p, struct str name, size_t at)
{
    uint32_t k = 0;

    if (p->s.is_failed || str_map_get(p->number_of, name, &k))
        return k;
    if (p->n_names == p->cap_names) {
        uint32_t cap = MAX(p->cap_names * 2, 16u);
        struct lark_name *bigger = try_realloc(p->names, cap * sizeof(*bigger));
        if (!bigger) {
            syntax_fail(&p->s, ERR_MEMORY, "no memory for a grammar");
            return 0;
        }
        p->names = bigger;
        p->cap_names = cap;
    }
    k = p->n_names;
    if (str_map_put(p->number_of, name, k) < 0) {
        syntax_fail(&p->s, ERR_MEMORY, "no memory for a grammar");
        return 0;
    }
    p->names[p->n_names++] = (struct lark_name){ grammar_rule(p->s.g, name), at, name, false };
    return k;
}

static void define(struct lark *p, uint32_t k, size_t at, part_id body)
{
    if (p->s.is_failed)
        return;
    if (p->names[k].is_defined)
        syntax_error(&p->s, ERR_INVALID, at, "\"%.*s\" is defined twice",
            (int)MIN(p->names[k].name.n, (size_t)100), p->names[k].name.p);
    p->names[k].is_defined = true;
    grammar_define(p->s.g, p->names[k].id, body);
}

/* ---- strings and patterns */

/* Escapes of strings: a backslash before another character stands for itself. */
static void string_escape(struct syntax *s, struct buf *b)
{
    static const char letters[] = "ntrf\\\"", values[] = "\n\t\r\f\\\"";
    char c = syntax_peek(s), bytes[4];
    const char *letter = c ? strchr(letters, c) : NULL;

    s->at += !syntax_at_end(s);
    if (letter) {
        buf_putc(b, values[letter - letters]);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        uint32_t cp = syntax_hex(s, c == 'x' ? 2 : c == 'u' ? 4 : 8);
        if (!s->is_failed)
            buf_put(b, bytes, (size_t)utf8_encode(cp, bytes));
    } else {
        buf_putc(b, '\\');
        s->at -= !syntax_at_end(s); /* the character follows */
    }
}

/* The text of a string after the quotation mark. */
static void string_text(struct lark *p, struct buf *b)
{
    struct syntax *s = &p->s;
    size_t start = s->at - 1;

    while (!syntax_at_end(s) && syntax_peek(s) != '"' && syntax_peek(s) != '\n') {
        char c = s->text.p[s->at++];
        if (c == '\\')
            string_escape(s, b);
        else
            buf_putc(b, c);
    }
    if (!syntax_skip(s, "\""))
        syntax_error(s, ERR_SYNTAX, start, "the string has no end");
    if (!buf_ok(b))
        syntax_fail(s, ERR_MEMORY, "no memory for a grammar");
}

/* The only character of the text; an error if there is another number. */
static uint32_t single_character(struct lark *p, struct str text, size_t at)
{
    uint32_t cp = 0;

    if (utf8_decode(text, &cp) != (int)text.n || !text.n)
        syntax_error(&p->s, ERR_SYNTAX, at, "a range needs one character on each side");
    return cp;
}

/* "a".."z" after the first string */
static part_id range(struct lark *p, struct str first, size_t start)
{
    struct syntax *s = &p->s;
    struct code_points set = { 0 };
    struct buf b;
    uint32_t from = single_character(p, first, start), to = 0;
    size_t at = s->at;

    buf_init(&b, s->text.n + 1);
    syntax_expect(s, "\"");
    if (!s->is_failed)
        string_text(p, &b);
    if (!s->is_failed)
        to = single_character(p, buf_str(&b), at);
    if (to < from)
        syntax_error(s, ERR_SYNTAX, start, "the range is out of order");
    if (!s->is_failed)
        code_points_add(&set, from, to);
    buf_clear(&b);
    return syntax_class(s, &set);
}

static part_id text_without_case(struct lark *p, struct str text)
{
    part_id all = PART_EMPTY;

    while (text.n && !p->s.is_failed) {
        struct code_points set = { 0 };
        uint32_t cp = 0;
        int n = utf8_decode(text, &cp);
        text = str_skip(text, (size_t)MAX(n, 1));
        code_points_add(&set, cp, cp);
        code_points_fold(&set);
        all = grammar_cat(p->s.g, all, syntax_class(&p->s, &set));
    }
    return all;
}

static part_id string(struct lark *p)
{
    struct syntax *s = &p->s;
    size_t start = s->at - 1;
    struct buf b;
    part_id part = PART_NEVER;

    buf_init(&b, s->text.n + 1);
    string_text(p, &b);
    if (s->is_failed)
        part = PART_NEVER;
    else if (syntax_skip(s, ".."))
        part = range(p, buf_str(&b), start);
    else if (syntax_sees(s, "i") && !(s->at + 1 < s->text.n && is_name(s->text.p[s->at + 1]))) {
        s->at++;
        part = text_without_case(p, buf_str(&b));
    } else {
        part = grammar_literal(s->g, buf_str(&b));
    }
    buf_clear(&b);
    return part;
}

/* Compiles a pattern that begins at an offset of the text. */
static part_id compiled(struct lark *p, struct str pattern, unsigned flags, size_t at)
{
    struct pattern_options o = { TEXT_UTF8, PATTERN_FULL, flags | PATTERN_LINE_FEED };
    struct err e = { 0 };
    expr_id expr = EXPR_NONE;

    if (p->s.is_failed)
        return PART_NEVER;
    if (pattern_compile_with(grammar_exprs(p->s.g), pattern, &o, &expr, &e)) {
        syntax_error(&p->s, e.code, at, "%s", e.msg);
        return PART_NEVER;
    }
    return grammar_expr(p->s.g, expr);
}

/* After the slash. */
static part_id regexp(struct lark *p)
{
    struct syntax *s = &p->s;
    size_t start = s->at - 1;
    unsigned flags = 0;

    while (!syntax_at_end(s) && syntax_peek(s) != '/' && syntax_peek(s) != '\n')
        s->at = MIN(s->at + (syntax_peek(s) == '\\' ? 2 : 1), s->text.n);
    struct str pattern = { s->text.p + start + 1, s->at - start - 1 };
    if (!syntax_skip(s, "/")) {
        syntax_error(s, ERR_SYNTAX, start, "the pattern has no end");
        return PART_NEVER;
    }
    for (;; s->at++) {
        char c = syntax_peek(s);
        if (c == 'i')
            flags |= PATTERN_IGNORE_CASE;
        else if (c == 'm')
            flags |= PATTERN_LINES;
        else if (c == 's')
            flags |= PATTERN_DOT_ALL;
        else if (c == 'l' || c == 'x')
            syntax_error(
                s, ERR_UNSUPPORTED, s->at, "the flag `%c` of patterns is not supported", c);
        else if (c != 'u')
            break;
    }
    return compiled(p, pattern, flags, start);
}

/* The JSON value after `%json`. */
static part_id json(struct lark *p)
{
    struct syntax *s = &p->s;
    size_t start, depth = 0;
    bool in_string = false;

    skip_lines(p);
    start = s->at;
    if (syntax_peek(s) != '{')
        syntax_error(s, ERR_SYNTAX, start, "a JSON Schema is expected after %%json");
    do {
        char c = syntax_peek(s);
        if (syntax_at_end(s))
            break;
        if (in_string && c == '\\')
            s->at++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string)
            depth += (c == '{') - (size_t)(c == '}');
        s->at++;
    } while (depth || in_string);
    if (depth || in_string || s->at > s->text.n)
        syntax_error(s, ERR_SYNTAX, start, "the JSON Schema has no end");
    if (s->is_failed)
        return PART_NEVER;
    return grammar_json(s->g, (struct str){ s->text.p + start, s->at - start });
}

/* ---- elements */

/* {m} {m,} {,n} {m,n} ~ n ~ n..m: false if there is none. */
static bool counts(struct lark *p, uint32_t *min, uint32_t *max)
{
    struct syntax *s = &p->s;
    size_t start = s->at;
    bool is_brace = syntax_skip(s, "{"), has_min;

    if (!is_brace && !syntax_skip(s, "~"))
        return false;
    skip_blanks(p);
    has_min = syntax_number(s, min);
    if (!has_min && !(is_brace && syntax_sees(s, ","))) {
        syntax_error(s, is_brace && is_name(syntax_peek(s)) ? ERR_UNSUPPORTED : ERR_SYNTAX, start,
            is_brace && is_name(syntax_peek(s)) ? "templates are not supported"
                                                : "a count is expected");
        return true;
    }
    *min = has_min ? *min : 0;
    *max = *min;
    skip_blanks(p);
    if (syntax_skip(s, is_brace ? "," : "..")) {
        skip_blanks(p);
        if (!syntax_number(s, max)) {
            *max = REPEAT_INF;
            if (!is_brace)
                syntax_error(s, ERR_SYNTAX, s->at, "a count is expected");
        }
    }
    skip_blanks(p);
    if (is_brace)
        syntax_expect(s, "}");
    if (*min > *max)
        syntax_error(s, ERR_SYNTAX, start, "the counts are out of order");
    return true;
}

static bool quantifier(struct lark *p, uint32_t *min, uint32_t *max)
{
    struct syntax *s = &p->s;

    *min = 0;
    *max = REPEAT_INF;
    if (syntax_skip(s, "*"))
        return true;
    if (syntax_skip(s, "+")) {
        *min = 1;
        return true;
    }
    if (syntax_skip(s, "?")) {
        *max = 1;
        return true;
    }
    return counts(p, min, max);
}

/* A terminal in a rule: ignored texts may precede it. */
static void add_terminal(struct lark *p, part_id part)
{
    struct grammar *g = p->s.g;

    syntax_add(&p->s, p->in_terminal ? part : grammar_cat(g, grammar_ref(g, p->ignored), part));
}

static void add_reference(struct lark *p)
{
    struct syntax *s = &p->s;
    size_t start = s->at;
    struct str name = syntax_word(s, is_name);

    if (p->in_terminal && !is_terminal(name)) {
        syntax_error(s, ERR_INVALID, start, "the rule \"%.*s\" is used in a terminal",
            (int)MIN(name.n, (size_t)100), name.p);
        return;
    }
    uint32_t k = name_number(p, name, start);
    if (s->is_failed)
        return;
    part_id part = grammar_ref(s->g, p->names[k].id);
    if (is_terminal(name))
        add_terminal(p, part);
    else
        syntax_add(s, part);
}

/* One element of an alternative; false at its end. */
static bool element(struct lark *p)
{
    struct syntax *s = &p->s;
    size_t start = s->at;
    uint32_t min, max;
    char c = syntax_peek(s);

    if (syntax_skip(s, "\"")) {
        add_terminal(p, string(p));
    } else if (syntax_skip(s, "/")) {
        add_terminal(p, regexp(p));
    } else if (syntax_skip(s, "%json")) {
        add_terminal(p, json(p));
    } else if (syntax_skip(s, "->")) {
        skip_blanks(p);
        if (!syntax_word(s, is_name).n)
            syntax_error(s, ERR_SYNTAX, s->at, "the name of an alias is expected");
    } else if (is_name(c) && !is_digit(c)) {
        add_reference(p);
    } else if (quantifier(p, &min, &max)) {
        syntax_repeat_last(s, start, min, max);
    } else {
        return false;
    }
    return true;
}

/* True, and passed, if the next line continues the alternatives. */
static bool continues(struct lark *p)
{
    size_t start = p->s.at;

    skip_lines(p);
    if (syntax_sees(&p->s, "|"))
        return true;
    if (!p->s.is_failed)
        p->s.at = start;
    return false;
}

static void close_group(struct lark *p)
{
    struct syntax *s = &p->s;
    char close = syntax_group(s)->close;

    s->at++;
    part_id part = syntax_close(s);
    syntax_add(s, close == ']' ? grammar_repeat(s->g, part, 0, 1) : part);
}

static part_id alternatives(struct lark *p)
{
    struct syntax *s = &p->s;

    syntax_open(s, 0);
    while (!s->is_failed) {
        bool is_nested = s->n_groups > 1;
        if (is_nested)
            skip_lines(p);
        else
            skip_blanks(p);
        if (syntax_sees(s, "(") || syntax_sees(s, "[")) {
            syntax_open(s, syntax_sees(s, "(") ? ')' : ']');
            s->at += !s->is_failed;
        } else if (syntax_sees(s, "|") || (!is_nested && syntax_sees(s, "\n") && continues(p))) {
            s->at++;
            syntax_next_alternative(s);
        } else if (is_nested && syntax_peek(s) == syntax_group(s)->close) {
            close_group(p);
        } else if (!element(p)) {
            if (!is_nested)
                break;
            syntax_error(s, ERR_SYNTAX, syntax_at_end(s) ? syntax_group(s)->at : s->at,
                syntax_at_end(s) ? "the group has no end" : "`%c` is expected",
                syntax_group(s)->close);
        }
    }
    return s->is_failed ? PART_NEVER : syntax_close(s);
}

/* ---- statements */

/* The terminal `name` of the library, under another name if there is an alias. */
static void import_common(struct lark *p, struct str name, struct str as, size_t at)
{
    size_t k = 0;

    while (k < ARRAY_LEN(common) && !str_is(name, common[k].name))
        k++;
    if (k == ARRAY_LEN(common)) {
        syntax_error(&p->s, ERR_NOT_FOUND, at, "the library common has no terminal \"%.*s\"",
            (int)MIN(name.n, (size_t)100), name.p);
        return;
    }
    uint32_t number = name_number(p, as, at);
    define(p, number, at, compiled(p, str_of(common[k].pattern), 0, at));
}

/* %import common.A, %import common.A -> B, %import common (A, B) */
static void import(struct lark *p)
{
    struct syntax *s = &p->s;

    skip_blanks(p);
    size_t at = s->at;
    struct str library = syntax_word(s, is_name);
    if (!str_is(library, "common")) {
        syntax_error(s, ERR_UNSUPPORTED, at, "only the library common can be imported");
        return;
    }
    skip_blanks(p);
    if (syntax_skip(s, ".")) {
        at = s->at;
        struct str name = syntax_word(s, is_name), as = name;
        skip_blanks(p);
        if (syntax_skip(s, "->")) {
            skip_blanks(p);
            as = syntax_word(s, is_name);
        }
        if (!is_terminal(as))
            syntax_error(s, ERR_SYNTAX, at, "the name of a terminal is expected");
        import_common(p, name, as, at);
        return;
    }
    syntax_expect(s, "(");
    do {
        skip_lines(p);
        at = s->at;
        struct str name = syntax_word(s, is_name);
        import_common(p, name, name, at);
        skip_lines(p);
    } while (syntax_skip(s, ","));
    syntax_expect(s, ")");
}

static void ignore(struct lark *p)
{
    p->in_terminal = true;
    part_id part = alternatives(p);
    if (!p->s.is_failed)
        p->ignore = grammar_alt(p->s.g, p->ignore, part);
}

static void directive(struct lark *p)
{
    struct syntax *s = &p->s;
    size_t start = s->at;

    s->at++;
    struct str name = syntax_word(s, is_name);
    if (str_is(name, "import"))
        import(p);
    else if (str_is(name, "ignore"))
        ignore(p);
    else
        syntax_error(s, ERR_UNSUPPORTED, start, "%%%.*s is not supported",
            (int)MIN(name.n, (size_t)40), name.p);
}

static void definition(struct lark *p)
{
    struct syntax *s = &p->s;

    while (syntax_skip(s, "?") || syntax_skip(s, "!"))
        ;
    size_t start = s->at;
    struct str name = syntax_word(s, is_name);
    if (!name.n || is_digit(name.p[0])) {
        syntax_error(s, ERR_SYNTAX, start, "the name of a rule or terminal is expected");
        return;
    }
    uint32_t k = name_number(p, name, start);
    if (syntax_sees(s, "{"))
        syntax_error(s, ERR_UNSUPPORTED, s->at, "templates are not supported");
    if (syntax_sees(s, "."))
        syntax_error(s, ERR_UNSUPPORTED, s->at, "priorities are not supported");
    skip_blanks(p);
    syntax_expect(s, ":");
    p->in_terminal = is_terminal(name);
    part_id body = alternatives(p);
    define(p, k, start, body);
}

static void check_names(struct lark *p, rule_id *root)
{
    struct grammar *g = p->s.g;
    uint32_t k = 0;

    for (uint32_t r = 0; r < p->n_names && !p->s.is_failed; r++)
        if (!p->names[r].is_defined)
            syntax_error(&p->s, ERR_NOT_FOUND, p->names[r].used_at,
                "the %s \"%.*s\" is not defined",
                is_terminal(p->names[r].name) ? "terminal" : "rule",
                (int)MIN(p->names[r].name.n, (size_t)100), p->names[r].name.p);
    if (!p->s.is_failed && !str_map_get(p->number_of, STR("start"), &k))
        syntax_fail(&p->s, ERR_NOT_FOUND, "the grammar has no rule \"start\"");
    if (p->s.is_failed)
        return;
    grammar_define(g, p->ignored, grammar_repeat(g, p->ignore, 0, REPEAT_INF));
    *root = grammar_rule(g, STR("start"));
    grammar_define(
        g, *root, grammar_cat(g, grammar_ref(g, p->names[k].id), grammar_ref(g, p->ignored)));
}

int lark_read(struct grammar *g, struct str text, rule_id *root, struct err *e)
{
    struct lark p = { .s = { .g = g, .text = text, .e = e }, .ignore = PART_NEVER };

    if (!utf8_valid(text))
        return err_set(e, ERR_SYNTAX, "the grammar is not valid UTF-8");
    p.ignored = grammar_rule(g, STR("%ignore"));
    p.number_of = str_map_new(64);
    if (!p.number_of)
        syntax_fail(&p.s, ERR_MEMORY, "no memory for a grammar");
    skip_lines(&p);
    while (!p.s.is_failed && !syntax_at_end(&p.s)) {
        if (syntax_sees(&p.s, "%"))
            directive(&p);
        else
            definition(&p);
        skip_blanks(&p);
        if (!syntax_at_end(&p.s) && syntax_peek(&p.s) != '\n')
            syntax_error(&p.s, ERR_SYNTAX, p.s.at, "an element or the end of the line is expected");
        skip_lines(&p);
    }
    check_names(&p, root);
    syntax_clear(&p.s);
    str_map_free(p.number_of);
    mem_free(p.names);
    return p.s.is_failed || grammar_failed(g, e) ? -1 : 0;
}
