#include "engine/sampler.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/select.h"

#include <float.h>
#include <math.h>

#define LOGPROB_FLOOR -9999.0f

struct sampler {
    const struct kernels *k;
    int n_vocab;
    float *logit;    /* by id, as adjusted */
    uint32_t *bits;  /* by id: permitted by mask and allowed list */
    uint32_t *count; /* by id; all zero between uses */
    /* candidates, in id order */
    int n;
    int32_t *id;
    float *value;  /* logits */
    float *weight; /* scratch of the filters */
    struct select sel;
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
    s->k = k;
    s->n_vocab = n_vocab;
    s->logit = try_calloc(n, sizeof(*s->logit));
    s->bits = try_calloc((n + 31) / 32, sizeof(*s->bits));
    s->count = try_calloc(n, sizeof(*s->count));
    s->id = try_calloc(n, sizeof(*s->id));
    s->value = try_calloc(n, sizeof(*s->value));
    s->weight = try_calloc(n, sizeof(*s->weight));
    bool is_selecting = select_init(&s->sel, n);
    if (!s->logit || !s->bits || !s->count || !s->id || !s->value || !s->weight || !is_selecting) {
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
    mem_free(s->logit);
    mem_free(s->bits);
    mem_free(s->count);
    mem_free(s->id);
    mem_free(s->value);
    mem_free(s->weight);
    select_clear(&s->sel);
    mem_free(s);
}

/* ---- adjusting the logits */

static bool is_id(const struct sampler *s, int32_t id)
{
    return id >= 0 && id < s->n_vocab;
}

/* Fills bits with what mask and allowed list permit; false when they permit everything. */
static bool permit(
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
    /* Keep the bits at the listed ids; count is the set of those that stay. */
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

static void penalise_repeats(struct sampler *s, float penalty, const int32_t *seen, int n)
{
    for (int i = 0; i < n; i++) {
        if (!is_id(s, seen[i]) || s->count[seen[i]]++)
            continue;
        float *x = &s->logit[seen[i]];
        *x = *x > 0.0f ? *x / penalty : *x * penalty;
    }
    for (int i = 0; i < n; i++)
        if (is_id(s, seen[i]))
            s->count[seen[i]] = 0;
}

static void penalise_presence(
    struct sampler *s, const struct sample_params *p, const int32_t *out, int n)
{
    for (int i = 0; i < n; i++)
        if (is_id(s, out[i]))
            s->count[out[i]]++;
    for (int i = 0; i < n; i++) {
        if (!is_id(s, out[i]) || !s->count[out[i]])
            continue;
        s->logit[out[i]] -= p->presence_penalty + p->frequency_penalty * (float)s->count[out[i]];
        s->count[out[i]] = 0;
    }
}

static bool wants_penalties(const struct sample_params *p)
{
    return (p->repeat_penalty > 0.0f && p->repeat_penalty != 1.0f && p->repeat_last_n != 0) ||
           p->presence_penalty != 0.0f || p->frequency_penalty != 0.0f;
}

static void penalise(struct sampler *s, const struct sample_params *p, const struct sample_past *h)
{
    if (p->repeat_penalty > 0.0f && p->repeat_penalty != 1.0f && p->repeat_last_n != 0) {
        int n = p->repeat_last_n < 0 ? h->n : MIN(p->repeat_last_n, h->n);
        penalise_repeats(s, p->repeat_penalty, h->tokens + h->n - n, n);
    }
    if (p->presence_penalty != 0.0f || p->frequency_penalty != 0.0f)
        penalise_presence(s, p, h->tokens + h->n_prompt, h->n - h->n_prompt);
}

static void adjust(struct sampler *s, const struct sample_params *p, const struct sample_past *h,
    bool is_restricted)
{
    if (is_restricted)
        for (int id = 0; id < s->n_vocab; id++)
            if (!is_permitted(s, id))
                s->logit[id] = -INFINITY;
    for (int i = 0; i < p->n_bias; i++) {
        if (!is_id(s, p->bias[i].id))
            continue;
        float *x = &s->logit[p->bias[i].id];
        *x = p->bias[i].bias <= -100.0f ? -INFINITY : *x + p->bias[i].bias;
    }
    if (h->n - h->n_prompt < p->min_tokens)
        for (int i = 0; i < p->n_banned_until_min; i++)
            if (is_id(s, p->banned_until_min[i]))
                s->logit[p->banned_until_min[i]] = -INFINITY;
    penalise(s, p, h);
}

/* ---- filters: each shrinks the candidates in place, in id order */

static void take_candidates(struct sampler *s)
{
    int n = 0; /* in a register: each entry's place depends on the one before */

    for (int id = 0; id < s->n_vocab; id++) {
        float x = s->logit[id];
        s->id[n] = id;
        s->value[n] = MIN(x, FLT_MAX);
        n += x > -INFINITY; /* false for NaN as well */
    }
    s->n = n;
}

static void keep_from(struct sampler *s, uint64_t cut)
{
    int n = 0;

    for (int i = 0; i < s->n; i++) {
        s->id[n] = s->id[i];
        s->value[n] = s->value[i];
        n += s->sel.keys[i] >= cut;
    }
    s->n = n;
}

static double weigh(struct sampler *s, float max)
{
    memcpy(s->weight, s->value, (size_t)s->n * sizeof(*s->weight));
    return s->k->softmax(s->weight, s->n, max);
}

static void filter_top_k(struct sampler *s, int k)
{
    if (k >= s->n)
        return;
    for (int i = 0; i < s->n; i++)
        s->sel.keys[i] = select_key(s->value[i], i);
    keep_from(s, select_nth(&s->sel, s->n, k));
}

/* The order is by distance from the expected surprise, nearest first. */
static void filter_typical(struct sampler *s, double want)
{
    float max = s->k->max(s->value, s->n);
    double total = weigh(s, max), log_total = log(total), entropy = 0.0;

    for (int i = 0; i < s->n; i++)
        entropy += (double)s->weight[i] * (log_total - ((double)s->value[i] - max));
    entropy /= total;
    for (int i = 0; i < s->n; i++) {
        double surprise = log_total - ((double)s->value[i] - max);
        s->sel.keys[i] = select_key(-(float)fabs(surprise - entropy), i);
    }
    keep_from(s, select_mass(&s->sel, s->n, s->weight, want * total));
}

static void filter_top_p(struct sampler *s, double want)
{
    double total = weigh(s, s->k->max(s->value, s->n));

    for (int i = 0; i < s->n; i++)
        s->sel.keys[i] = select_key(s->value[i], i);
    keep_from(s, select_mass(&s->sel, s->n, s->weight, want * total));
}

static void filter_min_p(struct sampler *s, double min_p)
{
    double max = s->k->max(s->value, s->n), floor = log(MIN(min_p, 1.0));
    int n = 0;

    for (int i = 0; i < s->n; i++) {
        s->id[n] = s->id[i];
        s->value[n] = s->value[i];
        n += (double)s->value[i] - max >= floor;
    }
    s->n = n;
}

static int32_t draw(struct sampler *s, float temperature, double u)
{
    float max = s->k->max(s->value, s->n);
    double sum = 0.0;
    int last = 0;

    for (int i = 0; i < s->n; i++)
        s->weight[i] = (s->value[i] - max) / temperature;
    double total = s->k->softmax(s->weight, s->n, 0.0f);
    for (int i = 0; i < s->n; i++) {
        if (s->weight[i] <= 0.0f)
            continue;
        last = i; /* the total was added up in another order, so u may lie past the end */
        sum += (double)s->weight[i];
        if (sum > u * total)
            break;
    }
    return s->id[last];
}

static void filter(struct sampler *s, const struct sample_params *p)
{
    if (p->top_k > 0)
        filter_top_k(s, p->top_k);
    if (p->typical_p < 1.0f)
        filter_typical(s, p->typical_p);
    if (p->top_p < 1.0f)
        filter_top_p(s, p->top_p);
    if (p->min_p > 0.0f)
        filter_min_p(s, p->min_p);
}

/* ---- choosing */

static int32_t arg_max(const struct sampler *s, const float *x)
{
    float max = s->k->max(x, s->n_vocab);

    for (int id = 0; id < s->n_vocab; id++)
        if (x[id] == max)
            return id;
    return 0; /* all NaN */
}

static int32_t last_resort(const struct sampler *s, const float *raw, bool is_restricted)
{
    if (is_restricted)
        for (int id = 0; id < s->n_vocab; id++)
            if (is_permitted(s, id))
                return id;
    return arg_max(s, raw);
}

static int32_t choose(struct sampler *s, const struct sample_params *p, const float *raw,
    const struct sample_past *h, int choice)
{
    bool is_greedy = !(p->temperature > 0.0f);
    bool is_restricted = permit(s, p, h->tokens + h->n_prompt, h->n - h->n_prompt, choice);

    if (is_greedy && !is_restricted && !p->n_bias && !p->n_banned_until_min && !wants_penalties(p))
        return arg_max(s, raw);

    memcpy(s->logit, raw, (size_t)s->n_vocab * sizeof(*s->logit));
    adjust(s, p, h, is_restricted);
    if (is_greedy) {
        int32_t best = arg_max(s, s->logit);
        return s->logit[best] > -INFINITY ? best : last_resort(s, raw, is_restricted);
    }
    take_candidates(s);
    if (s->n == 0)
        return last_resort(s, raw, is_restricted);
    filter(s, p);
    struct rng4 r = rng_at(p->seed, (uint64_t)(uint32_t)choice, (uint64_t)(uint32_t)h->n);
    return draw(s, p->temperature, rng_unit(r, 0));
}

/* ---- the model's own opinion */

static float tidy(float x)
{
    return x > -INFINITY ? MIN(x, FLT_MAX) : -INFINITY; /* NaN is no opinion */
}

static float logprob_of(float x, double log_sum)
{
    double p = (double)x - log_sum;

    return p > LOGPROB_FLOOR ? (float)MIN(p, 0.0) : LOGPROB_FLOOR;
}

/* One pass with a short sorted list: most logits lose against its last entry at once. */
static void best_of(const float *x, int n_vocab, int n_top, struct sampled *out)
{
    for (int id = 0; id < n_vocab; id++) {
        int at = out->n_top;
        if (at == n_top && !(x[id] > out->top[at - 1].logprob))
            continue;
        if (at < n_top)
            out->n_top++;
        else
            at--;
        for (; at > 0 && x[id] > out->top[at - 1].logprob; at--)
            out->top[at] = out->top[at - 1];
        out->top[at] = (struct token_logprob){ id, x[id] };
    }
}

void sampler_score(
    struct sampler *s, const float *logits, int32_t id, int n_top, struct sampled *out)
{
    n_top = MIN(MIN(MAX(n_top, 0), (int)TOP_LOGPROBS_MAX), s->n_vocab);
    for (int i = 0; i < s->n_vocab; i++)
        s->logit[i] = tidy(logits[i]);
    out->id = id;
    out->n_top = 0;
    if (n_top > 0)
        best_of(s->logit, s->n_vocab, n_top, out);
    float own = is_id(s, id) ? s->logit[id] : -INFINITY;

    float max = s->k->max(s->logit, s->n_vocab);
    double log_sum = INFINITY; /* of nothing at all: every log-probability is the floor */
    if (max > -INFINITY)
        log_sum = max + log(s->k->softmax(s->logit, s->n_vocab, max));
    out->logprob = logprob_of(own, log_sum);
    for (int i = 0; i < out->n_top; i++)
        out->top[i].logprob = logprob_of(out->top[i].logprob, log_sum);
}

void sampler_sample(struct sampler *s, const struct sample_params *p, const float *logits,
    const struct sample_past *past, int choice, struct sampled *out)
{
    int32_t id = choose(s, p, logits, past, choice);

    if (p->want_logprobs)
        sampler_score(s, logits, id, p->n_top, out);
    else
        *out = (struct sampled){ .id = id };
}
