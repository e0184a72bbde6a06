/* session.c: engine events -> text. Each choice has its own detokenizer, stop matcher and queue
 * of tokens whose text is still held back. */
#include "pool/session.h"

#include "os/clock.h"

/* Tokens wait here until their text is out; more cannot be pending than stop strings have bytes
 * plus the bytes of an open character, as each token but empty ones adds a byte; the queue grows
 * in the arena all the same when empty ones pile up. */
struct pending {
    struct piece_token *tokens;
    uint64_t *ends; /* text offset behind each token */
    int n, cap;
};

struct choice {
    struct detok detok;
    struct stops *stops; /* NULL when there are none */
    struct pending pending;
    uint64_t n_text;    /* bytes that left the detokenizer */
    uint64_t n_shown;   /* bytes that left the stop matcher */
    struct buf raw, out;
    struct str stop_string;
    int n_tokens;
    double logprob_sum;
    bool has_ended;     /* choice_end was told */
};

struct session {
    struct gen *gen;
    struct session_place at;
    struct session_params p;
    struct choice *choices;
    struct msg *paused, **paused_tail; /* events kept back by session_pause */
    bool is_cancelled, is_paused;
    struct err err; /* a fault of our own on the way to the text */
    uint64_t first_token_ns;
    int n_completion;
};

enum { TEXT_MAX = 1 << 20 }; /* bytes one token event can add to a choice's buffers */

static int choice_init(struct session *s, struct choice *c, struct err *e)
{
    const struct session_params *p = &s->p;

    buf_init(&c->raw, TEXT_MAX);
    buf_init(&c->out, TEXT_MAX);
    if (!p->n_stops)
        return 0;
    c->stops = stops_new(s->at.arena, p->stops, p->n_stops);
    return c->stops ? 0 : err_set(e, ERR_MEMORY, "no memory for the stop strings");
}

static void free_buffers(void *arg)
{
    struct session *s = arg;

    for (int i = 0; s->choices && i < s->p.n_choices; i++) {
        buf_clear(&s->choices[i].raw);
        buf_clear(&s->choices[i].out);
    }
}

/* The model's end tokens (unless ignored) and the client's, in one ascending list. */
static int32_t *merge_stop_ids(struct session *s, int *n)
{
    const struct model *m = s->at.model;
    int n_end = s->p.ignore_end ? 0 : m->n_end_ids, total = n_end + s->p.n_stop_ids;
    int32_t *ids = arena_alloc(s->at.arena, sizeof(*ids) * (size_t)MAX(total, 1));

    for (int i = 0; ids && i < total; i++) {
        int32_t id = i < n_end ? m->end_ids[i] : s->p.stop_ids[i - n_end];
        int at = i;
        for (; at > 0 && ids[at - 1] > id; at--)
            ids[at] = ids[at - 1];
        ids[at] = id;
    }
    *n = total;
    return ids;
}

static int start(struct session *s, struct err *e)
{
    struct gen_input in = {
        .prompt = s->p.prompt,
        .n_prompt = s->p.n_prompt,
        .max_tokens = s->p.max_tokens,
        .n_choices = s->p.n_choices,
        .sample = s->p.sample,
        .want_prompt_logprobs = s->p.want_prompt_logprobs,
        .priority = s->p.priority,
        .deadline_ns = s->p.deadline_ns,
        .script = s->p.script,
    };

    in.stop_ids = merge_stop_ids(s, &in.n_stop_ids);
    if (!in.stop_ids)
        return err_set(e, ERR_MEMORY, "no memory for the stop tokens");
    in.sample.banned_until_min = in.stop_ids;
    in.sample.n_banned_until_min = in.n_stop_ids;
    if (gen_new(&s->gen, &in, s->at.reply, s, e))
        return -1;
    if (engine_submit(s->at.model->engine, s->gen, e)) {
        gen_free(s->gen);
        return -1;
    }
    return 0;
}

int session_open(struct session **out, const struct session_params *p,
    const struct session_place *at, struct err *e)
{
    struct session *s = arena_zalloc(at->arena, 1, sizeof(*s));

    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for the request");
    s->at = *at;
    s->p = *p;
    s->paused_tail = &s->paused;
    s->choices = arena_zalloc(at->arena, (size_t)p->n_choices, sizeof(*s->choices));
    if (!s->choices || arena_cleanup(at->arena, free_buffers, s))
        return err_set(e, ERR_MEMORY, "no memory for %d choices", p->n_choices);
    for (int i = 0; i < p->n_choices; i++)
        if (choice_init(s, &s->choices[i], e))
            return -1;
    if (start(s, e))
        return -1;
    *out = s;
    return 0;
}

static bool wants_tokens(const struct session *s)
{
    return s->p.sample.want_logprobs;
}

static bool pending_put(struct session *s, struct choice *c, const struct gen_event *ev)
{
    struct pending *q = &c->pending;

    if (q->n == q->cap) {
        int cap = MAX(2 * q->cap, 8);
        q->tokens = arena_realloc(s->at.arena, q->tokens, sizeof(*q->tokens) * (size_t)q->cap,
            sizeof(*q->tokens) * (size_t)cap);
        q->ends = arena_realloc(
            s->at.arena, q->ends, sizeof(*q->ends) * (size_t)q->cap, sizeof(*q->ends) * (size_t)cap);
        if (!q->tokens || !q->ends) {
            *q = (struct pending){ 0 };
            return false;
        }
        q->cap = cap;
    }
    q->tokens[q->n] = (struct piece_token){ ev->token,
        vocab_bytes(s->at.model->vocab, ev->token.id) };
    q->ends[q->n++] = c->n_text;
    return true;
}

static void fail(struct session *s, const char *what)
{
    if (!s->err.code)
        err_set(&s->err, ERR_MEMORY, "no memory for %s", what);
    engine_cancel(s->at.model->engine, s->gen);
}

/* Shows what is in c->out, with the tokens whose text it completes (all of them when `flush`). */
static void show(struct session *s, struct choice *c, bool flush)
{
    struct pending *q = &c->pending;
    int n = 0;

    if (!buf_ok(&c->raw) || !buf_ok(&c->out))
        fail(s, "the answer's text");
    c->n_shown += c->out.n;
    while (n < q->n && (flush || q->ends[n] <= c->n_shown))
        n++;
    if (c->out.n || n) {
        struct piece p = { (int)(c - s->choices), buf_str(&c->out), n ? q->tokens : NULL, n };
        s->at.ops->piece(s->at.ctx, &p);
    }
    if (n) {
        memmove(q->tokens, q->tokens + n, sizeof(*q->tokens) * (size_t)(q->n - n));
        memmove(q->ends, q->ends + n, sizeof(*q->ends) * (size_t)(q->n - n));
        q->n -= n;
    }
    buf_reset(&c->out);
}

static void end_choice(struct session *s, struct choice *c, const struct choice_end *how)
{
    struct choice_end end = *how;

    if (c->has_ended)
        return;
    c->has_ended = true;
    end.choice = (int)(c - s->choices);
    end.n_tokens = c->n_tokens;
    end.logprob_sum = c->logprob_sum;
    end.stop_string = c->stop_string;
    s->n_completion += c->n_tokens;
    s->at.ops->choice_end(s->at.ctx, &end);
}

/* The stop string `hit` is complete: tokens behind the cut are not part of the answer. */
static void stop_here(struct session *s, struct choice *c, int hit)
{
    uint64_t cut = c->n_shown + c->out.n;
    struct pending *q = &c->pending;

    while (q->n > 0 && (q->n > 1 ? q->ends[q->n - 2] : c->n_shown) >= cut && q->ends[q->n - 1] > cut)
        q->n--;
    c->stop_string = s->p.stops[hit];
    show(s, c, true);
    engine_stop_choice(s->at.model->engine, s->gen, (int)(c - s->choices));
    end_choice(s, c, &(struct choice_end){ .finish = FINISH_STOP, .stop_id = TOKEN_NONE });
}

static int filter(struct session *s, struct choice *c)
{
    int hit = -1;

    c->n_text += c->raw.n;
    if (c->stops)
        hit = stops_put(c->stops, buf_str(&c->raw), s->p.include_stop, &c->out);
    else
        buf_put(&c->out, c->raw.p, c->raw.n);
    buf_reset(&c->raw);
    return hit;
}

static void on_token(struct session *s, const struct gen_event *ev)
{
    struct choice *c = &s->choices[ev->choice];

    if (c->has_ended)
        return; /* it ran on while our stop was on its way */
    c->n_tokens++;
    if (wants_tokens(s))
        c->logprob_sum += (double)ev->token.logprob;
    detok_put(&c->detok, s->at.model->vocab, ev->token.id, s->p.show_control, &c->raw);
    int hit = filter(s, c);
    if (wants_tokens(s) && !pending_put(s, c, ev))
        fail(s, "log-probabilities");
    if (hit >= 0)
        stop_here(s, c, hit);
    else if (!s->p.script || ev->is_group_end)
        show(s, c, false);
}

static void on_choice_end(struct session *s, const struct gen_event *ev)
{
    struct choice *c = &s->choices[ev->choice];
    struct choice_end end = { .finish = ev->finish, .stop_id = TOKEN_NONE };

    if (c->has_ended)
        return;
    detok_end(&c->detok, &c->raw);
    int hit = filter(s, c);
    if (hit >= 0) {
        stop_here(s, c, hit);
        return;
    }
    if (c->stops)
        stops_end(c->stops, &c->out);
    if (ev->finish == FINISH_STOP) {
        c->n_tokens++; /* the end token was generated too */
        for (int i = 0; i < s->p.n_stop_ids; i++)
            if (s->p.stop_ids[i] == ev->stop_id)
                end.stop_id = ev->stop_id;
    }
    show(s, c, true);
    end_choice(s, c, &end);
}

static void on_end(struct session *s)
{
    struct gen *gen = s->gen;
    const struct gen_result *r = gen_result(gen);
    struct session_end end = { s->err.code ? &s->err : &r->err, r, s->p.n_prompt,
        s->n_completion };

    s->at.ops->end(s->at.ctx, &end); /* may free the arena, and s with it */
    gen_free(gen);
}

static void deliver(struct session *s, struct gen_event *ev)
{
    if (s->is_cancelled)
        return;
    switch ((enum gen_kind)ev->msg.kind) {
    case GEN_TOKEN:
        if (!s->first_token_ns)
            s->first_token_ns = clock_ns();
        on_token(s, ev);
        break;
    case GEN_PROMPT_TOKEN:
        if (s->at.ops->prompt_token) {
            struct piece_token t = { ev->token, vocab_bytes(s->at.model->vocab, ev->token.id) };
            s->at.ops->prompt_token(s->at.ctx, ev->index, &t);
        }
        break;
    case GEN_CHOICE_END:
        on_choice_end(s, ev);
        break;
    case GEN_END:
        break;
    }
}

void session_event(struct gen_event *ev)
{
    struct session *s = gen_user(ev->gen);

    if (s->is_paused && !s->is_cancelled) {
        ev->msg.next = NULL;
        *s->paused_tail = &ev->msg;
        s->paused_tail = &ev->msg.next;
        return;
    }
    deliver(s, ev);
    if (ev->msg.kind == GEN_END)
        on_end(s);
    else
        gen_event_done(ev);
}

static void drain_paused(struct session *s)
{
    struct msg *m = s->paused;

    s->paused = NULL;
    s->paused_tail = &s->paused;
    while (m) {
        struct msg *next = m->next; /* s is gone after the last one */
        session_event(container_of(m, struct gen_event, msg)); /* may be kept back again */
        m = next;
    }
}

void session_cancel(struct session *s)
{
    if (s->is_cancelled)
        return;
    s->is_cancelled = true;
    engine_cancel(s->at.model->engine, s->gen);
    drain_paused(s);
}

void session_pause(struct session *s)
{
    s->is_paused = true;
}

void session_resume(struct session *s)
{
    if (!s->is_paused)
        return;
    s->is_paused = false;
    drain_paused(s);
}

uint64_t session_first_token_ns(const struct session *s)
{
    return s->first_token_ns;
}
