#include "engine/spec/draft_lm.h"
#include "base/mem.h"
#include "engine/seq.h"

enum { JOBS_MAX = 64 };

struct draft_slot { /* KV state of one sequence */
    uint64_t key;   /* 0 = free */
    uint64_t used;  /* number of the propose call that used it last */
    page_id *pages; /* [pages_for(n_ctx)] */
    int n_pages, n_kv;
    int32_t draft_kv[DRAFT_MAX]; /* draft tokens in its pages, from position draft_kv_from on */
    int draft_kv_from;
    bool has_unknown_token; /* contains a token outside the vocabulary of this model */
};

struct draft_lm {
    struct drafter d;
    struct lm *lm;
    struct page_pool *pool;
    struct sampler *sampler;
    struct draft_slot *slots; /* [n_slots] */
    page_id *tables;          /* page tables of the slots */
    int n_slots, n_ctx;
    uint64_t n_calls;
    struct lm_run runs[JOBS_MAX];
    struct draft_job *run_job[JOBS_MAX];
};

static struct draft_lm *draft_lm_of(struct drafter *d)
{
    return container_of(d, struct draft_lm, d);
}

/* ---- slots */

static void slot_clear(struct draft_lm *m, struct draft_slot *s)
{
    while (s->n_pages > 0)
        page_unref(m->pool, s->pages[--s->n_pages]);
    s->n_kv = 0;
}

static void slot_release(struct draft_lm *m, struct draft_slot *s)
{
    slot_clear(m, s);
    s->key = 0;
}

/* Least recently used slot, excluding those of this call; NULL = none. */
static struct draft_slot *slot_lru(struct draft_lm *m, bool with_pages)
{
    struct draft_slot *best = NULL;

    for (int i = 0; i < m->n_slots; i++) {
        struct draft_slot *s = &m->slots[i];
        if (s->used < m->n_calls && (!with_pages || s->n_pages > 0) &&
            (!best || s->used < best->used))
            best = s;
    }
    return best;
}

static struct draft_slot *slot_find(struct draft_lm *m, const struct draft_job *job)
{
    CHECK(job->seq->model_slot < (uint32_t)m->n_slots); /* 0 before it has a slot */
    struct draft_slot *s = &m->slots[job->seq->model_slot];

    return s->key == job->key ? s : NULL;
}

static struct draft_slot *slot_take(struct draft_lm *m, struct draft_job *job)
{
    struct draft_slot *s = slot_find(m, job);

    if (!s) {
        s = slot_lru(m, false);
        if (!s)
            return NULL;
        slot_release(m, s);
        s->key = job->key;
        s->draft_kv_from = 0;
        s->has_unknown_token = false;
        job->seq->model_slot = (uint32_t)(s - m->slots);
    }
    s->used = m->n_calls;
    return s;
}

static bool slot_reserve(struct draft_lm *m, struct draft_slot *s, int n_tokens)
{
    while (s->n_pages < pages_for(n_tokens)) {
        page_id page = page_take(m->pool);
        struct draft_slot *victim = page.i == PAGE_NONE.i ? slot_lru(m, true) : NULL;
        if (victim) {
            slot_clear(m, victim);
            continue;
        }
        if (page.i == PAGE_NONE.i)
            return false;
        m->lm->ops->clear_page(m->lm, page); /* may contain KV of another request */
        if (m->lm->window.size)              /* the same numbers: see lm_run.window_pages */
            lm_clear_window_page(m->lm, page);
        s->pages[s->n_pages++] = page;
    }
    return true;
}

/* Truncates the KV at the first draft token that was rejected. */
static void truncate_rejected(struct draft_slot *s, const struct draft_job *job)
{
    int n = MIN(s->n_kv, job->n - 1);

    for (int at = s->draft_kv_from; at < n; at++)
        if (job->tokens[at] != s->draft_kv[at - s->draft_kv_from])
            n = at;
    s->n_kv = n;
}

static bool is_in_vocab(const struct draft_lm *m, const int32_t *tokens, int n)
{
    for (int i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= m->lm->n_vocab)
            return false;
    return true;
}

/* ---- forward passes */

static int add_run(struct draft_lm *m, int n_runs, struct draft_job *job, struct draft_slot *s,
    const struct lm_run *run)
{
    if (!is_in_vocab(m, run->tokens, run->n)) {
        s->has_unknown_token = true;
        return n_runs;
    }
    m->runs[n_runs] = *run;
    m->runs[n_runs].pages = s->pages;
    m->run_job[n_runs] = job;
    return n_runs + 1;
}

/* More tokens are missing than one sequence's share of a pass. */
static bool needs_prefill(
    const struct draft_lm *m, const struct draft_slot *s, const struct draft_job *job)
{
    return job->n - s->n_kv > m->lm->max_rows / JOBS_MAX;
}

/* Prefill of sequences that lack many tokens, up to one pass; no logits. */
static void prefill_slots(
    struct draft_lm *m, struct draft_job *jobs, int n_jobs, const _Atomic bool *stop)
{
    int n_runs = 0, left = m->lm->max_rows;

    for (int i = 0; i < n_jobs && left > 0; i++) {
        struct draft_slot *s = slot_find(m, &jobs[i]);
        if (!s || s->has_unknown_token || !needs_prefill(m, s, &jobs[i]))
            continue;
        int n = MIN(jobs[i].n - 1 - s->n_kv, left);
        if (!slot_reserve(m, s, s->n_kv + n))
            continue;
        struct lm_run run = { .tokens = jobs[i].tokens + s->n_kv, .n = n, .pos = s->n_kv };
        jobs[i].is_prompt = s->n_kv < jobs[i].n_prompt;
        n_runs = add_run(m, n_runs, &jobs[i], s, &run);
        left -= n;
    }
    if (n_runs == 0 || !m->lm->ops->forward(m->lm, m->runs, n_runs, stop))
        return;
    for (int i = 0; i < n_runs; i++) {
        struct draft_slot *s = slot_find(m, m->run_job[i]);
        s->n_kv = m->runs[i].pos + m->runs[i].n;
        s->draft_kv_from = s->n_kv;
    }
}

static void sample_draft(struct draft_lm *m, struct draft_job *job, const struct logits *row)
{
    struct sample_params p = *job->sample;
    struct sample_past past = { job->tokens, job->n_prompt, job->n + job->n_out };
    struct sampled token;

    p.want_logprobs = false;
    sampler_sample(m->sampler, &p, row, &past, job->choice, &token);
    job->out[job->n_out++] = token.id;
}

/* Runs of generation round `round`: the missing tokens in round 0, then the last draft token. */
static int list_runs(struct draft_lm *m, struct draft_job *jobs, int n_jobs, int round)
{
    int n_runs = 0;

    for (int i = 0; i < n_jobs; i++) {
        struct draft_job *job = &jobs[i];
        struct draft_slot *s = slot_find(m, job);
        if (!s || s->has_unknown_token || job->n_out < round || job->n_out >= job->n_max)
            continue;
        if (round == 0 && needs_prefill(m, s, job))
            continue; /* needs more prefill passes, or pages */
        int pos = round ? job->n + round - 1 : s->n_kv;
        struct lm_run run = {
            .tokens = job->tokens + pos, .n = job->n + round - pos, .pos = pos, .n_logits = 1
        };
        if (slot_reserve(m, s, pos + run.n))
            n_runs = add_run(m, n_runs, job, s, &run);
    }
    return n_runs;
}

static void record_kv(struct draft_slot *s, const struct draft_job *job, const struct lm_run *run)
{
    s->n_kv = run->pos + run->n;
    if (s->n_kv == job->n)
        s->draft_kv_from = job->n;
    else
        s->draft_kv[run->pos - s->draft_kv_from] = run->tokens[0];
}

static bool run_round(struct draft_lm *m, int n_runs, const _Atomic bool *stop)
{
    if (n_runs == 0 || !m->lm->ops->forward(m->lm, m->runs, n_runs, stop))
        return false;
    for (int i = 0; i < n_runs; i++) {
        record_kv(slot_find(m, m->run_job[i]), m->run_job[i], &m->runs[i]);
        struct logits row = lm_logits(m->lm, &m->runs[i], 0);
        sample_draft(m, m->run_job[i], &row);
    }
    return true;
}

/* ---- the drafter */

static int offer(struct drafter *d, struct draft_job *job)
{
    struct draft_lm *m = draft_lm_of(d);
    const struct draft_slot *s = slot_find(m, job);

    job->source = DRAFT_MODEL;
    if (s && s->has_unknown_token)
        return 0;
    return MAX(MIN(job->n_max, m->n_ctx - job->n), 0);
}

static void propose(struct drafter *d, struct draft_job *jobs, int n_jobs, const _Atomic bool *stop)
{
    struct draft_lm *m = draft_lm_of(d);

    CHECK(n_jobs <= JOBS_MAX);
    m->n_calls++;
    for (int i = 0; i < n_jobs; i++) {
        struct draft_slot *s = slot_take(m, &jobs[i]);
        DCHECK(jobs[i].out == jobs[i].tokens + jobs[i].n);
        if (s)
            truncate_rejected(s, &jobs[i]);
    }
    prefill_slots(m, jobs, n_jobs, stop);
    for (int round = 0; run_round(m, list_runs(m, jobs, n_jobs, round), stop);)
        round++;
}

static void forget(struct drafter *d, uint64_t key)
{
    struct draft_lm *m = draft_lm_of(d);

    for (int i = 0; i < m->n_slots; i++)
        if (m->slots[i].key == key)
            slot_release(m, &m->slots[i]);
}

static void close_draft_lm(struct drafter *d)
{
    struct draft_lm *m = draft_lm_of(d);

    for (int i = 0; m->slots && i < m->n_slots; i++)
        slot_clear(m, &m->slots[i]);
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

    CHECK(n_seqs > 0 && take_lm->max_rows >= JOBS_MAX && take_lm->max_logits >= JOBS_MAX);
    m->d.ops = &draft_lm_ops;
    m->lm = take_lm;
    m->n_slots = n_seqs;
    if (take_lm->n_states > 0) {
        close_draft_lm(&m->d);
        return err_set(
            e, ERR_UNSUPPORTED, "a model with recurrent layers cannot be the draft model");
    }
    m->n_ctx = (int)MIN(
        (int64_t)MIN(n_ctx, take_lm->n_ctx_train), (int64_t)take_lm->n_pages * PAGE_TOKENS);
    size_t n_table = (size_t)pages_for(m->n_ctx);
    m->slots = try_calloc((size_t)n_seqs, sizeof(*m->slots));
    m->tables = try_calloc((size_t)n_seqs * n_table, sizeof(*m->tables));
    if (!m->slots || !m->tables || page_pool_new(&m->pool, take_lm->n_pages, e) ||
        sampler_open(&m->sampler, k, take_lm->n_vocab, e)) {
        close_draft_lm(&m->d);
        return err_set(e, ERR_MEMORY, "no memory for a draft model with %d sequences", n_seqs);
    }
    for (int i = 0; i < n_seqs; i++)
        m->slots[i].pages = m->tables + (size_t)i * n_table;
    *out = &m->d;
    return 0;
}
