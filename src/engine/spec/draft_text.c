#include "engine/spec/draft_text.h"

enum {
    DELETED_MAX = 4,     /* deleted tokens that are detected by the token after them */
    RESYNC_WINDOW = 64,  /* positions after the mismatch that are searched for the end of an edit */
    INDEX_STEP_MAX = 256 /* tokens indexed per offer: bounds the time of a step */
};

static const struct text_cursor cursor_lost = { .at = -1, .lost_at = -1 };

/* Prior acceptance rates, and the number of tries that they weigh. */
static const float prior[N_DRAFT_SOURCES] = {
    [DRAFT_PREDICTION] = 0.8f,
    [DRAFT_PREDICTION_EDITED] = 0.5f,
    [DRAFT_HISTORY_LONG] = 0.8f,
    [DRAFT_HISTORY_MIDDLE] = 0.6f,
    [DRAFT_HISTORY_SHORT] = 0.4f,
    [DRAFT_HISTORY_EDITED] = 0.5f,
    [DRAFT_MODEL] = 0.6f,
    [DRAFT_FORCED] = 0.9f,
};
static const float prior_tries = 2.0f;

void draft_seq_init(struct draft_seq *s, const struct ngram *prompt, int n_prompt,
    uint32_t *own_slots, size_t n_own_slots)
{
    *s = (struct draft_seq){
        .prompt = prompt, .past = cursor_lost, .hint = cursor_lost, .n_followed = n_prompt
    };
    s->own.n = n_prompt;
    if (!own_slots)
        return;
    ngram_init(&s->own, own_slots, n_own_slots);
    s->own.n = n_prompt;
}

void draft_seq_predict(
    struct draft_seq *s, const int32_t *predicted, int n, const struct ngram *prediction)
{
    s->predicted = predicted;
    s->n_predicted = n;
    s->prediction = prediction;
    if (n > 0)
        s->hint = (struct text_cursor){ .at = 0, .len = NGRAM_LONG, .lost_at = 0 };
}

/* ---- cursors */

static int common_suffix(const int32_t *a, const int32_t *b, int n_most)
{
    int n = 0;

    while (n < n_most && a[-1 - n] == b[-1 - n])
        n++;
    return n;
}

/* After a mismatch: moves the cursor past a replaced token or after up to DELETED_MAX deleted
 * tokens. */
static void skip_edit(struct text_cursor *t, const int32_t *text, int n, int32_t token)
{
    int skip = 1;

    while (skip <= DELETED_MAX && t->at + skip < n && text[t->at + skip] != token)
        skip++;
    bool is_deletion = skip <= DELETED_MAX && t->at + skip < n;
    *t = (struct text_cursor){ .at = t->at + (is_deletion ? skip + 1 : 1),
        .len = is_deletion,
        .lost_at = t->at,
        .is_after_edit = true };
}

/* Advances the cursor by the new output `token`; text[0 .. n) was known before. */
static void cursor_advance(struct text_cursor *t, const int32_t *text, int n, int32_t token)
{
    if (t->at < 0)
        return;
    if (text[t->at] == token) {
        t->at++;
        t->len++;
        t->is_after_edit &= t->len < 2;
    } else if (!t->is_after_edit && t->len >= NGRAM_LONG) {
        skip_edit(t, text, n, token);
    } else {
        *t = (struct text_cursor){ .at = -1, .lost_at = t->is_after_edit ? t->lost_at : t->at };
    }
}

static void cursor_set(
    struct text_cursor *t, const int32_t *text, int at, const int32_t *end, int n_past)
{
    int n_max = MIN(MIN(at, n_past), 4 * NGRAM_LONG);

    t->at = at;
    t->len = common_suffix(text + at, end, n_max);
    t->is_after_edit = false;
}

/* Nearest position after the mismatch at which the last tokens match: the usual result of an
 * edit. */
static bool cursor_resync(
    struct text_cursor *t, const int32_t *text, int n_text, const int32_t *end, int n_past)
{
    if (t->lost_at < 0 || n_past < NGRAM_SHORT)
        return false;
    for (int at = MAX(t->lost_at, NGRAM_SHORT); at < MIN(t->lost_at + RESYNC_WINDOW, n_text); at++)
        if (common_suffix(text + at, end, NGRAM_SHORT) == NGRAM_SHORT) {
            cursor_set(t, text, at, end, n_past);
            return true;
        }
    return false;
}

/* ---- the prediction */

static void advance_hint(struct draft_seq *s, const int32_t *tokens, int n)
{
    struct text_cursor *t = &s->hint;

    cursor_advance(t, s->predicted, s->n_predicted, tokens[n - 1]);
    if (t->at >= s->n_predicted)
        *t = (struct text_cursor){ .at = -1, .lost_at = s->n_predicted };
    if (t->at >= 0 || cursor_resync(t, s->predicted, s->n_predicted, tokens + n, n))
        return;
    int at = n < NGRAM_LONG ? -1 : ngram_find(s->prediction, s->predicted, tokens + n, NGRAM_LONG);
    if (at >= 0)
        cursor_set(t, s->predicted, at, tokens + n, n);
}

bool draft_seq_append(struct draft_seq *s, const int32_t *tokens, int n)
{
    bool was_predicted = s->hint.at >= 0 && s->predicted[s->hint.at] == tokens[n - 1];

    if (s->n_predicted > 0)
        advance_hint(s, tokens, n);
    return was_predicted;
}

/* ---- prompt and own output */

static int look_up(const struct draft_seq *s, const int32_t *tokens, int n, int len)
{
    if (n < len)
        return -1;
    int at = ngram_find(&s->own, tokens, tokens + n, len);
    return at >= 0 ? at : ngram_find(s->prompt, tokens, tokens + n, len);
}

/* Indexes new tokens; returns false if some remain for the next call. */
static bool index_output(struct draft_seq *s, const int32_t *tokens, int n)
{
    int upto = MIN(n, s->n_followed + INDEX_STEP_MAX);

    for (int i = s->n_followed; i < upto; i++)
        cursor_advance(&s->past, tokens, i, tokens[i]);
    s->n_followed = upto;
    ngram_add(&s->own, tokens, s->own.n, upto);
    return upto == n;
}

static void update_past(struct draft_seq *s, const int32_t *tokens, int n)
{
    struct text_cursor *t = &s->past;
    int at;

    if (t->at >= 0 && t->len >= NGRAM_LONG)
        return;
    at = look_up(s, tokens, n, NGRAM_LONG);
    if (at >= 0) {
        cursor_set(t, tokens, at, tokens + n, n);
        return;
    }
    if (t->at >= 0 || cursor_resync(t, tokens, n, tokens + n, n))
        return;
    at = look_up(s, tokens, n, NGRAM_SHORT);
    if (at >= 0)
        cursor_set(t, tokens, at, tokens + n, n);
}

static enum draft_source source_of(const struct text_cursor *t)
{
    if (t->is_after_edit)
        return DRAFT_HISTORY_EDITED;
    return t->len >= 2 * NGRAM_LONG ? DRAFT_HISTORY_LONG
           : t->len >= NGRAM_LONG   ? DRAFT_HISTORY_MIDDLE
                                    : DRAFT_HISTORY_SHORT;
}

/* ---- acceptance rates */

float draft_seq_acceptance(const struct draft_seq *s, enum draft_source source)
{
    const struct draft_acceptance *g = &s->acceptance_by_source[source];

    return (g->hits + prior[source] * prior_tries) / (g->tries + prior_tries);
}

void draft_seq_add_result(struct draft_seq *s, enum draft_source source, int n, int n_accepted)
{
    struct draft_acceptance *g = &s->acceptance_by_source[source];

    g->hits = g->hits * 0.95f + (float)n_accepted;
    g->tries = g->tries * 0.95f + (float)(n_accepted + (n_accepted < n));
}

void draft_seq_decay(struct draft_seq *s)
{
    for (int i = 0; i < N_DRAFT_SOURCES; i++) {
        s->acceptance_by_source[i].hits *= 0.99f;
        s->acceptance_by_source[i].tries *= 0.99f;
    }
}

/* ---- the drafter */

static enum draft_source hint_source(const struct draft_seq *s)
{
    return s->hint.is_after_edit ? DRAFT_PREDICTION_EDITED : DRAFT_PREDICTION;
}

static bool prefers_hint(const struct draft_seq *s)
{
    if (s->hint.at < 0 || s->past.at < 0)
        return s->hint.at >= 0;
    return draft_seq_acceptance(s, hint_source(s)) >= draft_seq_acceptance(s, source_of(&s->past));
}

static int offer(struct drafter *d, struct draft_job *job)
{
    struct draft_seq *s = job->seq;

    if (s->prompt && index_output(s, job->tokens, job->n))
        update_past(s, job->tokens, job->n);
    if (prefers_hint(s)) {
        job->source = hint_source(s);
        return MIN(job->n_max, s->n_predicted - s->hint.at);
    }
    if (s->past.at < 0 || s->n_followed < job->n)
        return 0;
    job->source = source_of(&s->past);
    return job->n_max;
}

/* A copy beyond the known tokens continues with the tokens just proposed, so a loop repeats. */
static void copy_past(const struct draft_seq *s, struct draft_job *job)
{
    for (job->n_out = 0; job->n_out < job->n_max; job->n_out++) {
        int at = s->past.at + job->n_out;
        job->out[job->n_out] = at < job->n ? job->tokens[at] : job->out[at - job->n];
    }
}

static void propose(struct drafter *d, struct draft_job *jobs, int n_jobs, const _Atomic bool *stop)
{
    for (int i = 0; i < n_jobs; i++) {
        struct draft_job *job = &jobs[i];
        const struct draft_seq *s = job->seq;
        if (draft_kind_of(job->source) != DRAFT_BY_PREDICTION) {
            copy_past(s, job);
            continue;
        }
        job->n_out = MIN(job->n_max, s->n_predicted - s->hint.at);
        memcpy(job->out, s->predicted + s->hint.at, (size_t)job->n_out * sizeof(*job->out));
    }
}

static void forget(struct drafter *d, uint64_t key)
{
}

static void close_text(struct drafter *d)
{
}

static const struct draft_ops text_ops = { offer, propose, forget, close_text };

struct drafter draft_text = { &text_ops };
