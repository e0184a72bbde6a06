/* generate.c: a chat or completion: the body becomes tokens, the tokens sessions, what they say an
 * answer. request.c has the life around it.
 *
 *   parse -> model -> tokens -> sessions ... text, text, choice_end ... end
 *                                  \-> answer -> sink            \-> freed when all have ended */
#include "serve/loading.h"

#include "api/wire.h"
#include "os/clock.h"
#include "serve/expect.h"
#include "serve/remember.h"

/* ---- echo: the prompt in front of a completion */

static bool is_told_by_token(const struct request *r)
{
    return r->ask.echo && r->ask.want_logprobs && r->ask.stream;
}

/* The token's part of the prompt's text. What a client wrote comes back as it was written: a token
 * that is not in it (the one that begins every text) shows nothing. */
static void echo_token(struct leg *p, int32_t id, const struct sampled *t)
{
    struct request *r = p->request;
    bool is_text = p->echo_left.p != NULL;
    struct buf piece;

    answer_prompt_token(r->answer, p->index, id, t);
    if (!r->ask.stream)
        return;
    buf_init(&piece, MB);
    detok_put(&p->echo, r->model->vocab, id, is_text || !r->ask.skip_special_tokens, &piece);
    if (is_text && !str_starts(p->echo_left, buf_str(&piece)))
        buf_reset(&piece);
    if (is_text)
        p->echo_left = str_skip(p->echo_left, piece.n);
    answer_prompt_text(r->answer, p->index, buf_str(&piece));
    buf_clear(&piece);
}

/* What the tokens have not told, when the last one came or something else begins. */
static void echo_rest(struct leg *p)
{
    struct request *r = p->request;
    struct buf piece;

    if (!p->is_echoing || !r->answer)
        return;
    p->is_echoing = false;
    if (p->echo_left.p) {
        answer_prompt_text(r->answer, p->index, p->echo_left);
        return;
    }
    buf_init(&piece, KB);
    detok_end(&p->echo, &piece);
    answer_prompt_text(r->answer, p->index, buf_str(&piece));
    buf_clear(&piece);
}

static void echo_tokens(struct request *r, const struct prompt *p, int index)
{
    struct detok d = { 0 };
    struct buf text;

    buf_init(&text, 64 * MB);
    for (int t = 0; t < p->n; t++)
        detok_put(&d, r->model->vocab, p->ids[t], !r->ask.skip_special_tokens, &text);
    detok_end(&d, &text);
    answer_prompt_text(r->answer, index, buf_str(&text));
    buf_clear(&text);
}

/* Before anything is generated: whole prompts, or the first token of those told by token. */
static void echo_prompts(struct request *r)
{
    for (int i = 0; r->ask.echo && i < r->ask.n_prompts; i++) {
        const struct prompt *p = &r->prompts[i];
        struct leg *leg = &r->legs[i];
        leg->is_echoing = is_told_by_token(r);
        leg->echo_left = p->text;
        if (r->ask.want_logprobs)
            echo_token(leg, p->ids[0], NULL);
        if (!leg->is_echoing && p->text.p)
            answer_prompt_text(r->answer, i, p->text);
        else if (!leg->is_echoing)
            echo_tokens(r, p, i);
    }
}

/* ---- session callbacks */

static int choice_of(const struct leg *p, int choice)
{
    return p->index * p->request->ask.best_of + choice;
}

static void on_prompt_token(void *ctx, int position, const struct sampled *t)
{
    struct leg *p = ctx;
    struct request *r = p->request;

    if (!r->answer || !r->ask.echo)
        return;
    echo_token(p, t->id, t);
    if (position == r->prompts[p->index].n - 1)
        echo_rest(p);
    request_wrote(r);
}

static void measure_token(struct request *r, int choice)
{
    struct metrics *m = &r->io->metrics;
    uint64_t now = clock_ns();

    if (!r->first_token_ns) {
        r->first_token_ns = now;
        metric_observe_ns(m, METRIC_time_to_first_token_seconds, now - r->began_ns);
    }
    if (r->last_token_ns[choice])
        metric_observe_ns(m, METRIC_inter_token_seconds, now - r->last_token_ns[choice]);
    r->last_token_ns[choice] = now;
}

static void on_token(void *ctx, int choice, const struct sampled *t)
{
    struct leg *p = ctx;
    struct request *r = p->request;

    measure_token(r, choice_of(p, choice));
    echo_rest(p);
    if (choice == 0)
        slot_token(&p->slot, t->id);
    if (r->exact_key.n && !r->recalled)
        exact_record_token(&r->record, r->io->o->exact, t);
    if (r->answer)
        answer_token(r->answer, choice_of(p, choice), t);
}

static void check_answer(struct request *r)
{
    struct err e;

    if (!r->answer || answer_ok(r->answer))
        return;
    err_set(&e, ERR_MEMORY, "The answer has grown too large.");
    request_fail(r, &e);
}

/* The answer, when something is to be told: NULL when nobody listens any more. */
static struct answer *answer_of(void *ctx)
{
    struct leg *p = ctx;

    return p->request->answer;
}

static void told(void *ctx)
{
    struct leg *p = ctx;

    request_wrote(p->request);
    check_answer(p->request);
}

static void on_text(void *ctx, int choice, struct str text)
{
    if (!answer_of(ctx))
        return;
    answer_text(answer_of(ctx), choice_of(ctx, choice), text);
    told(ctx);
}

static void on_reasoning(void *ctx, int choice, struct str text)
{
    struct leg *p = ctx;

    if (!answer_of(ctx) || p->request->ask.hides_thoughts)
        return;
    answer_reasoning(answer_of(ctx), choice_of(ctx, choice), text);
    told(ctx);
}

static void on_call_begin(void *ctx, int choice, int call, struct str name)
{
    if (!answer_of(ctx))
        return;
    answer_call_begin(answer_of(ctx), choice_of(ctx, choice), call, name);
    told(ctx);
}

static void on_call_args(void *ctx, int choice, int call, struct str json)
{
    if (!answer_of(ctx))
        return;
    answer_call_args(answer_of(ctx), choice_of(ctx, choice), call, json);
    told(ctx);
}

static void count(void *ctx, enum metric metric, int n)
{
    struct leg *p = ctx;

    metric_add(&p->request->io->metrics, metric, n);
}

static void on_call_end(void *ctx, int choice, int call)
{
    count(ctx, METRIC_tool_calls_total, 1);
    if (!answer_of(ctx))
        return;
    answer_call_end(answer_of(ctx), choice_of(ctx, choice), call);
    told(ctx);
}

static void on_call_broken(void *ctx, int choice, int call)
{
    count(ctx, METRIC_tool_calls_broken_total, 1);
    if (!answer_of(ctx))
        return;
    answer_call_broken(answer_of(ctx), choice_of(ctx, choice), call);
    told(ctx);
}

static void on_choice_end(void *ctx, const struct choice_end *c)
{
    struct leg *p = ctx;
    struct request *r = p->request;
    struct err e;

    r->n_completion += c->n_tokens;
    r->exact_end = (struct exact_end){ c->finish, c->stop_id };
    if (!r->answer || c->finish == FINISH_CANCELLED || c->finish == FINISH_ERROR)
        return;
    echo_rest(p);
    count(p, METRIC_reasoning_tokens_total, c->n_reasoning);
    if (expect_met(&r->ask, c, &e)) {
        count(p, METRIC_tool_choices_unmet_total, 1);
        request_fail(r, &e);
        return;
    }
    answer_reasoning_tokens(r->answer, choice_of(p, c->choice), c->n_reasoning);
    answer_choice_end(r->answer, choice_of(p, c->choice), c->finish, c->stop_string, c->stop_id);
    request_wrote(r);
}

/* Of several prompts, from the first beginning to the last end. */
static void note_times(struct request *r, const struct gen_result *t)
{
    struct answer_times *all = &r->times;

    all->asked_ns = r->began_ns;
    if (!all->started_ns || t->started_ns < all->started_ns)
        all->started_ns = t->started_ns;
    if (!all->first_token_ns || (t->first_token_ns && t->first_token_ns < all->first_token_ns))
        all->first_token_ns = t->first_token_ns;
    all->ended_ns = MAX(all->ended_ns, t->ended_ns);
    all->n_drafted += t->n_drafted;
    all->n_drafts_right += t->n_accepted;
}

static void remember(struct request *r, const struct session_end *s)
{
    enum finish how = r->exact_end.finish;

    if (!r->exact_key.n || r->recalled || s->err->code || r->err.code)
        return;
    if (how == FINISH_STOP || how == FINISH_LENGTH)
        exact_put(r->io->o->exact, r->exact_key, &r->record, &r->exact_end, clock_ns());
}

static void on_end(void *ctx, const struct session_end *s)
{
    struct leg *p = ctx;
    struct request *r = p->request;
    const struct gen_result *t = s->result;

    p->session = NULL;
    if (p->index == 0 && r->answer) /* it may have had to wait for one */
        answer_slot(r->answer, slot_id(&p->slot));
    slot_end(&p->slot);
    remember(r, s);
    r->n_cached += t->n_cached;
    note_times(r, t);
    r->n_accepted += s->n_predicted;
    if (t->started_ns > t->submitted_ns)
        metric_observe_ns(&r->io->metrics, METRIC_queue_seconds, t->started_ns - t->submitted_ns);
    if (s->err->code && s->err->code != ERR_CANCELLED && !r->err.code) {
        r->n_open++;
        request_fail(r, s->err);
        request_release(r);
    }
    request_release(r);
}

static const struct session_ops session_ops = { on_prompt_token, on_token,
    { on_text, on_reasoning, on_call_begin, on_call_args, on_call_end, on_call_broken },
    on_choice_end, on_end };

/* ---- begin */

static int prepare_legs(struct request *r, const struct workplace *at, struct err *e)
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
            script_build(&r->legs[i].script, ask, i, at, e))
            return -1;
    }
    return 0;
}

/* The rest of PREPARING: with its model. */
static int prepare_prompts(struct request *r, struct err *e)
{
    struct ask *ask = &r->ask;
    struct model *m = ready_model(r->io, ask->model, e);
    if (!m)
        return -1;
    r->model = m;
    if (ask->load_only)
        return 0;
    struct workplace at = { m, r->arena, &r->job.is_stopped };
    if (expect_shape(ask, e) || ask_check_vocab(ask, vocab_n(m->vocab), e) ||
        prompts_build(&r->prompts, ask, &at, e) ||
        prediction_build(&r->predicted, &r->n_predicted, ask, &at, e) || prepare_legs(r, &at, e))
        return -1;
    for (int i = 0; i < ask->n_prompts; i++)
        r->n_prompt += r->prompts[i].n;
    if (r->io->o->exact)
        r->exact_key = remember_key(ask, &r->prompts[0], &r->caller, &at);
    return 0;
}

/* PREPARING: everything that takes long when the body is large. The io thread or its clerk. */
static int prepare(struct request *r, struct str body, struct err *e)
{
    struct ask *ask = &r->ask;

    if (ask_parse(ask, r->route->wire, body, r->arena, e))
        return -1;
    struct kept_place place = { r->io->o->shelf, caller_tenant(&r->caller), r->arena };
    if (kept_recall(&r->before, ask, &place, e))
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

/* What a client says of caches is about remembered answers, too. */
static void recall(struct request *r)
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

static int open_answer(struct request *r, struct err *e)
{
    struct answer_setup setup = {
        .ask = &r->ask,
        .sink = &r->x->sink,
        .model = str_of(r->model->spec->id),
        .fingerprint = INFERFLUX_VERSION,
        .created = clock_wall_s(),
        .reasoning_names = r->io->o->reasoning_names,
        .call_ids = parser_format_ids(adapter_format(r->model->adapter)),
        .n_earlier_calls = expect_n_earlier_calls(&r->ask),
        .fields = r->call->fields,
        .n_fields = r->call->n_fields,
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
        .is_uncached = !ask->cache_prompt,
        .name = r->request_id,
        .deadline_ns = r->deadline_ns == UINT64_MAX ? 0 : r->deadline_ns,
        .script = r->legs[i].script,
        .replay = r->recalled,
    };
    struct session_place at = { r->model, r->arena, loop_mailbox(r->io->loop), &session_ops,
        &r->legs[i] };

    p.sample.min_tokens = ask->min_tokens;
    prompt_scope(&p.scope, ask, scope_tenant(r->io->o, &r->caller));
    if (take_slot(r, i, e))
        return -1;
    r->n_open++;
    if (session_open(&r->legs[i].session, &p, &at, e)) {
        slot_end(&r->legs[i].slot);
        r->n_open--;
        return -1;
    }
    return 0;
}

static void count_begin(struct request *r)
{
    struct metrics *m = &r->io->metrics;

    r->is_accepted = true;
    metric_add(m, METRIC_requests_total, 1);
    metric_add(m, METRIC_prompt_tokens_total, r->n_prompt);
    metric_add(m, METRIC_model_routes_total, 1);
}

/* RUNNING. The first prompt decides whether there is room in the queue: refused with a status. */
static int begin(struct request *r, struct err *e)
{
    if (r->ask.timeout_s > 0)
        request_set_deadline(r, r->began_ns + (uint64_t)(r->ask.timeout_s * 1e9));
    if (!r->ask.load_only)
        recall(r);
    if (open_answer(r, e) || (!r->ask.load_only && open_session(r, 0, e)))
        return -1;
    count_begin(r);
    if (r->ask.load_only)
        return 0; /* it is loaded: the answer ends with the last hold */
    answer_usage(r->answer, r->n_prompt, 0);
    answer_begin(r->answer);
    echo_prompts(r);
    request_wrote(r);
    for (int i = 1; i < r->ask.n_prompts; i++)
        if (open_session(r, i, e))
            return -1;
    if (r->ask.stream)
        request_start_pings(r);
    return 0;
}

static void go_on_loaded(struct request *r);

/* The body has become tokens, or not, or waits for its model, or nobody is there any more. */
static void begin_prepared(struct request *r)
{
    struct err e;

    if (r->prepared.code && !r->err.code) {
        request_fail(r, &r->prepared);
    } else if (r->x && r->loading) {
        loading_wait(r, go_on_loaded);
        return;
    } else if (r->x && begin(r, &e)) {
        request_fail(r, &e);
    }
    request_release(r);
}

static void back_from_clerk(struct clerk_job *j)
{
    struct request *r = container_of(j, struct request, job);

    r->is_at_clerk = false;
    begin_prepared(r);
}

static void give_to_clerk(struct request *r, void (*run)(struct clerk_job *j))
{
    r->is_at_clerk = true;
    r->job.run = run;
    r->job.done = back_from_clerk;
    clerk_post(r->io->clerk, &r->job);
}

static void prepare_at_clerk(struct clerk_job *j)
{
    struct request *r = container_of(j, struct request, job);

    prepare(r, buf_str(&r->body.bytes), &r->prepared);
}

static void prepare_prompts_at_clerk(struct clerk_job *j)
{
    struct request *r = container_of(j, struct request, job);

    prepare_prompts(r, &r->prepared);
}

static void go_on_loaded(struct request *r)
{
    if (r->body.bytes.n) {
        give_to_clerk(r, prepare_prompts_at_clerk);
        return;
    }
    prepare_prompts(r, &r->prepared);
    begin_prepared(r);
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
    if (x->req->body.n < CLERK_FROM) {
        prepare(r, x->req->body, &r->prepared);
        begin_prepared(r);
        return;
    }
    http_body_take(x, &r->body);
    give_to_clerk(r, prepare_at_clerk);
}

void generate_answer(struct io *io, struct http_exchange *x, struct call *c)
{
    generate(io, x, c);
}
