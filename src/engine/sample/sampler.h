/* sampler.h: sampler: logits -> one token, independent of the batch.
 *
 * Order: constraint mask, allowed ids, logit_bias, min_tokens, penalties; then at temperature 0
 * arg-max (ties by lowest id), otherwise top_k, typical_p, top_p, min_p, temperature, draw. The
 * random number is a function of (seed, choice, position). Reported logprobs are those of the
 * unmodified distribution.
 *
 * Candidates stay in id order. Each filter sees the distribution left by the previous one, at
 * temperature 1 (candidates.h defines the summation order); top_p and typical_p keep the best
 * tokens whose weights reach the mass, ties by lowest id. The draw walks the candidates in id
 * order. NaN and -inf logits are banned, +inf counts as the largest float.
 *
 * Constraint mask: only permitted logits are read, except for logprobs. If allowed ids, bias or
 * min_tokens ban all permitted tokens, these bans are ignored: the mask overrides them. An empty
 * mask yields no token (is_unmet). A mask of at most 1 / MASK_LIST_PART of the vocabulary, in
 * whatever form, is sampled as a list without a pass over the vocabulary.
 *
 * Without a mask, if no token is left: the lowest allowed id; without allowed ids, the arg-max of
 * the model.
 *
 * A sampler is sized for one vocabulary and allocates nothing while sampling. Time is linear in the
 * vocabulary, and much lower if the model provides group maxima (model/lm.h) and few tokens are
 * kept. Owner: one thread at a time. */
#pragma once

#include "engine/sample/sample_constraint.h"
#include "kernel/kernels.h"
#include "model/lm.h"

enum { TOP_LOGPROBS_MAX = 20, MASK_LIST_PART = 50 };

struct token_bias {
    int32_t id;
    float bias; /* added to the logit; <= -100 bans */
};

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
    /* all logits, or all permitted ones, are NaN or -inf: the model computes no distribution */
    bool is_invalid;
    bool is_unmet;                              /* the mask permits no token */
    struct token_logprob top[TOP_LOGPROBS_MAX]; /* most likely first; ties by id */
};

struct sampler;

int sampler_open(struct sampler **out, const struct kernels *k, int n_vocab, struct err *e);
void sampler_close(struct sampler *s);

struct sample_past {
    const int32_t *tokens;         /* prompt, then output */
    int n_prompt, n;               /* all tokens, and the prompt tokens among them */
    const struct token_mask *mask; /* mask of the constraint, after these tokens; NULL = none */
};

/* Does not change the row. The random number is keyed by seed, choice and past->n. */
void sampler_sample(struct sampler *s, const struct sample_params *p, const struct logits *row,
    const struct sample_past *past, int choice, struct sampled *out);

/* Unmodified logprob of `id` and of the best alternatives, for prompt logprobs. */
void sampler_score(
    struct sampler *s, const struct logits *row, int32_t id, int n_top, struct sampled *out);
