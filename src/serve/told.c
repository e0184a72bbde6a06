/* inflight_events.c: callbacks of a session: forward output events to the response, update metrics
 * and measure times. Owner: the io thread. */
#include "serve/request.h"

#include "os/clock.h"
#include "serve/responses/background.h"
#include "generate/expect.h"

/* ---- echo: the prompt in front of a completion */

static bool is_echoed_by_token(const struct request *r)
{
    return r->ask.echo && r->ask.want_logprobs && r->ask.stream;
}

/* Echoes the part of the prompt text that this token stands for. The client's text is echoed
 * verbatim: a token that is not in it (BOS) yields no text. */
static void echo_token(struct leg *p, int32_t id, const struct sampled *t)
{
    struct request *r = p->request;
    bool is_text = p->echo_left.p != NULL;
    struct buf piece;

    answer_prompt_token(r->answer, p->index, id, t);
    if (!r->ask.stream)
        return;
    buf_init(&piece, MB);
    detok_put(&p->echo, r->model->vocab, id, is_text || !r->ask.skip_special_tokens, &piece);
    if (is_text && !str_starts(p->echo_left, buf_str(&piece)))
        buf_reset(&piece);
    if (is_text)
        p->echo_left = str_skip(p->echo_left, piece.n);
    answer_prompt_text(r->answer, p->index, buf_str(&piece));
    buf_clear(&piece);
}

/* Echoes the text that the tokens did not yield, after the last prompt token or before other
 * output. */
static void echo_rest(struct leg *p)
{
    struct request *r = p->request;
    struct buf piece;

    if (!p->is_echoing || !r->answer)
        return;
    p->is_echoing = false;
    if (p->echo_left.p) {
        answer_prompt_text(r->answer, p->index, p->echo_left);
        return;
    }
    buf_init(&piece, KB);
    detok_end(&p->echo, &piece);
    answer_prompt_text(r->answer, p->index, buf_str(&piece));
    buf_clear(&piece);
}

static void echo_tokens(struct request *r, const struct prompt *p, int index)
{
    struct detok d = { 0 };
    struct buf text;

    buf_init(&text, 64 * MB);
    for (int t = 0; t < p->n; t++)
        detok_put(&d, r->model->vocab, p->ids[t], !r->ask.skip_special_tokens, &text);
    detok_end(&d, &text);
    answer_prompt_text(r->answer, index, buf_str(&text));
    buf_clear(&text);
}

void told_echo(struct request *r)
{
    for (int i = 0; r->ask.echo && i < r->ask.n_prompts; i++) {
        const struct prompt *p = &r->prompts[i];
        struct leg *leg = &r->legs[i];
        leg->is_echoing = is_echoed_by_token(r);
        leg->echo_left = p->text;
        if (r->ask.want_logprobs)
            echo_token(leg, p->ids[0], NULL);
        if (!leg->is_echoing && p->text.p)
            answer_prompt_text(r->answer, i, p->text);
        else if (!leg->is_echoing)
            echo_tokens(r, p, i);
    }
}

/* ---- session callbacks */

static void on_begun(void *ctx)
{
    struct leg *p = ctx;

    background_runs(p->request);
}

static int choice_of(const struct leg *p, int choice)
{
    return p->index * p->request->ask.best_of + choice;
}

static void on_prompt_token(void *ctx, int position, const struct sampled *t)
{
    struct leg *p = ctx;
    struct request *r = p->request;

    if (!r->answer || !r->ask.echo)
        return;
    echo_token(p, t->id, t);
    if (position == r->prompts[p->index].n - 1)
        echo_rest(p);
    request_wrote(r);
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
    background_runs(r);
    echo_rest(p);
    if (choice == 0)
        slot_token(&p->slot, t->id);
    if (r->exact_key.n && !r->recalled)
        exact_record_token(&r->record, r->io->o->exact, t);
    if (r->answer)
        answer_token(r->answer, choice_of(p, choice), t);
}

static void check_response(struct request *r)
{
    struct err e;

    if (!r->answer || (answer_ok(r->answer) && background_fits(r)))
        return;
    err_set(&e, ERR_MEMORY,
        answer_ok(r->answer) ? "There is no room to keep all of this answer."
                             : "The answer has grown too large.");
    request_fail(r, &e);
}

/* The response that receives the events; NULL after it has ended. */
static struct answer *response_of(void *ctx)
{
    struct leg *p = ctx;

    return p->request->answer;
}

static void after_event(void *ctx)
{
    struct leg *p = ctx;

    request_wrote(p->request);
    check_response(p->request);
}

static void on_text(void *ctx, int choice, struct str text)
{
    if (!response_of(ctx))
        return;
    answer_text(response_of(ctx), choice_of(ctx, choice), text);
    after_event(ctx);
}

static void on_reasoning(void *ctx, int choice, struct str text)
{
    struct leg *p = ctx;

    if (!response_of(ctx) || p->request->ask.hides_thoughts)
        return;
    answer_reasoning(response_of(ctx), choice_of(ctx, choice), text);
    after_event(ctx);
}

static void on_call_begin(void *ctx, int choice, int call, struct str name)
{
    if (!response_of(ctx))
        return;
    answer_call_begin(response_of(ctx), choice_of(ctx, choice), call, name);
    after_event(ctx);
}

static void on_call_args(void *ctx, int choice, int call, struct str json)
{
    if (!response_of(ctx))
        return;
    answer_call_args(response_of(ctx), choice_of(ctx, choice), call, json);
    after_event(ctx);
}

static void count_metric(void *ctx, enum metric metric, int n)
{
    struct leg *p = ctx;

    metric_add(&p->request->io->metrics, metric, n);
}

static void on_call_end(void *ctx, int choice, int call)
{
    count_metric(ctx, METRIC_tool_calls_total, 1);
    if (!response_of(ctx))
        return;
    answer_call_end(response_of(ctx), choice_of(ctx, choice), call);
    after_event(ctx);
}

static void on_call_broken(void *ctx, int choice, int call)
{
    count_metric(ctx, METRIC_tool_calls_broken_total, 1);
    if (!response_of(ctx))
        return;
    answer_call_broken(response_of(ctx), choice_of(ctx, choice), call);
    after_event(ctx);
}

static void on_choice_end(void *ctx, const struct choice_end *c)
{
    struct leg *p = ctx;
    struct request *r = p->request;
    struct err e;

    r->n_completion += c->n_tokens;
    r->exact_end = (struct exact_end){ c->finish, c->stop_id };
    if (!r->answer || c->finish == FINISH_CANCELLED || c->finish == FINISH_ERROR)
        return;
    echo_rest(p);
    count_metric(p, METRIC_reasoning_tokens_total, c->n_reasoning);
    if (expect_met(&r->ask, c, &e)) {
        count_metric(p, METRIC_tool_choices_unmet_total, 1);
        request_fail(r, &e);
        return;
    }
    answer_reasoning_tokens(r->answer, choice_of(p, c->choice), c->n_reasoning);
    answer_choice_end(r->answer, choice_of(p, c->choice), c->finish, c->stop_string, c->stop_id);
    request_wrote(r);
}

/* Merges the times of several prompts: from the earliest start to the latest end. */
static void merge_times(struct request *r, const struct gen_result *t)
{
    struct answer_times *all = &r->times;

    all->asked_ns = r->began_ns;
    if (!all->started_ns || t->started_ns < all->started_ns)
        all->started_ns = t->started_ns;
    if (!all->first_token_ns || (t->first_token_ns && t->first_token_ns < all->first_token_ns))
        all->first_token_ns = t->first_token_ns;
    all->ended_ns = MAX(all->ended_ns, t->ended_ns);
    all->n_drafted += t->n_drafted;
    all->n_drafts_right += t->n_accepted;
}

static void put_in_cache(struct request *r, const struct session_end *s)
{
    enum finish how = r->exact_end.finish;

    if (!r->exact_key.n || r->recalled || s->err->code || r->err.code)
        return;
    if (how == FINISH_STOP || how == FINISH_LENGTH)
        exact_put(r->io->o->exact, r->exact_key, &r->record, &r->exact_end, clock_ns());
}

static void on_end(void *ctx, const struct session_end *s)
{
    struct leg *p = ctx;
    struct request *r = p->request;
    const struct gen_result *t = s->result;

    p->session = NULL;
    if (p->index == 0 && r->answer) /* the request may have waited for a slot */
        answer_slot(r->answer, slot_id(&p->slot));
    slot_end(&p->slot);
    put_in_cache(r, s);
    r->n_cached += t->n_cached;
    merge_times(r, t);
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

const struct session_ops told_ops = { on_prompt_token, on_token,
    { on_text, on_reasoning, on_call_begin, on_call_args, on_call_end, on_call_broken },
    on_choice_end, on_end, on_begun };
