/* parser_tags.c: body reader of BODY_TAGS. The edges of the tool format are a state graph: each
 * specifies which literal leads from which state to which. Owner: see parser.h. */
#include "output/parser_in.h"

enum { UNCLOSED_MAX = 2 * PARSER_NAME_MAX }; /* bytes of the tag after an unclosed value */

static void begin_reader(struct parser *p)
{
    struct buf text = p->tag.text, since = p->tag.since, key = p->tag.key;

    buf_reset(&text);
    buf_reset(&since);
    buf_reset(&key);
    p->tag = (struct tag_reader){ .state = p->f->tool->first,
        .at = AHO_CORASICK_ROOT,
        .text = text,
        .since = since,
        .key = key };
}

/* ---- values ---- */

static bool begin_value(struct parser *p, struct str word)
{
    struct tag_reader *t = &p->tag;
    struct str key = str_trim(word);

    if (!key.n)
        return false;
    t->types = parser_call_argument_types(p, t->schema, key);
    buf_putz(&p->args, t->has_params ? ",\"" : "{\"");
    json_text_put(&p->args, key);
    buf_putz(&p->args, "\":");
    t->has_params = true;
    return true;
}

/* Called after the tag that opens a value: selects type and streaming by the state. */
static void open_value(struct parser *p)
{
    struct tag_reader *t = &p->tag;

    if (t->state == TAG_ANY)
        t->types = 0;
    t->is_streaming = t->state == TAG_STRING || (t->state == TAG_VALUE && t->types == TYPE_STRING);
    t->is_fresh = true;
    t->is_on_own_line = t->has_newline = false;
    buf_reset(&t->text);
    if (t->is_streaming)
        buf_putc(&p->args, '"');
}

static void value_sink(struct parser *p, struct str piece)
{
    if (p->tag.is_streaming)
        json_text_put(&p->args, piece);
    else
        buf_puts(&p->tag.text, piece);
    p->work += piece.n;
}

/* One newline after the opening tag is layout, not value, and so is one before the closing tag if
 * there was one after the opening tag. */
static void value_put(struct parser *p, struct str piece)
{
    struct tag_reader *t = &p->tag;

    if (!piece.n)
        return;
    if (p->f->tool->flags & TOOL_VERBATIM) {
        value_sink(p, piece);
        return;
    }
    if (t->is_fresh && piece.p[0] == '\n') {
        piece = str_skip(piece, 1);
        t->is_on_own_line = true;
    }
    t->is_fresh = false;
    if (!piece.n)
        return;
    if (t->has_newline)
        value_sink(p, STR("\n"));
    t->has_newline = t->is_on_own_line && piece.p[piece.n - 1] == '\n';
    piece.n -= t->has_newline;
    value_sink(p, piece);
}

static void close_value(struct parser *p)
{
    struct tag_reader *t = &p->tag;

    if (t->is_streaming) {
        buf_putc(&p->args, '"');
        return;
    }
    coerce_put(&p->args, buf_str(&t->text), t->types);
    p->work += t->text.n;
}

/* ---- values without an end tag ---- */

static bool is_value(enum tag_state s)
{
    return s == TAG_VALUE || s == TAG_STRING || s == TAG_ANY || s == TAG_CDATA;
}

/* A tag that is not the end of the value was read inside it. */
static void begin_unclosed(struct parser *p, enum tag_state to, struct str literal)
{
    struct tag_reader *t = &p->tag;

    t->is_unclosed = true;
    t->unclosed = t->state;
    t->state = to == TAG_DONE ? TAG_PENDING : to;
    t->at = AHO_CORASICK_ROOT;
    buf_reset(&t->since);
    buf_puts(&t->since, literal);
    t->n_end_tag = literal.n;
    buf_reset(&t->key);
}

/* The tag is part of the value. The last n bytes since the tag may begin another one. */
static enum verdict resume_value(struct parser *p, size_t n)
{
    struct tag_reader *t = &p->tag;
    const struct aho_corasick *m = p->f->tags[t->unclosed];
    struct str since = buf_str(&t->since);

    t->is_unclosed = false;
    t->state = t->unclosed;
    t->at = AHO_CORASICK_ROOT;
    for (size_t i = since.n - n; i < since.n; i++)
        t->at = aho_corasick_step(m, t->at, since.p[i]);
    value_put(p, (struct str){ since.p, since.n - aho_corasick_depth(m, t->at) });
    return READ_MORE;
}

/* A key was read after the tag: the value ends if the tool has such a parameter. */
static enum verdict end_unclosed_key(struct parser *p, enum tag_state to)
{
    struct tag_reader *t = &p->tag;
    struct str key = str_trim(buf_str(&t->key));
    struct buf word = t->key;

    if (!key.n || !parser_call_has_argument(p, t->schema, key))
        return resume_value(p, 0);
    t->is_unclosed = false;
    close_value(p);
    buf_init(&t->key, PARSER_NAME_MAX);
    begin_value(p, key);
    buf_reset(&word);
    t->key = word;
    t->state = to;
    t->at = AHO_CORASICK_ROOT;
    if (is_value(to))
        open_value(p);
    return READ_MORE;
}

static enum verdict end_call(struct parser *p)
{
    struct tag_reader *t = &p->tag;

    t->state = TAG_DONE;
    if (t->is_unclosed)
        close_value(p);
    t->is_unclosed = false;
    if (t->has_params)
        buf_putc(&p->args, '}');
    return READ_CALL;
}

/* After the tag of the end of the call: the call has ended if only blanks follow, or a marker. */
static enum verdict read_pending(struct parser *p, struct str in, size_t *used)
{
    struct tag_reader *t = &p->tag;
    const struct aho_corasick *m = p->f->marks;

    for (size_t i = 0; i < in.n; i++) {
        char c = in.p[i];
        uint32_t next = aho_corasick_step(m, t->at, c);
        bool is_gap = t->at == AHO_CORASICK_ROOT && is_blank(c);
        if (!is_gap && aho_corasick_depth(m, next) != aho_corasick_depth(m, t->at) + 1) {
            *used = i;
            return resume_value(p, aho_corasick_depth(m, t->at));
        }
        buf_putc(&t->since, c);
        t->at = is_gap ? AHO_CORASICK_ROOT : next;
        int mark = is_gap ? -1 : aho_corasick_hit(m, next);
        if (mark < 0)
            continue;
        size_t n_since = t->since.n - t->n_end_tag;
        if (str_eq(p->f->texts[mark], (struct str){ t->since.p, t->n_end_tag })) {
            /* the same tag again: the first one is part of the value */
            value_put(p, (struct str){ t->since.p, n_since });
            t->since.n = t->n_end_tag;
            t->at = AHO_CORASICK_ROOT;
            continue;
        }
        *used = i + 1;
        t->next_mark = mark + 1;
        return end_call(p);
    }
    *used = in.n;
    return READ_MORE;
}

static enum verdict end_of_text(struct parser *p)
{
    return p->tag.state == TAG_PENDING ? end_call(p) : READ_BAD;
}

/* ---- edges ---- */

static enum verdict end_name(struct parser *p)
{
    struct str name = str_trim(buf_str(&p->tag.text));

    if (!parser_set_call_name(p, name))
        return READ_BAD;
    p->tag.schema = parser_call_schema(p);
    return READ_MORE;
}

static enum verdict begin_json_args(struct parser *p, struct str literal)
{
    enum walk_result result;

    json_walk_begin(&p->walk);
    if (str_is(literal, "{"))
        json_walk_put(&p->walk, literal, &p->args, &result);
    return READ_MORE;
}

/* The value begins with the tag of a CDATA section, or contains its text. */
static enum verdict begin_cdata(struct parser *p, struct str literal)
{
    struct tag_reader *t = &p->tag;

    t->at = AHO_CORASICK_ROOT;
    if (t->is_fresh) {
        t->is_fresh = false; /* newlines in the section are not layout */
        t->state = TAG_CDATA;
    } else {
        value_put(p, literal);
    }
    return READ_MORE;
}

/* The literal of an edge was read. */
static enum verdict follow_edge(struct parser *p, int edge)
{
    struct tag_reader *t = &p->tag;
    enum tag_state from = t->state, to = p->f->tag_to[from][edge];
    const char *text_name = p->f->tool->text_name;

    if (from == TAG_NAME && text_name && str_is(buf_str(&t->text), text_name))
        return READ_LEAVE; /* text follows, not a call */
    if (from == TAG_NAME && end_name(p) == READ_BAD)
        return READ_BAD;
    if (from == TAG_KEY && t->is_unclosed)
        return end_unclosed_key(p, to);
    if (to == TAG_CDATA)
        return begin_cdata(p, p->f->tag_texts[from][edge]);
    if (is_value(from) && (to == TAG_KEY || to == TAG_DONE)) {
        begin_unclosed(p, to, p->f->tag_texts[from][edge]);
        return READ_MORE;
    }
    if (from == TAG_KEY && !begin_value(p, buf_str(&t->text)))
        return READ_BAD;
    if (is_value(from))
        close_value(p);
    t->state = to;
    t->at = AHO_CORASICK_ROOT;
    t->has_blank = false;
    buf_reset(&t->text);
    if (is_value(to))
        open_value(p);
    if (to == TAG_JSON)
        return begin_json_args(p, p->f->tag_texts[from][edge]);
    return to == TAG_DONE ? end_call(p) : READ_MORE;
}

/* ---- the states ---- */

static bool word_allows(enum tag_state state, char c)
{
    if ((unsigned char)c < 0x20)
        return false;
    return state != TAG_NAME || !strchr(" <>{}[]()\"'", c);
}

/* Appends the first n bytes of `held` followed by c. */
static bool word_put(struct parser *p, struct str held, char c, size_t n)
{
    struct tag_reader *t = &p->tag;
    struct buf *word = t->is_unclosed ? &t->key : &t->text;

    for (size_t i = 0; i < n; i++) {
        char byte = i < held.n ? held.p[i] : c;
        if (t->state == TAG_NAME && is_blank(byte)) {
            t->has_blank = true;
            continue;
        }
        if (!word_allows(t->state, byte) || t->has_blank || word->n == PARSER_NAME_MAX)
            return false;
        buf_putc(word, byte);
    }
    return true;
}

/* A key after an unclosed value contains no '<', so the tags of the value are found in it. */
static bool is_possible_key(const struct tag_reader *t, const struct aho_corasick *m, char c)
{
    size_t depth = aho_corasick_depth(m, t->at),
           next = aho_corasick_depth(m, aho_corasick_step(m, t->at, c));

    return t->since.n < UNCLOSED_MAX && (depth ? next == depth + 1 : c != '<' || next);
}

/* Reads a name or key byte by byte, so that an invalid byte is found at its position. */
static enum verdict read_word(struct parser *p, struct str in, size_t *used)
{
    struct tag_reader *t = &p->tag;
    const struct aho_corasick *m = p->f->tags[t->state];

    for (size_t i = 0; i < in.n; i++) {
        char c = in.p[i];
        if (t->is_unclosed && !is_possible_key(t, m, c)) {
            *used = i;
            return resume_value(p, aho_corasick_depth(m, t->at));
        }
        if (t->is_unclosed)
            buf_putc(&t->since, c);
        bool is_begun = t->is_unclosed ? t->key.n > 0 : t->text.n > 0;
        if (t->at == AHO_CORASICK_ROOT && !is_begun && is_blank(c))
            continue;
        uint32_t next = aho_corasick_step(m, t->at, c);
        int hit = aho_corasick_hit(m, next);
        struct str held = aho_corasick_held(m, t->at);
        size_t keep = hit >= 0 ? m->strings[hit].n : aho_corasick_depth(m, next);
        if (!word_put(p, held, c, held.n + 1 - keep)) {
            *used = t->is_unclosed ? i + 1 : i;
            return t->is_unclosed ? resume_value(p, 0) : READ_BAD;
        }
        t->at = next;
        if (hit >= 0) {
            *used = i + 1;
            return follow_edge(p, hit);
        }
    }
    *used = in.n;
    return READ_MORE;
}

static void text_put(struct parser *p, struct str piece)
{
    if (p->tag.state != TAG_SKIP)
        value_put(p, piece);
}

static void text_release(struct parser *p, uint32_t held, struct str text, size_t keep)
{
    struct str old = aho_corasick_held(p->f->tags[p->tag.state], held);
    size_t n = old.n + text.n - keep;

    text_put(p, (struct str){ old.p, MIN(n, old.n) });
    if (n > old.n)
        text_put(p, (struct str){ text.p, n - old.n });
}

static enum verdict read_text(struct parser *p, struct str in, size_t *used)
{
    struct tag_reader *t = &p->tag;
    const struct aho_corasick *m = p->f->tags[t->state];
    uint32_t at = t->at;
    int hit;

    *used = in.n = aho_corasick_find(m, &at, in, &hit);
    if (hit >= 0) {
        text_release(p, t->at, in, m->strings[hit].n);
        return follow_edge(p, hit);
    }
    text_release(p, t->at, in, aho_corasick_depth(m, at));
    t->at = at;
    return READ_MORE;
}

/* Skips blanks, then requires one of the literals. */
static enum verdict read_gap(struct parser *p, struct str in, size_t *used)
{
    struct tag_reader *t = &p->tag;
    const struct aho_corasick *m = p->f->tags[t->state];

    for (size_t i = 0; i < in.n; i++) {
        if (t->at == AHO_CORASICK_ROOT && is_blank(in.p[i]))
            continue;
        uint32_t next = aho_corasick_step(m, t->at, in.p[i]);
        if (aho_corasick_depth(m, next) != aho_corasick_depth(m, t->at) + 1) {
            *used = i;
            return READ_BAD;
        }
        t->at = next;
        if (aho_corasick_hit(m, next) >= 0) {
            *used = i + 1;
            return follow_edge(p, aho_corasick_hit(m, next));
        }
    }
    *used = in.n;
    return READ_MORE;
}

static enum verdict read_args(struct parser *p, struct str in, size_t *used)
{
    enum walk_result result;

    *used = json_walk_put(&p->walk, in, &p->args, &result);
    if (result == WALK_BAD)
        return READ_BAD;
    if (result == WALK_MORE)
        return READ_MORE;
    p->tag.state = TAG_DONE;
    return READ_CALL;
}

static enum verdict read_tags(struct parser *p, struct str in, size_t *used)
{
    switch (p->tag.state) {
    case TAG_NAME:
    case TAG_KEY:
        return read_word(p, in, used);
    case TAG_VALUE:
    case TAG_STRING:
    case TAG_ANY:
    case TAG_CDATA:
    case TAG_SKIP:
        return read_text(p, in, used);
    case TAG_GAP:
    case TAG_MID:
    case TAG_ARGS:
    case TAG_HEAD:
        return read_gap(p, in, used);
    case TAG_JSON:
        return read_args(p, in, used);
    case TAG_PENDING:
        return read_pending(p, in, used);
    case TAG_DONE:
    case N_TAG_STATES:
        break;
    }
    *used = 0;
    return READ_LEAVE;
}

static bool is_walking(const struct parser *p)
{
    return p->tag.state == TAG_JSON;
}

const struct body_reader reader_tags = { begin_reader, read_tags, is_walking, end_of_text };
