#include "guardrails/json_guard.h"

#include "base/json_scan.h"
#include "base/utf8.h"

enum { NUMBER_MAX = 64 * 1024, ESCAPE_BYTES = 6 };

static void on_text(void *ctx, struct str raw)
{
    struct json_guard *j = ctx;

    buf_puts(&j->out, raw);
}

void json_guard_init(struct json_guard *j, struct guard_scan *scan, size_t max_bytes)
{
    *j = (struct json_guard){ .scan = scan };
    buf_init(&j->out, max_bytes);
    buf_init(&j->number, NUMBER_MAX);
}

void json_guard_clear(struct json_guard *j)
{
    buf_clear(&j->out);
    buf_clear(&j->number);
}

void json_guard_begin(struct json_guard *j)
{
    j->state = JSON_OUTSIDE;
    j->n_escape = 0;
    j->unit = j->high = 0;
    buf_reset(&j->out);
    buf_reset(&j->number);
    guard_scan_drop(j->scan);
}

/* ---- numbers */

static void end_number(struct json_guard *j)
{
    struct buf plain = j->out;
    bool was_redacted = j->scan->is_redacted;

    /* The scan writes to an empty buffer, whose text is not used. */
    buf_init(&j->out, NUMBER_MAX);
    j->scan->is_redacted = false;
    guard_scan_put(j->scan, buf_str(&j->number));
    guard_scan_end(j->scan);
    buf_clear(&j->out);
    j->out = plain;
    if (j->scan->is_redacted)
        buf_putz(&j->out, "\"" GUARD_MARKER "\"");
    else if (!j->scan->is_blocked)
        buf_puts(&j->out, buf_str(&j->number));
    j->scan->is_redacted |= was_redacted;
    buf_reset(&j->number);
    j->state = JSON_OUTSIDE;
}

static bool is_number_byte(char c)
{
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

/* ---- strings */

static void put_escaped(struct json_guard *j, uint32_t cp)
{
    char bytes[4];

    guard_scan_put_char(j->scan, (struct str){ bytes, (size_t)utf8_encode(cp, bytes) },
        (struct str){ j->escape, (size_t)j->n_escape });
    j->n_escape = 0;
    j->high = 0;
}

/* A high surrogate without a low one. */
static void end_high(struct json_guard *j, int n_later)
{
    char later[ESCAPE_BYTES];
    int n_first = j->n_escape - n_later;

    if (!j->high)
        return;
    if (n_later)
        memcpy(later, j->escape + n_first, (size_t)n_later);
    j->n_escape = n_first;
    put_escaped(j, 0xFFFD);
    if (n_later)
        memcpy(j->escape, later, (size_t)n_later);
    j->n_escape = n_later;
}

static void end_unit(struct json_guard *j)
{
    unsigned unit = j->unit;

    j->state = JSON_IN_STRING;
    if (j->high && unit >= 0xDC00 && unit <= 0xDFFF) {
        put_escaped(j, 0x10000 + ((j->high - 0xD800) << 10) + (unit - 0xDC00));
        return;
    }
    end_high(j, ESCAPE_BYTES);
    if (unit >= 0xD800 && unit <= 0xDBFF)
        j->high = unit;
    else
        put_escaped(j, unit >= 0xDC00 && unit <= 0xDFFF ? 0xFFFD : unit);
}

/* One character of a string, outside of an escape. */
static size_t string_step(struct json_guard *j, struct str text)
{
    uint32_t cp;

    if (*text.p == '\\') {
        j->escape[j->n_escape++] = '\\';
        j->state = JSON_IN_ESCAPE;
        return 1;
    }
    end_high(j, 0);
    if (*text.p == '"') {
        guard_scan_end(j->scan);
        if (!j->scan->is_blocked)
            buf_putc(&j->out, '"');
        j->state = JSON_OUTSIDE;
        return 1;
    }
    size_t n = (size_t)MAX(utf8_decode(text, &cp), 1);
    struct str c = { text.p, n };
    guard_scan_put_char(j->scan, c, c);
    return n;
}

static void escape_step(struct json_guard *j, char c)
{
    char decoded = json_escape_of(c);

    if (c == 'u') {
        j->escape[j->n_escape++] = c;
        j->unit = 0;
        j->state = JSON_IN_HEX;
        return;
    }
    if (j->high)
        end_high(j, 1);
    j->escape[j->n_escape++] = c;
    put_escaped(j, decoded ? (unsigned char)decoded : (unsigned char)c & 0x7f);
    j->state = JSON_IN_STRING;
}

static void hex_step(struct json_guard *j, char c)
{
    int digit = json_hex(c);

    j->escape[j->n_escape++] = c;
    j->unit = j->unit << 4 | (unsigned)MAX(digit, 0);
    if (j->n_escape % ESCAPE_BYTES == 0)
        end_unit(j);
}

static size_t outside_step(struct json_guard *j, char c)
{
    if (c == '-' || (c >= '0' && c <= '9')) {
        j->state = JSON_IN_NUMBER;
        return 0;
    }
    buf_putc(&j->out, c);
    j->state = c == '"' ? JSON_IN_STRING : JSON_OUTSIDE;
    return 1;
}

static size_t step(struct json_guard *j, struct str text)
{
    switch (j->state) {
    case JSON_OUTSIDE:
        return outside_step(j, *text.p);
    case JSON_IN_STRING:
        return string_step(j, text);
    case JSON_IN_ESCAPE:
        escape_step(j, *text.p);
        return 1;
    case JSON_IN_HEX:
        hex_step(j, *text.p);
        return 1;
    case JSON_IN_NUMBER:
        if (!is_number_byte(*text.p)) {
            end_number(j);
            return 0;
        }
        buf_putc(&j->number, *text.p);
        return 1;
    }
    return 1;
}

static void use_scan(struct json_guard *j)
{
    j->scan->on_text = on_text;
    j->scan->ctx = j;
}

void json_guard_put(struct json_guard *j, struct str text)
{
    use_scan(j);
    while (text.n && !j->scan->is_blocked && !j->scan->has_failed)
        text = str_skip(text, step(j, text));
    guard_scan_step(j->scan);
    if (!buf_ok(&j->out) || !buf_ok(&j->number))
        j->scan->has_failed = true;
}

void json_guard_end(struct json_guard *j)
{
    use_scan(j);
    if (j->state == JSON_IN_NUMBER)
        end_number(j);
    else if (j->state != JSON_OUTSIDE)
        guard_scan_end(j->scan); /* the text ends inside of a string */
    j->state = JSON_OUTSIDE;
    if (!buf_ok(&j->out) || !buf_ok(&j->number))
        j->scan->has_failed = true;
}
