/* inflight_events.c: callbacks of a session: tokens and ends of choices for the response, metrics
 * and times. The response receives the output events itself (response_output_ops). Owner: the io
 * thread. */
#include "serve/audit_record.h"

#include "os/clock.h"
#include "serve/responses/background.h"
#include "generate/output_constraint.h"
#include "generate/tool_choice.h"

/* ---- echo: the prompt in front of a completion */

/* Echoes the part of the prompt text that this token stands for. The client's text is echoed
 * verbatim: a token that is not in it (BOS) yields no text. */
static void echo_token(struct inflight_prompt *p, int32_t id, const struct sampled *t)
{
    struct inflight *r = p->inflight;
    bool is_text = p->echo_text_left.p != NULL;
    struct buf piece;

    response_add_prompt_token(r->response, p->index, id, t);
    if (!r->request.stream)
        return;
    buf_init(&piece, MB);
    detok_put(&p->echo, r->model->vocab, id, is_text || !r->request.skip_special_tokens, &piece);
    if (is_text && !str_starts(p->echo_text_left, buf_str(&piece)))
        buf_reset(&piece);
    if (is_text)
        p->echo_text_left = str_skip(p->echo_text_left, piece.n);
    response_add_prompt_text(r->response, p->index, buf_str(&piece));
    buf_clear(&piece);
}

/* Echoes the text that the tokens did not yield, after the last prompt token or before other
 * output. */
static void echo_rest(struct inflight_prompt *p)
{
    struct inflight *r = p->inflight;
    struct buf piece;

    if (!p->is_echoing || !r->response)
        return;
    p->is_echoing = false;
    if (p->echo_text_left.p) {
        response_add_prompt_text(r->response, p->index, p->echo_text_left);
        return;
    }
    buf_init(&piece, KB);
    detok_end(&p->echo, &piece);
    response_add_prompt_text(r->response, p->index, buf_str(&piece));
    buf_clear(&piece);
}

static void echo_tokens(struct inflight *r, const struct prompt *p, int index)
{
    struct detok d = { 0 };
    struct buf text;

    buf_init(&text, 64 * MB);
    for (int t = 0; t < p->n; t++)
        detok_put(&d, r->model->vocab, p->ids[t], !r->request.skip_special_tokens, &text);
    detok_end(&d, &text);
    response_add_prompt_text(r->response, index, buf_str(&text));
    buf_clear(&text);
}

void inflight_events_echo(struct inflight *r)
{
    for (int i = 0; r->request.echo && i < r->request.n_prompts; i++) {
        const struct prompt *p = &r->prompts[i];
        struct inflight_prompt *inflight_prompt = &r->inflight_prompts[i];
        inflight_prompt->is_echoing = r->request.want_logprobs && r->request.stream;
        inflight_prompt->echo_text_left = p->text;
        if (r->request.want_logprobs)
            echo_token(inflight_prompt, p->ids[0], NULL);
        if (!inflight_prompt->is_echoing && p->text.p)
            response_add_prompt_text(r->response, i, p->text);
        else if (!inflight_prompt->is_echoing)
            echo_tokens(r, p, i);
    }
}

/* ---- session callbacks */

static void on_begun(void *ctx)
{
    struct inflight_prompt *p = ctx;

    background_set_running(p->inflight);
}

static int choice_of(const struct inflight_prompt *p, int choice)
{
    return p->index * p->inflight->request.best_of + choice;
}

static void on_prompt_token(void *ctx, int position, const struct sampled *t)
{
    struct inflight_prompt *p = ctx;
    struct inflight *r = p->inflight;

    if (!r->response || !r->request.echo)
        return;
    echo_token(p, t->id, t);
    if (position == r->prompts[p->index].n - 1)
        echo_rest(p);
    inflight_flush(r);
}

static void measure_token(struct inflight *r, int choice)
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
    struct inflight_prompt *p = ctx;
    struct inflight *r = p->inflight;

    measure_token(r, choice_of(p, choice));
    audit_record_token(r->audit_record, choice_of(p, choice), t->id);
    rate_limit_count(r);
    background_set_running(r);
    echo_rest(p);
    if (choice == 0)
        slot_token(&p->slot, t->id);
    if (r->cache_key.n && !r->cached_response)
        response_cache_record_token(&r->cache_record, r->io->o->response_cache, t);
    request_guard_token(r, choice_of(p, choice), t);
}

static void check_response(struct inflight *r)
{
    if (!r->response ||
        (response_ok(r->response) && background_has_room(r) && !request_guard_failed(r)))
        return;
    struct err e; /* here, since release builds set it to zero, which takes time per token */
    if (request_guard_failed(r))
        err_set(&e, ERR_MEMORY, "no memory for the guardrails");
    else if (response_ok(r->response))
        err_set(&e, ERR_MEMORY, "The response store has no room for the complete response.");
    else
        response_failure(r->response, &e);
    inflight_fail(r, &e);
}

/* The response has received the output events (response_output_ops). */
static void after_output(void *ctx)
{
    struct inflight_prompt *p = ctx;

    request_guard_end_blocked(p);
    inflight_flush(p->inflight);
    check_response(p->inflight);
}

/* Counts n choices of a request with a constraint. */
static void count_constraint_ends(struct inflight_prompt *p, enum constraint_cause cause, int n)
{
    const struct request_constraint *constraint = &p->inflight->request.constraint;

    if (!constraint->is_set || n <= 0)
        return;
    constraint_ends_add(&p->inflight->io->constraint_ends, constraint->source.kind, cause, n);
    p->n_ends_counted += n;
}

static void on_choice_end(void *ctx, const struct choice_end *how)
{
    struct inflight_prompt *p = ctx;
    struct inflight *r = p->inflight;
    struct choice_end end = *how, *c = &end;
    struct err e;

    if (r->response)
        request_guard_choice_end(r, choice_of(p, c->choice), c);
    r->n_completion += c->n_tokens;
    r->response_cache_end = (struct response_cache_end){ c->finish, c->stop_id };
    r->n_unmet += c->finish == FINISH_UNMET;
    if (!r->response || c->finish == FINISH_CANCELLED || c->finish == FINISH_ERROR)
        return;
    if (c->finish == FINISH_UNMET && request_n_choices(&r->request) == 1)
        return; /* the request ends with the error */
    echo_rest(p);
    count_constraint_ends(p, constraint_cause_of(c), 1);
    metric_add(&r->io->metrics, METRIC_reasoning_tokens_total, c->n_reasoning);
    if (tool_choice_check(&r->request, c, &e)) {
        metric_add(&r->io->metrics, METRIC_tool_choice_failures_total, 1);
        inflight_fail(r, &e);
        return;
    }
    response_set_reasoning_tokens(r->response, choice_of(p, c->choice), c->n_reasoning);
    if (c->ends_inside_call)
        response_set_ends_inside_call(r->response, choice_of(p, c->choice));
    if (c->is_constraint_met)
        response_set_is_constraint_met(r->response, choice_of(p, c->choice));
    response_choice_end(
        r->response, choice_of(p, c->choice), c->finish, c->stop_string, c->stop_id);
    inflight_flush(r);
    check_response(r);
}

/* Merges the times of several prompts: from the earliest start to the latest end. */
static void merge_times(struct inflight *r, const struct gen_result *t)
{
    struct response_times *all = &r->times;

    all->queued_ns = r->began_ns;
    if (!all->started_ns || t->started_ns < all->started_ns)
        all->started_ns = t->started_ns;
    if (!all->first_token_ns || (t->first_token_ns && t->first_token_ns < all->first_token_ns))
        all->first_token_ns = t->first_token_ns;
    all->ended_ns = MAX(all->ended_ns, t->ended_ns);
    all->n_drafted += t->n_drafted;
    all->n_drafts_accepted += t->n_accepted;
}

static void put_in_cache(struct inflight *r, const struct session_end *s)
{
    enum finish how = r->response_cache_end.finish;

    if (!r->cache_key.n || r->cached_response || s->err->code || r->err.code)
        return;
    if (how == FINISH_STOP || how == FINISH_LENGTH)
        response_cache_put(r->io->o->response_cache, r->cache_key, &r->cache_record,
            &r->response_cache_end, clock_ns());
}

/* A constraint that is not met is an error of the request if it is one of all its choices. */
static bool has_failed(const struct inflight *r, const struct err *e)
{
    bool is_partial = e->code == ERR_CONSTRAINT && r->n_unmet < request_n_choices(&r->request);

    return e->code && e->code != ERR_CANCELLED && !is_partial;
}

static void on_end(void *ctx, const struct session_end *s)
{
    struct inflight_prompt *p = ctx;
    struct inflight *r = p->inflight;
    const struct gen_result *t = s->result;
    struct metrics *m = &r->io->metrics;

    bool is_cancelled = s->err->code == ERR_CANCELLED || r->err.code == ERR_CANCELLED;
    count_constraint_ends(
        p, is_cancelled ? ENDED_CANCELLED : ENDED_ERROR, r->request.best_of - p->n_ends_counted);
    p->session = NULL;
    choice_constraints_free(p->constraints);
    p->constraints = NULL;
    if (p->index == 0 && r->response) /* the request may have waited for a slot */
        response_set_slot(r->response, slot_id(&p->slot));
    slot_end(&p->slot);
    put_in_cache(r, s);
    r->n_cached += t->n_cached;
    r->is_computed |= t->started_ns != 0;
    merge_times(r, t);
    r->n_accepted += s->n_predicted;
    metric_add(m, METRIC_tool_calls_total, s->n_calls);
    metric_add(m, METRIC_tool_call_parse_errors_total, s->n_broken_calls);
    if (t->started_ns > t->submitted_ns)
        metric_observe_ns(m, METRIC_queue_seconds, t->started_ns - t->submitted_ns);
    if (has_failed(r, s->err) && !r->err.code) {
        r->n_refs++;
        inflight_fail(r, s->err);
        inflight_release(r);
    }
    inflight_release(r);
}

/* A session has used a group of the tokens that were reserved for it. */
static void on_paced(void *ctx)
{
    struct inflight_prompt *p = ctx;

    if (inflight_is_open(p->inflight))
        rate_limit_pace(p->inflight);
}

const struct session_ops inflight_events_ops = { .begun = on_begun,
    .paced = on_paced,
    .prompt_token = on_prompt_token,
    .token = on_token,
    .after_output = after_output,
    .choice_end = on_choice_end,
    .end = on_end };
