#include "output/json_walk.h"

enum state {
    VALUE,       /* a value */
    FIRST_VALUE, /* a value or ']' */
    FIRST_KEY,   /* a key or '}' */
    KEY,         /* a key */
    COLON,
    AFTER, /* ',' or the end of the container */
    STRING,
    ESCAPE,
    HEX,
    MINUS, /* numbers, by the part read last */
    ZERO,
    DIGITS,
    POINT,
    FRACTION,
    EXPONENT, /* the e */
    SIGN,
    POWER,
    WORD,
    DONE
};

void json_walk_init(struct json_walk *w)
{
    *w = (struct json_walk){ .state = VALUE };
    buf_init(&w->levels, WALK_DEPTH_MAX / 8);
}

void json_walk_clear(struct json_walk *w)
{
    buf_clear(&w->levels);
}

void json_walk_begin(struct json_walk *w)
{
    struct buf levels = w->levels;

    buf_reset(&levels);
    *w = (struct json_walk){ .state = VALUE, .levels = levels };
}

static bool in_object(const struct json_walk *w)
{
    uint32_t level = w->depth - 1;

    return w->levels.p[level / 8] >> (level % 8) & 1;
}

static bool open_level(struct json_walk *w, bool is_object)
{
    uint32_t level = w->depth;

    if (level / 8 >= w->levels.n) {
        buf_putc(&w->levels, 0);
        if (!buf_ok(&w->levels))
            return false;
    }
    char *byte = &w->levels.p[level / 8];
    *byte = (char)((*byte & ~(1 << level % 8)) | (is_object ? 1 << level % 8 : 0));
    w->depth++;
    w->state = is_object ? FIRST_KEY : FIRST_VALUE;
    return true;
}

static void after_value(struct json_walk *w)
{
    w->state = w->depth ? AFTER : DONE;
}

static bool close_level(struct json_walk *w)
{
    w->depth--;
    after_value(w);
    return true;
}

static bool start_value(struct json_walk *w, char c)
{
    w->in_key = false;
    switch (c) {
    case '{':
        return open_level(w, true);
    case '[':
        return open_level(w, false);
    case '"':
        w->state = STRING;
        return true;
    case '-':
        w->state = MINUS;
        return true;
    case '0':
        w->state = ZERO;
        return true;
    case 't':
        w->word = "rue";
        break;
    case 'f':
        w->word = "alse";
        break;
    case 'n':
        w->word = "ull";
        break;
    default:
        w->state = DIGITS;
        return c >= '1' && c <= '9';
    }
    w->state = WORD;
    return true;
}

static bool start_key(struct json_walk *w, char c)
{
    w->in_key = true;
    w->state = STRING;
    return c == '"';
}

static bool structure_byte(struct json_walk *w, char c)
{
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t')
        return true;
    switch (w->state) {
    case FIRST_VALUE:
        return c == ']' ? close_level(w) : start_value(w, c);
    case VALUE:
        return start_value(w, c);
    case FIRST_KEY:
        return c == '}' ? close_level(w) : start_key(w, c);
    case KEY:
        return start_key(w, c);
    case COLON:
        w->state = VALUE;
        return c == ':';
    default: /* AFTER */
        if (c == (in_object(w) ? '}' : ']'))
            return close_level(w);
        w->state = in_object(w) ? KEY : VALUE;
        return c == ',';
    }
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* 1: c belongs to the number, 0: the number ended before c, -1: syntax error. */
static int number_byte(struct json_walk *w, char c)
{
    bool is_e = (c | 0x20) == 'e';

    switch (w->state) {
    case MINUS:
        w->state = c == '0' ? ZERO : DIGITS;
        return is_digit(c) ? 1 : -1;
    case ZERO:
    case DIGITS:
        if (w->state == DIGITS && is_digit(c))
            return 1;
        if (c != '.' && !is_e)
            return 0;
        w->state = is_e ? EXPONENT : POINT;
        return 1;
    case POINT:
        w->state = FRACTION;
        return is_digit(c) ? 1 : -1;
    case FRACTION:
        if (is_e)
            w->state = EXPONENT;
        return is_e || is_digit(c);
    case EXPONENT:
        w->state = c == '+' || c == '-' ? SIGN : POWER;
        return w->state == SIGN || is_digit(c) ? 1 : -1;
    case SIGN:
        w->state = POWER;
        return is_digit(c) ? 1 : -1;
    default: /* POWER */
        return is_digit(c);
    }
}

/* The output equals the input, except for the bytes that json_text_put replaces. Input before
 * `from` has been written or replaced. */
struct copy_state {
    struct buf *out;
    struct str in;
    size_t from;
};

static void copy_flush(struct copy_state *c, size_t to)
{
    if (c->out && to > c->from)
        buf_put(c->out, c->in.p + c->from, to - c->from);
    c->from = to;
}

/* Returns the end of the run of plain string bytes that begins at i. */
static size_t string_run(struct json_walk *w, struct copy_state *c, size_t i)
{
    struct str in = c->in;
    size_t start = i;

    while (i < in.n && (unsigned char)in.p[i] >= 0x20 && in.p[i] != '"' && in.p[i] != '\\')
        i++;
    if (i > start && w->units.high) {
        copy_flush(c, start);
        if (c->out)
            json_unit_end_escape(&w->units, c->out);
        w->units.high = 0;
    }
    return i;
}

/* A string byte that is not plain. An escape is held until it is complete. */
static bool string_byte(struct json_walk *w, struct copy_state *c, size_t i)
{
    struct buf *out = c->out;
    char byte = c->in.p[i];

    copy_flush(c, i);
    if (byte == '\\') {
        w->state = ESCAPE;
        c->from = i + 1;
        return true;
    }
    if (out)
        json_unit_end_escape(&w->units, out);
    w->units.high = 0;
    if (byte == '"') {
        if (w->in_key)
            w->state = COLON;
        else
            after_value(w);
        return true;
    }
    if (out)
        json_text_put(out, (struct str){ c->in.p + i, 1 });
    c->from = i + 1;
    return true;
}

static bool escape_byte(struct json_walk *w, struct copy_state *c, size_t i)
{
    char byte = c->in.p[i];

    c->from = i + 1;
    if (byte == 'u') {
        w->state = HEX;
        w->n_hex = 0;
        w->unit = 0;
        return true;
    }
    if (!json_escape_of(byte))
        return false;
    if (c->out) {
        json_unit_end_escape(&w->units, c->out);
        buf_put(c->out, (char[]){ '\\', byte }, 2);
    }
    w->units.high = 0;
    w->state = STRING;
    return true;
}

static bool hex_byte(struct json_walk *w, struct copy_state *c, size_t i)
{
    int digit = json_hex(c->in.p[i]);

    c->from = i + 1;
    if (digit < 0)
        return false;
    w->unit = (uint16_t)(w->unit << 4 | digit);
    if (++w->n_hex < 4)
        return true;
    if (c->out)
        json_unit_escape(&w->units, w->unit, c->out);
    w->state = STRING;
    return true;
}

static bool word_byte(struct json_walk *w, char c)
{
    if (c != *w->word)
        return false;
    if (!*++w->word)
        after_value(w);
    return true;
}

/* Consumes the byte at i, or a run of plain bytes. Returns the index after it; i itself if the byte
 * must be examined again (after a number); SIZE_MAX if the byte is not allowed. */
static size_t walk_step(struct json_walk *w, struct copy_state *c, size_t i)
{
    bool ok;
    int is_number;

    switch (w->state) {
    case STRING: {
        size_t end = string_run(w, c, i);
        if (end > i)
            return end;
        ok = string_byte(w, c, i);
        break;
    }
    case ESCAPE:
        ok = escape_byte(w, c, i);
        break;
    case HEX:
        ok = hex_byte(w, c, i);
        break;
    case WORD:
        ok = word_byte(w, c->in.p[i]);
        break;
    case VALUE:
    case FIRST_VALUE:
    case FIRST_KEY:
    case KEY:
    case COLON:
    case AFTER:
        ok = structure_byte(w, c->in.p[i]);
        break;
    default:
        is_number = number_byte(w, c->in.p[i]);
        if (!is_number) {
            after_value(w);
            return i;
        }
        ok = is_number > 0;
    }
    return ok ? i + 1 : SIZE_MAX;
}

size_t json_walk_put(struct json_walk *w, struct str in, struct buf *out, enum walk_result *result)
{
    struct copy_state c = { out, in, 0 };
    size_t i = 0;

    *result = WALK_MORE;
    while (i < in.n && w->state != DONE) {
        size_t next = walk_step(w, &c, i);
        if (next == SIZE_MAX) {
            *result = WALK_BAD;
            break;
        }
        i = next;
    }
    if (c.from < i && w->state != ESCAPE && w->state != HEX)
        copy_flush(&c, i);
    if (w->state == DONE)
        *result = WALK_DONE;
    return i;
}

bool json_walk_end(const struct json_walk *w)
{
    bool is_number =
        w->state == ZERO || w->state == DIGITS || w->state == FRACTION || w->state == POWER;

    return w->state == DONE || (is_number && !w->depth);
}

bool json_walk_in_text(const struct json_walk *w)
{
    return w->state == STRING && !w->units.high;
}
