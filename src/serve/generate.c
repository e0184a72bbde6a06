/* generate.c: a chat or completion, from its body to the last byte of its answer.
 *
 * A request has one session per prompt and one answer. It outlives its exchange: when the client
 * leaves, the sessions are cancelled and the request waits for their last message, so that the
 * engine never reads memory that is gone.
 *
 *   parse -> model -> tokens -> sessions ... text, text, choice_end ... end
 *                                  \-> answer -> sink            \-> freed when all have ended */
#include "serve/io.h"

#include "api/answer.h"
#include "api/wire.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "os/clock.h"
#include "pool/session.h"
#include "serve/prompt.h"

struct leg { /* one prompt of a request */
    struct request *request;
    int index;
    struct session *session; /* NULL before it began and after it ended */
};

struct request {
    struct request *next, **prev; /* io->requests */
    struct io *io;
    struct http_exchange *x; /* NULL once it has ended or gone */
    struct call *call;       /* in x's arena: as long as x */
    const struct route *route;
    struct arena *arena; /* holds the request */
    struct ask ask;
    struct model *model;
    struct answer *answer; /* NULL once the exchange has ended or gone */
    struct prompt *prompts;
    const int32_t *predicted; /* the client's prediction */
    int n_predicted;
    struct leg *legs;
    int n_open;     /* sessions that run, and one for whoever holds the request */
    struct err err; /* the first thing that went wrong */
    struct loop_timer ping;
    uint64_t began_ns, first_token_ns, last_write_ns;
    uint64_t *last_token_ns; /* per choice */
    int n_prompt, n_cached, n_completion;
    int n_accepted; /* tokens that came as predicted */
    char request_id[28];
    struct caller caller;
};

static const size_t ARENA_MAX = 512 * 1024 * 1024;

/* ---- ends */

static void write_audit(const struct request *r, const char *finish, int status)
{
    struct str prompt = { (const char *)r->prompts[0].ids,
        (size_t)r->prompts[0].n * sizeof(*r->prompts[0].ids) };

    audit_write(
        r->io->o->audit, &(struct audit_entry){ r->request_id, r->caller.id, r->route->path,
                             str_of(r->model->spec->id), prompt, status, finish, r->n_prompt,
                             r->n_completion, r->n_cached, clock_ns() - r->began_ns });
}

static void request_free(struct request *r)
{
    struct metrics *m = &r->io->metrics;
    const char *finish = r->err.code ? errcode_name(r->err.code) : "done";

    CHECK(!r->answer && !r->x);
    metric_add(m, METRIC_requests_finished_total, 1);
    metric_add(m, METRIC_requests_running, -1);
    metric_add(m, METRIC_cached_tokens_total, r->n_cached);
    metric_observe_ns(m, METRIC_request_duration_seconds, clock_ns() - r->began_ns);
    if (r->err.code == ERR_CANCELLED)
        metric_add(m, METRIC_requests_cancelled_total, 1);
    if (r->io->o->audit)
        write_audit(r, finish, r->err.code ? status_of(r->err.code).http : 200);
    log_info("serve", "done", "req=%s why=%s prompt=%d cached=%d tokens=%d ttft_ms=%d ms=%d",
        r->request_id, finish, r->n_prompt, r->n_cached, r->n_completion,
        r->first_token_ns ? (int)((r->first_token_ns - r->began_ns) / 1000000) : -1,
        (int)((clock_ns() - r->began_ns) / 1000000));
    *r->prev = r->next;
    if (r->next)
        r->next->prev = r->prev;
    arena_free(r->arena);
}

/* The answer is complete, or nobody wants it: the exchange is let go. Its sink may be used for
 * one last call through the answer that is returned; the caller frees it. */
static struct answer *leave_exchange(struct request *r)
{
    struct answer *last = r->answer;

    loop_timer_stop(r->io->loop, &r->ping);
    r->answer = NULL;
    if (r->x)
        r->x->user = NULL;
    r->x = NULL;
    return last;
}

/* What was predicted is counted for each choice. */
static void tell_predicted(const struct request *r, struct answer *a)
{
    int64_t n = (int64_t)r->n_predicted * ask_n_choices(&r->ask) - r->n_accepted;

    answer_predicted(a, r->n_accepted, (int)MIN(MAX(n, 0), INT32_MAX));
}

static void finish_answer(struct request *r)
{
    struct answer *last = leave_exchange(r);

    if (!last)
        return;
    answer_usage(last, r->n_prompt, r->n_cached);
    tell_predicted(r, last);
    if (r->err.code)
        answer_error(last, &r->err, NULL);
    else
        answer_end(last);
    answer_free(last);
}

static void request_release(struct request *r)
{
    if (--r->n_open > 0)
        return;
    finish_answer(r);
    request_free(r);
}

static void cancel_sessions(struct request *r)
{
    r->n_open++; /* a session may end inside */
    for (int i = 0; i < r->ask.n_prompts; i++)
        if (r->legs[i].session)
            session_cancel(r->legs[i].session);
    request_release(r);
}

/* Tells the client at once; the sessions wind down behind. */
static void request_fail(struct request *r, const struct err *e)
{
    if (!r->err.code)
        r->err = *e;
    finish_answer(r);
    cancel_sessions(r);
}

void request_gone(struct io *io, struct http_exchange *x)
{
    struct request *r = x->user;

    if (!r)
        return;
    if (!r->err.code)
        err_set(&r->err, ERR_CANCELLED, "the client left");
    answer_free(leave_exchange(r));
    cancel_sessions(r);
}

void request_cancel_all(struct io *io)
{
    struct err e;

    err_set(&e, ERR_DRAINING, "The server is shutting down.");
    for (struct request *r = io->requests, *next; r; r = next) {
        next = r->next;
        request_fail(r, &e);
    }
}

/* ---- the stream's pace */

static void after_write(struct request *r)
{
    if (!r->answer)
        return;
    answer_flush(r->answer);
    r->last_write_ns = clock_ns();
    if (r->ask.stream && sink_queued(&r->x->sink) > SINK_HIGH_WATER)
        for (int i = 0; i < r->ask.n_prompts; i++)
            if (r->legs[i].session)
                session_pause(r->legs[i].session);
}

void request_drained(struct io *io, struct http_exchange *x)
{
    struct request *r = x->user;

    if (!r)
        return;
    r->n_open++;
    for (int i = 0; i < r->ask.n_prompts; i++)
        if (r->legs[i].session)
            session_resume(r->legs[i].session);
    request_release(r);
}

static void on_ping(struct loop_timer *t)
{
    struct request *r = container_of(t, struct request, ping);
    uint64_t silence = (uint64_t)r->io->o->ping_ms * 1000000, now = clock_ns();

    if (now - r->last_write_ns >= silence) {
        answer_keepalive(r->answer);
        answer_flush(r->answer);
        r->last_write_ns = now;
    }
    loop_timer_set(r->io->loop, t, r->last_write_ns + silence);
}

/* ---- session callbacks */

static int choice_of(const struct leg *p, int choice)
{
    return p->index * p->request->ask.best_of + choice;
}

static void on_prompt_token(void *ctx, int position, const struct sampled *t)
{
    struct leg *p = ctx;

    if (p->request->answer && p->request->ask.echo)
        answer_prompt_token(p->request->answer, p->index, t->id, t);
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

static void on_text(void *ctx, int choice, struct str text)
{
    struct leg *p = ctx;
    struct request *r = p->request;

    if (!r->answer)
        return;
    answer_text(r->answer, choice_of(p, choice), text);
    after_write(r);
    check_answer(r);
}

static void on_choice_end(void *ctx, const struct choice_end *c)
{
    struct leg *p = ctx;
    struct request *r = p->request;

    r->n_completion += c->n_tokens;
    if (!r->answer || c->finish == FINISH_CANCELLED || c->finish == FINISH_ERROR)
        return;
    answer_choice_end(r->answer, choice_of(p, c->choice), c->finish, c->stop_string, c->stop_id);
    after_write(r);
}

static void on_end(void *ctx, const struct session_end *s)
{
    struct leg *p = ctx;
    struct request *r = p->request;
    const struct gen_result *t = s->result;

    p->session = NULL;
    r->n_cached += t->n_cached;
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

static const struct session_ops session_ops = { on_prompt_token, on_token, on_text, on_choice_end,
    on_end };

/* ---- begin */

static const struct wire *wire_for(const struct route *route)
{
    return route->fn == generate_chat ? &wire_openai_chat : &wire_openai_completion;
}

/* Everything before the engine. The request is not in any list yet. */
static int prepare(struct request *r, struct err *e)
{
    struct ask *ask = &r->ask;

    if (ask_parse(ask, wire_for(r->route), r->x->req->body, r->arena, e))
        return -1;
    if (r->io->o->strip_billing)
        convo_drop_billing(&ask->convo);
    r->model = ready_model(r->io, ask->model, e);
    if (!r->model)
        return -1;
    if (ask_check_vocab(ask, vocab_n(r->model->vocab), e) ||
        prompts_build(&r->prompts, ask, r->model, r->arena, e) ||
        prediction_build(&r->predicted, &r->n_predicted, ask, r->model, r->arena, e))
        return -1;
    for (int i = 0; i < ask->n_prompts; i++)
        r->n_prompt += r->prompts[i].n;
    r->legs = arena_zalloc(r->arena, (size_t)ask->n_prompts, sizeof(*r->legs));
    r->last_token_ns =
        arena_zalloc(r->arena, (size_t)ask_n_choices(ask), sizeof(*r->last_token_ns));
    if (!r->legs || !r->last_token_ns)
        return err_set(e, ERR_MEMORY, "no memory for the request");
    return 0;
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
        .fields = r->call->fields,
        .n_fields = r->call->n_fields,
        .token_bytes = bytes_of_token,
        .vocab = r->model->vocab,
    };

    return answer_new(&r->answer, &setup, e);
}

static int open_session(struct request *r, int i, struct err *e)
{
    const struct ask *ask = &r->ask;
    struct session_params p = {
        .prompt = r->prompts[i].ids,
        .n_prompt = r->prompts[i].n,
        .max_tokens = prompt_max_tokens(ask, r->model, &r->prompts[i],
            ask->kind == ASK_CHAT ? r->io->o->default_max_tokens : 0),
        .n_choices = ask->best_of,
        .sample = ask->sample,
        .stops = ask->stops,
        .n_stops = ask->n_stops,
        .include_stop = ask->include_stop,
        .show_control = !ask->skip_special_tokens,
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
    };
    struct session_place at = { r->model, r->arena, loop_mailbox(r->io->loop), &session_ops,
        &r->legs[i] };

    if (ask->timeout_s > 0)
        p.deadline_ns = r->began_ns + (uint64_t)(ask->timeout_s * 1e9);
    if (r->model->spec->backend == BACKEND_SCRIPT &&
        script_build(&p.script, ask, i, r->model, r->arena, e))
        return -1;
    p.sample.min_tokens = ask->min_tokens;
    prompt_scope(&p.scope, ask, r->io->o->share_prefixes ? 0 : p.tenant);
    r->legs[i] = (struct leg){ r, i, NULL };
    r->n_open++;
    if (session_open(&r->legs[i].session, &p, &at, e)) {
        r->n_open--;
        return -1;
    }
    return 0;
}

/* The prompt that comes back in front of a completion. */
static void echo_prompts(struct request *r)
{
    for (int i = 0; r->ask.echo && i < r->ask.n_prompts; i++) {
        const struct prompt *p = &r->prompts[i];
        if (r->ask.want_logprobs)
            answer_prompt_token(r->answer, i, p->ids[0], NULL);
        if (p->text.p) {
            answer_prompt_text(r->answer, i, p->text);
            continue;
        }
        struct detok d = { 0 };
        struct buf text;
        buf_init(&text, 64 * MB);
        for (int t = 0; t < p->n; t++)
            detok_put(&d, r->model->vocab, p->ids[t], !r->ask.skip_special_tokens, &text);
        detok_end(&d, &text);
        answer_prompt_text(r->answer, i, buf_str(&text));
        buf_clear(&text);
    }
}

static void link_request(struct request *r)
{
    struct io *io = r->io;

    r->next = io->requests;
    r->prev = &io->requests;
    if (io->requests)
        io->requests->prev = &r->next;
    io->requests = r;
    metric_add(&io->metrics, METRIC_requests_total, 1);
    metric_add(&io->metrics, METRIC_requests_running, 1);
    metric_add(&io->metrics, METRIC_prompt_tokens_total, r->n_prompt);
    metric_add(&io->metrics, METRIC_model_routes_total, 1);
}

static void refuse(struct request *r, const struct err *e)
{
    struct error_extra extra = { .n_prompt_tokens = r->n_prompt, .n_ctx = 0 };

    if (e->code == ERR_CONTEXT && r->model) {
        extra.n_ctx = r->model->n_ctx;
        for (int i = 0; i < r->ask.n_prompts && r->prompts; i++)
            extra.n_prompt_tokens = MAX(extra.n_prompt_tokens, r->prompts[i].n);
    }
    metric_add(&r->io->metrics, METRIC_requests_refused_total, 1);
    reply_error(r->x, r->call, e, &extra);
    answer_free(r->answer);
    arena_free(r->arena);
}

static void start(struct request *r)
{
    struct io *io = r->io;
    struct err e;

    if (prepare(r, &e) || open_answer(r, &e)) {
        refuse(r, &e);
        return;
    }
    /* The first prompt decides whether there is room in the queue: refused with a status. */
    r->n_open = 1;
    if (open_session(r, 0, &e)) {
        refuse(r, &e);
        return;
    }
    link_request(r);
    r->x->user = r;
    answer_usage(r->answer, r->n_prompt, 0);
    answer_begin(r->answer);
    echo_prompts(r);
    after_write(r);
    for (int i = 1; i < r->ask.n_prompts && !r->err.code; i++)
        if (open_session(r, i, &e))
            request_fail(r, &e);
    if (r->ask.stream && r->answer) {
        r->ping.fn = on_ping;
        loop_timer_set(io->loop, &r->ping, clock_ns() + (uint64_t)io->o->ping_ms * 1000000);
    }
    request_release(r);
}

static void generate(struct io *io, struct http_exchange *x, struct call *c)
{
    struct arena *a = arena_new(ARENA_MAX);
    struct request *r = a ? arena_zalloc(a, 1, sizeof(*r)) : NULL;
    struct err e;

    if (!r || io->is_draining) {
        arena_free(a);
        if (io->is_draining)
            err_set(&e, ERR_DRAINING, "The server is shutting down.");
        else
            err_set(&e, ERR_MEMORY, "no memory for the request");
        reply_error(x, c, &e, NULL);
        return;
    }
    r->io = io;
    r->x = x;
    r->call = c;
    r->route = c->route;
    r->caller = c->caller;
    r->arena = a;
    r->began_ns = x->started_ns;
    memcpy(r->request_id, c->request_id, sizeof(r->request_id));
    start(r);
}

void generate_chat(struct io *io, struct http_exchange *x, struct call *c)
{
    generate(io, x, c);
}

void generate_completion(struct io *io, struct http_exchange *x, struct call *c)
{
    generate(io, x, c);
}
