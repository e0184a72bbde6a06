#include "engine/picks.h"
#include "base/mem.h"

#include <stdatomic.h>

enum { MOST_SAMPLERS = 16 }; /* each has some megabytes, of which few are touched */

int picks_open(struct picks *p, struct lm *lm, const struct kernels *k, struct err *e)
{
    int n = MIN(MAX(lm->n_threads, 1), (int)MOST_SAMPLERS);

    *p = (struct picks){ .lm = lm };
    p->samplers = xcalloc((size_t)n, sizeof(struct sampler *));
    p->tokens = try_calloc((size_t)lm->max_logits, sizeof(*p->tokens));
    if (!p->tokens)
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
    *p = (struct picks){ 0 };
}

/* `before`: so many tokens of this step come before it, and are as they were guessed. */
static void sample(const struct picks *p, struct sampler *s, const struct pick *pick, int i,
    int before, struct sampled *out)
{
    const struct choice *ch = pick->ch;
    const struct gen *g = ch->gen;
    const struct logits row = lm_logits(p->lm, pick->run, pick->first + i);
    const struct sample_past past = { ch->tokens, g->in.n_prompt,
        g->in.n_prompt + ch->n_out + before };

    sampler_sample(s, &g->in.sample, &row, &past, ch->index, out);
}

static void choose(const struct picks *p, struct sampler *s, struct pick *pick)
{
    const int32_t *guess = pick->ch->tokens + pick->ch->gen->in.n_prompt + pick->ch->n_out;

    for (bool is_right = true; is_right && pick->n <= pick->n_guesses; pick->n++) {
        sample(p, s, pick, pick->n, pick->n, &pick->tokens[pick->n]);
        is_right = pick->n < pick->n_guesses && pick->tokens[pick->n].id == guess[pick->n];
    }
}

static void choose_some(void *arg, int member, int n_members)
{
    struct picks *p = arg;

    if (member >= p->n_samplers)
        return;
    for (int i; (i = atomic_fetch_add(&p->next, 1)) < p->n;)
        choose(p, p->samplers[member], &p->list[i]);
}

void picks_choose(struct picks *p, struct pick *list, int n)
{
    int n_tokens = 0, n_picks = 0;

    if (p->n_samplers == 1)
        return;
    for (int i = 0; i < n; i++) {
        list[i].tokens = p->tokens + n_tokens;
        n_tokens += 1 + list[i].n_guesses;
        n_picks += list[i].n_guesses >= 0;
    }
    CHECK(n_tokens <= p->lm->max_logits);
    if (n_picks < 2)
        return;
    p->list = list;
    p->n = n;
    atomic_store(&p->next, 0);
    p->lm->ops->spread(p->lm, choose_some, p);
}

const struct sampled *picks_get(
    const struct picks *p, const struct pick *pick, int i, struct sampled *room)
{
    if (i < pick->n)
        return &pick->tokens[i];
    sample(p, p->samplers[0], pick, i, 0, room);
    return room;
}
