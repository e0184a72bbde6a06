#include "constrain/grammar/syntax.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "constrain/regular/expr_in.h"
#include "constrain/regular/text.h"

#include <stdarg.h>
#include <stdio.h>

void syntax_clear(struct syntax *s)
{
    mem_free(s->parts);
    mem_free(s->groups);
}

void syntax_error(struct syntax *s, enum errcode code, size_t at, const char *fmt, ...)
{
    size_t line = 1, column = 1;
    char what[400];
    va_list args;

    if (!s->is_failed) {
        va_start(args, fmt);
        vsnprintf(what, sizeof(what), fmt, args);
        va_end(args);
        for (size_t k = 0; k < at && k < s->text.n; k++) {
            bool is_line = s->text.p[k] == '\n';
            line += is_line;
            column = is_line ? 1 : column + (((uint8_t)s->text.p[k] & 0xC0) != 0x80);
        }
        err_set(s->e, code, "line %zu, column %zu: %s", line, column, what);
    }
    s->is_failed = true;
    s->at = s->text.n;
}

void syntax_fail(struct syntax *s, enum errcode code, const char *what)
{
    if (!s->is_failed)
        err_set(s->e, code, "%s", what);
    s->is_failed = true;
    s->at = s->text.n;
}

bool syntax_skip(struct syntax *s, const char *z)
{
    bool is_there = syntax_sees(s, z);

    s->at += is_there ? strlen(z) : 0;
    return is_there;
}

void syntax_expect(struct syntax *s, const char *z)
{
    if (!syntax_skip(s, z))
        syntax_error(s, ERR_SYNTAX, s->at, "`%s` is expected", z);
}

uint32_t syntax_next(struct syntax *s)
{
    uint32_t cp = 0;
    int n = utf8_decode(str_skip(s->text, s->at), &cp);

    if (n <= 0) {
        syntax_error(s, ERR_SYNTAX, s->at, "unexpected end");
        return 0;
    }
    s->at += (size_t)n;
    return cp;
}

struct str syntax_word(struct syntax *s, bool (*is_part)(char c))
{
    struct str word = { s->text.p + s->at, 0 };

    while (!syntax_at_end(s) && is_part(s->text.p[s->at])) {
        s->at++;
        word.n++;
    }
    return word;
}

bool syntax_number(struct syntax *s, uint32_t *value)
{
    size_t start = s->at;
    uint64_t n = 0;

    for (; syntax_peek(s) >= '0' && syntax_peek(s) <= '9'; s->at++)
        n = MIN(n * 10 + (uint64_t)(s->text.p[s->at] - '0'), (uint64_t)REPEAT_MAX + 1);
    if (s->at == start)
        return false;
    if (n > REPEAT_MAX)
        syntax_error(s, ERR_TOO_LARGE, start, "the number is above 2^30");
    *value = (uint32_t)n;
    return !s->is_failed;
}

uint32_t syntax_hex(struct syntax *s, int n)
{
    size_t start = s->at;
    uint32_t value = 0;

    for (int k = 0; k < n; k++) {
        char c = syntax_peek(s), letter = (char)(c | 0x20);
        if (c >= '0' && c <= '9')
            value = value << 4 | (uint32_t)(c - '0');
        else if (letter >= 'a' && letter <= 'f')
            value = value << 4 | (uint32_t)(letter - 'a' + 10);
        else
            syntax_error(s, ERR_SYNTAX, start, "%d hexadecimal digits are expected", n);
        s->at += !s->is_failed;
    }
    if (value > CODE_POINT_MAX || (value >= 0xD800 && value <= 0xDFFF))
        syntax_error(s, ERR_SYNTAX, start, "U+%04X is not a character", (unsigned)value);
    return value;
}

part_id syntax_class(struct syntax *s, struct code_points *set)
{
    struct exprs *x = grammar_exprs(s->g);
    part_id p = s->is_failed ? PART_NEVER : grammar_expr(s->g, text_class(x, set, TEXT_UTF8));

    code_points_clear(set);
    return p;
}

/* ---- nested alternatives */

static bool grow(struct syntax *s, void **array, uint32_t n, uint32_t *cap, size_t size)
{
    uint32_t bigger = MAX(*cap * 2, 32u);

    if (n < *cap)
        return !s->is_failed;
    void *p = s->is_failed ? NULL : try_realloc(*array, bigger * size);
    if (!p) {
        syntax_fail(s, ERR_MEMORY, "no memory for a grammar");
        return false;
    }
    *array = p;
    *cap = bigger;
    return true;
}

void syntax_open(struct syntax *s, char close)
{
    if (!grow(s, (void **)&s->groups, s->n_groups, &s->cap_groups, sizeof(*s->groups)))
        return;
    s->groups[s->n_groups++] = (struct syntax_group){ s->n_parts, s->n_parts, s->at, close };
}

void syntax_add(struct syntax *s, part_id p)
{
    if (grow(s, (void **)&s->parts, s->n_parts, &s->cap_parts, sizeof(*s->parts)))
        s->parts[s->n_parts++] = p;
}

struct syntax_group *syntax_group(struct syntax *s)
{
    return &s->groups[s->n_groups - 1];
}

void syntax_next_alternative(struct syntax *s)
{
    struct syntax_group *group = syntax_group(s);
    size_t n = s->n_parts - group->current;

    if (s->is_failed)
        return;
    part_id all = n ? grammar_cat_all(s->g, s->parts + group->current, n) : PART_EMPTY;
    s->n_parts = group->current;
    syntax_add(s, all);
    group->current = s->n_parts;
}

part_id syntax_close(struct syntax *s)
{
    struct syntax_group *group = syntax_group(s);

    syntax_next_alternative(s);
    if (s->is_failed)
        return PART_NEVER;
    part_id all = grammar_alt_all(s->g, s->parts + group->first, s->n_parts - group->first);
    s->n_parts = group->first;
    s->n_groups--;
    return all;
}

void syntax_repeat_last(struct syntax *s, size_t at, uint32_t min, uint32_t max)
{
    if (s->is_failed)
        return;
    if (s->n_parts == syntax_group(s)->current) {
        syntax_error(s, ERR_SYNTAX, at, "nothing precedes the repetition");
        return;
    }
    part_id *last = &s->parts[s->n_parts - 1];
    *last = grammar_repeat(s->g, *last, min, max);
}
