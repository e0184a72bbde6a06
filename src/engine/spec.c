#include "engine/spec.h"
#include "base/mem.h"
#include "os/clock.h"

#include <math.h>

enum {
    SPAN = 64, /* drafts of one step, all sequences together */
    N_DRAFTERS = 2,
    SEEN_MOST = 32,  /* what was seen counts as so many steps */
    TRIED_FIRST = 3, /* steps with drafts before their law is believed */
    SEEN_FIRST = 16, /* steps without drafts before there are any */
    SEEN_AGAIN = 8,  /* of so many, one more; four times as many where drafts win much */
    PLAIN_STEPS = 2, /* that tell how fast the machine is */
    EARNED_STEPS = 64,
};

struct spec {
    struct spec_options o;
    struct drafter *drafters[N_DRAFTERS]; /* asked in turn; NULL = none */
    struct cost_book book;                /* of steps without prompts */
    double cost[SPEC_ROWS + 1];           /* the same, by rows; ns */
    int n_seen[SPEC_ROWS + 1];
    int n_tried;  /* steps with drafts, up to TRIED_FIRST */
    double plain; /* what the last steps without drafts took, in times of what the law says */
    double budget_ns[N_DRAFTERS];
    double earned_ns[N_DRAFTERS]; /* went into the budget lately, whatever was spent of it */
    int n_in_a_row;               /* steps with drafts since the last without */
    int n_till_plain;             /* at most so many of them */
    struct draft_grade model;     /* of the drafter that computes, over all sequences */
    bool has_budget;              /* it began with SPEC_STEPS steps */
    int turn;                     /* whose turn it is, when there are more than SPEC_SEQS */

    /* the step being planned */
    int base;               /* rows without drafts */
    double curve[SPAN + 1]; /* cost of base + i rows */
    double plain_ns;        /* what it would cost without, by the last such steps */
    double most_ns;         /* that it may cost */
    int share;              /* drafts of one sequence, so that there are some for all */
    double draft_ns;        /* time that drafting took */
    double token_ns;        /* of one token of the drafter that computes, lately */
    struct draft_job jobs[N_DRAFTERS][SPEC_SEQS];
    int run_of[N_DRAFTERS][SPEC_SEQS];
    int n_jobs[N_DRAFTERS];
};

int spec_open(struct spec **out, const struct spec_options *o, struct err *e)
{
    struct spec *sp = xcalloc(1, sizeof(*sp));

    sp->o = *o;
    sp->plain = 1;
    sp->n_till_plain = SEEN_AGAIN;
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

/* ---- what a step costs */

/* The machine is faster at one time than at another, for it does other things too. What drafts win
 * is told by steps without any at the same time, so there is always one not long ago. What takes
 * very long says little, and nothing in favour of drafts. */
static void look_at_speed(struct spec *sp, const struct plan *p, double ns)
{
    double law = cost_of(&sp->book.cost, &p->size);

    if (law > 0)
        sp->plain += (MIN(ns / law, 1.25 * sp->plain) - sp->plain) / PLAIN_STEPS;
}

/* Returns the time that the step counts as: one that took very long was held up by something
 * else. */
static double learn_cost(struct spec *sp, const struct plan *p, double ns)
{
    double *c = &sp->cost[p->n_rows];
    int n = MIN(sp->n_seen[p->n_rows] + 1, SEEN_MOST);

    if (n > 1)
        ns = MIN(ns, 2 * *c);
    sp->n_seen[p->n_rows] = n;
    *c += (ns - *c) / n;
    cost_learn(&sp->book, &p->size, 0, (uint64_t)ns);
    return ns;
}

/* The law for any number of rows; for the one without drafts also what was measured just there,
 * the less of both: drafts that only seem to pay are worse than some that are not made. At first,
 * when no step was any larger, rows are hoped to cost an eighth of what they cost so far. */
static void fill_curve(struct spec *sp, const struct plan *p)
{
    struct step_size size = p->size;
    double keys = size.keys / size.rows;

    for (int i = 0; i <= SPAN; i++) {
        sp->curve[i] = cost_of(&sp->book.cost, &size);
        size.rows++;
        size.keys += keys;
    }
    sp->plain_ns = sp->curve[0] * sp->plain;
    if (sp->n_seen[p->n_rows] >= SEEN_FIRST)
        sp->curve[0] = MIN(sp->curve[0], sp->cost[p->n_rows]);
    for (int i = 1; sp->n_tried < TRIED_FIRST && i <= SPAN; i++)
        sp->curve[i] = sp->curve[0] * (1 + i / (8.0 * p->n_rows));
}

/* ---- how many */

struct load { /* of the step so far */
    int n_drafts;
    double tokens; /* that it is expected to bring */
    double ns;     /* of drafting */
};

static double rate(const struct spec *sp, const struct load *l)
{
    return l->tokens / (sp->curve[l->n_drafts] + l->ns);
}

/* Adds the best number of drafts, 0 .. most, to the load, and returns it. */
static int choose(const struct spec *sp, struct load *l, double chance, double token_ns, int most)
{
    struct load at = *l, best = *l;
    /* 5 % of one sequence's share of the step. */
    double best_rate = rate(sp, l) * (1 + 0.1 / (1 + sp->base)), right = 1;

    while (at.n_drafts - l->n_drafts < MIN(most, SPAN - l->n_drafts)) {
        right *= chance;
        at.n_drafts++;
        if (sp->curve[at.n_drafts] > sp->most_ns)
            break;
        at.tokens += right;
        at.ns += token_ns;
        if (rate(sp, &at) > best_rate) {
            best = at;
            best_rate = rate(sp, &at);
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

/* One that has lost more than it may is left alone for a while. */
static bool is_asked(const struct spec *sp, int d)
{
    return sp->drafters[d] && (sp->o.min > 0 || sp->budget_ns[d] >= 0);
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
    double token_ns = job.source == DRAFT_MODEL ? sp->token_ns : 0;
    int n = choose(sp, l, chance, token_ns, n_offered);
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
    sp->n_till_plain = rate(sp, &l) * sp->curve[0] > 1.5 * sp->base ? 4 * SEEN_AGAIN : SEEN_AGAIN;
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
    int room = 0;

    sp->most_ns = p->n_runs > 1 ? SPEC_STRETCH * sp->curve[0] : INFINITY;
    while (room < SPAN && sp->curve[room + 1] <= sp->most_ns)
        room++;
    sp->share = MAX((room + p->n_runs - 1) / p->n_runs, sp->o.min);
}

/* Could it pay, were every guess right? */
static bool can_pay(struct spec *sp, const struct plan *p)
{
    struct load l = { .tokens = p->n_rows };

    memset(sp->curve, 0, sizeof(sp->curve));
    if (!p->has_prefill && p->n_rows <= SPEC_ROWS)
        fill_curve(sp, p);
    set_share(sp, p);
    if (sp->o.min > 0)
        return true;
    if (p->has_prefill || p->n_rows > SPEC_ROWS)
        return false;
    /* What it costs without drafts is known well, and looked at again now and then. */
    if (sp->book.n_steps < SEEN_FIRST || sp->n_in_a_row >= sp->n_till_plain)
        return false;
    return choose(sp, &l, 1, 0, sp->o.max) > 0;
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
static void pay(struct spec *sp, int d, double won, double step_ns)
{
    double *earned = &sp->earned_ns[d];

    *earned += MAX(won, 0) - *earned / EARNED_STEPS;
    double most = SPEC_STEPS * step_ns + MIN(*earned / 4, SPEC_MORE * step_ns);
    sp->budget_ns[d] = MIN(sp->budget_ns[d] + won, most);
}

void spec_learn(struct spec *sp, const struct plan *p, uint64_t step_ns, int n_right)
{
    if (p->has_prefill || p->n_rows > SPEC_ROWS)
        return;
    double ns = learn_cost(sp, p, (double)step_ns);
    bool has_drafts = p->n_rows > sp->base || sp->draft_ns > 0;
    sp->n_tried += has_drafts && sp->n_tried < TRIED_FIRST;
    sp->n_in_a_row = has_drafts ? sp->n_in_a_row + 1 : 0;
    double won = ns / SPEC_PART / N_DRAFTERS;
    if (has_drafts)
        won = sp->plain_ns * (sp->base + n_right) / sp->base - ns - sp->draft_ns;
    else
        look_at_speed(sp, p, ns);
    /* Costs are guesses too, and those who draft are those who were guessed too cheap. */
    if (has_drafts && won > 0)
        won /= 2;
    for (int d = 0; d < N_DRAFTERS; d++) {
        if (!sp->has_budget)
            sp->budget_ns[d] = SPEC_STEPS * ns / N_DRAFTERS;
        if (!has_drafts || sp->n_jobs[d] > 0)
            pay(sp, d, won, ns);
    }
    sp->has_budget = true;
}
