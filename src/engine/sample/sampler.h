/* sampler.h: logits -> one token, the same whatever else runs.
 *
 * Order: constraint mask and allowed ids, logit_bias, penalties, then (temperature 0: arg-max,
 * lowest id wins ties) top_k, typical_p, top_p, min_p, temperature, draw. The draw is a function
 * of (seed, choice, position). Reported log-probabilities are of the model's own distribution,
 * before all of this.
 *
 * Candidates stay in the order of their ids. Each filter sees the distribution that the one
 * before left, at temperature 1 (candidates.h says how weights are added up); top_p and typical_p
 * keep the best whose weights reach the mass, of equals the lowest ids. The draw walks the
 * candidates in id order. Logits that are NaN or -inf are banned, +inf counts as the largest
 * float.
 *
 * When nothing is left: the lowest id that mask and allowed list permit; when they permit
 * nothing or are absent, the model's own arg-max.
 *
 * A sampler's scratch is sized for one vocabulary and allocates nothing while sampling. Time is
 * linear in the vocabulary, and far less where the model gives peaks (lm.h) and few are kept.
 * Owner: one thread at a time. */
#pragma once

#include "base/err.h"
#include "kernel/kernels.h"
#include "model/lm.h"

enum { TOP_LOGPROBS_MAX = 20 };

struct token_bias {
    int32_t id;
    float bias; /* added to the logit; <= -100 bans */
};

/* Which tokens may follow `out` (n tokens so far) in this choice: sets bits of `bits` (one per id,
 * (n_vocab + 31) / 32 words, all zero on entry). Returns false when anything goes. Called once per
 * token, or a few times more where tokens are guessed, on a thread that computes, for several
 * choices at once; must not allocate, and must give the same answer for the same tokens. */
typedef bool (*sample_mask_fn)(void *ctx, int choice, const int32_t *out, int n, uint32_t *bits);

struct sample_params {    /* plain data; arrays are borrowed and live as long as the request */
    float temperature;    /* 0 = greedy */
    int top_k;            /* 0 = off */
    float top_p;          /* 1 = off */
    float min_p;          /* 0 = off */
    float typical_p;      /* 1 = off */
    float repeat_penalty; /* 1 = off; over prompt and output */
    int repeat_last_n;    /* tokens it looks back; -1 = all, 0 = none */
    float presence_penalty, frequency_penalty; /* over the output, as OpenAI defines them */
    uint64_t seed;
    const struct token_bias *bias;
    int n_bias;
    const int32_t *allowed; /* NULL = all; ascending */
    int n_allowed;
    const int32_t *banned_until_min; /* end tokens, banned while fewer than min_tokens came */
    int n_banned_until_min;
    int min_tokens;
    sample_mask_fn mask; /* NULL = none */
    void *mask_ctx;
    bool want_logprobs;
    int n_top; /* alternatives to report, 0..20 */
};

extern const struct sample_params sample_params_default;

struct token_logprob {
    int32_t id;
    float logprob;
};

struct sampled {
    int32_t id;
    float logprob; /* finite; floor -9999; 0 when not wanted */
    int n_top;
    struct token_logprob top[TOP_LOGPROBS_MAX]; /* most likely first; ties by id */
};

struct sampler;

int sampler_open(struct sampler **out, const struct kernels *k, int n_vocab, struct err *e);
void sampler_close(struct sampler *s);

struct sample_past {
    const int32_t *tokens; /* prompt, then output */
    int n_prompt, n;       /* n of them, n_prompt are the prompt */
};

/* The row is not changed. seed, choice and past->n make the random number. */
void sampler_sample(struct sampler *s, const struct sample_params *p, const struct logits *row,
    const struct sample_past *past, int choice, struct sampled *out);

/* The model's own log-probability of `id` and its best alternatives (for echoed prompts). */
void sampler_score(
    struct sampler *s, const struct logits *row, int32_t id, int n_top, struct sampled *out);
