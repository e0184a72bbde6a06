/* generate.c: chat and completion requests: body to tokens, tokens to sessions, output events to
 * the response. inflight.c contains the life of the request. Owner: the io thread, or the worker
 * thread for the functions of PREPARING.
 *
 *     parse -> model -> tokens -> sessions ... text, text, choice_end ... end
 *                                    \-> response -> sink           \-> freed after the last */
#include "serve/loading.h"

#include "api/common/wire.h"
#include "os/clock.h"
#include "serve/responses/background.h"
#include "generate/expect.h"
#include "generate/remember.h"

static int prepare_inflight_prompts(struct request *r, const struct workplace *ctx, struct err *e)
{
    const struct ask *ask = &r->ask;

    r->legs = arena_zalloc(r->arena, (size_t)ask->n_prompts, sizeof(*r->legs));
    r->last_token_ns =
        arena_zalloc(r->arena, (size_t)ask_n_choices(ask), sizeof(*r->last_token_ns));
    if (!r->legs || !r->last_token_ns)
        return err_set(e, ERR_MEMORY, "no memory for the request");
    for (int i = 0; i < ask->n_prompts; i++) {
        r->legs[i].request = r;
        r->legs[i].index = i;
        if (r->model->spec->backend == BACKEND_SCRIPT &&
            script_build(&r->legs[i].script, ask, i, ctx, e))
            return -1;
    }
    return 0;
}

/* Second part of PREPARING: the steps that need the loaded model. */
static int prepare_prompts(struct request *r, struct err *e)
{
    struct ask *ask = &r->ask;
    struct model *m = ready_model(r->io, ask->model, e);
    if (!m)
        return -1;
    r->model = m;
    if (ask->load_only)
        return 0;
    struct workplace ctx = { m, r->arena, &r->job.is_stopped };
    if (expect_shape(ask, e) || ask_check_vocab(ask, vocab_n(m->vocab), e) ||
        bias_build(ask, &ctx, e) || prompts_build_shorter(&r->prompts, ask, &ctx, e) ||
        prediction_build(&r->predicted, &r->n_predicted, ask, &ctx, e) ||
        prepare_inflight_prompts(r, &ctx, e))
        return -1;
    for (int i = 0; i < ask->n_prompts; i++)
        r->n_prompt += r->prompts[i].n;
    if (r->io->o->exact)
        r->exact_key = remember_key(ask, &r->prompts[0], r->caller.id, ask->wire->name, &ctx);
    return 0;
}

/* First step of PREPARING. All of PREPARING runs on the worker thread for a large body. */
static int read_body(struct request *r, struct str body, struct err *e)
{
    return ask_parse(&r->ask, r->route->wire, body, r->arena, e);
}

static int prepare(struct request *r, struct err *e)
{
    struct ask *ask = &r->ask;
    struct kept_place ctx = { r->io->o->shelf, caller_tenant(&r->caller), r->arena };
    if (kept_recall(&r->before, ask, &ctx, e))
        return -1;
    if (r->io->o->strip_billing)
        convo_drop_billing(&ask->convo);
    struct model *m = pool_find(r->io->o->pool, ask->model, e);
    if (!m)
        return -1;
    if (model_state(m) == MODEL_LOADING && r->io->o->load_wait_ms) {
        r->loading = m;
        return 0;
    }
    return prepare_prompts(r, e);
}

static int max_tokens_of(const struct request *r, int i)
{
    return prompt_max_tokens(&r->ask, r->model, &r->prompts[i],
        r->ask.kind == ASK_CHAT ? r->io->o->default_max_tokens : 0);
}

/* Looks up the response cache. The Cache-Control header of the client applies to it, too. */
static void look_up_cache(struct request *r)
{
    struct str control = http_field_get(r->x->req, "cache-control");
    struct call *c = r->call;

    if (str_find(control, STR("no-store")) >= 0)
        r->exact_key.n = 0;
    if (!r->exact_key.n || str_find(control, STR("no-cache")) >= 0)
        return;
    r->recalled = exact_take(r->io->o->exact, r->exact_key, max_tokens_of(r, 0), clock_ns());
    if (r->recalled)
        c->fields[c->n_fields++] = (struct http_field){ STR("x-inferflux-cache"), STR("exact") };
}

static struct str bytes_of_token(const void *vocab, int32_t id)
{
    return vocab_bytes(vocab, id);
}

static int open_response(struct request *r, struct err *e)
{
    struct answer_setup setup = {
        .ask = &r->ask,
        .sink = r->background ? background_sink(r) : &r->x->sink,
        .model = str_of(r->model->spec->id),
        .fingerprint = INFERFLUX_VERSION,
        .created = clock_wall_s(),
        .reasoning_names = r->io->o->reasoning_names,
        .call_ids = parser_format_ids(adapter_format(r->model->adapter)),
        .n_earlier_calls = expect_n_earlier_calls(&r->ask),
        .fields = r->call->fields, /* valid as long as x */
        .n_fields = r->background ? 0 : r->call->n_fields,
        .token_bytes = bytes_of_token,
        .vocab = r->model->vocab,
    };

    return answer_new(&r->answer, &setup, e);
}

static int take_slot(struct request *r, int i, struct err *e)
{
    const struct ask *ask = &r->ask;
    const struct sample_params *s = &ask->sample;
    struct slot_use u = { .model = r->model,
        .wanted = ask->id_slot,
        .prompt = r->prompts[i].ids,
        .n_prompt = r->prompts[i].n,
        .n_max = max_tokens_of(r, i),
        .params = { s->seed, s->temperature, s->top_p, s->min_p, s->typical_p, s->repeat_penalty,
            s->presence_penalty, s->frequency_penalty, s->top_k, s->repeat_last_n, ask->max_tokens,
            ask->stream, ask->ignore_eos } };

    prompt_scope(&u.scope, ask, scope_tenant(r->io->o, &r->caller));
    if (slot_begin(&r->legs[i].slot, r->io->o->slots, &u, e))
        return -1;
    if (i == 0)
        answer_slot(r->answer, slot_id(&r->legs[i].slot));
    return 0;
}

static int open_session(struct request *r, int i, struct err *e)
{
    const struct ask *ask = &r->ask;
    struct session_params p = {
        .prompt = r->prompts[i].ids,
        .n_prompt = r->prompts[i].n,
        .max_tokens = max_tokens_of(r, i),
        .n_choices = ask->best_of,
        .sample = ask->sample,
        .stops = ask->stops,
        .n_stops = ask->n_stops,
        .include_stop = ask->include_stop,
        .show_control = !ask->skip_special_tokens,
        .parts = r->prompts[i].parts,
        .ignore_end = ask->ignore_eos,
        .stop_ids = ask->stop_ids,
        .n_stop_ids = ask->n_stop_ids,
        .want_prompt_logprobs = ask->echo && ask->want_logprobs,
        .priority = ask->priority,
        .predicted = r->predicted,
        .n_predicted = r->n_predicted,
        .tenant = caller_tenant(&r->caller),
        .tenant_weight = r->caller.weight,
        .is_uncached = !ask->cache_prompt,
        .name = r->request_id,
        .deadline_ns = r->deadline_ns == UINT64_MAX ? 0 : r->deadline_ns,
        .script = r->legs[i].script,
        .replay = r->recalled,
        .want_begin = r->background != NULL,
    };
    struct session_place ctx = { r->model, r->arena, loop_mailbox(r->io->loop), &told_ops,
        &r->legs[i] };

    p.sample.min_tokens = ask->min_tokens;
    prompt_scope(&p.scope, ask, scope_tenant(r->io->o, &r->caller));
    if (take_slot(r, i, e))
        return -1;
    r->n_open++;
    if (session_open(&r->legs[i].session, &p, &ctx, e)) {
        slot_end(&r->legs[i].slot);
        r->n_open--;
        return -1;
    }
    return 0;
}

static void count_start(struct request *r)
{
    struct metrics *m = &r->io->metrics;

    r->is_accepted = true;
    metric_add(m, METRIC_requests_total, 1);
    metric_add(m, METRIC_prompt_tokens_total, r->n_prompt);
    metric_add(m, METRIC_model_routes_total, 1);
    metric_add(m, METRIC_strange_thoughts_total, r->ask.n_strange_thoughts);
}

/* Starts RUNNING. Opening the session of the first prompt shows whether the engine's queue has
 * room; if not, the client receives an HTTP status. */
static int start_sessions(struct request *r, struct err *e)
{
    if (r->ask.timeout_s > 0)
        request_set_deadline(r, r->began_ns + (uint64_t)(r->ask.timeout_s * 1e9));
    if (!r->ask.load_only)
        look_up_cache(r);
    if ((r->ask.background && background_new(r, e)) || open_response(r, e) ||
        (r->background && background_keep(r, e)) || (!r->ask.load_only && open_session(r, 0, e)))
        return -1;
    count_start(r);
    if (r->ask.load_only)
        return 0; /* the model is loaded: the response ends with the last reference */
    answer_usage(r->answer, r->n_prompt, 0);
    answer_begin(r->answer);
    told_echo(r);
    request_wrote(r);
    for (int i = 1; i < r->ask.n_prompts; i++)
        if (open_session(r, i, e))
            return -1;
    if (r->background)
        return background_detach(r, e);
    if (r->ask.stream)
        request_start_pings(r);
    return 0;
}

static void continue_loaded(struct request *r);

/* PREPARING has ended: starts the request, waits for its model, or reports an error. The client may
 * have left. */
static void after_prepare(struct request *r)
{
    struct err e;

    if (r->prepared.code && !r->err.code) {
        request_fail(r, &r->prepared);
    } else if (r->x && r->loading) {
        loading_wait(r, continue_loaded);
        return;
    } else if (r->x && start_sessions(r, &e)) {
        request_fail(r, &e);
    }
    request_release(r);
}

static void worker_done_prepare(struct clerk_job *j)
{
    struct request *r = container_of(j, struct request, job);

    r->is_at_clerk = false;
    after_prepare(r);
}

static void post_to_worker(struct request *r, void (*run)(struct clerk_job *j))
{
    r->is_at_clerk = true;
    r->job.run = run;
    r->job.done = worker_done_prepare;
    clerk_post(r->io->clerk, &r->job);
}

static void prepare_body_on_worker(struct clerk_job *j)
{
    struct request *r = container_of(j, struct request, job);

    if (!read_body(r, buf_str(&r->body.bytes), &r->prepared))
        prepare(r, &r->prepared);
}

static void prepare_on_worker(struct clerk_job *j)
{
    struct request *r = container_of(j, struct request, job);

    prepare(r, &r->prepared);
}

static void prepare_prompts_on_worker(struct clerk_job *j)
{
    struct request *r = container_of(j, struct request, job);

    prepare_prompts(r, &r->prepared);
}

static void continue_loaded(struct request *r)
{
    if (r->body.bytes.n) {
        post_to_worker(r, prepare_prompts_on_worker);
        return;
    }
    prepare_prompts(r, &r->prepared);
    after_prepare(r);
}

static void generate(struct io *io, struct http_exchange *x, struct call *c)
{
    struct err e;

    if (io->is_draining) {
        err_set(&e, ERR_DRAINING, "The server is shutting down.");
        reply_error(x, c, &e, NULL);
        return;
    }
    struct request *r = request_new(io, x, c);
    if (!r)
        return;
    bool is_large = x->req->body.n >= CLERK_FROM;
    int rc = is_large ? 0 : read_body(r, x->req->body, &r->prepared);
    if (is_large || (!rc && r->ask.needs_shelf)) { /* the chain of previous responses may be long */
        http_body_take(x, &r->body);
        post_to_worker(r, is_large ? prepare_body_on_worker : prepare_on_worker);
        return;
    }
    if (!rc)
        prepare(r, &r->prepared);
    after_prepare(r);
}

void generate_answer(struct io *io, struct http_exchange *x, struct call *c)
{
    generate(io, x, c);
}
