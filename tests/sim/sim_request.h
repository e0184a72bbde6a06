/* sim_request.h: random engine requests. */
#pragma once

#include "base/rng.h"
#include "constrain/constraint.h"
#include "engine/engine.h"
#include "support/check.h"
#include "testing/fake_constraint.h"

enum { SIM_PROMPT_MAX = 90, SIM_OUT_MAX = 40, SIM_CHOICES_MAX = 4, SIM_STOPS_MAX = 2 };

struct sim_request {
    struct gen_input in;
    int32_t prompt[SIM_PROMPT_MAX];
    int32_t stops[SIM_STOPS_MAX];
    struct token_bias bias[2];
    int32_t allowed[8];
    struct gen_script script;
    int32_t script_tokens[SIM_OUT_MAX];
    int32_t script_groups[4];
    bool is_constrained;
    struct fake_constraint_options constraint;
    struct constraint *compiled; /* borrowed; NULL: the constraint is the fake one */
    bool closes_at_limit;        /* the compiled constraint completes the output in max_tokens */
    /* While the request exists: */
    struct fake_constraint *states[SIM_CHOICES_MAX]; /* while the request exists */
    struct constraint_state *compiled_states[SIM_CHOICES_MAX];
    struct sample_constraint constraints[SIM_CHOICES_MAX];
};

struct sim_request_limits {
    int n_vocab, max_prompt, max_out, max_choices;
    bool with_scripts, with_constraints;
};

static inline int rng_between(struct rng *r, int from, int to)
{
    return from + (int)rng_below(r, (uint64_t)(to - from + 1));
}

static inline bool rng_chance(struct rng *r, int percent)
{
    return rng_below(r, 100) < (uint64_t)percent;
}

static inline void sim_request_sampling(struct sim_request *a, struct rng *r, int n_vocab)
{
    struct sample_params *p = &a->in.sample;

    *p = sample_params_default;
    p->seed = rng_next(r);
    p->temperature = rng_chance(r, 30) ? 0 : 0.2f + (float)rng_next_unit(r) * 1.5f;
    if (rng_chance(r, 30))
        p->top_k = rng_between(r, 1, n_vocab + 3);
    if (rng_chance(r, 30))
        p->top_p = (float)rng_next_unit(r);
    if (rng_chance(r, 20))
        p->min_p = (float)rng_next_unit(r) * 0.5f;
    if (rng_chance(r, 20))
        p->typical_p = 0.1f + (float)rng_next_unit(r) * 0.9f;
    if (rng_chance(r, 30)) {
        p->repeat_penalty = 0.8f + (float)rng_next_unit(r);
        p->repeat_last_n = rng_between(r, -1, 20);
    }
    if (rng_chance(r, 30)) {
        p->presence_penalty = (float)rng_next_unit(r);
        p->frequency_penalty = (float)rng_next_unit(r);
    }
    if (rng_chance(r, 20)) {
        for (int i = 0; i < 2; i++)
            a->bias[i] = (struct token_bias){ rng_between(r, 0, n_vocab - 1),
                (float)rng_between(r, -110, 10) };
        p->bias = a->bias;
        p->n_bias = 2;
    }
    if (rng_chance(r, 10)) {
        for (int i = 0; i < 8; i++)
            a->allowed[i] = i * n_vocab / 8;
        p->allowed = a->allowed;
        p->n_allowed = 8;
    }
    p->want_logprobs = rng_chance(r, 50);
    p->n_top = rng_between(r, 0, 5);
}

static inline void sim_request_script(
    struct sim_request *a, struct rng *r, int n_vocab, int max_out)
{
    int n = rng_between(r, 0, max_out), at = 0, n_groups = rng_between(r, 0, 4);

    for (int i = 0; i < n; i++)
        a->script_tokens[i] = rng_between(r, 0, n_vocab - 1);
    for (int i = 0; i < n_groups; i++)
        a->script_groups[i] = at = rng_between(r, at, n);
    a->script = (struct gen_script){ a->script_tokens, n, a->script_groups, n_groups,
        rng_chance(r, 50) ? (uint32_t)rng_between(r, 1, 2000) : 0 };
    a->in.script = &a->script;
}

/* Has its own random numbers, so that requests without a constraint are the same. */
static inline void sim_request_constrain(struct sim_request *a, int n_vocab)
{
    struct rng r = { .key = a->in.sample.seed ^ 0x636f6e73 };

    a->is_constrained = rng_chance(&r, 50) && !a->in.script;
    a->constraint = (struct fake_constraint_options){ .seed = rng_next(&r),
        .n_vocab = n_vocab,
        .max_tokens = SIM_OUT_MAX,
        .max_cost = rng_chance(&r, 50) ? 1 : rng_between(&r, 1, 60),
        .forced_percent = rng_chance(&r, 50) ? 0 : rng_between(&r, 0, 90),
        .list_percent = rng_between(&r, 0, 60),
        .accept_percent = rng_between(&r, 0, 60),
        .complete_at = rng_chance(&r, 40) ? rng_between(&r, 1, SIM_OUT_MAX) : 0,
        .empty_at = rng_chance(&r, 15) ? rng_between(&r, 1, SIM_OUT_MAX) : 0,
        .error_at = rng_chance(&r, 15) ? rng_between(&r, 1, SIM_OUT_MAX) : 0 };
    /* End tokens are stop tokens of the request, except for some. */
    for (int i = 0; i < a->in.n_stop_ids; i++)
        a->constraint.ends[a->constraint.n_ends++] =
            rng_chance(&r, 85) ? a->stops[i] : rng_between(&r, 0, n_vocab - 1);
}

/* Creates the states of the choices before gen_new; they are freed after GEN_END. */
static inline void sim_request_open(struct sim_request *a)
{
    struct err e;

    a->in.constraints = a->is_constrained ? a->constraints : NULL;
    for (int i = 0; a->is_constrained && i < a->in.n_choices; i++) {
        CHECK(!a->states[i] && !a->compiled_states[i]);
        EXPECT_EQ(a->compiled ? constraint_state_new(&a->compiled_states[i], a->compiled, &e)
                              : fake_constraint_new(&a->states[i], &a->constraint, &e),
            0);
        if (a->compiled && a->closes_at_limit)
            EXPECT_EQ(constraint_state_limit(a->compiled_states[i], a->in.max_tokens, &e), 0);
        a->constraints[i] = a->compiled ? constraint_state_ops(a->compiled_states[i])
                                        : fake_constraint_ops(a->states[i]);
    }
}

static inline void sim_request_close(struct sim_request *a)
{
    for (int i = 0; i < SIM_CHOICES_MAX; i++) {
        fake_constraint_free(a->states[i]);
        constraint_state_free(a->compiled_states[i]);
        a->states[i] = NULL;
        a->compiled_states[i] = NULL;
    }
}

/* Makes the next turn of a conversation: a prompt, part of its output, and new tokens; or the
 * same prefix again. */
static inline void sim_request_follow(struct sim_request *a, struct rng *r,
    const struct sim_request *before, const int32_t *answer, int n_answer)
{
    int n = rng_chance(r, 50) ? before->in.n_prompt : rng_between(r, 1, before->in.n_prompt);
    int n_more = n < before->in.n_prompt ? 0 : rng_between(r, 0, MIN(n_answer, SIM_PROMPT_MAX - n));

    if (before->in.n_prompt > SIM_PROMPT_MAX)
        return;
    memcpy(a->prompt, before->prompt, (size_t)n * sizeof(*a->prompt));
    memcpy(a->prompt + n, answer, (size_t)n_more * sizeof(*answer));
    a->in.n_prompt = MAX(a->in.n_prompt, n + n_more);
    if (rng_chance(r, 90))
        a->in.scope = before->in.scope;
}

static inline void sim_request_random(
    struct sim_request *a, struct rng *r, const struct sim_request_limits *l)
{
    memset(a, 0, sizeof(*a));
    a->in.n_prompt = rng_between(r, 1, l->max_prompt);
    for (int i = 0; i < a->in.n_prompt; i++)
        a->prompt[i] = rng_between(r, 0, l->n_vocab - 1);
    a->in.prompt = a->prompt;
    a->in.max_tokens = rng_between(r, rng_chance(r, 5) ? 0 : 1, l->max_out);
    a->in.n_choices = rng_chance(r, 70) ? 1 : rng_between(r, 1, l->max_choices);
    sim_request_sampling(a, r, l->n_vocab);
    if (rng_chance(r, 60)) {
        for (int i = 0; i < SIM_STOPS_MAX; i++)
            a->stops[i] = rng_between(r, 0, l->n_vocab - 1);
        a->in.stop_ids = a->stops;
        a->in.n_stop_ids = rng_between(r, 1, SIM_STOPS_MAX);
        a->in.sample.banned_until_min = a->stops;
        a->in.sample.n_banned_until_min = a->in.n_stop_ids;
        a->in.sample.min_tokens = rng_chance(r, 50) ? rng_between(r, 0, l->max_out) : 0;
    }
    a->in.want_prompt_logprobs = rng_chance(r, 15);
    a->in.priority = rng_chance(r, 70) ? 0 : rng_between(r, -2, 3);
    a->in.scope.tenant = (uint64_t)rng_between(r, 0, 2);
    a->in.scope.salt[7] = rng_chance(r, 20);
    a->in.cache_prompt = !rng_chance(r, 5);
    if (l->with_scripts && rng_chance(r, 15))
        sim_request_script(a, r, l->n_vocab, l->max_out);
    if (l->with_constraints)
        sim_request_constrain(a, l->n_vocab);
}
