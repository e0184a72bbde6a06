#include "engine/spec/spec.h"
#include "base/mem.h"
#include "engine/spec/slope.h"
#include "os/clock.h"

#include <math.h>

enum {
    SPAN = 64, /* drafts of one step, all sequences together */
    N_DRAFTERS = 2,
    SEEN_FIRST = 16, /* steps without drafts before there are any: they show the noise */
    SEEN_AGAIN = 8,  /* of so many, one more; four times as many where drafts win much */
    PAIRS_FIRST = 6, /* while fewer told what rows cost, every other step is without */
    EARNED_STEPS = 64,
};

/* How much dearer than expected rows are taken to be, in standard deviations: when it is decided
 * and counted what drafts cost, and when it is asked what they may cost at most. */
static const double DOUBT = 1.5, MOST_DOUBT = 2;

/* Where times are not of the clock, they are in steps without drafts. */
struct spec {
    struct spec_options o;
    struct drafter *drafters[N_DRAFTERS]; /* asked in turn; NULL = none */
    struct slope slope;                   /* what rows cost */
    double plain_ns;                      /* a step without drafts, lately */
    int n_plain;                          /* of them, up to SEEN_FIRST */
    double budget[N_DRAFTERS];            /* what it may lose */
    double earned[N_DRAFTERS]; /* went into the budget lately, whatever was spent of it */
    int n_in_a_row;            /* steps with drafts since the last without */
    int n_till_plain;          /* at most so many of them */
    struct draft_grade model;  /* of the drafter that computes, over all sequences */
    int turn;                  /* whose turn it is, when there are more than SPEC_SEQS */

    /* the step being planned */
    int base;             /* rows without drafts */
    double row, most_row; /* what one more adds; with the most doubt */
    double most;          /* that all drafts may add to it */
    int share;            /* drafts of one sequence, so that there are some for all */
    double draft_ns;      /* time that drafting took */
    double token_ns;      /* of one token of the drafter that computes, lately */
    struct draft_job jobs[N_DRAFTERS][SPEC_SEQS];
    int run_of[N_DRAFTERS][SPEC_SEQS];
    int n_jobs[N_DRAFTERS];
};

int spec_open(struct spec **out, const struct spec_options *o, struct err *e)
{
    struct spec *sp = xcalloc(1, sizeof(*sp));

    sp->o = *o;
    sp->n_till_plain = SEEN_AGAIN;
    for (int d = 0; d < N_DRAFTERS; d++)
        sp->budget[d] = (double)SPEC_STEPS / N_DRAFTERS;
    sp->drafters[0] = o->by_history ? &draft_text : NULL;
    sp->drafters[1] = o->drafter;
    if (o->max < 0 || o->max > DRAFT_MOST || o->min < 0) {
        spec_close(sp);
        return err_param(e, ERR_RANGE, "draft_max", "drafts of %d to %d tokens; at most %d", o->min,
            o->max, (int)DRAFT_MOST);
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

void spec_forget(struct spec *sp, const struct choice *ch)
{
    for (int i = 0; i < N_DRAFTERS; i++)
        if (sp->drafters[i])
            sp->drafters[i]->ops->forget(sp->drafters[i], choice_key(ch));
}

/* ---- how many */

struct load { /* of the step so far */
    int n_drafts;
    double tokens;   /* that it is expected to bring */
    double drafting; /* time that goes into that */
};

static double in_steps(const struct spec *sp, double ns)
{
    return sp->plain_ns > 0 ? ns / sp->plain_ns : 0;
}

static double time_of(const struct spec *sp, const struct load *l)
{
    return 1 + l->n_drafts * sp->row + l->drafting;
}

/* Adds the best number of drafts, 0 .. most, to the load, and returns it. Should none come true,
 * the step loses no more than `may_lose`. */
static int choose(const struct spec *sp, struct load *l, double chance, double drafting, int most,
    double may_lose)
{
    struct load at = *l, best = *l;
    /* 5 % of one sequence's share of the step. */
    double best_rate = l->tokens / time_of(sp, l) * (1 + 0.1 / (1 + sp->base)), right = 1;

    while (at.n_drafts - l->n_drafts < MIN(most, SPAN - l->n_drafts)) {
        right *= chance;
        at.n_drafts++;
        at.tokens += right;
        at.drafting += drafting;
        if (at.n_drafts * sp->row > sp->most || at.n_drafts * sp->most_row + at.drafting > may_lose)
            break;
        if (at.tokens / time_of(sp, &at) > best_rate) {
            best = at;
            best_rate = at.tokens / time_of(sp, &at);
        }
    }
    int n = best.n_drafts - l->n_drafts;
    *l = best;
    return n;
}

/* ---- experience */

/* A model is as good for the next sequence as it was for those before; texts differ. */
static double chance_of(const struct spec *sp, const struct draft_seq *s, enum draft_source source)
{
    const struct draft_grade *g = &s->grade[DRAFT_MODEL];

    if (source != DRAFT_MODEL)
        return draft_seq_chance(s, source);
    double usual = (sp->model.hits + 1.2) / (sp->model.tries + 2);
    return (g->hits + 2 * usual) / (g->tries + 2);
}

void spec_judge(struct spec *sp, struct choice *ch, int n, int n_right)
{
    draft_seq_judge(&ch->draft, ch->draft_source, n, n_right);
    if (ch->draft_source != DRAFT_MODEL)
        return;
    sp->model.hits = sp->model.hits * 0.99f + (float)n_right;
    sp->model.tries = sp->model.tries * 0.99f + (float)(n_right + (n_right < n));
}

/* ---- asking */

static bool may_draft(const struct plan_run *r, const struct choice *ch)
{
    const struct gen *g = ch->gen;

    /* A constraint decides by itself what may follow: it is left alone. */
    return r->n == 1 && r->is_whole && g->is_forked && !g->in.script && !g->in.sample.mask &&
           ch->n_out + 1 < g->max_out;
}

static struct draft_job job_for(const struct spec *sp, struct choice *ch)
{
    struct gen *g = ch->gen;
    int n = g->in.n_prompt + ch->n_out;

    return (struct draft_job){ .seq = &ch->draft,
        .key = choice_key(ch),
        .tokens = ch->tokens,
        .n = n,
        .n_prompt = g->in.n_prompt,
        .sample = &g->in.sample,
        .choice = ch->index,
        .user = g->user,
        .most = MIN(MIN(sp->o.max, sp->share), g->max_out - ch->n_out - 1),
        .out = ch->tokens + n };
}

/* One that has lost what it may is left alone for a while. */
static bool is_asked(const struct spec *sp, int d)
{
    return sp->drafters[d] && (sp->o.min > 0 || sp->budget[d] > 0);
}

/* Asks one drafter about run i. False: it has nothing, or it does not pay. */
static bool try_drafter(
    struct spec *sp, struct sched *sc, struct plan *p, int i, int d, struct load *l)
{
    struct choice *ch = sched_seq(sc, p->runs[i].seq)->user;
    struct draft_job job = job_for(sp, ch);
    struct load before = *l;
    int n_offered = sp->drafters[d]->ops->offer(sp->drafters[d], &job);

    if (n_offered <= 0)
        return false;
    CHECK(n_offered <= job.most);
    double chance = chance_of(sp, &ch->draft, job.source);
    if (d == 0 && is_asked(sp, 1) && chance < chance_of(sp, &ch->draft, DRAFT_MODEL))
        return false; /* the model knows better */
    double drafting = job.source == DRAFT_MODEL ? in_steps(sp, sp->token_ns) : 0;
    int n = choose(sp, l, chance, drafting, n_offered, sp->budget[d]);
    n = sched_extend(sc, p, i, MAX(n, MIN(sp->o.min, n_offered)));
    if (n == 0) {
        *l = before;
        return false;
    }
    job.most = n;
    ch->draft_source = job.source;
    sp->run_of[d][sp->n_jobs[d]] = i;
    sp->jobs[d][sp->n_jobs[d]++] = job;
    return true;
}

static void ask(struct spec *sp, struct sched *sc, struct plan *p)
{
    struct load l = { .tokens = sp->base };
    int n_asked = 0;

    for (int j = 0; j < p->n_runs && n_asked < SPEC_SEQS; j++) {
        int i = (sp->turn + j) % p->n_runs;
        struct choice *ch = sched_seq(sc, p->runs[i].seq)->user;
        if (!may_draft(&p->runs[i], ch))
            continue;
        n_asked++;
        bool has_drafts = false;
        for (int d = 0; d < N_DRAFTERS && !has_drafts; d++)
            has_drafts = is_asked(sp, d) && try_drafter(sp, sc, p, i, d, &l);
        if (!has_drafts)
            draft_seq_fade(&ch->draft);
    }
    sp->n_till_plain = sp->slope.n_pairs < PAIRS_FIRST               ? 1
                       : l.tokens > 1.5 * sp->base * time_of(sp, &l) ? 4 * SEEN_AGAIN
                                                                     : SEEN_AGAIN;
    sp->turn = p->n_runs > SPEC_SEQS ? (sp->turn + n_asked) % p->n_runs : 0;
}

/* ---- drafting */

/* What came of a job: only as much as the vocabulary knows. */
static void settle_job(
    struct sched *sc, struct plan *p, const struct draft_job *job, int i, int n_vocab)
{
    int n = 0;

    CHECK(job->n_out >= 0 && job->n_out <= job->most);
    while (n < job->n_out && job->out[n] >= 0 && job->out[n] < n_vocab)
        n++;
    sched_retract(sc, p, i, p->runs[i].n_drafts - n);
}

static void draft(
    struct spec *sp, struct sched *sc, struct plan *p, int d, const _Atomic bool *stop)
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
        settle_job(sc, p, &sp->jobs[d][j], sp->run_of[d][j], sp->o.n_vocab);
    }
    /* Copying a few tokens takes no time to speak of; and a prompt is computed once, which cannot
     * be paid by what a few steps may bring. */
    if (!is_timed || is_free)
        return;
    sp->draft_ns = (double)(clock_ns() - start);
    if (n > 0)
        sp->token_ns += (sp->draft_ns / n - sp->token_ns) / 8;
}

static void set_share(struct spec *sp, const struct plan *p)
{
    double room = SPAN;

    sp->most = p->n_runs > 1 ? SPEC_STRETCH - 1 : INFINITY;
    if (p->n_runs > 1) /* a row may seem to cost next to nothing */
        room = MIN(sp->most / sp->row, room);
    sp->share = MAX(((int)room + p->n_runs - 1) / p->n_runs, sp->o.min);
}

/* Rows are taken to be dear, but the less the longer it was not tried. */
static double plan_doubt(const struct spec *sp)
{
    if (sp->slope.n_pairs < PAIRS_FIRST)
        return 0;
    return DOUBT - slope_hope(&sp->slope);
}

/* Could it pay, were every guess right? */
static bool can_pay(struct spec *sp, const struct plan *p)
{
    struct load l = { .tokens = p->n_rows };

    sp->row = slope_share(&sp->slope, p->n_rows, plan_doubt(sp));
    sp->most_row = slope_share(&sp->slope, p->n_rows, MOST_DOUBT);
    set_share(sp, p);
    if (sp->o.min > 0)
        return true;
    if (p->has_prefill || p->n_rows > SPEC_ROWS)
        return false;
    /* What it costs without drafts is known well, and looked at again now and then. */
    if (sp->n_plain < SEEN_FIRST || sp->n_in_a_row >= sp->n_till_plain)
        return false;
    return choose(sp, &l, 1, 0, sp->o.max, INFINITY) > 0;
}

void spec_plan(struct spec *sp, struct sched *sc, struct plan *p, const _Atomic bool *stop)
{
    sp->base = p->n_rows;
    sp->draft_ns = 0;
    sp->n_jobs[0] = sp->n_jobs[1] = 0;
    if (sp->o.max == 0 || p->n_runs == 0 || !can_pay(sp, p))
        return;
    ask(sp, sc, p);
    for (int d = 0; d < N_DRAFTERS; d++)
        draft(sp, sc, p, d, stop);
}

/* Who has earned much lately may hold more, so that one bad guess does not silence it for long. */
static void pay(struct spec *sp, int d, double won)
{
    double *earned = &sp->earned[d];

    *earned += MAX(won, 0) - *earned / EARNED_STEPS;
    sp->budget[d] = MIN(sp->budget[d] + won, SPEC_STEPS + MIN(*earned / 4, (double)SPEC_MORE));
}

/* What a step with drafts was worth: how many came true is known, and what rows cost is taken to be
 * dear. Its own time says too little: it may have been held up, or lucky. */
static double won_by(const struct spec *sp, const struct plan *p, int n_right)
{
    int n = p->n_rows - sp->base;
    double won = (double)n_right / sp->base - n * slope_share(&sp->slope, sp->base, DOUBT) -
                 in_steps(sp, sp->draft_ns);

    return won > 0 ? won / 2 : won;
}

static void learn_plain(struct spec *sp, double ns)
{
    sp->n_plain = MIN(sp->n_plain + 1, (int)SEEN_FIRST);
    if (sp->plain_ns > 0) /* what takes very long says little */
        sp->plain_ns += (MIN(ns, 2 * sp->plain_ns) - sp->plain_ns) / 4;
    else
        sp->plain_ns = ns;
    slope_age(&sp->slope);
}

void spec_learn(struct spec *sp, const struct plan *p, uint64_t step_ns, int n_right)
{
    double ns = (double)step_ns, won = 1.0 / SPEC_PART / N_DRAFTERS;
    bool has_drafts = p->n_rows > sp->base || sp->draft_ns > 0;

    if (p->has_prefill || p->n_rows > SPEC_ROWS) {
        slope_skip(&sp->slope);
        return;
    }
    slope_learn(&sp->slope, p->n_rows, ns);
    sp->n_in_a_row = has_drafts ? sp->n_in_a_row + 1 : 0;
    if (has_drafts)
        won = won_by(sp, p, n_right);
    else
        learn_plain(sp, ns);
    for (int d = 0; d < N_DRAFTERS; d++)
        if (!has_drafts || sp->n_jobs[d] > 0)
            pay(sp, d, won);
}
