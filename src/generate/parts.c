#include "generate/parts.h"

static void on_content(void *arg, struct str text)
{
    struct parts *t = arg;

    if (!t->is_full)
        t->ops->text(t->ctx, t->choice, text);
}

static void on_reasoning(void *arg, struct str text)
{
    struct parts *t = arg;

    if (!t->is_full && t->ops->reasoning)
        t->ops->reasoning(t->ctx, t->choice, text);
}

static void on_call_begin(void *arg, int call, struct str name)
{
    struct parts *t = arg;

    if (!t->is_full && t->ops->call_begin)
        t->ops->call_begin(t->ctx, t->choice, call, name);
}

static void on_call_args(void *arg, int call, struct str json)
{
    struct parts *t = arg;

    if (!t->is_full && t->ops->call_args)
        t->ops->call_args(t->ctx, t->choice, call, json);
}

static void on_call_end(void *arg, int call)
{
    struct parts *t = arg;

    if (t->is_full)
        return;
    if (t->ops->call_end)
        t->ops->call_end(t->ctx, t->choice, call);
    t->n_calls++;
    t->is_full = t->p->max_calls > 0 && t->n_calls >= t->p->max_calls;
}

static void on_call_broken(void *arg, int call)
{
    struct parts *t = arg;

    if (!t->is_full && t->ops->call_broken)
        t->ops->call_broken(t->ctx, t->choice, call);
}

static const struct parser_ops ops = { on_content, on_reasoning, on_call_begin, on_call_args,
    on_call_end, on_call_broken };

int parts_init(struct parts *t, const struct parts_params *p, int choice,
    const struct parts_ops *to, void *ctx, struct err *e)
{
    *t = (struct parts){ .ops = to, .ctx = ctx, .choice = choice, .p = p };
    if (!p->reading || !p->reading->format)
        return 0;
    t->parser = parser_new(p->reading->format, &p->parse, &ops, t);
    return t->parser ? 0 : err_set(e, ERR_MEMORY, "no memory for a parser");
}

void parts_clear(struct parts *t)
{
    parser_free(t->parser);
    t->parser = NULL;
}

static int read_opening(struct parts *t, struct err *e)
{
    if (t->has_opened)
        return 0;
    t->has_opened = true;
    return t->p->opening.n ? parser_put(t->parser, t->p->opening, e) : 0;
}

int parts_put(struct parts *t, struct str text, struct err *e)
{
    if (!t->parser) {
        if (text.n)
            t->ops->text(t->ctx, t->choice, text);
        return 0;
    }
    if (read_opening(t, e))
        return -1;
    bool was_in = parser_in_thinking(t->parser);
    if (parser_put(t->parser, text, e))
        return -1;
    if (was_in || parser_in_thinking(t->parser))
        t->n_reasoning += t->n_waiting;
    t->n_waiting = 0;
    return 0;
}

int parts_end(struct parts *t, struct err *e)
{
    if (!t->parser)
        return 0;
    return parts_put(t, STR(""), e) || parser_end(t->parser, e) ? -1 : 0;
}
