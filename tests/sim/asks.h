/* sim_request.h: random engine requests. */
#pragma once

#include "base/rng.h"
#include "engine/engine.h"

enum { ASK_PROMPT = 90, ASK_OUT = 40, ASK_CHOICES = 4, ASK_STOPS = 2 };

struct ask {
    struct gen_input in;
    int32_t prompt[ASK_PROMPT];
    int32_t stops[ASK_STOPS];
    struct token_bias bias[2];
    int32_t allowed[8];
    struct gen_script script;
    int32_t script_tokens[ASK_OUT];
    int32_t script_groups[4];
};

struct ask_limits {
    int n_vocab, max_prompt, max_out, max_choices;
    bool with_scripts;
};

static inline int ask_between(struct rng *r, int from, int to)
{
    return from + (int)rng_below(r, (uint64_t)(to - from + 1));
}

static inline bool ask_chance(struct rng *r, int percent)
{
    return rng_below(r, 100) < (uint64_t)percent;
}

static inline void ask_sampling(struct ask *a, struct rng *r, int n_vocab)
{
    struct sample_params *p = &a->in.sample;

    *p = sample_params_default;
    p->seed = rng_next(r);
    p->temperature = ask_chance(r, 30) ? 0 : 0.2f + (float)rng_next_unit(r) * 1.5f;
    if (ask_chance(r, 30))
        p->top_k = ask_between(r, 1, n_vocab + 3);
    if (ask_chance(r, 30))
        p->top_p = (float)rng_next_unit(r);
    if (ask_chance(r, 20))
        p->min_p = (float)rng_next_unit(r) * 0.5f;
    if (ask_chance(r, 20))
        p->typical_p = 0.1f + (float)rng_next_unit(r) * 0.9f;
    if (ask_chance(r, 30)) {
        p->repeat_penalty = 0.8f + (float)rng_next_unit(r);
        p->repeat_last_n = ask_between(r, -1, 20);
    }
    if (ask_chance(r, 30)) {
        p->presence_penalty = (float)rng_next_unit(r);
        p->frequency_penalty = (float)rng_next_unit(r);
    }
    if (ask_chance(r, 20)) {
        for (int i = 0; i < 2; i++)
            a->bias[i] = (struct token_bias){ ask_between(r, 0, n_vocab - 1),
                (float)ask_between(r, -110, 10) };
        p->bias = a->bias;
        p->n_bias = 2;
    }
    if (ask_chance(r, 10)) {
        for (int i = 0; i < 8; i++)
            a->allowed[i] = i * n_vocab / 8;
        p->allowed = a->allowed;
        p->n_allowed = 8;
    }
    p->want_logprobs = ask_chance(r, 50);
    p->n_top = ask_between(r, 0, 5);
}

static inline void ask_script(struct ask *a, struct rng *r, int n_vocab, int max_out)
{
    int n = ask_between(r, 0, max_out), at = 0, n_groups = ask_between(r, 0, 4);

    for (int i = 0; i < n; i++)
        a->script_tokens[i] = ask_between(r, 0, n_vocab - 1);
    for (int i = 0; i < n_groups; i++)
        a->script_groups[i] = at = ask_between(r, at, n);
    a->script = (struct gen_script){ a->script_tokens, n, a->script_groups, n_groups,
        ask_chance(r, 50) ? (uint32_t)ask_between(r, 1, 2000) : 0 };
    a->in.script = &a->script;
}

/* Makes the next turn of a conversation: a prompt, part of its output, and new tokens; or the
 * same prefix again. */
static inline void ask_follow(
    struct ask *a, struct rng *r, const struct ask *before, const int32_t *answer, int n_answer)
{
    int n = ask_chance(r, 50) ? before->in.n_prompt : ask_between(r, 1, before->in.n_prompt);
    int n_more = n < before->in.n_prompt ? 0 : ask_between(r, 0, MIN(n_answer, ASK_PROMPT - n));

    if (before->in.n_prompt > ASK_PROMPT)
        return;
    memcpy(a->prompt, before->prompt, (size_t)n * sizeof(*a->prompt));
    memcpy(a->prompt + n, answer, (size_t)n_more * sizeof(*answer));
    a->in.n_prompt = MAX(a->in.n_prompt, n + n_more);
    if (ask_chance(r, 90))
        a->in.scope = before->in.scope;
}

static inline void ask_random(struct ask *a, struct rng *r, const struct ask_limits *l)
{
    memset(a, 0, sizeof(*a));
    a->in.n_prompt = ask_between(r, 1, l->max_prompt);
    for (int i = 0; i < a->in.n_prompt; i++)
        a->prompt[i] = ask_between(r, 0, l->n_vocab - 1);
    a->in.prompt = a->prompt;
    a->in.max_tokens = ask_between(r, ask_chance(r, 5) ? 0 : 1, l->max_out);
    a->in.n_choices = ask_chance(r, 70) ? 1 : ask_between(r, 1, l->max_choices);
    ask_sampling(a, r, l->n_vocab);
    if (ask_chance(r, 60)) {
        for (int i = 0; i < ASK_STOPS; i++)
            a->stops[i] = ask_between(r, 0, l->n_vocab - 1);
        a->in.stop_ids = a->stops;
        a->in.n_stop_ids = ask_between(r, 1, ASK_STOPS);
        a->in.sample.banned_until_min = a->stops;
        a->in.sample.n_banned_until_min = a->in.n_stop_ids;
        a->in.sample.min_tokens = ask_chance(r, 50) ? ask_between(r, 0, l->max_out) : 0;
    }
    a->in.want_prompt_logprobs = ask_chance(r, 15);
    a->in.priority = ask_chance(r, 70) ? 0 : ask_between(r, -2, 3);
    a->in.scope.tenant = (uint64_t)ask_between(r, 0, 2);
    a->in.scope.salt[7] = ask_chance(r, 20);
    a->in.is_uncached = ask_chance(r, 5);
    if (l->with_scripts && ask_chance(r, 15))
        ask_script(a, r, l->n_vocab, l->max_out);
}
