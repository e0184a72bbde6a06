#include "engine/spec/spec.h"
#include "base/mem.h"
#include "engine/spec/draft_forced.h"
#include "engine/spec/row_cost.h"
#include "os/clock.h"

#include <math.h>

enum {
    STEP_DRAFTS_MAX = 64, /* draft tokens of one step, over all sequences */
    BUDGETS = 2, /* budgets that share SPEC_BUDGET_MAX; only constrained requests use a third */
    BASE_STEPS_FIRST = 16, /* steps without drafts before the first drafts, to measure the noise */
    /* One step in so many has no drafts; 4 times as many if drafts gain much. */
    BASE_STEP_EVERY = 8,
    PAIRS_MIN = 6, /* with fewer measured pairs, every other step has no drafts */
    GAIN_DECAY_STEPS = 64,
};

enum { FORCED, TEXT, OTHER, N_DRAFTERS }; /* asked in this order */

/* Margin above the estimated row cost in standard errors: to choose the number of drafts and to
 * account for them, and to bound their possible loss. */
static const double COST_MARGIN = 1.5, COST_MARGIN_MAX = 2;

/* Times are in units of a step without drafts unless their name ends in _ns. */
struct spec {
    struct spec_options o;
    struct drafter *drafters[N_DRAFTERS]; /* NULL = none */
    struct row_cost row_model;            /* marginal row cost */
    double base_step_ns;                  /* moving average of a step without drafts */
    int n_base_steps;                     /* such steps measured, up to BASE_STEPS_FIRST */
    double budget[N_DRAFTERS];            /* loss that the drafter may still cause */
    double recent_gain[N_DRAFTERS];       /* recent gains, decaying, independent of spending */
    int n_draft_steps;                    /* consecutive steps with drafts */
    int max_draft_steps;                  /* limit of n_draft_steps */
    struct draft_acceptance model;        /* acceptance of the draft model, over all sequences */
    int first_run; /* first run that drafts if more than SPEC_SEQS runs can draft */

    /* The step being planned. */
    int base_rows; /* rows without drafts */
    /* Cost of one more row, estimated and with the largest margin. */
    double row_share, row_share_max;
    double max_added;      /* time that all drafts may add */
    int max_per_seq;       /* drafts of one sequence, so that every sequence gets some */
    double draft_ns;       /* time of the drafters in this step */
    double draft_token_ns; /* moving average per token of the draft model */
    struct draft_job jobs[N_DRAFTERS][SPEC_SEQS];
    int run_of[N_DRAFTERS][SPEC_SEQS];
    int n_jobs[N_DRAFTERS];
};

int spec_open(struct spec **out, const struct spec_options *o, struct err *e)
{
    struct spec *sp = xcalloc(1, sizeof(*sp));

    sp->o = *o;
    sp->max_draft_steps = BASE_STEP_EVERY;
    for (int d = 0; d < N_DRAFTERS; d++)
        sp->budget[d] = (double)SPEC_BUDGET_MAX / BUDGETS;
    sp->drafters[FORCED] = &draft_forced;
    sp->drafters[TEXT] = o->by_history ? &draft_text : NULL;
    sp->drafters[OTHER] = o->drafter;
    if (o->max < 0 || o->max > DRAFT_MAX || o->min < 0) {
        spec_close(sp);
        return err_param(e, ERR_RANGE, "draft_max", "%d to %d draft tokens per draft; at most %d",
            o->min, o->max, (int)DRAFT_MAX);
    }
    *out = sp;
    return 0;
}

void spec_close(struct spec *sp)
{
    for (int i = 0; sp && i < N_DRAFTERS; i++)
        if (sp->drafters[i])
            sp->drafters[i]->ops->close(sp->drafters[i]);
    mem_free(sp);
}

void spec_seq_end(struct spec *sp, const struct gen_choice *ch)
{
    for (int i = 0; i < N_DRAFTERS; i++)
        if (sp->drafters[i])
            sp->drafters[i]->ops->forget(sp->drafters[i], choice_key(ch));
}

/* ---- number of draft tokens */

struct step_load { /* the step as chosen so far */
    int n_drafts;
    double tokens;   /* expected output tokens */
    double drafting; /* time of the draft model for them */
};

static double ns_in_steps(const struct spec *sp, double ns)
{
    return sp->base_step_ns > 0 ? ns / sp->base_step_ns : 0;
}

static double load_time(const struct spec *sp, const struct step_load *l)
{
    return 1 + l->n_drafts * sp->row_share + l->drafting;
}

/* Adds the best number of drafts, 0 .. n_max, to the load and returns it. If all are rejected, the
 * step loses at most `may_lose`. */
static int choose_n_drafts(const struct spec *sp, struct step_load *l, double acceptance,
    double drafting, int n_max, double may_lose)
{
    struct step_load at = *l, best = *l;
    /* Required improvement: 5 % with one row, 10 % of one row's tokens with many. */
    double best_rate = l->tokens / load_time(sp, l) * (1 + 0.1 / (1 + sp->base_rows)),
           probability = 1;

    while (at.n_drafts - l->n_drafts < MIN(n_max, STEP_DRAFTS_MAX - l->n_drafts)) {
        probability *= acceptance;
        at.n_drafts++;
        at.tokens += probability;
        at.drafting += drafting;
        if (at.n_drafts * sp->row_share > sp->max_added ||
            at.n_drafts * sp->row_share_max + at.drafting > may_lose)
            break;
        if (at.tokens / load_time(sp, &at) > best_rate) {
            best = at;
            best_rate = at.tokens / load_time(sp, &at);
        }
    }
    int n = best.n_drafts - l->n_drafts;
    *l = best;
    return n;
}

/* ---- acceptance rates */

/* Acceptance rate of drafts from `source`. The prior for the draft model is its rate over all
 * sequences; for text sources it is per source, since texts differ. */
static double acceptance_of(
    const struct spec *sp, const struct draft_seq *s, enum draft_source source)
{
    const struct draft_acceptance *g = &s->acceptance_by_source[DRAFT_MODEL];

    if (source != DRAFT_MODEL)
        return draft_seq_acceptance(s, source);
    double prior = (sp->model.hits + 1.2) / (sp->model.tries + 2);
    return (g->hits + 2 * prior) / (g->tries + 2);
}

void spec_add_result(struct spec *sp, struct gen_choice *ch, int n, int n_accepted)
{
    draft_seq_add_result(&ch->draft, ch->draft_source, n, n_accepted);
    if (ch->draft_source != DRAFT_MODEL)
        return;
    sp->model.hits = sp->model.hits * 0.99f + (float)n_accepted;
    sp->model.tries = sp->model.tries * 0.99f + (float)(n_accepted + (n_accepted < n));
}

/* ---- selection of runs and drafters */

static bool may_draft(const struct plan_run *r, const struct gen_choice *ch)
{
    const struct gen *g = ch->gen;

    return r->n == 1 && r->yields_token && g->is_forked && !g->in.script &&
           ch->n_out + 1 < g->max_out;
}

static struct draft_job job_for(const struct spec *sp, struct gen_choice *ch)
{
    struct gen *g = ch->gen;
    int n = g->in.n_prompt + ch->n_out;

    return (struct draft_job){ .seq = &ch->draft,
        .key = choice_key(ch),
        .tokens = ch->tokens,
        .n = n,
        .n_prompt = g->in.n_prompt,
        .sample = &g->in.sample,
        .constraint = choice_constraint(ch),
        .choice = ch->index,
        .user = g->user,
        .n_max = MIN(MIN(sp->o.max, sp->max_per_seq), g->max_out - ch->n_out - 1),
        .out = ch->tokens + n };
}

/* A drafter without budget is disabled until the budget has recovered. */
static bool has_budget(const struct spec *sp, int d)
{
    return sp->drafters[d] && (sp->o.min > 0 || sp->budget[d] > 0);
}

/* Offers run i to a drafter. Returns false if it has no draft or drafting does not pay. */
static bool try_drafter(
    struct spec *sp, struct sched *sc, struct step_plan *p, int i, int d, struct step_load *l)
{
    struct gen_choice *ch = sched_seq(sc, p->runs[i].seq)->user;
    struct draft_job job = job_for(sp, ch);
    struct step_load before = *l;
    int n_offered = sp->drafters[d]->ops->offer(sp->drafters[d], &job);

    if (n_offered <= 0)
        return false;
    CHECK(n_offered <= job.n_max);
    double acceptance = acceptance_of(sp, &ch->draft, job.source);
    if (d == TEXT && has_budget(sp, OTHER) &&
        acceptance < acceptance_of(sp, &ch->draft, DRAFT_MODEL))
        return false; /* the draft model is more likely to be right */
    double drafting = job.source == DRAFT_MODEL ? ns_in_steps(sp, sp->draft_token_ns) : 0;
    int n = choose_n_drafts(sp, l, acceptance, drafting, n_offered, sp->budget[d]);
    n = sched_extend(sc, p, i, MAX(n, MIN(sp->o.min, n_offered)));
    if (n == 0) {
        *l = before;
        return false;
    }
    job.n_max = n;
    ch->draft_source = job.source;
    sp->run_of[d][sp->n_jobs[d]] = i;
    sp->jobs[d][sp->n_jobs[d]++] = job;
    return true;
}

static void collect_jobs(struct spec *sp, struct sched *sc, struct step_plan *p)
{
    struct step_load l = { .tokens = sp->base_rows };
    int n_asked = 0;

    for (int j = 0; j < p->n_runs && n_asked < SPEC_SEQS; j++) {
        int i = (sp->first_run + j) % p->n_runs;
        struct gen_choice *ch = sched_seq(sc, p->runs[i].seq)->user;
        if (!may_draft(&p->runs[i], ch))
            continue;
        n_asked++;
        bool has_drafts = false;
        for (int d = choice_constraint(ch) ? FORCED : TEXT; d < N_DRAFTERS && !has_drafts; d++)
            has_drafts = has_budget(sp, d) && try_drafter(sp, sc, p, i, d, &l);
        if (!has_drafts)
            draft_seq_decay(&ch->draft);
    }
    sp->max_draft_steps = sp->row_model.n_pairs < PAIRS_MIN                    ? 1
                          : l.tokens > 1.5 * sp->base_rows * load_time(sp, &l) ? 4 * BASE_STEP_EVERY
                                                                               : BASE_STEP_EVERY;
    sp->first_run = p->n_runs > SPEC_SEQS ? (sp->first_run + n_asked) % p->n_runs : 0;
}

/* ---- drafting */

/* Removes the rows of tokens that were not proposed or are outside the vocabulary. */
static void trim_job(
    struct sched *sc, struct step_plan *p, const struct draft_job *job, int i, int n_vocab)
{
    int n = 0;

    CHECK(job->n_out >= 0 && job->n_out <= job->n_max);
    while (n < job->n_out && job->out[n] >= 0 && job->out[n] < n_vocab)
        n++;
    sched_retract(sc, p, i, p->runs[i].n_drafts - n);
}

static void run_drafter(
    struct spec *sp, struct sched *sc, struct step_plan *p, int d, const _Atomic bool *stop)
{
    bool is_timed = sp->drafters[d] && sp->drafters[d] == sp->o.drafter;
    bool is_free = false;
    int n = 0;

    if (sp->n_jobs[d] == 0)
        return;
    uint64_t start = is_timed ? clock_ns() : 0;
    sp->drafters[d]->ops->propose(sp->drafters[d], sp->jobs[d], sp->n_jobs[d], stop);
    for (int j = 0; j < sp->n_jobs[d]; j++) {
        n += sp->jobs[d][j].n_out;
        is_free |= sp->jobs[d][j].is_prompt;
        trim_job(sc, p, &sp->jobs[d][j], sp->run_of[d][j], sp->o.n_vocab);
    }
    /* Copying tokens takes negligible time. The prefill of the draft model is done once per prompt,
     * which the gain of a few steps cannot pay, so it is not accounted. */
    if (!is_timed || is_free)
        return;
    sp->draft_ns = (double)(clock_ns() - start);
    if (n > 0)
        sp->draft_token_ns += (sp->draft_ns / n - sp->draft_token_ns) / 8;
}

static void set_limits(struct spec *sp, const struct step_plan *p)
{
    double room = STEP_DRAFTS_MAX;

    sp->max_added = p->n_runs > 1 ? SPEC_STEP_FACTOR - 1 : INFINITY;
    if (p->n_runs > 1) /* the row cost may be nearly 0 */
        room = MIN(sp->max_added / sp->row_share, room);
    sp->max_per_seq = MAX(((int)room + p->n_runs - 1) / p->n_runs, sp->o.min);
}

/* Margin minus the exploration bonus, which grows while no drafts are tried. */
static double plan_margin(const struct spec *sp)
{
    if (sp->row_model.n_pairs < PAIRS_MIN)
        return 0;
    return COST_MARGIN - row_cost_exploration(&sp->row_model);
}

/* True if drafts would pay if all were accepted. */
static bool may_pay(struct spec *sp, const struct step_plan *p)
{
    struct step_load l = { .tokens = p->n_rows };

    sp->row_share = row_cost_share(&sp->row_model, p->n_rows, plan_margin(sp));
    sp->row_share_max = row_cost_share(&sp->row_model, p->n_rows, COST_MARGIN_MAX);
    set_limits(sp, p);
    if (sp->o.min > 0)
        return true;
    if (p->has_prefill || p->n_rows > SPEC_ROWS_MAX)
        return false;
    /* The time without drafts is known well and is measured again periodically. */
    if (sp->n_base_steps < BASE_STEPS_FIRST || sp->n_draft_steps >= sp->max_draft_steps)
        return false;
    return choose_n_drafts(sp, &l, 1, 0, sp->o.max, INFINITY) > 0;
}

void spec_plan(struct spec *sp, struct sched *sc, struct step_plan *p, const _Atomic bool *stop)
{
    sp->base_rows = p->n_rows;
    sp->draft_ns = 0;
    memset(sp->n_jobs, 0, sizeof(sp->n_jobs));
    if (sp->o.max == 0 || p->n_runs == 0 || !may_pay(sp, p))
        return;
    collect_jobs(sp, sc, p);
    for (int d = 0; d < N_DRAFTERS; d++)
        run_drafter(sp, sc, p, d, stop);
}

/* A drafter with large recent gains may hold a larger budget, so that one bad draft does not
 * disable it for long. */
static void update_budget(struct spec *sp, int d, double gain)
{
    double *recent_gain = &sp->recent_gain[d];

    *recent_gain += MAX(gain, 0) - *recent_gain / GAIN_DECAY_STEPS;
    sp->budget[d] = MIN(
        sp->budget[d] + gain, SPEC_BUDGET_MAX + MIN(*recent_gain / 4, (double)SPEC_BUDGET_EXTRA));
}

/* Gain of a step with drafts: accepted tokens minus the cost of the rows, with margin, and of
 * drafting. The measured time of the single step is too noisy to be used. Half of a gain counts,
 * all of a loss. */
static double gain_of(const struct spec *sp, const struct step_plan *p, int n_accepted)
{
    int n = p->n_rows - sp->base_rows;
    double gain = (double)n_accepted / sp->base_rows -
                  n * row_cost_share(&sp->row_model, sp->base_rows, COST_MARGIN) -
                  ns_in_steps(sp, sp->draft_ns);

    return gain > 0 ? gain / 2 : gain;
}

static void add_base_step(struct spec *sp, double ns)
{
    sp->n_base_steps = MIN(sp->n_base_steps + 1, (int)BASE_STEPS_FIRST);
    if (sp->base_step_ns > 0) /* limits outliers */
        sp->base_step_ns += (MIN(ns, 2 * sp->base_step_ns) - sp->base_step_ns) / 4;
    else
        sp->base_step_ns = ns;
    row_cost_age(&sp->row_model);
}

void spec_add_step(struct spec *sp, const struct step_plan *p, uint64_t step_ns, int n_accepted)
{
    double ns = (double)step_ns, gain = 1.0 / SPEC_BUDGET_STEPS / BUDGETS;
    bool has_drafts = p->n_rows > sp->base_rows || sp->draft_ns > 0;

    if (p->has_prefill || p->n_rows > SPEC_ROWS_MAX) {
        row_cost_skip(&sp->row_model);
        return;
    }
    row_cost_add(&sp->row_model, p->n_rows, ns);
    sp->n_draft_steps = has_drafts ? sp->n_draft_steps + 1 : 0;
    if (has_drafts)
        gain = gain_of(sp, p, n_accepted);
    else
        add_base_step(sp, ns);
    for (int d = 0; d < N_DRAFTERS; d++)
        if (!has_drafts || sp->n_jobs[d] > 0)
            update_budget(sp, d, gain);
}
