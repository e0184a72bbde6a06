#include "output/json_text.h"
#include "base/utf8.h"

void json_text_put(struct buf *out, struct str s)
{
    static const char letters[] = "btn\0fr"; /* escape letters of the bytes 8 to 13 */
    size_t from = 0;

    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        buf_put(out, s.p + from, i - from);
        from = i + 1;
        bool has_letter = c >= 8 && c <= 13 && letters[c - 8];
        if (c >= 0x20 || has_letter)
            buf_put(out, (char[]){ '\\', has_letter ? letters[c - 8] : (char)c }, 2);
        else
            buf_printf(out, "\\u%04x", c);
    }
    buf_put(out, s.p + from, s.n - from);
}

static bool is_high(uint16_t unit)
{
    return unit >= 0xD800 && unit <= 0xDBFF;
}

static bool is_low(uint16_t unit)
{
    return unit >= 0xDC00 && unit <= 0xDFFF;
}

void json_unit_end_escape(struct json_units *u, struct buf *out)
{
    if (u->high)
        buf_putz(out, "\\ufffd");
    u->high = 0;
}

void json_unit_end_text(struct json_units *u, struct buf *out)
{
    if (u->high)
        buf_puts(out, UTF8_REPLACEMENT);
    u->high = 0;
}

void json_unit_escape(struct json_units *u, uint16_t unit, struct buf *out)
{
    if (u->high && is_low(unit)) {
        buf_printf(out, "\\u%04x\\u%04x", u->high, unit);
        u->high = 0;
        return;
    }
    json_unit_end_escape(u, out);
    if (is_high(unit))
        u->high = unit;
    else
        buf_printf(out, "\\u%04x", is_low(unit) ? 0xFFFD : unit);
}

void json_unit_text(struct json_units *u, uint16_t unit, struct buf *out)
{
    char bytes[4];
    uint32_t cp = is_low(unit) ? 0xFFFD : unit;

    if (u->high && is_low(unit)) {
        cp = 0x10000 + ((uint32_t)(u->high - 0xD800) << 10) + (unit - 0xDC00u);
        u->high = 0;
    }
    json_unit_end_text(u, out);
    if (is_high(unit))
        u->high = unit;
    else
        buf_put(out, bytes, (size_t)utf8_encode(cp, bytes));
}

static size_t plain_step(struct json_string *s, struct str in, struct buf *out)
{
    size_t n = 0;

    while (n < in.n && in.p[n] != '"' && in.p[n] != '\\')
        n++;
    if (n) {
        json_unit_end_text(&s->units, out);
        buf_put(out, in.p, n);
        return n;
    }
    if (in.p[0] == '\\') {
        s->state = JSON_STRING_ESCAPE;
        return 1;
    }
    json_unit_end_text(&s->units, out);
    s->state = JSON_STRING_END;
    return 1;
}

static size_t escape_step(struct json_string *s, char c, struct buf *out)
{
    char decoded = json_escape_of(c);

    if (c == 'u') {
        s->state = JSON_STRING_HEX;
        s->n_hex = 0;
        s->unit = 0;
        return 1;
    }
    if (!decoded)
        return 0;
    json_unit_end_text(&s->units, out);
    buf_putc(out, decoded);
    s->state = JSON_STRING_PLAIN;
    return 1;
}

static size_t hex_step(struct json_string *s, char c, struct buf *out)
{
    int digit = json_hex(c);

    if (digit < 0)
        return 0;
    s->unit = (uint16_t)(s->unit << 4 | digit);
    if (++s->n_hex == 4) {
        json_unit_text(&s->units, s->unit, out);
        s->state = JSON_STRING_PLAIN;
    }
    return 1;
}

size_t json_string_step(struct json_string *s, struct str in, struct buf *out)
{
    switch (s->state) {
    case JSON_STRING_PLAIN:
        return plain_step(s, in, out);
    case JSON_STRING_ESCAPE:
        return escape_step(s, in.p[0], out);
    case JSON_STRING_HEX:
        return hex_step(s, in.p[0], out);
    case JSON_STRING_END:
        return 0;
    }
    return 0;
}
