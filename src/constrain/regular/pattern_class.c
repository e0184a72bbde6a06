#include "constrain/regular/pattern_in.h"

#include "base/utf8.h"
#include "constrain/regular/expr_in.h"
#include "constrain/regular/unicode_property.h"

#include <stdio.h>

#define IS_CLASS UINT32_MAX

void pattern_error(struct pattern_cursor *c, enum errcode code, size_t at, const char *what)
{
    if (!c->is_failed)
        err_set(c->e, code, "pattern: %s at offset %zu", what, at);
    c->is_failed = true;
    c->at = c->text.n;
}

uint32_t pattern_next(struct pattern_cursor *c)
{
    uint32_t cp = 0;
    int n = utf8_decode(str_skip(c->text, c->at), &cp);

    if (n <= 0) {
        pattern_error(c, ERR_SYNTAX, c->at, "unexpected end");
        return 0;
    }
    c->at += (size_t)n;
    return cp;
}

/* ---- classes with a letter */

static void add_digits(struct code_points *s)
{
    code_points_add(s, '0', '9');
}

static void add_word(struct code_points *s)
{
    add_digits(s);
    code_points_add(s, 'A', 'Z');
    code_points_add(s, 'a', 'z');
    code_points_add(s, '_', '_');
}

/* WhiteSpace and LineTerminator of ECMA-262 */
static void add_space(struct code_points *s)
{
    static const struct code_range ranges[] = { { 9, 13 }, { 0x20, 0x20 }, { 0xA0, 0xA0 },
        { 0x1680, 0x1680 }, { 0x2000, 0x200A }, { 0x2028, 0x2029 }, { 0x202F, 0x202F },
        { 0x205F, 0x205F }, { 0x3000, 0x3000 }, { 0xFEFF, 0xFEFF } };

    for (size_t k = 0; k < ARRAY_LEN(ranges); k++)
        code_points_add(s, ranges[k].from, ranges[k].to);
}

static const struct {
    char letter;
    bool is_inverted;
    void (*add)(struct code_points *s);
} letter_classes[] = {
    { 'd', false, add_digits },
    { 'D', true, add_digits },
    { 'w', false, add_word },
    { 'W', true, add_word },
    { 's', false, add_space },
    { 'S', true, add_space },
};

static void add_inverted(struct code_points *set, struct code_points *part, bool is_inverted)
{
    if (is_inverted)
        code_points_invert(part);
    code_points_add_all(set, part);
    code_points_clear(part);
}

/* Reads `{..}` of \p and \P. */
static void property(struct pattern_cursor *c, bool is_inverted, struct code_points *set)
{
    struct code_points part = { 0 };
    size_t start = c->at - 2;
    struct str name = str_skip(c->text, c->at + 1);
    ptrdiff_t end = str_find(name, STR("}"));
    char what[96];

    if (!pattern_sees(c, "{") || end < 0) {
        pattern_error(c, ERR_SYNTAX, start, "\\p without a property in braces");
        return;
    }
    name.n = (size_t)end;
    if (!unicode_property_add(&part, name)) {
        snprintf(
            what, sizeof(what), "unknown property \"%.*s\"", (int)MIN(name.n, (size_t)48), name.p);
        pattern_error(c, ERR_UNSUPPORTED, start, what);
    } else {
        c->at += name.n + 2;
    }
    expr_work(c->x, part.n);
    add_inverted(set, &part, is_inverted);
}

/* ---- escapes of one character */

static int hex_value(char ch)
{
    if (ch >= '0' && ch <= '9')
        return ch - '0';
    ch |= 0x20;
    return ch >= 'a' && ch <= 'f' ? ch - 'a' + 10 : -1;
}

/* Reads exactly n hexadecimal digits; UINT32_MAX if there are fewer. */
static uint32_t hex_digits(struct pattern_cursor *c, int n)
{
    uint32_t value = 0;

    for (int k = 0; k < n; k++) {
        int digit = c->at + (size_t)k < c->text.n ? hex_value(c->text.p[c->at + (size_t)k]) : -1;
        if (digit < 0)
            return UINT32_MAX;
        value = value * 16 + (uint32_t)digit;
    }
    c->at += (size_t)n;
    return value;
}

/* `{` hexadecimal digits `}`; UINT32_MAX if malformed or above 10FFFF */
static uint32_t braced_hex(struct pattern_cursor *c)
{
    uint32_t value = 0;
    size_t start = ++c->at;

    for (; !pattern_at_end(c) && hex_value(c->text.p[c->at]) >= 0; c->at++)
        value = MIN(value * 16 + (uint32_t)hex_value(c->text.p[c->at]), CODE_POINT_MAX + 1u);
    bool is_valid = c->at > start && value <= CODE_POINT_MAX && pattern_skip(c, "}");
    return is_valid ? value : UINT32_MAX;
}

/* Reads what follows \u: four hexadecimal digits, also twice for a pair of surrogates, or a code
 * point in braces. */
static uint32_t unicode_escape(struct pattern_cursor *c)
{
    if (pattern_sees(c, "{"))
        return braced_hex(c);
    uint32_t cp = hex_digits(c, 4);
    size_t after = c->at;

    if (cp >= 0xD800 && cp <= 0xDBFF && pattern_skip(c, "\\u")) {
        uint32_t low = hex_digits(c, 4);
        if (low >= 0xDC00 && low <= 0xDFFF)
            return 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
        c->at = after;
    }
    return cp;
}

/* Escapes with a fixed value; UINT32_MAX for others. */
static uint32_t control_escape(char ch, bool is_in_class)
{
    static const char from[] = "tnvfr", to[] = "\t\n\v\f\r";
    const char *at = ch ? strchr(from, ch) : NULL;

    if (ch == 'b' && is_in_class)
        return '\b';
    return at ? (uint32_t)to[at - from] : UINT32_MAX;
}

static bool is_letter(char ch)
{
    return (ch | 0x20) >= 'a' && (ch | 0x20) <= 'z';
}

/* Reads the rest of an escape of one character: a control letter, hexadecimal digits, 0, or a
 * character that denotes itself. `start` is the backslash. */
static uint32_t character_escape(struct pattern_cursor *c, size_t start)
{
    char ch = c->text.p[c->at];
    uint32_t cp;

    if ((ch >= '1' && ch <= '9') || ch == 'k') {
        pattern_error(c, ERR_UNSUPPORTED, start, "backreferences are not supported: backreference");
        return 0;
    }
    if (ch == '0') {
        c->at++;
        if (!pattern_at_end(c) && c->text.p[c->at] >= '0' && c->text.p[c->at] <= '9')
            pattern_error(c, ERR_UNSUPPORTED, start, "octal escape");
        return 0;
    }
    if (ch == 'c' && c->at + 1 < c->text.n && is_letter(c->text.p[c->at + 1])) {
        c->at += 2;
        return (uint32_t)c->text.p[c->at - 1] & 31;
    }
    if (ch == 'x' || ch == 'u') {
        c->at++;
        cp = ch == 'x' ? hex_digits(c, 2) : unicode_escape(c);
        if (cp == UINT32_MAX)
            pattern_error(c, ERR_SYNTAX, start, "malformed hexadecimal escape");
        return cp;
    }
    if (is_letter(ch)) {
        pattern_error(c, ERR_SYNTAX, start, "escape of a letter without meaning");
        return 0;
    }
    return pattern_next(c);
}

uint32_t pattern_escape(struct pattern_cursor *c, bool is_in_class, struct code_points *set)
{
    struct code_points part = { 0 };
    size_t start = c->at - 1;

    if (pattern_at_end(c)) {
        pattern_error(c, ERR_SYNTAX, start, "backslash without a character");
        return 0;
    }
    char ch = c->text.p[c->at];
    for (size_t k = 0; k < ARRAY_LEN(letter_classes); k++)
        if (ch == letter_classes[k].letter) {
            c->at++;
            letter_classes[k].add(&part);
            add_inverted(set, &part, letter_classes[k].is_inverted);
            return IS_CLASS;
        }
    if (ch == 'p' || ch == 'P') {
        c->at++;
        property(c, ch == 'P', set);
        return IS_CLASS;
    }
    uint32_t cp = control_escape(ch, is_in_class);
    if (cp != UINT32_MAX)
        c->at++;
    else
        cp = character_escape(c, start);
    if (!c->is_failed)
        code_points_add(set, cp, cp);
    return cp;
}

/* One element of a class. */
static uint32_t class_element(struct pattern_cursor *c, struct code_points *set)
{
    if (pattern_skip(c, "\\"))
        return pattern_escape(c, true, set);
    uint32_t cp = pattern_next(c);
    if (!c->is_failed)
        code_points_add(set, cp, cp);
    return cp;
}

void pattern_class(struct pattern_cursor *c, struct code_points *set)
{
    size_t start = c->at - 1;
    bool is_inverted = pattern_skip(c, "^");

    while (!pattern_at_end(c) && !pattern_sees(c, "]")) {
        size_t from_at = c->at;
        uint32_t from = class_element(c, set);
        bool is_range = pattern_sees(c, "-") && c->at + 1 < c->text.n &&
                        c->text.p[c->at + 1] != ']' && from != IS_CLASS;
        if (!is_range)
            continue;
        c->at++;
        struct code_points last = { 0 };
        uint32_t to = class_element(c, &last);
        if (to == IS_CLASS) { /* `a-\d`: the minus is a character */
            code_points_add(set, '-', '-');
            code_points_add_all(set, &last);
        } else if (to < from && !c->is_failed) {
            pattern_error(c, ERR_SYNTAX, from_at, "range out of order");
        } else if (!c->is_failed) {
            code_points_add(set, from, to);
        }
        code_points_clear(&last);
    }
    if (!pattern_skip(c, "]"))
        pattern_error(c, ERR_SYNTAX, start, "class without end");
    code_points_sort(set);
    if (c->flags & PATTERN_IGNORE_CASE && expr_work(c->x, set->n))
        code_points_fold(set);
    if (is_inverted)
        code_points_invert(set);
}
