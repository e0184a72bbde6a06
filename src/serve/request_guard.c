#include "serve/request_guard.h"

#include "base/log.h"
#include "serve/inflight.h"

void request_guard_init(struct inflight *r)
{
    r->guard.g = guardrails_ref(policy_snapshot_guardrails(r->io->policy));
}

bool request_guard_is_slow(const struct inflight *r)
{
    return guardrails_have_patterns(r->guard.g, UINT64_MAX);
}

static uint64_t select_sets(const struct inflight *r, enum guard_place place)
{
    return guardrails_select(r->guard.g, place, r->model->spec->id, r->caller.tenant);
}

/* ---- prompt */

/* Prompts of token ids are searched as text; a redaction cannot replace them. */
static int check_token_prompts(
    struct inflight *r, const struct prompt_guard *p, bool *is_blocked, struct err *e)
{
    int failed = 0;

    for (int i = 0; r->request.prompts && i < r->request.n_prompts && !failed; i++) {
        const struct request_prompt *prompt = &r->request.prompts[i];
        struct detok d = { 0 };
        struct buf text;
        buf_init(&text, 256 * MB);
        for (int k = 0; prompt->is_tokens && k < prompt->n_ids; k++)
            detok_put(&d, r->model->vocab, prompt->ids[k], true, &text);
        for (int k = 0; k < prompt->n_pieces; k++)
            if (prompt->pieces[k].is_token)
                detok_put(&d, r->model->vocab, prompt->pieces[k].id, true, &text);
            else
                buf_puts(&text, prompt->pieces[k].text);
        detok_end(&d, &text);
        failed = buf_ok(&text) ? prompt_guard_text(p, buf_str(&text), is_blocked, e)
                               : err_set(e, ERR_MEMORY, "no memory for the guardrails");
        buf_clear(&text);
    }
    return failed;
}

int request_guard_prompt(struct inflight *r, struct err *e)
{
    struct prompt_guard p = { r->guard.g, select_sets(r, GUARD_PROMPT), &r->guard.record,
        r->async.scratch, &r->async.job.is_stopped };

    if (!p.sets)
        return 0;
    /* The pieces are redacted first, so that only what spans several of them is left. */
    if (prompt_guard_request(&p, &r->request, &r->guard.is_refused, e) ||
        check_token_prompts(r, &p, &r->guard.is_refused, e))
        return -1;
    return 0;
}

int request_guard_refusal(const struct inflight *r, struct err *e)
{
    return err_set(e, ERR_CONTENT, "The guardrails of this server do not permit this request.");
}

/* ---- output */

static void on_token(void *ctx, int choice, const struct sampled *t, bool is_hidden)
{
    if (is_hidden)
        response_count_token(ctx, choice, t);
    else
        response_add_token(ctx, choice, t);
}

int request_guard_open(struct inflight *r, struct err *e)
{
    const struct request *request = &r->request;
    struct output_guard_setup s = { .g = r->guard.g,
        .sets = select_sets(r, GUARD_OUTPUT),
        .n_choices = request_n_choices(request),
        .record = &r->guard.record,
        .next = &response_output_ops,
        .next_ctx = r->response,
        .want_tokens = request->want_logprobs || request->want_token_ids,
        .on_token = on_token };

    if (!s.sets)
        return 0;
    if (s.want_tokens) {
        r->guard.tokens =
            arena_zalloc(r->async.arena, (size_t)s.n_choices, sizeof(*r->guard.tokens));
        if (!r->guard.tokens)
            return err_set(e, ERR_MEMORY, "no memory for the guardrails");
    }
    return output_guard_new(&r->guard.output, &s, e);
}

const struct output_ops *request_guard_ops(const struct inflight *r)
{
    return r->guard.output ? &output_guard_ops : &response_output_ops;
}

void *request_guard_ctx(const struct inflight *r)
{
    return r->guard.output ? (void *)r->guard.output : (void *)r->response;
}

void request_guard_token(struct inflight *r, int choice, const struct sampled *t)
{
    struct buf text;

    if (!r->response)
        return;
    if (!r->guard.tokens) {
        response_add_token(r->response, choice, t);
        return;
    }
    buf_init(&text, MB);
    detok_put(&r->guard.tokens[choice], r->model->vocab, t->id, true, &text);
    output_guard_token(r->guard.output, choice, t, buf_str(&text));
    buf_clear(&text);
}

void request_guard_end_blocked(struct inflight_prompt *p)
{
    struct inflight *r = p->inflight;
    int choice;

    while (
        r->guard.output && p->session && (choice = output_guard_take_blocked(r->guard.output)) >= 0)
        session_end_choice(p->session, choice - p->index * r->request.best_of, FINISH_FILTERED);
}

void request_guard_choice_end(struct inflight *r, int choice, struct choice_end *end)
{
    if (!r->guard.output)
        return;
    if (output_guard_end(r->guard.output, choice)) {
        end->finish = FINISH_FILTERED;
        end->stop_string = STR_NONE;
        end->stop_id = -1;
        end->is_constraint_met = false;
    }
    end->is_constraint_met &= !output_guard_is_redacted(r->guard.output, choice);
}

bool request_guard_failed(const struct inflight *r)
{
    return r->guard.output && output_guard_failed(r->guard.output);
}

/* ---- record */

struct str request_guard_hits(const struct inflight *r)
{
    struct str hits = STR("");
    struct buf text;

    if (!r->guard.record.n)
        return hits;
    buf_init(&text, 8 * KB);
    guard_record_write(&r->guard.record, r->guard.g, &text);
    if (buf_ok(&text))
        hits = arena_str(r->async.arena, buf_str(&text));
    buf_clear(&text);
    return hits.p ? hits : STR("");
}

static void count(struct inflight *r)
{
    const struct guard_record *record = &r->guard.record;

    for (int place = 0; place < N_GUARD_PLACES; place++)
        for (int action = 0; action < N_GUARD_ACTIONS; action++)
            guard_counts_add(&r->io->guard_counts, (enum guard_place)place,
                (enum guard_action)action, record->n_hits[place][action]);
    metric_add(&r->io->metrics, METRIC_guardrail_blocked_requests_total, record->is_blocked);
}

static void write_log(const struct inflight *r)
{
    struct str hits = request_guard_hits(r);

    hits.n = MIN(hits.n, (size_t)512); /* a log line has at most 1 kB */
    log_info("serve", "guardrails", "req=%s hits=\"%.*s\"", r->request_id, STR_ARG(hits));
}

void request_guard_close(struct inflight *r)
{
    count(r);
    if (r->guard.record.n)
        write_log(r);
    output_guard_free(r->guard.output);
    guardrails_unref(r->guard.g);
}
