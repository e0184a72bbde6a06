/* words.c: /tokenize, /detokenize, /apply-template. */
#include "api/tokenize.h"
#include "api/wire.h"
#include "serve/io.h"
#include "serve/prompt.h"

static const size_t ARENA_MAX = 512 * 1024 * 1024;

struct job { /* a handler's own memory */
    struct arena *arena;
    struct buf out;
    struct err err;
};

static int job_begin(struct job *j)
{
    buf_init(&j->out, ARENA_MAX);
    j->arena = arena_new(ARENA_MAX);
    return j->arena ? 0 : err_set(&j->err, ERR_MEMORY, "no memory for the request");
}

static void job_end(struct job *j, int rc, struct http_exchange *x, struct call *c)
{
    if (rc)
        reply_error(x, c, &j->err, NULL);
    else
        reply_json(x, c, 200, &j->out);
    buf_clear(&j->out);
    arena_free(j->arena);
}

static struct str bytes_of_token(const void *vocab, int32_t id)
{
    return vocab_bytes(vocab, id);
}

static int tokenize(struct io *io, struct job *j, struct str body)
{
    struct tokenize_ask ask;
    struct tokens t = { .arena = j->arena };

    if (tokenize_parse(&ask, body, j->arena, &j->err))
        return -1;
    struct model *m = ready_model(io, ask.model, &j->err);
    if (!m)
        return -1;
    struct span span = { ask.content, ask.parse_special };
    if (vocab_encode(m->vocab, &span, 1, ask.add_special, &t, &j->err))
        return -1;
    tokenize_answer(&j->out, t.ids, t.n, ask.with_pieces ? bytes_of_token : NULL, m->vocab);
    return 0;
}

void words_tokenize(struct io *io, struct http_exchange *x, struct call *c)
{
    struct job j;
    int rc = job_begin(&j) || tokenize(io, &j, x->req->body) ? -1 : 0;
    job_end(&j, rc, x, c);
}

static int detokenize(struct io *io, struct job *j, struct str body)
{
    struct detokenize_ask ask;
    struct detok d = { 0 };
    struct buf text;

    if (detokenize_parse(&ask, body, j->arena, &j->err))
        return -1;
    struct model *m = ready_model(io, ask.model, &j->err);
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

void words_detokenize(struct io *io, struct http_exchange *x, struct call *c)
{
    struct job j;
    int rc = job_begin(&j) || detokenize(io, &j, x->req->body) ? -1 : 0;
    job_end(&j, rc, x, c);
}

static int apply_template(struct io *io, struct job *j, struct str body)
{
    struct ask ask;
    struct rendered r;
    struct buf text;

    if (ask_parse(&ask, &wire_openai_chat, body, j->arena, &j->err))
        return -1;
    struct model *m = ready_model(io, ask.model, &j->err);
    if (!m || prompt_render(&r, &ask.convo, m, j->arena, &j->err))
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

void words_apply_template(struct io *io, struct http_exchange *x, struct call *c)
{
    struct job j;
    int rc = job_begin(&j) || apply_template(io, &j, x->req->body) ? -1 : 0;
    job_end(&j, rc, x, c);
}
