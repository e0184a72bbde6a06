/* Simulator: the engine without its thread, over a fake model whose output is a hash of its KV
 * pages, with a simulated clock and random failures, one seed after the other.
 *
 * Checks after every step: page sums, reference counts, lists and states (core_audit); the
 * limits of the step; that ranks only rise; the order of admission; and that the first sequence
 * was in the step. Checks for every request: its events are in order with one end event, and its
 * tokens and logprobs equal those that it has alone. Some seeds have a KV offload tier, whose jobs
 * are executed after a random number of steps, and run twice with the same files. `test_sim SEED`
 * runs one seed; SIM_SEEDS sets the number of seeds. */
#include "expected_output.h"
#include "shrink.h"
#include "base/log.h"
#include "engine/core.h"
#include "support/tmpdir.h"

#include <stdlib.h>

enum { MAX_REQUESTS = 24, N_VOCAB = 13 };

struct tracked_request { /* one request and its expected output */
    struct sim_request request;
    struct gen *gen;
    struct sim_output got, want;
    int32_t predicted[SIM_OUT_MAX];
    int arrives, cancels, stops_choice; /* step numbers; -1 = never */
    /* index of the request whose next turn it may be; -1: none */
    int follows;
    bool is_slow; /* returns its events late */
    bool is_started, is_done, is_cut;
    bool is_known; /* the prompt is final, and the output was computed */
    uint64_t came_ns, order;
    int64_t rank[SIM_CHOICES_MAX];
};

struct sim {
    struct rng r;
    struct fake_options fake;
    struct engine_options o;
    struct core *core;
    struct submit_queue *queue;
    struct mailbox *reply;
    struct sampler *sampler;
    struct tracked_request requests[MAX_REQUESTS];
    int n_requests, n_live, step;
    uint64_t now, n_orders;
    struct shape shape;
    const char *tier_dir; /* NULL = no offload tier */
    bool is_restart;      /* the files of an earlier run are there */
    struct gen_event
        *late[MAX_REQUESTS * SIM_CHOICES_MAX * 8]; /* events that slow clients still hold */
    int n_late;
};

static struct sim sim;

/* Deliberate defects of the engine, so that there is a failure to shrink. */
static bool does_leak;  /* leaks a page when a request with several choices is cancelled */
static bool cancel_all; /* every request is cancelled at a random step */

/* Totals over all seeds, which prove that the simulator reaches each case. */
static struct {
    uint64_t steps, preemptions, copies, prefill_runs, parked, delayed, held, stopped, completed;
    uint64_t drafted, accepted;
    uint64_t cancelled, timed_out, dropped, overloaded, too_long;
    uint64_t cached, cached_whole;
    uint64_t partial_runs, partial_runs_lost, cancelled_paused;
    uint64_t pages_read, windowed_pages_read, checkpoints_read, checkpoints_written;
    uint64_t masks, mask_pauses, constraints_completed, not_met, over_bound;
    uint64_t cancelled_in[SEQ_DELAYED + 1], cancelled_prefilling, cancelled_preempted;
} coverage;

static uint64_t fake_clock(void)
{
    return sim.now;
}

static void open_sim(struct sim *s, const struct shape *shape, const char *tier_dir)
{
    const uint64_t seed = shape->seed;
    const struct kernels *k;
    struct lm *lm;
    struct err e;

    *s = (struct sim){ .r = { .key = seed }, .now = 1000, .tier_dir = tier_dir };
    struct rng *r = &s->r;
    s->fake = (struct fake_options){
        .n_vocab = N_VOCAB, .n_ctx_train = 200, .seed = seed, .max_rows = rng_between(r, 1, 60)
    };
    s->fake.n_layers = shape->omitted & NO_PARTIAL_CHUNKS ? 1 : 1 + (int)(seed % 5);
    s->fake.n_threads = (int)(seed % 3);
    if (seed % 2 == 0 && !(shape->omitted & NO_STATES))
        s->fake.n_states = 2 + (uint32_t)(seed / 2 % 15);
    s->fake.n_pages = (uint32_t)rng_between(r, 1, rng_chance(r, 50) ? 8 : 40);
    if (PAGE_TOKENS < 32)
        s->fake.n_pages *= 32 / PAGE_TOKENS / 2;
    /* Derived from the seed, so that the other choices are those of a model without a window. */
    if (seed % 3 == 0 && !(shape->omitted & NO_WINDOW)) {
        s->fake.window = 1 + (int)(seed / 3 % 90);
        s->fake.is_windowed_only = seed % 4 == 1;
        s->fake.n_window_pages =
            (uint32_t)(s->fake.window + 100 + (int)(seed / 3 % 7) * 40) / PAGE_TOKENS;
    }
    s->o = (struct engine_options){ .max_batch = rng_between(r, 1, 10),
        .max_batch_tokens = rng_between(r, 1, 70),
        .prefill_chunk = rng_between(r, 1, 50),
        .max_queue = rng_between(r, 0, 20),
        .max_queue_tokens = rng_chance(r, 80) ? 1 << 20 : rng_between(r, 1, 600),
        .n_ctx = rng_chance(r, 30) ? rng_between(r, 5, 90) : 0,
        .max_sequences = rng_between(r, 1, 30),
        .fairness = { rng_chance(r, 40), rng_between(r, -2, 6),
            rng_chance(r, 40) ? rng_between(r, 1, 12) : 0 },
        .age_ns = 2000000000u,
        .mixed_step_percent = rng_chance(r, 50) ? 100 + (int)rng_below(r, 300) : 0,
        .max_step_layers = seed % 7 == 0 ? 1 : 0,
        .mixed_step_percent_short = (const int[]){ 300, 100, 0, 150, 600 }[seed % 5],
        .prefix_cache = rng_chance(r, 80),
        .kv_evict = rng_chance(r, 50) ? EVICT_LRU : EVICT_CLOCK,
        .kv_tenant_share = rng_between(r, 1, 100),
        .mask_steps = seed % 4 ? 1 + seed % 11 : 0 };
    s->o.spec = (struct spec_options){ .max = rng_between(r, 0, 9), .by_history = true };
    s->o.spec.min = rng_between(r, 0, s->o.spec.max);
    if (tier_dir) {
        s->o.model_digest = (const uint8_t *)"a digest of thirty-two characters";
        s->o.kv_disk = tier_dir;
        s->o.kv_disk_bytes = 1 << 20;
        s->o.kv_disk_always = s->o.kv_disk_manual = true;
    }
    if (shape->omitted & NO_FAIRNESS)
        s->o.fairness = fairness_default;
    if (shape->omitted & NO_MIXED_STEP_LIMIT)
        s->o.mixed_step_percent = 0;
    if (shape->omitted & NO_CACHE)
        s->o.prefix_cache = false;
    if (shape->omitted & NO_DRAFTS)
        s->o.spec = (struct spec_options){ 0 };
    s->shape = *shape;
    EXPECT_EQ(kernels_choose(&k, "ref", &e), 0);
    EXPECT_EQ(lm_open_fake(&lm, &s->fake, &e), 0);
    EXPECT_EQ(submit_queue_open(&s->queue, &e), 0);
    EXPECT_EQ(core_open(&s->core, lm, k, &s->o, s->queue, &e), 0);
    EXPECT_EQ(sampler_open(&s->sampler, k, N_VOCAB, &e), 0);
    EXPECT_EQ(mailbox_open(&s->reply, &e), 0);
    s->core->clock = fake_clock;
    /* The clock stands still during a step, so the cost model learns nothing; these are its
     * coefficients. */
    s->core->step_model.step_time = (struct step_time){ (double)rng_below(r, 10),
        rng_next_unit(r) * 3, rng_chance(r, 50) ? rng_next_unit(r) : 0 };
    sched_set_step_time(s->core->sched, &s->core->step_model.step_time);
}

/* Removes the features that the shape disables. */
static void apply_shape(struct tracked_request *f, const struct shape *shape, bool is_dropped)
{
    if (is_dropped) {
        f->is_done = true;
        f->arrives = -1;
    }
    if (cancel_all && f->cancels < 0)
        f->cancels = f->arrives + (int)(f->request.in.sample.seed % 40);
    if (shape->omitted & NO_CANCELS || is_dropped)
        f->cancels = -1;
    if (shape->omitted & NO_STOPPED_CHOICES)
        f->stops_choice = -1;
    if (shape->omitted & NO_SLOW_CLIENTS)
        f->is_slow = false;
    if (shape->omitted & ONE_CHOICE)
        f->request.in.n_choices = 1;
    if (shape->omitted & NO_DEADLINES)
        f->request.in.deadline_ns = 0;
    if (shape->omitted & NO_SCRIPTS)
        f->request.in.script = NULL;
    if (shape->omitted & NO_DRAFTS)
        f->request.in.want_drafts = false;
    f->request.in.n_prompt = MIN(f->request.in.n_prompt, shape->prompt);
    f->request.in.max_tokens = MIN(f->request.in.max_tokens, shape->out);
}

/* Some clients want the highest priority; each tenant has its own limit. */
static void limit_priority(struct gen_input *in)
{
    int wanted = in->priority == 3 ? 1000000 : in->priority;
    int most = in->tenant == 0 ? 3 : (int)in->tenant % 2;

    in->priority = MIN(wanted, most);
    in->extra_priority = wanted - in->priority;
}

static void make_requests(struct sim *s)
{
    struct sim_request_limits l = { .n_vocab = N_VOCAB,
        .max_prompt = rng_between(&s->r, 1, SIM_PROMPT_MAX),
        .max_out = rng_between(&s->r, 1, SIM_OUT_MAX),
        .max_choices = SIM_CHOICES_MAX,
        .with_scripts = true,
        .with_constraints = !(s->shape.omitted & NO_CONSTRAINTS) };
    int n_tenants = rng_chance(&s->r, 60) ? 1 : rng_between(&s->r, 2, 5);
    int spread = rng_between(&s->r, 0, 60);

    s->n_requests = rng_between(&s->r, 1, MAX_REQUESTS);
    for (int i = 0; i < s->n_requests; i++) {
        struct tracked_request *f = &s->requests[i];
        sim_request_random(&f->request, &s->r, &l);
        f->request.in.tenant = rng_below(&s->r, (uint64_t)n_tenants);
        f->request.in.tenant_weight = f->request.in.tenant == 1 ? 2 : 1;
        limit_priority(&f->request.in);
        f->arrives = rng_between(&s->r, 0, spread);
        f->cancels = rng_chance(&s->r, 15) ? f->arrives + rng_between(&s->r, 0, 60) : -1;
        f->stops_choice = rng_chance(&s->r, 10) ? f->arrives + rng_between(&s->r, 0, 40) : -1;
        f->follows = rng_chance(&s->r, 60) ? rng_between(&s->r, 0, i) - 1 : -1;
        f->is_slow = rng_chance(&s->r, 30);
        f->request.in.want_drafts = rng_chance(&s->r, 60);
        if (rng_chance(&s->r, 12))
            f->request.in.deadline_ns = s->now + rng_below(&s->r, 60) * 1000000000u;
        apply_shape(f, &s->shape, s->shape.dropped >> i & 1);
        f->is_cut = f->cancels >= 0 || f->stops_choice >= 0 || f->request.in.deadline_ns;
        for (int c = 0; c < SIM_CHOICES_MAX; c++)
            f->rank[c] = INT64_MIN;
    }
}

/* The client's prediction: the expected output with errors. */
static void set_prediction(struct sim *s, struct tracked_request *f)
{
    int n = rng_chance(&s->r, 40) ? f->want.choice[0].n : 0;

    for (int i = 0; i < n; i++)
        f->predicted[i] = rng_chance(&s->r, 15) ? rng_between(&s->r, -2, N_VOCAB + 2)
                                                : f->want.choice[0].token[i];
    f->request.in.predicted = f->predicted;
    f->request.in.n_predicted = n;
}

static void submit(struct sim *s, struct tracked_request *f)
{
    struct err e;
    const struct tracked_request *step_start = f->follows >= 0 ? &s->requests[f->follows] : NULL;
    if (step_start && step_start->is_known)
        sim_request_follow(&f->request, &s->r, &step_start->request,
            step_start->want.choice[0].token, step_start->want.choice[0].n);
    bool fits = f->request.in.n_prompt + (f->request.in.max_tokens > 0) <= s->queue->n_ctx;

    if (fits) {
        expected_output(&f->request, &s->fake, s->queue->n_ctx, s->sampler, &f->want);
        set_prediction(s, f);
    }
    sim_request_open(&f->request);
    EXPECT_EQ(gen_new(&f->gen, &f->request.in, s->reply, f, &e), 0);
    for (int i = 0; i < f->request.in.n_choices;
         i++) { /* few events, so that a sequence is parked */
        struct gen_choice *ch = &f->gen->choice[i];
        int n = rng_between(&s->r, 1, 12);
        ch->n_events = ch->credits = MIN(ch->n_events, n);
    }
    if (submit_queue_submit(s->queue, f->gen, s->now, &e)) {
        EXPECT(fits ? e.code == ERR_OVERLOADED : e.code == ERR_CONTEXT);
        int64_t n_tokens = s->queue->n_prompt_tokens;
        EXPECT(!fits || s->n_live >= s->queue->max_requests ||
               (n_tokens > 0 && n_tokens + f->request.in.n_prompt > s->o.max_queue_tokens) ||
               (f->request.in.deadline_ns && s->n_live >= s->queue->max_batch));
        gen_free(f->gen);
        sim_request_close(&f->request);
        f->gen = NULL;
        f->is_done = true;
        coverage.overloaded += fits;
        coverage.too_long += !fits;
        return;
    }
    EXPECT(fits);
    EXPECT(++s->n_live <= s->queue->max_requests);
    f->came_ns = s->now;
    f->order = s->n_orders++;
    f->is_known = true;
}

/* Counts the state in which a request is cancelled, by its first choice. */
static void note_cancel(struct sim *s, const struct tracked_request *f)
{
    if (f->gen->is_over || !f->gen->n_live || f->gen->choice[0].seq.i == SEQ_NONE.i)
        return;
    struct seq *q = sched_seq(s->core->sched, f->gen->choice[0].seq);
    coverage.cancelled_in[q->state]++;
    coverage.cancelled_prefilling += q->state == SEQ_RUNNING && q->n_kv < q->n_prompt;
    coverage.cancelled_paused += q->n_partial_rows > 0;
    coverage.cancelled_preempted += q->state == SEQ_WAITING && q->n_preempted > 0;
}

static void submit_and_cancel(struct sim *s)
{
    for (int i = 0; i < s->n_requests; i++) {
        struct tracked_request *f = &s->requests[i];
        if (f->arrives == s->step)
            submit(s, f);
        if (!f->gen)
            continue;
        if (f->cancels == s->step) {
            note_cancel(s, f);
            if (does_leak && f->request.in.n_choices > 1)
                (void)!page_take(s->core->pool).i;
            engine_cancel(NULL, f->gen);
        }
        if (f->stops_choice == s->step)
            engine_stop_choice(NULL, f->gen, rng_between(&s->r, 0, f->request.in.n_choices - 1));
    }
}

/* ---- client */

static void return_late_events(struct sim *s, bool is_all)
{
    int n = 0;

    for (int i = 0; i < s->n_late; i++) {
        if (is_all || rng_chance(&s->r, 20))
            gen_event_done(s->late[i]);
        else
            s->late[n++] = s->late[i];
    }
    s->n_late = n;
}

/* The longest prefix of the prompt that an earlier request of the same scope had: an upper bound
 * of the cached tokens. */
static int max_cached(const struct sim *s, const struct tracked_request *f)
{
    int n_max = 0;

    for (int i = 0; i < s->n_requests; i++)
        for (int c = 0; s->requests[i].is_known && c < s->requests[i].request.in.n_choices; c++) {
            const struct tracked_request *g = &s->requests[i];
            int n = 0, n_prompt = g->request.in.n_prompt;
            if (g == f || !g->request.in.cache_prompt ||
                memcmp(&g->request.in.scope, &f->request.in.scope, sizeof(f->request.in.scope)) !=
                    0)
                continue;
            while (n < f->request.in.n_prompt - 1 && n < n_prompt + g->want.choice[c].n &&
                   f->request.prompt[n] == (n < n_prompt ? g->request.prompt[n]
                                                         : g->want.choice[c].token[n - n_prompt]))
                n++;
            n_max = MAX(n_max, n);
        }
    return !f->request.in.cache_prompt || !s->o.prefix_cache ? 0 : n_max;
}

static void check_cached(const struct sim *s, const struct tracked_request *f)
{
    int n = gen_result(f->gen)->n_cached, n_max = max_cached(s, f);

    if (s->is_restart && f->request.in.cache_prompt && s->o.prefix_cache)
        n_max = f->request.in.n_prompt - 1;
    EXPECT(n >= 0 && n <= n_max);
    if (f->request.in.want_prompt_logprobs && !f->request.in.script)
        EXPECT_EQ(n, 0);
    coverage.cached += (uint64_t)n;
    coverage.cached_whole += n == n_max;
}

/* The state of the constraint has exactly the output pushed. */
static void check_constraint(const struct tracked_request *f, int choice)
{
    if (f->request.states[choice])
        EXPECT_EQ(fake_constraint_n(f->request.states[choice]), f->got.choice[choice].n);
}

static void finish_request(struct sim *s, struct tracked_request *f)
{
    int n = 0;

    for (int i = 0; i < s->n_late; i++) /* all events are returned before the request is freed */
        if (s->late[i]->gen == f->gen)
            gen_event_done(s->late[i]);
        else
            s->late[n++] = s->late[i];
    s->n_late = n;
    expect_same_output(&f->got, &f->want, f->request.in.n_choices);
    check_cached(s, f);
    bool has_error = false; /* error of the constraint */
    for (int i = 0; i < f->request.in.n_choices; i++) {
        has_error |= f->want.choice[i].finish == FINISH_UNMET;
        EXPECT(f->is_cut || f->got.choice[i].finish < FINISH_CANCELLED ||
               f->want.choice[i].finish == FINISH_UNMET);
        check_constraint(f, i);
    }
    enum errcode code = gen_result(f->gen)->err.code;
    EXPECT(
        code == ERR_NONE || (code == ERR_CONSTRAINT && has_error) ||
        (code == ERR_CANCELLED && f->cancels >= 0) ||
        (code == ERR_TIMEOUT && f->request.in.deadline_ns <= s->now) ||
        (code == ERR_OVERLOADED && f->request.in.deadline_ns && !gen_result(f->gen)->started_ns));
    coverage.cancelled += code == ERR_CANCELLED;
    coverage.timed_out += code == ERR_TIMEOUT;
    coverage.dropped += code == ERR_OVERLOADED;
    coverage.completed += !f->is_cut;
    gen_free(f->gen);
    sim_request_close(&f->request);
    f->gen = NULL;
    f->is_done = true;
    s->n_live--;
}

static void read_events(struct sim *s)
{
    struct msg *next;

    for (struct msg *m = mailbox_drain(s->reply); m; m = next) {
        next = m->next;
        struct gen_event *ev = container_of(m, struct gen_event, msg);
        struct tracked_request *f = gen_user(ev->gen);
        sim_output_add(&f->got, ev);
        if (m->kind == GEN_END)
            finish_request(s, f);
        else if (!f->is_slow || s->n_late == (int)ARRAY_LEN(s->late))
            gen_event_done(ev);
        else if (m->kind != GEN_CHOICE_END)
            s->late[s->n_late++] = ev;
    }
}

/* ---- invariants */

struct step_start { /* state before a step */
    /* highest running sequence; it always gets a row, whatever pages and rows the others need */
    seq_id highest;
    bool is_decoding; /* a decoding sequence is running */
    uint64_t preemptions;
};

static struct step_start observe_step_start(struct sim *s)
{
    struct step_start b = { SEQ_NONE, false, s->queue->stats.preemptions };

    for (int i = 0; i < s->n_requests; i++)
        for (int c = 0; s->requests[i].gen && c < s->requests[i].request.in.n_choices; c++) {
            seq_id id = s->requests[i].gen->choice[c].seq;
            if (id.i == SEQ_NONE.i)
                continue;
            struct seq *q = sched_seq(s->core->sched, id);
            if (q->state != SEQ_RUNNING)
                continue;
            b.is_decoding |= q->n_tokens - q->n_kv == 1 && !q->is_paused;
            if (b.highest.i == SEQ_NONE.i ||
                seq_is_before(q, sched_seq(s->core->sched, b.highest), s->now, s->o.age_ns))
                b.highest = id;
        }
    /* The mask of a paused sequence may take several steps, during which it keeps its pages. */
    if (b.highest.i != SEQ_NONE.i && sched_seq(s->core->sched, b.highest)->is_paused)
        b.highest = SEQ_NONE;
    return b;
}

static void check_plan(struct sim *s)
{
    const struct step_plan *p = &s->core->plan;
    int n_rows = 0, n_logits = 0, n_parts = 0;

    for (int i = 0; i < p->n_runs; i++) {
        n_parts += p->runs[i].end_layer > 0;
        n_rows += p->runs[i].n;
        n_logits += p->runs[i].n_logits;
        EXPECT(p->runs[i].n >= 1 && p->runs[i].n <= s->o.prefill_chunk);
        for (int j = 0; j < i; j++)
            EXPECT(p->runs[i].seq.i != p->runs[j].seq.i);
    }
    EXPECT(n_parts <= 1);
    EXPECT_EQ(n_rows, p->n_rows);
    EXPECT(n_rows <= s->o.max_batch_tokens && n_rows <= s->fake.max_rows);
    EXPECT(n_logits <= s->fake.max_rows);
    EXPECT(p->n_runs <= s->o.max_batch);
}

/* In a mixed step prefill adds at most its budget, plus the minimum that one prompt always gets:
 * a few rows, or one layer of a row. */
static void check_prefill_budget(struct sim *s, const struct step_start *step_start)
{
    const struct step_plan *p = &s->core->plan;
    const struct step_time *c = &s->core->step_model.step_time;
    struct step_size alone = { 0 };
    double prefill_cost = 0, least = 0;

    const int n_max = MAX(s->o.mixed_step_percent, s->o.mixed_step_percent_short);

    if (!s->o.mixed_step_percent || !s->o.mixed_step_percent_short || !step_start->is_decoding)
        return;
    if (s->queue->stats.preemptions > step_start->preemptions || p->n_swaps > 0)
        return; /* decode rows were planned and then lost their pages */
    for (int i = 0; i < p->n_runs; i++) {
        const struct plan_run *r = &p->runs[i];
        int n = r->n - r->n_drafts;
        bool is_prefilling = n > 1 || !r->yields_token;
        struct step_size size = { 0 };
        step_size_add(is_prefilling ? &size : &alone, r->pos, n);
        int n_layers = r->end_layer ? r->end_layer - r->from_layer : s->fake.n_layers;
        double added = (step_time_of(c, &size) - c->fixed) * n_layers / s->fake.n_layers;
        if (is_prefilling)
            prefill_cost += added;
        if (is_prefilling && (r->end_layer ? n_layers == 1 : r->n <= MIXED_PREFILL_ROWS_MIN))
            least = MAX(least, added);
        coverage.prefill_runs += is_prefilling;
    }
    if (s->fake.n_states && alone.rows == 0)
        return; /* no decode row was planned: the decoding sequences had no state slot */
    EXPECT(prefill_cost - least <= step_time_of(c, &alone) * (n_max / 100.0 - 1) + 1e-6);
}

static int64_t rank_of_new(const struct sim *s, const struct tracked_request *f)
{
    return f->request.in.priority + f->request.in.extra_priority +
           (int64_t)((s->now - f->came_ns) / s->o.age_ns);
}

/* The request was admitted, or has ended. */
static bool is_admitted(const struct sim *s, const struct tracked_request *f)
{
    seq_id id = f->gen->choice[0].seq;

    if (f->gen->is_over || id.i == SEQ_NONE.i || gen_result(f->gen)->started_ns)
        return true;
    return !sched_seq(s->core->sched, id)->is_fresh;
}

/* Among new requests of one tenant the order of admission is by rank, then by arrival. */
static void check_admission_order(struct sim *s)
{
    for (int i = 0; i < s->n_requests; i++) {
        struct tracked_request *f = &s->requests[i];
        if (!f->gen || f->is_started || f->gen->is_over || f->gen->tier_read || !is_admitted(s, f))
            continue;
        for (int j = 0; j < s->n_requests; j++) {
            struct tracked_request *g = &s->requests[j];
            if (!g->gen || g == f || g->is_started || is_admitted(s, g) ||
                g->gen->choice[0].tier_read || f->request.in.tenant != g->request.in.tenant)
                continue;
            int64_t a = rank_of_new(s, f), b = rank_of_new(s, g);
            EXPECT(a > b || (a == b && f->order < g->order));
        }
    }
    for (int i = 0; i < s->n_requests; i++)
        if (s->requests[i].gen)
            s->requests[i].is_started |= is_admitted(s, &s->requests[i]);
}

/* Ranks never decrease. */
static void check_ranks(struct sim *s)
{
    for (int i = 0; i < s->n_requests; i++) {
        struct tracked_request *f = &s->requests[i];
        for (int c = 0; f->gen && c < f->request.in.n_choices; c++) {
            seq_id id = f->gen->choice[c].seq;
            if (f->gen->is_over || id.i == SEQ_NONE.i || !f->gen->n_live)
                continue;
            int64_t rank = seq_rank(sched_seq(s->core->sched, id), s->now, s->o.age_ns);
            EXPECT(rank >= f->rank[c]);
            f->rank[c] = rank;
        }
    }
}

static void check_is_planned(struct sim *s, seq_id id)
{
    bool is_in = id.i == SEQ_NONE.i;

    for (int i = 0; i < s->core->plan.n_runs; i++)
        is_in |= s->core->plan.runs[i].seq.i == id.i;
    /* unless its time slice ended, or its pages went to a sequence admitted in its place */
    EXPECT(is_in || s->core->plan.n_swaps > 0);
}

static void check_invariants(struct sim *s, bool has_run)
{
    struct engine_audit a;
    struct sched_counts n;

    core_audit(s->core, &a);
    if (!a.ok)
        fprintf(stderr, "%s\n", sched_check(s->core->sched));
    EXPECT(a.ok);
    EXPECT_EQ(a.pages_free + a.pages_cached + a.pages_owned, a.pages_total);
    sched_counts(s->core->sched, &n);
    EXPECT(n.running <= (uint32_t)s->o.max_batch);
    coverage.parked += n.parked;
    coverage.delayed += n.delayed;
    coverage.held += n.held;
    /* Work conserving: a step without rows means that no sequence could run. */
    if (!has_run)
        EXPECT(n.running == 0 && n.waiting == 0);
    check_ranks(s);
}

/* ---- one run of the engine */

static bool has_ready_sequences(const struct sim *s)
{
    struct sched_counts n;

    sched_counts(s->core->sched, &n);
    return n.running > 0 || n.waiting > 0;
}

/* Executes the jobs of the tier. Requests that wait for one are not admitted in order. */
static void run_tier_jobs(struct sim *s)
{
    for (int i = 0; i < s->n_requests; i++) {
        struct tracked_request *f = &s->requests[i];
        f->is_started |= f->gen && (f->gen->tier_read || f->gen->choice[0].tier_read);
    }
    tier_work(s->core->tier);
}

/* Jobs of the tier hold pages and slots, so that for a time no sequence may be able to run. */
static bool step_after_tier_jobs(struct sim *s, struct step_start *step_start)
{
    for (int i = 0; i < 100 && has_ready_sequences(s); i++) {
        run_tier_jobs(s);
        core_drain(s->core, s->now);
        *step_start = observe_step_start(s);
        if (core_step(s->core, s->now))
            return true;
    }
    return false;
}

static void run_step(struct sim *s)
{
    submit_and_cancel(s);
    if (s->core->tier && rng_chance(&s->r, 60))
        run_tier_jobs(s);
    core_drain(s->core, s->now);
    read_events(s);
    /* A cancelled request has ended once its message is read. */
    for (int i = 0; i < s->n_requests; i++)
        EXPECT(!s->requests[i].gen || s->requests[i].cancels != s->step);
    s->core->stop = rng_chance(&s->r, 3) && !(s->shape.omitted & NO_INTERRUPTS);
    struct step_start step_start = observe_step_start(s);
    bool has_run = core_step(s->core, s->now);
    /* A step without rows may have computed masks while jobs of the tier hold all pages. */
    if (s->core->plan.n_runs == 0 && s->core->tier)
        has_run |= step_after_tier_jobs(s, &step_start);
    check_is_planned(s, step_start.highest);
    coverage.steps += has_run;
    coverage.stopped += has_run && s->core->stop;
    if (has_run) {
        check_plan(s);
        check_prefill_budget(s, &step_start);
        coverage.copies += (uint64_t)s->core->plan.n_copies;
    }
    check_admission_order(s);
    read_events(s);
    check_invariants(s, has_run);
    return_late_events(s, rng_chance(&s->r, 3));
    s->now += rng_below(&s->r, 10) ? rng_below(&s->r, 50000000) : rng_below(&s->r, 3000000000u);
    s->step++;
}

static bool is_all_done(const struct sim *s)
{
    for (int i = 0; i < s->n_requests; i++)
        if (!s->requests[i].is_done)
            return false;
    return true;
}

static void close_sim(struct sim *s)
{
    core_close(s->core);
    submit_queue_unref(s->queue);
    sampler_close(s->sampler);
    mailbox_close(s->reply);
}

static void run_once(const struct shape *shape, const char *tier_dir, bool is_restart)
{
    struct sim *s = &sim;
    struct engine_audit a;

    open_sim(s, shape, tier_dir);
    s->is_restart = is_restart;
    make_requests(s);
    while (!is_all_done(s)) {
        EXPECT(s->step < 20000); /* a sequence starves */
        run_step(s);
    }
    if (s->core->tier) /* jobs of requests that have ended */
        run_tier_jobs(s);
    core_drain(s->core, s->now); /* frees the last requests */
    core_audit(s->core, &a);
    EXPECT(a.ok && a.pages_owned == 0 && a.sequences == 0);
    EXPECT_EQ(s->queue->n_requests, 0);
    EXPECT_EQ(s->queue->n_seqs, 0);
    EXPECT_EQ(s->queue->n_prompt_tokens, 0);
    struct sched_counts n;
    sched_counts(s->core->sched, &n);
    coverage.partial_runs += n.partial_runs;
    coverage.partial_runs_lost += n.partial_runs_lost;
    coverage.preemptions += s->queue->stats.preemptions;
    coverage.drafted += draft_sum(&s->queue->stats).drafted;
    coverage.accepted += draft_sum(&s->queue->stats).accepted;
    coverage.pages_read += s->queue->stats.prefix.disk_pages_read;
    if (s->fake.window)
        coverage.windowed_pages_read += s->queue->stats.prefix.disk_pages_read;
    coverage.masks += s->queue->stats.constraints.masks;
    coverage.mask_pauses += s->queue->stats.constraints.pauses;
    coverage.constraints_completed += s->queue->stats.constraints.completed;
    coverage.not_met += s->queue->stats.constraints.not_met;
    coverage.over_bound += s->queue->stats.constraints.over_bound;
    coverage.checkpoints_read += s->queue->stats.prefix.disk_checkpoints_read;
    coverage.checkpoints_written += s->queue->stats.prefix.disk_checkpoints_written;
    close_sim(s);
}

/* One seed in 8 has a tier, half of them with state slots. */
static bool has_tier(const struct shape *shape)
{
    return (shape->seed % 16 == 5 || shape->seed % 16 == 10) && !(shape->omitted & NO_TIER);
}

static void run_shape(const struct shape *shape)
{
    char dir[TMPDIR_NAME];

    if (!has_tier(shape)) {
        run_once(shape, NULL, false);
        return;
    }
    tmpdir_make(dir);
    run_once(shape, dir, false);
    run_once(shape, dir, true);
    tmpdir_remove(dir);
}

static struct shape full_shape(uint64_t seed)
{
    return (struct shape){ .seed = seed, .prompt = SIM_PROMPT_MAX, .out = SIM_OUT_MAX };
}

static void run_seed(uint64_t seed)
{
    struct shape s = full_shape(seed);

    run_shape(&s);
}

static int n_left(const struct shape *shape)
{
    return MAX_REQUESTS - __builtin_popcount(shape->dropped & ((1u << MAX_REQUESTS) - 1));
}

/* Prints the requests of a shape and the command that runs it again. */
static void print_shape(const struct shape *shape)
{
    struct sim *s = &sim;

    open_sim(s, shape, NULL);
    make_requests(s);
    printf("test_sim %llu %x %x %d %d: %d running together, %u pages, %d rows a step\n",
        (unsigned long long)shape->seed, shape->dropped, shape->omitted, shape->prompt, shape->out,
        s->o.max_batch, s->fake.n_pages, MIN(s->o.max_batch_tokens, s->fake.max_rows));
    for (int i = 0; i < s->n_requests; i++) {
        const struct tracked_request *f = &s->requests[i];
        if (shape->dropped >> i & 1)
            continue;
        printf("  request %d arrives at step %d: %d prompt tokens, at most %d output tokens, %d "
               "choices, "
               "priority %d, tenant %d",
            i, f->arrives, f->request.in.n_prompt, f->request.in.max_tokens,
            f->request.in.n_choices, f->request.in.priority, (int)f->request.in.tenant);
        if (f->cancels >= 0)
            printf(", cancelled at step %d", f->cancels);
        if (f->stops_choice >= 0)
            printf(", a choice stopped at step %d", f->stops_choice);
        printf("%s%s%s\n", f->is_slow ? ", slow" : "", f->request.in.script ? ", a script" : "",
            f->request.in.deadline_ns ? ", a deadline" : "");
    }
    close_sim(s);
}

static uint64_t running_seed;

/* Shrinks and prints the failure of the current seed. */
static void report_failed_seed(void)
{
    struct shape s = full_shape(running_seed);

    if (!running_seed)
        return;
    fprintf(stderr, "test_sim: seed %lu\n", (unsigned long)running_seed);
    if (!shape_fails(&s, run_shape))
        return;
    shape_shrink(&s, MAX_REQUESTS, run_shape);
    print_shape(&s);
}

static struct shape selected; /* seed 0: all seeds */
#ifdef TESTING
static uint64_t n_seeds = 1500;
#else
static uint64_t n_seeds = 10000;
#endif

static void every_seed_keeps_all_invariants(void)
{
    uint64_t first = selected.seed ? selected.seed : 1,
             last = selected.seed ? selected.seed : n_seeds;

    if (selected.prompt) {
        run_shape(&selected);
        return;
    }
    for (running_seed = first; running_seed <= last; running_seed++)
        run_seed(running_seed);
    running_seed = 0;
    printf(
        "%lu steps, %lu complete outputs, %lu preemptions, %lu page copies, %lu interrupted steps\n"
        "%lu cancelled, %lu timed out, %lu overloaded, %lu too long, %lu of %lu draft tokens "
        "accepted\n"
        "%lu prompt tokens found, all that could be in %lu requests\n"
        "%lu partial chunks, %lu lost, %lu cancelled in one\n"
        "%lu pages read from disk, %lu of %lu checkpoints\n"
        "%lu masks, %lu in several steps; %lu choices complete, %lu not met, %lu over a bound\n",
        coverage.steps, coverage.completed, coverage.preemptions, coverage.copies, coverage.stopped,
        coverage.cancelled, coverage.timed_out, coverage.overloaded, coverage.too_long,
        coverage.accepted, coverage.drafted, coverage.cached, coverage.cached_whole,
        coverage.partial_runs, coverage.partial_runs_lost, coverage.cancelled_paused,
        coverage.pages_read, coverage.checkpoints_read, coverage.checkpoints_written,
        coverage.masks, coverage.mask_pauses, coverage.constraints_completed, coverage.not_met,
        coverage.over_bound);
    if (!selected.seed && n_seeds >= 1000) {
        EXPECT(coverage.completed > 5 * n_seeds && coverage.preemptions > n_seeds &&
               coverage.copies > n_seeds);
        EXPECT(coverage.prefill_runs > 4 * n_seeds);
        EXPECT(coverage.masks > 20 * n_seeds && coverage.mask_pauses > 2 * n_seeds);
        EXPECT(coverage.constraints_completed > n_seeds / 4 && coverage.not_met > n_seeds / 10 &&
               coverage.over_bound > n_seeds / 20);
        EXPECT(coverage.partial_runs > 5 * n_seeds && coverage.partial_runs_lost > n_seeds / 10);
        EXPECT(coverage.cancelled_paused > 0);
        EXPECT(coverage.parked > n_seeds && coverage.delayed > n_seeds && coverage.held > n_seeds);
        EXPECT(coverage.stopped > n_seeds && coverage.cancelled > n_seeds / 2);
        EXPECT(coverage.timed_out > n_seeds / 10 && coverage.dropped > n_seeds / 1000 &&
               coverage.overloaded > n_seeds / 10);
        EXPECT(coverage.too_long > n_seeds / 10);
        EXPECT(coverage.accepted > n_seeds && coverage.drafted > coverage.accepted);
        EXPECT(coverage.cached > 7 * n_seeds);
        EXPECT(coverage.pages_read > n_seeds / 10 && coverage.checkpoints_read > n_seeds / 10);
        EXPECT(coverage.windowed_pages_read > n_seeds / 100);
        for (int i = SEQ_WAITING; i <= SEQ_DELAYED; i++)
            EXPECT(coverage.cancelled_in[i] > 0);
        EXPECT(coverage.cancelled_prefilling > 0 && coverage.cancelled_preempted > 0);
    }
}

/* Shapes of fixed failures, as they were printed. */
static void fixed_failures_do_not_return(void)
{
    static const struct shape once[] = {
        /* A choice added its pages to the cache after they were shared with the others. */
        { 38821, 0xff79fb, 0x5d7, 23, 11 },
    };

    for (size_t i = 0; i < ARRAY_LEN(once) && !selected.seed; i++)
        run_shape(&once[i]);
}

/* With a deliberate page leak, shrinking leaves only the requests that the failure needs. */
static void failure_is_shrunk(void)
{
    struct shape s;

    if (selected.seed)
        return;
    does_leak = true;
    for (uint64_t seed = 1;; seed++) {
        EXPECT(seed < 200);
        s = full_shape(seed);
        if (shape_fails(&s, run_shape))
            break;
    }
    shape_shrink(&s, MAX_REQUESTS, run_shape);
    bool is_same = shape_fails(&s, run_shape);
    does_leak = false;
    bool passes_without_leak = !shape_fails(&s, run_shape);
    print_shape(&s);
    EXPECT(is_same && passes_without_leak);
    EXPECT(n_left(&s) <= 4); /* the cancelled request, and possibly some that delay it */
    EXPECT(!(s.omitted & NO_CANCELS) && !(s.omitted & ONE_CHOICE));
    EXPECT(s.prompt <= 16 && s.out <= SIM_OUT_MAX);
}

/* Every request is cancelled, in any state. SIM_CANCELS sets the number. */
static void cancelling_everything_leaks_nothing(void)
{
    uint64_t n = getenv("SIM_CANCELS") ? strtoull(getenv("SIM_CANCELS"), NULL, 10) : 3000;
    uint64_t step_start = coverage.cancelled;

    if (selected.seed)
        return;
    cancel_all = true;
    for (running_seed = 1; coverage.cancelled - step_start < n; running_seed++)
        run_seed(running_seed); /* each run ends with all pages, sequences and requests freed */
    printf("%lu cancelled in %lu runs\n", coverage.cancelled - step_start, running_seed - 1);
    running_seed = 0;
    cancel_all = false;
}

/* test_sim [SEED [DROPPED PLAIN PROMPT OUT]]: one run, with the arguments that a failure prints. */
int main(int argc, char **argv)
{
    static const struct check_test tests[] = { TEST(every_seed_keeps_all_invariants),
        TEST(fixed_failures_do_not_return), TEST(failure_is_shrunk),
        TEST(cancelling_everything_leaks_nothing) };

    log_set_level(LOG_WARN);
    if (argc > 1)
        selected.seed = strtoull(argv[1], NULL, 10);
    if (argc == 6) {
        selected.dropped = (uint32_t)strtoul(argv[2], NULL, 16);
        selected.omitted = (unsigned)strtoul(argv[3], NULL, 16);
        selected.prompt = (int)strtol(argv[4], NULL, 10);
        selected.out = (int)strtol(argv[5], NULL, 10);
    }
    if (getenv("SIM_SEEDS"))
        n_seeds = strtoull(getenv("SIM_SEEDS"), NULL, 10);
    int failed = check_main(tests, ARRAY_LEN(tests), 1, argv);
    if (is_child)
        _exit(1);
    report_failed_seed();
    return failed;
}
