/* parser_channels.c: body reader of BODY_CHANNELS, messages with headers as gpt-oss writes them
 * ("harmony"):
 *
 *     <|channel|>analysis<|message|>reasoning<|end|>
 *     <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>
 *     <|start|>assistant to=functions.f<|channel|>commentary json<|message|>{..}<|call|>
 *     <|start|>assistant<|channel|>final<|message|>content<|return|>
 *
 * The prompt ends with <|start|>assistant, so the output begins inside a header. Muse has headers
 * without a channel: messages to=self are reasoning, and the calls of the others are BODY_TAGS.
 * Owner: see parser.h. */
#include "output/parser_in.h"

enum state {
    FIRST, /* the output may begin with "to=" */
    HEADER,
    BODY_START,
    BODY, /* JSON arguments */
    OVER
};

enum { HEADER_MAX = PARSER_NAME_MAX };

static const struct str header_end = { "<|message|>", 11 };

static void begin_reader(struct parser *p)
{
    struct buf header = p->channel.header;

    buf_reset(&header);
    buf_puts(&header, p->opener);
    p->channel = (struct channel_reader){ .state = p->opener.n ? HEADER : FIRST, .header = header };
    p->is_start = false;
    p->is_between = p->opener.n > 0; /* an incomplete header is dropped */
}

/* The word after `key` in the header; empty if there is none. */
static struct str header_word(struct str header, struct str key)
{
    ptrdiff_t at = str_find(header, key);
    size_t n = 0;

    if (at < 0)
        return STR("");
    struct str rest = str_skip(header, (size_t)at + key.n);
    while (n < rest.n && rest.p[n] != ' ' && rest.p[n] != '<')
        n++;
    rest.n = n;
    return rest;
}

/* The header is complete: selects call, reasoning or content for the text that follows. */
static enum verdict end_header(struct parser *p)
{
    struct str header = buf_str(&p->channel.header);
    struct str to = header_word(header, STR("to="));
    struct str channel = header_word(header, STR("<|channel|>"));
    bool accepts_calls = p->f->tool->body == BODY_CHANNELS;
    bool accepts_reasoning = p->f->reasoning->flags & REASONING_IS_CHANNEL;

    p->drop_raw = true;
    p->is_between = false;
    if (str_is(to, "assistant") || str_is(to, "user") || p->n_begun >= PARSER_CALLS_MAX)
        accepts_calls = false;
    if (to.n && accepts_calls) {
        p->in_reasoning = false;
        p->channel.state = BODY_START;
        json_walk_begin(&p->walk);
        return parser_set_call_name(p, to) ? READ_MORE : READ_BAD;
    }
    bool is_reasoning = str_is(channel, "analysis") || str_is(to, "self");
    parser_begin_message(p, is_reasoning && accepts_reasoning ? REASONING : CONTENT);
    return READ_LEAVE;
}

static enum verdict read_header(struct parser *p, struct str in, size_t *used)
{
    struct channel_reader *h = &p->channel;

    for (size_t i = 0; i < in.n; i++) {
        if (h->header.n == HEADER_MAX) {
            *used = i;
            return READ_BAD;
        }
        buf_putc(&h->header, in.p[i]);
        if (in.p[i] == '>' && str_ends(buf_str(&h->header), header_end)) {
            h->header.n -= header_end.n;
            *used = i + 1;
            return end_header(p);
        }
    }
    *used = in.n;
    return READ_MORE;
}

static enum verdict read_first(struct parser *p, struct str in, size_t *used)
{
    struct channel_reader *h = &p->channel;
    static const char to[] = "to=";

    *used = in.p[0] == to[h->header.n];
    if (!*used)
        return READ_BAD;
    buf_putc(&h->header, in.p[0]);
    if (h->header.n == 3)
        h->state = HEADER;
    return READ_MORE;
}

static enum verdict read_body(struct parser *p, struct str in, size_t *used)
{
    enum walk_result result;

    if (p->channel.state == BODY_START) {
        *used = is_blank(in.p[0]);
        p->channel.state = *used ? BODY_START : BODY;
        return *used || in.p[0] == '{' ? READ_MORE : READ_BAD;
    }
    *used = json_walk_put(&p->walk, in, &p->args, &result);
    if (result == WALK_DONE)
        p->channel.state = OVER;
    return result == WALK_BAD ? READ_BAD : result == WALK_DONE ? READ_CALL : READ_MORE;
}

static enum verdict read_channels(struct parser *p, struct str in, size_t *used)
{
    switch ((enum state)p->channel.state) {
    case FIRST:
        return read_first(p, in, used);
    case HEADER:
        return read_header(p, in, used);
    case BODY_START:
    case BODY:
        return read_body(p, in, used);
    case OVER:
        break;
    }
    *used = 0;
    return READ_LEAVE;
}

static bool is_walking(const struct parser *p)
{
    return p->channel.state == BODY;
}

const struct body_reader reader_channels = { begin_reader, read_channels, is_walking, NULL };
