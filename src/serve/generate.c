/* generate.c: chat and completion requests: body to tokens, tokens to sessions, output events to
 * the response. inflight.c contains the life of the request. Owner: the io thread, or the worker
 * thread for the functions of PREPARING.
 *
 *     parse -> model -> tokens -> sessions ... text, text, choice_end ... end
 *                                    \-> response -> sink           \-> freed after the last */
#include "serve/audit_record.h"
#include "serve/audit_wait.h"
#include "serve/model_wait.h"

#include "api/common/dialect.h"
#include "base/log.h"
#include "os/clock.h"
#include "serve/responses/background.h"
#include "generate/output_constraint.h"
#include "generate/tool_choice.h"
#include "generate/response_cache_key.h"

#include <stdio.h>

static int prepare_inflight_prompts(struct inflight *r, const struct prompt_ctx *ctx, struct err *e)
{
    const struct request *request = &r->request;

    struct prompt_ctx kept = *ctx;
    kept.arena = r->async.arena;
    r->inflight_prompts =
        arena_zalloc(r->async.arena, (size_t)request->n_prompts, sizeof(*r->inflight_prompts));
    r->last_token_ns =
        arena_zalloc(r->async.arena, (size_t)request_n_choices(request), sizeof(*r->last_token_ns));
    if (!r->inflight_prompts || !r->last_token_ns)
        return err_set(e, ERR_MEMORY, "no memory for the request");
    for (int i = 0; i < request->n_prompts; i++) {
        r->inflight_prompts[i].inflight = r;
        r->inflight_prompts[i].index = i;
        if (r->model->spec->backend == BACKEND_SCRIPT &&
            script_build(&r->inflight_prompts[i].script, request, i, &kept, e))
            return -1;
    }
    return 0;
}

/* Replaces the constraint of the request by one of calls. A constraint that permits text and calls
 * is not reported to the client, which has asked for none. */
static int add_tools(struct constraint_source *source, struct request *request,
    const struct prompt_ctx *ctx, struct err *e)
{
    size_t bytes_max = source->bytes_max;
    struct request_constraint *own = &request->constraint;

    if (own->is_set && bytes_max && source->text.n > bytes_max)
        return err_param(e, ERR_INVALID, own->field,
            "%s: the constraint has %zu bytes; at most %zu are permitted", own->field,
            source->text.n, bytes_max);
    bool is_free = tool_choice_is_free(request);
    if (tool_choice_source(source, request, ctx, e))
        return -1;
    if (is_free)
        return 0;
    own->field = own->is_set ? own->field : "tools";
    own->is_set = true;
    own->source.kind = CONSTRAINT_TOOLS;
    return 0;
}

/* Tools that are not strict are no reason to refuse a request. */
static int forgive_tools(const struct request *request, struct err *e)
{
    if (e->code == ERR_MEMORY || e->code == ERR_CANCELLED || tool_choice_is_strict(request))
        return -1;
    log_warn("serve", "tools_not_enforced", "error=\"%s\"", e->msg);
    *e = (struct err){ 0 };
    return 0;
}

/* The states are made here, since a prefix that the constraint does not permit is an error of the
 * request, and since the worker thread has the time. */
static int build_constraints(struct inflight *r, const struct prompt_ctx *prompt, struct err *e)
{
    struct request *request = &r->request;
    struct constraint_source source = request->constraint.source;
    struct constraint_compiler compiler = { r->model, r->io->o->compile_cache,
        caller_tenant(&r->caller) };
    struct constraint *c;
    int rc = 0;

    bool is_tools = tool_choice_has_grammar(request, prompt);
    bool is_free = is_tools && tool_choice_is_free(request);
    const char *field = is_free ? "tools" : request->constraint.field;
    bool is_constrained = request->constraint.is_set || is_tools;
    if (request->constraint.close_at_limit && (is_free || !is_constrained))
        return err_param(e, ERR_INVALID, "x_constraint.close_at_limit",
            "'x_constraint.close_at_limit' requires a constraint or a forced tool call.");
    if (!is_constrained)
        return 0;
    if (r->model->spec->backend == BACKEND_SCRIPT)
        return err_param(e, ERR_UNSUPPORTED, request->constraint.field,
            "'%s' is not supported by a script model, which does not sample.",
            request->constraint.field);
    uint64_t began = clock_ns();
    source.bytes_max = r->io->o->constraint_bytes_max;
    if (is_tools && add_tools(&source, request, prompt, e))
        return -1;
    if (!is_free)
        field = request->constraint.field;
    if (output_constraint_compile(&c, &source, field, &compiler, e))
        return is_free ? forgive_tools(request, e) : -1;
    for (int i = 0; i < request->n_prompts && !rc; i++) {
        struct choice_constraints_ctx ctx = { r->model, r->prompts[i].output.parse.start, is_free,
            inflight_max_tokens(r, i),
            { .budget = r->async.charge.budget, .owner = r->async.charge.owner } };
        rc = choice_constraints_new(&r->inflight_prompts[i].constraints, request, c, &ctx, e);
        if (rc && ctx.charge.refusal != BUDGET_NONE)
            r->async.charge.refusal = ctx.charge.refusal;
    }
    constraint_unref(c);
    r->compile_ns = clock_ns() - began;
    return rc;
}

int inflight_max_tokens(const struct inflight *r, int i)
{
    int n = prompt_max_tokens(&r->request, r->model, &r->prompts[i],
        r->request.kind == REQUEST_CHAT ? r->io->o->default_max_tokens : 0);

    return r->limits.max_output ? (int)MIN(n, r->limits.max_output) : n;
}

/* A request that sets no max_tokens may end early; its response is limited while it grows. */
static int check_output_size(const struct inflight *r, struct err *e)
{
    int64_t n_tokens = 0;

    for (int i = 0; r->request.max_tokens >= 0 && i < r->request.n_prompts; i++)
        n_tokens += (int64_t)inflight_max_tokens(r, i) * r->request.best_of;
    return response_check_size(&r->request, n_tokens, e);
}

static int build_prompts(struct inflight *r, struct err *e)
{
    struct request *request = &r->request;
    struct model *m = r->model;
    struct prompt_ctx ctx = { m, r->async.scratch, &r->async.job.is_stopped, true,
        r->io->o->tool_strictness };

    if (tool_choice_check_constraint(request, &ctx, e) ||
        request_check_vocab(request, vocab_n_tokens(m->vocab), e) || bias_build(request, &ctx, e) ||
        prompts_build_truncated(&r->prompts, request, &ctx, e) ||
        prediction_build(&r->predicted, &r->n_predicted, request, &ctx, e) ||
        prepare_inflight_prompts(r, &ctx, e) || build_constraints(r, &ctx, e))
        return -1;
    for (int i = 0; i < request->n_prompts; i++)
        r->n_prompt += r->prompts[i].n;
    if (engine_check_size(
            m->engine, request->n_prompts, request_n_choices(request), r->n_prompt, e) ||
        check_output_size(r, e))
        return -1;
    r->n_earlier_calls = tool_choice_n_earlier_calls(request);
    ctx.arena = r->async.arena;
    if (r->io->o->response_cache)
        r->cache_key = response_cache_key_build(
            request, &r->prompts[0], r->caller.id, request->dialect->name, &ctx);
    return 0;
}

/* Copies what generation needs to the arena of the struct and frees the rest. On error the prompts
 * remain, which the error may describe. */
static int finish_preparing(struct inflight *r, struct err *e)
{
    struct arena *to = r->async.arena;
    int32_t *predicted = NULL;

    if (r->n_predicted) {
        predicted = arena_alloc(to, (size_t)r->n_predicted * sizeof(*predicted));
        if (!predicted)
            return err_set(e, ERR_MEMORY, "no memory for the request");
        memcpy(predicted, r->predicted, (size_t)r->n_predicted * sizeof(*predicted));
    }
    if (request_keep(&r->request, &r->prompts, &r->request.dialect->needs, to, e))
        return -1;
    r->predicted = predicted;
    async_free_scratch(&r->async);
    return 0;
}

/* Second part of PREPARING: the steps that need the loaded model. */
static int prepare_prompts(struct inflight *r, struct err *e)
{
    if (request_guard_prompt(r, e))
        return -1;
    if (!r->guard.is_refused && !r->request.load_only && build_prompts(r, e))
        return -1;
    return finish_preparing(r, e);
}

static int read_body(struct inflight *r, struct err *e)
{
    return request_parse(&r->request, r->route->dialect, r->async.body, r->async.scratch, e);
}

/* Continues with the model if it is loaded; otherwise LOADING is the next state if waiting is
 * enabled. */
static int take_model(struct inflight *r, struct err *e)
{
    struct err why;
    enum take result = registry_take(r->entry, &r->async.model, &why);

    if (result == TAKE_OK) {
        r->model = r->async.model;
        return prepare_prompts(r, e);
    }
    r->must_wait = result == TAKE_LATER && model_wait_is_enabled(r);
    if (r->must_wait)
        return 0;
    *e = why;
    return -1;
}

static int prepare(struct inflight *r, struct err *e)
{
    struct request *request = &r->request;
    struct stored_response_ctx ctx = { r->io->o->response_store, caller_tenant(&r->caller),
        r->async.scratch };
    if (stored_response_recall(&r->previous, request, &ctx, e))
        return -1;
    if (r->io->o->strip_billing)
        convo_drop_billing(&request->convo);
    r->entry = registry_find(r->io->o->registry, request->model, e);
    if (!r->entry || model_check_allowed(registry_entry_spec(r->entry), r->async.key, e))
        return -1;
    return take_model(r, e);
}

static int prepare_body(struct inflight *r, struct err *e)
{
    return read_body(r, e) || prepare(r, e) ? -1 : 0;
}

/* Looks up the response cache. The Cache-Control header of the client applies to it, too. */
static void look_up_cache(struct inflight *r)
{
    struct str control = http_field_get(r->async.x->req, "cache-control");
    struct route_call *c = r->async.call;

    if (str_find(control, STR("no-store")) >= 0)
        r->cache_key.n = 0;
    if (!r->cache_key.n || str_find(control, STR("no-cache")) >= 0)
        return;
    r->cached_response = response_cache_take(
        r->io->o->response_cache, r->cache_key, inflight_max_tokens(r, 0), clock_ns());
    if (r->cached_response)
        c->fields[c->n_fields++] = (struct http_field){ STR("x-inferflux-cache"), STR("exact") };
}

/* Reports the limit of the key to the client: its request is served with this priority compared
 * with those of other keys. */
static void report_priority(struct inflight *r)
{
    struct route_call *c = r->async.call;

    if (r->request.priority <= r->caller.max_priority)
        return;
    snprintf(c->priority, sizeof(c->priority), "%d", r->caller.max_priority);
    c->fields[c->n_fields++] =
        (struct http_field){ STR("x-inferflux-priority"), str_of(c->priority) };
}

static struct str bytes_of_token(const void *vocab, int32_t id)
{
    return vocab_bytes(vocab, id);
}

static int open_response(struct inflight *r, struct err *e)
{
    struct response_setup setup = {
        .request = &r->request,
        .sink = r->background ? background_sink(r) : &r->async.x->sink,
        .model = str_of(r->model->spec->id),
        .fingerprint = INFERFLUX_VERSION,
        .created = clock_wall_s(),
        .reasoning_names = r->io->o->reasoning_names,
        .call_ids = parser_format_ids(adapter_format(r->model->adapter)),
        .n_earlier_calls = r->n_earlier_calls,
        .fields = r->async.call->fields, /* valid as long as x */
        .n_fields = r->background ? 0 : r->async.call->n_fields,
        .token_bytes = bytes_of_token,
        .vocab = r->model->vocab,
    };

    return response_new(&r->response, &setup, e);
}

static int take_slot(struct inflight *r, int i, struct err *e)
{
    const struct request *request = &r->request;
    struct slot_use u = { .model = r->model,
        .wanted = request->id_slot,
        .prompt = r->prompts[i].ids,
        .n_prompt = r->prompts[i].n,
        .n_max = inflight_max_tokens(r, i),
        .params = { .sample = request->sample,
            .n_predict = request->max_tokens,
            .stream = request->stream,
            .ignore_eos = request->ignore_eos } };

    prompt_scope(&u.scope, request, scope_tenant(r->io->o, &r->caller));
    if (slot_begin(&r->inflight_prompts[i].slot, r->io->o->slots, &u, e))
        return -1;
    if (i == 0)
        response_set_slot(r->response, slot_id(&r->inflight_prompts[i].slot));
    return 0;
}

static int open_session(struct inflight *r, int i, struct err *e)
{
    const struct request *request = &r->request;
    int priority = MIN(request->priority, r->caller.max_priority);
    struct session_params p = {
        .gen = { .prompt = r->prompts[i].ids,
            .n_prompt = r->prompts[i].n,
            .max_tokens = inflight_max_tokens(r, i),
            .n_choices = request->best_of,
            .sample = request->sample,
            .constraints = choice_constraints_list(r->inflight_prompts[i].constraints),
            .stop_ids = request->stop_ids,
            .n_stop_ids = request->n_stop_ids,
            .want_prompt_logprobs = request->echo && request->want_logprobs,
            .want_begin = r->background != NULL,
            .priority = priority,
            .extra_priority = request->priority - priority,
            .predicted = r->predicted,
            .n_predicted = r->n_predicted,
            .tenant = caller_tenant(&r->caller),
            .tenant_weight = r->caller.weight,
            .cache_prompt = request->cache_prompt,
            .name = r->request_id,
            .deadline_ns = r->async.deadline_ns == UINT64_MAX ? 0 : r->async.deadline_ns,
            .n_events_max = r->limits.slice,
            .script = r->inflight_prompts[i].script },
        .is_free = !request->constraint.is_set,
        .stops = request->stops,
        .n_stops = request->n_stops,
        .include_stop = request->include_stop,
        .skip_special_tokens = request->skip_special_tokens,
        .ignore_eos = request->ignore_eos,
        .output = r->prompts[i].output,
        .pace_group = r->limits.group,
        .first_choice = i * request->best_of,
        .replay = r->cached_response,
    };
    struct session_ctx ctx = { r->model, r->async.arena, loop_mailbox(r->io->loop),
        &inflight_events_ops, &r->inflight_prompts[i], request_guard_ops(r), request_guard_ctx(r) };

    p.gen.sample.min_tokens = request->min_tokens;
    prompt_scope(&p.gen.scope, request, scope_tenant(r->io->o, &r->caller));
    if (take_slot(r, i, e))
        return -1;
    r->n_refs++;
    if (session_open(&r->inflight_prompts[i].session, &p, &ctx, e)) {
        slot_end(&r->inflight_prompts[i].slot);
        r->n_refs--;
        return -1;
    }
    return 0;
}

static void count_start(struct inflight *r)
{
    struct metrics *m = &r->io->metrics;

    r->is_accepted = true;
    metric_add(m, METRIC_requests_total, 1);
    metric_add(m, METRIC_prompt_tokens_total, r->n_prompt);
    metric_add(m, METRIC_model_routes_total, 1);
    metric_add(m, METRIC_moe_requests_total, r->model->n_experts > 0);
    if (r->compile_ns)
        metric_observe_ns(m, METRIC_constraint_compile_seconds, r->compile_ns);
    metric_add(m, METRIC_unverified_reasoning_blocks_total, r->request.n_unverified_reasoning);
}

/* Starts RUNNING. Opening the session of the first prompt shows whether the engine's queue has
 * room; if not, the client receives an HTTP status. */
static int start_sessions(struct inflight *r, struct err *e)
{
    report_priority(r);
    if (audit_record_open(&r->audit_record, r, e))
        return -1;
    if ((r->request.background && background_new(r, e)) || open_response(r, e) ||
        (r->background && background_store(r, e)) || request_guard_open(r, e) ||
        (!r->request.load_only && open_session(r, 0, e)))
        return -1;
    count_start(r);
    rate_limit_started(r);
    if (r->request.load_only)
        return 0; /* the model is loaded: the response ends with the last reference */
    response_set_usage(r->response, r->n_prompt, 0);
    response_begin(r->response);
    inflight_events_echo(r);
    inflight_flush(r);
    for (int i = 1; i < r->request.n_prompts; i++)
        if (open_session(r, i, e))
            return -1;
    if (r->background)
        return background_detach(r, e);
    if (r->request.stream)
        inflight_start_keepalive(r);
    return 0;
}

/* The rate limits have granted the request, which has one reference for this function. */
static void start_granted(struct inflight *r)
{
    struct err e;

    if (r->guard.is_refused) {
        rate_limit_started(r);
        request_guard_refusal(r, &e);
        inflight_fail(r, &e);
    } else if (start_sessions(r, &e)) {
        async_explain_refusal(&r->async, &e);
        inflight_fail(r, &e);
    }
    inflight_release(r);
}

/* Reserves the amounts of the request. 0: granted; 1: start_granted is called later. */
static int reserve_amounts(struct inflight *r, struct err *e)
{
    if (r->request.load_only)
        return 0;
    if (rate_limit_open(r, e))
        return -1;
    look_up_cache(r);
    return rate_limit_reserve(r, start_granted, e);
}

int generate_run_step(struct async *a)
{
    struct inflight *r = inflight_of(a);

    return r->prepare_step(r, &a->err);
}

static void continue_loaded(struct inflight *r)
{
    r->prepare_step = prepare_prompts;
    async_start(&r->async, r->async.was_at_worker);
}

/* There is room for the audit line: starts the request as soon as the rate limits have granted it.
 * Drops the caller's reference. */
static void start_limited(struct inflight *r)
{
    struct err e;
    int must_wait = reserve_amounts(r, &e);

    if (must_wait > 0)
        return;
    if (!must_wait) {
        start_granted(r);
        return;
    }
    inflight_fail(r, &e);
    inflight_release(r);
}

/* Reserves room for the audit line, or waits for it, and goes on. Drops a reference. */
static void start_audited(struct inflight *r)
{
    struct err e;

    if (r->request.timeout_s > 0)
        async_set_deadline(&r->async, r->began_ns + (uint64_t)(r->request.timeout_s * 1e9));
    int must_wait = audit_wait_reserve(r, &e);
    if (must_wait > 0) {
        audit_wait_start(r, start_limited);
        return;
    }
    if (!must_wait) {
        start_limited(r);
        return;
    }
    inflight_fail(r, &e);
    inflight_release(r);
}

/* A step of PREPARING has ended: starts the request, waits for its model, or reports an error. The
 * client may have left. */
void generate_step_done(struct async *a)
{
    struct inflight *r = inflight_of(a);

    if (a->err.code && !r->err.code) {
        inflight_fail(r, &a->err);
    } else if (a->is_open && r->must_wait) {
        model_wait_start(r, continue_loaded);
        return;
    } else if (a->is_open) {
        async_drop_body(a);
        start_audited(r);
        return;
    }
    inflight_release(r);
}

void generate_response(struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct err e;

    if (io->is_draining) {
        err_set(&e, ERR_DRAINING, "The server is shutting down.");
        reply_error(x, c, &e, NULL);
        return;
    }
    struct inflight *r = inflight_new(io, x, c);
    if (!r)
        return;
    struct async *a = &r->async;
    bool is_large = a->body.n >= WORKER_MIN_BODY_BYTES;
    if (!is_large && read_body(r, &a->err)) {
        async_explain_refusal(a, &a->err);
        generate_step_done(a);
        return;
    }
    r->prepare_step = is_large ? prepare_body : prepare;
    /* The chain of previous responses may be long, and a constraint is compiled. */
    async_start(a, r->request.needs_response_store || r->request.constraint.is_set ||
                       tool_choice_may_have_grammar(&r->request) || request_guard_is_slow(r));
}
