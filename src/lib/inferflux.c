/* inferflux.c: implements the embeddable API (include/inferflux.h).
 *
 * Each model has one library thread, which drains the mailbox: it opens sessions, calls callbacks
 * and cancels. Callers communicate with it by messages; inferflux_wait sleeps on the request's
 * condition variable. */
#include "inferflux.h"

#include "api/common/tools.h"
#include "base/mem.h"
#include "os/clock.h"
#include "os/mailbox.h"
#include "os/thread.h"
#include "generate/prompt.h"

#include <stdio.h>

/* distinct from the gen_kinds in the same mailbox */
enum { COMMAND_SUBMIT = 100, COMMAND_CANCEL, COMMAND_CLOSE };
static const size_t REQUEST_MAX = 256 * 1024 * 1024;

struct inferflux {
    struct model_spec spec;
    struct model model;
    struct mailbox *mail;
    pthread_t thread;
    struct msg close;
    struct inferflux_request *open; /* requests between submit and END; owner: the library thread */
    bool is_closing;                /* owner: the library thread */
    char path[4096], kernels[32];
};

struct inferflux_request {
    /* allocated with the request, so that submit and cancel cannot fail later */
    struct msg submit, cancel;
    struct inferflux *owner;
    struct arena *arena; /* contains this struct, too */
    inferflux_callback callback;
    void *user;
    struct session *session; /* owner of session and links: the library thread */
    struct inferflux_request *next_open, **prev_open;
    struct request request; /* filled by inferflux_submit; read by the library thread */
    struct session_params params;
    struct buf text;
    struct buf name, arguments; /* the tool call being received */
    int finish;
    pthread_mutex_t mu; /* guards has_ended and cancel_state */
    pthread_cond_t ended;
    bool has_ended;
    enum { CANCEL_NONE, CANCEL_POSTED, CANCEL_DONE } cancel_state;
};

EXPORT const char *inferflux_version(void)
{
    return INFERFLUX_VERSION;
}

static void copy_error(char *why, size_t n_why, const struct err *e)
{
    if (why && n_why)
        snprintf(why, n_why, "%s", e->msg);
}

/* ---- library thread */

static void finish_request(struct inferflux_request *r, const inferflux_event *end)
{
    r->callback(r->user, end);
    *r->prev_open = r->next_open;
    if (r->next_open)
        r->next_open->prev_open = r->prev_open;
    pthread_mutex_lock(&r->mu);
    r->has_ended = true;
    r->session = NULL;
    pthread_cond_broadcast(&r->ended);
    pthread_mutex_unlock(&r->mu); /* the caller may free r from here on */
}

static void send_event(struct inferflux_request *r, int kind, struct str text, const char *name)
{
    buf_reset(&r->text);
    buf_puts(&r->text, text);
    buf_putc(&r->text, '\0');
    if (buf_ok(&r->text) && buf_ok(&r->name) && buf_ok(&r->arguments))
        r->callback(r->user,
            &(inferflux_event){ .kind = kind, .text = r->text.p, .n_text = text.n, .name = name });
    else
        session_cancel(r->session);
}

static void on_content(void *ctx, int choice, struct str text)
{
    send_event(ctx, INFERFLUX_TEXT, text, NULL);
}

static void on_reasoning(void *ctx, int choice, struct str text)
{
    send_event(ctx, INFERFLUX_REASONING, text, NULL);
}

static void on_call_begin(void *ctx, int choice, int call, struct str name)
{
    struct inferflux_request *r = ctx;

    buf_reset(&r->name);
    buf_reset(&r->arguments);
    buf_puts(&r->name, name);
    buf_putc(&r->name, '\0');
}

static void on_call_args(void *ctx, int choice, int call, struct str json)
{
    struct inferflux_request *r = ctx;

    buf_puts(&r->arguments, json);
}

/* A broken call has produced no event; its text follows as TEXT. */
static void on_call_end(void *ctx, int choice, int call)
{
    struct inferflux_request *r = ctx;

    send_event(r, INFERFLUX_CALL, buf_str(&r->arguments), r->name.p);
}

static void on_choice_end(void *ctx, const struct choice_end *c)
{
    static const int names[] = { [FINISH_STOP] = INFERFLUX_STOP,
        [FINISH_LENGTH] = INFERFLUX_LENGTH,
        [FINISH_CANCELLED] = INFERFLUX_CANCELLED,
        [FINISH_ERROR] = INFERFLUX_ERROR,
        [FINISH_UNMET] = INFERFLUX_ERROR,
        [FINISH_FILTERED] = INFERFLUX_ERROR };
    struct inferflux_request *r = ctx;

    r->finish = names[c->finish];
}

static void on_end(void *ctx, const struct session_end *s)
{
    struct inferflux_request *r = ctx;
    bool is_error = s->err->code && s->err->code != ERR_CANCELLED;
    inferflux_event end = { .kind = INFERFLUX_END,
        .finish = is_error ? INFERFLUX_ERROR : r->finish,
        .error = is_error ? s->err->msg : NULL,
        .prompt_tokens = s->n_prompt,
        .completion_tokens = s->n_completion };

    finish_request(r, &end);
}

static const struct session_ops ops = { .choice_end = on_choice_end, .end = on_end };
static const struct output_ops output_ops = { on_content, on_reasoning, on_call_begin, on_call_args,
    on_call_end, NULL };

/* Builds the prompt as the server does, and fills in the session parameters that depend on it. */
static int build_prompt(struct inferflux_request *r, struct err *e)
{
    const struct model *m = &r->owner->model;
    const struct prompt_ctx ctx = { m, r->arena, NULL };
    const struct request *request = &r->request;
    struct prompt *prompt;

    if (prompts_build(&prompt, request, &ctx, e))
        return -1;
    r->params = (struct session_params){
        .gen = { .prompt = prompt->ids,
            .n_prompt = prompt->n,
            .max_tokens = prompt_max_tokens(request, m, prompt, 0),
            .n_choices = 1,
            .sample = request->sample,
            .cache_prompt = request->cache_prompt },
        .stops = request->stops,
        .n_stops = request->n_stops,
        .skip_special_tokens = request->skip_special_tokens,
        .output = prompt->output,
    };
    return 0;
}

static void start_request(struct inferflux_request *r)
{
    struct inferflux *m = r->owner;
    struct session_ctx at = { &m->model, r->arena, m->mail, &ops, r, &output_ops, r };
    struct err e = { 0 };

    r->next_open = m->open;
    r->prev_open = &m->open;
    if (m->open)
        m->open->prev_open = &r->next_open;
    m->open = r;
    if (m->is_closing)
        err_set(&e, ERR_DRAINING, "the model is being closed");
    else if (!build_prompt(r, &e))
        (void)!session_open(&r->session, &r->params, &at, &e);
    if (e.code)
        finish_request(r,
            &(inferflux_event){ .kind = INFERFLUX_END, .finish = INFERFLUX_ERROR, .error = e.msg });
}

static void on_cancel(struct inferflux_request *r)
{
    if (r->session)
        session_cancel(r->session);
    pthread_mutex_lock(&r->mu);
    r->cancel_state = CANCEL_DONE; /* the message is no longer in the mailbox */
    pthread_cond_broadcast(&r->ended);
    pthread_mutex_unlock(&r->mu);
}

static void handle_message(struct inferflux *m, struct msg *msg)
{
    switch (msg->kind) {
    case COMMAND_SUBMIT:
        start_request(container_of(msg, struct inferflux_request, submit));
        break;
    case COMMAND_CANCEL:
        on_cancel(container_of(msg, struct inferflux_request, cancel));
        break;
    case COMMAND_CLOSE:
        m->is_closing = true;
        for (struct inferflux_request *r = m->open, *next; r; r = next) {
            next = r->next_open; /* session_cancel can end a paused session at once */
            session_cancel(r->session);
        }
        break;
    default:
        session_event(container_of(msg, struct gen_event, msg));
    }
}

static void *run_model_thread(void *arg)
{
    struct inferflux *m = arg;

    while (!m->is_closing || m->open) {
        struct msg *next;
        mailbox_wait(m->mail, UINT64_MAX);
        for (struct msg *msg = mailbox_drain(m->mail); msg; msg = next) {
            next = msg->next;
            handle_message(m, msg);
        }
    }
    /* Handles cancel messages that arrived after the END of their request. */
    for (struct msg *msg = mailbox_drain(m->mail), *next; msg; msg = next) {
        next = msg->next;
        handle_message(m, msg);
    }
    return NULL;
}

/* ---- caller's thread */

EXPORT int inferflux_open(
    inferflux **out, const char *path, const inferflux_options *options, char *why, size_t n_why)
{
    static const inferflux_options none;
    const inferflux_options *o = options ? options : &none;
    struct err e;

    struct inferflux *m = xcalloc(1, sizeof(*m));
    snprintf(m->path, sizeof(m->path), "%s", path);
    snprintf(m->kernels, sizeof(m->kernels), "%s", o->kernels ? o->kernels : "auto");
    m->spec = model_spec_of("model", m->path);
    m->spec.kernels = m->kernels;
    m->spec.threads = o->threads;
    m->spec.ctx_size = o->ctx_size;
    if (o->parallel > 0)
        m->spec.engine.max_batch = o->parallel;
    if (mailbox_open(&m->mail, &e))
        goto fail;
    if (model_open(&m->model, &m->spec, &e))
        goto fail;
    if (thread_start(&m->thread, "inferflux", run_model_thread, m, &e)) {
        model_close(&m->model);
        goto fail;
    }
    *out = m;
    return 0;

fail:
    copy_error(why, n_why, &e);
    mailbox_close(m->mail);
    mem_free(m);
    return -1;
}

EXPORT void inferflux_close(inferflux *m)
{
    if (!m)
        return;
    m->close.kind = COMMAND_CLOSE;
    mailbox_post(m->mail, &m->close);
    pthread_join(m->thread, NULL);
    model_close(&m->model);
    mailbox_close(m->mail);
    mem_free(m);
}

/* Calls have no ids in this API. A template can require them, so each gets its number. */
static int copy_calls(struct inferflux_request *r, struct message *to,
    const inferflux_message *from, int n_earlier, struct err *e)
{
    to->tool_calls = arena_zalloc(r->arena, (size_t)from->n_calls, sizeof(*to->tool_calls));
    if (!to->tool_calls)
        return err_set(e, ERR_MEMORY, "no memory for %d calls", from->n_calls);
    for (; to->n_tool_calls < from->n_calls; to->n_tool_calls++) {
        const inferflux_call *call = &from->calls[to->n_tool_calls];
        struct tool_call *c = &to->tool_calls[to->n_tool_calls];
        if (!call->name)
            return err_set(e, ERR_INVALID, "a call has no name");
        char id[32];
        snprintf(id, sizeof(id), "call_%d", n_earlier + to->n_tool_calls);
        c->id = arena_str(r->arena, str_of(id));
        c->name = arena_str(r->arena, str_of(call->name));
        c->arguments = arena_str(r->arena, str_of(call->arguments ? call->arguments : "{}"));
        if (!c->id.p || !c->name.p || !c->arguments.p)
            return err_set(e, ERR_MEMORY, "no memory for a call");
    }
    return 0;
}

/* Returns the call id for a result: the k-th result after an assistant message belongs to its k-th
 * call. */
static struct str id_of_result(const struct message *to, int i)
{
    int k = 0;

    for (i--; i >= 0 && !to[i].n_tool_calls; i--)
        k += to[i].role == ROLE_TOOL;
    return i >= 0 && k < to[i].n_tool_calls ? to[i].tool_calls[k].id : STR("call_0");
}

static int copy_tools(struct inferflux_request *r, const char *text, struct err *e)
{
    struct fields f = { .request = &r->request, .arena = r->arena, .e = e };
    struct str copy = arena_str(r->arena, str_of(text));
    struct json *j;

    if (!copy.p)
        return err_set(e, ERR_MEMORY, "no memory for the tools");
    if (json_parse(&j, copy, r->arena, NULL, e) || tools_read(&f, "tools", j) ||
        tools_resolve(&r->request, r->arena, e))
        return err_wrap(e, "tools");
    return 0;
}

static int copy_prompt(struct inferflux_request *r, const char *text, struct err *e)
{
    struct request_prompt *p = arena_zalloc(r->arena, 1, sizeof(*p));

    if (!text)
        return err_set(e, ERR_INVALID, "neither messages nor a prompt");
    if (p)
        p->text = arena_str(r->arena, str_of(text));
    if (!p || !p->text.p)
        return err_set(e, ERR_MEMORY, "no memory for the prompt");
    r->request.kind = REQUEST_COMPLETION;
    r->request.prompts = p;
    return 0;
}

static int copy_messages(struct inferflux_request *r, const inferflux_params *p, struct err *e)
{
    int n_calls = 0;
    struct message *to = arena_zalloc(r->arena, (size_t)p->n_messages, sizeof(*to));
    struct content_part *parts = arena_zalloc(r->arena, (size_t)p->n_messages, sizeof(*parts));

    if (!to || !parts)
        return err_set(e, ERR_MEMORY, "no memory for %d messages", p->n_messages);
    for (int i = 0; i < p->n_messages; i++) {
        const inferflux_message *from = &p->messages[i];
        if (!from->role || !role_parse(str_of(from->role), &to[i].role))
            return err_set(e, ERR_INVALID, "message %d: unknown role", i);
        parts[i].text = arena_str(r->arena, str_of(from->content ? from->content : ""));
        if (!parts[i].text.p)
            return err_set(e, ERR_MEMORY, "no memory for message %d", i);
        to[i].has_content = to[i].is_plain = true;
        to[i].parts = &parts[i];
        to[i].n_parts = 1;
        if (from->n_calls > 0 && copy_calls(r, &to[i], from, n_calls, e))
            return -1;
        n_calls += to[i].n_tool_calls;
        if (to[i].role == ROLE_TOOL)
            to[i].tool_call_id = id_of_result(to, i);
    }
    r->request.kind = REQUEST_CHAT;
    r->request.convo.messages = to;
    r->request.convo.n_messages = p->n_messages;
    return 0;
}

static int copy_params(struct inferflux_request *r, const inferflux_params *p, struct err *e)
{
    struct request *to = &r->request;
    struct str *stops = arena_zalloc(r->arena, (size_t)MAX(p->n_stop, 1), sizeof(*stops));

    if (!stops)
        return err_set(e, ERR_MEMORY, "no memory for the stop strings");
    for (int i = 0; i < p->n_stop; i++) {
        stops[i] = arena_str(r->arena, str_of(p->stop[i]));
        if (!stops[i].p)
            return err_set(e, ERR_MEMORY, "no memory for the stop strings");
    }
    *to = request_default;
    to->max_tokens = p->max_tokens > 0 ? p->max_tokens : -1;
    to->stops = stops;
    to->n_stops = p->n_stop;
    to->sample.temperature = p->temperature;
    to->sample.top_k = p->top_k;
    to->sample.seed = p->seed;
    if (p->top_p > 0)
        to->sample.top_p = p->top_p;
    to->is_reasoning_unparsed = !p->parts;
    if (p->n_messages == 0)
        return copy_prompt(r, p->prompt, e);
    return copy_messages(r, p, e) || (p->parts && p->tools && copy_tools(r, p->tools, e)) ? -1 : 0;
}

EXPORT inferflux_request *inferflux_submit(inferflux *model, const inferflux_params *params,
    inferflux_callback callback, void *user, char *why, size_t n_why)
{
    struct err e;
    struct arena *a = arena_new(REQUEST_MAX);
    struct inferflux_request *r = a ? arena_zalloc(a, 1, sizeof(*r)) : NULL;

    if (!r) {
        err_set(&e, ERR_MEMORY, "no memory for the request");
        copy_error(why, n_why, &e);
        arena_free(a);
        return NULL;
    }
    r->owner = model;
    r->arena = a;
    r->callback = callback;
    r->user = user;
    r->finish = INFERFLUX_CANCELLED;
    buf_init(&r->text, 16 * MB);
    buf_init(&r->name, KB);
    buf_init(&r->arguments, 16 * MB);
    if (copy_params(r, params, &e)) {
        copy_error(why, n_why, &e);
        arena_free(a);
        return NULL;
    }
    pthread_mutex_init(&r->mu, NULL);
    pthread_cond_init(&r->ended, NULL);
    r->submit.kind = COMMAND_SUBMIT;
    r->cancel.kind = COMMAND_CANCEL;
    mailbox_post(model->mail, &r->submit);
    return r;
}

EXPORT void inferflux_cancel(inferflux_request *r)
{
    pthread_mutex_lock(&r->mu);
    if (!r->has_ended && r->cancel_state == CANCEL_NONE) {
        r->cancel_state = CANCEL_POSTED;
        mailbox_post(r->owner->mail, &r->cancel);
    }
    pthread_mutex_unlock(&r->mu);
}

EXPORT void inferflux_wait(inferflux_request *r)
{
    pthread_mutex_lock(&r->mu);
    while (!r->has_ended)
        pthread_cond_wait(&r->ended, &r->mu);
    pthread_mutex_unlock(&r->mu);
}

EXPORT void inferflux_release(inferflux_request *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->mu);
    while (!r->has_ended || r->cancel_state == CANCEL_POSTED)
        pthread_cond_wait(&r->ended, &r->mu);
    pthread_mutex_unlock(&r->mu);
    buf_clear(&r->text);
    buf_clear(&r->name);
    buf_clear(&r->arguments);
    pthread_cond_destroy(&r->ended);
    pthread_mutex_destroy(&r->mu);
    arena_free(r->arena);
}
