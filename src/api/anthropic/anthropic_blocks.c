#include "api/anthropic/anthropic.h"
#include "api/common/response_state.h"

/* anthropic_blocks.c: content blocks of a message (text, thinking, tool_use), in the order of
 * generation. A stream sends each as
 *
 *     content_block_start {index, the empty block}  content_block_delta ...  content_block_stop
 *
 * and a body contains it as an element of `content`, written by the same functions.
 *
 * A tool call is sent when it is complete: this protocol cannot withdraw a block, and a call can
 * turn out to be text. The arguments of a tool with `eager_input_streaming` are sent as they are
 * generated, since its client accepts incomplete ones. Owner: the io thread of the response. */

enum { CLOSED, TEXT, THINKING, CALL }; /* c->block: type of the open block */

static bool is_stream(const struct response *a)
{
    return a->setup.request->stream;
}

/* ---- events */

static void put_event(struct response *a, const char *name, const struct response_choice *c)
{
    buf_printf(
        &a->out, "event: %s\ndata: {\"type\":\"%s\",\"index\":%d", name, name, c->n_blocks - 1);
}

static void put_delta(
    struct response *a, const struct response_choice *c, const char *type, const char *member)
{
    put_event(a, "content_block_delta", c);
    buf_printf(&a->out, ",\"delta\":{\"type\":\"%s\",\"%s\":\"", type, member);
}

/* ---- opening and closing */

/* Signs the reasoning of the open block, which is the part of c->reasoning after block_from. */
static struct signature_text sign_block(struct response_choice *c)
{
    struct str all = buf_str(&c->reasoning);
    struct signature_text s = anthropic_sign(str_skip(all, c->block_from));

    c->block_from = all.n;
    return s;
}

static void close_stream_block(struct response *a, struct response_choice *c)
{
    if (c->block == THINKING) {
        put_delta(a, c, "signature_delta", "signature");
        buf_putz(&a->out, sign_block(c).z);
        buf_putz(&a->out, "\"}}\n\n");
    }
    put_event(a, "content_block_stop", c);
    buf_putz(&a->out, "}\n\n");
}

static void close_body_block(struct response *a, struct response_choice *c)
{
    if (c->block == TEXT)
        buf_putc(&a->out, '"');
    if (c->block == THINKING)
        buf_printf(&a->out, "\",\"signature\":\"%s\"", sign_block(c).z);
    buf_putc(&a->out, '}');
}

void anthropic_close_block(struct response *a, struct response_choice *c)
{
    if (c->block == CLOSED)
        return;
    if (is_stream(a))
        close_stream_block(a, c);
    else
        close_body_block(a, c);
    c->block = CLOSED;
}

/* head: the start of the block, up to its text or input; empty: the end of an empty block, for the
 * start event. */
static void open_block(
    struct response *a, struct response_choice *c, int kind, struct str head, const char *empty)
{
    anthropic_close_block(a, c);
    c->block = kind;
    c->n_blocks++;
    if (is_stream(a)) {
        put_event(a, "content_block_start", c);
        buf_putz(&a->out, ",\"content_block\":");
    } else if (c->n_blocks > 1) {
        buf_putc(&a->out, ',');
    }
    buf_puts(&a->out, head);
    if (is_stream(a)) {
        buf_putz(&a->out, empty);
        buf_putz(&a->out, "}}\n\n");
    }
}

static void open_call(struct response *a, struct response_choice *c, const struct response_call *k)
{
    struct buf head;

    buf_init(&head, 64 * KB);
    buf_putz(&head, "{\"type\":\"tool_use\",\"id\":\"");
    json_escape(&head, k->id);
    buf_putz(&head, "\",\"name\":\"");
    json_escape(&head, k->name);
    buf_putz(&head, "\",\"input\":");
    a->has_failed = a->has_failed || !buf_ok(&head);
    open_block(a, c, CALL, buf_str(&head), "{}");
    buf_clear(&head);
}

/* ---- content */

static void put_fragment(struct response *a, struct response_choice *c, const char *type,
    const char *member, struct str text)
{
    if (is_stream(a))
        put_delta(a, c, type, member);
    json_escape(&a->out, text);
    if (is_stream(a))
        buf_putz(&a->out, "\"}}\n\n");
}

static void put_text(void *ctx, int choice, struct str text)
{
    struct response *a = ctx;
    struct response_choice *c = &a->choices[choice];

    if (c->block != TEXT)
        open_block(a, c, TEXT, STR("{\"type\":\"text\",\"text\":\""), "\"");
    put_fragment(a, c, "text_delta", "text", text);
}

static void put_reasoning(void *ctx, int choice, struct str text)
{
    struct response *a = ctx;
    struct response_choice *c = &a->choices[choice];

    if (c->block != THINKING)
        open_block(
            a, c, THINKING, STR("{\"type\":\"thinking\",\"thinking\":\""), "\",\"signature\":\"\"");
    if (!a->setup.request->is_reasoning_omitted)
        put_fragment(a, c, "thinking_delta", "thinking", text);
}

/* ---- calls */

static void begin_call(void *ctx, int choice, int call, struct str name)
{
    struct response *a = ctx;
    struct response_choice *c = &a->choices[choice];
    struct response_call *k = response_last_call(c);

    k->block = is_stream(a) && anthropic_is_eager(a->setup.request, k->name);
    if (k->block)
        open_call(a, c, k);
}

static void put_call_args(void *ctx, int choice, int call, struct str json)
{
    struct response *a = ctx;
    struct response_choice *c = &a->choices[choice];
    struct response_call *k = response_last_call(c);

    if (k->block)
        put_fragment(a, c, "input_json_delta", "partial_json", json);
}

static void end_call(void *ctx, int choice, int call)
{
    struct response *a = ctx;
    struct response_choice *c = &a->choices[choice];
    struct response_call *k = response_last_call(c);

    if (!k->block)
        open_call(a, c, k);
    if (!is_stream(a))
        buf_puts(&a->out, buf_str(&k->args));
    else if (!k->block)
        put_fragment(a, c, "input_json_delta", "partial_json", buf_str(&k->args));
    anthropic_close_block(a, c);
}

/* A block is open only if the client accepts incomplete calls. */
static void break_call(void *ctx, int choice, int call)
{
    struct response *a = ctx;
    struct response_choice *c = &a->choices[choice];
    struct response_call *k = response_last_call(c);

    if (!k->block)
        return;
    anthropic_close_block(a, c);
    c->has_partial_call = true;
}

const struct output_ops anthropic_output_ops = { put_text, put_reasoning, begin_call, put_call_args,
    end_call, break_call };
