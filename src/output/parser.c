#include "base/mem.h"
#include "base/utf8.h"
#include "output/parser_in.h"

/* ---- output ---- */

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

static void stream_put(struct parser *p, enum output_stream_id id, struct str text);

static void flush_section(struct parser *p)
{
    struct buf section = p->section;

    buf_init(&p->section, PARSER_TEXT_MAX);
    stream_put(p, CONTENT, buf_str(&section));
    buf_reset(&section);
    p->section = section;
}

static void stream_put(struct parser *p, enum output_stream_id id, struct str text)
{
    struct output_stream *s = &p->streams[id];
    size_t n = text.n, from = 0;

    if (id == CONTENT && p->section.n) {
        if (!str_trim(text).n) {
            buf_puts(&p->section, text);
            return;
        }
        flush_section(p);
    }
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
            p->is_start = p->is_after_call = false;
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

/* Each lookup is charged with its maximum cost, the length of the tools as JSON text. */
static bool may_look_up_schema(struct parser *p)
{
    if (!p->tools || p->schema_bytes >= PARSER_SCHEMA_MAX)
        return false;
    p->schema_bytes += p->tools->raw.n;
    return true;
}

static bool is_callable(struct parser *p, struct str name)
{
    if ((p->is_trial || parser_call_is_bare(p)) && p->tools && !p->n_names)
        return may_look_up_schema(p) && tool_is_known(p->tools, name);
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

/* True if the schema has the argument, or does not list its arguments. */
bool parser_call_has_argument(struct parser *p, const struct json *schema, struct str argument)
{
    return !schema || (may_look_up_schema(p) && tool_has_argument(schema, argument));
}

struct str parser_call_argument_name(struct parser *p, const struct json *schema, uint32_t i)
{
    return schema && may_look_up_schema(p) ? tool_argument_name(schema, i) : STR_NONE;
}

unsigned parser_call_types(struct parser *p, const struct json *root, const struct json *schema)
{
    return schema && may_look_up_schema(p) ? schema_types(root, schema) : 0;
}

const struct json *parser_call_child_schema(struct parser *p, const struct json *root,
    const struct json *schema, struct str name, bool is_item)
{
    return schema && may_look_up_schema(p) ? schema_child(root, schema, name, is_item) : NULL;
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
    buf_reset(&p->section);
    if (p->call.is_reported) {
        if (p->ops->call_end)
            p->ops->call_end(p->ctx, p->choice, p->call.index);
        p->n_complete++;
    }
    call_clear(p);
    p->is_between = p->is_after_call = true;
    streams_after_marker(p);
}

/* ---- text ---- */

/* Passes on the bytes held in matcher state `held`, followed by text, except the last `keep`. */
static void release_held(struct parser *p, uint32_t held, struct str text, size_t keep)
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
    if (opener && opener->kind == MARK_OPEN)
        buf_puts(&p->raw, opener->text);
    p->in_call = true;
    p->reader = reader;
    reader->begin(p);
}

/* True if the marker counts at this place; otherwise it is text. */
static bool is_active(const struct parser *p, int mark)
{
    const struct marker *r = &p->f->rows[mark];
    bool has_content = p->streams[CONTENT].has_text || p->section.n;

    if (r->flags & MARK_IN_SECTION && !p->in_section)
        return false;
    switch (r->kind) {
    case MARK_REASONING:
        return p->in_reasoning ? p->streams[REASONING].after_mark : !has_content;
    case MARK_REASONING_END:
        return p->in_reasoning || !has_content;
    case MARK_ANSWER:
        return !p->in_reasoning && !has_content;
    case MARK_ANSWER_END:
        return !p->in_reasoning && p->in_answer;
    case MARK_CLOSE:
    case MARK_SECTION_END:
        return !p->in_reasoning && p->is_after_call;
    case MARK_OPEN:
    case MARK_SECTION:
        return !p->in_reasoning || p->f->reasoning->flags & REASONING_CALL_ENDS;
    case MARK_DROP:
        return !p->in_reasoning || !p->f->is_tool[mark] ||
               p->f->reasoning->flags & REASONING_IS_CHANNEL;
    case MARK_HEADER:
    case MARK_MESSAGE_END:
        break;
    }
    return true;
}

static void apply_marker(struct parser *p, int mark)
{
    const struct marker *r = &p->f->rows[mark];

    if (r->kind != MARK_OPEN && r->kind != MARK_SECTION)
        streams_after_marker(p);
    switch (r->kind) {
    case MARK_OPEN:
        p->in_reasoning = false;
        if (p->n_begun < PARSER_CALLS_MAX)
            call_open(p, p->f->reader, r);
        else
            stream_put(p, CONTENT, r->text);
        break;
    case MARK_SECTION:
        p->in_section = true;
        p->in_reasoning = false;
        buf_puts(&p->section, r->text);
        break;
    case MARK_SECTION_END:
        p->in_section = false;
        break;
    case MARK_REASONING:
        p->is_after_call = false;
        if (!p->in_reasoning)
            parser_begin_message(p, REASONING);
        break;
    case MARK_REASONING_END:
        p->in_reasoning = false;
        p->has_reasoning_end = true;
        break;
    case MARK_ANSWER:
    case MARK_ANSWER_END:
        p->in_answer = r->kind == MARK_ANSWER;
        break;
    case MARK_HEADER:
        call_open(p, &reader_channels, r);
        break;
    case MARK_MESSAGE_END:
        p->in_reasoning = false;
        p->streams[CONTENT].needs_newline = true;
        break;
    case MARK_CLOSE:
    case MARK_DROP:
        break;
    }
}

/* A marker was read in the text; the text before it was passed on. */
static void put_marker(struct parser *p, int mark)
{
    if (parser_trial_begins(p, mark))
        parser_trial_begin(p, p->f->texts[mark]);
    else if (is_active(p, mark))
        apply_marker(p, mark);
    else
        stream_put(p, p->in_reasoning ? REASONING : CONTENT, p->f->texts[mark]);
}

/* Passes on text up to the first marker. Returns the bytes read. */
static size_t text_until_marker(struct parser *p, struct str in)
{
    const struct aho_corasick *m = p->f->marks;
    uint32_t at = p->at;
    int mark;
    size_t n = aho_corasick_find(m, &at, in, &mark);

    in.n = n;
    if (mark < 0) {
        release_held(p, p->at, in, aho_corasick_depth(m, at));
        p->at = at;
    } else {
        release_held(p, p->at, in, p->f->texts[mark].n);
        p->at = AHO_CORASICK_ROOT;
        put_marker(p, mark);
    }
    return n;
}

/* ---- calls without a marker ---- */

static void note_text(struct text_context *c, struct str text)
{
    size_t n = text.n;

    if (!n)
        return;
    while (n && is_blank(text.p[n - 1]))
        n--;
    if (n) {
        c->visible = text.p[n - 1];
        c->before_visible = n > 1 ? text.p[n - 2] : c->last;
        c->is_line_start = false;
    }
    for (size_t i = n; i < text.n; i++)
        c->is_line_start |= text.p[i] == '\n';
    c->last = text.p[text.n - 1];
}

/* A call without a marker may begin a line or follow a sentence. A colon after a quotation mark is
 * the colon of a JSON object. */
static bool may_begin_call(const struct text_context *c)
{
    bool is_json_key = c->visible == ':' && c->before_visible == '"';

    return c->is_line_start ||
           (is_blank(c->last) && c->visible && strchr(".:!?", c->visible) && !is_json_key);
}

static bool is_start_byte(const struct parser *p, char c)
{
    return c && strchr(p->f->tool->start_bytes, c);
}

static bool has_start_byte(const struct parser *p, struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        if (is_start_byte(p, text.p[i]))
            return true;
    return false;
}

/* Returns the offset of the first byte with which a call may begin; in.n if there is none. */
static size_t find_bare_call(const struct parser *p, struct str in)
{
    struct text_context context = p->context;
    bool is_first = p->is_start || p->is_after_call; /* only blanks since the start or a call */
    size_t from = 0;

    for (size_t i = 0; i < in.n; i++) {
        if (is_start_byte(p, in.p[i])) {
            note_text(&context, (struct str){ in.p + from, i - from });
            from = i;
            if (is_first || may_begin_call(&context))
                return i;
        }
        is_first &= is_blank(in.p[i]);
    }
    return in.n;
}

/* Text of a format whose calls have no markers. */
static size_t bare_text_run(struct parser *p, struct str in)
{
    enum { SCAN_MAX = 64 }; /* a marker can follow: the text after it is scanned again */

    in.n = MIN(in.n, (size_t)SCAN_MAX);
    size_t n = p->n_begun < PARSER_CALLS_MAX ? find_bare_call(p, in) : in.n;
    p->work += n;
    if (n) {
        size_t used = text_until_marker(p, (struct str){ in.p, n });
        note_text(&p->context, (struct str){ in.p, used });
        return used;
    }
    release_held(p, p->at, STR(""), 0);
    p->at = AHO_CORASICK_ROOT;
    call_open(p, p->f->reader, NULL);
    return 0;
}

/* The first call of a format whose calls have markers begins the content without one. */
static size_t text_start(struct parser *p, struct str in)
{
    bool is_any = p->f->tool->flags & TOOL_START_IS_CALL;
    bool is_header = p->f->tool->flags & TOOL_START_IS_HEADER;
    size_t n = 0;

    while (n < in.n && is_blank(in.p[n]))
        n++;
    if (n) {
        stream_put(p, CONTENT, (struct str){ in.p, n });
    } else if (is_any ? !p->f->marks->starts[(unsigned char)in.p[0]] : is_start_byte(p, in.p[0])) {
        /* with TOOL_START_IS_CALL only the first call may begin without a marker */
        p->is_start = !is_any;
        call_open(p, is_header ? &reader_channels : p->f->reader, NULL);
    }
    return n;
}

static size_t text_run(struct parser *p, struct str in)
{
    if (p->in_reasoning || !p->f->tool->start_bytes)
        return text_until_marker(p, in);
    if (p->is_bare_format)
        return bare_text_run(p, in);
    if (p->is_start && p->at == AHO_CORASICK_ROOT && p->n_begun < PARSER_CALLS_MAX) {
        size_t n = text_start(p, in);
        if (n || p->in_call)
            return n;
    }
    return text_until_marker(p, in);
}

/* ---- reading a call ---- */

/* The bytes of a broken call become text, with their markers. The matcher keeps its state, since a
 * marker may be completed by the bytes that follow. */
static void replay_as_text(struct parser *p, struct str raw)
{
    const struct aho_corasick *m = p->f->marks;
    uint32_t at = AHO_CORASICK_ROOT;

    for (size_t i = 0; i < raw.n; i++) {
        at = aho_corasick_step(m, at, raw.p[i]);
        if (aho_corasick_hit(m, at) >= 0)
            at = AHO_CORASICK_ROOT;
    }
    release_held(p, AHO_CORASICK_ROOT, raw, aho_corasick_depth(m, at));
    p->at = at;
    note_text(&p->context, raw);
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
    p->is_start = p->is_after_call = p->context.is_line_start = false;
    replay_as_text(p, buf_str(&raw));
    buf_reset(&raw);
    p->raw = raw;
}

static void apply_verdict(struct parser *p, enum verdict v)
{
    int mark = p->tag.next_mark;

    switch (v) {
    case READ_MORE:
        call_emit_begin(p);
        break;
    case READ_CALL:
        call_end(p);
        if (p->n_begun < PARSER_CALLS_MAX && !mark)
            break;
        /* fallthrough */
    case READ_LEAVE:
        call_clear(p);
        p->in_call = false;
        p->tag.next_mark = 0;
        if (mark)
            put_marker(p, mark - 1);
        break;
    case READ_BAD:
        call_break(p);
        break;
    }
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
    apply_verdict(p, v);
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
    p->is_bare_format =
        f->tool->start_bytes && (f->tool->body == BODY_JSON || f->tool->body == BODY_PYTHON);
    p->streams[REASONING].after_mark = p->in_reasoning;
    for (int i = 0; i < N_STREAMS; i++)
        buf_init(&p->streams[i].blanks, PARSER_TEXT_MAX);
    buf_init(&p->out, PARSER_TEXT_MAX);
    buf_init(&p->raw, PARSER_CALL_MAX);
    buf_init(&p->args, PARSER_TEXT_MAX);
    buf_init(&p->scratch, PARSER_TEXT_MAX);
    buf_init(&p->json.word, PARSER_NAME_MAX * 4);
    buf_init(&p->tag.text, PARSER_CALL_MAX);
    buf_init(&p->tag.since, PARSER_CALL_MAX);
    buf_init(&p->tag.key, PARSER_NAME_MAX);
    buf_init(&p->element.names, ELEMENT_DEPTH_MAX * PARSER_NAME_MAX);
    buf_init(&p->element.tag, PARSER_NAME_MAX);
    buf_init(&p->element.text, PARSER_CALL_MAX);
    buf_init(&p->section, PARSER_TEXT_MAX);
    buf_init(&p->trial_text, PARSER_CALL_MAX);
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
    buf_clear(&p->tag.since);
    buf_clear(&p->tag.key);
    buf_clear(&p->element.names);
    buf_clear(&p->element.tag);
    buf_clear(&p->element.text);
    buf_clear(&p->section);
    buf_clear(&p->trial_text);
    parser_free(p->trial);
    buf_clear(&p->channel.header);
    json_walk_clear(&p->walk);
    literal_clear(&p->python.literal);
    mem_free(p);
}

void parser_put_valid(struct parser *p, struct str in)
{
    while (in.n) {
        size_t used = p->trial     ? parser_trial_run(p, in)
                      : p->in_call ? call_run(p, in)
                                   : text_run(p, in);
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
        parser_put_valid(p, (struct str){ in.p, n });
        in = str_skip(in, n + (len == 0));
        n = 0;
        if (len < 0)
            return in;
        parser_put_valid(p, UTF8_REPLACEMENT);
    }
    parser_put_valid(p, in);
    return STR("");
}

/* Returns a buffer whose limit was reached or whose allocation failed; NULL: none. */
static const struct buf *failed_buf(const struct parser *p)
{
    const struct buf *bufs[] = { &p->out, &p->args, &p->raw, &p->scratch, &p->tag.text,
        &p->tag.since, &p->element.names, &p->element.tag, &p->element.text, &p->section,
        &p->trial_text, &p->streams[CONTENT].blanks, &p->streams[REASONING].blanks };

    for (size_t i = 0; i < ARRAY_LEN(bufs); i++)
        if (bufs[i]->failed)
            return bufs[i];
    return NULL;
}

static int after_put(struct parser *p, struct err *e)
{
    emit_text(p);
    emit_args(p);
    const struct buf *failed = failed_buf(p);
    if (!failed)
        return 0;
    return failed->n < failed->max / 2
               ? err_set(e, ERR_MEMORY, "no memory for a response")
               : err_set(e, ERR_TOO_LARGE, "the output is too long to be parsed");
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

/* True if the state of the parser allows put_plain. */
static bool may_put_plain(const struct parser *p, const struct output_stream *s)
{
    bool may_begin_call = p->is_start && p->f->tool->start_bytes && !p->in_reasoning;
    bool has_held_text = p->n_tail || p->at != AHO_CORASICK_ROOT || p->out.n || p->section.n;

    return !p->in_call && !p->trial && !has_held_text && !may_begin_call && !s->after_mark &&
           !s->needs_newline && !(s->blanks.n && p->f->marks->starts_blank);
}

/* Fast path for most tokens: plain text without the first byte of a marker and without incomplete
 * characters. It is reported unchanged, with the result of the general path. False: the caller must
 * use the general path. */
static bool put_plain(struct parser *p, struct str text)
{
    enum output_stream_id id = p->in_reasoning ? REASONING : CONTENT;
    struct output_stream *s = &p->streams[id];
    bool is_bare = p->is_bare_format && id == CONTENT;
    size_t n = text.n;

    if (!may_put_plain(p, s) || !is_plain(p->f->marks, text) ||
        (is_bare && has_start_byte(p, text)))
        return false;
    if (is_bare)
        note_text(&p->context, text);
    while (n && is_blank(text.p[n - 1]))
        n--;
    p->work += 2 * text.n;
    s->has_text |= n > 0;
    p->is_start &= n == 0 || id != CONTENT;
    p->is_after_call &= n == 0 || id != CONTENT;
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
        return failed_buf(p) ? after_put(p, e) : 0;
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
        parser_put_valid(p, UTF8_REPLACEMENT);
    p->n_tail = 0;
    parser_trial_end(p);
    if (p->in_call && !p->is_between)
        apply_verdict(p, p->reader->end ? p->reader->end(p) : READ_BAD);
    p->in_call = false;
    release_held(p, p->at, STR(""), 0);
    p->at = AHO_CORASICK_ROOT;
    if (p->section.n)
        flush_section(p);
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
