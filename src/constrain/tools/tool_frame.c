#include "constrain/tools/tool_frame.h"

enum { BLANKS_MAX = 40, TOKEN_TEXT_MAX = 64, DIGITS_MAX = 9 };

struct frame {
    struct grammar *g;
    const struct tool_format *f;
    struct str text;
    size_t at;
    bool in_string, has_blanks; /* blanks are pending */
    part_id out;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

part_id tool_frame_blanks(struct grammar *g)
{
    struct byte_set blanks = { { 0 } };

    byte_set_add(&blanks, ' ');
    byte_set_add(&blanks, '\t');
    byte_set_add(&blanks, '\r');
    byte_set_add(&blanks, '\n');
    struct exprs *x = grammar_exprs(g);
    return grammar_expr(g, expr_repeat(x, expr_bytes(x, &blanks), 0, BLANKS_MAX));
}

static void put(struct frame *w, part_id part)
{
    if (w->has_blanks)
        w->out = grammar_cat(w->g, w->out, tool_frame_blanks(w->g));
    w->has_blanks = false;
    w->out = grammar_cat(w->g, w->out, part);
}

static struct str rest_of(const struct frame *w)
{
    return str_skip(w->text, w->at);
}

/* The longest control token at this place; TOKEN_NONE if there is none. */
static int32_t control_token(const struct frame *w, size_t *length)
{
    struct str rest = rest_of(w);

    if (rest.p[0] != '<' && rest.p[0] != '[' && rest.p[0] != ']')
        return TOKEN_NONE;
    for (size_t n = MIN(rest.n, (size_t)TOKEN_TEXT_MAX); n > 1; n--) {
        int32_t id = grammar_find_token(w->g, (struct str){ rest.p, n });
        if (id >= 0 && !grammar_token_has_bytes(w->g, id)) {
            *length = n;
            return id;
        }
    }
    return TOKEN_NONE;
}

/* Length of the marker of the format at this place; 0: none. */
static size_t marker_length(const struct frame *w)
{
    size_t longest = 0;

    for (int i = 0; i < w->f->n_marks; i++)
        if (str_starts(rest_of(w), w->f->marks[i].text))
            longest = MAX(longest, w->f->marks[i].text.n);
    return longest;
}

/* Length of a run of blanks that may differ; 0: none. */
static size_t blanks_length(const struct frame *w, unsigned flags)
{
    struct str rest = rest_of(w);
    size_t n = 0;

    while (n < rest.n && is_blank(rest.p[n]))
        n++;
    bool is_exact = (w->at == 0 && flags & FRAME_KEEP_FIRST) ||
                    (w->at && is_letter(w->text.p[w->at - 1])) ||
                    (n < rest.n && is_letter(rest.p[n])) || w->in_string;
    return is_exact ? 0 : n;
}

/* Digits between quotes. */
static size_t number_length(const struct frame *w)
{
    struct str rest = rest_of(w);
    size_t n = 0;

    if (!w->at || w->text.p[w->at - 1] != '"')
        return 0;
    while (n < rest.n && is_digit(rest.p[n]))
        n++;
    return n < rest.n && rest.p[n] == '"' ? n : 0;
}

static part_id number(struct grammar *g)
{
    struct exprs *x = grammar_exprs(g);

    return grammar_expr(g, expr_repeat(x, expr_range(x, '0', '9'), 1, DIGITS_MAX));
}

static void put_byte(struct frame *w)
{
    char c = w->text.p[w->at++];
    bool is_json = w->f->body == BODY_JSON;

    if (is_json && c == '"')
        w->in_string = !w->in_string;
    bool is_punctuation = is_json && !w->in_string && strchr("{}[],:", c);
    w->has_blanks = w->has_blanks || is_punctuation;
    put(w, grammar_literal(w->g, (struct str){ &c, 1 }));
    w->has_blanks = is_punctuation;
}

part_id tool_frame(struct grammar *g, const struct tool_format *f, struct str text, unsigned flags)
{
    struct frame w = {
        .g = g, .f = f, .text = text, .in_string = flags & FRAME_IN_STRING, .out = PART_EMPTY
    };

    while (w.at < text.n) {
        size_t n = 0;
        int32_t token = control_token(&w, &n);
        if (token != TOKEN_NONE && flags & FRAME_IS_LAST && grammar_token_is_end(g, token))
            break;
        if (token != TOKEN_NONE) {
            put(&w, grammar_token(g, token));
            w.at += n;
            continue;
        }
        n = marker_length(&w);
        if (n) {
            put(&w, grammar_literal(g, (struct str){ text.p + w.at, n }));
            w.at += n;
            continue;
        }
        n = blanks_length(&w, flags);
        if (n) {
            w.has_blanks = true;
            w.at += n;
            continue;
        }
        n = number_length(&w);
        if (n) {
            put(&w, number(g));
            w.at += n;
            continue;
        }
        put_byte(&w);
    }
    if (w.has_blanks)
        put(&w, PART_EMPTY);
    return w.out;
}
