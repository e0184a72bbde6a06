#include "engine/spec/draft_lm.h"
#include "base/mem.h"
#include "engine/seq.h"

enum { JOBS_MOST = 64 };

struct slot {       /* of one sequence */
    uint64_t key;   /* 0 = free */
    uint64_t used;  /* when it last drafted, in calls */
    page_id *pages; /* [pages_for(n_ctx)] */
    int n_pages, n_kv;
    int32_t fed[DRAFT_MOST]; /* guesses that lie in its pages, from position fed_from on */
    int fed_from;
    bool is_strange; /* it holds a token that this model does not have */
};

struct draft_lm {
    struct drafter d;
    struct lm *lm;
    struct page_pool *pool;
    struct sampler *sampler;
    struct slot *slots; /* [n_slots] */
    page_id *tables;    /* theirs */
    int n_slots, n_ctx;
    uint64_t n_calls;
    struct lm_run runs[JOBS_MOST];
    struct draft_job *run_job[JOBS_MOST];
};

static struct draft_lm *of(struct drafter *d)
{
    return container_of(d, struct draft_lm, d);
}

/* ---- slots */

static void clear(struct draft_lm *m, struct slot *s)
{
    while (s->n_pages > 0)
        page_unref(m->pool, s->pages[--s->n_pages]);
    s->n_kv = 0;
}

static void give_up(struct draft_lm *m, struct slot *s)
{
    clear(m, s);
    s->key = 0;
}

/* The one that drafted least recently, but not in this call; NULL: there is none. */
static struct slot *oldest(struct draft_lm *m, bool with_pages)
{
    struct slot *best = NULL;

    for (int i = 0; i < m->n_slots; i++) {
        struct slot *s = &m->slots[i];
        if (s->used < m->n_calls && (!with_pages || s->n_pages > 0) &&
            (!best || s->used < best->used))
            best = s;
    }
    return best;
}

static struct slot *find(struct draft_lm *m, const struct draft_job *job)
{
    CHECK(job->seq->model_slot < (uint32_t)m->n_slots); /* 0 before it has one */
    struct slot *s = &m->slots[job->seq->model_slot];

    return s->key == job->key ? s : NULL;
}

static struct slot *take(struct draft_lm *m, struct draft_job *job)
{
    struct slot *s = find(m, job);

    if (!s) {
        s = oldest(m, false);
        if (!s)
            return NULL;
        give_up(m, s);
        s->key = job->key;
        s->fed_from = 0;
        s->is_strange = false;
        job->seq->model_slot = (uint32_t)(s - m->slots);
    }
    s->used = m->n_calls;
    return s;
}

static bool reserve(struct draft_lm *m, struct slot *s, int n_tokens)
{
    while (s->n_pages < pages_for(n_tokens)) {
        page_id page = page_take(m->pool);
        struct slot *victim = page.i == PAGE_NONE.i ? oldest(m, true) : NULL;
        if (victim) {
            clear(m, victim);
            continue;
        }
        if (page.i == PAGE_NONE.i)
            return false;
        m->lm->ops->clear_page(m->lm, page); /* it may have been another request's */
        s->pages[s->n_pages++] = page;
    }
    return true;
}

/* Guesses that did not come true are not what the pages should hold. */
static void forget_wrong(struct slot *s, const struct draft_job *job)
{
    int n = MIN(s->n_kv, job->n - 1);

    for (int at = s->fed_from; at < n; at++)
        if (job->tokens[at] != s->fed[at - s->fed_from])
            n = at;
    s->n_kv = n;
}

static bool knows_all(const struct draft_lm *m, const int32_t *tokens, int n)
{
    for (int i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= m->lm->n_vocab)
            return false;
    return true;
}

/* ---- running */

static int add_run(
    struct draft_lm *m, int n_runs, struct draft_job *job, struct slot *s, const struct lm_run *run)
{
    if (!knows_all(m, run->tokens, run->n)) {
        s->is_strange = true;
        return n_runs;
    }
    m->runs[n_runs] = *run;
    m->runs[n_runs].pages = s->pages;
    m->run_job[n_runs] = job;
    return n_runs + 1;
}

/* More is missing than fits beside what may be missing of all others. */
static bool is_far_behind(
    const struct draft_lm *m, const struct slot *s, const struct draft_job *job)
{
    return job->n - s->n_kv > m->lm->max_rows / JOBS_MOST;
}

/* Rows of prompts and the like, as many as one pass takes; no logits. */
static void catch_up(
    struct draft_lm *m, struct draft_job *jobs, int n_jobs, const _Atomic bool *stop)
{
    int n_runs = 0, left = m->lm->max_rows;

    for (int i = 0; i < n_jobs && left > 0; i++) {
        struct slot *s = find(m, &jobs[i]);
        if (!s || s->is_strange || !is_far_behind(m, s, &jobs[i]))
            continue;
        int n = MIN(jobs[i].n - 1 - s->n_kv, left);
        if (!reserve(m, s, s->n_kv + n))
            continue;
        struct lm_run run = { .tokens = jobs[i].tokens + s->n_kv, .n = n, .pos = s->n_kv };
        jobs[i].is_prompt = s->n_kv < jobs[i].n_prompt;
        n_runs = add_run(m, n_runs, &jobs[i], s, &run);
        left -= n;
    }
    if (n_runs == 0 || !m->lm->ops->forward(m->lm, m->runs, n_runs, stop))
        return;
    for (int i = 0; i < n_runs; i++) {
        struct slot *s = find(m, m->run_job[i]);
        s->n_kv = m->runs[i].pos + m->runs[i].n;
        s->fed_from = s->n_kv;
    }
}

static void take_token(struct draft_lm *m, struct draft_job *job, const struct logits *row)
{
    struct sample_params p = *job->sample;
    struct sample_past past = { job->tokens, job->n_prompt, job->n + job->n_out };
    struct sampled token;

    p.want_logprobs = false;
    sampler_sample(m->sampler, &p, row, &past, job->choice, &token);
    job->out[job->n_out++] = token.id;
}

/* The runs of round `round`: what is missing at first, then the token guessed last. */
static int list_runs(struct draft_lm *m, struct draft_job *jobs, int n_jobs, int round)
{
    int n_runs = 0;

    for (int i = 0; i < n_jobs; i++) {
        struct draft_job *job = &jobs[i];
        struct slot *s = find(m, job);
        if (!s || s->is_strange || job->n_out < round || job->n_out >= job->most)
            continue;
        if (round == 0 && is_far_behind(m, s, job))
            continue; /* its prompt takes more passes, or there are no pages */
        int pos = round ? job->n + round - 1 : s->n_kv;
        struct lm_run run = {
            .tokens = job->tokens + pos, .n = job->n + round - pos, .pos = pos, .n_logits = 1
        };
        if (reserve(m, s, pos + run.n))
            n_runs = add_run(m, n_runs, job, s, &run);
    }
    return n_runs;
}

static void note_fed(struct slot *s, const struct draft_job *job, const struct lm_run *run)
{
    s->n_kv = run->pos + run->n;
    if (s->n_kv == job->n)
        s->fed_from = job->n;
    else
        s->fed[run->pos - s->fed_from] = run->tokens[0];
}

static bool run_round(struct draft_lm *m, int n_runs, const _Atomic bool *stop)
{
    if (n_runs == 0 || !m->lm->ops->forward(m->lm, m->runs, n_runs, stop))
        return false;
    for (int i = 0; i < n_runs; i++) {
        note_fed(find(m, m->run_job[i]), m->run_job[i], &m->runs[i]);
        struct logits row = lm_logits(m->lm, &m->runs[i], 0);
        take_token(m, m->run_job[i], &row);
    }
    return true;
}

/* ---- the drafter */

static int offer(struct drafter *d, struct draft_job *job)
{
    struct draft_lm *m = of(d);
    const struct slot *s = find(m, job);

    job->source = DRAFT_MODEL;
    if (s && s->is_strange)
        return 0;
    return MAX(MIN(job->most, m->n_ctx - job->n), 0);
}

static void propose(struct drafter *d, struct draft_job *jobs, int n_jobs, const _Atomic bool *stop)
{
    struct draft_lm *m = of(d);

    CHECK(n_jobs <= JOBS_MOST);
    m->n_calls++;
    for (int i = 0; i < n_jobs; i++) {
        struct slot *s = take(m, &jobs[i]);
        DCHECK(jobs[i].out == jobs[i].tokens + jobs[i].n);
        if (s)
            forget_wrong(s, &jobs[i]);
    }
    catch_up(m, jobs, n_jobs, stop);
    for (int round = 0; run_round(m, list_runs(m, jobs, n_jobs, round), stop);)
        round++;
}

static void forget(struct drafter *d, uint64_t key)
{
    struct draft_lm *m = of(d);

    for (int i = 0; i < m->n_slots; i++)
        if (m->slots[i].key == key)
            give_up(m, &m->slots[i]);
}

static void close_draft_lm(struct drafter *d)
{
    struct draft_lm *m = of(d);

    for (int i = 0; m->slots && i < m->n_slots; i++)
        clear(m, &m->slots[i]);
    page_pool_free(m->pool);
    sampler_close(m->sampler);
    m->lm->ops->close(m->lm);
    mem_free(m->slots);
    mem_free(m->tables);
    mem_free(m);
}

static const struct draft_ops draft_lm_ops = { offer, propose, forget, close_draft_lm };

int draft_lm_open(struct drafter **out, struct lm *take_lm, const struct kernels *k, int n_seqs,
    int n_ctx, struct err *e)
{
    struct draft_lm *m = xcalloc(1, sizeof(*m));

    CHECK(n_seqs > 0 && take_lm->max_rows >= JOBS_MOST && take_lm->max_logits >= JOBS_MOST);
    m->d.ops = &draft_lm_ops;
    m->lm = take_lm;
    m->n_slots = n_seqs;
    m->n_ctx = (int)MIN(
        (int64_t)MIN(n_ctx, take_lm->n_ctx_train), (int64_t)take_lm->n_pages * PAGE_TOKENS);
    size_t n_table = (size_t)pages_for(m->n_ctx);
    m->slots = try_calloc((size_t)n_seqs, sizeof(*m->slots));
    m->tables = try_calloc((size_t)n_seqs * n_table, sizeof(*m->tables));
    if (!m->slots || !m->tables || page_pool_new(&m->pool, take_lm->n_pages, e) ||
        sampler_open(&m->sampler, k, take_lm->n_vocab, e)) {
        close_draft_lm(&m->d);
        return err_set(e, ERR_MEMORY, "no memory to draft for %d sequences", n_seqs);
    }
    for (int i = 0; i < n_seqs; i++)
        m->slots[i].pages = m->tables + (size_t)i * n_table;
    *out = &m->d;
    return 0;
}
