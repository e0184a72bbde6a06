#include "engine/sample/sampler.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/sample/candidates.h"

#include <float.h>
#include <math.h>

#define LOGPROB_FLOOR -9999.0f

struct sampler {
    int n_vocab;
    uint32_t *bits;  /* [n_vocab] bit set: permitted by mask and allowed list */
    uint32_t *count; /* [n_vocab] all zero between uses */
    struct candidates c;
};

const struct sample_params sample_params_default = {
    .temperature = 1.0f,
    .top_p = 1.0f,
    .typical_p = 1.0f,
    .repeat_penalty = 1.0f,
    .repeat_last_n = -1,
};

int sampler_open(struct sampler **out, const struct kernels *k, int n_vocab, struct err *e)
{
    struct sampler *s = xcalloc(1, sizeof(*s));
    size_t n = (size_t)n_vocab;

    CHECK(n_vocab > 0);
    s->n_vocab = n_vocab;
    s->bits = try_calloc((n + 31) / 32, sizeof(*s->bits));
    s->count = try_calloc(n, sizeof(*s->count));
    bool has_candidates = candidates_init(&s->c, k, n_vocab);
    if (!s->bits || !s->count || !has_candidates) {
        sampler_close(s);
        return err_set(e, ERR_MEMORY, "no memory to sample from %d tokens", n_vocab);
    }
    *out = s;
    return 0;
}

void sampler_close(struct sampler *s)
{
    if (!s)
        return;
    mem_free(s->bits);
    mem_free(s->count);
    candidates_clear(&s->c);
    mem_free(s);
}

/* ---- modification of the logits */

static bool is_id(const struct sampler *s, int32_t id)
{
    return id >= 0 && id < s->n_vocab;
}

/* Fills `bits` with the ids that mask and allowed list permit; returns false if all are
 * permitted. */
static bool fill_permitted(
    struct sampler *s, const struct sample_params *p, const int32_t *out, int n_out, int choice)
{
    size_t n_words = ((size_t)s->n_vocab + 31) / 32;

    if (!p->mask && !p->allowed)
        return false;
    memset(s->bits, 0, n_words * sizeof(*s->bits));
    bool is_masked = p->mask && p->mask(p->mask_ctx, choice, out, n_out, s->bits);
    if (!is_masked && !p->allowed)
        return false;
    if (!is_masked)
        memset(s->bits, 0xff, n_words * sizeof(*s->bits));
    if (!p->allowed)
        return true;
    /* Clears the bits of ids that are not listed; `count` is the set of listed ids. */
    for (int i = 0; i < p->n_allowed; i++)
        if (is_id(s, p->allowed[i]))
            s->count[p->allowed[i]] = 1;
    for (int id = 0; id < s->n_vocab; id++) {
        if (!s->count[id])
            s->bits[id / 32] &= ~(1u << id % 32);
        s->count[id] = 0;
    }
    return true;
}

static bool is_permitted(const struct sampler *s, int id)
{
    return s->bits[id / 32] >> id % 32 & 1;
}

static void penalise_repeats(
    struct sampler *s, float *logit, float penalty, const int32_t *seen, int n)
{
    for (int i = 0; i < n; i++) {
        if (!is_id(s, seen[i]) || s->count[seen[i]]++)
            continue;
        float *x = &logit[seen[i]];
        *x = *x > 0.0f ? *x / penalty : *x * penalty;
    }
    for (int i = 0; i < n; i++)
        if (is_id(s, seen[i]))
            s->count[seen[i]] = 0;
}

static void penalise_presence(
    struct sampler *s, float *logit, const struct sample_params *p, const int32_t *out, int n)
{
    for (int i = 0; i < n; i++)
        if (is_id(s, out[i]))
            s->count[out[i]]++;
    for (int i = 0; i < n; i++) {
        if (!is_id(s, out[i]) || !s->count[out[i]])
            continue;
        logit[out[i]] -= p->presence_penalty + p->frequency_penalty * (float)s->count[out[i]];
        s->count[out[i]] = 0;
    }
}

static bool wants_penalties(const struct sample_params *p)
{
    return (p->repeat_penalty > 0.0f && p->repeat_penalty != 1.0f && p->repeat_last_n != 0) ||
           p->presence_penalty != 0.0f || p->frequency_penalty != 0.0f;
}

static void penalise(
    struct sampler *s, float *logit, const struct sample_params *p, const struct sample_past *h)
{
    if (p->repeat_penalty > 0.0f && p->repeat_penalty != 1.0f && p->repeat_last_n != 0) {
        int n = p->repeat_last_n < 0 ? h->n : MIN(p->repeat_last_n, h->n);
        penalise_repeats(s, logit, p->repeat_penalty, h->tokens + h->n - n, n);
    }
    if (p->presence_penalty != 0.0f || p->frequency_penalty != 0.0f)
        penalise_presence(s, logit, p, h->tokens + h->n_prompt, h->n - h->n_prompt);
}

static bool is_end_banned(const struct sample_params *p, const struct sample_past *h)
{
    return p->n_banned_until_min && h->n - h->n_prompt < p->min_tokens;
}

static void adjust_logits(struct sampler *s, float *logit, const struct sample_params *p,
    const struct sample_past *h, bool is_restricted)
{
    if (is_restricted)
        for (int id = 0; id < s->n_vocab; id++)
            if (!is_permitted(s, id))
                logit[id] = -INFINITY;
    for (int i = 0; i < p->n_bias; i++) {
        if (!is_id(s, p->bias[i].id))
            continue;
        float *x = &logit[p->bias[i].id];
        *x = p->bias[i].bias <= -100.0f ? -INFINITY : *x + p->bias[i].bias;
    }
    if (is_end_banned(p, h))
        for (int i = 0; i < p->n_banned_until_min; i++)
            if (is_id(s, p->banned_until_min[i]))
                logit[p->banned_until_min[i]] = -INFINITY;
    penalise(s, logit, p, h);
}

/* ---- selection */

/* All tokens are banned: a permitted id if there are restrictions, else the arg-max of the
 * model. */
static int32_t fallback_token(struct sampler *s, const struct logits *raw, bool is_restricted)
{
    if (is_restricted)
        for (int id = 0; id < s->n_vocab; id++)
            if (is_permitted(s, id))
                return id;
    candidates_set_row(&s->c, raw);
    return candidates_best(&s->c);
}

static int32_t choose_token(struct sampler *s, const struct sample_params *p,
    const struct logits *raw, const struct sample_past *h, int choice, bool *is_invalid)
{
    const struct filters f = { p->top_k, p->typical_p, p->top_p, p->min_p };
    bool is_restricted = fill_permitted(s, p, h->tokens + h->n_prompt, h->n - h->n_prompt, choice);

    candidates_set_row(&s->c, raw);
    *is_invalid = s->c.max == -INFINITY;
    if (is_restricted || p->n_bias || is_end_banned(p, h) || wants_penalties(p)) {
        float *own = candidates_copy(&s->c);
        adjust_logits(s, own, p, h, is_restricted);
        candidates_set_row(&s->c, &(struct logits){ own, NULL });
    }
    if (s->c.max == -INFINITY)
        return fallback_token(s, raw, is_restricted);
    if (!(p->temperature > 0.0f))
        return candidates_best(&s->c);
    struct rng4 r = rng_at(p->seed, (uint64_t)(uint32_t)choice, (uint64_t)(uint32_t)h->n);
    return candidates_draw(&s->c, &f, p->temperature, rng_unit(r, 0));
}

/* ---- logprobs of the unmodified distribution */

static float logprob_of(float x, double log_sum)
{
    if (!(x > -INFINITY)) /* also for NaN */
        return LOGPROB_FLOOR;
    double p = (double)MIN(x, FLT_MAX) - log_sum;
    return p > LOGPROB_FLOOR ? (float)MIN(p, 0.0) : LOGPROB_FLOOR;
}

static void insert_top(struct sampled *out, int n_top, int32_t id, float x)
{
    int at = out->n_top;

    if (at < n_top)
        out->n_top++;
    else
        at--;
    for (; at > 0 && x > out->top[at - 1].logprob; at--)
        out->top[at] = out->top[at - 1];
    out->top[at] = (struct token_logprob){ id, x };
}

/* One pass with a short sorted list. Most groups are below the floor or the last list entry, and so
 * are most logits of the other groups. */
static void fill_top(struct candidates *c, int n_top, struct sampled *out)
{
    const float floor = candidates_floor(c, n_top);
    float least = -INFINITY; /* last entry of a full list */

    for (int from = 0; from < c->n_vocab; from += LOGIT_GROUP) {
        int end = MIN(from + LOGIT_GROUP, c->n_vocab);
        float peak = c->row.peak[from / LOGIT_GROUP];
        if (peak < floor || (out->n_top == n_top && !(peak > least)))
            continue;
        for (int id = from; id < end; id++) {
            float x = c->row.x[id] > -INFINITY ? c->row.x[id] : -INFINITY;
            if (x < floor || (out->n_top == n_top && !(x > least)))
                continue;
            insert_top(out, n_top, id, x);
            if (out->n_top == n_top)
                least = out->top[n_top - 1].logprob;
        }
    }
}

void sampler_score(
    struct sampler *s, const struct logits *row, int32_t id, int n_top, struct sampled *out)
{
    n_top = MIN(MIN(MAX(n_top, 0), (int)TOP_LOGPROBS_MAX), s->n_vocab);
    candidates_set_row(&s->c, row);
    out->id = id;
    out->is_invalid = false;
    out->n_top = 0;
    if (n_top > 0)
        fill_top(&s->c, n_top, out);
    double log_sum = candidates_log_sum(&s->c); /* +inf: all logprobs are LOGPROB_FLOOR */
    out->logprob = logprob_of(is_id(s, id) ? row->x[id] : -INFINITY, log_sum);
    for (int i = 0; i < out->n_top; i++)
        out->top[i].logprob = logprob_of(out->top[i].logprob, log_sum);
}

void sampler_sample(struct sampler *s, const struct sample_params *p, const struct logits *row,
    const struct sample_past *past, int choice, struct sampled *out)
{
    bool is_invalid;
    int32_t id = choose_token(s, p, row, past, choice, &is_invalid);

    if (p->want_logprobs)
        sampler_score(s, row, id, p->n_top, out);
    else
        *out = (struct sampled){ .id = id };
    out->is_invalid = is_invalid;
}
