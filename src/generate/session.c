/* session.c: converts engine events to text. Each choice has a detokenizer, a stop matcher and an
 * output parser. */
#include "generate/session.h"

#include "os/clock.h"

struct session_choice {
    struct detok detok;
    struct stops *stops; /* NULL if there are no stop strings */
    /* raw: from the detokenizer; out: from the stop matcher, not yet emitted */
    struct buf raw, out;
    struct output output;
    struct str stop_string;
    int n_tokens;
    struct msg_queue withheld; /* paced: events of processed tokens */
    int n_withheld, n_granted; /* n_granted: tokens that the engine may generate in total */
    bool has_ended;            /* the callback choice_end was called */
};

struct session_replay {     /* replay of a cached response, in slices */
    struct gen_event event; /* message to the session itself; only msg is used */
    bool is_scheduled;      /* the message is posted */
    bool is_running;        /* a slice is being replayed */
    int n;                  /* tokens replayed */
    struct gen_result result;
};

struct session {
    struct gen *gen; /* NULL: replay */
    struct session_replay replay;
    struct session_ctx ctx;
    struct session_params p;
    struct session_choice *choices;
    const struct str *stops; /* the client's stop strings, then the text that ends a turn, if any */
    int n_stops;
    struct msg_queue paused; /* events held back by session_pause */
    bool is_cancelled, is_paused;
    struct err err; /* internal error while text was produced */
    uint64_t first_token_ns;
    int n_completion, n_predicted;
};

enum {
    TEXT_MAX = 1 << 20, /* bytes that one token event can add to a choice's buffers */
    /* tokens per slice, so that other connections of the io thread are served between slices */
    REPLAY_SLICE = 64,
};

static void schedule_replay(struct session *s)
{
    if (s->replay.is_scheduled || s->replay.is_running)
        return;
    s->replay.is_scheduled = true;
    s->replay.event.msg.kind = SESSION_REPLAY;
    mailbox_post(s->ctx.reply, &s->replay.event.msg);
}

static int choice_init(struct session *s, struct session_choice *c, struct err *e)
{
    const struct session_params *p = &s->p;

    c->detok.has_begun =
        p->gen.constraints && !p->is_free; /* the constraint has read the first blank */
    c->n_granted = p->gen.n_events_max;
    buf_init(&c->raw, TEXT_MAX);
    buf_init(&c->out, TEXT_MAX);
    if (output_init(&c->output, &p->output, p->first_choice + (int)(c - s->choices),
            s->ctx.output_ops, s->ctx.output_ctx, e))
        return -1;
    if (!s->n_stops)
        return 0;
    c->stops = stops_new(s->ctx.arena, s->stops, s->n_stops);
    return c->stops ? 0 : err_set(e, ERR_MEMORY, "no memory for the stop strings");
}

static int list_stops(struct session *s, struct err *e)
{
    const struct session_params *p = &s->p;
    struct str *all = NULL;

    s->stops = p->stops;
    s->n_stops = p->n_stops;
    if (p->output.turn_end.n && !p->ignore_eos) {
        all = arena_alloc(s->ctx.arena, (size_t)(p->n_stops + 1) * sizeof(*all));
        if (!all)
            return err_set(e, ERR_MEMORY, "no memory for the stop strings");
        if (p->n_stops)
            memcpy(all, p->stops, (size_t)p->n_stops * sizeof(*all));
        all[s->n_stops++] = p->output.turn_end;
        s->stops = all;
    }
    if (stops_fit(s->stops, s->n_stops))
        return 0;
    return err_param(e, ERR_INVALID, "stop",
        "The stop strings are too many or too long: at most %d, and %d bytes together.", STOPS_MAX,
        STOP_BYTES_MAX);
}

static void free_buffers(void *arg)
{
    struct session *s = arg;

    for (int i = 0; s->choices && i < s->p.gen.n_choices; i++) {
        buf_clear(&s->choices[i].raw);
        buf_clear(&s->choices[i].out);
        output_clear(&s->choices[i].output);
    }
}

/* Merges the model's end tokens (unless ignored) and the client's stop tokens into one ascending
 * list. */
static int32_t *merge_stop_ids(struct session *s, int *n)
{
    const struct model *m = s->ctx.model;
    bool has_end = !s->p.ignore_eos || s->p.gen.constraints;
    int n_end = has_end ? m->n_end_ids : 0, total = n_end + s->p.gen.n_stop_ids;
    int32_t *ids = arena_alloc(s->ctx.arena, sizeof(*ids) * (size_t)MAX(total, 1));

    for (int i = 0; ids && i < total; i++) {
        int32_t id = i < n_end ? m->end_ids[i] : s->p.gen.stop_ids[i - n_end];
        int at = i;
        for (; at > 0 && ids[at - 1] > id; at--)
            ids[at] = ids[at - 1];
        ids[at] = id;
    }
    *n = total;
    return ids;
}

static int submit(struct session *s, struct err *e)
{
    struct gen_input in = s->p.gen;
    const struct spec_options *spec = &s->ctx.model->spec->engine.spec;

    in.want_drafts = spec->max > 0 && spec->by_history;
    in.stop_ids = merge_stop_ids(s, &in.n_stop_ids);
    if (!in.stop_ids)
        return err_set(e, ERR_MEMORY, "no memory for the stop tokens");
    in.sample.banned_until_min = in.stop_ids;
    in.sample.n_banned_until_min = in.n_stop_ids;
    if (gen_new(&s->gen, &in, s->ctx.reply, s, e))
        return -1;
    if (engine_submit(s->ctx.model->engine, s->gen, e)) {
        gen_free(s->gen);
        return -1;
    }
    return 0;
}

int session_open(struct session **out, const struct session_params *p,
    const struct session_ctx *ctx, struct err *e)
{
    struct session *s = arena_zalloc(ctx->arena, 1, sizeof(*s));

    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for the request");
    s->ctx = *ctx;
    s->p = *p;
    if (list_stops(s, e))
        return -1;
    s->choices = arena_zalloc(ctx->arena, (size_t)p->gen.n_choices, sizeof(*s->choices));
    if (!s->choices || arena_cleanup(ctx->arena, free_buffers, s))
        return err_set(e, ERR_MEMORY, "no memory for %d choices", p->gen.n_choices);
    for (int i = 0; i < p->gen.n_choices; i++)
        if (choice_init(s, &s->choices[i], e))
            return -1;
    if (p->replay) {
        CHECK(p->gen.n_choices == 1);
        uint64_t now = clock_ns();
        s->replay.result = (struct gen_result){ .n_cached = p->gen.n_prompt,
            .submitted_ns = now,
            .started_ns = now,
            .first_token_ns = now };
        schedule_replay(s);
    } else if (submit(s, e)) {
        return -1;
    }
    *out = s;
    return 0;
}

static void set_error(struct session *s, const char *what)
{
    if (!s->err.code)
        err_set(&s->err, ERR_MEMORY, "no memory for %s", what);
    if (s->gen)
        engine_cancel(s->ctx.model->engine, s->gen);
}

/* Passes the text after the stop matcher to the output parser. is_last: no more text follows. */
static void emit_text(struct session *s, struct session_choice *c, bool is_last)
{
    if (s->is_cancelled)
        return;
    if (s->err.code) {
        /* the request has failed: the rest of its text is discarded */
    } else if (!buf_ok(&c->raw) || !buf_ok(&c->out)) {
        set_error(s, "the text of the response");
    } else if (output_put(&c->output, buf_str(&c->out), &s->err) ||
               (is_last && output_end(&c->output, &s->err))) {
        set_error(s, "");
    }
    buf_reset(&c->out);
    if (s->ctx.ops->after_output)
        s->ctx.ops->after_output(s->ctx.ctx);
}

static void end_choice(struct session *s, struct session_choice *c, const struct choice_end *how)
{
    struct choice_end end = *how;

    if (c->has_ended)
        return;
    c->has_ended = true;
    end.choice = (int)(c - s->choices);
    end.n_tokens = c->n_tokens;
    end.n_reasoning = c->output.n_reasoning;
    end.n_calls = output_n_calls(&c->output);
    end.ends_inside_call = c->output.ends_inside_call;
    end.stop_string = c->stop_string;
    s->n_completion += c->n_tokens;
    s->ctx.ops->choice_end(s->ctx.ctx, &end);
}

/* Ends the choice because of its output: a stop string, the last tool call, a filter. */
static void stop_choice(struct session *s, struct session_choice *c, enum finish finish)
{
    if (c->has_ended)
        return;
    if (s->gen)
        engine_stop_choice(s->ctx.model->engine, s->gen, (int)(c - s->choices));
    end_choice(s, c, &(struct choice_end){ .finish = finish, .stop_id = TOKEN_NONE });
}

void session_end_choice(struct session *s, int choice, enum finish finish)
{
    CHECK(choice >= 0 && choice < s->p.gen.n_choices);
    stop_choice(s, &s->choices[choice], finish);
}

static void stop_by_string(struct session *s, struct session_choice *c, int hit)
{
    if (hit < s->p.n_stops)
        c->stop_string = s->stops[hit];
    else if (s->p.include_stop) /* the text that ends a turn is never included */
        c->out.n -= MIN(s->stops[hit].n, c->out.n);
    emit_text(s, c, true);
    stop_choice(s, c, FINISH_STOP);
}

static int match_stops(struct session *s, struct session_choice *c)
{
    int hit = -1;

    if (c->stops)
        hit = stops_put(c->stops, buf_str(&c->raw), s->p.include_stop, &c->out);
    else
        buf_put(&c->out, c->raw.p, c->raw.n);
    buf_reset(&c->raw);
    return hit;
}

/* Control tokens that are markers are shown to the parser, which removes them. */
static bool is_shown(const struct session *s, int32_t id)
{
    return !s->p.skip_special_tokens ||
           (s->p.output.output_mode && output_mode_shows_token(s->p.output.output_mode, id));
}

static void on_token(struct session *s, const struct gen_event *ev)
{
    struct session_choice *c = &s->choices[ev->choice];

    if (c->has_ended)
        return; /* the engine generated this token before it handled the stop */
    c->n_tokens++;
    s->n_predicted += ev->is_predicted;
    if (s->ctx.ops->token)
        s->ctx.ops->token(s->ctx.ctx, ev->choice, &ev->token);
    output_count_token(&c->output);
    detok_put(&c->detok, s->ctx.model->vocab, ev->token.id, is_shown(s, ev->token.id), &c->raw);
    int hit = match_stops(s, c);
    if (hit >= 0)
        stop_by_string(s, c, hit);
    else if (!s->p.gen.script || ev->is_group_end)
        emit_text(s, c, false);
    if (output_is_full(&c->output))
        stop_choice(s, c, FINISH_STOP);
}

static void on_choice_end(struct session *s, const struct gen_event *ev)
{
    struct session_choice *c = &s->choices[ev->choice];
    struct choice_end end = { .finish = ev->finish, .stop_id = TOKEN_NONE };

    if (c->has_ended)
        return;
    detok_end(&c->detok, &c->raw);
    int hit = match_stops(s, c);
    if (hit >= 0) {
        stop_by_string(s, c, hit);
        return;
    }
    if (c->stops)
        stops_end(c->stops, &c->out);
    for (int i = 0; ev->finish == FINISH_STOP && i < s->p.gen.n_stop_ids; i++)
        if (s->p.gen.stop_ids[i] == ev->stop_id)
            end.stop_id = ev->stop_id;
    end.is_constraint_met =
        s->p.gen.constraints && ev->finish == FINISH_STOP && end.stop_id == TOKEN_NONE;
    emit_text(s, c, true);
    end_choice(s, c, &end);
}

static void on_end(struct session *s)
{
    struct gen *gen = s->gen;
    const struct gen_result *r = gen ? gen_result(gen) : &s->replay.result;
    struct session_end end = {
        .err = s->err.code ? &s->err : &r->err,
        .result = r,
        .n_prompt = s->p.gen.n_prompt,
        .n_completion = s->n_completion,
        .n_predicted = s->n_predicted,
    };

    for (int i = 0; i < s->p.gen.n_choices; i++) {
        end.n_calls += output_n_calls(&s->choices[i].output);
        end.n_broken_calls += output_n_broken_calls(&s->choices[i].output);
    }
    s->ctx.ops->end(s->ctx.ctx, &end); /* may free the arena, including s */
    gen_free(gen);
}

static void handle_event(struct session *s, struct gen_event *ev)
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
        if (s->ctx.ops->prompt_token)
            s->ctx.ops->prompt_token(s->ctx.ctx, ev->index, &ev->token);
        break;
    case GEN_BEGUN:
        if (s->ctx.ops->begun)
            s->ctx.ops->begun(s->ctx.ctx);
        break;
    case GEN_CHOICE_END:
        on_choice_end(s, ev);
        break;
    case GEN_END:
        break;
    }
}

/* Replays one slice of tokens, in the same way as tokens from the engine. Returns false if tokens
 * remain. */
static bool replay_slice(struct session *s)
{
    const struct cached_response *a = s->p.replay;
    struct session_choice *c = &s->choices[0];
    int n = MIN(cached_response_n_tokens(a), s->p.gen.max_tokens), left = REPLAY_SLICE;
    struct gen_event ev = { 0 };

    while (s->replay.n < n && !c->has_ended && !s->err.code && !s->is_cancelled) {
        if (s->is_paused || left-- == 0)
            return false;
        cached_response_token(a, s->replay.n++, &ev.token);
        on_token(s, &ev);
    }
    if (s->is_paused && !s->is_cancelled)
        return false;
    ev.finish = cached_response_finish(a, s->p.gen.max_tokens);
    ev.stop_id = cached_response_stop_id(a);
    if (!c->has_ended && !s->err.code && !s->is_cancelled)
        on_choice_end(s, &ev);
    return true;
}

static void on_replay_message(struct session *s)
{
    s->replay.is_scheduled = false;
    s->replay.is_running = true; /* callbacks may pause, resume and cancel */
    bool is_over = replay_slice(s);
    s->replay.is_running = false;
    s->replay.result.ended_ns = clock_ns();
    if (is_over)
        on_end(s);
    else if (!s->is_paused || s->is_cancelled)
        schedule_replay(s);
}

/* ---- pace */

static bool needs_group(const struct session *s, const struct session_choice *c)
{
    return !c->has_ended && c->n_withheld >= s->p.pace_group && c->n_granted < s->p.gen.max_tokens;
}

bool session_needs_group(const struct session *s)
{
    for (int i = 0; s->p.pace_group && i < s->p.gen.n_choices; i++)
        if (needs_group(s, &s->choices[i]))
            return true;
    return false;
}

bool session_return_group(struct session *s)
{
    int i = 0;

    while (i < s->p.gen.n_choices && !needs_group(s, &s->choices[i]))
        i++;
    if (i == s->p.gen.n_choices)
        return false;
    struct session_choice *c = &s->choices[i];
    c->n_granted += s->p.pace_group;
    c->n_withheld -= s->p.pace_group;
    for (int k = 0; k < s->p.pace_group; k++)
        gen_event_done(container_of(msg_queue_take(&c->withheld), struct gen_event, msg));
    return true;
}

/* The engine frees the events of an ended choice with the request. */
static void withhold(struct session *s, struct gen_event *ev)
{
    struct session_choice *c = &s->choices[ev->choice];

    msg_queue_put(&c->withheld, &ev->msg);
    c->n_withheld++;
    if (!s->is_cancelled && needs_group(s, c))
        s->ctx.ops->paced(s->ctx.ctx);
}

void session_event(struct gen_event *ev)
{
    if (ev->msg.kind == SESSION_REPLAY) {
        on_replay_message(container_of(ev, struct session, replay.event));
        return;
    }
    struct session *s = gen_user(ev->gen);

    if (s->is_paused && !s->is_cancelled) {
        msg_queue_put(&s->paused, &ev->msg);
        return;
    }
    handle_event(s, ev);
    if (ev->msg.kind == GEN_END)
        on_end(s);
    else if (ev->msg.kind == GEN_TOKEN && s->p.pace_group)
        withhold(s, ev);
    else
        gen_event_done(ev);
}

static void drain_paused(struct session *s)
{
    struct msg_queue events = s->paused; /* s may be freed by the last event */

    s->paused = (struct msg_queue){ 0 };
    for (struct msg *m; (m = msg_queue_take(&events));)
        session_event(container_of(m, struct gen_event, msg)); /* may hold the event back again */
}

void session_cancel(struct session *s)
{
    if (s->is_cancelled)
        return;
    s->is_cancelled = true;
    if (!s->gen) {
        schedule_replay(s);
        return;
    }
    engine_cancel(s->ctx.model->engine, s->gen);
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
    if (s->gen)
        drain_paused(s);
    else
        schedule_replay(s);
}

uint64_t session_first_token_ns(const struct session *s)
{
    return s->first_token_ns;
}
