/* step.c: one step of the engine: plan, page copies, forward pass, sampling, events, measurements.
 *
 * Owner: the engine thread. */
#include "engine/constrained.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>

/* ---- output of a sequence */

/* Posts the event of the last output token; the caller fills in the returned token. */
static struct sampled *send_token(struct core *c, struct gen_choice *ch, bool is_group_end)
{
    struct gen_event *ev = choice_take_event(ch);

    ev->index = ch->n_out - 1;
    ev->is_group_end = is_group_end;
    ev->is_predicted = ch->was_predicted;
    core_post(c, ch, ev, GEN_TOKEN);
    c->n_output_tokens[ch->gen->priority_slot]++;
    return &ev->token;
}

static void append_token(struct gen_choice *ch, struct seq *s, int32_t token, uint64_t now)
{
    struct gen *g = ch->gen;

    ch->tokens[g->in.n_prompt + ch->n_out++] = token;
    seq_push(s, 1);
    ch->was_predicted = g->in.n_predicted > 0 &&
                        draft_seq_append(&ch->draft, ch->tokens, g->in.n_prompt + ch->n_out);
    if (!g->has_token) {
        g->has_token = true;
        g->result.first_token_ns = now;
    }
}

static bool is_stop(const struct gen *g, int32_t token)
{
    for (int i = 0; i < g->in.n_stop_ids; i++)
        if (g->in.stop_ids[i] == token)
            return true;
    return false;
}

/* Updates the event credits; without credits the sequence is parked. */
static void update_credits(struct core *c, struct gen_choice *ch, struct seq *s, uint64_t now)
{
    if (ch->seq.i == NO_SEQ)
        return;
    s->credits = ch->credits;
    if (ch->credits == 0)
        sched_park(c->sched, ch->seq, now);
}

/* Copies a token with the alternatives that it has. */
static void copy_sampled(struct sampled *to, const struct sampled *from)
{
    memcpy(to, from, offsetof(struct sampled, top) + (size_t)from->n_top * sizeof(from->top[0]));
}

/* Ends a choice whose model computed no distribution, for example because its weights are NaN. The
 * log has one line for each model. */
static void end_invalid(struct core *c, struct gen_choice *ch, uint64_t now)
{
    struct err *e = &ch->gen->result.err;

    if (lm_is_file_lost(c->lm))
        err_set(e, ERR_CORRUPT, "The file of the model's weights was truncated or is unreadable.");
    else
        err_set(e, ERR_CORRUPT, "The model computed no valid logits; its weights may be damaged.");
    if (!c->has_invalid_logits)
        log_error("engine", "invalid_logits", "error=\"%s\"", e->msg);
    c->has_invalid_logits = true;
    core_end_choice(c, ch, FINISH_ERROR, -1, now);
}

/* Nothing may follow under the constraint. */
static void end_complete(struct core *c, struct gen_choice *ch, uint64_t now)
{
    c->queue->stats.constraints.completed++;
    core_end_choice(c, ch, FINISH_STOP, -1, now);
}

/* The constraint does not take a token that its mask permits: an end token that is no stop token of
 * the request. */
static void end_at_end_token(struct core *c, struct gen_choice *ch, int32_t id, uint64_t now)
{
    if (constrained_accepts(ch))
        core_end_choice(c, ch, FINISH_STOP, id, now);
    else
        constrained_end_unmet(c, ch, now);
}

/* Appends and sends the i-th token of the sampling job, or ends the choice. */
static void emit_sampled(
    struct core *c, const struct sample_job *job, int i, struct seq *s, uint64_t now)
{
    struct gen_choice *ch = job->ch;
    struct gen *g = ch->gen;
    const struct sample_constraint *k = choice_constraint(ch);
    struct sampled scratch;

    if (g->max_out == 0) {
        core_end_choice(c, ch, FINISH_LENGTH, -1, now);
        return;
    }
    if (ch->n_out == 0 && constrained_is_complete(ch)) {
        end_complete(c, ch, now);
        return;
    }
    const struct sampled *token = sample_batch_token(&c->samples, job, i, &scratch);
    if (token->is_invalid || lm_is_file_lost(c->lm)) {
        end_invalid(c, ch, now);
        return;
    }
    if (token->is_unmet) {
        constrained_end_unmet(c, ch, now);
        return;
    }
    if (is_stop(g, token->id)) {
        core_end_choice(c, ch, FINISH_STOP, token->id, now);
        return;
    }
    if (k && !k->ops->push(k->self, token->id)) {
        end_at_end_token(c, ch, token->id, now);
        return;
    }
    append_token(ch, s, token->id, now);
    copy_sampled(send_token(c, ch, false), token);
    if (constrained_is_complete(ch))
        end_complete(c, ch, now);
    else if (ch->n_out == g->max_out)
        core_end_choice(c, ch, FINISH_LENGTH, -1, now);
    else
        constrained_begin(c, ch);
}

static void count_draft(struct core *c, struct gen_choice *ch, int n, int n_accepted)
{
    struct draft_counts *all = &c->queue->stats.drafts_by_source[draft_kind_of(ch->draft_source)];
    struct gen_result *own = &ch->gen->result;

    all->drafts++;
    all->drafted_tokens += (uint64_t)n;
    all->accepted_tokens += (uint64_t)n_accepted;
    own->n_drafts++;
    own->n_drafted += n;
    own->n_accepted += n_accepted;
    c->n_step_accepted += n_accepted;
}

/* Verification of draft tokens. The sampler takes each token from the logits before it, as it does
 * without drafts. A draft token is accepted if it is equal: the row after it is already
 * computed. */
static void verify_drafts(
    struct core *c, const struct sample_job *job, const struct plan_run *p, uint64_t now)
{
    struct gen_choice *ch = job->ch;
    int32_t *next = ch->tokens + ch->gen->in.n_prompt + ch->n_out;
    int n_accepted = 0;

    for (;; n_accepted++) {
        int32_t draft = n_accepted < p->n_drafts ? next[n_accepted] : -1;
        emit_sampled(c, job, n_accepted, p->s, now);
        if (ch->is_ended || draft < 0 || next[n_accepted] != draft)
            break;
        sched_accept(c->sched, ch->seq);
    }
    spec_add_result(c->spec, ch, p->n_drafts, n_accepted);
    count_draft(c, ch, p->n_drafts, n_accepted);
    if (ch->seq.i != NO_SEQ)
        sched_trim(c->sched, ch->seq);
}

/* A script token is certain: log-probability 0. */
static void set_script_token(const struct gen *g, int32_t id, struct sampled *out)
{
    out->id = id;
    out->logprob = 0.0f;
    out->n_top = g->in.sample.want_logprobs && g->in.sample.n_top > 0;
    if (out->n_top)
        out->top[0] = (struct token_logprob){ id, 0.0f };
}

/* Sends the current group as far as credits allow; the rest follows in a later step. */
static void emit_script(struct core *c, struct gen_choice *ch, struct seq *seq, uint64_t now)
{
    struct gen *g = ch->gen;
    const struct gen_script *s = g->in.script;
    int end = choice_group_end(ch);

    if (s->delay_ms && !ch->has_waited && ch->n_script < s->n_tokens && g->max_out > 0) {
        ch->has_waited = true;
        sched_delay(c->sched, ch->seq, now, now + s->delay_ms * NS_PER_MS);
        return;
    }
    while (ch->n_script < end && ch->n_out < g->max_out && ch->credits > 0) {
        int32_t id = s->tokens[ch->n_script];
        if (is_stop(g, id)) {
            core_end_choice(c, ch, FINISH_STOP, id, now);
            return;
        }
        ch->n_script++;
        append_token(ch, seq, id, now);
        set_script_token(g, id, send_token(c, ch, ch->n_script == end || ch->n_out == g->max_out));
    }
    if (ch->n_script == end)
        ch->has_waited = false;
    if (ch->n_script == s->n_tokens)
        core_end_choice(c, ch, FINISH_STOP, -1, now);
    else if (ch->n_out == g->max_out)
        core_end_choice(c, ch, FINISH_LENGTH, -1, now);
}

static void advance_choice(
    struct core *c, const struct sample_job *job, struct seq *s, uint64_t now)
{
    struct gen_choice *ch = job->ch;

    if (!ch->is_ended && ch->gen->in.script)
        emit_script(c, ch, s, now);
    else if (!ch->is_ended)
        emit_sampled(c, job, 0, s, now);
    update_credits(c, ch, s, now);
}

/* The prompt is computed: the choices become independent, and all take their first token from these
 * logits. */
static void fork_choices(struct core *c, const struct sample_job *job, uint64_t now)
{
    struct gen *g = job->ch->gen;
    struct gen_choice *leader = &g->choice[0];
    int n = g->in.n_choices;

    g->is_forked = true;
    g->result.n_cached = sched_seq(c->sched, leader->seq)->n_cached;
    c->queue->stats.prompt_tokens += (uint64_t)g->in.n_prompt;
    c->queue->n_prompt_tokens -= g->in.n_prompt;
    c->n_prompt_done += g->in.n_prompt;
    for (int i = 1; i < n; i++)
        if (!g->choice[i].is_ended)
            sched_fork(c->sched, leader->seq, g->choice[i].seq, now);
    if (leader->is_ended) { /* was kept to compute the prompt */
        sched_end(c->sched, leader->seq);
        leader->seq = SEQ_NONE;
    }
    for (int i = 0; i < n; i++) {
        struct gen_choice *ch = &g->choice[i];
        struct sample_job other = { .ch = ch, .run = job->run, .first = job->first };
        if (ch->seq.i != NO_SEQ)
            advance_choice(c, ch == job->ch ? job : &other, sched_seq(c->sched, ch->seq), now);
    }
}

/* Sends the prompt logprobs: row `pos` contains the probability of the next prompt token. An ended
 * choice gets no events. */
static void score_prompt(
    struct core *c, const struct plan_run *p, const struct sample_job *job, struct seq *s)
{
    struct gen_choice *ch = job->ch;
    const struct lm_run *r = job->run;
    int n_rows = job->first + !p->yields_token;
    struct sampled scratch;

    CHECK(n_rows == 0 || r->pos + r->n - r->n_logits == s->score_from);
    for (int i = 0; i < job->n_scores; i++) {
        const struct sampled *token = sample_batch_score(&c->samples, job, i, &scratch);
        struct gen_event *ev = choice_take_event(ch);
        copy_sampled(&ev->token, token);
        ev->index = s->score_from + i + 1;
        ev->is_group_end = ev->is_predicted = false;
        core_post(c, ch, ev, GEN_PROMPT_TOKEN);
    }
    s->score_from += n_rows;
}

static struct sample_job sample_job_of(const struct core *c, int run)
{
    const struct plan_run *p = &c->plan.runs[run];
    const struct lm_run *r = &c->runs[run];
    struct gen_choice *ch = p->s->user;
    const struct gen *g = ch->gen;
    bool wants_output = !ch->is_ended && !g->in.script;
    bool takes_token = wants_output && p->yields_token && g->max_out > 0;
    int first = r->n_logits - 1 - p->n_drafts;

    return (struct sample_job){ .ch = ch,
        .run = r,
        .n_scores = wants_output ? first + !p->yields_token : 0,
        .first = first,
        .n_draft_tokens = takes_token ? p->n_drafts : -1 };
}

static void finish_run(
    struct core *c, const struct plan_run *p, const struct sample_job *job, uint64_t now)
{
    struct gen_choice *ch = job->ch;
    struct gen *g = ch->gen;

    if (!g->in.script)
        score_prompt(c, p, job, sched_seq(c->sched, ch->seq));
    if (!p->yields_token)
        update_credits(c, ch, p->s, now);
    else if (!g->is_forked)
        fork_choices(c, job, now);
    else if (p->n_drafts) {
        verify_drafts(c, job, p, now);
        update_credits(c, ch, p->s, now);
    } else
        advance_choice(c, job, p->s, now);
}

/* ---- the step */

/* With several sampling threads all tokens of the step are sampled first; the events are posted in
 * the order of the runs. */
static void finish_runs(struct core *c, uint64_t now)
{
    const struct step_plan *p = &c->plan;
    bool is_parallel = c->samples.n_samplers > 1 && (p->n_runs > 1 || c->runs[0].n_logits > 1);

    for (int i = 0; is_parallel && i < p->n_runs; i++)
        c->job[i] = sample_job_of(c, i);
    if (is_parallel)
        sample_batch_run(&c->samples, c->job, p->n_runs);
    for (int i = 0; i < p->n_runs; i++) {
        const struct sample_job job = is_parallel ? c->job[i] : sample_job_of(c, i);
        finish_run(c, &p->runs[i], &job, now);
    }
}

static void record_start(struct core *c, struct gen_choice *ch, uint64_t now)
{
    struct gen *g = ch->gen;

    if (g->has_started)
        return;
    g->has_started = true;
    g->result.started_ns = now;
    c->n_queued--;
    if (!g->in.want_begin)
        return;
    g->begun = (struct gen_event){ .gen = g, .choice = ch->index };
    core_post(c, ch, &g->begun, GEN_BEGUN);
}

static void prepare_runs(struct core *c, uint64_t now)
{
    const struct step_plan *p = &c->plan;

    for (int i = 0; i < p->n_copies; i++)
        c->lm->ops->copy_page(c->lm, p->copies[i].from, p->copies[i].to);
    for (int i = 0; i < p->n_window_copies; i++)
        lm_copy_window_page(c->lm, p->window_copies[i].from, p->window_copies[i].to);
    for (int i = 0; i < p->n_clears; i++)
        c->lm->ops->clear_page(c->lm, p->clears[i]);
    for (int i = 0; i < p->n_window_clears; i++)
        lm_clear_window_page(c->lm, p->window_clears[i]);
    for (int i = 0; i < p->n_runs; i++) {
        const struct plan_run *r = &p->runs[i];
        if (r->is_first)
            record_start(c, r->s->user, now);
        c->runs[i] = (struct lm_run){
            .tokens = r->s->tokens + r->pos,
            .n = r->n,
            .pos = r->pos,
            .pages = r->s->pages,
            .window_pages = c->windows ? r->s->windows : NULL,
            .n_logits = r->n_logits,
            .panels = constrained_panels(c, i),
            .from_layer = r->from_layer,
            .end_layer = r->end_layer,
            .state = r->pos > 0 ? r->s->slot : STATE_NONE,
            .state_out = r->s->slot_out.i == STATE_NONE.i ? r->s->slot : r->s->slot_out,
        };
    }
}

static void update_prefix_stats(struct engine_stats *st, const struct tree_stats *t)
{
    st->prefix.matches = t->n_matches;
    st->prefix.hits = t->n_hits;
    st->prefix.partial_hits = t->n_partial;
    st->prefix.matched_tokens = t->n_matched_tokens;
    st->prefix.asked_tokens = t->n_asked_tokens;
    st->prefix.inserted = t->n_inserted;
    st->prefix.evicted = t->n_evicted;
    st->prefix.evicted_for_quota = t->n_evicted_for_quota;
    st->prefix.checkpoints = t->n_checkpoints_made;
    st->prefix.checkpoints_evicted = t->n_checkpoints_evicted;
    st->prefix.windows_evicted = t->n_windows_evicted;
}

static void update_disk_stats(struct engine_stats *st, const struct tier_stats *t)
{
    st->prefix.disk_written = t->n_written;
    st->prefix.disk_lost = t->n_lost;
    st->prefix.disk_pages_read = t->n_read;
    st->prefix.disk_failed = t->n_failed;
    st->prefix.disk_checkpoints_written = t->n_checkpoints_written;
    st->prefix.disk_checkpoints_read = t->n_checkpoints_read;
    st->prefix.disk_bytes = t->n_bytes;
}

static void update_token_stats(struct core *c, struct engine_stats *st)
{
    uint64_t n_all = 0;

    for (int i = 0; i <= ENGINE_PRIORITIES; i++) {
        if (!c->n_output_tokens[i])
            continue;
        n_all += c->n_output_tokens[i];
        *(i < ENGINE_PRIORITIES ? &st->by_priority[i].tokens : &st->other_priorities) +=
            c->n_output_tokens[i];
        c->n_output_tokens[i] = 0;
    }
    if (n_all)
        st->generated_tokens += n_all;
}

static void update_stats(struct core *c)
{
    struct engine_stats *st = &c->queue->stats;
    struct sched_counts n;

    update_token_stats(c, st);
    sched_counts(c->sched, &n);
    st->running = n.running + n.delayed;
    st->queued = c->n_queued;
    st->preemptions = n.preemptions;
    st->pages_cached = page_n_idle(c->pool);
    st->pages_used = page_n_total(c->pool) - page_n_free(c->pool) - page_n_idle(c->pool);
    if (c->windows) {
        st->windows_cached = page_n_idle(c->windows);
        st->windows_used =
            page_n_total(c->windows) - page_n_free(c->windows) - page_n_idle(c->windows);
    }
    if (c->states) {
        st->states_cached = page_n_idle(c->states);
        st->states_used = page_n_total(c->states) - page_n_free(c->states) - page_n_idle(c->states);
    }
    if (c->tree)
        update_prefix_stats(st, tree_stats(c->tree));
    if (c->tier)
        update_disk_stats(st, tier_stats_get(c->tier));
    st->fairness_preempted = n.fairness_preempted;
    st->fairness_yielded = n.fairness_yielded;
    st->fairness_resumed = n.fairness_resumed;
    st->fairness_waiting = n.fairness_waiting;
}

static bool run_step(struct core *c, uint64_t now)
{
    const struct step_plan *p = &c->plan;
    struct engine_stats *st = &c->queue->stats;

    bool has_masks = constrained_compute(c);
    sched_plan(c->sched, now, &c->plan);
    spec_plan(c->spec, c->sched, &c->plan, &c->stop);
    constrained_cut_drafts(c);
    if (p->n_runs == 0 && p->n_copies + p->n_window_copies == 0)
        return has_masks;
    prepare_runs(c, now);
    if (p->n_runs == 0)
        return true;
    uint64_t start = c->clock();
    bool is_done = c->lm->ops->forward(c->lm, c->runs, p->n_runs, &c->stop);
    uint64_t end = c->clock();
    st->steps++;
    *(p->has_prefill ? &st->prefill_ns : &st->decode_ns) += end - start;
    if (!is_done) {
        for (int i = 0; i < p->n_runs; i++)
            if (p->runs[i].n_drafts)
                sched_trim(c->sched, p->runs[i].seq);
        return true; /* the rows will be planned again */
    }
    c->n_computed++;
    sched_commit(c->sched, p);
    c->n_step_accepted = 0;
    finish_runs(c, end);
    c->forward_ns = end - start;
    c->tokens_ns = c->clock() - end;
    spec_add_step(c->spec, p, c->forward_ns + (uint64_t)c->rest_ns, c->n_step_accepted);
    return true;
}

/* Adds the step to the step-time model. A partial run alone takes its fraction of the time of all
 * layers, including the part that does not depend on rows. Partial runs next to other prefill runs
 * are not measured, since the fraction of the whole step is unknown. */
static void measure_size(struct core *c, int kind, uint64_t took_ns)
{
    const struct step_plan *p = &c->plan;
    double fraction = p->has_decode ? 1 : p->partial_fraction;
    struct step_size whole = { p->size.rows / fraction, p->size.keys / fraction };

    if (fraction == 1 || p->n_runs == 1)
        step_time_add(&c->step_model, &whole, kind, (uint64_t)((double)took_ns / fraction));
}

/* The measured time includes sampling and messages: it is the inter-token latency of a stream. */
static void measure_step(struct core *c, uint64_t took_ns)
{
    const struct step_plan *p = &c->plan;
    struct engine_stats *st = &c->queue->stats;
    int kind = !p->has_prefill ? 0 : !p->has_decode ? 1 : 2;

    histogram_add(p->has_prefill ? &st->step_prefill : &st->step_decode, SECONDS, took_ns);
    histogram_add(&st->batch_size, SIZES, (uint64_t)p->n_runs);
    histogram_add(&st->batch_tokens, SIZES, (uint64_t)p->n_rows);
    if (p->n_prefill_runs)
        histogram_add(&st->batch_prefill, SIZES, (uint64_t)p->n_prefill_runs);
    if (p->n_runs > p->n_prefill_runs)
        histogram_add(&st->batch_decode, SIZES, (uint64_t)(p->n_runs - p->n_prefill_runs));
    measure_size(c, kind, took_ns);
    sched_set_step_time(c->sched, &c->step_model.step_time);
    st->step_fixed_ns = (uint64_t)c->step_model.step_time.fixed;
    st->step_row_ns = (uint64_t)c->step_model.step_time.per_row;
    st->step_key_ps = (uint64_t)(c->step_model.step_time.per_key * 1000);
}

/* Step time in addition to forward pass and sampling: planning and messages. Measured in decode
 * steps without drafts, since the time of a drafter does not belong to it. */
static void measure_rest(struct core *c, uint64_t took_ns)
{
    uint64_t measured_ns = c->forward_ns + c->tokens_ns;

    if (c->plan.has_prefill || c->plan.n_rows != c->plan.n_runs || took_ns < measured_ns)
        return;
    /* More than that: the thread was delayed. */
    double rest_ns = (double)MIN(took_ns - measured_ns, c->forward_ns);
    c->rest_ns += (rest_ns - c->rest_ns) / 16;
}

/* Logs the admission changes after the step, because a step makes no system call. Requests that
 * ended in the step exist until the next core_drain. */
static void log_swaps(struct core *c)
{
    for (int i = 0; i < c->plan.n_swaps && log_level() >= LOG_DEBUG; i++) {
        const struct plan_swap *t = &c->plan.swaps[i];
        const struct gen_choice *ch = t->user;
        char name[24];
        snprintf(name, sizeof(name), "%llu", (unsigned long long)ch->gen->id);
        log_debug("engine", "admission_change",
            "req=%s choice=%d action=%s priority=%d tokens=%d us=%llu",
            ch->gen->in.name ? ch->gen->in.name : name, ch->index,
            t->is_resumed     ? "resume"
            : t->is_preempted ? "preempt"
                              : "yield",
            ch->gen->in.priority, ch->n_out, (unsigned long long)(t->took_ns / 1000));
    }
}

bool core_step(struct core *c, uint64_t now)
{
    noalloc_begin("step");
    uint64_t start = c->clock();
    uint64_t steps_before = c->n_computed;
    bool have_waited = c->queue->n_requests > c->queue->max_batch;
    c->n_prompt_done = 0;
    bool has_run = run_step(c, now);
    update_stats(c);
    uint64_t took = c->clock() - start;
    if (c->n_computed > steps_before) {
        measure_step(c, took);
        measure_rest(c, took);
    }
    throughput_add_step(&c->throughput, took, c->n_prompt_done, have_waited);
    throughput_publish(&c->throughput, &c->queue->wait_estimate);
    noalloc_end();
    outbox_flush(&c->out); /* may wake io threads, which is a system call */
    if (c->tier)
        tier_send(c->tier);
    log_swaps(c);
    return has_run;
}
