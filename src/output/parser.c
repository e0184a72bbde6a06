#include "base/mem.h"
#include "base/utf8.h"
#include "output/parser_in.h"

/* ---- output ---- */

/* Removes characters that would complete a marker in the reported text. A marker can form where
 * another one was removed, as in <too<tool_call>l_call>. Returns the new length. */
static size_t strip_formed_markers(struct parser *p, enum output_stream_id id, char *text, size_t n)
{
    static const unsigned char length[16] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4 };
    const struct aho_corasick *m = p->f->marks;
    uint16_t at = p->streams[id].guard_state;
    size_t to = 0, i = 0;

    p->work += n;
    if (at == AHO_CORASICK_ROOT) {
        i = to = (size_t)(aho_corasick_skip(m, text, text + n) - text);
        if (i == n)
            return n;
    }
    while (i < n) {
        size_t len = 0;
        uint16_t next = at;
        bool is_marker = false;
        if (at == AHO_CORASICK_ROOT)
            len = (size_t)(aho_corasick_skip(m, text + i, text + n) - (text + i));
        if (!len) {
            len = MIN((size_t)length[(unsigned char)text[i] >> 4], n - i);
            for (size_t k = 0; k < len; k++) {
                next = aho_corasick_step(m, next, text[i + k]);
                int hit = aho_corasick_hit(m, next);
                is_marker |= hit >= 0 && !(p->f->rows[hit].flags & MARK_SOFT) &&
                             (id == CONTENT || !p->f->is_tool[hit]);
            }
        }
        if (!is_marker) {
            if (to < i)
                memmove(text + to, text + i, len);
            to += len;
            at = next;
        }
        i += len;
    }
    p->streams[id].guard_state = at;
    return to;
}

bool parser_is_full(const struct parser *p)
{
    return p->max_calls > 0 && p->n_complete >= p->max_calls;
}

static void emit(struct parser *p, enum output_stream_id id, struct str text)
{
    void (*report)(void *, int, struct str) = id == CONTENT ? p->ops->content : p->ops->reasoning;

    if (report && !parser_is_full(p))
        report(p->ctx, p->choice, text);
}

static void emit_text(struct parser *p)
{
    struct buf *b = &p->out;

    if (!b->n || !buf_ok(b))
        return;
    b->n = strip_formed_markers(p, p->out_stream, b->p, b->n);
    if (b->n)
        emit(p, p->out_stream, buf_str(b));
    buf_reset(b);
}

static void out_append(struct parser *p, enum output_stream_id id, struct str text)
{
    if (p->out_stream != id)
        emit_text(p);
    p->out_stream = id;
    buf_puts(&p->out, text);
    p->work += text.n;
}

static void stream_put(struct parser *p, enum output_stream_id id, struct str text)
{
    struct output_stream *s = &p->streams[id];
    size_t n = text.n, from = 0;

    while (s->after_mark && from < n && is_blank(text.p[from]))
        from++;
    if (s->keeps_blanks && s->after_mark)
        buf_put(&s->blanks, text.p, from);
    text = str_skip(text, from);
    for (n = text.n; n && is_blank(text.p[n - 1]);)
        n--;
    p->work += from + text.n - n;
    if (n) {
        if (s->blanks.n)
            out_append(p, id, buf_str(&s->blanks));
        else if (s->needs_newline && s->has_text)
            out_append(p, id, STR("\n"));
        buf_reset(&s->blanks);
        out_append(p, id, (struct str){ text.p, n });
        s->has_text = true;
        s->after_mark = s->needs_newline = false;
        if (id == CONTENT)
            p->is_start = false;
    }
    buf_puts(&s->blanks, str_skip(text, n));
}

/* Whitespace next to a marker counts only between two texts, and then only on one side. */
static void streams_after_marker(struct parser *p)
{
    for (int i = 0; i < N_STREAMS; i++) {
        struct output_stream *s = &p->streams[i];
        if (!s->has_text)
            buf_reset(&s->blanks);
        s->keeps_blanks = s->has_text && !s->blanks.n;
        s->after_mark = true;
    }
}

void parser_begin_message(struct parser *p, enum output_stream_id stream)
{
    p->in_reasoning = stream == REASONING;
    p->streams[stream].needs_newline = true;
    streams_after_marker(p);
}

/* ---- calls ---- */

static struct str without_suffix(struct str name, const char *suffix)
{
    size_t n = name.n;

    if (!suffix)
        return name;
    if (strcmp(suffix, ":")) {
        struct str s = str_of(suffix);
        return str_ends(name, s) && name.n > s.n ? (struct str){ name.p, name.n - s.n } : name;
    }
    while (n && name.p[n - 1] >= '0' && name.p[n - 1] <= '9')
        n--;
    return n > 1 && n < name.n && name.p[n - 1] == ':' ? (struct str){ name.p, n - 1 } : name;
}

static bool is_callable(struct parser *p, struct str name)
{
    for (int i = 0; i < p->n_names; i++)
        if (str_eq(p->names[i], name))
            return true;
    return p->n_names == 0;
}

bool parser_set_call_name(struct parser *p, struct str name)
{
    const struct tool_format *row = p->f->tool;

    name = str_trim(name);
    if (row->prefix && row->body != BODY_PYTHON && str_starts(name, str_of(row->prefix)))
        name = str_skip(name, strlen(row->prefix));
    name = without_suffix(name, row->suffix);
    if (!name.n || name.n > PARSER_NAME_MAX || p->call.has_name)
        return false;
    for (size_t i = 0; i < name.n; i++)
        if ((unsigned char)name.p[i] < 0x20)
            return false;
    if (!is_callable(p, name))
        return false;
    memcpy(p->call.name, name.p, name.n);
    p->call.n_name = name.n;
    p->call.has_name = true;
    return true;
}

/* Each lookup is charged with its maximum cost, the length of the tools as JSON text. */
static bool may_look_up_schema(struct parser *p)
{
    if (!p->tools || p->schema_bytes >= PARSER_SCHEMA_MAX)
        return false;
    p->schema_bytes += p->tools->raw.n;
    return true;
}

const struct json *parser_call_schema(struct parser *p)
{
    struct str name = { p->call.name, p->call.n_name };

    return may_look_up_schema(p) ? tool_schema(p->tools, name) : NULL;
}

unsigned parser_call_argument_types(
    struct parser *p, const struct json *schema, struct str argument)
{
    return schema && may_look_up_schema(p) ? tool_argument_types(schema, argument) : 0;
}

struct str parser_call_argument_name(struct parser *p, const struct json *schema, uint32_t i)
{
    return schema && may_look_up_schema(p) ? tool_argument_name(schema, i) : STR_NONE;
}

static void report_args(struct parser *p, struct str json)
{
    if (p->ops->call_args)
        p->ops->call_args(p->ctx, p->choice, p->call.index, json);
}

static void emit_args(struct parser *p)
{
    if (p->call.is_reported && p->args.n && buf_ok(&p->args)) {
        report_args(p, buf_str(&p->args));
        buf_reset(&p->args);
    }
}

/* Reports the call as soon as its name and the first byte of its arguments are known. */
static void call_emit_begin(struct parser *p)
{
    struct parser_call *c = &p->call;

    c->has_args |= p->args.n > 0;
    if (c->is_reported || !c->has_name || !c->has_args || parser_is_full(p))
        return;
    emit_text(p);
    c->is_reported = true;
    c->index = p->n_begun++;
    if (p->ops->call_begin)
        p->ops->call_begin(p->ctx, p->choice, c->index, (struct str){ c->name, c->n_name });
}

static void call_clear(struct parser *p)
{
    p->call.n_name = 0;
    p->call.has_name = p->call.has_args = p->call.is_reported = false;
    buf_reset(&p->raw);
    buf_reset(&p->args);
    p->is_between = false;
}

static void call_end(struct parser *p)
{
    p->call.has_args |= p->args.n > 0;
    if (!p->call.has_args)
        buf_putz(&p->args, "{}");
    call_emit_begin(p);
    emit_args(p);
    if (p->call.is_reported) {
        if (p->ops->call_end)
            p->ops->call_end(p->ctx, p->choice, p->call.index);
        p->n_complete++;
    }
    call_clear(p);
    p->is_between = true;
    streams_after_marker(p);
}

/* ---- text ---- */

/* Passes on the bytes held in matcher state `held`, followed by text, except the last `keep`. */
static void release_held(struct parser *p, uint16_t held, struct str text, size_t keep)
{
    struct str old = aho_corasick_held(p->f->marks, held);
    size_t n = old.n + text.n - keep;
    enum output_stream_id id = p->in_reasoning ? REASONING : CONTENT;

    if (n > 0 && old.n)
        stream_put(p, id, (struct str){ old.p, MIN(n, old.n) });
    if (n > old.n)
        stream_put(p, id, (struct str){ text.p, n - old.n });
    p->work += text.n;
}

static void call_open(
    struct parser *p, const struct body_reader *reader, const struct marker *opener)
{
    call_clear(p);
    p->opener = opener ? opener->text : STR("");
    if (opener && opener->flags & MARK_SOFT)
        buf_puts(&p->raw, opener->text);
    p->in_call = true;
    p->reader = reader;
    reader->begin(p);
}

static bool is_active(const struct parser *p, int hit)
{
    const struct marker *r = &p->f->rows[hit];

    if (r->flags & MARK_IN_SECTION && !p->in_section)
        return false;
    if (!p->in_reasoning || !p->f->is_tool[hit] || p->f->reasoning->flags & REASONING_IS_CHANNEL)
        return true;
    return p->f->reasoning->flags & REASONING_CALL_ENDS &&
           (r->kind == MARK_OPEN || r->kind == MARK_SECTION);
}

static void apply_marker(struct parser *p, int hit)
{
    const struct marker *r = &p->f->rows[hit];
    bool is_soft = r->flags & MARK_SOFT;

    if (!is_soft)
        streams_after_marker(p);
    switch (r->kind) {
    case MARK_SECTION:
    case MARK_SECTION_END:
        p->in_section = r->kind == MARK_SECTION;
        p->in_reasoning = false;
        break;
    case MARK_REASONING:
        if (!p->in_reasoning)
            parser_begin_message(p, REASONING);
        break;
    case MARK_REASONING_END:
        p->in_reasoning = false;
        break;
    case MARK_HEADER:
    case MARK_OPEN:
        if (r->kind == MARK_OPEN)
            p->in_reasoning = false;
        if (r->kind == MARK_HEADER)
            call_open(p, &reader_channels, r);
        else if (p->n_begun < PARSER_CALLS_MAX)
            call_open(p, p->f->reader, r);
        else if (is_soft)
            stream_put(p, CONTENT, r->text);
        break;
    case MARK_MESSAGE_END:
        p->in_reasoning = false;
        p->streams[CONTENT].needs_newline = true;
        break;
    case MARK_DROP:
        break;
    }
}

/* True if a call without a marker may begin with c. */
static bool starts_call(struct parser *p, char c)
{
    const char *start_bytes = p->f->tool->start_bytes;

    return start_bytes &&
           (p->f->tool->flags & TOOL_START_IS_CALL ? !p->f->marks->starts[(unsigned char)c]
                                                   : c && strchr(start_bytes, c)) &&
           p->n_begun < PARSER_CALLS_MAX;
}

static size_t text_start(struct parser *p, struct str in)
{
    size_t n = 0;

    while (n < in.n && is_blank(in.p[n]))
        n++;
    if (n) {
        stream_put(p, CONTENT, (struct str){ in.p, n });
    } else if (starts_call(p, in.p[0])) {
        /* with TOOL_START_IS_CALL only the first call may begin without a marker */
        p->is_start = !(p->f->tool->flags & TOOL_START_IS_CALL);
        call_open(p, p->f->reader, NULL);
    }
    return n;
}

static size_t text_run(struct parser *p, struct str in)
{
    const struct aho_corasick *m = p->f->marks;
    uint16_t at = p->at;

    if (p->is_start && p->f->tool->start_bytes && at == AHO_CORASICK_ROOT && !p->in_reasoning) {
        size_t n = text_start(p, in);
        if (n || p->in_call)
            return n;
    }
    for (size_t i = 0; i < in.n;) {
        if (at == AHO_CORASICK_ROOT) {
            i = (size_t)(aho_corasick_skip(m, in.p + i, in.p + in.n) - in.p);
            if (i == in.n)
                break;
        }
        at = aho_corasick_step(m, at, in.p[i++]);
        int hit = aho_corasick_hit(m, at);
        if (hit < 0 || !is_active(p, hit))
            continue;
        release_held(p, p->at, (struct str){ in.p, i }, p->f->texts[hit].n);
        p->at = AHO_CORASICK_ROOT;
        apply_marker(p, hit);
        return i;
    }
    release_held(p, p->at, in, aho_corasick_depth(m, at));
    p->at = at;
    return in.n;
}

/* The bytes of a broken call become text: markers in them are removed without effect. The matcher
 * keeps its state, since a marker may be completed by the bytes that follow. */
static void replay_as_text(struct parser *p, struct str raw)
{
    const struct aho_corasick *m = p->f->marks;
    uint16_t at = AHO_CORASICK_ROOT;

    p->at = AHO_CORASICK_ROOT;
    for (size_t i = 0, from = 0; from < raw.n; from = i) {
        int hit = -1;
        while (i < raw.n && hit < 0) {
            at = aho_corasick_step(m, at, raw.p[i++]);
            hit = aho_corasick_hit(m, at);
            if (hit >= 0 && p->f->rows[hit].flags & MARK_SOFT)
                hit = -1;
        }
        size_t keep = hit >= 0 ? p->f->texts[hit].n : aho_corasick_depth(m, at);
        release_held(p, p->at, (struct str){ raw.p + from, i - from }, keep);
        if (hit >= 0) {
            at = AHO_CORASICK_ROOT;
            streams_after_marker(p);
        }
        p->at = at;
    }
}

static void call_break(struct parser *p)
{
    struct buf raw = p->raw;

    call_emit_begin(p);
    emit_args(p);
    if (p->call.is_reported) {
        if (p->ops->call_broken)
            p->ops->call_broken(p->ctx, p->choice, p->call.index);
        p->n_broken++;
    }
    buf_init(&p->raw, PARSER_CALL_MAX);
    call_clear(p);
    p->in_call = false;
    p->is_start = false;
    replay_as_text(p, buf_str(&raw));
    buf_reset(&raw);
    p->raw = raw;
}

static size_t call_run(struct parser *p, struct str in)
{
    size_t used = 0;
    enum verdict v = READ_BAD;

    in.n = MIN(in.n, p->raw.max - p->raw.n);
    if (in.n)
        v = p->reader->read(p, in, &used);
    buf_put(&p->raw, in.p, used);
    if (p->drop_raw)
        buf_reset(&p->raw);
    p->drop_raw = false;
    switch (v) {
    case READ_MORE:
        call_emit_begin(p);
        break;
    case READ_CALL:
        call_end(p);
        if (p->n_begun < PARSER_CALLS_MAX)
            break;
        /* fallthrough */
    case READ_LEAVE:
        call_clear(p);
        p->in_call = false;
        break;
    case READ_BAD:
        call_break(p);
        break;
    }
    return used;
}

/* ---- lifecycle ---- */

struct parser *parser_new(const struct parser_format *f, const struct parser_options *o,
    const struct output_ops *ops, void *ctx)
{
    struct parser *p = try_calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    p->f = f;
    p->ops = ops;
    p->ctx = ctx;
    p->choice = o ? o->choice : 0;
    p->max_calls = o ? o->max_calls : 0;
    p->tools = o ? o->tools : NULL;
    p->names = o ? o->names : NULL;
    p->n_names = o ? o->n_names : 0;
    enum parser_start start = o ? o->start : PARSER_START_DEFAULT;
    p->in_reasoning = start == PARSER_START_DEFAULT ? (f->reasoning->flags & REASONING_STARTS) != 0
                                                    : start == PARSER_START_REASONING;
    p->is_start = true;
    p->streams[REASONING].after_mark = p->in_reasoning;
    for (int i = 0; i < N_STREAMS; i++)
        buf_init(&p->streams[i].blanks, PARSER_TEXT_MAX);
    buf_init(&p->out, PARSER_TEXT_MAX);
    buf_init(&p->raw, PARSER_CALL_MAX);
    buf_init(&p->args, PARSER_TEXT_MAX);
    buf_init(&p->scratch, PARSER_TEXT_MAX);
    buf_init(&p->json.word, PARSER_NAME_MAX * 4);
    buf_init(&p->tag.text, PARSER_CALL_MAX);
    buf_init(&p->channel.header, PARSER_NAME_MAX * 4);
    json_walk_init(&p->walk);
    literal_init(&p->python.literal, f->tool->quote, f->tool->quote.n > 0);
    return p;
}

void parser_free(struct parser *p)
{
    if (!p)
        return;
    for (int i = 0; i < N_STREAMS; i++)
        buf_clear(&p->streams[i].blanks);
    buf_clear(&p->out);
    buf_clear(&p->raw);
    buf_clear(&p->args);
    buf_clear(&p->scratch);
    buf_clear(&p->json.word);
    buf_clear(&p->tag.text);
    buf_clear(&p->channel.header);
    json_walk_clear(&p->walk);
    literal_clear(&p->python.literal);
    mem_free(p);
}

static void put_valid(struct parser *p, struct str in)
{
    while (in.n) {
        size_t used = p->in_call ? call_run(p, in) : text_run(p, in);
        p->work += used + 1;
        in = str_skip(in, used);
    }
}

/* Replaces invalid bytes by U+FFFD. Returns the incomplete character at the end. */
static struct str put_utf8(struct parser *p, struct str in)
{
    size_t n = 0;

    while (n < in.n) {
        uint32_t cp;
        if (!(in.p[n] & 0x80)) {
            n++;
            continue;
        }
        int len = utf8_decode(str_skip(in, n), &cp);
        if (len > 0) {
            n += (size_t)len;
            continue;
        }
        put_valid(p, (struct str){ in.p, n });
        in = str_skip(in, n + (len == 0));
        n = 0;
        if (len < 0)
            return in;
        put_valid(p, UTF8_REPLACEMENT);
    }
    put_valid(p, in);
    return STR("");
}

static bool has_failed(const struct parser *p)
{
    return p->out.failed | p->args.failed | p->raw.failed | p->scratch.failed | p->tag.text.failed |
           p->streams[CONTENT].blanks.failed | p->streams[REASONING].blanks.failed;
}

static int after_put(struct parser *p, struct err *e)
{
    const struct buf *bufs[] = { &p->out, &p->args, &p->raw, &p->scratch, &p->tag.text,
        &p->streams[CONTENT].blanks, &p->streams[REASONING].blanks };

    emit_text(p);
    emit_args(p);
    if (!has_failed(p))
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(bufs); i++)
        if (bufs[i]->failed)
            return bufs[i]->n < bufs[i]->max / 2
                       ? err_set(e, ERR_MEMORY, "no memory for a response")
                       : err_set(e, ERR_TOO_LARGE, "the output is too long to be parsed");
    return 0;
}

/* Length of the first character of s; 0 if it is incomplete or invalid. */
static size_t whole_char(struct str s)
{
    uint32_t cp;
    int n = (*s.p & 0x80) ? utf8_decode(s, &cp) : 1;

    return n > 0 ? (size_t)n : 0;
}

static bool is_plain(const struct aho_corasick *m, struct str text)
{
    for (size_t i = 0, n; i < text.n; i += n) {
        n = whole_char(str_skip(text, i));
        if (!n || m->starts[(unsigned char)text.p[i]])
            return false;
    }
    return true;
}

/* Fast path for most tokens: plain text without the first byte of a marker and without incomplete
 * characters. It is reported unchanged, with the result of the general path. False: the caller must
 * use the general path. */
static bool put_plain(struct parser *p, struct str text)
{
    enum output_stream_id id = p->in_reasoning ? REASONING : CONTENT;
    struct output_stream *s = &p->streams[id];
    const struct aho_corasick *m = p->f->marks;
    size_t n = text.n;

    if (p->in_call || p->n_tail || p->at != AHO_CORASICK_ROOT ||
        s->guard_state != AHO_CORASICK_ROOT || p->out.n)
        return false;
    if (s->after_mark || s->needs_newline || (s->blanks.n && m->starts_blank) ||
        (p->is_start && p->f->tool->start_bytes && !p->in_reasoning))
        return false;
    if (!is_plain(m, text))
        return false;
    while (n && is_blank(text.p[n - 1]))
        n--;
    p->work += 2 * text.n;
    s->has_text |= n > 0;
    p->is_start &= n == 0 || id != CONTENT;
    if (n && s->blanks.n) {
        buf_put(&s->blanks, text.p, n);
        if (!buf_ok(&s->blanks))
            return true; /* the buffer stays failed */
        emit(p, id, buf_str(&s->blanks));
        buf_reset(&s->blanks);
    } else if (n) {
        emit(p, id, (struct str){ text.p, n });
    }
    buf_put(&s->blanks, text.p + n, text.n - n);
    return true;
}

/* Text inside a JSON string: whole characters, and whole escapes that are copied unchanged. */
static bool is_plain_json(struct str text)
{
    for (size_t i = 0, n; i < text.n; i += n) {
        unsigned char c = (unsigned char)text.p[i];
        n = whole_char(str_skip(text, i));
        if (c == '\\')
            n = i + 1 < text.n && json_escape_of(text.p[i + 1]) ? 2 : 0;
        if (!n || c < 0x20 || c == '"')
            return false;
    }
    return true;
}

/* Fast path inside a string of a call's arguments. */
static bool put_plain_args(struct parser *p, struct str text)
{
    if (!p->call.is_reported || !p->reader->is_walking || !p->reader->is_walking(p) || p->n_tail ||
        p->args.n || !json_walk_in_text(&p->walk) || text.n >= p->raw.max - p->raw.n)
        return false;
    if (!is_plain_json(text))
        return false;
    p->work += text.n;
    buf_puts(&p->raw, text);
    report_args(p, text);
    return true;
}

int parser_put(struct parser *p, struct str text, struct err *e)
{
    if (!text.n)
        return 0;
    if (p->in_call ? put_plain_args(p, text) : put_plain(p, text))
        return has_failed(p) ? after_put(p, e) : 0;
    while (p->n_tail && text.n) { /* at most three bytes until the character is complete */
        p->tail[p->n_tail++] = text.p[0];
        text = str_skip(text, 1);
        struct str rest = put_utf8(p, (struct str){ p->tail, p->n_tail });
        p->n_tail = rest.n;
        if (rest.n && rest.p != p->tail)
            memmove(p->tail, rest.p, rest.n);
    }
    struct str rest = put_utf8(p, text);
    if (rest.n) {
        memcpy(p->tail, rest.p, rest.n);
        p->n_tail = rest.n;
    }
    return after_put(p, e);
}

int parser_end(struct parser *p, struct err *e)
{
    if (p->n_tail)
        put_valid(p, UTF8_REPLACEMENT);
    p->n_tail = 0;
    if (p->in_call && !p->is_between)
        call_break(p);
    p->in_call = false;
    release_held(p, p->at, STR(""), 0);
    p->at = AHO_CORASICK_ROOT;
    for (int i = 0; i < N_STREAMS; i++)
        if (!p->streams[i].after_mark && p->streams[i].blanks.n)
            out_append(p, (enum output_stream_id)i, buf_str(&p->streams[i].blanks));
    return after_put(p, e);
}

bool parser_in_reasoning(const struct parser *p)
{
    return p->in_reasoning;
}

int parser_n_calls(const struct parser *p)
{
    return p->n_complete;
}

int parser_n_broken_calls(const struct parser *p)
{
    return p->n_broken;
}

uint64_t parser_work(const struct parser *p)
{
    return p->work;
}
