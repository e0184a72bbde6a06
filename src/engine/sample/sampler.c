#include "engine/sample/sampler.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/sample/candidates.h"
#include "engine/sample/token_mask.h"

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
    s->bits = try_calloc(token_mask_words(n_vocab), sizeof(*s->bits));
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

/* Clears the bits of ids that are not in the allowed list. */
static void keep_allowed(struct sampler *s, const struct sample_params *p)
{
    for (int i = 0; i < p->n_allowed; i++) /* `count` is the set of listed ids */
        if (is_id(s, p->allowed[i]))
            s->count[p->allowed[i]] = 1;
    for (int id = 0; id < s->n_vocab; id++) {
        if (!s->count[id])
            s->bits[id / 32] &= ~(1u << id % 32);
        s->count[id] = 0;
    }
}

/* Copies 32 logits or fewer: those of the bits in `word`, -inf for the others. */
static void copy_word(float *to, const float *from, uint32_t word, int n)
{
    const uint32_t all = n < 32 ? (1u << n) - 1 : UINT32_MAX;
    const bool has_most = 2 * __builtin_popcount(word & all) >= n;

    if (has_most)
        memcpy(to, from, (size_t)n * sizeof(*to));
    else
        for (int i = 0; i < n; i++)
            to[i] = -INFINITY;
    for (uint32_t left = (has_most ? ~word : word) & all; left; left &= left - 1) {
        int i = __builtin_ctz(left);
        to[i] = has_most ? -INFINITY : from[i];
    }
}

/* Modified copy of a row: logits of ids outside the bit set are -inf. */
static float *copy_bits(struct sampler *s, const struct logits *raw, const uint32_t *bits)
{
    for (int from = 0; from < s->n_vocab; from += 32)
        copy_word(s->c.own + from, raw->x + from, bits[from / 32], MIN(32, s->n_vocab - from));
    return s->c.own;
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

/* Bias, end tokens before min_tokens, penalties. Without bans only finite biases and penalties
 * count. Touches no logits except those of the ids that it names. */
static void adjust_logits(struct sampler *s, float *logit, const struct sample_params *p,
    const struct sample_past *h, bool with_bans)
{
    for (int i = 0; i < p->n_bias; i++) {
        if (!is_id(s, p->bias[i].id))
            continue;
        float *x = &logit[p->bias[i].id];
        if (p->bias[i].bias > -100.0f)
            *x += p->bias[i].bias;
        else if (with_bans)
            *x = -INFINITY;
    }
    for (int i = 0; with_bans && is_end_banned(p, h) && i < p->n_banned_until_min; i++)
        if (is_id(s, p->banned_until_min[i]))
            logit[p->banned_until_min[i]] = -INFINITY;
    penalise(s, logit, p, h);
}

static bool wants_adjustment(const struct sample_params *p, const struct sample_past *h)
{
    return p->allowed || p->n_bias || is_end_banned(p, h) || wants_penalties(p);
}

/* ---- selection */

static double draw_number(const struct sample_params *p, const struct sample_past *h, int choice)
{
    struct rng4 r = rng_at(p->seed, (uint64_t)(uint32_t)choice, (uint64_t)(uint32_t)h->n);

    return rng_unit(r, 0);
}

static struct filters filters_of(const struct sample_params *p)
{
    return (struct filters){ p->top_k, p->typical_p, p->top_p, p->min_p };
}

/* Selects from the row set in the candidates, which has a finite logit. */
static int32_t choose_from_row(
    struct sampler *s, const struct sample_params *p, const struct sample_past *h, int choice)
{
    const struct filters f = filters_of(p);

    if (!(p->temperature > 0.0f))
        return candidates_best(&s->c);
    return candidates_draw(&s->c, &f, p->temperature, draw_number(p, h, choice));
}

/* All tokens are banned: the lowest allowed id; without a list the arg-max of the model. */
static int32_t fallback_token(
    struct sampler *s, const struct sample_params *p, const struct logits *raw)
{
    for (int i = 0; p->allowed && i < p->n_allowed; i++)
        if (is_id(s, p->allowed[i]))
            return p->allowed[i];
    candidates_set_row(&s->c, raw);
    return candidates_best(&s->c);
}

static void choose_unmasked(struct sampler *s, const struct sample_params *p,
    const struct logits *raw, const struct sample_past *h, int choice, struct sampled *out)
{
    candidates_set_row(&s->c, raw);
    out->is_invalid = s->c.max == -INFINITY;
    if (wants_adjustment(p, h)) {
        if (p->allowed) {
            memset(s->bits, 0xff, token_mask_words(s->n_vocab) * sizeof(*s->bits));
            keep_allowed(s, p);
        }
        float *own = p->allowed ? copy_bits(s, raw, s->bits) : candidates_copy(&s->c);
        adjust_logits(s, own, p, h, true);
        candidates_set_row(&s->c, &(struct logits){ own, NULL });
    }
    out->id = s->c.max == -INFINITY ? fallback_token(s, p, raw) : choose_from_row(s, p, h, choice);
}

/* ---- selection under a mask */

/* Sets the row of permitted logits. Returns false if all of them are banned, NaN or -inf. */
static bool set_masked_row(struct sampler *s, const struct sample_params *p,
    const struct logits *raw, const struct sample_past *h, bool with_bans)
{
    if (h->mask->form == MASK_FORM_ALL && !wants_adjustment(p, h)) {
        candidates_set_row(&s->c, raw);
        return s->c.max > -INFINITY;
    }
    const uint32_t *bits = h->mask->bits;
    if (h->mask->form != MASK_FORM_BITS || (with_bans && p->allowed)) {
        token_mask_bits(h->mask, s->n_vocab, s->bits);
        bits = s->bits;
    }
    if (with_bans && p->allowed)
        keep_allowed(s, p);
    float *own = copy_bits(s, raw, bits);
    adjust_logits(s, own, p, h, with_bans);
    candidates_set_row(&s->c, &(struct logits){ own, NULL });
    return s->c.max > -INFINITY;
}

/* The same for a mask of few tokens: collects the permitted tokens as candidates. */
static bool list_masked(struct sampler *s, const struct sample_params *p, const struct logits *raw,
    const struct sample_past *h, bool with_bans)
{
    float *own = s->c.own;
    int n = token_mask_list(h->mask, s->n_vocab, s->c.id, s->n_vocab), n_kept = 0;
    const struct token_mask allowed = {
        .form = MASK_FORM_IDS, .ids = p->allowed, .n_ids = p->n_allowed
    };

    for (int i = 0; i < n; i++)
        own[s->c.id[i]] = raw->x[s->c.id[i]];
    adjust_logits(s, own, p, h, with_bans);
    for (int i = 0; i < n; i++) {
        int32_t id = s->c.id[i];
        if (!(own[id] > -INFINITY) || (with_bans && p->allowed && !token_mask_has(&allowed, id)))
            continue;
        s->c.id[n_kept] = id;
        s->c.value[n_kept++] = MIN(own[id], FLT_MAX);
    }
    s->c.n = n_kept;
    return n_kept > 0;
}

static int32_t choose_from_list(
    struct sampler *s, const struct sample_params *p, const struct sample_past *h, int choice)
{
    const struct filters f = filters_of(p);

    if (!(p->temperature > 0.0f))
        return candidates_best_listed(&s->c);
    return candidates_draw_listed(&s->c, &f, p->temperature, draw_number(p, h, choice));
}

/* If the mask and the bans of the client leave no token, the bans are ignored; if the permitted
 * tokens have no logits, there is no token. */
static void choose_masked(struct sampler *s, const struct sample_params *p,
    const struct logits *raw, const struct sample_past *h, int choice, struct sampled *out)
{
    const int most = s->n_vocab / MASK_LIST_PART;
    const int n = token_mask_count(h->mask, s->n_vocab, most + 1);
    bool (*const set)(struct sampler *, const struct sample_params *, const struct logits *,
        const struct sample_past *, bool) = n > most ? set_masked_row : list_masked;

    out->is_unmet = n == 0;
    if (n == 0)
        return;
    out->is_invalid = !set(s, p, raw, h, true) && !set(s, p, raw, h, false);
    if (!out->is_invalid)
        out->id = (n > most ? choose_from_row : choose_from_list)(s, p, h, choice);
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
    out->is_invalid = out->is_unmet = false;
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
    out->id = 0;
    out->logprob = 0;
    out->n_top = 0;
    out->is_invalid = out->is_unmet = false;
    if (past->mask)
        choose_masked(s, p, row, past, choice, out);
    else
        choose_unmasked(s, p, row, past, choice, out);
    if (!p->want_logprobs || out->is_unmet)
        return;
    bool is_invalid = out->is_invalid;
    sampler_score(s, row, out->id, p->n_top, out);
    out->is_invalid = is_invalid;
}
