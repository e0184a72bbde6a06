#include "output/literal.h"
#include "base/utf8.h"

enum state {
    VALUE,       /* a value */
    FIRST_VALUE, /* a value or the closing bracket; also after a comma */
    FIRST_KEY,   /* a key or '}'; also after a comma */
    COLON,
    AFTER,
    OPENING, /* after one or two quotes of a string */
    STRING,
    ESCAPE,
    DIGITS, /* digits of \x, \u, \U and octal escapes */
    QUOTED, /* between the quotes of the dialect */
    QUOTE,  /* inside the opening quote of the dialect */
    WORD,
    DONE
};

void literal_init(struct literal *l, struct str quote, bool bare_keys)
{
    *l = (struct literal){ .quote = quote, .bare_keys = bare_keys, .state = VALUE };
    buf_init(&l->levels, LITERAL_DEPTH_MAX);
}

void literal_clear(struct literal *l)
{
    buf_clear(&l->levels);
}

void literal_begin(struct literal *l)
{
    struct literal old = *l;

    *l = (struct literal){
        .quote = old.quote, .bare_keys = old.bare_keys, .levels = old.levels, .state = VALUE
    };
    buf_reset(&l->levels);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static bool is_word_byte(char c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_' ||
           c == '.' || c == '-' || c == '+' || (c & 0x80);
}

static char closing_of(char c)
{
    return c == '[' ? ']' : c == '(' ? ')' : '}';
}

static char closing(const struct literal *l)
{
    return l->levels.n ? l->levels.p[l->levels.n - 1] : 0;
}

/* before a value, a member or a list */
static void put_comma(struct literal *l, struct buf *out)
{
    if (l->needs_comma)
        buf_putc(out, ',');
    l->needs_comma = false;
}

static void after_value(struct literal *l, struct buf *out)
{
    if (l->is_key) {
        buf_putc(out, ':');
        l->state = COLON;
        l->is_key = false;
    } else {
        l->state = l->levels.n ? AFTER : DONE;
    }
}

static bool open_level(struct literal *l, char c, struct buf *out)
{
    if (l->is_key)
        return false;
    buf_putc(&l->levels, closing_of(c));
    buf_putc(out, c == '{' ? '{' : '[');
    l->state = c == '{' ? FIRST_KEY : FIRST_VALUE;
    return buf_ok(&l->levels);
}

static bool close_level(struct literal *l, struct buf *out)
{
    buf_putc(out, closing(l) == '}' ? '}' : ']');
    l->levels.n--;
    l->needs_comma = false;
    after_value(l, out);
    return true;
}

static bool start_value(struct literal *l, char c, struct buf *out)
{
    put_comma(l, out);
    l->n_word = 0;
    if (c == '[' || c == '(' || c == '{')
        return open_level(l, c, out);
    if (c == '\'' || c == '"') {
        l->mark = c;
        l->n_quotes = 1;
        l->n_matched = 0;
        l->state = OPENING;
        buf_putc(out, '"');
        return true;
    }
    if (l->quote.n && c == l->quote.p[0]) {
        l->n_matched = 1;
        l->state = QUOTE;
        return true;
    }
    l->word[l->n_word++] = c;
    l->state = WORD;
    return is_word_byte(c);
}

static bool structure_byte(struct literal *l, char c, struct buf *out)
{
    if (is_blank(c))
        return true;
    switch (l->state) {
    case FIRST_VALUE:
        if (c == closing(l))
            return close_level(l, out);
        return start_value(l, c, out);
    case VALUE:
        return start_value(l, c, out);
    case FIRST_KEY:
        if (c == '}')
            return close_level(l, out);
        l->is_key = true;
        return start_value(l, c, out);
    case COLON:
        l->state = VALUE;
        return c == ':';
    default: /* AFTER */
        if (c == closing(l))
            return close_level(l, out);
        l->needs_comma = true;
        l->state = closing(l) == '}' ? FIRST_KEY : FIRST_VALUE;
        return c == ',';
    }
}

/* ---- strings ---- */

static void end_string(struct literal *l, struct buf *out)
{
    json_unit_end_escape(&l->units, out);
    buf_putc(out, '"');
    after_value(l, out);
}

/* '' is an empty string unless a third quote follows. Returns 0 if c is not consumed. */
static size_t after_quote(struct literal *l, char c, struct buf *out)
{
    if (c == l->mark && l->n_quotes < 3) {
        if (++l->n_quotes == 3)
            l->state = STRING;
        return 1;
    }
    if (l->n_quotes == 2) {
        end_string(l, out);
        return 0;
    }
    l->state = STRING;
    return 0;
}

/* A string byte that is not plain. In a triple-quoted string, n_matched quotes are held, since they
 * may be content. */
static void string_byte(struct literal *l, char c, struct buf *out)
{
    if (c == l->mark) {
        if (l->n_quotes == 1 || ++l->n_matched == 3)
            end_string(l, out);
        return;
    }
    for (; l->n_matched; l->n_matched--)
        buf_puts(out, l->mark == '"' ? STR("\\\"") : STR("'"));
    if (c == '\\') {
        l->state = ESCAPE;
        return;
    }
    json_unit_end_escape(&l->units, out);
    json_text_put(out, (struct str){ &c, 1 });
}

static size_t string_run(struct literal *l, struct str in, struct buf *out)
{
    size_t n = 0;

    while (n < in.n && in.p[n] != l->mark && in.p[n] != '\\')
        n++;
    if (!n || l->n_matched) {
        string_byte(l, in.p[0], out);
        return 1;
    }
    json_unit_end_escape(&l->units, out);
    json_text_put(out, (struct str){ in.p, n });
    return n;
}

static void put_code(struct literal *l, struct buf *out)
{
    char bytes[4];
    bool is_scalar = l->code < 0x110000 && (l->code < 0xD800 || l->code > 0xDFFF);

    if (l->code < 0x10000 && l->want_digits == 4) {
        json_unit_escape(&l->units, (uint16_t)l->code, out);
        return;
    }
    json_unit_end_escape(&l->units, out);
    if (is_scalar)
        json_text_put(out, (struct str){ bytes, (size_t)utf8_encode(l->code, bytes) });
    else
        buf_puts(out, UTF8_REPLACEMENT);
}

static void start_digits(struct literal *l, int want, uint32_t first, int n)
{
    l->state = DIGITS;
    l->code = first;
    l->n_digits = (uint8_t)n;
    l->want_digits = (uint8_t)want;
}

static void escape_byte(struct literal *l, char c, struct buf *out)
{
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    const char *at = c ? strchr(from, c) : NULL;

    l->state = STRING;
    if (c == 'x' || c == 'u' || c == 'U') {
        start_digits(l, c == 'x' ? 2 : c == 'u' ? 4 : 8, 0, 0);
        return;
    }
    if (c >= '0' && c <= '7') {
        start_digits(l, 3, (uint32_t)(c - '0'), 1);
        return;
    }
    json_unit_end_escape(&l->units, out);
    if (at) {
        json_text_put(out, (struct str){ &to[at - from], 1 });
    } else if (c != '\n') { /* Python keeps the backslash of an unknown escape */
        buf_putz(out, "\\\\");
        json_text_put(out, (struct str){ &c, 1 });
    }
}

/* 1: consumed, 0: an octal escape ended before c, -1: c is not a digit of the escape. */
static int digit_byte(struct literal *l, char c, struct buf *out)
{
    bool is_octal = l->want_digits == 3;
    int v = json_hex(c);

    if (v < 0 || (is_octal && v > 7)) {
        if (!is_octal)
            return -1;
        put_code(l, out);
        l->state = STRING;
        return 0;
    }
    l->code = is_octal ? l->code << 3 | (uint32_t)v : l->code << 4 | (uint32_t)v;
    if (++l->n_digits == l->want_digits) {
        put_code(l, out);
        l->state = STRING;
    }
    return 1;
}

/* ---- quotes of the dialect ---- */

static bool open_quote_byte(struct literal *l, char c, struct buf *out)
{
    if (c != l->quote.p[l->n_matched])
        return false;
    if (++l->n_matched == l->quote.n) {
        l->n_matched = 0;
        l->state = QUOTED;
        buf_putc(out, '"');
    }
    return true;
}

static size_t quoted_run(struct literal *l, struct str in, struct buf *out)
{
    size_t n = 0;

    if (l->n_matched && in.p[0] != l->quote.p[l->n_matched]) {
        json_text_put(out, (struct str){ l->quote.p, l->n_matched });
        l->n_matched = 0;
    }
    if (in.p[0] == l->quote.p[l->n_matched]) {
        if (++l->n_matched == l->quote.n) {
            l->n_matched = 0;
            end_string(l, out);
        }
        return 1;
    }
    while (n < in.n && in.p[n] != l->quote.p[0])
        n++;
    json_text_put(out, (struct str){ in.p, n });
    return n;
}

/* ---- numbers and words ---- */

static bool put_number(struct literal *l, struct buf *out)
{
    char text[LITERAL_WORD_MAX + 2];
    size_t n = 0, from = l->word[0] == '+';
    struct json_walk w;
    enum walk_result result;

    for (size_t i = from; i < l->n_word; i++) {
        char c = l->word[i];
        bool is_first = !n || text[n - 1] == '-';
        bool ends_point = n && text[n - 1] == '.' && !(c >= '0' && c <= '9');
        if (c == '_')
            continue;
        if (n + 3 > sizeof(text))
            return false;
        if ((c == '.' && is_first) || ends_point)
            text[n++] = '0';
        text[n++] = c;
    }
    if (n && text[n - 1] == '.')
        text[n++] = '0';
    json_walk_init(&w);
    size_t used = json_walk_put(&w, (struct str){ text, n }, NULL, &result);
    bool ok = result != WALK_BAD && used == n && json_walk_end(&w);
    json_walk_clear(&w);
    if (ok)
        buf_put(out, text, n);
    return ok;
}

static bool put_word(struct literal *l, struct buf *out)
{
    static const char *const words[][2] = { { "True", "true" }, { "true", "true" },
        { "False", "false" }, { "false", "false" }, { "None", "null" }, { "null", "null" } };
    struct str word = { l->word, l->n_word };

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (str_is(word, words[i][0])) {
            buf_putz(out, words[i][1]);
            return true;
        }
    return put_number(l, out);
}

static bool end_word(struct literal *l, struct buf *out)
{
    struct str word = { l->word, l->n_word };
    bool ok = true;

    if (l->is_key)
        buf_putc(out, '"');
    if (l->is_key && l->bare_keys)
        json_text_put(out, word);
    else
        ok = put_word(l, out);
    if (l->is_key)
        buf_putc(out, '"');
    after_value(l, out);
    return ok;
}

/* 1: consumed, 0: the word ended before c, -1: not a valid word. */
static int word_byte(struct literal *l, char c, struct buf *out)
{
    if (!is_word_byte(c))
        return end_word(l, out) ? 0 : -1;
    if (l->n_word == sizeof(l->word))
        return -1;
    l->word[l->n_word++] = c;
    return 1;
}

/* Returns the bytes consumed; 0 if only the state changed, -1 on a syntax error. */
static ptrdiff_t literal_step(struct literal *l, struct str in, struct buf *out)
{
    char c = in.p[0];

    switch ((enum state)l->state) {
    case VALUE:
    case FIRST_VALUE:
    case FIRST_KEY:
    case COLON:
    case AFTER:
        return structure_byte(l, c, out) ? 1 : -1;
    case OPENING:
        return (ptrdiff_t)after_quote(l, c, out);
    case STRING:
        return (ptrdiff_t)string_run(l, in, out);
    case ESCAPE:
        escape_byte(l, c, out);
        return 1;
    case DIGITS:
        return digit_byte(l, c, out);
    case QUOTE:
        return open_quote_byte(l, c, out) ? 1 : -1;
    case QUOTED:
        return (ptrdiff_t)quoted_run(l, in, out);
    case WORD:
        return word_byte(l, c, out);
    case DONE:
        break;
    }
    return -1;
}

size_t literal_put(struct literal *l, struct str in, struct buf *out, enum walk_result *result)
{
    size_t i = 0;

    *result = WALK_MORE;
    while (i < in.n && l->state != DONE) {
        ptrdiff_t used = literal_step(l, str_skip(in, i), out);
        if (used < 0) {
            *result = WALK_BAD;
            return i;
        }
        i += (size_t)used;
    }
    if (l->state == DONE)
        *result = WALK_DONE;
    return i;
}

bool literal_end(struct literal *l, struct buf *out)
{
    if (l->state == WORD && !end_word(l, out))
        return false;
    if (l->state == OPENING && l->n_quotes == 2)
        end_string(l, out);
    return l->state == DONE;
}
