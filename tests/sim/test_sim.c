/* The simulator: the engine without its thread, over a model that is a hash of what its pages
 * say, under a clock of ours, with everything that can go wrong going wrong, seed by seed.
 *
 * After every step: page sums, reference counts, lists and states (core_audit), the step's
 * limits, ranks that only rise, who started before whom, and that nobody stood idle who was
 * first. For every request: its events in order, one end, and the tokens and log-probabilities
 * it would have had alone. `test_sim SEED` runs one seed; SIM_SEEDS says how many. */
#include "wants.h"
#include "shrink.h"
#include "base/log.h"
#include "engine/core.h"

#include <stdlib.h>

enum { MAX_ASKS = 24, N_VOCAB = 13 };

struct life { /* of one request */
    struct ask ask;
    struct gen *gen;
    struct answer got, want;
    int32_t predicted[ASK_OUT];
    int arrives, cancels, stops_choice; /* step numbers; -1 = never */
    int follows;                        /* whose next turn it may be; -1: nobody's */
    bool is_slow;                       /* gives events back late */
    bool is_started, is_done, is_cut;
    bool is_known; /* its prompt is final, and its answer was computed */
    uint64_t came_ns, order;
    int64_t rank[ASK_CHOICES];
};

struct sim {
    struct rng r;
    struct fake_options fake;
    struct engine_options o;
    struct core *core;
    struct port *port;
    struct mailbox *reply;
    struct sampler *sampler;
    struct life life[MAX_ASKS];
    int n_asks, n_live, step;
    uint64_t now, n_orders;
    struct shape shape;
    struct gen_event *late[MAX_ASKS * ASK_CHOICES * 8]; /* events slow askers still hold */
    int n_late;
};

static struct sim sim;

/* What is done to the engine on purpose, so that there is a failure to shrink. */
static bool does_leak; /* a page, when a request of several choices is cancelled */
static bool is_storm;  /* every request is cancelled, at some moment */

/* Over all seeds: that the simulator really meets what it is about. */
static struct {
    uint64_t steps, preemptions, copies, riders, parked, delayed, held, stopped, whole;
    uint64_t drafted, accepted;
    uint64_t cancelled, timed_out, dropped, overloaded, too_long;
    uint64_t cached, cached_whole;
    uint64_t pauses, pauses_lost, cancelled_paused;
    uint64_t cancelled_in[SEQ_DELAYED + 1], cancelled_filling, cancelled_preempted;
} met;

static uint64_t fake_clock(void)
{
    return sim.now;
}

static void open_sim(struct sim *s, const struct shape *shape)
{
    const uint64_t seed = shape->seed;
    const struct kernels *k;
    struct lm *lm;
    struct err e;

    *s = (struct sim){ .r = { .key = seed }, .now = 1000 };
    struct rng *r = &s->r;
    s->fake = (struct fake_options){
        .n_vocab = N_VOCAB, .n_ctx_train = 200, .seed = seed, .max_rows = ask_between(r, 1, 60)
    };
    s->fake.n_layers = shape->plain & NO_PAUSES ? 1 : 1 + (int)(seed % 5);
    s->fake.n_threads = (int)(seed % 3);
    s->fake.n_pages = (uint32_t)ask_between(r, 1, ask_chance(r, 50) ? 8 : 40);
    if (PAGE_TOKENS < 32)
        s->fake.n_pages *= 32 / PAGE_TOKENS / 2;
    s->o = (struct engine_options){ .max_batch = ask_between(r, 1, 10),
        .max_batch_tokens = ask_between(r, 1, 70),
        .prefill_chunk = ask_between(r, 1, 50),
        .max_queue = ask_between(r, 0, 20),
        .max_queue_tokens = ask_chance(r, 80) ? 1 << 20 : ask_between(r, 1, 600),
        .n_ctx = ask_chance(r, 30) ? ask_between(r, 5, 90) : 0,
        .max_sequences = ask_between(r, 1, 30),
        .fairness = { ask_chance(r, 40), ask_between(r, -2, 6),
            ask_chance(r, 40) ? ask_between(r, 1, 12) : 0 },
        .age_ns = 2000000000u,
        .stretch_percent = ask_chance(r, 50) ? 100 + (int)rng_below(r, 300) : 0,
        .most_layers = seed % 7 == 0 ? 1 : 0,
        .short_stretch_percent = (const int[]){ 300, 100, 0, 150, 600 }[seed % 5],
        .prefix_cache = ask_chance(r, 80),
        .kv_evict = ask_chance(r, 50) ? EVICT_LRU : EVICT_CLOCK,
        .kv_tenant_share = ask_between(r, 1, 100) };
    s->o.spec = (struct spec_options){ .max = ask_between(r, 0, 9), .by_history = true };
    s->o.spec.min = ask_between(r, 0, s->o.spec.max);
    if (shape->plain & NO_FAIRNESS)
        s->o.fairness = fairness_default;
    if (shape->plain & NO_STRETCH)
        s->o.stretch_percent = 0;
    if (shape->plain & NO_CACHE)
        s->o.prefix_cache = false;
    if (shape->plain & NO_DRAFTS)
        s->o.spec = (struct spec_options){ 0 };
    s->shape = *shape;
    EXPECT_EQ(kernels_choose(&k, "ref", &e), 0);
    EXPECT_EQ(lm_open_fake(&lm, &s->fake, &e), 0);
    EXPECT_EQ(port_open(&s->port, &e), 0);
    EXPECT_EQ(core_open(&s->core, lm, k, &s->o, s->port, &e), 0);
    EXPECT_EQ(sampler_open(&s->sampler, k, N_VOCAB, &e), 0);
    EXPECT_EQ(mailbox_open(&s->reply, &e), 0);
    s->core->clock = fake_clock;
    /* The clock stands still during a step, so nothing is learned; this is what is known. */
    s->core->costs.cost = (struct cost){ (double)rng_below(r, 10), rng_next_unit(r) * 3,
        ask_chance(r, 50) ? rng_next_unit(r) : 0 };
    sched_set_cost(s->core->sched, &s->core->costs.cost);
}

/* Takes away what the shape leaves out. */
static void reshape(struct life *f, const struct shape *shape, bool is_dropped)
{
    if (is_dropped) {
        f->is_done = true;
        f->arrives = -1;
    }
    if (is_storm && f->cancels < 0)
        f->cancels = f->arrives + (int)(f->ask.in.sample.seed % 40);
    if (shape->plain & NO_CANCELS || is_dropped)
        f->cancels = -1;
    if (shape->plain & NO_STOPPED_CHOICES)
        f->stops_choice = -1;
    if (shape->plain & NOBODY_SLOW)
        f->is_slow = false;
    if (shape->plain & ONE_CHOICE)
        f->ask.in.n_choices = 1;
    if (shape->plain & NO_DEADLINES)
        f->ask.in.deadline_ns = 0;
    if (shape->plain & NO_SCRIPTS)
        f->ask.in.script = NULL;
    if (shape->plain & NO_DRAFTS)
        f->ask.in.want_drafts = false;
    f->ask.in.n_prompt = MIN(f->ask.in.n_prompt, shape->prompt);
    f->ask.in.max_tokens = MIN(f->ask.in.max_tokens, shape->out);
}

static void invent_asks(struct sim *s)
{
    struct ask_limits l = { .n_vocab = N_VOCAB,
        .max_prompt = ask_between(&s->r, 1, ASK_PROMPT),
        .max_out = ask_between(&s->r, 1, ASK_OUT),
        .max_choices = ASK_CHOICES,
        .with_scripts = true };
    int n_tenants = ask_chance(&s->r, 60) ? 1 : ask_between(&s->r, 2, 5);
    int spread = ask_between(&s->r, 0, 60);

    s->n_asks = ask_between(&s->r, 1, MAX_ASKS);
    for (int i = 0; i < s->n_asks; i++) {
        struct life *f = &s->life[i];
        ask_random(&f->ask, &s->r, &l);
        f->ask.in.tenant = rng_below(&s->r, (uint64_t)n_tenants);
        f->ask.in.tenant_weight = f->ask.in.tenant == 1 ? 2 : 1;
        f->arrives = ask_between(&s->r, 0, spread);
        f->cancels = ask_chance(&s->r, 15) ? f->arrives + ask_between(&s->r, 0, 60) : -1;
        f->stops_choice = ask_chance(&s->r, 10) ? f->arrives + ask_between(&s->r, 0, 40) : -1;
        f->follows = ask_chance(&s->r, 60) ? ask_between(&s->r, 0, i) - 1 : -1;
        f->is_slow = ask_chance(&s->r, 30);
        f->ask.in.want_drafts = ask_chance(&s->r, 60);
        if (ask_chance(&s->r, 12))
            f->ask.in.deadline_ns = s->now + rng_below(&s->r, 60) * 1000000000u;
        reshape(f, &s->shape, s->shape.dropped >> i & 1);
        f->is_cut = f->cancels >= 0 || f->stops_choice >= 0 || f->ask.in.deadline_ns;
        for (int c = 0; c < ASK_CHOICES; c++)
            f->rank[c] = INT64_MIN;
    }
}

/* What it will answer, with mistakes, as the client's prediction. */
static void predict(struct sim *s, struct life *f)
{
    int n = ask_chance(&s->r, 40) ? f->want.choice[0].n : 0;

    for (int i = 0; i < n; i++)
        f->predicted[i] = ask_chance(&s->r, 15) ? ask_between(&s->r, -2, N_VOCAB + 2)
                                                : f->want.choice[0].token[i];
    f->ask.in.predicted = f->predicted;
    f->ask.in.n_predicted = n;
}

static void submit(struct sim *s, struct life *f)
{
    struct err e;
    const struct life *before = f->follows >= 0 ? &s->life[f->follows] : NULL;
    if (before && before->is_known)
        ask_follow(
            &f->ask, &s->r, &before->ask, before->want.choice[0].token, before->want.choice[0].n);
    bool fits = f->ask.in.n_prompt + (f->ask.in.max_tokens > 0) <= s->port->n_ctx;

    if (fits) {
        ask_answer(&f->ask, &s->fake, s->port->n_ctx, s->sampler, &f->want);
        predict(s, f);
    }
    EXPECT_EQ(gen_new(&f->gen, &f->ask.in, s->reply, f, &e), 0);
    for (int i = 0; i < f->ask.in.n_choices; i++) { /* few events, so that they run out */
        struct choice *ch = &f->gen->choice[i];
        int n = ask_between(&s->r, 1, 12);
        ch->n_events = ch->credits = MIN(ch->n_events, n);
    }
    if (port_submit(s->port, f->gen, s->now, &e)) {
        EXPECT(fits ? e.code == ERR_OVERLOADED : e.code == ERR_CONTEXT);
        int64_t n_tokens = s->port->n_prompt_tokens;
        EXPECT(!fits || s->n_live >= s->port->max_requests ||
               (n_tokens > 0 && n_tokens + f->ask.in.n_prompt > s->o.max_queue_tokens) ||
               (f->ask.in.deadline_ns && s->n_live >= s->port->max_batch));
        gen_free(f->gen);
        f->gen = NULL;
        f->is_done = true;
        met.overloaded += fits;
        met.too_long += !fits;
        return;
    }
    EXPECT(fits);
    EXPECT(++s->n_live <= s->port->max_requests);
    f->came_ns = s->now;
    f->order = s->n_orders++;
    f->is_known = true;
}

/* Notes in which state a request is cancelled, by its first choice. */
static void note_cancel(struct sim *s, const struct life *f)
{
    if (f->gen->is_over || !f->gen->n_live || f->gen->choice[0].seq.i == SEQ_NONE.i)
        return;
    struct seq *q = sched_seq(s->core->sched, f->gen->choice[0].seq);
    met.cancelled_in[q->state]++;
    met.cancelled_filling += q->state == SEQ_RUNNING && q->n_kv < q->n_prompt;
    met.cancelled_paused += q->n_paused > 0;
    met.cancelled_preempted += q->state == SEQ_WAITING && q->n_preempted > 0;
}

static void act(struct sim *s)
{
    for (int i = 0; i < s->n_asks; i++) {
        struct life *f = &s->life[i];
        if (f->arrives == s->step)
            submit(s, f);
        if (!f->gen)
            continue;
        if (f->cancels == s->step) {
            note_cancel(s, f);
            if (does_leak && f->ask.in.n_choices > 1)
                (void)!page_take(s->core->pool).i;
            engine_cancel(NULL, f->gen);
        }
        if (f->stops_choice == s->step)
            engine_stop_choice(NULL, f->gen, ask_between(&s->r, 0, f->ask.in.n_choices - 1));
    }
}

/* ---- the asker's side */

static void send_home(struct sim *s, bool is_all)
{
    int n = 0;

    for (int i = 0; i < s->n_late; i++) {
        if (is_all || ask_chance(&s->r, 20))
            gen_event_done(s->late[i]);
        else
            s->late[n++] = s->late[i];
    }
    s->n_late = n;
}

/* How much of the prompt anybody of its scope had before: no more can be in the cache. */
static int most_cached(const struct sim *s, const struct life *f)
{
    int most = 0;

    for (int i = 0; i < s->n_asks; i++)
        for (int c = 0; s->life[i].is_known && c < s->life[i].ask.in.n_choices; c++) {
            const struct life *g = &s->life[i];
            int n = 0, n_prompt = g->ask.in.n_prompt;
            if (g == f || g->ask.in.is_uncached ||
                memcmp(&g->ask.in.scope, &f->ask.in.scope, sizeof(f->ask.in.scope)) != 0)
                continue;
            while (n < f->ask.in.n_prompt - 1 && n < n_prompt + g->want.choice[c].n &&
                   f->ask.prompt[n] ==
                       (n < n_prompt ? g->ask.prompt[n] : g->want.choice[c].token[n - n_prompt]))
                n++;
            most = MAX(most, n);
        }
    return f->ask.in.is_uncached || !s->o.prefix_cache ? 0 : most;
}

static void check_cached(const struct sim *s, const struct life *f)
{
    int n = gen_result(f->gen)->n_cached, most = most_cached(s, f);

    EXPECT(n >= 0 && n <= most);
    if (f->ask.in.want_prompt_logprobs && !f->ask.in.script)
        EXPECT_EQ(n, 0);
    met.cached += (uint64_t)n;
    met.cached_whole += n == most;
}

static void end(struct sim *s, struct life *f)
{
    int n = 0;

    for (int i = 0; i < s->n_late; i++) /* all events come home before the request is freed */
        if (s->late[i]->gen == f->gen)
            gen_event_done(s->late[i]);
        else
            s->late[n++] = s->late[i];
    s->n_late = n;
    expect_same_answer(&f->got, &f->want, f->ask.in.n_choices);
    check_cached(s, f);
    for (int i = 0; i < f->ask.in.n_choices; i++)
        EXPECT(f->is_cut || f->got.choice[i].finish < FINISH_CANCELLED);
    enum errcode code = gen_result(f->gen)->err.code;
    EXPECT(code == ERR_NONE || (code == ERR_CANCELLED && f->cancels >= 0) ||
           (code == ERR_TIMEOUT && f->ask.in.deadline_ns <= s->now) ||
           (code == ERR_OVERLOADED && f->ask.in.deadline_ns && !gen_result(f->gen)->started_ns));
    met.cancelled += code == ERR_CANCELLED;
    met.timed_out += code == ERR_TIMEOUT;
    met.dropped += code == ERR_OVERLOADED;
    met.whole += !f->is_cut;
    gen_free(f->gen);
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
        struct life *f = gen_user(ev->gen);
        answer_take(&f->got, ev);
        if (m->kind == GEN_END)
            end(s, f);
        else if (!f->is_slow || s->n_late == (int)ARRAY_LEN(s->late))
            gen_event_done(ev);
        else if (m->kind != GEN_CHOICE_END)
            s->late[s->n_late++] = ev;
    }
}

/* ---- invariants */

struct before {       /* of a step */
    seq_id highest;   /* that runs. It always gets a row, whatever pages and rows the others want */
    bool is_decoding; /* something that runs */
    uint64_t preemptions;
};

static struct before look(struct sim *s)
{
    struct before b = { SEQ_NONE, false, s->port->stats.preemptions };

    for (int i = 0; i < s->n_asks; i++)
        for (int c = 0; s->life[i].gen && c < s->life[i].ask.in.n_choices; c++) {
            seq_id id = s->life[i].gen->choice[c].seq;
            if (id.i == SEQ_NONE.i)
                continue;
            struct seq *q = sched_seq(s->core->sched, id);
            if (q->state != SEQ_RUNNING)
                continue;
            b.is_decoding |= q->n_tokens - q->n_kv == 1;
            if (b.highest.i == SEQ_NONE.i ||
                seq_is_before(q, sched_seq(s->core->sched, b.highest), s->now, s->o.age_ns))
                b.highest = id;
        }
    return b;
}

static void check_plan(struct sim *s)
{
    const struct plan *p = &s->core->plan;
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

/* What fills beside those that decode adds no more than it may, beyond the rows of one, or the
 * layer of a row, that it gets in any case. */
static void check_riders(struct sim *s, const struct before *before)
{
    const struct plan *p = &s->core->plan;
    const struct cost *c = &s->core->costs.cost;
    struct step_size alone = { 0 };
    double ridden = 0, least = 0;

    const int most = MAX(s->o.stretch_percent, s->o.short_stretch_percent);

    if (!s->o.stretch_percent || !s->o.short_stretch_percent || !before->is_decoding)
        return;
    if (s->port->stats.preemptions > before->preemptions || p->n_turns > 0)
        return; /* some that decode were planned with, and lost their pages again */
    for (int i = 0; i < p->n_runs; i++) {
        const struct plan_run *r = &p->runs[i];
        int n = r->n - r->n_drafts;
        bool is_filling = n > 1 || !r->is_whole;
        struct step_size size = { 0 };
        step_size_add(is_filling ? &size : &alone, r->pos, n);
        int n_layers = r->end_layer ? r->end_layer - r->from_layer : s->fake.n_layers;
        double added = (cost_of(c, &size) - c->fixed) * n_layers / s->fake.n_layers;
        if (is_filling)
            ridden += added;
        if (is_filling && (r->end_layer ? n_layers == 1 : r->n <= RIDING_ROWS_MIN))
            least = MAX(least, added);
        met.riders += is_filling;
    }
    EXPECT(ridden - least <= cost_of(c, &alone) * (most / 100.0 - 1) + 1e-6);
}

static int64_t rank_of_new(const struct sim *s, const struct life *f)
{
    return f->ask.in.priority + (int64_t)((s->now - f->came_ns) / s->o.age_ns);
}

/* It was let in, or has ended. */
static bool has_begun(const struct sim *s, const struct life *f)
{
    seq_id id = f->gen->choice[0].seq;

    if (f->gen->is_over || id.i == SEQ_NONE.i || gen_result(f->gen)->started_ns)
        return true;
    return !sched_seq(s->core->sched, id)->is_fresh;
}

/* Of a tenant and those that never ran, nobody is let in before one of higher rank, or of the
 * same who came earlier. */
static void check_starts(struct sim *s)
{
    for (int i = 0; i < s->n_asks; i++) {
        struct life *f = &s->life[i];
        if (!f->gen || f->is_started || f->gen->is_over || !has_begun(s, f))
            continue;
        for (int j = 0; j < s->n_asks; j++) {
            struct life *g = &s->life[j];
            if (!g->gen || g == f || g->is_started || has_begun(s, g) ||
                f->ask.in.tenant != g->ask.in.tenant)
                continue;
            int64_t a = rank_of_new(s, f), b = rank_of_new(s, g);
            EXPECT(a > b || (a == b && f->order < g->order));
        }
    }
    for (int i = 0; i < s->n_asks; i++)
        if (s->life[i].gen)
            s->life[i].is_started = has_begun(s, &s->life[i]);
}

/* Ranks never fall. */
static void check_ranks(struct sim *s)
{
    for (int i = 0; i < s->n_asks; i++) {
        struct life *f = &s->life[i];
        for (int c = 0; f->gen && c < f->ask.in.n_choices; c++) {
            seq_id id = f->gen->choice[c].seq;
            if (f->gen->is_over || id.i == SEQ_NONE.i || !f->gen->n_live)
                continue;
            int64_t rank = seq_rank(sched_seq(s->core->sched, id), s->now, s->o.age_ns);
            EXPECT(rank >= f->rank[c]);
            f->rank[c] = rank;
        }
    }
}

static void check_in_plan(struct sim *s, seq_id id)
{
    bool is_in = id.i == SEQ_NONE.i;

    for (int i = 0; i < s->core->plan.n_runs; i++)
        is_in |= s->core->plan.runs[i].seq.i == id.i;
    /* Unless it gave its turn away, or its pages to one who got a turn. */
    EXPECT(is_in || s->core->plan.n_turns > 0);
}

static void check(struct sim *s, bool has_run)
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
    met.parked += n.parked;
    met.delayed += n.delayed;
    met.held += n.held;
    /* Work conserving: a step without rows means that nothing could have run. */
    if (!has_run)
        EXPECT(n.running == 0 && n.waiting == 0);
    check_ranks(s);
}

/* ---- one life of the engine */

static void run_step(struct sim *s)
{
    act(s);
    core_drain(s->core, s->now);
    read_events(s);
    /* A cancelled request is gone as soon as its message is read. */
    for (int i = 0; i < s->n_asks; i++)
        EXPECT(!s->life[i].gen || s->life[i].cancels != s->step);
    s->core->stop = ask_chance(&s->r, 3) && !(s->shape.plain & NO_INTERRUPTS);
    struct before before = look(s);
    bool has_run = core_step(s->core, s->now);
    check_in_plan(s, before.highest);
    met.steps += has_run;
    met.stopped += has_run && s->core->stop;
    if (has_run) {
        check_plan(s);
        check_riders(s, &before);
        met.copies += (uint64_t)s->core->plan.n_copies;
    }
    check_starts(s);
    read_events(s);
    check(s, has_run);
    send_home(s, ask_chance(&s->r, 3));
    s->now += rng_below(&s->r, 10) ? rng_below(&s->r, 50000000) : rng_below(&s->r, 3000000000u);
    s->step++;
}

static bool is_all_done(const struct sim *s)
{
    for (int i = 0; i < s->n_asks; i++)
        if (!s->life[i].is_done)
            return false;
    return true;
}

static void close_sim(struct sim *s)
{
    core_close(s->core);
    port_unref(s->port);
    sampler_close(s->sampler);
    mailbox_close(s->reply);
}

static void run_shape(const struct shape *shape)
{
    struct sim *s = &sim;
    struct engine_audit a;

    open_sim(s, shape);
    invent_asks(s);
    while (!is_all_done(s)) {
        EXPECT(s->step < 20000); /* somebody starves */
        run_step(s);
    }
    core_drain(s->core, s->now); /* the memory of the last ones */
    core_audit(s->core, &a);
    EXPECT(a.ok && a.pages_owned == 0 && a.sequences == 0);
    EXPECT_EQ(s->port->n_requests, 0);
    EXPECT_EQ(s->port->n_seqs, 0);
    EXPECT_EQ(s->port->n_prompt_tokens, 0);
    struct sched_counts n;
    sched_counts(s->core->sched, &n);
    met.pauses += n.pauses;
    met.pauses_lost += n.pauses_lost;
    met.preemptions += s->port->stats.preemptions;
    met.drafted += draft_sum(&s->port->stats).drafted;
    met.accepted += draft_sum(&s->port->stats).accepted;
    close_sim(s);
}

static struct shape whole(uint64_t seed)
{
    return (struct shape){ .seed = seed, .prompt = ASK_PROMPT, .out = ASK_OUT };
}

static void run_seed(uint64_t seed)
{
    struct shape s = whole(seed);

    run_shape(&s);
}

static int n_left(const struct shape *shape)
{
    return MAX_ASKS - __builtin_popcount(shape->dropped & ((1u << MAX_ASKS) - 1));
}

/* The requests of a shape, and how to see it run again. */
static void tell(const struct shape *shape)
{
    struct sim *s = &sim;

    open_sim(s, shape);
    invent_asks(s);
    printf("test_sim %llu %x %x %d %d: %d running together, %u pages, %d rows a step\n",
        (unsigned long long)shape->seed, shape->dropped, shape->plain, shape->prompt, shape->out,
        s->o.max_batch, s->fake.n_pages, MIN(s->o.max_batch_tokens, s->fake.max_rows));
    for (int i = 0; i < s->n_asks; i++) {
        const struct life *f = &s->life[i];
        if (shape->dropped >> i & 1)
            continue;
        printf("  request %d comes at step %d: %d tokens, at most %d to come, %d choices, "
               "priority %d, tenant %d",
            i, f->arrives, f->ask.in.n_prompt, f->ask.in.max_tokens, f->ask.in.n_choices,
            f->ask.in.priority, (int)f->ask.in.tenant);
        if (f->cancels >= 0)
            printf(", cancelled at step %d", f->cancels);
        if (f->stops_choice >= 0)
            printf(", a choice stopped at step %d", f->stops_choice);
        printf("%s%s%s\n", f->is_slow ? ", slow" : "", f->ask.in.script ? ", a script" : "",
            f->ask.in.deadline_ns ? ", a deadline" : "");
    }
    close_sim(s);
}

static uint64_t running_seed;

/* Of the seed that failed. */
static void say_seed(void)
{
    struct shape s = whole(running_seed);

    if (!running_seed)
        return;
    fprintf(stderr, "test_sim: seed %lu\n", (unsigned long)running_seed);
    if (!shape_fails(&s, run_shape))
        return;
    shape_shrink(&s, MAX_ASKS, run_shape);
    tell(&s);
}

static struct shape only; /* seed 0: all */
#ifdef TESTING
static uint64_t n_seeds = 1500;
#else
static uint64_t n_seeds = 10000;
#endif

static void every_seed_keeps_every_promise(void)
{
    uint64_t first = only.seed ? only.seed : 1, last = only.seed ? only.seed : n_seeds;

    if (only.prompt) {
        run_shape(&only);
        return;
    }
    for (running_seed = first; running_seed <= last; running_seed++)
        run_seed(running_seed);
    running_seed = 0;
    printf("%lu steps, %lu whole answers, %lu preempted, %lu copies, %lu cut passes\n"
           "%lu cancelled, %lu timed out, %lu overloaded, %lu too long, %lu of %lu guesses right\n"
           "%lu prompt tokens found, all that could be in %lu requests\n"
           "%lu pauses between layers, %lu lost, %lu cancelled in one\n",
        met.steps, met.whole, met.preemptions, met.copies, met.stopped, met.cancelled,
        met.timed_out, met.overloaded, met.too_long, met.accepted, met.drafted, met.cached,
        met.cached_whole, met.pauses, met.pauses_lost, met.cancelled_paused);
    if (!only.seed && n_seeds >= 1000) {
        EXPECT(met.whole > 5 * n_seeds && met.preemptions > n_seeds && met.copies > n_seeds);
        EXPECT(met.riders > 5 * n_seeds);
        EXPECT(met.pauses > 5 * n_seeds && met.pauses_lost > n_seeds / 10);
        EXPECT(met.cancelled_paused > 0);
        EXPECT(met.parked > n_seeds && met.delayed > n_seeds && met.held > n_seeds);
        EXPECT(met.stopped > n_seeds && met.cancelled > n_seeds / 2);
        EXPECT(met.timed_out > n_seeds / 10 && met.dropped > n_seeds / 1000 &&
               met.overloaded > n_seeds / 10);
        EXPECT(met.too_long > n_seeds / 10);
        EXPECT(met.accepted > n_seeds && met.drafted > met.accepted);
        EXPECT(met.cached > 7 * n_seeds);
        for (int i = SEQ_WAITING; i <= SEQ_DELAYED; i++)
            EXPECT(met.cancelled_in[i] > 0);
        EXPECT(met.cancelled_filling > 0 && met.cancelled_preempted > 0);
    }
}

/* What was found once, as it was told. */
static void what_failed_once_does_not_again(void)
{
    static const struct shape once[] = {
        /* A choice brought its pages to the cache after they were shared with the others. */
        { 38821, 0xff79fb, 0x5d7, 23, 11 },
    };

    for (size_t i = 0; i < ARRAY_LEN(once) && !only.seed; i++)
        run_shape(&once[i]);
}

/* A scheduler that is broken on purpose: what is left of the failure is what it takes. */
static void a_failure_is_made_small(void)
{
    struct shape s;

    if (only.seed)
        return;
    does_leak = true;
    for (uint64_t seed = 1;; seed++) {
        EXPECT(seed < 200);
        s = whole(seed);
        if (shape_fails(&s, run_shape))
            break;
    }
    shape_shrink(&s, MAX_ASKS, run_shape);
    bool is_same = shape_fails(&s, run_shape);
    does_leak = false;
    bool is_honest = !shape_fails(&s, run_shape);
    tell(&s);
    EXPECT(is_same && is_honest);
    EXPECT(n_left(&s) <= 4); /* the one that is cancelled, and perhaps some that hold it up */
    EXPECT(!(s.plain & NO_CANCELS) && !(s.plain & ONE_CHOICE));
    EXPECT(s.prompt <= 16 && s.out <= ASK_OUT);
}

/* Every request is cancelled, in whatever it is at. SIM_CANCELS says how many. */
static void a_storm_of_cancels_leaves_nothing(void)
{
    uint64_t n = getenv("SIM_CANCELS") ? strtoull(getenv("SIM_CANCELS"), NULL, 10) : 3000;
    uint64_t before = met.cancelled;

    if (only.seed)
        return;
    is_storm = true;
    for (running_seed = 1; met.cancelled - before < n; running_seed++)
        run_seed(running_seed); /* which ends with all pages, sequences and requests at home */
    printf("%lu cancelled in %lu runs\n", met.cancelled - before, running_seed - 1);
    running_seed = 0;
    is_storm = false;
}

/* test_sim [SEED [DROPPED PLAIN PROMPT OUT]]: one run, as a failure was told. */
int main(int argc, char **argv)
{
    static const struct check_test tests[] = { TEST(every_seed_keeps_every_promise),
        TEST(what_failed_once_does_not_again), TEST(a_failure_is_made_small),
        TEST(a_storm_of_cancels_leaves_nothing) };

    log_set_level(LOG_WARN);
    if (argc > 1)
        only.seed = strtoull(argv[1], NULL, 10);
    if (argc == 6) {
        only.dropped = (uint32_t)strtoul(argv[2], NULL, 16);
        only.plain = (unsigned)strtoul(argv[3], NULL, 16);
        only.prompt = (int)strtol(argv[4], NULL, 10);
        only.out = (int)strtol(argv[5], NULL, 10);
    }
    if (getenv("SIM_SEEDS"))
        n_seeds = strtoull(getenv("SIM_SEEDS"), NULL, 10);
    int failed = check_main(tests, ARRAY_LEN(tests), 1, argv);
    if (is_child)
        _exit(1);
    say_seed();
    return failed;
}
