/* lexer.c: converts source to tokens: Jinja's delimiters with trim_blocks and lstrip_blocks on.
 *
 * A newline after a block tag or comment is dropped. Blanks before a block tag or comment are
 * dropped if there is nothing else before it on its line. `-` drops all blanks on its side, `+`
 * keeps them. One newline at the end of the source is dropped. Owner: the thread that compiles. */
#include "jinja/ast.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct lexer {
    struct compiler *c;
    struct str s;
    size_t at;
    uint32_t line;
    bool at_line_start; /* the previous consumed byte ended a line */
};

int compile_fail(struct compiler *c, uint32_t line, const char *fmt, ...)
{
    char msg[sizeof(c->e->msg)];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(msg, sizeof(msg), fmt, ap);
    va_end(ap);
    return err_set(c->e, ERR_SYNTAX, "line %u: %s", line, msg);
}

void *compile_alloc(struct compiler *c, size_t n)
{
    void *p = arena_zalloc(c->a, 1, n);

    if (!p)
        err_set(c->e, ERR_MEMORY, "no memory to compile the template");
    return p;
}

static int push_token(struct lexer *l, struct token t)
{
    struct lexer_tokens *list = &l->c->tokens;

    if (list->n == list->cap) {
        size_t cap = MAX(list->cap * 2, (size_t)256);
        struct token *v = arena_zalloc(l->c->scratch, cap, sizeof(*v));
        if (!v)
            return err_set(l->c->e, ERR_MEMORY, "no memory to compile the template");
        if (list->n)
            memcpy(v, list->v, list->n * sizeof(*v));
        list->v = v;
        list->cap = cap;
    }
    t.line = l->line;
    list->v[list->n++] = t;
    return 0;
}

static struct str remaining(const struct lexer *l)
{
    return str_skip(l->s, l->at);
}

static void consume(struct lexer *l, size_t n)
{
    for (size_t i = l->at; i < l->at + n; i++)
        l->line += l->s.p[i] == '\n';
    l->at += n;
    if (n)
        l->at_line_start = l->s.p[l->at - 1] == '\n';
}

/* The text before a tag, without the blanks that the tag's sign or position removes. */
static struct str strip_before(struct str text, char sign, bool is_variable, bool at_line_start)
{
    if (sign == '-')
        return (struct str){ text.p, text.n - trailing_space(text) };
    if (sign == '+' || is_variable)
        return text;
    size_t line = text.n;
    while (line && text.p[line - 1] != '\n')
        line--;
    struct str before = str_skip(text, line);
    if ((line || at_line_start) && leading_space(before) == before.n)
        text.n = line;
    return text;
}

static int push_data(struct lexer *l, struct str text)
{
    return text.n ? push_token(l, (struct token){ .kind = TOK_DATA, .s = text }) : 0;
}

/* Consumes "-%}" with the blanks after it, "+%}", or "%}" with one newline. False if the input does
 * not continue with `end`. */
static bool consume_tag_end(struct lexer *l, const char *end, bool trims)
{
    struct str s = remaining(l);
    char sign = s.n && (s.p[0] == '-' || (s.p[0] == '+' && trims)) ? s.p[0] : 0;
    size_t n = sign ? 1 : 0;

    if (!str_starts(str_skip(s, n), str_of(end)))
        return false;
    n += 2;
    if (sign == '-')
        n += leading_space(str_skip(s, n));
    else if (!sign && trims && n < s.n && s.p[n] == '\n')
        n++;
    consume(l, n);
    return true;
}

/* ---- inside tags */

static int hex_digits(const char *p, size_t n, uint32_t *out)
{
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        char c = p[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0)
            return -1;
        *out = *out << 4 | (uint32_t)d;
    }
    return 0;
}

/* Decodes \xhh, \uhhhh, \Uhhhhhhhh and \ooo at s (after the backslash). Returns the bytes
 * consumed; 0: not such an escape. */
static size_t numeric_escape(struct str s, uint32_t *cp)
{
    size_t digits = s.p[0] == 'x' ? 2 : s.p[0] == 'u' ? 4 : s.p[0] == 'U' ? 8 : 0;

    if (digits)
        return s.n > digits && !hex_digits(s.p + 1, digits, cp) ? digits + 1 : 0;
    size_t n = 0;
    *cp = 0;
    while (n < 3 && n < s.n && s.p[n] >= '0' && s.p[n] <= '7')
        *cp = *cp * 8 + (uint32_t)(s.p[n++] - '0');
    return n;
}

/* Decodes one escape at s (after the backslash) to out. Returns the bytes consumed; 0: invalid. */
static size_t unescape(struct str s, char *out, size_t *n_out)
{
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    const char *simple = s.p[0] ? strchr(from, s.p[0]) : NULL;
    uint32_t cp;

    *n_out = 0;
    if (s.p[0] == '\n')
        return 1;
    if (simple) {
        out[(*n_out)++] = to[simple - from];
        return 1;
    }
    if (strchr("xuU01234567", s.p[0]) && s.p[0]) {
        size_t used = numeric_escape(s, &cp);
        if (!used || cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF))
            return 0;
        *n_out = (size_t)utf8_encode(cp, out);
        return used;
    }
    if (s.p[0] == 'N')
        return 0;
    out[(*n_out)++] = '\\'; /* an unknown escape is kept */
    out[(*n_out)++] = s.p[0];
    return 1;
}

static int lex_string(struct lexer *l)
{
    struct str s = remaining(l);
    char quote = s.p[0];
    size_t end = 1;

    while (end < s.n && s.p[end] != quote)
        end += s.p[end] == '\\' ? 2 : 1;
    if (end >= s.n)
        return compile_fail(l->c, l->line, "a string has no end");
    char *out = compile_alloc(l->c, end + 1);
    size_t n = 0;
    if (!out)
        return -1;
    for (size_t i = 1; i < end;) {
        size_t put = 1, used = 1;
        if (s.p[i] == '\\') {
            used = unescape((struct str){ s.p + i + 1, end - i - 1 }, out + n, &put);
            if (!used++)
                return compile_fail(l->c, l->line, "a bad escape in a string");
        } else {
            out[n] = s.p[i];
        }
        i += used;
        n += put;
    }
    struct token t = { .kind = TOK_STRING, .s = { out, n } };
    if (push_token(l, t))
        return -1;
    consume(l, end + 1);
    return 0;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t digits_ahead(struct str s, size_t at)
{
    size_t n = at;

    while (n < s.n &&
           (is_digit(s.p[n]) || (s.p[n] == '_' && n > at && n + 1 < s.n && is_digit(s.p[n + 1]))))
        n++;
    return n - at;
}

static bool is_base_digit(char c, int base)
{
    return is_digit(c) || c == '_' || (base == 16 && (c | 32) >= 'a' && (c | 32) <= 'f');
}

/* Length of a decimal number with its fraction and exponent. */
static size_t decimal_ahead(struct str s, bool *is_float)
{
    size_t n = digits_ahead(s, 0);

    if (n + 1 < s.n && s.p[n] == '.' && is_digit(s.p[n + 1])) {
        n += 1 + digits_ahead(s, n + 1);
        *is_float = true;
    }
    size_t e = n < s.n && (s.p[n] | 32) == 'e' ? n + 1 : 0;
    if (e && e < s.n && (s.p[e] == '+' || s.p[e] == '-'))
        e++;
    size_t exponent = e ? digits_ahead(s, e) : 0;
    *is_float = *is_float || exponent;
    return exponent ? e + exponent : n;
}

/* Value of a number; false if it is invalid or too large. */
static bool number_value(struct str s, int base, bool is_float, struct val *out)
{
    char digits[64], *stop;
    size_t n = 0;

    for (size_t i = base == 10 ? 0 : 2; i < s.n; i++) {
        if (n + 1 >= sizeof(digits))
            return false;
        if (s.p[i] != '_')
            digits[n++] = s.p[i];
    }
    digits[n] = '\0';
    if (is_float) {
        *out = V_FLOAT(strtod(digits, &stop));
        return !*stop;
    }
    long long i = strtoll(digits, &stop, base);
    *out = V_INT(i);
    bool has_zero = base == 10 && s.p[0] == '0' && i; /* leading zero, as in 007: invalid */
    return n && !*stop && i != INT64_MAX && !has_zero;
}

/* 12, 1_000, 0x1f, 0b1, 0o7; 1.5, 1e3, 1.5e-3. */
static int lex_number(struct lexer *l)
{
    struct str s = remaining(l);
    struct token t = { .kind = TOK_INT };
    bool is_float = false;
    char mark = s.p[0] == '0' && s.n > 2 ? (char)(s.p[1] | 32) : 0;
    int base = mark == 'x' ? 16 : mark == 'b' ? 2 : mark == 'o' ? 8 : 10;
    size_t n = 2;

    if (base == 10)
        n = decimal_ahead(s, &is_float);
    else
        while (n < s.n && is_base_digit(s.p[n], base))
            n++;
    if (is_float)
        t.kind = TOK_FLOAT;
    if (!number_value((struct str){ s.p, n }, base, is_float, &t.value))
        return compile_fail(l->c, l->line, "a bad number: " STR_FMT, (int)MIN(n, 40u), s.p);
    if (push_token(l, t))
        return -1;
    consume(l, n);
    return 0;
}

static bool is_name_byte(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (unsigned char)c >= 0x80;
}

static int lex_operator(struct lexer *l, int *nesting)
{
    static const char *const two[] = { "**", "//", "==", "!=", "<=", ">=" };
    struct str s = remaining(l);
    struct token t = { .kind = TOK_OP };
    size_t n = 1;

    for (size_t i = 0; i < ARRAY_LEN(two); i++)
        if (str_starts(s, str_of(two[i])))
            n = 2;
    if (!s.p[0] || (n == 1 && !strchr("+-*/%~[](){}<>=.:|,;", s.p[0])))
        return compile_fail(l->c, l->line, "unexpected character '%.1s'", s.p);
    memcpy(t.op, s.p, n);
    if (strchr("([{", t.op[0]))
        ++*nesting;
    else if (strchr(")]}", t.op[0]) && --*nesting < 0)
        return compile_fail(l->c, l->line, "unexpected '%s'", t.op);
    if (push_token(l, t))
        return -1;
    consume(l, n);
    return 0;
}

static int lex_tag(struct lexer *l, bool is_variable)
{
    uint32_t opened = l->line;
    int nesting = 0;

    if (push_token(l, (struct token){ .kind = is_variable ? TOK_VAR_BEGIN : TOK_BLOCK_BEGIN }))
        return -1;
    for (;;) {
        consume(l, leading_space(remaining(l)));
        struct str s = remaining(l);
        int rc = 0;
        if (!s.n)
            return compile_fail(l->c, opened, "a tag has no end");
        struct token end = { .kind = is_variable ? TOK_VAR_END : TOK_BLOCK_END };
        if (!nesting && consume_tag_end(l, is_variable ? "}}" : "%}", !is_variable))
            return push_token(l, end);
        if (s.p[0] == '"' || s.p[0] == '\'') {
            rc = lex_string(l);
        } else if (is_digit(s.p[0])) {
            rc = lex_number(l);
        } else if (is_name_byte(s.p[0])) {
            size_t n = 1;
            while (n < s.n && is_name_byte(s.p[n]))
                n++;
            rc = push_token(l, (struct token){ .kind = TOK_NAME, .s = { s.p, n } });
            consume(l, n);
        } else {
            rc = lex_operator(l, &nesting);
        }
        if (rc)
            return -1;
    }
}

/* ---- outside tags */

static int lex_comment(struct lexer *l)
{
    uint32_t opened = l->line;

    while (l->at < l->s.n) {
        if (consume_tag_end(l, "#}", true))
            return 0;
        consume(l, 1);
    }
    return compile_fail(l->c, opened, "a comment has no end");
}

/* For a tag that contains only `word`, as in {%- raw -%}: the offset after the word; otherwise
 * 0. */
static size_t word_tag(struct str s, const char *word)
{
    size_t n = 2;

    if (!str_starts(s, STR("{%")))
        return 0;
    n += n < s.n && (s.p[n] == '-' || s.p[n] == '+');
    n += leading_space(str_skip(s, n));
    if (!str_starts(str_skip(s, n), str_of(word)))
        return 0;
    n += strlen(word);
    n += leading_space(str_skip(s, n));
    struct str end = str_skip(s, n);
    return str_starts(end, STR("%}")) || str_starts(end, STR("-%}")) || str_starts(end, STR("+%}"))
               ? n
               : 0;
}

static int lex_raw(struct lexer *l, size_t behind_word)
{
    uint32_t opened = l->line;
    size_t n;

    consume(l, behind_word);
    if (l->s.p[l->at] == '+')
        return compile_fail(l->c, opened, "a raw block cannot begin with +%%}");
    bool dash = l->s.p[l->at] == '-';
    consume(l, dash ? 3 : 2);
    if (dash)
        consume(l, leading_space(remaining(l)));
    bool line_start = l->at_line_start;
    for (size_t from = l->at; l->at < l->s.n; consume(l, 1)) {
        if (!(n = word_tag(remaining(l), "endraw")))
            continue;
        struct str text = { l->s.p + from, l->at - from };
        if (push_data(l, strip_before(text, l->s.p[l->at + 2], false, line_start)))
            return -1;
        consume(l, n);
        if (!consume_tag_end(l, "%}", true))
            return compile_fail(l->c, l->line, "a bad end of a raw block");
        return 0;
    }
    return compile_fail(l->c, opened, "a raw block has no end");
}

int jinja_lex(struct compiler *c, struct str source)
{
    struct lexer l = { .c = c, .s = source, .line = 1, .at_line_start = true };

    while (l.at < l.s.n) {
        struct str s = remaining(&l);
        size_t n = 0;
        const char *brace;
        while ((brace = memchr(s.p + n, '{', s.n - n))) {
            n = (size_t)(brace - s.p);
            if (n + 1 < s.n && strchr("{%#", s.p[n + 1]) && s.p[n + 1])
                break;
            n++;
        }
        if (!brace)
            return push_data(&l, s) || push_token(&l, (struct token){ .kind = TOK_END }) ? -1 : 0;
        char sign = n + 2 < s.n ? s.p[n + 2] : 0;
        char what = s.p[n + 1];
        struct str text = { s.p, n };
        if (push_data(&l, strip_before(text, sign, what == '{', l.at_line_start)))
            return -1;
        consume(&l, n);
        size_t raw = what == '%' ? word_tag(remaining(&l), "raw") : 0;
        int rc;
        if (raw) {
            rc = lex_raw(&l, raw);
        } else {
            consume(&l, sign == '-' || sign == '+' ? 3 : 2);
            rc = what == '#' ? lex_comment(&l) : lex_tag(&l, what == '{');
        }
        if (rc)
            return -1;
    }
    return push_token(&l, (struct token){ .kind = TOK_END });
}
