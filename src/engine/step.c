/* step.c: one step of the engine, from the plan to the events. */
#include "engine/core.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>

/* ---- what comes out of a sequence */

/* The event that a token of the choice leaves with; its token is the caller's to fill in. */
static struct sampled *send_token(struct core *c, struct choice *ch, bool is_group_end)
{
    struct gen_event *ev = choice_take_event(ch);

    ev->index = ch->n_out - 1;
    ev->is_group_end = is_group_end;
    ev->is_predicted = ch->was_predicted;
    core_post(c, ch, ev, GEN_TOKEN);
    c->n_sent[ch->gen->counted_as]++;
    return &ev->token;
}

static void append(struct choice *ch, struct seq *s, int32_t token, uint64_t now)
{
    struct gen *g = ch->gen;

    ch->tokens[g->in.n_prompt + ch->n_out++] = token;
    seq_push(s, 1);
    ch->was_predicted =
        g->in.n_predicted > 0 && draft_seq_came(&ch->draft, ch->tokens, g->in.n_prompt + ch->n_out);
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

/* The events that are left are the ones it may still send; none: it takes no part. */
static void settle(struct core *c, struct choice *ch, struct seq *s, uint64_t now)
{
    if (ch->seq.i == NO_SEQ)
        return;
    s->credits = ch->credits;
    if (ch->credits == 0)
        sched_park(c->sched, ch->seq, now);
}

/* Alternatives that were not asked for are not there. */
static void copy_sampled(struct sampled *to, const struct sampled *from)
{
    memcpy(to, from, offsetof(struct sampled, top) + (size_t)from->n_top * sizeof(from->top[0]));
}

/* With the i-th token of the pick. */
static void continue_sampled(
    struct core *c, const struct pick *pick, int i, struct seq *s, uint64_t now)
{
    struct choice *ch = pick->ch;
    struct gen *g = ch->gen;
    struct sampled room;

    if (g->max_out == 0) {
        core_end_choice(c, ch, FINISH_LENGTH, -1, now);
        return;
    }
    const struct sampled *token = picks_get(&c->picks, pick, i, &room);
    if (is_stop(g, token->id)) {
        core_end_choice(c, ch, FINISH_STOP, token->id, now);
        return;
    }
    append(ch, s, token->id, now);
    copy_sampled(send_token(c, ch, false), token);
    if (ch->n_out == g->max_out)
        core_end_choice(c, ch, FINISH_LENGTH, -1, now);
}

static void count_draft(struct core *c, struct choice *ch, int n, int n_right)
{
    struct draft_counts *all = &c->port->stats.guesses[draft_kind_of(ch->draft_source)];
    struct gen_result *own = &ch->gen->result;

    all->drafts++;
    all->drafted_tokens += (uint64_t)n;
    all->accepted_tokens += (uint64_t)n_right;
    own->n_drafts++;
    own->n_drafted += n;
    own->n_accepted += n_right;
    c->n_right += n_right;
}

/* The rows behind the last token were guesses. The sampler takes each token from the logits before
 * it, as it does without them; the guess is right when it is the same, and then the row behind it
 * was computed already. */
static void continue_drafted(
    struct core *c, const struct pick *pick, const struct plan_run *p, uint64_t now)
{
    struct choice *ch = pick->ch;
    int32_t *next = ch->tokens + ch->gen->in.n_prompt + ch->n_out;
    int n_right = 0;

    for (;; n_right++) {
        int32_t guess = n_right < p->n_drafts ? next[n_right] : -1;
        continue_sampled(c, pick, n_right, p->s, now);
        if (ch->is_ended || guess < 0 || next[n_right] != guess)
            break;
        sched_accept(c->sched, ch->seq);
    }
    spec_judge(c->spec, ch, p->n_drafts, n_right);
    count_draft(c, ch, p->n_drafts, n_right);
    if (ch->seq.i != NO_SEQ)
        sched_trim(c->sched, ch->seq);
}

/* It is certain: its log-probability is 0. */
static void script_token(const struct gen *g, int32_t id, struct sampled *out)
{
    out->id = id;
    out->logprob = 0.0f;
    out->n_top = g->in.sample.want_logprobs && g->in.sample.n_top > 0;
    if (out->n_top)
        out->top[0] = (struct token_logprob){ id, 0.0f };
}

/* Sends the group that is due, as far as credits go; the rest of it follows when it runs again. */
static void continue_script(struct core *c, struct choice *ch, struct seq *seq, uint64_t now)
{
    struct gen *g = ch->gen;
    const struct gen_script *s = g->in.script;
    int end = choice_group_end(ch);

    if (s->delay_ms && !ch->has_waited && ch->n_script < s->n_tokens && g->max_out > 0) {
        ch->has_waited = true;
        sched_delay(c->sched, ch->seq, now, now + s->delay_ms * (uint64_t)1000000);
        return;
    }
    while (ch->n_script < end && ch->n_out < g->max_out && ch->credits > 0) {
        int32_t id = s->tokens[ch->n_script];
        if (is_stop(g, id)) {
            core_end_choice(c, ch, FINISH_STOP, id, now);
            return;
        }
        ch->n_script++;
        append(ch, seq, id, now);
        script_token(g, id, send_token(c, ch, ch->n_script == end || ch->n_out == g->max_out));
    }
    if (ch->n_script == end)
        ch->has_waited = false;
    if (ch->n_script == s->n_tokens)
        core_end_choice(c, ch, FINISH_STOP, -1, now);
    else if (ch->n_out == g->max_out)
        core_end_choice(c, ch, FINISH_LENGTH, -1, now);
}

static void continue_choice(struct core *c, const struct pick *pick, struct seq *s, uint64_t now)
{
    struct choice *ch = pick->ch;

    if (!ch->is_ended && ch->gen->in.script)
        continue_script(c, ch, s, now);
    else if (!ch->is_ended)
        continue_sampled(c, pick, 0, s, now);
    settle(c, ch, s, now);
}

/* The prompt is computed: from here on every choice is on its own, and all take their first
 * token from these logits. */
static void fork_choices(struct core *c, const struct pick *pick, uint64_t now)
{
    struct gen *g = pick->ch->gen;
    struct choice *leader = &g->choice[0];
    int n = g->in.n_choices;

    g->is_forked = true;
    g->result.n_cached = sched_seq(c->sched, leader->seq)->n_cached;
    c->port->stats.prompt_tokens += (uint64_t)g->in.n_prompt;
    c->port->n_prompt_tokens -= g->in.n_prompt;
    c->prompts_done += g->in.n_prompt;
    for (int i = 1; i < n; i++)
        if (!g->choice[i].is_ended)
            sched_fork(c->sched, leader->seq, g->choice[i].seq, now);
    if (leader->is_ended) { /* it lived on for the prompt */
        sched_end(c->sched, leader->seq);
        leader->seq = SEQ_NONE;
    }
    for (int i = 0; i < n; i++) {
        struct choice *ch = &g->choice[i];
        struct pick other = { .ch = ch, .run = pick->run, .first = pick->first };
        if (ch->seq.i != NO_SEQ)
            continue_choice(c, ch == pick->ch ? pick : &other, sched_seq(c->sched, ch->seq), now);
    }
}

/* Row `pos` says how likely the prompt's next token was; nobody asks it for one that has ended. */
static void score_prompt(
    struct core *c, const struct plan_run *p, const struct pick *pick, struct seq *s)
{
    struct choice *ch = pick->ch;
    const struct lm_run *r = pick->run;
    int n_rows = pick->first + !p->is_whole;
    struct sampled room;

    CHECK(n_rows == 0 || r->pos + r->n - r->n_logits == s->score_from);
    for (int i = 0; i < pick->n_scores; i++) {
        const struct sampled *token = picks_score(&c->picks, pick, i, &room);
        struct gen_event *ev = choice_take_event(ch);
        copy_sampled(&ev->token, token);
        ev->index = s->score_from + i + 1;
        ev->is_group_end = ev->is_predicted = false;
        core_post(c, ch, ev, GEN_PROMPT_TOKEN);
    }
    s->score_from += n_rows;
}

static struct pick pick_of(const struct core *c, int run)
{
    const struct plan_run *p = &c->plan.runs[run];
    const struct lm_run *r = &c->runs[run];
    struct choice *ch = p->s->user;
    const struct gen *g = ch->gen;
    bool is_asked = !ch->is_ended && !g->in.script;
    bool takes_some = is_asked && p->is_whole && g->max_out > 0;
    int first = r->n_logits - 1 - p->n_drafts;

    return (struct pick){ .ch = ch,
        .run = r,
        .n_scores = is_asked ? first + !p->is_whole : 0,
        .first = first,
        .n_guesses = takes_some ? p->n_drafts : -1 };
}

static void finish_run(
    struct core *c, const struct plan_run *p, const struct pick *pick, uint64_t now)
{
    struct choice *ch = pick->ch;
    struct gen *g = ch->gen;

    if (!g->in.script)
        score_prompt(c, p, pick, sched_seq(c->sched, ch->seq));
    if (!p->is_whole)
        settle(c, ch, p->s, now);
    else if (!g->is_forked)
        fork_choices(c, pick, now);
    else if (p->n_drafts) {
        continue_drafted(c, pick, p, now);
        settle(c, ch, p->s, now);
    } else
        continue_choice(c, pick, p->s, now);
}

/* ---- the step */

enum { AHEAD = 4 };

/* What belongs to a run some places further on: the processor fetches it meanwhile. */
static void fetch_ahead(struct core *c, int i)
{
    const struct plan *p = &c->plan;

    if (i + 2 * AHEAD < p->n_runs)
        __builtin_prefetch(p->runs[i + 2 * AHEAD].s->user);
    if (i + AHEAD >= p->n_runs)
        return;
    const struct choice *ch = p->runs[i + AHEAD].s->user;
    __builtin_prefetch(ch->home);
    __builtin_prefetch(ch->gen);
}

/* First all tokens are chosen, if there are threads for it, then they leave in the runs' order. */
static void finish_runs(struct core *c, uint64_t now)
{
    const struct plan *p = &c->plan;
    bool in_advance = c->picks.n_samplers > 1 && (p->n_runs > 1 || c->runs[0].n_logits > 1);

    for (int i = 0; in_advance && i < p->n_runs; i++) {
        fetch_ahead(c, i);
        c->pick[i] = pick_of(c, i);
    }
    if (in_advance)
        picks_choose(&c->picks, c->pick, p->n_runs);
    for (int i = 0; i < p->n_runs; i++) {
        fetch_ahead(c, i);
        const struct pick pick = in_advance ? c->pick[i] : pick_of(c, i);
        finish_run(c, &p->runs[i], &pick, now);
    }
}

static void note_begin(struct core *c, struct choice *ch, uint64_t now)
{
    struct gen *g = ch->gen;

    if (g->has_begun)
        return;
    g->has_begun = true;
    g->result.started_ns = now;
    c->n_queued--;
    if (!g->in.want_begin)
        return;
    g->begun = (struct gen_event){ .gen = g, .choice = ch->index };
    core_post(c, ch, &g->begun, GEN_BEGUN);
}

static void set_runs(struct core *c, uint64_t now)
{
    const struct plan *p = &c->plan;

    for (int i = 0; i < p->n_copies; i++)
        c->lm->ops->copy_page(c->lm, p->copies[i].from, p->copies[i].to);
    for (int i = 0; i < p->n_clears; i++)
        c->lm->ops->clear_page(c->lm, p->clears[i]);
    for (int i = 0; i < p->n_runs; i++) {
        const struct plan_run *r = &p->runs[i];
        if (r->is_first)
            note_begin(c, r->s->user, now);
        c->runs[i] = (struct lm_run){
            .tokens = r->s->tokens + r->pos,
            .n = r->n,
            .pos = r->pos,
            .pages = r->s->pages,
            .n_logits = r->n_logits,
            .from_layer = r->from_layer,
            .end_layer = r->end_layer,
        };
    }
}

static void count_prefix(struct engine_stats *st, const struct tree_stats *t)
{
    st->prefix.matches = t->n_matches;
    st->prefix.hits = t->n_hits;
    st->prefix.partial_hits = t->n_partial;
    st->prefix.matched_tokens = t->n_matched_tokens;
    st->prefix.asked_tokens = t->n_asked_tokens;
    st->prefix.kept = t->n_kept;
    st->prefix.evicted = t->n_evicted;
    st->prefix.evicted_for_quota = t->n_evicted_for_quota;
}

static void count_disk(struct engine_stats *st, const struct tier_stats *t)
{
    st->prefix.disk_written = t->n_written;
    st->prefix.disk_lost = t->n_lost;
    st->prefix.disk_fetched = t->n_fetched;
    st->prefix.disk_failed = t->n_failed;
    st->prefix.disk_bytes = t->n_bytes;
}

static void count_sent(struct core *c, struct engine_stats *st)
{
    uint64_t n_all = 0;

    for (int i = 0; i <= ENGINE_PRIORITIES; i++) {
        if (!c->n_sent[i])
            continue;
        n_all += c->n_sent[i];
        *(i < ENGINE_PRIORITIES ? &st->by_priority[i].tokens : &st->other_priorities) +=
            c->n_sent[i];
        c->n_sent[i] = 0;
    }
    if (n_all)
        st->generated_tokens += n_all;
}

static void count(struct core *c)
{
    struct engine_stats *st = &c->port->stats;
    struct sched_counts n;

    count_sent(c, st);
    sched_counts(c->sched, &n);
    st->running = n.running + n.delayed;
    st->queued = c->n_queued;
    st->preemptions = n.preemptions;
    st->pages_cached = page_n_idle(c->pool);
    st->pages_used = page_n_total(c->pool) - page_n_free(c->pool) - page_n_idle(c->pool);
    if (c->tree)
        count_prefix(st, tree_stats(c->tree));
    if (c->tier)
        count_disk(st, tier_numbers(c->tier));
    st->turns_preempted = n.turns_preempted;
    st->turns_yielded = n.turns_yielded;
    st->turns_resumed = n.turns_resumed;
    st->turns_waiting = n.turns_waiting;
}

static void drop_drafts(struct core *c)
{
    for (int i = 0; i < c->plan.n_runs; i++)
        if (c->plan.runs[i].n_drafts)
            sched_trim(c->sched, c->plan.runs[i].seq);
}

static bool run_step(struct core *c, uint64_t now)
{
    const struct plan *p = &c->plan;
    struct engine_stats *st = &c->port->stats;

    sched_plan(c->sched, now, &c->plan);
    spec_plan(c->spec, c->sched, &c->plan, &c->stop);
    if (p->n_runs == 0 && p->n_copies == 0)
        return false;
    set_runs(c, now);
    if (p->n_runs == 0)
        return true;
    uint64_t start = c->clock();
    bool is_done = c->lm->ops->forward(c->lm, c->runs, p->n_runs, &c->stop);
    uint64_t end = c->clock();
    st->steps++;
    *(p->has_prefill ? &st->prefill_ns : &st->decode_ns) += end - start;
    if (!is_done) {
        drop_drafts(c);
        return true; /* as if it had not been planned */
    }
    c->n_computed++;
    sched_commit(c->sched, p);
    c->n_right = 0;
    finish_runs(c, end);
    c->forward_ns = end - start;
    c->tokens_ns = c->clock() - end;
    spec_learn(c->spec, p, c->forward_ns + (uint64_t)c->rest_ns, c->n_right);
    return true;
}

/* Part of a run by itself takes that part of what all layers do, also of what does not depend on
 * rows. Beside others that are whole but do not decode it says nothing for sure. */
static void learn_size(struct core *c, int kind, uint64_t took_ns)
{
    const struct plan *p = &c->plan;
    double part = p->has_decode ? 1 : p->part;
    struct step_size whole = { p->size.rows / part, p->size.keys / part };

    if (part == 1 || p->n_runs == 1)
        cost_learn(&c->costs, &whole, kind, (uint64_t)((double)took_ns / part));
}

/* What the step took, sampling and messages included: that is the gap a stream sees. */
static void learn_cost(struct core *c, uint64_t took_ns)
{
    const struct plan *p = &c->plan;
    struct engine_stats *st = &c->port->stats;
    int kind = !p->has_prefill ? 0 : !p->has_decode ? 1 : 2;

    histogram_add(p->has_prefill ? &st->step_prefill : &st->step_decode, SECONDS, took_ns);
    histogram_add(&st->batch_size, SIZES, (uint64_t)p->n_runs);
    histogram_add(&st->batch_tokens, SIZES, (uint64_t)p->n_rows);
    if (p->n_filling)
        histogram_add(&st->batch_prefill, SIZES, (uint64_t)p->n_filling);
    if (p->n_runs > p->n_filling)
        histogram_add(&st->batch_decode, SIZES, (uint64_t)(p->n_runs - p->n_filling));
    learn_size(c, kind, took_ns);
    sched_set_cost(c->sched, &c->costs.cost);
    st->cost_fixed_ns = (uint64_t)c->costs.cost.fixed;
    st->cost_row_ns = (uint64_t)c->costs.cost.per_row;
    st->cost_key_ps = (uint64_t)(c->costs.cost.per_key * 1000);
}

/* What a step takes besides its forward pass and its tokens, which take their time in however many
 * steps they come: planning and messages. Told by plain steps; a drafter's time is not of it. */
static void learn_rest(struct core *c, uint64_t took_ns)
{
    uint64_t known = c->forward_ns + c->tokens_ns;

    if (c->plan.has_prefill || c->plan.n_rows != c->plan.n_runs || took_ns < known)
        return;
    double rest = (double)MIN(took_ns - known, c->forward_ns); /* else it was held up */
    c->rest_ns += (rest - c->rest_ns) / 16;
}

/* A span each: what gave its turn away ran so long, what goes on waited so long. After the step,
 * which makes no system call. Requests that ended in it are there until the next core_drain. */
static void log_turns(struct core *c)
{
    for (int i = 0; i < c->plan.n_turns && log_level() >= LOG_DEBUG; i++) {
        const struct plan_turn *t = &c->plan.turns[i];
        const struct choice *ch = t->user;
        char name[24];
        snprintf(name, sizeof(name), "%llu", (unsigned long long)ch->gen->id);
        log_debug("engine",
            t->is_resumed ? "scheduler.fairness.resume" : "scheduler.fairness.yield",
            "req=%s choice=%d priority=%d tokens=%d why=%s us=%llu",
            ch->gen->in.name ? ch->gen->in.name : name, ch->index, ch->gen->in.priority, ch->n_out,
            t->is_resumed     ? "turn"
            : t->is_preempted ? "priority"
                              : "slice",
            (unsigned long long)(t->took_ns / 1000));
    }
}

bool core_step(struct core *c, uint64_t now)
{
    noalloc_begin("step");
    uint64_t start = c->clock();
    uint64_t steps_before = c->n_computed;
    bool have_waited = c->port->n_requests > c->port->max_batch;
    c->prompts_done = 0;
    bool has_run = run_step(c, now);
    count(c);
    outbox_flush(&c->out);
    uint64_t took = c->clock() - start;
    if (c->n_computed > steps_before) {
        learn_cost(c, took);
        learn_rest(c, took);
    }
    pace_step(&c->pace, took, c->prompts_done, have_waited);
    pace_publish(&c->pace, &c->port->forecast);
    noalloc_end();
    outbox_wake(&c->out);
    if (c->tier)
        tier_send(c->tier);
    log_turns(c);
    return has_run;
}
