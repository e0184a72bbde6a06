/* words.c: /tokenize, /detokenize, /apply-template, /v1/messages/count_tokens, /v1/parse, and what
 * an answer that is kept was asked with. Large bodies, and large ones of what is kept, go to the
 * clerk; large answers leave as fast as they are read. */
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

struct words;
typedef int (*words_fn)(struct words *w, struct str body);

struct
    words { /* in its own arena; owner: the io thread, of `out`, `err` and `rc` the clerk's job */
    struct pending pending;
    struct clerk_job job;
    struct io *io;
    struct http_exchange *x; /* NULL: answered, or the client left */
    struct call *call;
    uint64_t tenant;
    bool is_admin;
    struct loop_timer deadline;
    struct http_body body;      /* what went to the clerk */
    const struct kept *kept;    /* of list_input: a reference; else NULL */
    struct responses_page page; /* of that */
    struct arena *arena;
    words_fn fn;
    struct buf out;
    size_t n_sent;
    struct err err;
    int rc;
    bool is_at_clerk;
};

/* ---- what they do */

static struct workplace place_of(const struct words *j, const struct model *m)
{
    return (struct workplace){ m, j->arena, &j->job.is_stopped };
}

static struct str bytes_of_token(const void *vocab, int32_t id)
{
    return vocab_bytes(vocab, id);
}

static int tokenize(struct words *j, struct str body)
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

static int detokenize(struct words *j, struct str body)
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

/* Whatever a template of one's own does, the request is at fault, also where a limit stops it. */
static int own_fault(struct err *e)
{
    if (e->code == ERR_TOO_LARGE)
        e->code = ERR_INVALID;
    if (e->code != ERR_MEMORY)
        snprintf(e->param, sizeof(e->param), "chat_template");
    return -1;
}

/* With a template and tokens of the body's own, where these are allowed. */
static int render_own(struct rendered *out, struct words *j, const struct ask *ask,
    const struct own_template *own, const struct workplace *at)
{
    const struct model *m = at->model;
    struct template_env env = m->env;
    struct chat_template *t = NULL;

    if (!j->is_admin)
        return err_param(&j->err, ERR_FORBIDDEN, own->source.p ? "chat_template" : "bos_token",
            "A template of one's own takes an administrator's key.");
    if (!own->source.p && !m->template)
        return prompt_render(out, &ask->convo, at, &j->err);
    if (own->source.p && chat_template_compile(&t, own->source, &j->err))
        return own_fault(&j->err);
    env.bos_token = own->bos_token.p ? own->bos_token : env.bos_token;
    env.eos_token = own->eos_token.p ? own->eos_token : env.eos_token;
    env.now = clock_wall_s();
    env.stop = at->stop;
    int rc = chat_template_render(t ? t : m->template, &ask->convo, &env,
        t ? &template_limits_own : &template_limits_default, j->arena, out, &j->err);
    chat_template_free(t);
    return rc ? own_fault(&j->err) : 0;
}

static int apply_template(struct words *j, struct str body)
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
    struct workplace at = place_of(j, m);
    bool is_own = own.source.p || own.bos_token.p || own.eos_token.p;
    if (is_own ? render_own(&r, j, &ask, &own, &at) : prompt_render(&r, &ask.convo, &at, &j->err))
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

static int count_ask(struct words *j, struct ask *ask, int *n)
{
    struct rendered r;
    struct tokens t = { .arena = j->arena, .stop = &j->job.is_stopped };

    if (j->io->o->strip_billing)
        convo_drop_billing(&ask->convo);
    struct model *m = ready_model(j->io, ask->model, &j->err);
    if (!m)
        return -1;
    struct workplace at = place_of(j, m);
    if (prompt_render(&r, &ask->convo, &at, &j->err) ||
        vocab_encode(m->vocab, r.spans, r.n_spans, ask->add_special_tokens, &t, &j->err))
        return -1;
    *n = (int)t.n;
    return 0;
}

/* The prompt as /v1/messages would have it; one that is too long is counted, too. */
static int count(struct words *j, struct str body)
{
    struct ask ask;
    int n;

    if (ask_parse(&ask, &wire_anthropic_count, body, j->arena, &j->err) || count_ask(j, &ask, &n))
        return -1;
    anthropic_count(&j->out, n);
    return 0;
}

/* The same as /v1/responses would have it. */
static int count_input(struct words *j, struct str body)
{
    struct kept_place place = { j->io->o->shelf, j->tenant, j->arena };
    const struct kept *before = NULL;
    struct ask ask;
    int n = 0;

    int rc = ask_parse(&ask, &wire_responses, body, j->arena, &j->err) ||
                     kept_recall(&before, &ask, &place, &j->err) || count_ask(j, &ask, &n)
                 ? -1
                 : 0;
    if (before)
        shelf_unref(place.shelf, before);
    if (!rc)
        responses_count(&j->out, n);
    return rc;
}

/* And as /v1/chat/completions would. */
static int count_chat(struct words *j, struct str body)
{
    struct ask ask;
    int n;

    if (ask_parse(&ask, &wire_openai_chat, body, j->arena, &j->err) || count_ask(j, &ask, &n))
        return -1;
    responses_count(&j->out, n);
    return 0;
}

static int parse(struct words *j, struct str body)
{
    struct parse_ask ask;

    if (parse_ask_read(&ask, body, j->arena, &j->err))
        return -1;
    return parse_answer(&j->out, &ask, &j->err);
}

static int list_input(struct words *j, struct str input)
{
    return responses_list_input(&j->out, input, &j->page, j->arena, &j->err);
}

/* ---- their life */

static void free_memory(struct clerk_job *j)
{
    struct words *w = container_of(j, struct words, job);

    buf_clear(&w->out);
    arena_free(w->arena);
}

static void words_free(struct words *w)
{
    size_t n_bytes = w->kept ? w->kept->input.n : w->body.bytes.n;
    bool is_large = n_bytes >= CLERK_FROM && w->io->clerk;

    http_body_free(&w->body);
    if (w->kept)
        shelf_unref(w->io->o->shelf, w->kept);
    w->job.run = free_memory;
    w->job.done = NULL;
    if (is_large)
        clerk_post(w->io->clerk, &w->job);
    else
        free_memory(&w->job);
}

static void leave_exchange(struct words *w)
{
    loop_timer_stop(w->io->loop, &w->deadline);
    w->x->user = NULL;
    w->x = NULL;
}

/* The clerk's part comes home later. */
static void let_go(struct words *w)
{
    leave_exchange(w);
    if (w->is_at_clerk)
        w->job.is_stopped = true;
    else
        words_free(w);
}

static void on_gone(struct pending *p)
{
    let_go(container_of(p, struct words, pending));
}

static void on_deadline(struct loop_timer *t)
{
    struct words *w = container_of(t, struct words, deadline);
    struct err e;

    if (w->n_sent) { /* too late to say so */
        sink_abort(&w->x->sink);
    } else {
        err_set(&e, ERR_TIMEOUT, "the deadline of the request has passed");
        reply_error(w->x, w->call, &e, NULL);
    }
    let_go(w);
}

/* As much as the client has room for; the rest when it has taken that. */
static void send_some(struct words *w)
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
    let_go(w);
}

static void on_drained(struct pending *p)
{
    struct words *w = container_of(p, struct words, pending);

    if (w->n_sent)
        send_some(w);
}

static void answer(struct words *w)
{
    const struct call *c = w->call;

    if (!w->rc && !buf_ok(&w->out))
        w->rc = err_set(&w->err, ERR_MEMORY, "no memory for the answer");
    if (w->rc) {
        reply_error(w->x, c, &w->err, NULL);
        let_go(w);
        return;
    }
    sink_begin(&w->x->sink, 200, "application/json", (int64_t)w->out.n, c->fields, c->n_fields);
    send_some(w);
}

static void run_job(struct clerk_job *j)
{
    struct words *w = container_of(j, struct words, job);

    w->rc = w->fn(w, w->kept ? w->kept->input : buf_str(&w->body.bytes));
}

static void job_done(struct clerk_job *j)
{
    struct words *w = container_of(j, struct words, job);

    w->is_at_clerk = false;
    w->io->n_words--;
    if (w->x)
        answer(w);
    else
        words_free(w);
}

static struct words *words_new(struct io *io, struct http_exchange *x, struct call *c)
{
    struct arena *a = arena_new(ARENA_MAX);
    struct words *w = a ? arena_zalloc(a, 1, sizeof(*w)) : NULL;

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

static void give_to_clerk(struct words *w)
{
    w->is_at_clerk = true;
    w->io->n_words++;
    w->job.run = run_job;
    w->job.done = job_done;
    clerk_post(w->io->clerk, &w->job);
}

static void begin(struct io *io, struct http_exchange *x, struct call *c, words_fn fn, bool is_slow)
{
    struct words *w = words_new(io, x, c);
    struct err e;

    if (!w) {
        err_set(&e, ERR_MEMORY, "no memory for the request");
        reply_error(x, c, &e, NULL);
        return;
    }
    w->fn = fn;
    if (x->req->body.n < CLERK_FROM && !is_slow) {
        w->rc = fn(w, x->req->body);
        answer(w);
        return;
    }
    http_body_take(x, &w->body);
    give_to_clerk(w);
}

void words_tokenize(struct io *io, struct http_exchange *x, struct call *c)
{
    begin(io, x, c, tokenize, false);
}

void words_detokenize(struct io *io, struct http_exchange *x, struct call *c)
{
    begin(io, x, c, detokenize, false);
}

/* A template of the body's own may take as long as a large body. */
void words_apply_template(struct io *io, struct http_exchange *x, struct call *c)
{
    begin(io, x, c, apply_template, str_find(x->req->body, STR("chat_template")) >= 0);
}

void words_count(struct io *io, struct http_exchange *x, struct call *c)
{
    begin(io, x, c, count, false);
}

/* What it goes on from may be long. */
void words_count_input(struct io *io, struct http_exchange *x, struct call *c)
{
    begin(io, x, c, count_input, true);
}

void words_count_chat(struct io *io, struct http_exchange *x, struct call *c)
{
    begin(io, x, c, count_chat, false);
}

void words_parse(struct io *io, struct http_exchange *x, struct call *c)
{
    begin(io, x, c, parse, false);
}

void words_list_input(struct io *io, struct http_exchange *x, struct call *c,
    const struct kept *take, const struct responses_page *page)
{
    struct words *w = words_new(io, x, c);
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
    if (page->after.p) /* the client may leave before it is read */
        w->page.after = arena_str(w->arena, page->after);
    if (page->after.p && !w->page.after.p)
        w->rc = err_set(&w->err, ERR_MEMORY, "no memory for the request");
    else if (take->input.n >= CLERK_FROM)
        give_to_clerk(w);
    else
        w->rc = list_input(w, take->input);
    if (!w->is_at_clerk)
        answer(w);
}
