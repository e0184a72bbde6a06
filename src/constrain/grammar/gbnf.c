#include "constrain/grammar/gbnf.h"

#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "constrain/grammar/syntax.h"
#include "constrain/regular/text.h"

struct gbnf_rule {
    rule_id id;
    size_t used_at; /* offset of the first use */
    struct str name;
    bool is_defined;
};

struct gbnf {
    struct syntax s;
    struct str_map *number_of;
    struct gbnf_rule *rules;
    uint32_t n_rules, cap_rules;
};

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

/* Blanks and comments, and newlines if they are permitted. */
static void skip_space(struct gbnf *p, bool with_newlines)
{
    struct syntax *s = &p->s;

    for (;;) {
        char c = syntax_peek(s);
        if (c == '#')
            while (!syntax_at_end(s) && syntax_peek(s) != '\n' && syntax_peek(s) != '\r')
                s->at++;
        else if (!syntax_at_end(s) &&
                 (c == ' ' || c == '\t' || (with_newlines && (c == '\n' || c == '\r'))))
            s->at++;
        else
            return;
    }
}

/* Number of the rule with this name, which may be new. */
static uint32_t rule_number(struct gbnf *p, struct str name, size_t at)
{
    uint32_t k = 0;

    if (p->s.is_failed || str_map_get(p->number_of, name, &k))
        return k;
    if (p->n_rules == p->cap_rules) {
        uint32_t cap = MAX(p->cap_rules * 2, 16u);
        struct gbnf_rule *bigger = try_realloc(p->rules, cap * sizeof(*bigger));
        if (!bigger) {
            syntax_fail(&p->s, ERR_MEMORY, "no memory for a grammar");
            return 0;
        }
        p->rules = bigger;
        p->cap_rules = cap;
    }
    k = p->n_rules;
    if (str_map_put(p->number_of, name, k) < 0) {
        syntax_fail(&p->s, ERR_MEMORY, "no memory for a grammar");
        return 0;
    }
    p->rules[p->n_rules++] = (struct gbnf_rule){ grammar_rule(p->s.g, name), at, name, false };
    return k;
}

/* ---- elements */

/* A character of a literal or a class. */
static uint32_t character(struct gbnf *p)
{
    static const char letters[] = "trn\\\"[]", values[] = "\t\r\n\\\"[]";
    struct syntax *s = &p->s;
    size_t start = s->at;

    if (!syntax_skip(s, "\\"))
        return syntax_next(s);
    char c = syntax_peek(s);
    const char *letter = c ? strchr(letters, c) : NULL;
    if (letter) {
        s->at++;
        return (uint8_t)values[letter - letters];
    }
    if (syntax_skip(s, "x"))
        return syntax_hex(s, 2);
    if (syntax_skip(s, "u"))
        return syntax_hex(s, 4);
    if (syntax_skip(s, "U"))
        return syntax_hex(s, 8);
    syntax_error(s, ERR_SYNTAX, start, "unknown escape");
    return 0;
}

/* After the quotation mark. */
static part_id literal(struct gbnf *p)
{
    struct syntax *s = &p->s;
    size_t start = s->at - 1;
    struct buf b;

    buf_init(&b, s->text.n + 1);
    while (!syntax_at_end(s) && !syntax_sees(s, "\"")) {
        char bytes[4];
        uint32_t cp = character(p);
        if (!s->is_failed)
            buf_put(&b, bytes, (size_t)utf8_encode(cp, bytes));
    }
    if (!syntax_skip(s, "\""))
        syntax_error(s, ERR_SYNTAX, start, "the literal has no end");
    if (!buf_ok(&b))
        syntax_fail(s, ERR_MEMORY, "no memory for a grammar");
    part_id part = s->is_failed ? PART_NEVER : grammar_literal(s->g, buf_str(&b));
    buf_clear(&b);
    return part;
}

/* After the bracket. */
static part_id class(struct gbnf *p)
{
    struct syntax *s = &p->s;
    struct code_points set = { 0 };
    size_t start = s->at - 1;
    bool is_inverted = syntax_skip(s, "^"), is_empty = syntax_sees(s, "]");

    while (!syntax_at_end(s) && !syntax_sees(s, "]")) {
        size_t at = s->at;
        uint32_t from = character(p), to = from;
        if (syntax_sees(s, "-") && s->at + 1 < s->text.n && s->text.p[s->at + 1] != ']') {
            s->at++;
            to = character(p);
        }
        if (to < from)
            syntax_error(s, ERR_SYNTAX, at, "the range is out of order");
        if (!s->is_failed)
            code_points_add(&set, from, to);
    }
    if (!syntax_skip(s, "]"))
        syntax_error(s, ERR_SYNTAX, start, "the class has no end");
    else if (is_empty && !is_inverted)
        syntax_error(s, ERR_SYNTAX, start, "the class has no character");
    code_points_sort(&set);
    if (is_inverted)
        code_points_invert(&set);
    return syntax_class(s, &set);
}

/* <[id]> <text> !<[id]> !<text> */
static part_id token(struct gbnf *p)
{
    struct syntax *s = &p->s;
    size_t start = s->at;
    bool is_negated = syntax_skip(s, "!");
    size_t from = s->at;
    uint32_t number = 0;
    int32_t id = -1;

    syntax_expect(s, "<");
    if (syntax_skip(s, "[")) {
        if (!syntax_number(s, &number))
            syntax_error(s, ERR_SYNTAX, s->at, "a token id is expected");
        syntax_expect(s, "]");
        syntax_expect(s, ">");
        id = (int32_t)number;
    } else {
        ptrdiff_t end = str_find(str_skip(s->text, from), STR(">"));
        if (end < 0) {
            syntax_error(s, ERR_SYNTAX, start, "the token has no end");
            return PART_NEVER;
        }
        struct str name = { s->text.p + from, (size_t)end + 1 };
        id = grammar_find_token(s->g, name);
        if (id < 0)
            syntax_error(s, ERR_NOT_FOUND, start, "the vocabulary has no token \"%.*s\"",
                (int)MIN(name.n, (size_t)100), name.p);
        s->at += s->is_failed ? 0 : (size_t)end;
    }
    if (s->is_failed)
        return PART_NEVER;
    part_id part = is_negated ? grammar_token_except(s->g, &id, 1) : grammar_token(s->g, id);
    struct err e = { 0 };
    if (grammar_failed(s->g, &e))
        syntax_error(s, e.code, start, "%s", e.msg);
    return part;
}

static part_id any_character(struct gbnf *p)
{
    return grammar_expr(p->s.g, text_any(grammar_exprs(p->s.g), TEXT_UTF8));
}

/* The number of a repetition; false if there is none. */
static bool quantifier(struct gbnf *p, uint32_t *min, uint32_t *max)
{
    struct syntax *s = &p->s;
    size_t start = s->at;

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
    if (!syntax_skip(s, "{"))
        return false;
    bool is_nested = s->n_groups > 1;
    skip_space(p, is_nested);
    bool has_min = syntax_number(s, min);
    skip_space(p, is_nested);
    *max = *min;
    if (syntax_skip(s, ",")) {
        skip_space(p, is_nested);
        if (!syntax_number(s, max))
            *max = REPEAT_INF;
        skip_space(p, is_nested);
    }
    if (!has_min)
        syntax_error(s, ERR_SYNTAX, start, "a count is expected after `{`");
    syntax_expect(s, "}");
    if (*min > *max)
        syntax_error(s, ERR_SYNTAX, start, "the counts are out of order");
    return true;
}

/* ---- sequences */

/* One element of a sequence; false at its end. */
static bool element(struct gbnf *p)
{
    struct syntax *s = &p->s;
    size_t start = s->at;
    uint32_t min, max;
    char c = syntax_peek(s);

    if (syntax_skip(s, "\"")) {
        syntax_add(s, literal(p));
    } else if (syntax_skip(s, "[")) {
        syntax_add(s, class(p));
    } else if (syntax_skip(s, ".")) {
        syntax_add(s, any_character(p));
    } else if (c == '<' || c == '!') {
        syntax_add(s, token(p));
    } else if (c && is_word(c)) {
        struct str name = syntax_word(s, is_word);
        uint32_t k = rule_number(p, name, start);
        if (!s->is_failed)
            syntax_add(s, grammar_ref(s->g, p->rules[k].id));
    } else if (quantifier(p, &min, &max)) {
        syntax_repeat_last(s, start, min, max);
    } else {
        return false;
    }
    return true;
}

/* The alternatives of a rule. */
static part_id alternatives(struct gbnf *p)
{
    struct syntax *s = &p->s;

    syntax_open(s, 0);
    while (!s->is_failed) {
        bool is_nested = s->n_groups > 1;
        skip_space(p, is_nested);
        if (element(p))
            continue;
        if (syntax_sees(s, "(")) {
            syntax_open(s, ')');
            s->at++;
        } else if (syntax_skip(s, "|")) {
            syntax_next_alternative(s);
            skip_space(p, true);
        } else if (is_nested && syntax_skip(s, ")")) {
            syntax_add(s, syntax_close(s));
        } else if (is_nested) {
            syntax_error(s, ERR_SYNTAX, syntax_at_end(s) ? syntax_group(s)->at : s->at,
                syntax_at_end(s) ? "the group has no end" : "`)` is expected");
        } else {
            break;
        }
    }
    return s->is_failed ? PART_NEVER : syntax_close(s);
}

static void rule(struct gbnf *p)
{
    struct syntax *s = &p->s;
    size_t start = s->at;
    struct str name = syntax_word(s, is_word);

    if (!name.n) {
        syntax_error(s, ERR_SYNTAX, start, "the name of a rule is expected");
        return;
    }
    uint32_t k = rule_number(p, name, start);
    skip_space(p, false);
    syntax_expect(s, "::=");
    skip_space(p, true);
    part_id body = alternatives(p);
    if (!s->is_failed && !syntax_at_end(s) && syntax_peek(s) != '\n' && syntax_peek(s) != '\r')
        syntax_error(s, ERR_SYNTAX, s->at, "an element or the end of the line is expected");
    if (s->is_failed)
        return;
    grammar_define(s->g, p->rules[k].id, body);
    p->rules[k].is_defined = true;
}

static void check_rules(struct gbnf *p, rule_id *root)
{
    uint32_t k = 0;

    for (uint32_t r = 0; r < p->n_rules && !p->s.is_failed; r++)
        if (!p->rules[r].is_defined)
            syntax_error(&p->s, ERR_NOT_FOUND, p->rules[r].used_at,
                "the rule \"%.*s\" is not defined", (int)MIN(p->rules[r].name.n, (size_t)100),
                p->rules[r].name.p);
    if (!p->s.is_failed && !str_map_get(p->number_of, STR("root"), &k))
        syntax_fail(&p->s, ERR_NOT_FOUND, "the grammar has no rule \"root\"");
    if (!p->s.is_failed)
        *root = p->rules[k].id;
}

int gbnf_read(struct grammar *g, struct str text, rule_id *root, struct err *e)
{
    struct gbnf p = { .s = { .g = g, .text = text, .e = e } };

    if (!utf8_valid(text))
        return err_set(e, ERR_SYNTAX, "the grammar is not valid UTF-8");
    p.number_of = str_map_new(64);
    if (!p.number_of)
        syntax_fail(&p.s, ERR_MEMORY, "no memory for a grammar");
    skip_space(&p, true);
    while (!p.s.is_failed && !syntax_at_end(&p.s)) {
        rule(&p);
        skip_space(&p, true);
    }
    check_rules(&p, root);
    syntax_clear(&p.s);
    str_map_free(p.number_of);
    mem_free(p.rules);
    return p.s.is_failed || grammar_failed(g, e) ? -1 : 0;
}
