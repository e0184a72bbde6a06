/* sampler.h: sampler: logits -> one token, independent of the batch.
 *
 * Order: constraint mask and allowed ids, logit_bias, penalties; then at temperature 0 arg-max
 * (ties by lowest id), otherwise top_k, typical_p, top_p, min_p, temperature, draw. The random
 * number is a function of (seed, choice, position). Reported logprobs are those of the unmodified
 * distribution.
 *
 * Candidates stay in id order. Each filter sees the distribution left by the previous one, at
 * temperature 1 (candidates.h defines the summation order); top_p and typical_p keep the best
 * tokens whose weights reach the mass, ties by lowest id. The draw walks the candidates in id
 * order. NaN and -inf logits are banned, +inf counts as the largest float.
 *
 * If no token is left: the lowest id that mask and allowed list permit; if they permit none or are
 * absent, the arg-max of the model.
 *
 * A sampler is sized for one vocabulary and allocates nothing while sampling. Time is linear in the
 * vocabulary, and much lower if the model provides group maxima (model/lm.h) and few tokens are
 * kept. Owner: one thread at a time. */
#pragma once

#include "base/err.h"
#include "kernel/kernels.h"
#include "model/lm.h"

enum { TOP_LOGPROBS_MAX = 20 };

struct token_bias {
    int32_t id;
    float bias; /* added to the logit; <= -100 bans */
};

/* Computes the mask of the tokens that may follow `out` (n tokens so far) in this choice: sets bits
 * of `bits` (one per id, (n_vocab + 31) / 32 words, all zero on entry). Returns false if all tokens
 * are allowed. Called once per token, or a few more times with draft tokens, on a pool thread, for
 * several choices concurrently; must not allocate, and must be deterministic. */
typedef bool (*sample_mask_fn)(void *ctx, int choice, const int32_t *out, int n, uint32_t *bits);

struct sample_params {    /* plain data; arrays are borrowed for the lifetime of the request */
    float temperature;    /* 0 = greedy */
    int top_k;            /* 0 = off */
    float top_p;          /* 1 = off */
    float min_p;          /* 0 = off */
    float typical_p;      /* 1 = off */
    float repeat_penalty; /* 1 = off; over prompt and output */
    int repeat_last_n;    /* window in tokens; -1 = all, 0 = none */
    float presence_penalty, frequency_penalty; /* over the output, as defined by OpenAI */
    uint64_t seed;
    const struct token_bias *bias;
    int n_bias;
    const int32_t *allowed; /* NULL = all; ascending */
    int n_allowed;
    const int32_t *banned_until_min; /* end tokens, banned until min_tokens were generated */
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
    float logprob; /* finite, at least -9999; 0 if not requested */
    int n_top;
    bool is_invalid; /* all logits are NaN or -inf: the model computes no distribution */
    struct token_logprob top[TOP_LOGPROBS_MAX]; /* most likely first; ties by id */
};

struct sampler;

int sampler_open(struct sampler **out, const struct kernels *k, int n_vocab, struct err *e);
void sampler_close(struct sampler *s);

struct sample_past {
    const int32_t *tokens; /* prompt, then output */
    int n_prompt, n;       /* all tokens, and the prompt tokens among them */
};

/* Does not change the row. The random number is keyed by seed, choice and past->n. */
void sampler_sample(struct sampler *s, const struct sample_params *p, const struct logits *row,
    const struct sample_past *past, int choice, struct sampled *out);

/* Unmodified logprob of `id` and of the best alternatives, for prompt logprobs. */
void sampler_score(
    struct sampler *s, const struct logits *row, int32_t id, int n_top, struct sampled *out);
