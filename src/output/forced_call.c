#include "output/forced_call.h"
#include "output/parser_in.h"

enum { FORCED_CALL_MAX = 16 * 1024 };

static bool is_in_thinking(const struct parser_format *f, enum parser_start start)
{
    return start == PARSER_START_REASONING ||
           (start == PARSER_START_DEFAULT && f->reasoning->flags & REASONING_STARTS);
}

/* Appends the end marker of the reasoning, with the blanks that templates put around it. */
static void put_reasoning_end(struct buf *b, const struct parser_format *f)
{
    for (int i = 0; i < f->reasoning->n_marks; i++) {
        if (f->reasoning->marks[i].kind != MARK_REASONING_END)
            continue;
        buf_putz(b, "\n");
        buf_puts(b, f->reasoning->marks[i].text);
        buf_putz(b, "\n\n");
        return;
    }
}

static void put_name(struct buf *b, const struct parser_format *f, struct str name)
{
    if (f->tool->body == BODY_JSON)
        json_escape(b, name);
    else
        buf_puts(b, name);
}

static void add_span(struct forced_call *o, struct str text, bool is_trusted)
{
    if (text.n)
        o->spans[o->n_spans++] = (struct span){ text, is_trusted };
}

int forced_call_build(struct forced_call *out, const struct parser_format *f,
    const struct forced_call_options *what, struct arena *a, struct err *e)
{
    const struct tool_format *row = f->tool;
    struct buf b;

    if (!row->before_name)
        return err_param(e, ERR_UNSUPPORTED, "tool_choice",
            "'tool_choice' requires a tool call, and this model has no tool call format.");
    buf_init(&b, FORCED_CALL_MAX);
    if (is_in_thinking(f, what->start))
        put_reasoning_end(&b, f);
    buf_putz(&b, row->before_name);
    size_t name_start = b.n, name_end = b.n;
    if (what->name.p) {
        put_name(&b, f, what->name);
        name_end = b.n;
        if (row->ids == CALL_IDS_NAME)
            buf_printf(&b, ":%d", what->n_earlier_calls);
        buf_putz(&b, row->after_name);
    }
    struct str all = buf_ok(&b) ? arena_str(a, buf_str(&b)) : STR_NONE;
    buf_clear(&b);
    if (!all.p)
        return err_set(e, ERR_MEMORY, "no memory for a forced tool call");
    *out = (struct forced_call){ .text = all };
    add_span(out, (struct str){ all.p, name_start }, true);
    add_span(out, (struct str){ all.p + name_start, name_end - name_start }, false);
    add_span(out, str_skip(all, name_end), true);
    return 0;
}
