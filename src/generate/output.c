#include "generate/output.h"

int output_init(struct output *t, const struct output_params *p, int choice,
    const struct output_ops *ops, void *ctx, struct err *e)
{
    struct parser_options options = p->parse;

    *t = (struct output){ .ops = ops, .ctx = ctx, .choice = choice, .p = p };
    if (!p->output_mode || !p->output_mode->format)
        return 0;
    options.choice = choice;
    t->parser = parser_new(p->output_mode->format, &options, ops, ctx);
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
            t->ops->content(t->ctx, t->choice, text);
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
    if (output_put(t, STR(""), e))
        return -1;
    int n_broken = parser_n_broken_calls(t->parser);
    if (parser_end(t->parser, e))
        return -1;
    t->ends_inside_call = parser_n_broken_calls(t->parser) > n_broken;
    return 0;
}
