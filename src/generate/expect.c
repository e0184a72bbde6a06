#include "generate/expect.h"

#include "output/opening.h"

static bool is_forced(const struct ask *ask)
{
    return ask->tools &&
           (ask->tool_choice == TOOL_CHOICE_REQUIRED || ask->tool_choice == TOOL_CHOICE_NAMED);
}

int expect_n_earlier_calls(const struct ask *ask)
{
    int n = 0;

    for (int i = 0; i < ask->convo.n_messages; i++)
        n += ask->convo.messages[i].n_tool_calls;
    return n;
}

static struct str function_name(const struct json *tool)
{
    /* same form as in tools_put and tools_read */
    return json_get(json_get(tool, "function"), "name")->s;
}

/* Names of the tools that may be called, if a call is forced or the request restricts them. */
static int list_allowed_names(
    struct parser_options *o, const struct ask *ask, struct arena *a, struct err *e)
{
    const struct json *tools = ask->convo.tools;
    struct str *names;

    if (!tools || (!is_forced(ask) && !ask->n_allowed_tools))
        return 0;
    names = arena_zalloc(a, tools->n, sizeof(*names));
    if (!names)
        return err_set(e, ERR_MEMORY, "no memory for the tools");
    o->names = names;
    for (const struct json *t = tools->child; t; t = t->next)
        if (ask->tool_choice != TOOL_CHOICE_NAMED || str_eq(function_name(t), ask->tool_name))
            names[o->n_names++] = function_name(t);
    return 0;
}

static int append_spans(struct rendered *r, const struct opening *o, struct arena *a, struct err *e)
{
    size_t n = r->n_spans + (size_t)o->n_spans;
    struct span *spans = arena_alloc(a, n * sizeof(*spans));

    if (!spans)
        return err_set(e, ERR_MEMORY, "no memory for the prompt");
    memcpy(spans, r->spans, r->n_spans * sizeof(*spans));
    memcpy(spans + r->n_spans, o->spans, (size_t)o->n_spans * sizeof(*spans));
    r->spans = spans;
    r->n_spans = n;
    r->n_bytes += o->text.n;
    return 0;
}

static int force_call(struct parts_params *p, struct rendered *prompt, const struct ask *ask,
    const struct workplace *ctx, struct err *e)
{
    struct opening_of what = { .name = p->parse.n_names == 1 ? p->parse.names[0] : STR_NONE,
        .start = p->parse.start,
        .n_earlier_calls = expect_n_earlier_calls(ask) };
    struct opening o;

    if (opening_build(&o, adapter_format(ctx->model->adapter), &what, ctx->arena, e) ||
        append_spans(prompt, &o, ctx->arena, e))
        return -1;
    p->opening = o.text;
    return 0;
}

int expect_parts(struct parts_params *out, struct rendered *prompt, const struct ask *ask,
    const struct workplace *ctx, struct err *e)
{
    const struct model *m = ctx->model;
    bool calls = ask->tools && ask->tool_choice != TOOL_CHOICE_NONE;
    unsigned kind = (calls ? READ_CALLS : 0u) | (ask->thoughts_are_text ? 0u : READ_THOUGHTS);

    *out = (struct parts_params){ .reading = &m->readings[kind],
        .parse = {
            .tools = ask->convo.tools, .start = adapter_start(m->adapter, &ask->convo, prompt) } };
    if (!calls)
        return 0;
    if (!ask->parallel_tool_calls || ask->tool_choice == TOOL_CHOICE_NAMED)
        out->max_calls = 1;
    if (list_allowed_names(&out->parse, ask, ctx->arena, e))
        return -1;
    return is_forced(ask) ? force_call(out, prompt, ask, ctx, e) : 0;
}

int expect_met(const struct ask *ask, const struct choice_end *c, struct err *e)
{
    if (!is_forced(ask) || c->n_calls > 0 || c->finish != FINISH_STOP)
        return 0;
    return err_param(e, ERR_UNMET, "tool_choice",
        "'tool_choice' asks for a call, and what the model answered is none.");
}

int expect_shape(const struct ask *ask, struct err *e)
{
    if (ask->shape.kind == SHAPE_ANY)
        return 0;
    return err_param(e, ERR_UNSUPPORTED, ask->shape.field,
        "'%s' is not supported here: answers are not held to a shape yet.", ask->shape.field);
}
