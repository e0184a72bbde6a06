#include "engine/constrained.h"
#include "engine/kv_load.h"
#include "base/mem.h"
#include "os/clock.h"

const struct engine_options engine_options_default = {
    .max_batch = MAX_BATCH_DEFAULT,
    .max_batch_tokens = 8192,
    .max_sequences = 16,
    .prefill_chunk = PREFILL_CHUNK,
    .max_queue = 512,
    .max_queue_tokens = 1 << 20,
    .n_ctx = 0,
    .age_ns = 2000000000u,
    .mixed_step_percent = 140,
    .mixed_step_percent_short = 350,
    .spec = { .max = 16, .by_history = true },
    .prefix_cache = true,
    .kv_evict = EVICT_LRU,
    .kv_tenant_share = 50,
    .fairness = { .high_priority_threshold = 5 },
};

/* ---- opening and closing */

int engine_options_check(const struct engine_options *o, struct err *e)
{
    if (o->max_batch < 1 || o->max_batch > 1 << 16)
        return err_param(
            e, ERR_RANGE, "max_batch", "max_batch = %d is not 1 to %d", o->max_batch, 1 << 16);
    if (o->max_batch_tokens < 1)
        return err_param(e, ERR_RANGE, "max_batch_tokens", "max_batch_tokens = %d is below 1",
            o->max_batch_tokens);
    if (o->prefill_chunk < 1)
        return err_param(
            e, ERR_RANGE, "prefill_chunk", "prefill_chunk = %d is below 1", o->prefill_chunk);
    if (o->max_queue < 0 || o->max_queue > 1 << 20)
        return err_param(
            e, ERR_RANGE, "max_queue", "max_queue = %d is not 0 to %d", o->max_queue, 1 << 20);
    if (o->max_queue_tokens < 1)
        return err_param(e, ERR_RANGE, "max_queue_tokens", "max_queue_tokens = %lld is below 1",
            (long long)o->max_queue_tokens);
    if (o->n_ctx < 0)
        return err_param(e, ERR_RANGE, "n_ctx", "n_ctx = %d is negative", o->n_ctx);
    if (o->mixed_step_percent && (o->mixed_step_percent < 100 || o->mixed_step_percent > 100000))
        return err_param(e, ERR_RANGE, "mixed_step_percent",
            "mixed_step_percent = %d is not 0 or 100 to 100000", o->mixed_step_percent);
    if (o->mixed_step_percent_short &&
        (o->mixed_step_percent_short < 100 || o->mixed_step_percent_short > 100000))
        return err_param(e, ERR_RANGE, "mixed_step_percent_short",
            "mixed_step_percent_short = %d is not 0 or 100 to 100000", o->mixed_step_percent_short);
    if (o->age_ns < 1 || o->age_ns > SCHED_AGE_MAX)
        return err_param(e, ERR_RANGE, "age_ns", "age_ns = %llu is not 1 to %llu",
            (unsigned long long)o->age_ns, (unsigned long long)SCHED_AGE_MAX);
    if (o->kv_tenant_share < 1 || o->kv_tenant_share > 100)
        return err_param(e, ERR_RANGE, "kv_tenant_share", "kv_tenant_share = %d is not 1 to 100",
            o->kv_tenant_share);
    return fairness_check(&o->fairness, e);
}

/* Longest step without decode rows: bounds the wait of cancellations and new requests during
 * prefill. */
enum { PREFILL_STEP_NS = 250000000 };

static void set_limits(const struct core *c, struct sched_limits *l)
{
    int max_rows = MIN(c->o.max_batch_tokens, c->lm->max_rows);
    int max_batch = MIN(c->o.max_batch, MIN(max_rows, c->lm->max_logits));
    if (c->lm->n_states > 0) /* one slot each, and one for runs that write a second slot */
        max_batch = (int)MIN((uint32_t)max_batch, MAX(c->lm->n_states, 2u) - 1);
    struct submit_queue *p = c->queue;

    *l = (struct sched_limits){
        .max_batch = max_batch,
        .max_rows = max_rows,
        .max_logits = c->lm->max_logits,
        .prefill_chunk = c->o.prefill_chunk,
        .max_started = MAX(c->o.max_sequences, max_batch),
        .age_ns = c->o.age_ns,
        .n_layers = c->lm->n_layers,
        .max_partial_rows = c->lm->max_partial_rows,
        .max_step_layers = c->o.max_step_layers,
        .max_prefill_step_ns = PREFILL_STEP_NS,
        .mixed_step_factor = c->o.mixed_step_percent / 100.0,
        .mixed_step_factor_short = c->o.mixed_step_percent_short / 100.0,
    };
    p->n_vocab = c->lm->n_vocab;
    int64_t n_ctx = c->o.n_ctx ? c->o.n_ctx : c->lm->n_ctx_train;
    p->n_ctx = (int)MIN(n_ctx, (int64_t)c->lm->n_pages * PAGE_TOKENS);
    p->max_requests = c->o.max_queue + l->max_batch;
    p->max_batch = l->max_batch;
    p->max_tokens = c->o.max_queue_tokens;
    p->max_seqs = MAX(2 * p->max_requests, 2 * GEN_CHOICES_MAX);
    l->max_seqs = (uint32_t)p->max_seqs;
    p->stats.pages_total = c->lm->n_pages;
}

/* Half of what one request does not need may be pinned. */
static uint32_t pin_limit(uint32_t n, uint64_t reserve)
{
    return n > reserve ? (uint32_t)(n - reserve) / 2 : 0;
}

static int open_tree(struct core *c, struct sched_limits *l, struct err *e)
{
    const struct lm *lm = c->lm;
    /* One request of maximum length must always fit. */
    uint64_t reserve = (uint64_t)pages_for(c->queue->n_ctx) + 1;
    uint64_t window_reserve = (uint64_t)sched_least_windows(&lm->window, c->queue->n_ctx) +
                              (uint64_t)pages_for(l->prefill_chunk) + 1;
    struct tree_options o = { .policy = c->o.kv_evict,
        .n_users = l->max_seqs,
        .ages = &c->queue->stats.prefix.ages,
        .quota = (uint32_t)((uint64_t)lm->n_pages * (uint64_t)c->o.kv_tenant_share / 100),
        .n_pinned = pin_limit(lm->n_pages, reserve),
        .n_pinned_states = pin_limit(lm->n_states, 3), /* two, and one for read jobs of the tier */
        .n_pinned_windows = pin_limit(lm->n_window_pages, window_reserve),
        .windows = c->windows,
        .window = lm->window,
        .states = c->states };

    if (!c->o.prefix_cache)
        return 0;
    if (lm->row_macs > 0)
        o.depth_weight = (uint32_t)(EVICT_WEIGHT * lm->key_macs * PAGE_TOKENS / lm->row_macs);
    if (tree_new(&c->tree, c->pool, &o, e))
        return -1;
    l->tree = c->tree;
    return 0;
}

static int open_states(struct core *c, struct sched_limits *l, struct err *e)
{
    if (c->lm->n_states == 0)
        return 0;
    if (c->lm->n_states < 2)
        return err_set(e, ERR_RANGE, "a model with recurrent state needs at least 2 state slots");
    if (page_pool_new(&c->states, c->lm->n_states, e))
        return -1;
    l->states = c->states;
    c->queue->stats.states_total = c->lm->n_states;
    return 0;
}

static int open_windows(struct core *c, struct sched_limits *l, struct err *e)
{
    uint32_t least = sched_least_windows(&c->lm->window, c->queue->n_ctx);

    if (!c->lm->window.size)
        return 0;
    if (c->lm->n_window_pages < least)
        return err_set(e, ERR_RANGE,
            "a window of %d positions needs at least %u window pages, and there are %u",
            c->lm->window.size, least, c->lm->n_window_pages);
    if (page_pool_new(&c->windows, c->lm->n_window_pages, e))
        return -1;
    c->queue->stats.windows_total = c->lm->n_window_pages;
    l->windows = c->windows;
    l->window = c->lm->window;
    return 0;
}

static int open_parts(struct core *c, const struct kernels *k, struct err *e)
{
    struct sched_limits l;

    set_limits(c, &l);
    if (page_pool_new(&c->pool, c->lm->n_pages, e) || open_windows(c, &l, e) ||
        open_states(c, &l, e) || open_tree(c, &l, e) || kv_load_open(c, &l, e) ||
        sched_new(&c->sched, c->pool, &l, e) || sample_batch_open(&c->samples, c->lm, k, e) ||
        mask_batch_open(&c->masks, c->lm, l.max_batch, c->o.mask_steps, e))
        return -1;
    sched_set_fairness(c->sched, &c->o.fairness);
    step_plan_init(&c->plan, &l);
    c->runs = xcalloc((size_t)l.max_batch, sizeof(*c->runs));
    c->job = xcalloc((size_t)l.max_batch, sizeof(*c->job));
    return 0;
}

int core_open(struct core **out, struct lm *take, const struct kernels *k,
    const struct engine_options *o, struct submit_queue *queue, struct err *e)
{
    struct core *c = xcalloc(1, sizeof(*c));

    c->lm = take;
    c->queue = queue;
    c->o = *o;
    c->clock = clock_ns;
    /* Attention multiplies in floating point, matrix products in integers: a multiplication with a
     * key costs about 4 times as much. */
    if (take->row_macs)
        c->step_model.key_share = 4.0 * (double)take->key_macs / (double)take->row_macs;
    queue->refs++;
    c->o.spec.n_vocab = take->n_vocab;
    if (spec_open(&c->spec, &c->o.spec, e) || engine_options_check(o, e) || open_parts(c, k, e)) {
        core_close(c);
        return -1;
    }
    *out = c;
    return 0;
}

void core_close(struct core *c)
{
    if (!c)
        return;
    CHECK(!c->gens.first && c->out.n == 0);
    kv_load_close(c);
    step_plan_clear(&c->plan);
    mem_free(c->runs);
    mem_free(c->job);
    sample_batch_close(&c->samples);
    mask_batch_close(&c->masks);
    spec_close(c->spec);
    sched_free(c->sched);
    tree_free(c->tree);
    page_pool_free(c->pool);
    page_pool_free(c->windows);
    page_pool_free(c->states);
    c->lm->ops->close(c->lm);
    submit_queue_unref(c->queue);
    mem_free(c);
}

/* ---- events and ends */

void core_post(struct core *c, struct gen_choice *ch, struct gen_event *ev, enum gen_kind kind)
{
    ev->msg.kind = (int)kind;
    outbox_add(&c->out, ch->gen->reply, &ev->msg);
}

static void release_seq(struct core *c, struct gen_choice *ch)
{
    kv_load_detach(ch);
    spec_seq_end(c->spec, ch);
    sched_end(c->sched, ch->seq);
    ch->seq = SEQ_NONE;
}

static void record_phases(struct core *c, const struct gen *g)
{
    struct engine_stats *st = &c->queue->stats;
    const struct gen_result *r = &g->result;

    if (!r->first_token_ns)
        return;
    if (r->err.code == ERR_NONE)
        throughput_add_response(
            &c->throughput, g->choice[0].n_out, r->ended_ns - MIN(r->first_token_ns, r->ended_ns));
    histogram_add(&st->prefill, SECONDS, r->first_token_ns - r->started_ns);
    histogram_add(&st->decode, SECONDS, r->ended_ns - MIN(r->first_token_ns, r->ended_ns));
}

static void end_gen(struct core *c, struct gen *g, uint64_t now)
{
    struct engine_stats *st = &c->queue->stats;

    list_remove(&g->in_core);
    *(g->result.err.code == ERR_NONE ? &st->finished : &st->cancelled) += 1;
    submit_queue_uncount(c->queue, g);
    c->n_queued -= g->result.started_ns == 0;
    g->result.ended_ns = now;
    record_phases(c, g);
    g->is_over = true;
    g->end = (struct gen_event){ .msg.kind = GEN_END, .gen = g };
    outbox_add(&c->out, g->reply, &g->end.msg);
}

void core_end_choice(
    struct core *c, struct gen_choice *ch, enum finish why, int32_t stop_id, uint64_t now)
{
    struct gen *g = ch->gen;
    struct gen_choice *leader = &g->choice[0];
    const struct seq *s = sched_seq(c->sched, ch->seq);

    CHECK(!ch->is_ended);
    constrained_end(c, ch);
    ch->is_ended = true;
    g->n_live--;
    g->result.n_preempted += s->n_preempted;
    if (g->is_forked)
        histogram_add(&c->queue->stats.waited, SECONDS, s->waited_ns - s->queued_ns);
    else if (ch == leader) /* ended before its prompt was computed */
        g->result.n_cached = s->n_cached;
    ch->end = (struct gen_event){ .gen = g,
        .choice = ch->index,
        .index = ch->n_out,
        .is_accepted = constrained_accepts(ch),
        .finish = why,
        .stop_id = stop_id };
    core_post(c, ch, &ch->end, GEN_CHOICE_END);
    /* The first choice computes the prompt for the others, also if it has ended itself. */
    if (ch != leader || g->is_forked)
        release_seq(c, ch);
    if (g->n_live > 0)
        return;
    if (leader->seq.i != NO_SEQ)
        release_seq(c, leader);
    end_gen(c, g, now);
}

/* Starts the sequences of a request that waits for pages, so that they can be ended. */
static void start_held_back(struct core *c, struct gen *g, uint64_t now)
{
    if (!g->tier_read)
        return;
    kv_load_cancel(c, g);
    core_schedule(c, g, now);
}

static void cancel_gen(struct core *c, struct gen *g, enum errcode why, uint64_t now)
{
    if (g->is_over)
        return;
    err_set(&g->result.err, why,
        why == ERR_TIMEOUT      ? "the deadline of the request has passed"
        : why == ERR_OVERLOADED ? "the deadline of the request can no longer be met"
        : why == ERR_DRAINING   ? "the model was shut down"
                                : "the request was cancelled");
    start_held_back(c, g, now);
    for (int i = 0; i < g->in.n_choices && !g->is_over; i++)
        if (!g->choice[i].is_ended)
            core_end_choice(c, &g->choice[i],
                why == ERR_CANCELLED || why == ERR_DRAINING ? FINISH_CANCELLED : FINISH_ERROR, -1,
                now);
}

void core_cancel_all(struct core *c, enum errcode why, uint64_t now)
{
    while (c->gens.first)
        cancel_gen(c, LIST_ELEMENT(c->gens.first, struct gen, in_core), why, now);
    outbox_flush(&c->out);
}

/* ---- messages */

/* Time after which a response of the estimated length would miss the deadline: a request that has
 * not started by then is dropped. 0 = no such time. */
static uint64_t latest_start_ns(const struct core *c, const struct gen *g, uint64_t now)
{
    uint64_t response_ns = throughput_response_ns(&c->throughput, g->max_out);

    if (!g->in.deadline_ns || now + response_ns >= g->in.deadline_ns)
        return 0;
    return g->in.deadline_ns - response_ns;
}

/* Index in by_priority of the output tokens of this priority. */
static int priority_index(struct engine_stats *st, int priority)
{
    int n = st->n_priorities, i = 0;

    while (i < n && st->by_priority[i].priority != priority)
        i++;
    if (i == n && n < ENGINE_PRIORITIES) {
        st->by_priority[i].priority = priority;
        st->n_priorities = n + 1;
    }
    return i;
}

static void start_gen(struct core *c, struct gen *g, uint64_t now)
{
    c->n_queued++;
    g->priority_slot = priority_index(&c->queue->stats, g->in.priority);
    g->n_live = g->in.n_choices;
    list_add_first(&c->gens, &g->in_core);
    if (!kv_load_start(c, g))
        core_schedule(c, g, now);
}

void core_schedule(struct core *c, struct gen *g, uint64_t now)
{
    for (int i = 0; i < g->in.n_choices; i++) {
        struct gen_choice *ch = &g->choice[i];
        bool is_scored = i == 0 && g->in.want_prompt_logprobs && !g->in.script;
        struct seq_spec spec = {
            .in = &g->in,
            .choice = i,
            .start_deadline_ns = i ? 0 : latest_start_ns(c, g, now),
            .score_from = is_scored ? 0 : g->in.n_prompt - 1,
            .credits = ch->credits,
            .pages = ch->pages,
            .windows = ch->windows,
            .tokens = ch->tokens,
            .user = ch,
            .is_held = i > 0,
        };
        ch->seq = sched_add(c->sched, now, &spec);
        constrained_begin(c, ch);
    }
}

/* A parked sequence continues when a quarter of its events is returned. A wake-up for each event
 * could, if pages are short, recompute its prefix for one token. */
static void return_event(struct core *c, struct gen_event *ev, uint64_t now)
{
    struct gen_choice *ch = &ev->gen->choice[ev->choice];

    choice_return_event(ch, ev);
    if (ch->seq.i == NO_SEQ)
        return;
    struct seq *s = sched_seq(c->sched, ch->seq);
    s->credits = ch->credits;
    if (s->state == SEQ_PARKED && !ch->tier_read && ch->credits * 4 >= ch->n_events)
        sched_unpark(c->sched, ch->seq, now);
}

static void handle_audit(struct core *c, struct msg *m);
static void handle_call(struct core *c, struct msg *m);

static void handle_message(struct core *c, struct msg *m, uint64_t now)
{
    struct gen_choice *ch;

    switch ((enum port_kind)m->kind) {
    case ENGINE_MSG_SUBMIT:
        start_gen(c, container_of(m, struct gen, submit_msg), now);
        break;
    case ENGINE_MSG_CANCEL:
        cancel_gen(c, container_of(m, struct gen, cancel_msg), ERR_CANCELLED, now);
        break;
    case ENGINE_MSG_STOP_CHOICE:
        ch = container_of(m, struct gen_choice, stop_msg);
        if (ch->is_ended)
            break;
        start_held_back(c, ch->gen, now);
        core_end_choice(c, ch, FINISH_CANCELLED, -1, now);
        break;
    case ENGINE_MSG_TIER_WRITTEN:
    case ENGINE_MSG_TIER_READ:
        kv_load_receive(c, m, now);
        break;
    case ENGINE_MSG_EVENT_RETURN:
        return_event(c, container_of(m, struct gen_event, msg), now);
        break;
    case ENGINE_MSG_FREE:
        mem_free(container_of(m, struct gen, free_msg));
        break;
    case ENGINE_MSG_AUDIT:
        handle_audit(c, m);
        break;
    case ENGINE_MSG_CALL:
        handle_call(c, m);
        break;
    case ENGINE_MSG_WAKE:
        break;
    }
}

void core_drain(struct core *c, uint64_t now)
{
    struct msg *next;

    for (struct msg *m = mailbox_drain(c->queue->inbox); m; m = next) {
        next = m->next;
        handle_message(c, m, now);
    }
    for (seq_id id; (id = sched_expired(c->sched, now)).i != NO_SEQ;) {
        struct gen_choice *ch = sched_seq(c->sched, id)->user;
        cancel_gen(c, ch->gen,
            sched_seq(c->sched, id)->deadline_ns <= now ? ERR_TIMEOUT : ERR_OVERLOADED, now);
    }
    if (c->o.live_fairness) {
        struct fairness f = fairness_get(c->o.live_fairness);
        sched_set_fairness(c->sched, &f);
    }
    outbox_flush(&c->out);
    if (c->tier)
        tier_send(c->tier);
}

uint64_t core_next_wake(const struct core *c)
{
    return sched_next_wake(c->sched);
}

/* ---- audit */

void core_audit(struct core *c, struct engine_audit *out)
{
    struct sched_counts n;
    uint32_t n_gens = 0, n_choices = 0, n_started = 0;

    sched_counts(c->sched, &n);
    LIST_EACH (const struct gen, g, &c->gens, in_core) {
        n_gens++;
        n_started += g->result.started_ns > 0;
        for (int i = 0; i < g->in.n_choices; i++)
            n_choices += g->choice[i].seq.i != NO_SEQ;
    }
    *out = (struct engine_audit){
        .ok = !sched_check(c->sched) && n_choices == n.seqs &&
              (int)n_gens <= c->queue->max_requests && n_gens - n_started == c->n_queued,
        .pages_total = page_n_total(c->pool),
        .pages_free = page_n_free(c->pool),
        .pages_cached = page_n_idle(c->pool),
        .pages_owned = page_n_total(c->pool) - page_n_free(c->pool) - page_n_idle(c->pool),
        .sequences = n.seqs,
        .requests_running = n_started,
        .requests_waiting = n_gens - n_started,
    };
}

static void handle_audit(struct core *c, struct msg *m)
{
    struct audit_call *call = container_of(m, struct audit_call, msg);

    core_audit(c, call->out);
    m->kind = call->kind;
    mailbox_post(call->reply, m); /* the call belongs to its caller again and may be freed */
}

static void handle_call(struct core *c, struct msg *m)
{
    struct core_call *call = container_of(m, struct core_call, msg);

    call->fn(c, call->arg);
    mailbox_post(call->reply, m); /* the call belongs to its caller again and may be freed */
}
