#include "generate/tool_choice.h"

#include "base/buf.h"
#include "constrain/tools/tool_grammar.h"
#include "output/forced_call.h"

enum { SOURCE_BYTES_MAX = 1 << 20, SOURCE_TEXT_MAX = 4 << 20 };

static bool is_forced(const struct request *request)
{
    return request->tools && (request->tool_choice == TOOL_CHOICE_REQUIRED ||
                                 request->tool_choice == TOOL_CHOICE_NAMED);
}

static bool may_call(const struct request *request)
{
    return request->tools && request->tool_choice != TOOL_CHOICE_NONE;
}

static bool is_one_call(const struct request *request)
{
    return !request->parallel_tool_calls || request->tool_choice == TOOL_CHOICE_NAMED;
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
    bool calls = may_call(request);
    unsigned kind =
        (calls ? OUTPUT_CALLS : 0u) | (request->is_reasoning_unparsed ? 0u : OUTPUT_REASONING);

    *out = (struct output_params){ .output_mode = &m->output_modes[kind],
        .parse = { .tools = request->convo.tools,
            .start = adapter_start(m->adapter, &request->convo, prompt) } };
    if (!calls)
        return 0;
    if (list_allowed_names(&out->parse, request, ctx->arena, e))
        return -1;
    if (tool_choice_has_grammar(request, ctx) && !tool_choice_is_free(request))
        return 0; /* it ends the output after the calls that the request permits */
    out->parse.max_calls = is_one_call(request);
    if (!is_forced(request))
        return 0;
    return force_call(out, prompt, request, ctx, e);
}

int tool_choice_check(const struct request *request, const struct choice_end *c, struct err *e)
{
    if (!is_forced(request) || c->n_calls > 0 || c->finish != FINISH_STOP)
        return 0;
    return err_param(e, ERR_CONSTRAINT, "tool_choice",
        "'tool_choice' requires a tool call, and the model generated none.");
}

int tool_choice_check_constraint(
    const struct request *request, const struct prompt_ctx *ctx, struct err *e)
{
    if (!request->constraint.is_set || !may_call(request) || tool_choice_has_grammar(request, ctx))
        return 0;
    return err_param(e, ERR_UNSUPPORTED, request->constraint.field,
        "'%s' is not supported together with 'tools' by this model, unless 'tool_choice' is "
        "'none'.",
        request->constraint.field);
}

/* ---- the grammar of the calls */

bool tool_choice_may_have_grammar(const struct request *request)
{
    return may_call(request);
}

static bool is_strict_tool(const struct json *tool)
{
    const struct json *strict = json_get(json_get(tool, "function"), "strict");

    return strict && strict->kind == JSON_BOOL && strict->b;
}

bool tool_choice_is_strict(const struct request *request)
{
    const struct json *tools = request->convo.tools;
    bool is_strict = false;

    for (const struct json *t = tools ? tools->child : NULL; t; t = t->next)
        is_strict = is_strict || is_strict_tool(t);
    return is_strict;
}

bool tool_choice_is_free(const struct request *request)
{
    return may_call(request) && !is_forced(request) && !request->constraint.is_set;
}

/* Calls in free text are enforced. */
static bool enforces_free_calls(const struct request *request, const struct prompt_ctx *ctx)
{
    bool is_asked = request->n_allowed_tools || tool_choice_is_strict(request);

    bool is_default = ctx->tool_strictness != TOOL_STRICTNESS_ASKED && !request->ignore_eos;

    return ctx->model->call_gates && (is_asked || is_default);
}

static const char *tool_format_of(const struct prompt_ctx *ctx)
{
    const struct parser_format *format = adapter_format(ctx->model->adapter);

    return format ? parser_format_tool(format) : "";
}

bool tool_choice_has_grammar(const struct request *request, const struct prompt_ctx *ctx)
{
    const struct model *m = ctx->model;

    return ctx->has_constraints && may_call(request) && m->vocab_tables &&
           m->spec->backend != BACKEND_SCRIPT &&
           tool_grammar_exists(tool_format_find(str_of(tool_format_of(ctx)))) &&
           (!tool_choice_is_free(request) || enforces_free_calls(request, ctx));
}

static void put_text(struct buf *b, struct str text)
{
    buf_putc(b, '"');
    json_escape(b, text);
    buf_putc(b, '"');
}

static void put_tool(struct buf *b, const struct json *tool, enum tool_strictness strictness)
{
    const struct json *parameters = json_get(json_get(tool, "function"), "parameters");
    bool is_strict = is_strict_tool(tool), has_schema = parameters && parameters->raw.n;

    buf_putz(b, "{\"name\": ");
    put_text(b, function_name(tool));
    if (has_schema && (is_strict || strictness == TOOL_STRICTNESS_ALL))
        buf_printf(b, ", \"parameters\": " STR_FMT, STR_ARG(parameters->raw));
    else if (is_strict)
        buf_putz(b, ", \"parameters\": {\"type\": \"object\", \"properties\": {}}");
    buf_putz(b, is_strict ? "}" : ", \"optional\": true}");
}

static bool may_call_tool(const struct request *request, const struct json *tool)
{
    return request->tool_choice != TOOL_CHOICE_NAMED ||
           str_eq(function_name(tool), request->tool_name);
}

static void put_source(struct buf *b, const struct request *request, const struct prompt_ctx *ctx)
{
    const char *separator = "";

    buf_printf(b, "{\"format\": \"%s\", \"max_calls\": %d, \"tools\": [", tool_format_of(ctx),
        is_one_call(request));
    for (const struct json *t = request->convo.tools->child; t; t = t->next) {
        if (!may_call_tool(request, t))
            continue;
        buf_putz(b, separator);
        put_tool(b, t, ctx->tool_strictness);
        separator = ", ";
    }
    buf_putz(b, "]");
    if (tool_choice_is_free(request)) {
        buf_putz(b, ", \"text\": true");
    } else if (!is_forced(request)) {
        buf_printf(
            b, ", \"value\": {\"kind\": %d, \"text\": ", (int)request->constraint.source.kind);
        put_text(b, request->constraint.source.text);
        buf_putz(b, "}");
    }
    buf_putz(b, "}");
}

int tool_choice_source(struct constraint_source *out, const struct request *request,
    const struct prompt_ctx *ctx, struct err *e)
{
    struct buf b;

    buf_init(&b, SOURCE_TEXT_MAX);
    put_source(&b, request, ctx);
    *out = request->constraint.source;
    out->kind = CONSTRAINT_TOOLS;
    out->bytes_max = SOURCE_BYTES_MAX;
    out->text = buf_ok(&b) ? arena_str(ctx->arena, buf_str(&b)) : STR_NONE;
    buf_clear(&b);
    return out->text.p ? 0 : err_set(e, ERR_MEMORY, "no memory for the tools");
}
