#include "constrain/regular/text.h"

#include "base/hash.h"
#include "base/utf8.h"
#include "constrain/regular/expr_in.h"

/* Characters with a short escape, and the letter after the backslash. `/` needs none. */
static const char escaped[] = "\b\f\n\r\t\"\\/", letters[] = "bfnrt\"\\/";

/* Last `n` bytes of the encoding of code points base .. base + 64^n - 1, continuation bytes. Blocks
 * with equal rests share one byte set; full and empty blocks need no recursion. */
static expr_id continuation(struct exprs *x, const struct code_points *s, uint32_t base, int n)
{
    uint32_t block = 1u << 6 * (n - 1);
    uint32_t count = code_points_count(s, base, base + block * 64 - 1);
    expr_id all = EXPR_NONE, rest[64];

    if (!count)
        return EXPR_NONE;
    if (count == block * 64) {
        expr_id one = expr_range(x, 0x80, 0xBF);
        return expr_repeat(x, one, (uint32_t)n, (uint32_t)n);
    }
    for (uint32_t k = 0; k < 64; k++) {
        uint32_t from = base + k * block;
        if (n > 1)
            rest[k] = continuation(x, s, from, n - 1);
        else
            rest[k] = code_points_count(s, from, from) ? EXPR_EPS : EXPR_NONE;
    }
    for (uint32_t k = 0; k < 64; k++) {
        struct byte_set bytes = { 0 };
        if (expr_eq(rest[k], EXPR_NONE))
            continue;
        expr_id same = rest[k];
        for (uint32_t j = k; j < 64; j++)
            if (expr_eq(rest[j], same)) {
                byte_set_add(&bytes, (uint8_t)(0x80 + j));
                rest[j] = EXPR_NONE;
            }
        all = expr_or(x, all, expr_cat(x, expr_bytes(x, &bytes), same));
    }
    return all;
}

/* The characters with `n` continuation bytes, whose lead bytes are lead .. lead + count - 1. */
static expr_id long_characters(
    struct exprs *x, const struct code_points *s, uint8_t lead, uint32_t n_leads, int n)
{
    expr_id rest[32], all = EXPR_NONE;

    for (uint32_t k = 0; k < n_leads; k++)
        rest[k] = continuation(x, s, k << 6 * n, n);
    for (uint32_t k = 0; k < n_leads; k++) {
        struct byte_set bytes = { 0 };
        expr_id same = rest[k];
        if (expr_eq(same, EXPR_NONE))
            continue;
        for (uint32_t j = k; j < n_leads; j++)
            if (expr_eq(rest[j], same)) {
                byte_set_add(&bytes, (uint8_t)(lead + j));
                rest[j] = EXPR_NONE;
            }
        all = expr_or(x, all, expr_cat(x, expr_bytes(x, &bytes), same));
    }
    return all;
}

/* Adds the code points of s in from..to to `part`. */
static void add_part(
    struct code_points *part, const struct code_points *s, uint32_t from, uint32_t to)
{
    for (uint32_t k = 0; k < s->n; k++)
        if (s->r[k].from <= to && s->r[k].to >= from)
            code_points_add(part, MAX(s->r[k].from, from), MIN(s->r[k].to, to));
    code_points_sort(part);
}

/* Characters of n + 1 bytes: code points from..to. */
static expr_id characters_of_length(
    struct exprs *x, const struct code_points *s, uint32_t from, uint32_t to, int n)
{
    static const uint8_t leads[] = { 0, 0xC0, 0xE0, 0xF0 }, counts[] = { 0, 32, 16, 5 };
    struct code_points part = { 0 };

    add_part(&part, s, from, to);
    if (part.is_failed)
        expr_fail(x, FAIL_MEMORY);
    expr_id all = long_characters(x, &part, leads[n], counts[n], n);
    code_points_clear(&part);
    return all;
}

static bool has(const struct code_points *s, uint32_t cp)
{
    return code_points_count(s, cp, cp) > 0;
}

/* One byte, or a backslash and a letter. */
static expr_id ascii_characters(struct exprs *x, const struct code_points *s, enum text_mode mode)
{
    struct byte_set plain = { 0 }, short_escapes = { 0 };
    bool is_json = mode != TEXT_UTF8;

    for (uint32_t cp = 0; cp < 0x80; cp++)
        if (has(s, cp) && !(is_json && (cp < 0x20 || cp == '"' || cp == '\\')))
            byte_set_add(&plain, (uint8_t)cp);
    for (size_t k = 0; is_json && escaped[k]; k++)
        if (has(s, (uint8_t)escaped[k]))
            byte_set_add(&short_escapes, (uint8_t)letters[k]);
    expr_id escape = expr_cat(x, expr_range(x, '\\', '\\'), expr_bytes(x, &short_escapes));
    return expr_or(x, expr_bytes(x, &plain), escape);
}

static expr_id build_class(struct exprs *x, const struct code_points *s, enum text_mode mode)
{
    expr_id parts[5];

    parts[0] = ascii_characters(x, s, mode);
    parts[1] = characters_of_length(x, s, 0x80, 0x7FF, 1);
    parts[2] = characters_of_length(x, s, 0x800, 0xD7FF, 2);
    parts[3] = characters_of_length(x, s, 0xE000, 0xFFFF, 2);
    parts[4] = characters_of_length(x, s, 0x10000, CODE_POINT_MAX, 3);
    return expr_or_all(x, parts, ARRAY_LEN(parts));
}

expr_id text_class(struct exprs *x, struct code_points *s, enum text_mode mode)
{
    code_points_sort(s);
    if (s->is_failed)
        expr_fail(x, FAIL_MEMORY);
    /* A set of n ranges has at most about 8 n prefixes; an empty block costs one look-up. */
    if (!expr_work(x, 16 + s->n) || !s->n)
        return EXPR_NONE;
    uint64_t hash = hash_bytes(x->seed + (unsigned)mode, s->r, s->n * sizeof(*s->r)) | 1;
    struct class_entry *c = &x->classes[hash >> 32 & (CLASS_CACHE - 1)];
    if (c->hash == hash)
        return c->expr;
    expr_id all = s->r[s->n - 1].to < 0x80 ? ascii_characters(x, s, mode) : build_class(x, s, mode);
    expr_mark_text(x, all, mode);
    if (!exprs_failed(x))
        *c = (struct class_entry){ hash, all };
    return all;
}

/* Code points as \u and four digits: one that is not a surrogate, or a high and a low surrogate. */
static expr_id u_escapes(struct exprs *x)
{
    struct byte_set hex = { 0 }, no_d = { 0 }, d = { 0 }, low = { 0 }, high = { 0 }, high2 = { 0 };

    byte_set_add_range(&hex, '0', '9');
    byte_set_add_range(&hex, 'a', 'f');
    byte_set_add_range(&hex, 'A', 'F');
    byte_set_add(&d, 'd');
    byte_set_add(&d, 'D');
    for (int w = 0; w < 4; w++)
        no_d.w[w] = hex.w[w] & ~d.w[w];
    byte_set_add_range(&low, '0', '7');
    byte_set_add_range(&high, '8', '9');
    byte_set_add_range(&high, 'a', 'b');
    byte_set_add_range(&high, 'A', 'B');
    byte_set_add_range(&high2, 'c', 'f');
    byte_set_add_range(&high2, 'C', 'F');
    expr_id digit = expr_bytes(x, &hex), two = expr_repeat(x, digit, 2, 2);
    expr_id in_d = expr_cat(x, expr_bytes(x, &d), expr_cat(x, expr_bytes(x, &low), two));
    expr_id plain = expr_cat(x, expr_bytes(x, &no_d), expr_repeat(x, digit, 3, 3));
    expr_id second = expr_cat(x, expr_bytes(x, &high2), two);
    second = expr_cat(x, expr_literal(x, STR("\\u")), expr_cat(x, expr_bytes(x, &d), second));
    expr_id pair = expr_cat(x, expr_bytes(x, &high), expr_cat(x, two, second));
    pair = expr_cat(x, expr_bytes(x, &d), pair);
    return expr_cat(
        x, expr_literal(x, STR("\\u")), expr_or_all(x, (expr_id[]){ plain, in_d, pair }, 3));
}

expr_id text_any(struct exprs *x, enum text_mode mode)
{
    struct code_points all = { 0 };

    code_points_add(&all, 0, CODE_POINT_MAX);
    expr_id any = text_class(x, &all, mode == TEXT_UTF8 ? TEXT_UTF8 : TEXT_JSON);
    code_points_clear(&all);
    if (mode == TEXT_JSON_U_ESCAPE) {
        any = expr_or(x, any, u_escapes(x));
        expr_mark_text(x, any, mode);
    }
    return any;
}

expr_id text_any_star(struct exprs *x, enum text_mode mode)
{
    if (!x->any_star[mode])
        x->any_star[mode] = expr_repeat(x, text_any(x, mode), 0, REPEAT_INF).i;
    return (expr_id){ x->any_star[mode] };
}

expr_id text_literal(struct exprs *x, struct str utf8, enum text_mode mode)
{
    size_t end = utf8.n;
    expr_id all = EXPR_EPS;

    /* The characters are prepended, so that the concatenation is nested to the right. */
    while (end > 0) {
        struct code_points one = { 0 };
        uint32_t cp = 0;
        size_t start = end - 1;
        while (start > 0 && ((uint8_t)utf8.p[start] & 0xC0) == 0x80)
            start--;
        if (utf8_decode((struct str){ utf8.p + start, end - start }, &cp) != (int)(end - start))
            return EXPR_NONE;
        code_points_add(&one, cp, cp);
        all = expr_cat(x, text_class(x, &one, mode), all);
        code_points_clear(&one);
        end = start;
    }
    return all;
}
