#include "generate/tool_choice.h"

#include "output/forced_call.h"

static bool is_forced(const struct request *request)
{
    return request->tools && (request->tool_choice == TOOL_CHOICE_REQUIRED ||
                                 request->tool_choice == TOOL_CHOICE_NAMED);
}

int tool_choice_n_earlier_calls(const struct request *request)
{
    int n = 0;

    for (int i = 0; i < request->convo.n_messages; i++)
        n += request->convo.messages[i].n_tool_calls;
    return n;
}

static struct str function_name(const struct json *tool)
{
    /* same form as in tools_add and tools_read */
    return json_get(json_get(tool, "function"), "name")->s;
}

/* Names of the tools that may be called, if a call is forced or the request restricts them. */
static int list_allowed_names(
    struct parser_options *o, const struct request *request, struct arena *a, struct err *e)
{
    const struct json *tools = request->convo.tools;
    struct str *names;

    if (!tools || (!is_forced(request) && !request->n_allowed_tools))
        return 0;
    names = arena_zalloc(a, tools->n, sizeof(*names));
    if (!names)
        return err_set(e, ERR_MEMORY, "no memory for the tools");
    o->names = names;
    for (const struct json *t = tools->child; t; t = t->next)
        if (request->tool_choice != TOOL_CHOICE_NAMED ||
            str_eq(function_name(t), request->tool_name))
            names[o->n_names++] = function_name(t);
    return 0;
}

static int append_spans(
    struct rendered *r, const struct forced_call *o, struct arena *a, struct err *e)
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

static int force_call(struct output_params *p, struct rendered *prompt,
    const struct request *request, const struct prompt_ctx *ctx, struct err *e)
{
    struct forced_call_options what = { .name =
                                            p->parse.n_names == 1 ? p->parse.names[0] : STR_NONE,
        .start = p->parse.start,
        .n_earlier_calls = tool_choice_n_earlier_calls(request) };
    struct forced_call o;

    if (forced_call_build(&o, adapter_format(ctx->model->adapter), &what, ctx->arena, e) ||
        append_spans(prompt, &o, ctx->arena, e))
        return -1;
    p->opening = o.text;
    return 0;
}

int tool_choice_output(struct output_params *out, struct rendered *prompt,
    const struct request *request, const struct prompt_ctx *ctx, struct err *e)
{
    const struct model *m = ctx->model;
    bool calls = request->tools && request->tool_choice != TOOL_CHOICE_NONE;
    unsigned kind =
        (calls ? OUTPUT_CALLS : 0u) | (request->is_reasoning_unparsed ? 0u : OUTPUT_REASONING);

    *out = (struct output_params){ .output_mode = &m->output_modes[kind],
        .parse = { .tools = request->convo.tools,
            .start = adapter_start(m->adapter, &request->convo, prompt) } };
    if (!calls)
        return 0;
    if (!request->parallel_tool_calls || request->tool_choice == TOOL_CHOICE_NAMED)
        out->parse.max_calls = 1;
    if (list_allowed_names(&out->parse, request, ctx->arena, e))
        return -1;
    return is_forced(request) ? force_call(out, prompt, request, ctx, e) : 0;
}

int tool_choice_check(const struct request *request, const struct choice_end *c, struct err *e)
{
    if (!is_forced(request) || c->n_calls > 0 || c->finish != FINISH_STOP)
        return 0;
    return err_param(e, ERR_CONSTRAINT, "tool_choice",
        "'tool_choice' requires a tool call, and the model generated none.");
}

int tool_choice_check_constraint(const struct request *request, struct err *e)
{
    if (!request->constraint.is_set || !request->tools || request->tool_choice == TOOL_CHOICE_NONE)
        return 0;
    return err_param(e, ERR_UNSUPPORTED, request->constraint.field,
        "'%s' is not supported together with 'tools', unless 'tool_choice' is 'none'.",
        request->constraint.field);
}
