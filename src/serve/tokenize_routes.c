/* tokenize_routes.c: /tokenize, /detokenize, /apply-template, token counting, /v1/parse, and the
 * input items of a stored response. Large bodies and large stored inputs are handled by the worker
 * thread; large replies are sent at the pace of the client. */
#include "api/anthropic/anthropic.h"
#include "api/parse.h"
#include "api/responses/responses.h"
#include "api/tokenize.h"
#include "api/common/dialect.h"
#include "os/clock.h"
#include "serve/io.h"
#include "serve/responses/stored_response.h"
#include "generate/prompt.h"

#include <stdio.h>

static const size_t ARENA_MAX = 512 * 1024 * 1024;

struct tokenize_job;
typedef int (*tokenize_fn)(struct tokenize_job *w, struct str body);

/* In its own arena. Owner: the io thread; while is_at_worker, the worker thread owns `out`, `err`
 * and `rc`. */
struct tokenize_job {
    struct async_handler async_handler;
    struct worker_job job;
    struct io *io;
    struct http_exchange *x; /* NULL: the reply was sent, or the client left */
    struct route_call *call;
    uint64_t tenant;
    bool is_admin;
    struct loop_timer deadline;
    struct http_body body;                         /* body that was taken from the exchange */
    const struct stored_response *stored_response; /* for list_input: a reference; else NULL */
    struct responses_page page;                    /* for list_input */
    struct arena *arena;
    tokenize_fn fn;
    struct buf out;
    size_t n_sent;
    struct err err;
    int rc;
    bool is_at_worker;
};

/* ---- functions of the routes */

static struct prompt_ctx prompt_ctx_of(const struct tokenize_job *j, const struct model *m)
{
    return (struct prompt_ctx){ m, j->arena, &j->job.is_stopped };
}

static struct str bytes_of_token(const void *vocab, int32_t id)
{
    return vocab_bytes(vocab, id);
}

static int tokenize(struct tokenize_job *j, struct str body)
{
    struct tokenize_request request;
    struct tokens t = { .arena = j->arena, .stop = &j->job.is_stopped };

    if (tokenize_parse(&request, body, j->arena, &j->err))
        return -1;
    struct model *m = ready_model(j->io, request.model, &j->err);
    if (!m)
        return -1;
    struct span span = { request.content, request.parse_special };
    if (vocab_encode(m->vocab, &span, 1, request.add_special, &t, &j->err))
        return -1;
    tokenize_put_response(
        &j->out, t.ids, t.n, request.with_pieces ? bytes_of_token : NULL, m->vocab);
    return 0;
}

static int detokenize(struct tokenize_job *j, struct str body)
{
    struct detokenize_request request;
    struct detok d = { 0 };
    struct buf text;

    if (detokenize_parse(&request, body, j->arena, &j->err))
        return -1;
    struct model *m = ready_model(j->io, request.model, &j->err);
    if (!m)
        return -1;
    buf_init(&text, ARENA_MAX);
    for (size_t i = 0; i < request.n; i++) {
        if (request.ids[i] < 0 || request.ids[i] >= vocab_n_tokens(m->vocab)) {
            buf_clear(&text);
            return err_param(&j->err, ERR_RANGE, "tokens",
                "tokens[%zu]: %d is not a token id of '%s'.", i, request.ids[i], m->spec->id);
        }
        detok_put(&d, m->vocab, request.ids[i], true, &text);
    }
    detok_end(&d, &text);
    if (buf_ok(&text))
        detokenize_put_response(&j->out, buf_str(&text));
    else
        j->out.failed = true;
    buf_clear(&text);
    return 0;
}

/* Reports an error of the client's own template as ERR_INVALID, also if a limit was exceeded. */
static int set_template_error(struct err *e)
{
    if (e->code == ERR_TOO_LARGE)
        e->code = ERR_INVALID;
    if (e->code != ERR_MEMORY)
        snprintf(e->param, sizeof(e->param), "chat_template");
    return -1;
}

/* Renders with the template or the special tokens of the body, which requires the admin scope. */
static int render_custom(struct rendered *out, struct tokenize_job *j,
    const struct request *request, const struct request_template *own, const struct prompt_ctx *ctx)
{
    const struct model *m = ctx->model;
    struct template_env env = m->env;
    struct chat_template *t = NULL;

    if (!j->is_admin)
        return err_param(&j->err, ERR_FORBIDDEN, own->source.p ? "chat_template" : "bos_token",
            "A template in the request requires a key with the admin scope.");
    if (!own->source.p && !m->template)
        return prompt_render(out, &request->convo, ctx, &j->err);
    if (own->source.p && chat_template_compile(&t, own->source, &j->err))
        return set_template_error(&j->err);
    env.bos_token = own->bos_token.p ? own->bos_token : env.bos_token;
    env.eos_token = own->eos_token.p ? own->eos_token : env.eos_token;
    env.now = clock_wall_s();
    env.stop = ctx->stop;
    int rc = chat_template_render(t ? t : m->template, &request->convo, &env,
        t ? &template_limits_request : &template_limits_default, j->arena, out, &j->err);
    chat_template_free(t);
    return rc ? set_template_error(&j->err) : 0;
}

static int apply_template(struct tokenize_job *j, struct str body)
{
    struct request request;
    struct request_template own;
    struct rendered r;
    struct buf text;

    if (request_parse(&request, &dialect_apply_template, body, j->arena, &j->err) ||
        request_template_read(&own, request.raw, &j->err))
        return -1;
    struct model *m = ready_model(j->io, request.model, &j->err);
    if (!m)
        return -1;
    struct prompt_ctx ctx = prompt_ctx_of(j, m);
    bool is_own = own.source.p || own.bos_token.p || own.eos_token.p;
    if (is_own ? render_custom(&r, j, &request, &own, &ctx)
               : prompt_render(&r, &request.convo, &ctx, &j->err))
        return -1;
    buf_init(&text, ARENA_MAX);
    for (size_t i = 0; i < r.n_spans; i++)
        buf_puts(&text, r.spans[i].text);
    if (buf_ok(&text))
        apply_template_put_response(&j->out, buf_str(&text));
    else
        j->out.failed = true;
    buf_clear(&text);
    return 0;
}

static int count_request(struct tokenize_job *j, struct request *request, int *n)
{
    struct rendered r;
    struct tokens t = { .arena = j->arena, .stop = &j->job.is_stopped };

    if (j->io->o->strip_billing)
        convo_drop_billing(&request->convo);
    struct model *m = ready_model(j->io, request->model, &j->err);
    if (!m)
        return -1;
    struct prompt_ctx ctx = prompt_ctx_of(j, m);
    if (prompt_render(&r, &request->convo, &ctx, &j->err) ||
        vocab_encode(m->vocab, r.spans, r.n_spans, request->add_special_tokens, &t, &j->err))
        return -1;
    *n = (int)t.n;
    return 0;
}

/* Counts the prompt tokens as for /v1/messages; also of a prompt that does not fit. */
static int count_messages(struct tokenize_job *j, struct str body)
{
    struct request request;
    int n;

    if (request_parse(&request, &dialect_anthropic_count, body, j->arena, &j->err) ||
        count_request(j, &request, &n))
        return -1;
    anthropic_count(&j->out, n);
    return 0;
}

/* Counts the prompt tokens as for /v1/responses. */
static int count_responses(struct tokenize_job *j, struct str body)
{
    struct stored_response_ctx ctx = { j->io->o->response_store, j->tenant, j->arena };
    const struct stored_response *previous = NULL;
    struct request request;
    int n = 0;

    int rc = request_parse(&request, &dialect_responses, body, j->arena, &j->err) ||
                     stored_response_recall(&previous, &request, &ctx, &j->err) ||
                     count_request(j, &request, &n)
                 ? -1
                 : 0;
    if (previous)
        response_store_unref(ctx.response_store, previous);
    if (!rc)
        responses_count(&j->out, n);
    return rc;
}

/* Counts the prompt tokens as for /v1/chat/completions. */
static int count_chat(struct tokenize_job *j, struct str body)
{
    struct request request;
    int n;

    if (request_parse(&request, &dialect_openai_chat, body, j->arena, &j->err) ||
        count_request(j, &request, &n))
        return -1;
    responses_count(&j->out, n);
    return 0;
}

static int parse_output(struct tokenize_job *j, struct str body)
{
    struct parse_request request;

    if (parse_request_read(&request, body, j->arena, &j->err))
        return -1;
    return parse_put_response(&j->out, &request, &j->err);
}

static int list_input(struct tokenize_job *j, struct str input)
{
    return responses_list_input(&j->out, input, &j->page, j->arena, &j->err);
}

/* ---- life */

static void free_arena(struct worker_job *j)
{
    struct tokenize_job *w = container_of(j, struct tokenize_job, job);

    buf_clear(&w->out);
    arena_free(w->arena);
}

static void tokenize_job_free(struct tokenize_job *w)
{
    size_t n_bytes = w->stored_response ? w->stored_response->input.n : w->body.bytes.n;
    bool is_large = n_bytes >= WORKER_MIN_BODY_BYTES && w->io->worker;

    http_body_free(&w->body);
    if (w->stored_response)
        response_store_unref(w->io->o->response_store, w->stored_response);
    w->job.run = free_arena;
    w->job.done = NULL;
    if (is_large)
        worker_post(w->io->worker, &w->job);
    else
        free_arena(&w->job);
}

static void detach_exchange(struct tokenize_job *w)
{
    loop_timer_stop(w->io->loop, &w->deadline);
    w->x->user = NULL;
    w->x = NULL;
}

/* A running job of the worker thread frees the memory when it returns. */
static void release(struct tokenize_job *w)
{
    detach_exchange(w);
    if (w->is_at_worker)
        w->job.is_stopped = true;
    else
        tokenize_job_free(w);
}

static void on_gone(struct async_handler *p)
{
    release(container_of(p, struct tokenize_job, async_handler));
}

static void on_deadline(struct loop_timer *t)
{
    struct tokenize_job *w = container_of(t, struct tokenize_job, deadline);
    struct err e;

    if (w->n_sent) { /* the head was sent, so no error can be reported */
        sink_abort(&w->x->sink);
    } else {
        err_set(&e, ERR_TIMEOUT, "the deadline of the request has passed");
        reply_error(w->x, w->call, &e, NULL);
    }
    release(w);
}

/* Writes while the client has room; the rest is written when the sink has drained. */
static void send_more(struct tokenize_job *w)
{
    struct sink *s = &w->x->sink;

    while (w->n_sent < w->out.n && sink_queued(s) <= SINK_HIGH_WATER) {
        size_t n = MIN(w->out.n - w->n_sent, (size_t)SINK_HIGH_WATER);
        sink_write(s, (struct str){ w->out.p + w->n_sent, n });
        w->n_sent += n;
    }
    if (w->n_sent < w->out.n)
        return;
    sink_end(s);
    release(w);
}

static void on_drained(struct async_handler *p)
{
    struct tokenize_job *w = container_of(p, struct tokenize_job, async_handler);

    if (w->n_sent)
        send_more(w);
}

static void reply(struct tokenize_job *w)
{
    const struct route_call *c = w->call;

    if (!w->rc && !buf_ok(&w->out))
        w->rc = err_set(&w->err, ERR_MEMORY, "no memory for the response");
    if (w->rc) {
        reply_error(w->x, c, &w->err, NULL);
        release(w);
        return;
    }
    sink_begin(&w->x->sink, 200, "application/json", (int64_t)w->out.n, c->fields, c->n_fields);
    send_more(w);
}

static void run_job(struct worker_job *j)
{
    struct tokenize_job *w = container_of(j, struct tokenize_job, job);

    w->rc = w->fn(w, w->stored_response ? w->stored_response->input : buf_str(&w->body.bytes));
}

static void job_done(struct worker_job *j)
{
    struct tokenize_job *w = container_of(j, struct tokenize_job, job);

    w->is_at_worker = false;
    w->io->n_worker_jobs--;
    if (w->x)
        reply(w);
    else
        tokenize_job_free(w);
}

static struct tokenize_job *tokenize_job_new(
    struct io *io, struct http_exchange *x, struct route_call *c)
{
    struct arena *a = arena_new(ARENA_MAX);
    struct tokenize_job *w = a ? arena_zalloc(a, 1, sizeof(*w)) : NULL;

    if (!w) {
        arena_free(a);
        return NULL;
    }
    w->async_handler = (struct async_handler){ on_gone, on_drained };
    w->io = io;
    w->x = x;
    w->call = c;
    w->tenant = caller_tenant(&c->caller);
    w->is_admin = c->caller.scopes & SCOPE_ADMIN;
    w->arena = a;
    w->deadline.fn = on_deadline;
    buf_init(&w->out, ARENA_MAX);
    x->user = &w->async_handler;
    if (c->deadline_ns != UINT64_MAX)
        loop_timer_set(io->loop, &w->deadline, c->deadline_ns);
    return w;
}

static void post_to_worker(struct tokenize_job *w)
{
    w->is_at_worker = true;
    w->io->n_worker_jobs++;
    w->job.run = run_job;
    w->job.done = job_done;
    worker_post(w->io->worker, &w->job);
}

static void start_job(
    struct io *io, struct http_exchange *x, struct route_call *c, tokenize_fn fn, bool is_slow)
{
    struct tokenize_job *w = tokenize_job_new(io, x, c);
    struct err e;

    if (!w) {
        err_set(&e, ERR_MEMORY, "no memory for the request");
        reply_error(x, c, &e, NULL);
        return;
    }
    w->fn = fn;
    if (x->req->body.n < WORKER_MIN_BODY_BYTES && !is_slow) {
        w->rc = fn(w, x->req->body);
        reply(w);
        return;
    }
    http_body_take(x, &w->body);
    post_to_worker(w);
}

void tokenize_routes_tokenize(struct io *io, struct http_exchange *x, struct route_call *c)
{
    start_job(io, x, c, tokenize, false);
}

void tokenize_routes_detokenize(struct io *io, struct http_exchange *x, struct route_call *c)
{
    start_job(io, x, c, detokenize, false);
}

/* A template in the body may take as long as a large body. */
void tokenize_routes_apply_template(struct io *io, struct http_exchange *x, struct route_call *c)
{
    start_job(io, x, c, apply_template, str_find(x->req->body, STR("chat_template")) >= 0);
}

void tokenize_routes_count_messages(struct io *io, struct http_exchange *x, struct route_call *c)
{
    start_job(io, x, c, count_messages, false);
}

/* The chain of previous responses may be long. */
void tokenize_routes_count_responses(struct io *io, struct http_exchange *x, struct route_call *c)
{
    start_job(io, x, c, count_responses, true);
}

void tokenize_routes_count_chat(struct io *io, struct http_exchange *x, struct route_call *c)
{
    start_job(io, x, c, count_chat, false);
}

void tokenize_routes_parse(struct io *io, struct http_exchange *x, struct route_call *c)
{
    start_job(io, x, c, parse_output, false);
}

void tokenize_routes_list_input(struct io *io, struct http_exchange *x, struct route_call *c,
    const struct stored_response *take, const struct responses_page *page)
{
    struct tokenize_job *w = tokenize_job_new(io, x, c);
    struct err e;

    if (!w) {
        response_store_unref(io->o->response_store, take);
        err_set(&e, ERR_MEMORY, "no memory for the request");
        reply_error(x, c, &e, NULL);
        return;
    }
    w->fn = list_input;
    w->stored_response = take;
    w->page = *page;
    if (page->after.p) /* the client may leave before it is used */
        w->page.after = arena_str(w->arena, page->after);
    if (page->after.p && !w->page.after.p)
        w->rc = err_set(&w->err, ERR_MEMORY, "no memory for the request");
    else if (take->input.n >= WORKER_MIN_BODY_BYTES)
        post_to_worker(w);
    else
        w->rc = list_input(w, take->input);
    if (!w->is_at_worker)
        reply(w);
}
