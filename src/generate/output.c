#include "generate/output.h"

static void on_content(void *arg, struct str text)
{
    struct output *t = arg;

    if (!t->is_full)
        t->ops->text(t->ctx, t->choice, text);
}

static void on_reasoning(void *arg, struct str text)
{
    struct output *t = arg;

    if (!t->is_full && t->ops->reasoning)
        t->ops->reasoning(t->ctx, t->choice, text);
}

static void on_call_begin(void *arg, int call, struct str name)
{
    struct output *t = arg;

    if (!t->is_full && t->ops->call_begin)
        t->ops->call_begin(t->ctx, t->choice, call, name);
}

static void on_call_args(void *arg, int call, struct str json)
{
    struct output *t = arg;

    if (!t->is_full && t->ops->call_args)
        t->ops->call_args(t->ctx, t->choice, call, json);
}

static void on_call_end(void *arg, int call)
{
    struct output *t = arg;

    if (t->is_full)
        return;
    if (t->ops->call_end)
        t->ops->call_end(t->ctx, t->choice, call);
    t->n_calls++;
    t->is_full = t->p->max_calls > 0 && t->n_calls >= t->p->max_calls;
}

static void on_call_broken(void *arg, int call)
{
    struct output *t = arg;

    if (!t->is_full && t->ops->call_broken)
        t->ops->call_broken(t->ctx, t->choice, call);
}

static const struct parser_ops ops = { on_content, on_reasoning, on_call_begin, on_call_args,
    on_call_end, on_call_broken };

int output_init(struct output *t, const struct output_params *p, int choice,
    const struct output_ops *to, void *ctx, struct err *e)
{
    *t = (struct output){ .ops = to, .ctx = ctx, .choice = choice, .p = p };
    if (!p->output_mode || !p->output_mode->format)
        return 0;
    t->parser = parser_new(p->output_mode->format, &p->parse, &ops, t);
    return t->parser ? 0 : err_set(e, ERR_MEMORY, "no memory for a parser");
}

void output_clear(struct output *t)
{
    parser_free(t->parser);
    t->parser = NULL;
}

static int read_opening(struct output *t, struct err *e)
{
    if (t->has_opened)
        return 0;
    t->has_opened = true;
    return t->p->opening.n ? parser_put(t->parser, t->p->opening, e) : 0;
}

int output_put(struct output *t, struct str text, struct err *e)
{
    if (!t->parser) {
        if (text.n)
            t->ops->text(t->ctx, t->choice, text);
        return 0;
    }
    if (read_opening(t, e))
        return -1;
    bool was_in = parser_in_reasoning(t->parser);
    if (parser_put(t->parser, text, e))
        return -1;
    if (was_in || parser_in_reasoning(t->parser))
        t->n_reasoning += t->n_waiting;
    t->n_waiting = 0;
    return 0;
}

int output_end(struct output *t, struct err *e)
{
    if (!t->parser)
        return 0;
    return output_put(t, STR(""), e) || parser_end(t->parser, e) ? -1 : 0;
}
