#include "engine/sample/picks.h"
#include "base/mem.h"

#include <stdatomic.h>

enum { SAMPLERS_MAX = 16 }; /* each has some megabytes, most of them untouched */

int picks_open(struct picks *p, struct lm *lm, const struct kernels *k, struct err *e)
{
    int n = MIN(MAX(lm->n_threads, 1), (int)SAMPLERS_MAX);

    *p = (struct picks){ .lm = lm };
    p->samplers = xcalloc((size_t)n, sizeof(struct sampler *));
    p->tokens = try_calloc((size_t)lm->max_logits, sizeof(*p->tokens));
    p->pieces = try_calloc((size_t)lm->max_logits, sizeof(*p->pieces));
    if (!p->tokens || !p->pieces)
        return err_set(e, ERR_MEMORY, "no memory for the tokens of a step");
    for (; p->n_samplers < n; p->n_samplers++)
        if (sampler_open(&p->samplers[p->n_samplers], k, lm->n_vocab, e))
            return -1;
    return 0;
}

void picks_close(struct picks *p)
{
    for (int i = 0; i < p->n_samplers; i++)
        sampler_close(p->samplers[i]);
    mem_free(p->samplers);
    mem_free(p->tokens);
    mem_free(p->pieces);
    *p = (struct picks){ 0 };
}

/* `before`: number of accepted tokens of this step that precede it and are not yet appended. */
static void sample_row(const struct picks *p, struct sampler *s, const struct pick *pick, int i,
    int before, struct sampled *out)
{
    const struct choice *ch = pick->ch;
    const struct gen *g = ch->gen;
    const struct logits row = lm_logits(p->lm, pick->run, pick->first + i);
    const struct sample_past past = { ch->tokens, g->in.n_prompt,
        g->in.n_prompt + ch->n_out + before };

    sampler_sample(s, &g->in.sample, &row, &past, ch->index, out);
}

static void score_row(
    const struct picks *p, struct sampler *s, const struct pick *pick, int i, struct sampled *out)
{
    const struct choice *ch = pick->ch;
    const struct lm_run *r = pick->run;
    const struct logits row = lm_logits(p->lm, r, i);

    sampler_score(
        s, &row, ch->tokens[r->pos + r->n - r->n_logits + i + 1], ch->gen->in.sample.n_top, out);
}

static void run_job(const struct picks *p, struct sampler *s, struct pick *pick)
{
    const int32_t *draft = pick->ch->tokens + pick->ch->gen->in.n_prompt + pick->ch->n_out;

    for (bool is_accepted = true; is_accepted && pick->n <= pick->n_guesses; pick->n++) {
        sample_row(p, s, pick, pick->n, pick->n, &pick->tokens[pick->n]);
        is_accepted = pick->n < pick->n_guesses && pick->tokens[pick->n].id == draft[pick->n];
    }
}

static void run_tasks(void *arg, int thread, int n_threads)
{
    struct picks *p = arg;

    if (thread >= p->n_samplers)
        return;
    for (int i; (i = atomic_fetch_add(&p->next, 1)) < p->n;) {
        const struct piece *it = &p->pieces[i];
        if (it->score < 0)
            run_job(p, p->samplers[thread], it->pick);
        else
            score_row(p, p->samplers[thread], it->pick, it->score, &it->pick->scores[it->score]);
    }
}

static void add_tasks(struct picks *p, struct pick *pick)
{
    if (pick->n_guesses >= 0)
        p->pieces[p->n++] = (struct piece){ pick, -1 };
    for (int i = 0; i < pick->n_scores; i++)
        p->pieces[p->n++] = (struct piece){ pick, i };
}

void picks_choose(struct picks *p, struct pick *list, int n)
{
    int n_rows = 0;

    p->n = 0;
    if (p->n_samplers == 1)
        return;
    for (int i = 0; i < n; i++) {
        n_rows += list[i].n_scores + 1 + list[i].n_guesses;
        CHECK(n_rows <= p->lm->max_logits);
        add_tasks(p, &list[i]);
    }
    if (p->n < 2)
        return;
    struct sampled *room = p->tokens;
    for (int i = 0; i < n; i++) {
        list[i].scores = room;
        list[i].tokens = room + list[i].n_scores;
        room = list[i].tokens + 1 + list[i].n_guesses;
    }
    atomic_store(&p->next, 0);
    p->lm->ops->spread(p->lm, run_tasks, p);
}

const struct sampled *picks_score(
    const struct picks *p, const struct pick *pick, int i, struct sampled *room)
{
    if (pick->scores)
        return &pick->scores[i];
    score_row(p, p->samplers[0], pick, i, room);
    return room;
}

const struct sampled *picks_get(
    const struct picks *p, const struct pick *pick, int i, struct sampled *room)
{
    if (i < pick->n)
        return &pick->tokens[i];
    sample_row(p, p->samplers[0], pick, i, 0, room);
    return room;
}
