/* tokenize_routes.c: /tokenize, /detokenize, /apply-template, token counting, /v1/parse, and the
 * input items of a stored response. Large bodies and large stored inputs are handled by the worker
 * thread; large replies are sent at the pace of the client. */
#include "api/anthropic/anthropic.h"
#include "api/parse.h"
#include "api/responses/responses.h"
#include "api/tokenize.h"
#include "api/common/dialect.h"
#include "os/clock.h"
#include "serve/async.h"
#include "serve/io.h"
#include "serve/responses/stored_response.h"
#include "generate/prompt.h"

#include <stdio.h>

static const size_t TEXT_MAX = 512 * 1024 * 1024;

struct tokenize_job;
typedef int (*tokenize_fn)(struct tokenize_job *j, struct str body);

struct template_request { /* body of /apply-template */
    struct request request;
    struct request_template own;
};

struct tokenize_job { /* fn runs on any thread; it uses all fields but `stored_response` */
    struct async async;
    tokenize_fn fn;
    struct str input; /* argument of fn */
    uint64_t tenant;
    bool is_admin;
    const struct stored_response *stored_response; /* for list_input: a reference; else NULL */
    struct responses_page page;                    /* for list_input */
    struct template_request *to_render; /* for apply_template: the parsed body; NULL: not parsed */
};

/* ---- functions of the routes */

static struct prompt_ctx prompt_ctx_of(const struct tokenize_job *j, const struct model *m)
{
    return (struct prompt_ctx){ m, j->async.arena, &j->async.job.is_stopped };
}

static struct str bytes_of_token(const void *vocab, int32_t id)
{
    return vocab_bytes(vocab, id);
}

static int tokenize(struct tokenize_job *j, struct str body)
{
    struct tokenize_request request;
    struct tokens t = { .arena = j->async.arena, .stop = &j->async.job.is_stopped };

    if (tokenize_parse(&request, body, j->async.arena, &j->async.err))
        return -1;
    struct model *m = async_take_model(&j->async, request.model, &j->async.err);
    if (!m)
        return -1;
    struct span span = { request.content, request.parse_special };
    if (vocab_encode(m->vocab, &span, 1, request.add_special, &t, &j->async.err))
        return -1;
    tokenize_put_response(
        &j->async.out, t.ids, t.n, request.with_pieces ? bytes_of_token : NULL, m->vocab);
    return 0;
}

static int detokenize(struct tokenize_job *j, struct str body)
{
    struct detokenize_request request;
    struct detok d = { 0 };
    struct buf text;

    if (detokenize_parse(&request, body, j->async.arena, &j->async.err))
        return -1;
    struct model *m = async_take_model(&j->async, request.model, &j->async.err);
    if (!m)
        return -1;
    buf_init(&text, TEXT_MAX);
    for (size_t i = 0; i < request.n; i++) {
        if (request.ids[i] < 0 || request.ids[i] >= vocab_n_tokens(m->vocab)) {
            buf_clear(&text);
            return err_param(&j->async.err, ERR_RANGE, "tokens",
                "tokens[%zu]: %d is not a token id of '%s'.", i, request.ids[i], m->spec->id);
        }
        detok_put(&d, m->vocab, request.ids[i], true, &text);
    }
    detok_end(&d, &text);
    if (buf_ok(&text))
        detokenize_put_response(&j->async.out, buf_str(&text));
    else
        j->async.out.failed = true;
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
        return err_param(&j->async.err, ERR_FORBIDDEN,
            own->source.p ? "chat_template" : "bos_token",
            "A template in the request requires a key with the admin scope.");
    if (own->source.p && chat_template_compile(&t, own->source, &j->async.err))
        return set_template_error(&j->async.err);
    env.bos_token = own->bos_token.p ? own->bos_token : env.bos_token;
    env.eos_token = own->eos_token.p ? own->eos_token : env.eos_token;
    env.now = clock_wall_s();
    env.stop = ctx->stop;
    int rc = chat_template_render(t ? t : m->template, &request->convo, &env,
        t ? &template_limits_request : &template_limits_default, j->async.arena, out,
        &j->async.err);
    chat_template_free(t);
    return rc ? set_template_error(&j->async.err) : 0;
}

static int read_template_request(struct tokenize_job *j, struct str body)
{
    struct err *e = &j->async.err;
    struct template_request *t = arena_zalloc(j->async.arena, 1, sizeof(*t));

    if (!t)
        return err_set(e, ERR_MEMORY, "no memory for the request");
    j->to_render = t;
    return request_parse(&t->request, &dialect_apply_template, body, j->async.arena, e) ||
                   request_template_read(&t->own, t->request.raw, e)
               ? -1
               : 0;
}

static int apply_template(struct tokenize_job *j, struct str body)
{
    struct rendered r;
    struct buf text;

    if (!j->to_render && read_template_request(j, body))
        return -1;
    const struct request *request = &j->to_render->request;
    const struct request_template *own = &j->to_render->own;
    struct model *m = async_take_model(&j->async, request->model, &j->async.err);
    if (!m)
        return -1;
    struct prompt_ctx ctx = prompt_ctx_of(j, m);
    bool is_own = own->source.p || own->bos_token.p || own->eos_token.p;
    if (is_own ? render_custom(&r, j, request, own, &ctx)
               : prompt_render(&r, &request->convo, &ctx, &j->async.err))
        return -1;
    buf_init(&text, TEXT_MAX);
    for (size_t i = 0; i < r.n_spans; i++)
        buf_puts(&text, r.spans[i].text);
    if (buf_ok(&text))
        apply_template_put_response(&j->async.out, buf_str(&text));
    else
        j->async.out.failed = true;
    buf_clear(&text);
    return 0;
}

static int count_request(struct tokenize_job *j, struct request *request, int *n)
{
    struct rendered r;
    struct tokens t = { .arena = j->async.arena, .stop = &j->async.job.is_stopped };

    if (j->async.io->o->strip_billing)
        convo_drop_billing(&request->convo);
    struct model *m = async_take_model(&j->async, request->model, &j->async.err);
    if (!m)
        return -1;
    struct prompt_ctx ctx = prompt_ctx_of(j, m);
    if (prompt_render(&r, &request->convo, &ctx, &j->async.err) ||
        prompt_encode_chat(&t, &r, request->add_special_tokens, m, &j->async.err))
        return -1;
    *n = (int)t.n;
    return 0;
}

/* Counts the prompt tokens as for /v1/messages; also of a prompt that does not fit. */
static int count_messages(struct tokenize_job *j, struct str body)
{
    struct request request;
    int n;

    if (request_parse(&request, &dialect_anthropic_count, body, j->async.arena, &j->async.err) ||
        count_request(j, &request, &n))
        return -1;
    anthropic_count(&j->async.out, n);
    return 0;
}

/* Counts the prompt tokens as for /v1/responses. */
static int count_responses(struct tokenize_job *j, struct str body)
{
    struct stored_response_ctx ctx = { j->async.io->o->response_store, j->tenant, j->async.arena };
    const struct stored_response *previous = NULL;
    struct request request;
    int n = 0;

    int rc = request_parse(&request, &dialect_responses, body, j->async.arena, &j->async.err) ||
                     stored_response_recall(&previous, &request, &ctx, &j->async.err) ||
                     count_request(j, &request, &n)
                 ? -1
                 : 0;
    if (previous)
        response_store_unref(ctx.response_store, previous);
    if (!rc)
        responses_count(&j->async.out, n);
    return rc;
}

/* Counts the prompt tokens as for /v1/chat/completions. */
static int count_chat(struct tokenize_job *j, struct str body)
{
    struct request request;
    int n;

    if (request_parse(&request, &dialect_openai_chat, body, j->async.arena, &j->async.err) ||
        count_request(j, &request, &n))
        return -1;
    responses_count(&j->async.out, n);
    return 0;
}

static int parse_output(struct tokenize_job *j, struct str body)
{
    struct parse_request request;

    if (parse_request_read(&request, body, j->async.arena, &j->async.err))
        return -1;
    return parse_put_response(&j->async.out, &request, &j->async.err);
}

static int list_input(struct tokenize_job *j, struct str input)
{
    return responses_list_input(&j->async.out, input, &j->page, j->async.arena, &j->async.err);
}

/* ---- life */

static int run_job(struct async *a)
{
    struct tokenize_job *j = container_of(a, struct tokenize_job, async);

    return j->fn(j, j->input);
}

static void free_job(struct async *a)
{
    const struct tokenize_job *j = container_of(a, struct tokenize_job, async);

    if (j->stored_response)
        response_store_unref(a->io->o->response_store, j->stored_response);
}

/* Returns NULL if memory is short; the error was sent. */
static struct tokenize_job *tokenize_job_new(
    struct io *io, struct http_exchange *x, struct route_call *c, tokenize_fn fn)
{
    static const struct async_ops ops = { .run = run_job, .free = free_job };
    struct tokenize_job *j = async_new(sizeof(*j), &ops, io, x, c);

    if (!j)
        return NULL;
    j->fn = fn;
    j->input = j->async.body;
    j->tenant = caller_tenant(&c->caller);
    j->is_admin = c->caller.scopes & SCOPE_ADMIN;
    async_set_deadline(&j->async, c->deadline_ns);
    return j;
}

static void start_job(
    struct io *io, struct http_exchange *x, struct route_call *c, tokenize_fn fn, bool is_slow)
{
    struct tokenize_job *j = tokenize_job_new(io, x, c, fn);

    if (j)
        async_start(&j->async, is_slow);
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
    struct tokenize_job *j = tokenize_job_new(io, x, c, apply_template);

    if (!j)
        return;
    bool is_large = j->async.body.n >= WORKER_MIN_BODY_BYTES;
    if (!is_large && read_template_request(j, j->async.body)) {
        async_reply_error(&j->async, &j->async.err, NULL);
        return;
    }
    async_start(&j->async, !is_large && j->to_render->own.source.p);
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
    struct tokenize_job *j = tokenize_job_new(io, x, c, list_input);

    if (!j) {
        response_store_unref(io->o->response_store, take);
        return;
    }
    j->stored_response = take;
    j->input = take->input;
    j->page = *page;
    if (page->after.p) /* the client may leave before it is used */
        j->page.after = arena_str(j->async.arena, page->after);
    if (page->after.p && !j->page.after.p) {
        err_set(&j->async.err, ERR_MEMORY, "no memory for the request");
        async_reply(&j->async);
        return;
    }
    async_start(&j->async, take->input.n >= WORKER_MIN_BODY_BYTES);
}
