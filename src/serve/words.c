/* tokenize_routes.c: /tokenize, /detokenize, /apply-template, token counting, /v1/parse, and the
 * input items of a stored response. Large bodies and large stored inputs are handled by the worker
 * thread; large replies are sent at the pace of the client. */
#include "api/anthropic/anthropic.h"
#include "api/parse.h"
#include "api/responses/responses.h"
#include "api/tokenize.h"
#include "api/common/wire.h"
#include "os/clock.h"
#include "serve/io.h"
#include "serve/responses/kept.h"
#include "generate/prompt.h"

#include <stdio.h>

static const size_t ARENA_MAX = 512 * 1024 * 1024;

struct tokenize_job;
typedef int (*tokenize_fn)(struct tokenize_job *w, struct str body);

/* In its own arena. Owner: the io thread; while is_at_worker, the worker thread owns `out`, `err`
 * and `rc`. */
struct tokenize_job {
    struct pending pending;
    struct clerk_job job;
    struct io *io;
    struct http_exchange *x; /* NULL: the reply was sent, or the client left */
    struct call *call;
    uint64_t tenant;
    bool is_admin;
    struct loop_timer deadline;
    struct http_body body;      /* body that was taken from the exchange */
    const struct kept *kept;    /* for list_input: a reference; else NULL */
    struct responses_page page; /* for list_input */
    struct arena *arena;
    tokenize_fn fn;
    struct buf out;
    size_t n_sent;
    struct err err;
    int rc;
    bool is_at_clerk;
};

/* ---- functions of the routes */

static struct workplace prompt_ctx_of(const struct tokenize_job *j, const struct model *m)
{
    return (struct workplace){ m, j->arena, &j->job.is_stopped };
}

static struct str bytes_of_token(const void *vocab, int32_t id)
{
    return vocab_bytes(vocab, id);
}

static int tokenize(struct tokenize_job *j, struct str body)
{
    struct tokenize_ask ask;
    struct tokens t = { .arena = j->arena, .stop = &j->job.is_stopped };

    if (tokenize_parse(&ask, body, j->arena, &j->err))
        return -1;
    struct model *m = ready_model(j->io, ask.model, &j->err);
    if (!m)
        return -1;
    struct span span = { ask.content, ask.parse_special };
    if (vocab_encode(m->vocab, &span, 1, ask.add_special, &t, &j->err))
        return -1;
    tokenize_answer(&j->out, t.ids, t.n, ask.with_pieces ? bytes_of_token : NULL, m->vocab);
    return 0;
}

static int detokenize(struct tokenize_job *j, struct str body)
{
    struct detokenize_ask ask;
    struct detok d = { 0 };
    struct buf text;

    if (detokenize_parse(&ask, body, j->arena, &j->err))
        return -1;
    struct model *m = ready_model(j->io, ask.model, &j->err);
    if (!m)
        return -1;
    buf_init(&text, ARENA_MAX);
    for (size_t i = 0; i < ask.n; i++) {
        if (ask.ids[i] < 0 || ask.ids[i] >= vocab_n(m->vocab)) {
            buf_clear(&text);
            return err_param(&j->err, ERR_RANGE, "tokens", "tokens[%zu]: %d is no token of '%s'.",
                i, ask.ids[i], m->spec->id);
        }
        detok_put(&d, m->vocab, ask.ids[i], true, &text);
    }
    detok_end(&d, &text);
    if (buf_ok(&text))
        detokenize_answer(&j->out, buf_str(&text));
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
static int render_custom(struct rendered *out, struct tokenize_job *j, const struct ask *ask,
    const struct own_template *own, const struct workplace *ctx)
{
    const struct model *m = ctx->model;
    struct template_env env = m->env;
    struct chat_template *t = NULL;

    if (!j->is_admin)
        return err_param(&j->err, ERR_FORBIDDEN, own->source.p ? "chat_template" : "bos_token",
            "A template of one's own takes an administrator's key.");
    if (!own->source.p && !m->template)
        return prompt_render(out, &ask->convo, ctx, &j->err);
    if (own->source.p && chat_template_compile(&t, own->source, &j->err))
        return set_template_error(&j->err);
    env.bos_token = own->bos_token.p ? own->bos_token : env.bos_token;
    env.eos_token = own->eos_token.p ? own->eos_token : env.eos_token;
    env.now = clock_wall_s();
    env.stop = ctx->stop;
    int rc = chat_template_render(t ? t : m->template, &ask->convo, &env,
        t ? &template_limits_own : &template_limits_default, j->arena, out, &j->err);
    chat_template_free(t);
    return rc ? set_template_error(&j->err) : 0;
}

static int apply_template(struct tokenize_job *j, struct str body)
{
    struct ask ask;
    struct own_template own;
    struct rendered r;
    struct buf text;

    if (ask_parse(&ask, &wire_apply_template, body, j->arena, &j->err) ||
        own_template_read(&own, ask.raw, &j->err))
        return -1;
    struct model *m = ready_model(j->io, ask.model, &j->err);
    if (!m)
        return -1;
    struct workplace ctx = prompt_ctx_of(j, m);
    bool is_own = own.source.p || own.bos_token.p || own.eos_token.p;
    if (is_own ? render_custom(&r, j, &ask, &own, &ctx)
               : prompt_render(&r, &ask.convo, &ctx, &j->err))
        return -1;
    buf_init(&text, ARENA_MAX);
    for (size_t i = 0; i < r.n_spans; i++)
        buf_puts(&text, r.spans[i].text);
    if (buf_ok(&text))
        apply_template_answer(&j->out, buf_str(&text));
    else
        j->out.failed = true;
    buf_clear(&text);
    return 0;
}

static int count_request(struct tokenize_job *j, struct ask *ask, int *n)
{
    struct rendered r;
    struct tokens t = { .arena = j->arena, .stop = &j->job.is_stopped };

    if (j->io->o->strip_billing)
        convo_drop_billing(&ask->convo);
    struct model *m = ready_model(j->io, ask->model, &j->err);
    if (!m)
        return -1;
    struct workplace ctx = prompt_ctx_of(j, m);
    if (prompt_render(&r, &ask->convo, &ctx, &j->err) ||
        vocab_encode(m->vocab, r.spans, r.n_spans, ask->add_special_tokens, &t, &j->err))
        return -1;
    *n = (int)t.n;
    return 0;
}

/* Counts the prompt tokens as for /v1/messages; also of a prompt that does not fit. */
static int count_messages(struct tokenize_job *j, struct str body)
{
    struct ask ask;
    int n;

    if (ask_parse(&ask, &wire_anthropic_count, body, j->arena, &j->err) ||
        count_request(j, &ask, &n))
        return -1;
    anthropic_count(&j->out, n);
    return 0;
}

/* Counts the prompt tokens as for /v1/responses. */
static int count_responses(struct tokenize_job *j, struct str body)
{
    struct kept_place ctx = { j->io->o->shelf, j->tenant, j->arena };
    const struct kept *before = NULL;
    struct ask ask;
    int n = 0;

    int rc = ask_parse(&ask, &wire_responses, body, j->arena, &j->err) ||
                     kept_recall(&before, &ask, &ctx, &j->err) || count_request(j, &ask, &n)
                 ? -1
                 : 0;
    if (before)
        shelf_unref(ctx.shelf, before);
    if (!rc)
        responses_count(&j->out, n);
    return rc;
}

/* Counts the prompt tokens as for /v1/chat/completions. */
static int count_chat(struct tokenize_job *j, struct str body)
{
    struct ask ask;
    int n;

    if (ask_parse(&ask, &wire_openai_chat, body, j->arena, &j->err) || count_request(j, &ask, &n))
        return -1;
    responses_count(&j->out, n);
    return 0;
}

static int parse_output(struct tokenize_job *j, struct str body)
{
    struct parse_ask ask;

    if (parse_ask_read(&ask, body, j->arena, &j->err))
        return -1;
    return parse_answer(&j->out, &ask, &j->err);
}

static int list_input(struct tokenize_job *j, struct str input)
{
    return responses_list_input(&j->out, input, &j->page, j->arena, &j->err);
}

/* ---- life */

static void free_arena(struct clerk_job *j)
{
    struct tokenize_job *w = container_of(j, struct tokenize_job, job);

    buf_clear(&w->out);
    arena_free(w->arena);
}

static void tokenize_job_free(struct tokenize_job *w)
{
    size_t n_bytes = w->kept ? w->kept->input.n : w->body.bytes.n;
    bool is_large = n_bytes >= CLERK_FROM && w->io->clerk;

    http_body_free(&w->body);
    if (w->kept)
        shelf_unref(w->io->o->shelf, w->kept);
    w->job.run = free_arena;
    w->job.done = NULL;
    if (is_large)
        clerk_post(w->io->clerk, &w->job);
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
    if (w->is_at_clerk)
        w->job.is_stopped = true;
    else
        tokenize_job_free(w);
}

static void on_gone(struct pending *p)
{
    release(container_of(p, struct tokenize_job, pending));
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

static void on_drained(struct pending *p)
{
    struct tokenize_job *w = container_of(p, struct tokenize_job, pending);

    if (w->n_sent)
        send_more(w);
}

static void reply(struct tokenize_job *w)
{
    const struct call *c = w->call;

    if (!w->rc && !buf_ok(&w->out))
        w->rc = err_set(&w->err, ERR_MEMORY, "no memory for the answer");
    if (w->rc) {
        reply_error(w->x, c, &w->err, NULL);
        release(w);
        return;
    }
    sink_begin(&w->x->sink, 200, "application/json", (int64_t)w->out.n, c->fields, c->n_fields);
    send_more(w);
}

static void run_job(struct clerk_job *j)
{
    struct tokenize_job *w = container_of(j, struct tokenize_job, job);

    w->rc = w->fn(w, w->kept ? w->kept->input : buf_str(&w->body.bytes));
}

static void job_done(struct clerk_job *j)
{
    struct tokenize_job *w = container_of(j, struct tokenize_job, job);

    w->is_at_clerk = false;
    w->io->n_words--;
    if (w->x)
        reply(w);
    else
        tokenize_job_free(w);
}

static struct tokenize_job *tokenize_job_new(struct io *io, struct http_exchange *x, struct call *c)
{
    struct arena *a = arena_new(ARENA_MAX);
    struct tokenize_job *w = a ? arena_zalloc(a, 1, sizeof(*w)) : NULL;

    if (!w) {
        arena_free(a);
        return NULL;
    }
    w->pending = (struct pending){ on_gone, on_drained };
    w->io = io;
    w->x = x;
    w->call = c;
    w->tenant = caller_tenant(&c->caller);
    w->is_admin = c->caller.scopes & SCOPE_ADMIN;
    w->arena = a;
    w->deadline.fn = on_deadline;
    buf_init(&w->out, ARENA_MAX);
    x->user = &w->pending;
    if (c->deadline_ns != UINT64_MAX)
        loop_timer_set(io->loop, &w->deadline, c->deadline_ns);
    return w;
}

static void post_to_worker(struct tokenize_job *w)
{
    w->is_at_clerk = true;
    w->io->n_words++;
    w->job.run = run_job;
    w->job.done = job_done;
    clerk_post(w->io->clerk, &w->job);
}

static void start_job(
    struct io *io, struct http_exchange *x, struct call *c, tokenize_fn fn, bool is_slow)
{
    struct tokenize_job *w = tokenize_job_new(io, x, c);
    struct err e;

    if (!w) {
        err_set(&e, ERR_MEMORY, "no memory for the request");
        reply_error(x, c, &e, NULL);
        return;
    }
    w->fn = fn;
    if (x->req->body.n < CLERK_FROM && !is_slow) {
        w->rc = fn(w, x->req->body);
        reply(w);
        return;
    }
    http_body_take(x, &w->body);
    post_to_worker(w);
}

void words_tokenize(struct io *io, struct http_exchange *x, struct call *c)
{
    start_job(io, x, c, tokenize, false);
}

void words_detokenize(struct io *io, struct http_exchange *x, struct call *c)
{
    start_job(io, x, c, detokenize, false);
}

/* A template in the body may take as long as a large body. */
void words_apply_template(struct io *io, struct http_exchange *x, struct call *c)
{
    start_job(io, x, c, apply_template, str_find(x->req->body, STR("chat_template")) >= 0);
}

void words_count(struct io *io, struct http_exchange *x, struct call *c)
{
    start_job(io, x, c, count_messages, false);
}

/* The chain of previous responses may be long. */
void words_count_input(struct io *io, struct http_exchange *x, struct call *c)
{
    start_job(io, x, c, count_responses, true);
}

void words_count_chat(struct io *io, struct http_exchange *x, struct call *c)
{
    start_job(io, x, c, count_chat, false);
}

void words_parse(struct io *io, struct http_exchange *x, struct call *c)
{
    start_job(io, x, c, parse_output, false);
}

void words_list_input(struct io *io, struct http_exchange *x, struct call *c,
    const struct kept *take, const struct responses_page *page)
{
    struct tokenize_job *w = tokenize_job_new(io, x, c);
    struct err e;

    if (!w) {
        shelf_unref(io->o->shelf, take);
        err_set(&e, ERR_MEMORY, "no memory for the request");
        reply_error(x, c, &e, NULL);
        return;
    }
    w->fn = list_input;
    w->kept = take;
    w->page = *page;
    if (page->after.p) /* the client may leave before it is used */
        w->page.after = arena_str(w->arena, page->after);
    if (page->after.p && !w->page.after.p)
        w->rc = err_set(&w->err, ERR_MEMORY, "no memory for the request");
    else if (take->input.n >= CLERK_FROM)
        post_to_worker(w);
    else
        w->rc = list_input(w, take->input);
    if (!w->is_at_clerk)
        reply(w);
}
