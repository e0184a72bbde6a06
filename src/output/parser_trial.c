/* parser_trial.c: tool calls inside reasoning that is not closed.
 *
 * A model sometimes calls a tool without closing its reasoning, and sometimes mentions a call in
 * its reasoning. Only the text that follows distinguishes the two: calls count if they are the end
 * of the output, complete and of tools of the request. From a marker that begins a call on, the
 * text is therefore held back and read by a second parser, the trial. If the trial finds anything
 * but calls, or the end of the reasoning, the held text is reasoning. Formats with
 * REASONING_CALL_ENDS need no trial. A trial begins no trial: a call inside further reasoning is
 * text for it.
 *
 * Each byte is read at most three times: by the trial, and again as reasoning or as calls. Owner:
 * see parser.h. */
#include "output/parser_in.h"

#include "base/utf8.h"

static void on_text(void *ctx, int choice, struct str text)
{
    struct parser *p = ctx;

    p->has_trial_failed = true;
}

static void on_call_broken(void *ctx, int choice, int call)
{
    struct parser *p = ctx;

    p->has_trial_failed = true;
}

static const struct output_ops trial_ops = {
    .content = on_text, .reasoning = on_text, .call_broken = on_call_broken
};

bool parser_trial_begins(const struct parser *p, int mark)
{
    enum marker_kind kind = p->f->rows[mark].kind;

    return p->in_reasoning && !p->is_trial_off && !p->is_trial &&
           (kind == MARK_OPEN || kind == MARK_SECTION) &&
           !(p->f->reasoning->flags & (REASONING_CALL_ENDS | REASONING_IS_CHANNEL));
}

/* Reads the held text again, without a trial: as calls if the reasoning was ended, else as
 * reasoning, in which a marker can end the reasoning. */
static void read_held_text_again(struct parser *p)
{
    struct buf held = p->trial_text;

    parser_free(p->trial);
    p->trial = NULL;
    buf_init(&p->trial_text, PARSER_CALL_MAX);
    p->is_trial_off = true;
    parser_put_valid(p, buf_str(&held));
    p->is_trial_off = false;
    buf_reset(&held);
    p->trial_text = held;
}

/* Adds one character, which may be cut. */
static void put_character(struct parser *p, struct str c)
{
    struct err e;

    if (p->trial_text.n + c.n > p->trial_text.max)
        p->has_trial_failed = true;
    else
        buf_puts(&p->trial_text, c);
    uint64_t before = parser_work(p->trial);
    if (parser_put(p->trial, c, &e) || p->trial->has_reasoning_end)
        p->has_trial_failed = true;
    p->work += parser_work(p->trial) - before;
}

void parser_trial_begin(struct parser *p, struct str marker)
{
    const struct parser_options o = {
        .tools = p->tools, .start = PARSER_START_CONTENT, .names = p->names, .n_names = p->n_names
    };

    p->trial = parser_new(p->f, &o, &trial_ops, p);
    p->has_trial_failed = !p->trial;
    if (!p->trial) {
        p->trial_text.failed = true;
        return;
    }
    p->trial->is_trial = true;
    put_character(p, marker);
}

size_t parser_trial_run(struct parser *p, struct str in)
{
    size_t n = 0;

    while (n < in.n && !p->has_trial_failed) {
        uint32_t cp;
        int len = (in.p[n] & 0x80) ? utf8_decode(str_skip(in, n), &cp) : 1;
        size_t step = len > 0 ? (size_t)len : 1;
        put_character(p, (struct str){ in.p + n, step });
        n += step;
    }
    if (p->has_trial_failed)
        read_held_text_again(p);
    return n;
}

void parser_trial_end(struct parser *p)
{
    struct err e;

    if (!p->trial)
        return;
    if (parser_end(p->trial, &e) || !parser_n_calls(p->trial))
        p->has_trial_failed = true;
    if (!p->has_trial_failed) {
        p->in_reasoning = false;
        p->streams[REASONING].after_mark = true; /* blanks before the calls are not reasoning */
    }
    read_held_text_again(p);
}
