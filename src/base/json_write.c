/* json_write.c: JSON writer (RFC 8259); see json.h. */
#include "base/json.h"
#include "base/json_scan.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>

enum { JW_DEPTH = 64 };

/* ---- strings */

static void write_escape(struct buf *b, unsigned char c)
{
    static const char short_form[] = { ['"'] = '"',
        ['\\'] = '\\',
        ['\b'] = 'b',
        ['\f'] = 'f',
        ['\n'] = 'n',
        ['\r'] = 'r',
        ['\t'] = 't' };
    static const char hex[] = "0123456789abcdef";

    if (c < sizeof(short_form) && short_form[c]) {
        char two[2] = { '\\', short_form[c] };
        buf_put(b, two, sizeof(two));
    } else {
        char six[6] = { '\\', 'u', '0', '0', hex[c >> 4], hex[c & 15] };
        buf_put(b, six, sizeof(six));
    }
}

void json_escape(struct buf *b, struct str s)
{
    const char *run = s.p, *at = s.p, *end = s.n ? s.p + s.n : s.p;
    uint32_t cp;

    while (at < end) {
        at = json_scan_plain(at, end);
        if (at == end)
            break;
        if (*at & 0x80) {
            int n = utf8_decode((struct str){ at, (size_t)(end - at) }, &cp);
            if (n > 0) {
                at += n;
                continue;
            }
            buf_put(b, run, (size_t)(at - run));
            buf_puts(b, UTF8_REPLACEMENT);
        } else {
            buf_put(b, run, (size_t)(at - run));
            write_escape(b, (unsigned char)*at);
        }
        run = ++at;
    }
    buf_put(b, run, (size_t)(end - run));
}

static void write_string(struct buf *b, struct str s)
{
    buf_putc(b, '"');
    json_escape(b, s);
    buf_putc(b, '"');
}

/* ---- numbers */

struct decimal { /* digits d1 d2 ... of d1.d2d3... * 10^e10 */
    char digits[20];
    int n, e10;
};

static const double pow10_exact[] = { 1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };

/* Both q (below 2^53) and the power are exact, so the result is rounded once, correctly. */
static double scale_exact(uint64_t q, int e10)
{
    return e10 < 0 ? (double)q / pow10_exact[-e10] : (double)q * pow10_exact[e10];
}

enum back { BACK_NO, BACK_YES, BACK_UNSURE };

/* Whether q * 10^e10, rounded to a float, equals v. Rounding through a double gives the same result
 * as direct rounding unless the double is at the middle between two floats, or next to it. */
static enum back reads_back_f32(uint64_t q, int e10, double v)
{
    double d = scale_exact(q, e10);
    uint64_t bits;

    memcpy(&bits, &d, sizeof(bits));
    uint64_t low = bits & 0x1FFFFFFF; /* bits that a float does not have */
    if (low >= 0x0FFFFFFF && low <= 0x10000001)
        return BACK_UNSURE;
    return (double)(float)d == v ? BACK_YES : BACK_NO;
}

static enum back reads_back_f64(uint64_t q, int e10, double v)
{
    return scale_exact(q, e10) == v ? BACK_YES : BACK_NO;
}

/* Finds the shortest decimal of at most `most` digits that parses to v > 0, with arithmetic only.
 * If k digits are sufficient, so are k+1; hence the loop removes digits until the check fails.
 * False if v is outside the range in which every step is exact, if it needs more digits, or if the
 * check is unsure. */
static bool shortest_decimal(
    double v, int most, enum back (*reads_back)(uint64_t, int, double), struct decimal *d)
{
    if (!(v >= 1e-6 && v < 1e15))
        return false;
    int e10 = 0; /* v = d.ddd * 10^e10 */
    while (v >= pow10_exact[e10 + 1])
        e10++;
    while (e10 <= 0 && v * pow10_exact[-e10] < 1)
        e10--;
    int shift = most - 1 - e10;
    if (shift > 22 || shift < -22)
        return false;
    double scaled = shift >= 0 ? v * pow10_exact[shift] : v / pow10_exact[-shift];
    uint64_t q = (uint64_t)(scaled + 0.5);
    enum back back = reads_back(q, -shift, v);
    if (back != BACK_YES)
        return false;
    for (;; shift--) {
        uint64_t fewer = (q + 5) / 10;
        back = reads_back(fewer, 1 - shift, v);
        /* the 5 may be the result of rounding up: also try rounding down */
        if (back == BACK_NO && q % 10 == 5)
            back = reads_back(fewer = q / 10, 1 - shift, v);
        if (back != BACK_YES)
            break;
        q = fewer;
    }
    if (back == BACK_UNSURE)
        return false;
    d->n = 0;
    for (uint64_t rest = q; rest; rest /= 10)
        d->n++;
    for (int i = d->n; i > 0; q /= 10)
        d->digits[--i] = (char)('0' + q % 10);
    d->e10 = d->n - 1 - shift;
    return true;
}

/* For any v > 0: printf with an increasing number of digits. The locale may put any character
 * between the first digit and the others. */
static void decimal_by_printf(double v, int precision, struct decimal *d)
{
    char text[48];
    const char *c = text;

    snprintf(text, sizeof(text), "%.*e", precision - 1, v);
    for (d->n = 0; *c && *c != 'e'; c++)
        if (*c >= '0' && *c <= '9' && d->n < (int)sizeof(d->digits))
            d->digits[d->n++] = *c;
    bool is_negative = *c && c[1] == '-';
    for (d->e10 = 0; *c; c++)
        if (*c >= '0' && *c <= '9')
            d->e10 = d->e10 * 10 + (*c - '0');
    d->e10 = is_negative ? -d->e10 : d->e10;
}

static bool reads_back_text(const struct decimal *d, double v, bool as_float)
{
    char text[40];
    double back;

    int n = snprintf(text, sizeof(text), "%.*se%d", d->n, d->digits, d->e10 - (d->n - 1));
    struct json j = { .kind = JSON_NUMBER, .s = { text, (size_t)n } };
    if (!json_f64(&j, &back))
        return false;
    return as_float ? (double)(float)back == v : back == v;
}

static void write_decimal(struct buf *b, struct decimal *d)
{
    while (d->n > 1 && d->digits[d->n - 1] == '0')
        d->n--;
    if (d->e10 < -6 || d->e10 > 20) {
        buf_put(b, d->digits, 1);
        if (d->n > 1) {
            buf_putc(b, '.');
            buf_put(b, d->digits + 1, (size_t)d->n - 1);
        }
        buf_printf(b, "e%s%d", d->e10 < 0 ? "" : "+", d->e10);
        return;
    }
    if (d->e10 < 0) {
        buf_put(b, "0.00000", (size_t)(1 - d->e10));
        buf_put(b, d->digits, (size_t)d->n);
        return;
    }
    int whole = MIN(d->n, d->e10 + 1);
    buf_put(b, d->digits, (size_t)whole);
    for (int i = whole; i < d->e10 + 1; i++)
        buf_putc(b, '0');
    if (whole < d->n) {
        buf_putc(b, '.');
        buf_put(b, d->digits + whole, (size_t)(d->n - whole));
    }
}

static void write_number(struct buf *b, double v, bool as_float)
{
    struct decimal d;

    if (signbit(v))
        buf_putc(b, '-');
    v = fabs(v);
    if (v < (as_float ? 16777216 : 1e15) && v == floor(v)) {
        buf_u64(b, (uint64_t)v);
        return;
    }
    if (!shortest_decimal(v, as_float ? 9 : 15, as_float ? reads_back_f32 : reads_back_f64, &d)) {
        int most = as_float ? 9 : 17, precision = 1;
        for (decimal_by_printf(v, precision, &d);
             precision < most && !reads_back_text(&d, v, as_float);)
            decimal_by_printf(v, ++precision, &d);
    }
    write_decimal(b, &d);
}

/* ---- structure */

void jw_init(struct jw *w, struct buf *b)
{
    *w = (struct jw){ .b = b };
}

static void begin_item(struct jw *w)
{
    uint64_t bit = (uint64_t)1 << w->depth;

    if (!w->after_key && (w->has_items & bit))
        buf_putc(w->b, ',');
    w->has_items |= bit;
    w->after_key = false;
}

static void open_container(struct jw *w, char c)
{
    begin_item(w);
    CHECK(w->depth < JW_DEPTH - 1);
    w->depth++;
    w->has_items &= ~((uint64_t)1 << w->depth);
    buf_putc(w->b, c);
}

static void close_container(struct jw *w, char c)
{
    CHECK(w->depth > 0 && !w->after_key);
    w->depth--;
    buf_putc(w->b, c);
}

void jw_object(struct jw *w)
{
    open_container(w, '{');
}

void jw_end_object(struct jw *w)
{
    close_container(w, '}');
}

void jw_array(struct jw *w)
{
    open_container(w, '[');
}

void jw_end_array(struct jw *w)
{
    close_container(w, ']');
}

void jw_key_str(struct jw *w, struct str key)
{
    jw_str(w, key);
    buf_putc(w->b, ':');
    w->after_key = true;
}

void jw_key(struct jw *w, const char *key)
{
    jw_key_str(w, str_of(key));
}

void jw_str(struct jw *w, struct str s)
{
    begin_item(w);
    write_string(w->b, s);
}

void jw_z(struct jw *w, const char *z)
{
    if (z)
        jw_str(w, str_of(z));
    else
        jw_null(w);
}

void jw_i64(struct jw *w, int64_t v)
{
    begin_item(w);
    if (v < 0)
        buf_putc(w->b, '-');
    buf_u64(w->b, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

void jw_u64(struct jw *w, uint64_t v)
{
    begin_item(w);
    buf_u64(w->b, v);
}

void jw_f64(struct jw *w, double v)
{
    if (!isfinite(v)) {
        jw_null(w);
        return;
    }
    begin_item(w);
    write_number(w->b, v, false);
}

void jw_f32(struct jw *w, float v)
{
    if (!isfinite(v)) {
        jw_null(w);
        return;
    }
    begin_item(w);
    write_number(w->b, (double)v, true);
}

void jw_bool(struct jw *w, bool v)
{
    jw_raw(w, v ? STR("true") : STR("false"));
}

void jw_null(struct jw *w)
{
    jw_raw(w, STR("null"));
}

void jw_raw(struct jw *w, struct str json)
{
    begin_item(w);
    buf_puts(w->b, json);
}

/* Writes compact JSON, whatever the format of the source: a line break would end a frame of a
 * stream. Recursion depth is that of the tree, which its creator has bounded. */
static void write_tree(struct buf *b, const struct json *j)
{
    bool is_object = j->kind == JSON_OBJECT;

    switch (j->kind) {
    case JSON_NULL:
        buf_putz(b, "null");
        return;
    case JSON_BOOL:
        buf_putz(b, j->b ? "true" : "false");
        return;
    case JSON_NUMBER:
        buf_puts(b, j->s);
        return;
    case JSON_STRING:
        write_string(b, j->s);
        return;
    case JSON_ARRAY:
    case JSON_OBJECT:
        break;
    }
    buf_putc(b, is_object ? '{' : '[');
    for (const struct json *c = j->child; c; c = c->next) {
        if (is_object) {
            write_string(b, c->key);
            buf_putc(b, ':');
        }
        write_tree(b, c);
        if (c->next)
            buf_putc(b, ',');
    }
    buf_putc(b, is_object ? '}' : ']');
}

void jw_json(struct jw *w, const struct json *j)
{
    begin_item(w);
    if (j)
        write_tree(w->b, j);
    else
        buf_putz(w->b, "null");
}

void jw_member_i64(struct jw *w, const char *key, int64_t v)
{
    jw_key(w, key);
    jw_i64(w, v);
}

void jw_member_u64(struct jw *w, const char *key, uint64_t v)
{
    jw_key(w, key);
    jw_u64(w, v);
}

void jw_member_f32(struct jw *w, const char *key, float v)
{
    jw_key(w, key);
    jw_f32(w, v);
}

void jw_member_bool(struct jw *w, const char *key, bool v)
{
    jw_key(w, key);
    jw_bool(w, v);
}

void jw_member_str(struct jw *w, const char *key, struct str s)
{
    jw_key(w, key);
    jw_str(w, s);
}
