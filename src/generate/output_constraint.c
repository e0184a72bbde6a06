#include "generate/output_constraint.h"

#include "base/mem.h"
#include "chat/call_gate.h"
#include "chat/reasoning_gate.h"

#include <stdio.h>

/* ---- compilation */

/* Puts the field in front of the place; errors of tool schemas (tool_grammar.h) belong to `tools`.
 * A text that exceeds a bound of the compiler is the client's
 * error, which a retry repeats. */
static int name_field(const char *field, struct err *e)
{
    char reason[sizeof(e->msg)];

    if (e->code == ERR_MEMORY || e->code == ERR_CANCELLED)
        return -1;
    memcpy(reason, e->msg, sizeof(reason));
    bool is_pointer = reason[0] == '#';
    if (!strncmp(reason, "tool '", 6))
        field = "tools";
    return err_param(e, e->code == ERR_UNSUPPORTED ? ERR_UNSUPPORTED : ERR_INVALID, field, "%s%s%s",
        field, is_pointer ? "" : ": ", reason);
}

int output_constraint_compile(struct constraint **out, const struct constraint_source *src,
    const char *field, const struct constraint_compiler *compiler, struct err *e)
{
    const struct model *m = compiler->model;
    struct str tenant = { (const char *)&compiler->tenant, sizeof(compiler->tenant) };

    if (!m->vocab_tables)
        return err_param(e, ERR_UNSUPPORTED, field, "'%s' is not supported by this model: %s.",
            field, m->why_unconstrained.msg);
    int rc = compiler->cache
                 ? compile_cache_get(compiler->cache, out, src, m->vocab_tables, tenant, e)
                 : constraint_new(out, src, m->vocab_tables, e);
    return rc ? name_field(field, e) : 0;
}

/* ---- states */

struct choice_constraint {
    struct constraint_state *state;
    struct reasoning_gate *gate; /* NULL: no reasoning precedes the output */
    struct call_gate *calls;     /* calls in text; else NULL */
};

struct choice_constraints {
    int n;
    struct charge charge;               /* memory of the states */
    struct sample_constraint *list;     /* [n] */
    struct choice_constraint choices[]; /* [n]; zeroed from the first one that was not made */
};

static bool is_continued(const struct request *request)
{
    const struct convo *c = &request->convo;

    return request->kind == REQUEST_CHAT && c->continue_final_message && c->n_messages;
}

/* Reads the text that the model continues. */
static int read_prefix(
    const struct choice_constraint *c, const struct request *request, struct err *e)
{
    if (!is_continued(request))
        return 0;
    const struct message *m = &request->convo.messages[request->convo.n_messages - 1];
    size_t at = 0;
    for (int i = 0; i < m->n_parts; i++) {
        struct str text = m->parts[i].text;
        size_t n =
            c->gate ? reasoning_gate_read(c->gate, text) : constraint_state_read(c->state, text);
        at += n;
        if (n < text.n)
            return err_param(e, ERR_INVALID, "messages",
                "'%s' does not permit the last message, which the model continues: the byte at "
                "offset %zu is not permitted.",
                request->constraint.field, at);
    }
    return 0;
}

/* The grammar of calls contains the messages with reasoning (BODY_CHANNELS). */
static bool has_messages(const struct request *request, const struct model *m)
{
    const struct parser_format *format = adapter_format(m->adapter);

    if (request->constraint.source.kind != CONSTRAINT_TOOLS || !format)
        return false;
    const struct tool_format *f = tool_format_find(str_of(parser_format_tool(format)));
    return f && f->body == BODY_CHANNELS;
}

/* Tables of the gates; NULL: no reasoning precedes the output. */
static const struct reasoning_gates *choose_gates(
    const struct request *request, const struct choice_constraints_ctx *ctx)
{
    bool is_text = ctx->start == PARSER_START_CONTENT && !is_continued(request);

    if (request->kind != REQUEST_CHAT || is_text || has_messages(request, ctx->model))
        return NULL;
    return ctx->model->reasoning_gates;
}

/* The text of a message that the model continues is not read: it is text, and not reasoning. */
static int add_call_gate(struct choice_constraints *all, int i, const struct request *request,
    const struct choice_constraints_ctx *ctx, struct err *e)
{
    struct choice_constraint *choice = &all->choices[i];
    enum parser_start start = is_continued(request) ? PARSER_START_CONTENT : ctx->start;

    choice->calls =
        call_gate_new(ctx->model->call_gates, choice->state, start, request->is_reasoning_unparsed);
    if (!choice->calls || !charge_add(&all->charge, call_gate_bytes(choice->calls)))
        return err_set(e, ERR_MEMORY, "no memory for the constraints of %d choices", all->n);
    all->list[i] = call_gate_ops(choice->calls);
    return 0;
}

static const char close_field[] = "x_constraint.close_at_limit";

static int set_limit(
    const struct choice_constraint *c, const struct choice_constraints_ctx *ctx, struct err *e)
{
    int rc = c->gate ? reasoning_gate_limit(c->gate, ctx->max_tokens, e)
                     : constraint_state_limit(c->state, ctx->max_tokens, e);

    return rc ? name_field(close_field, e) : 0;
}

/* After the text that the model continues was read. */
static int check_limit(
    const struct choice_constraint *c, const struct choice_constraints_ctx *ctx, struct err *e)
{
    int64_t least = c->gate ? reasoning_gate_cost(c->gate) : constraint_state_cost(c->state);

    if (least <= ctx->max_tokens)
        return 0;
    if (least >= UINT32_MAX)
        return err_param(e, ERR_INVALID, close_field,
            "'%s': no output of at most %d tokens, the limit of this request, was found.",
            close_field, ctx->max_tokens);
    return err_param(e, ERR_INVALID, close_field,
        "'%s': the shortest output has %lld tokens; the limit of this request is %d.", close_field,
        (long long)least, ctx->max_tokens);
}

static int choice_init(struct choice_constraints *all, int i, const struct request *request,
    struct constraint *c, const struct choice_constraints_ctx *ctx, struct err *e)
{
    struct choice_constraint *choice = &all->choices[i];
    const struct reasoning_gates *gates = choose_gates(request, ctx);

    if (constraint_state_new(&choice->state, c, e))
        return name_field(ctx->is_free ? "tools" : request->constraint.field, e);
    if (ctx->is_free) {
        if (!charge_add(&all->charge, constraint_state_bytes(choice->state)))
            return err_set(e, ERR_MEMORY, "no memory for the constraints of %d choices", all->n);
        return add_call_gate(all, i, request, ctx, e);
    }
    if (gates) {
        bool may_open = request->thinking != THINKING_OFF;
        choice->gate = reasoning_gate_new(gates, choice->state, ctx->start, may_open);
        if (!choice->gate)
            return err_set(e, ERR_MEMORY, "no memory for %d choices", all->n);
    }
    bool is_limited = request->constraint.close_at_limit;
    if (is_limited && set_limit(choice, ctx, e))
        return -1;
    if (!charge_add(&all->charge, constraint_state_bytes(choice->state)))
        return err_set(e, ERR_MEMORY, "no memory for the constraints of %d choices", all->n);
    all->list[i] =
        choice->gate ? reasoning_gate_ops(choice->gate) : constraint_state_ops(choice->state);
    if (read_prefix(choice, request, e))
        return -1;
    return is_limited ? check_limit(choice, ctx, e) : 0;
}

int choice_constraints_new(struct choice_constraints **out, const struct request *request,
    struct constraint *c, struct choice_constraints_ctx *ctx, struct err *e)
{
    int n = request->best_of;
    struct choice_constraints *all =
        try_calloc(1, sizeof(*all) + (size_t)n * sizeof(all->choices[0]));

    if (!all)
        return err_set(e, ERR_MEMORY, "no memory for %d choices", n);
    all->n = n;
    all->charge = ctx->charge;
    all->list = try_calloc((size_t)n, sizeof(*all->list));
    if (!all->list) {
        err_set(e, ERR_MEMORY, "no memory for %d choices", n);
        goto fail;
    }
    for (int i = 0; i < n; i++)
        if (choice_init(all, i, request, c, ctx, e))
            goto fail;
    *out = all;
    return 0;

fail:
    ctx->charge.refusal = all->charge.refusal;
    choice_constraints_free(all);
    return -1;
}

void choice_constraints_free(struct choice_constraints *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->n; i++) {
        reasoning_gate_free(c->choices[i].gate);
        call_gate_free(c->choices[i].calls);
        constraint_state_free(c->choices[i].state);
    }
    charge_clear(&c->charge);
    mem_free(c->list);
    mem_free(c);
}

const struct sample_constraint *choice_constraints_list(const struct choice_constraints *c)
{
    return c ? c->list : NULL;
}
