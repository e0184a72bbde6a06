#include "engine/constrained.h"

/* The sequence whose next row yields the next token of the choice: before the fork the first one.
 */
static struct seq *seq_of(struct core *c, const struct gen_choice *ch)
{
    const struct gen *g = ch->gen;
    seq_id id = g->is_forked ? ch->seq : g->choice[0].seq;

    return id.i == NO_SEQ ? NULL : sched_seq(c->sched, id);
}

static void set_pending(struct core *c, struct gen_choice *ch, bool is_pending)
{
    struct gen *g = ch->gen;
    struct seq *s = seq_of(c, ch);

    ch->is_mask_pending = is_pending;
    ch->is_mask_continued = false;
    g->n_masks_pending += is_pending ? 1 : -1;
    if (is_pending)
        list_add_last(&c->masks_pending, &ch->in_masks);
    else
        list_remove(&ch->in_masks);
    if (s)
        s->is_paused = g->is_forked ? is_pending : g->n_masks_pending > 0;
}

void constrained_begin(struct core *c, struct gen_choice *ch)
{
    if (choice_constraint(ch) && !ch->is_mask_pending && ch->gen->max_out > 0)
        set_pending(c, ch, true);
}

void constrained_end(struct core *c, struct gen_choice *ch)
{
    if (ch->is_mask_pending)
        set_pending(c, ch, false);
}

bool constrained_is_complete(const struct gen_choice *ch)
{
    const struct sample_constraint *k = choice_constraint(ch);

    return k && k->ops->is_complete(k->self);
}

bool constrained_accepts(const struct gen_choice *ch)
{
    const struct sample_constraint *k = choice_constraint(ch);

    return !k || k->ops->accepts(k->self);
}

/* The reason of the lowest choice is kept, so that it does not depend on the schedule. */
static void set_reason(struct gen_choice *ch, const char *reason)
{
    struct gen *g = ch->gen;

    if (g->unmet.code && g->unmet_choice < ch->index)
        return;
    g->unmet_choice = ch->index;
    err_set(&g->unmet, ERR_CONSTRAINT, "constraint_not_met: %s after %d tokens of output", reason,
        ch->n_out);
}

void constrained_end_unmet(struct core *c, struct gen_choice *ch, uint64_t now)
{
    struct gen *g = ch->gen;

    if (!ch->has_mask_error) {
        set_reason(ch, "no token of the vocabulary is permitted");
        c->queue->stats.constraints.not_met++;
    }
    if (++g->n_unmet == g->in.n_choices)
        g->result.err = g->unmet;
    core_end_choice(c, ch, FINISH_UNMET, -1, now);
}

/* Adds the pending masks of running or of other sequences to the batch, the oldest first. */
static void add_pending(struct core *c, bool is_running)
{
    LIST_EACH (struct gen_choice, ch, &c->masks_pending, in_masks) {
        const struct seq *s = seq_of(c, ch);
        bool runs = s && s->state == SEQ_RUNNING;
        if (runs == is_running && !mask_batch_add(&c->masks, ch))
            return;
    }
}

/* A mask that exceeds a bound ends the choice when its next token is due, as an empty mask does: at
 * the same place of the output in every schedule. */
static void finish_mask(struct core *c, const struct mask_task *t)
{
    struct constraint_counts *n = &c->queue->stats.constraints;
    struct gen_choice *ch = t->ch;

    switch (t->progress) {
    case MASK_DONE:
        n->masks++;
        ch->draft_masks = NULL;
        set_pending(c, ch, false);
        return;
    case MASK_MORE:
        n->pauses += !ch->is_mask_continued;
        ch->is_mask_continued = true;
        return;
    case MASK_ERROR:
        n->over_bound++;
        set_reason(ch, t->err.msg);
        ch->has_mask_error = true;
        ch->mask = (struct token_mask){ .form = MASK_FORM_IDS };
        ch->draft_masks = NULL;
        set_pending(c, ch, false);
    }
}

bool constrained_compute(struct core *c)
{
    if (!c->masks_pending.first)
        return false;
    uint64_t start = c->clock();
    mask_batch_begin(&c->masks);
    add_pending(c, true);
    add_pending(c, false);
    mask_batch_run(&c->masks);
    for (int i = 0; i < c->masks.n; i++)
        finish_mask(c, &c->masks.tasks[i]);
    c->queue->stats.constraints.mask_ns += c->clock() - start;
    return true;
}

/* Adds the draft tokens of a run to the batch; without room for their masks all are removed. */
static void add_drafts(struct core *c, int run, struct gen_choice *ch)
{
    struct step_plan *p = &c->plan;
    const int n = p->runs[run].n_drafts;
    const int32_t *drafts = ch->tokens + ch->gen->in.n_prompt + ch->n_out;
    const struct mask_task *t = mask_batch_add_drafts(&c->masks, ch, drafts, n);

    sched_retract(c->sched, p, run, t ? n - t->n_drafts : n);
}

/* The runs of the tasks are in the order of the plan. */
static void cut_runs(struct core *c)
{
    struct step_plan *p = &c->plan;
    int run = 0;

    for (int i = 0; i < c->masks.n; i++) {
        const struct mask_task *t = &c->masks.tasks[i];
        while (p->runs[run].s->user != t->ch)
            run++;
        sched_retract(c->sched, p, run, p->runs[run].n_drafts - t->n_drafts);
        if (!t->is_disturbed)
            continue;
        t->ch->draft_masks = t->masks;
        constrained_begin(c, t->ch);
    }
}

void constrained_cut_drafts(struct core *c)
{
    const struct step_plan *p = &c->plan;

    if (p->n_rows == p->n_runs)
        return; /* no draft tokens */
    mask_batch_begin(&c->masks);
    for (int i = 0; i < p->n_runs; i++) {
        struct gen_choice *ch = p->runs[i].s->user;
        if (p->runs[i].n_drafts > 0 && choice_constraint(ch))
            add_drafts(c, i, ch);
    }
    if (c->masks.n == 0)
        return;
    uint64_t start = c->clock();
    mask_batch_run(&c->masks);
    cut_runs(c);
    c->queue->stats.constraints.mask_ns += c->clock() - start;
}

const uint32_t *constrained_panels(struct core *c, int run)
{
    const struct plan_run *p = &c->plan.runs[run];
    const struct gen_choice *ch = p->s->user;
    const struct gen *g = ch->gen;

    if (!p->yields_token || ch->is_ended || !choice_constraint(ch) || g->max_out == 0 ||
        g->in.sample.want_logprobs || p->n_logits > 1 + p->n_drafts)
        return NULL;
    if (!g->is_forked && g->in.n_choices > 1)
        return NULL; /* the choices share the row */
    return ch->draft_masks ? mask_batch_panels(&c->masks, run, ch->draft_masks, 1 + p->n_drafts)
                           : mask_batch_panels(&c->masks, run, &ch->mask, 1);
}
