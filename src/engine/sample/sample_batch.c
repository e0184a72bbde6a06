#include "engine/sample/sample_batch.h"
#include "base/mem.h"

#include <stdatomic.h>

enum { SAMPLERS_MAX = 16 }; /* each has some megabytes, most of them untouched */

int sample_batch_open(struct sample_batch *p, struct lm *lm, const struct kernels *k, struct err *e)
{
    int n = MIN(MAX(lm->n_threads, 1), (int)SAMPLERS_MAX);

    *p = (struct sample_batch){ .lm = lm };
    p->samplers = xcalloc((size_t)n, sizeof(struct sampler *));
    p->tokens = try_calloc((size_t)lm->max_logits, sizeof(*p->tokens));
    p->tasks = try_calloc((size_t)lm->max_logits, sizeof(*p->tasks));
    if (!p->tokens || !p->tasks)
        return err_set(e, ERR_MEMORY, "no memory for the sampled tokens of a step");
    for (; p->n_samplers < n; p->n_samplers++)
        if (sampler_open(&p->samplers[p->n_samplers], k, lm->n_vocab, e))
            return -1;
    return 0;
}

void sample_batch_close(struct sample_batch *p)
{
    for (int i = 0; i < p->n_samplers; i++)
        sampler_close(p->samplers[i]);
    mem_free(p->samplers);
    mem_free(p->tokens);
    mem_free(p->tasks);
    *p = (struct sample_batch){ 0 };
}

/* Mask of the i-th row that yields an output token; NULL without a constraint. */
static const struct token_mask *mask_of_row(const struct gen_choice *ch, int i)
{
    if (!choice_constraint(ch))
        return NULL;
    if (ch->draft_masks)
        return &ch->draft_masks[i];
    CHECK(i == 0 && !ch->is_mask_pending);
    return &ch->mask;
}

/* `before`: number of accepted tokens of this step that precede it and are not yet appended. */
static void sample_row(const struct sample_batch *p, struct sampler *s,
    const struct sample_job *job, int i, int before, struct sampled *out)
{
    const struct gen_choice *ch = job->ch;
    const struct gen *g = ch->gen;
    const struct logits row = lm_logits(p->lm, job->run, job->first + i);
    const struct sample_past past = { .tokens = ch->tokens,
        .n_prompt = g->in.n_prompt,
        .n = g->in.n_prompt + ch->n_out + before,
        .mask = mask_of_row(ch, i) };

    sampler_sample(s, &g->in.sample, &row, &past, ch->index, out);
}

static void score_row(const struct sample_batch *p, struct sampler *s, const struct sample_job *job,
    int i, struct sampled *out)
{
    const struct gen_choice *ch = job->ch;
    const struct lm_run *r = job->run;
    const struct logits row = lm_logits(p->lm, r, i);

    sampler_score(
        s, &row, ch->tokens[r->pos + r->n - r->n_logits + i + 1], ch->gen->in.sample.n_top, out);
}

static void run_job(const struct sample_batch *p, struct sampler *s, struct sample_job *job)
{
    const int32_t *draft = job->ch->tokens + job->ch->gen->in.n_prompt + job->ch->n_out;

    for (bool is_accepted = true; is_accepted && job->n <= job->n_draft_tokens; job->n++) {
        sample_row(p, s, job, job->n, job->n, &job->tokens[job->n]);
        is_accepted = job->n < job->n_draft_tokens && job->tokens[job->n].id == draft[job->n];
    }
}

static void run_tasks(void *arg, int thread, int n_threads)
{
    struct sample_batch *p = arg;

    if (thread >= p->n_samplers)
        return;
    for (int i; (i = atomic_fetch_add(&p->next, 1)) < p->n;) {
        const struct sample_task *it = &p->tasks[i];
        if (it->score < 0)
            run_job(p, p->samplers[thread], it->job);
        else
            score_row(p, p->samplers[thread], it->job, it->score, &it->job->scores[it->score]);
    }
}

void sample_batch_run(struct sample_batch *p, struct sample_job *list, int n)
{
    int n_rows = 0;

    p->n = 0;
    if (p->n_samplers == 1)
        return;
    for (int i = 0; i < n; i++) {
        struct sample_job *job = &list[i];
        n_rows += job->n_scores + 1 + job->n_draft_tokens;
        CHECK(n_rows <= p->lm->max_logits);
        if (job->n_draft_tokens >= 0)
            p->tasks[p->n++] = (struct sample_task){ job, -1 };
        for (int k = 0; k < job->n_scores; k++)
            p->tasks[p->n++] = (struct sample_task){ job, k };
    }
    if (p->n < 2)
        return;
    struct sampled *scratch = p->tokens;
    for (int i = 0; i < n; i++) {
        list[i].scores = scratch;
        list[i].tokens = scratch + list[i].n_scores;
        scratch = list[i].tokens + 1 + list[i].n_draft_tokens;
    }
    atomic_store(&p->next, 0);
    p->lm->ops->run_on_threads(p->lm, run_tasks, p);
}

const struct sampled *sample_batch_score(
    const struct sample_batch *p, const struct sample_job *job, int i, struct sampled *scratch)
{
    if (job->scores)
        return &job->scores[i];
    score_row(p, p->samplers[0], job, i, scratch);
    return scratch;
}

const struct sampled *sample_batch_token(
    const struct sample_batch *p, const struct sample_job *job, int i, struct sampled *scratch)
{
    if (i < job->n)
        return &job->tokens[i];
    sample_row(p, p->samplers[0], job, i, 0, scratch);
    return scratch;
}
